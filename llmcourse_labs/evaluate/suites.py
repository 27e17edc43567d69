"""Items made of the stories, one skill at a time: the grammar knows what is right.

    pronoun   Once there was a girl named Emma. | She     (or: He)
    article   One day Ben was in the park. He saw | an owl     (or: a owl)
    thing     Max had a red kite and loved it. Then the wind took the | kite     (or another toy)
    name      One day Lily went to the lake. ... | Lily     (or another girl, of no part in it)
    sum       He had four nuts. Ben gave one of them to Mia. ... Now Ben had | three     (or ...)
    next      what happens next, or a sentence that this plot does not have

A story gives at most one item of each skill; items of a story are a cluster.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from llmcourse.base.arguments import require
from llmcourse.data.corpus.grammar import Derivation
from llmcourse.data.corpus.story_grammar import STORY_GRAMMAR
from llmcourse.data.corpus.story_lexicon import CLASSES
from llmcourse.data.corpus.templates import Slot, capitalise, split_template
from llmcourse_labs.evaluate.benchmarks import ChoiceItem

SKILLS = ("pronoun", "article", "thing", "name", "sum", "next")
"""What items of the stories ask for."""

NUM_CHOICES = 4
"""Of items that are not about two words."""

MOST_BYTES = 200
"""Of a prompt: the little model has to read it whole."""

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_RESULT = re.compile(r"(?:Now \w+ had|There were)( \w+) \w+ (?:left|in all)")


def story_items(number: int, *, seed: int, skills: Sequence[str] = SKILLS) -> list[ChoiceItem]:
    """Return items about stories that the grammar writes, `number` of each skill, skill by skill.

    More items begin with the same ones, and other skills change nothing.

    Args:
        number: of each skill, 1 or more.
        seed: of the stories, 0 or more; none of them is one of `corpus.stories`' but by chance.
        skills: some of `SKILLS`.

    Raises:
        ValueError: if a number is out of its range, or a skill is unknown.
    """
    require("number", number, least=1)
    require("seed", seed, least=0)
    if not skills or not set(skills) <= set(SKILLS):
        raise ValueError(f"skills must be some of {', '.join(SKILLS)}, got {list(skills)}")
    found: dict[str, list[ChoiceItem]] = {skill: [] for skill in skills}
    told = random.Random(f"items {seed}")
    story = 0
    while any(len(items) < number for items in found.values()):
        text, derivation = STORY_GRAMMAR.sample(told)
        for skill, items in found.items():
            item = _item(skill, text, derivation, f"{seed} {story}")
            if item is not None and len(items) < number:
                items.append(item)
        story += 1
    return [item for items in found.values() for item in items]


def listed(item: ChoiceItem, turn: int = 0) -> ChoiceItem:
    """Return an item whose choices stand in the prompt with letters, and are answered by a letter.

    Args:
        item: with at most 26 choices.
        turn: how many places each choice moves on; with every turn from 0 on, each choice has each
            letter once.

    Raises:
        ValueError: if there are more choices than letters.
    """
    number = len(item.choices)
    require("the number of choices", number, most=26)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:number]
    order = [(place - turn) % number for place in range(number)]
    shown = "".join(f"\n{letters[p]}:{item.choices[k]}" for p, k in enumerate(order))
    return replace(
        item,
        prompt=f"{item.prompt}{shown}\nAnswer:",
        choices=tuple(f" {letter}" for letter in letters),
        right=order.index(item.right),
    )


# --- the skills


def _item(skill: str, text: str, derivation: Derivation, story: str) -> ChoiceItem | None:
    """Return an item of a skill, or None if the story has no place for it."""
    rng = random.Random(f"{skill} {story}")
    places = [
        (start, wrong, right)
        for start, right, wrong in _PLACES[skill](text, derivation, rng)
        if 0 < start <= MOST_BYTES
    ]
    if not places:
        return None
    start, wrong, right = rng.choice(places)
    choices = [right, *wrong]
    rng.shuffle(choices)
    return ChoiceItem(
        skill=skill,
        prompt=text[:start],
        choices=tuple(choices),
        right=choices.index(right),
        cluster=story,
    )


_Places = list[tuple[int, str, list[str]]]
"""Where the prompt ends, the right choice, and the wrong ones."""


def _pronoun(text: str, _: Derivation, __: random.Random) -> _Places:
    other = {" he": " she", " she": " he", " He": " She", " She": " He"}
    return [(m.start(), m[0], [other[m[0]]]) for m in re.finditer(r" (?:[Hh]e|[Ss]he)\b", text)]


def _article(text: str, _: Derivation, __: random.Random) -> _Places:
    found = re.finditer(r" (a|an) (\w+)", text)
    return [(m.start(), m[0], [f" {'a' if m[1] == 'an' else 'an'} {m[2]}"]) for m in found]


def _thing(text: str, derivation: Derivation, rng: random.Random) -> _Places:
    places: _Places = []
    for kind in ("toy", "animal"):
        if kind in derivation.values:
            name = CLASSES[kind][derivation.values[kind]][""]
            first = re.search(rf"\b{name}\b", text)
            if first is None:
                continue
            for m in re.finditer(rf"(?<= the) {name}\b", text[first.end() :]):
                others = [f" {each['']}" for each in CLASSES[kind] if each[""] != name]
                wrong = rng.sample(others, NUM_CHOICES - 1)
                places.append((first.end() + m.start(), f" {name}", wrong))
    return places


def _name(text: str, derivation: Derivation, rng: random.Random) -> _Places:
    places: _Places = []
    hero = CLASSES["child"][derivation.values["hero"]]
    taken = {derivation.values[who] for who in ("hero", "friend") if who in derivation.values}
    others = [
        f" {each['']}"
        for number, each in enumerate(CLASSES["child"])
        if number not in taken and each["he"] == hero["he"]
    ]
    for m in list(re.finditer(rf" {hero['']}\b", text))[1:]:
        places.append((m.start(), m[0], rng.sample(others, NUM_CHOICES - 1)))
    return places


def _sum(text: str, _: Derivation, rng: random.Random) -> _Places:
    places: _Places = []
    for m in _RESULT.finditer(text):
        others = [f" {word}" for word in _NUMBERS if f" {word}" != m[1]]
        places.append((m.start(1), m[1], rng.sample(others, NUM_CHOICES - 1)))
    return places


def _next(text: str, derivation: Derivation, rng: random.Random) -> _Places:
    """Wrong are sentences of other plots, about the persons and things of this one."""
    plot = next(p for p in STORY_GRAMMAR.plots if _tells(p, derivation.templates))
    own = {template for beat in plot for template in beat}
    others = [template for template in STORY_GRAMMAR.templates if template not in own]
    sentences = re.findall(r' [^ .!?][^.!?]*[.!?]"?(?=[^,]|$)', f" {text}")
    places: _Places = []
    start = 0
    for sentence in sentences:
        if start > 0 and f" {text}".count(sentence) == 1:
            wrong = [_filled(each, derivation, rng) for each in rng.sample(others, 8)]
            wrong = [each for each in dict.fromkeys(wrong) if each != sentence]
            places.append((start - 1, sentence, wrong[: NUM_CHOICES - 1]))
        start += len(sentence)
    return places


def _tells(plot: Sequence[Sequence[str]], templates: Sequence[str]) -> bool:
    """Say whether a plot can have spoken these templates, beat after beat."""
    said = list(templates)
    for beat in plot:
        if said and said[0] in beat:
            said.pop(0)
        elif "" not in beat:
            return False
    return not said


def _filled(template: str, derivation: Derivation, rng: random.Random) -> str:
    """Return a template as a sentence of a story; what the story lacks is drawn."""
    values = dict(derivation.values)
    sentence = ""
    for piece in split_template(template):
        if isinstance(piece, Slot):
            kind = STORY_GRAMMAR.variables[piece.variable]
            taken = {values[v] for v in values if STORY_GRAMMAR.variables[v] == kind}
            if piece.variable not in values:
                free = [n for n in range(len(CLASSES[kind])) if n not in taken]
                values[piece.variable] = rng.choice(free)
            form = CLASSES[kind][values[piece.variable]][piece.form]
            sentence += form if sentence else capitalise(form)
        else:
            sentence += piece
    return f" {sentence}"


_PLACES = {
    "pronoun": _pronoun,
    "article": _article,
    "thing": _thing,
    "name": _name,
    "sum": _sum,
    "next": _next,
}
