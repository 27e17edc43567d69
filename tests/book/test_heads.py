"""The head of a chapter: a card with a drawing, a question, the time, the lap and what it needs."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import drawings
import portable
import pytest

ROOT = Path(__file__).parents[2]
COURSE = json.loads((ROOT / "llmcourse_classroom/curriculum.json").read_text(encoding="utf8"))
PLACES = {
    chapter["number"]: (part, place, chapter)
    for part, of_part in enumerate(COURSE["parts"])
    for place, chapter in enumerate(of_part["chapters"])
}
TITLE = "# 19 A title\n\nWords.\n\n**Minutes** 40 (reading) + 2 min (running)"
NEEDS = (
    "## You need\n\n[A](18_b.ipynb#c), [B](02_d.ipynb), [A](18_b.ipynb).\n\n## C\n\n[C](03_e.ipynb)"
)


def made(*texts):
    cells = [{"cell_type": "markdown", "id": "m", "metadata": {}, "source": text} for text in texts]
    return portable.made_page({"cells": cells}, {}, "4", ROOT / "chapters")["cells"]


def test_the_card_takes_minutes_and_needs_which_may_stand_further_below():
    first = made(TITLE, NEEDS)[0]["source"]
    assert first == (
        "# 19 A title\n\n```{phases} 4\n```\n"
        "```{head} 19\n:reading: 40\n:running: 2 min\n:needs: 18 02\n```\n\nWords."
    )
    assert ":needs: 18 02\n" in made(TITLE, "Text.", "Text.\n\n" + NEEDS)[0]["source"]
    assert ":needs:" not in made(TITLE, "Text.")[0]["source"]


@pytest.mark.parametrize("number", PLACES)
def test_a_chapter_begins_with_a_picture(number):
    """The card stands before the text, so its drawing is in the first screen."""
    chapter = PLACES[number][2]
    path = ROOT / "chapters" / f"{number}_{chapter['slug']}.ipynb"
    title = "".join(json.loads(path.read_text(encoding="utf8"))["cells"][0]["source"])
    before = made(title)[0]["source"].index(f"```{{head}} {number}\n")
    assert before < len(title.split("\n")[0]) + 30
    assert 20 < len(chapter["question"]) < 90
    assert chapter["question"].endswith("?")


def test_each_chapter_has_a_drawing_of_its_own_on_its_sheet_with_words_of_its_own():
    made = [ElementTree.fromstring(drawings.drawing(*PLACES[number][:2])) for number in PLACES]
    words = [each.get("aria-label") for each in made]
    assert len(set(words)) == len({ElementTree.tostring(each) for each in made}) == len(PLACES)
    assert all(re.fullmatch(r"[A-Z].{20,110}\.", each) for each in words)
    looks = {name for each in made for part in each for name in part.get("class").split()}
    assert looks == {"on", "soft", "off", "ink", "hue", "paper", "solid"}
    for part, place, _ in PLACES.values():
        for element in ElementTree.fromstring(drawings.drawing(part, place)):
            if element.tag == "rect":
                x, y, w, h = (float(element.get(name)) for name in ("x", "y", "width", "height"))
                assert x >= 0 <= y, (part, place)
                assert max(x + w - 240, y + h - 140) <= 0, (part, place)
