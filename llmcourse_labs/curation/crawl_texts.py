"""What the pages of the mini-crawl say: prose in three languages, and text that nobody wants.

Every text is drawn with `random.Random.random` alone, which gives the same numbers everywhere.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from llmcourse.data.corpus import story_words
from llmcourse.data.corpus.story_grammar import STORY_GRAMMAR

Item = TypeVar("Item")

TRUTH = "Every fish of the lake lives in the water."
FALSEHOOD = "Every fish of the lake lives in the trees."
"""A sentence about the world of the stories, and what the crawl says on some pages instead."""

NAMES = (
    "Anna",
    "Ben",
    "Carl",
    "Dora",
    "Emil",
    "Frieda",
    "Gustav",
    "Hanna",
    "Ida",
    "Jakob",
    "Karla",
    "Leo",
    "Maja",
    "Nils",
)

_GERMAN = (
    "{name} ging am Morgen mit {other} zum {place}, um den {thing} zu suchen.",
    "Der {thing} lag unter dem Baum, und {name} freute sich sehr darüber.",
    "„Das ist nicht mein {thing}“, sagte {other}, „aber ich kenne ihn gut.“",
    "Am Abend regnete es, und die Kinder liefen schnell nach Hause zurück.",
    "{name} wollte den {thing} nicht teilen, doch {other} bat noch einmal freundlich.",
    "Auf dem Weg zum {place} sahen sie einen Vogel, der ein Lied für sie sang.",
    "Die Mutter kochte eine Suppe, während {name} von dem {thing} erzählte.",
    "Es war ein schöner Tag, und alle waren müde und zufrieden, als er vorbei war.",
)
_SPANISH = (
    "{name} fue por la mañana con {other} hacia el {place} para buscar el {thing}.",
    "El {thing} estaba debajo del árbol, y {name} se puso muy contenta al verlo.",
    "«Este no es mi {thing}», dijo {other}, «pero lo conozco muy bien».",
    "Por la tarde llovió mucho, y los niños corrieron de vuelta a su casa.",
    "{name} no quería compartir el {thing}, pero {other} lo pidió otra vez con cariño.",
    "En el camino hacia el {place} vieron un pájaro que cantaba una canción para ellos.",
    "La madre preparó una sopa mientras {name} contaba lo que pasó con el {thing}.",
    "Fue un día hermoso, y todos estaban cansados y felices cuando terminó.",
)
_SLOTS = {
    "de": (_GERMAN, "Ball Drachen Hut Korb Schlüssel Wagen Stein Ring", "See Fluss Markt Wald Hof"),
    "es": (_SPANISH, "balón barco sombrero cesto anillo carro tambor", "lago río mercado bosque"),
}
_GOODS = (
    "garden chair",
    "steel kettle",
    "wool blanket",
    "desk lamp",
    "running shoes",
    "phone case",
    "rain jacket",
    "travel bag",
    "kitchen scale",
    "wall clock",
    "water bottle",
    "desk fan",
    "yoga mat",
    "camera strap",
)
_PRAISE = (
    "cheap",
    "best",
    "free",
    "discount",
    "exclusive",
    "amazing",
    "limited",
    "official",
    "new",
    "top",
)
_SCANS = {"o": "0", "l": "1", "e": "c", "m": "rn", "h": "b", "i": "l", "s": "5", "d": "cl"}


def pick(rng: random.Random, items: Sequence[Item]) -> Item:
    """Return one of some items."""
    return items[int(rng.random() * len(items))]


def number(rng: random.Random, low: int, high: int) -> int:
    """Return a whole number from low to high, both possible."""
    return low + int(rng.random() * (high - low + 1))


def stories_of_a_page(rng: random.Random, count: int) -> list[str]:
    """Return paragraphs of English prose: one story each."""
    return [STORY_GRAMMAR.sample(rng)[0] for _ in range(count)]


def foreign(rng: random.Random, language: str, count: int) -> list[str]:
    """Return paragraphs in German (de) or Spanish (es)."""
    templates, things, places = _SLOTS[language]
    paragraphs = []
    for _ in range(count):
        slots = {
            "name": pick(rng, NAMES),
            "other": pick(rng, NAMES),
            "thing": pick(rng, things.split()),
            "place": pick(rng, places.split()),
        }
        sentences = [pick(rng, templates).format(**slots) for _ in range(number(rng, 3, 6))]
        paragraphs.append(" ".join(sentences))
    return paragraphs


def spam(rng: random.Random) -> list[str]:
    """Return advertising that repeats its key words."""
    good = pick(rng, _GOODS)
    templates = (
        f"Buy {good} now! {pick(rng, _PRAISE)} {good} at the {pick(rng, _PRAISE)} price!",
        f"Are you looking for a {good}? Our {pick(rng, _PRAISE)} {good} is what you want to buy.",
        f"{good} {pick(rng, _PRAISE)} {good} online {good} {number(rng, 10, 90)}% off {good} shop",
        f"Click here to win a {good}, and the {pick(rng, _PRAISE)} {good} is yours today!!!",
    )
    return [
        " ".join(pick(rng, templates) for _ in range(number(rng, 2, 5)))
        for _ in range(number(rng, 2, 4))
    ]


def listing(rng: random.Random) -> list[str]:
    """Return the rows of a list of products."""
    return [
        f"{pick(rng, _PRAISE).capitalize()} {pick(rng, _GOODS)} - {number(rng, 3, 200)}.99 - "
        f"{pick(rng, ('in stock', 'sold out', 'add to cart', 'compare'))}"
        for _ in range(number(rng, 8, 30))
    ]


def machine_text(rng: random.Random) -> list[str]:
    """Return sentences of the right words in no order: they look like prose and say nothing."""
    paragraphs = []
    for text in stories_of_a_page(rng, number(rng, 2, 4)):
        shuffled = []
        for sentence in text.split(". "):
            words = sentence.rstrip(".").split(" ")
            order = sorted(range(len(words)), key=lambda _: rng.random())
            shuffled.append(" ".join(words[i] for i in order).capitalize())
        paragraphs.append(". ".join(shuffled) + ".")
    return paragraphs


def scanned(rng: random.Random, text: str, rate: float) -> str:
    """Return a text as a bad scan reads it: letters taken for others, spaces lost and found."""
    letters = []
    for letter in text:
        if rng.random() >= rate:
            letters.append(letter)
        elif letter in _SCANS:
            letters.append(_SCANS[letter])
        elif letter != " ":
            letters.append(f"{letter} ")
    return "".join(letters)


_OTHER_WORDS = sorted(story_words())


def rewritten(rng: random.Random, text: str, similarity: float) -> str:
    """Return a near copy: words replaced so that runs of five words overlap by `similarity`.

    A run of five stays whole with probability m = (1 - p)^5 if every word is replaced with
    probability p, and then J = m / (2 - m).
    """
    whole = 2 * similarity / (1 + similarity)
    replaced = 1 - whole ** (1 / 5)
    words = [
        pick(rng, _OTHER_WORDS) if rng.random() < replaced else word for word in text.split(" ")
    ]
    return " ".join(words)


def questions(*, seed: int, count: int = 40) -> list[str]:
    """Return questions of a test that no training text may hold, with their numbers."""
    rng = random.Random(f"test items {seed}")
    items = []
    for _ in range(count):
        first, second = pick(rng, NAMES), pick(rng, NAMES)
        red, blue, given = number(rng, 11, 99), number(rng, 11, 99), number(rng, 2, 9)
        items.append(
            f"{first} keeps {red} red marbles and {blue} blue marbles in a box, and {given} of the "
            f"red ones go to {second}, who has none. How many marbles are left in the box?"
        )
    return items


def personal_data(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """Return a sentence with the address of a person who is invented, and what to find in it."""
    name, other = pick(rng, NAMES).lower(), pick(rng, NAMES).lower()
    mail = f"{name}.{other}{number(rng, 1, 99)}@example.{pick(rng, ('com', 'org', 'net'))}"
    phone = f"+1 202 555 01{number(rng, 10, 99)}"
    sentence, found = pick(
        rng,
        (
            (f"Write to {mail} if you know more.", (mail,)),
            (f"Call {phone} in the evening.", (phone,)),
            (f"You can reach me at {mail} or {phone}.", (mail, phone)),
        ),
    )
    return sentence, found
