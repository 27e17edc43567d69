"""The glossary names the chapter that introduces a term; none of the first lap uses it earlier."""

import json
import re
from pathlib import Path

import nbformat
import portable
import pytest

from tools.check import check_text

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "book" / "glossary.md").read_text(encoding="utf8")
LAPS = json.loads((ROOT / "llmcourse_classroom" / "curriculum.json").read_text())["laps"]
ORDER = [chapter for lap in LAPS for chapter in lap["chapters"]]
SPELLINGS = portable.terms_of(GLOSSARY)
LONGEST_FIRST = map(re.escape, sorted(SPELLINGS, key=len, reverse=True))
PATTERN = re.compile(rf"(?<![\w/-])(?:{'|'.join(LONGEST_FIRST)})(?![\w/-])")
CHAPTERS = {path.stem[:2]: path for path in sorted((ROOT / "chapters").glob("*.ipynb"))}


def introduced():
    body = re.search(r"^```\{glossary\}\n(.*?)\n```$", GLOSSARY, re.DOTALL | re.MULTILINE)[1]
    found = {}
    for entry in body.split("\n\n"):
        term, *_, last = entry.split("\n")
        assert term not in found, f"{term} stands twice"
        named = re.search(r" \(chapter \[(\d\d)\]\(\.\./chapters/(\w+)\.ipynb\)\)$", last)
        found[term] = named[1] if named else ""
        if named:
            assert CHAPTERS[named[1]].stem == named[2], term
    return found


INTRODUCED = introduced()


def main_line(path):
    return check_text.prose(check_text.without(nbformat.read(path, as_version=4), check_text.AFTER))


def used_in(text):
    found = {}
    for match in PATTERN.finditer(text):
        term = SPELLINGS[match[0]]
        stressed = text[: match.start()].endswith("*") and text[match.end() :].startswith("*")
        if term not in portable.EVERYDAY or stressed:
            found.setdefault(term, " ".join(text[max(0, match.start() - 40) : match.end()].split()))
    return found


def too_early(number, text):
    return [
        (term, f"chapter {INTRODUCED[term]}", place)
        for term, place in used_in(text).items()
        if INTRODUCED[term] and ORDER.index(INTRODUCED[term]) > ORDER.index(number)
    ]


FIRST_LAP = [number for number in LAPS[0]["chapters"] if number in CHAPTERS]


@pytest.mark.parametrize("number", FIRST_LAP)
def test_no_term_is_used_before_the_chapter_that_introduces_it(number):
    assert too_early(number, main_line(CHAPTERS[number])) == []


def test_the_terms_of_the_first_lap_name_a_chapter_of_it_and_one_too_early_is_found():
    used = set().union(*(used_in(main_line(CHAPTERS[number])) for number in FIRST_LAP))
    assert {term for term in used if INTRODUCED[term] not in LAPS[0]["chapters"]} == set()
    assert len(used) > 100
    (found,) = too_early("01", "The loss of a batch, and *masks*, go through Muon, or a mask.")[-1:]
    assert found == ("Muon", "chapter 25", "oss of a batch, and *masks*, go through Muon")
    assert "mask" in dict.fromkeys(term for term, *_ in too_early("01", "and *masks*"))
    assert too_early("01", "a mask") == too_early("25", "through Muon") == []
