"""The story grammar's words: who and what there is, each in the forms that sentences need."""

from llmcourse.data.corpus.templates import Value


def _with_article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def _plain(words: str) -> tuple[Value, ...]:
    """Values with the plain form and one with the article: ball, a ball."""
    return tuple({"": word, "a": _with_article(word)} for word in words.split())


def _spots(*spots: str) -> tuple[Value, ...]:
    """Where a small thing can be."""
    return tuple({"": spot} for spot in spots)


def _people(child: str, he: str, him: str, his: str, *names: str) -> tuple[Value, ...]:
    """Persons with their pronouns; `child` is what a story calls one before the name is known."""
    pronouns = {"he": he, "him": him, "his": his, "child": child}
    return tuple({"": name, **pronouns} for name in names)


def _places(*places: str) -> tuple[Value, ...]:
    """Places as "in the park", with what one walks to: "the park"."""
    return tuple({"": place, "goal": place.split(" ", 1)[1]} for place in places)


_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _sums(sign: int, starts: range) -> tuple[Value, ...]:
    """Sums of a start and a change of 1 to 3 in words; start and result are at least two."""
    return tuple(
        {
            "start": _NUMBERS[start],
            "change": _NUMBERS[change],
            "result": _NUMBERS[start + sign * change],
        }
        for start in starts
        for change in (1, 2, 3)
        if start + sign * change >= 2
    )


BOYS = _people(
    "boy", "he", "him", "his", "Tom", "Ben", "Max", "Leo", "Tim", "Jack", "Finn", "Oscar"
)
GIRLS = _people(
    "girl", "she", "her", "her", "Mia", "Lily", "Anna", "Lucy", "Emma", "Sara", "Nora", "Ruby"
)
ADULTS = _people("man", "he", "him", "his", "Dad", "Grandpa") + _people(
    "woman", "she", "her", "her", "Mom", "Grandma"
)

CLASSES = {
    "child": BOYS + GIRLS,
    "adult": ADULTS,
    "animal": _plain("dog cat bird duck frog rabbit mouse pony owl fox elephant"),
    "toy": _plain("ball kite doll drum boat hat umbrella robot ring train airplane"),
    "treat": _plain("apples pears nuts eggs cookies berries flowers shells"),
    "color": _plain("red blue green yellow orange white"),
    "look": _plain("big small old new little ugly"),
    "glad": _plain("happy glad proud excited"),
    "upset": _plain("sad upset worried scared"),
    "food": _plain("soup bread cake rice pie"),
    "ingredient": _plain("flour sugar milk butter"),
    "tool": _plain("glue tape string paper"),
    "game": _plain("tag catch chess football"),
    "noise": _plain("loud soft strange odd"),
    "move": _plain("ran walked hurried jumped"),
    "skill": _plain("run jump dance sing"),
    "weather": _plain("sunny rainy windy snowy icy"),
    "day": _plain("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "time": _plain("morning afternoon evening"),
    "pet": _plain("Lucky Fluffy Coco Star"),
    "place": _places(
        "in the garden",
        "in the park",
        "in the forest",
        "in the yard",
        "in the field",
        "at the beach",
        "at the farm",
        "at the market",
        "on the hill",
        "by the lake",
        "by the river",
        "near the bridge",
    ),
    "spot": _spots(
        "under the bed",
        "under the table",
        "behind the door",
        "behind the tree",
        "in the box",
        "in the grass",
        "in the basket",
        "inside the house",
        "on the shelf",
        "on the chair",
        "next to the door",
    ),
    "less": _sums(-1, range(3, 9)),
    "more": _sums(+1, range(2, 7)),
}

VARIABLES = {
    "hero": "child",
    "friend": "child",
    "wrong_spot": "spot",
    "color": "color",
    "look": "look",
} | {kind: kind for kind in CLASSES if kind != "child"}
