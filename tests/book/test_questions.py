"""The tree of questions: seven branches, three tiers, and a section that answers each."""

import itertools
import re

import pytest
from anchors import CHAPTER_LINK, ROOT, sections

PAGE = (ROOT / "book" / "questions.md").read_text(encoding="utf8")
LINE = re.compile(r"^(?P<indent> *)- (?P<link>\[.+\)) \((?P<number>\d\d)\)$", re.MULTILINE)
BRANCHES = PAGE.split("\n## ")[1:]
QUESTIONS = [
    (len(line["indent"]) // 2 + 1, CHAPTER_LINK.fullmatch(line["link"]), line["number"])
    for line in LINE.finditer(PAGE)
]
WRITTEN = {path.stem for path in (ROOT / "chapters").glob("*.ipynb")}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[1]["text"])
def test_a_question_leads_to_a_section_that_exists(question):
    _, link, number = question
    assert link["text"].endswith("?")
    assert link["number"] == number
    assert link["chapter"] in WRITTEN
    assert link["anchor"] is None or link["anchor"] in sections(link["chapter"])


def test_there_are_seven_branches_of_three_tiers_and_no_question_is_asked_twice():
    assert len(BRANCHES) == 7
    for branch in BRANCHES:
        title, *lines = branch.strip().splitlines()
        lines = [line for line in lines if line]
        assert all(LINE.fullmatch(line) for line in lines), title
        tiers = [len(LINE.fullmatch(line)["indent"]) // 2 + 1 for line in lines]
        assert ((tiers[0], tiers.count(1)), set(tiers)) == ((1, 1), {1, 2, 3})
        steps = itertools.pairwise(tiers)
        assert all(after <= before + 1 for before, after in steps), title
    assert len({link["text"] for _, link, _ in QUESTIONS}) == len(QUESTIONS)
    answering = {link["chapter"] for _, link, _ in QUESTIONS}
    assert answering == WRITTEN - {"00_how_to_use", "45_capstone"}
    tiers = [tier for tier, *_ in QUESTIONS]
    assert tiers.count(1) == 7
    assert tiers.count(2) >= 28
    assert tiers.count(3) >= 11
