"""The appendices: each promise names a test that exists; syllabi add up and leave nothing out."""

import ast
import json
import re
from functools import cache
from importlib import resources
from pathlib import Path

import pytest
import yaml

from llmcourse_classroom.own import assemble
from tools.pages import syllabi

ROOT = Path(__file__).parents[2]
BOOK, TESTS = ROOT / "book", ROOT / "tests"
NOTE = re.compile(r"^\[\^(\d+)\]: `tests/([\w/]+\.py)::(\w+)`$", re.MULTILINE)
"""A test, as a footnote."""
ASKS = re.compile(r"\[\^(\d+)\](?!:)")
UNTESTED = re.compile(r"\b[Nn]ot tested\b|No test asserts one")


@cache
def names_in(path):
    if not (TESTS / path).is_file():
        return set()
    return {
        node.name
        for node in ast.parse((TESTS / path).read_text(encoding="utf8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def faults(text):
    """Return the tests that a page names and that are not there, and promises without any."""
    notes = {number: (path, name) for number, path, name in NOTE.findall(text)}
    found = [f"tests/{p}::{name}" for p, name in notes.values() if name not in names_in(p)]
    found += [f"[^{number}]" for number in set(ASKS.findall(text)) ^ set(notes)]
    found += re.findall(r"^(?!\[\^).*`tests/.*", text, re.MULTILINE)  # no footnote
    promises = re.findall(r"^- .*$", text, re.MULTILINE)
    return found + [p for p in promises if not ASKS.search(p) and not UNTESTED.search(p)]


@pytest.mark.parametrize("name", ["access", "determinism"])
def test_each_promise_names_a_test_that_exists(name):
    text = (BOOK / f"{name}.md").read_text(encoding="utf8")
    assert faults(text) == []
    assert len(NOTE.findall(text)) > 10


def test_promises_have_tests_and_letters_an_order():
    here, own = "tests/book/test_appendices.py", "test_promises_have_tests_and_letters_an_order"
    assert faults(f"- True.[^1]\n\n[^1]: `{here}::{own}`\n") == []
    assert (faults("- Nobody knows. Not tested.\n"), faults("- True.\n")) == ([], ["- True."])
    assert (faults("- True.[^1]\n"), faults(f"[^1]: `{here}::{own}`\n")) == (["[^1]"], ["[^1]"])
    assert faults(f"- True.[^1]\n\n[^1]: `{here}::test_nothing`\n") == [f"{here}::test_nothing"]
    assert faults("- True.[^1]\n\n[^1]: `tests/none.py::test_it`\n") == ["tests/none.py::test_it"]
    assert faults(f"As in `{here}`.\n") == [f"As in `{here}`."]
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf8"))["parts"]
    (entries,) = (part["chapters"] for part in parts if part["caption"] == "Appendices")
    letters = [entry["title"][0] for entry in entries]
    assert letters == sorted(set(letters))
    assert set("ACDEFGH") <= set(letters) <= set("ABCDEFGHI")
    for entry in entries:
        first = (ROOT / f"{entry['file']}.md").read_text(encoding="utf8").split("\n")[0]
        assert entry["title"][1:] == first.removeprefix("#")


COURSE = json.loads(resources.files("llmcourse_classroom").joinpath("curriculum.json").read_text())
FIRST, SECOND, THIRD = (lap["chapters"] for lap in COURSE["laps"])


def chapters_of(name):
    return " ".join(part.chapters for part in syllabi.SYLLABI[name]).split()


def asked_in(name):
    return [part.exercises.split() for part in syllabi.SYLLABI[name]]


def rows_of(name):
    text = syllabi.PAGE.read_text(encoding="utf8").split(f"<!-- {name} -->\n")[1].split("\n\n")[0]
    cells = [line.replace(",", "").split("|")[-4:-1] for line in text.splitlines()[2:]]
    return [[float(cell) for cell in row] for row in cells]


def test_syllabi_go_through_whole_laps_in_their_order_and_have_ones_own_llama():
    assert chapters_of("Four weeks") == ["00", *FIRST]
    assert chapters_of("Twelve weeks") == ["00", *FIRST, *SECOND]
    assert chapters_of("The third lap") == THIRD
    assert [n for n in FIRST if n in chapters_of("One day")] == chapters_of("One day")
    pieces = {piece.number for piece in assemble.pieces(assemble.template())}
    assert len(pieces) == 15
    assert pieces <= set().union(*asked_in("Four weeks"))


@pytest.mark.parametrize("name", syllabi.SYLLABI)
def test_a_syllabus_asks_what_has_been_read_and_what_exists(name):
    read = set()
    for part, numbers in zip(syllabi.SYLLABI[name], asked_in(name), strict=True):
        read |= set(part.chapters.split())
        for number in numbers:
            assert number[:2] in read
            assert syllabi.questions_of(number), number
        assert len(set(numbers)) == len(numbers)
    assert all(map(syllabi.minutes_of, read))


@pytest.mark.parametrize(
    ("name", "hours", "row_hours"),
    [("One day", (4.5, 6), (0.5, 1.5)), ("Four weeks", (24, 32), (5.5, 8.5)),
     ("Twelve weeks", (84, 132), (6.5, 11.5)), ("The third lap", (7.5, 21), (1.5, 4.5))],
)  # fmt: skip
def test_the_sums_on_the_page_are_those_of_its_rows_and_fit(name, hours, row_hours):
    *rows, last = rows_of(name)
    assert len(rows) == len(syllabi.SYLLABI[name])
    assert last == [sum(column) for column in zip(*rows, strict=True)]
    assert hours[0] <= (last[0] + last[1]) / 60 <= hours[1]
    assert all(row_hours[0] <= (row[0] + row[1]) / 60 <= row_hours[1] for row in rows)


def test_sums_are_those_of_chapters_and_exercises_and_weights_add_up():
    """02: 40 minutes; 02.1: 15 minutes, 1 point; 05: 100 minutes, 8 points."""
    assert syllabi.sums_of(syllabi.Part("", "02", "02.1")) == (40, 15, 1)
    assert syllabi.sums_of(syllabi.Part("", "02 05", "05 02.1")) == (86, 115, 9)
    text = syllabi.PAGE.read_text(encoding="utf8").split("### A grading plan")[1]
    rows = [line.split("|")[-3:-1] for line in text.splitlines() if line.endswith("% |")]
    for column in zip(*rows, strict=True):
        assert sum(int(cell.strip(" %") or 0) for cell in column) == 100


def test_stale_syllabi_are_noticed(tmp_path, monkeypatch, capsys):
    assert syllabi.main(["--check"]) == 0
    path = tmp_path / "instructors.md"
    path.write_text("One.\n\n<!-- One day -->\n\nTwo.\n")
    monkeypatch.setattr(syllabi, "PAGE", path)
    assert (syllabi.main(["--check"]), syllabi.main([])) == (1, 0)
    assert path.read_text().startswith("One.\n\n<!-- One day -->\n| part | what |")
    assert path.read_text().endswith(" | 9 |\n\nTwo.\n")
    assert syllabi.main(["--check"]) == 0
    path.write_text(path.read_text().replace("| 9 |", "| 8 |"))
    assert (syllabi.main(["--check"]), capsys.readouterr().out.count("stale")) == (1, 2)
