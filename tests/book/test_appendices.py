"""The appendices: each promise names a test that exists, or says that it is not tested."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOOK, TESTS = ROOT / "book", ROOT / "tests"
NAMED = re.compile(r"`tests/([\w/]+\.py)::(\w+)`")


@cache
def names_in(path):
    """Return the names of a file's tests."""
    if not (TESTS / path).is_file():
        return set()
    return {
        node.name
        for node in ast.parse((TESTS / path).read_text(encoding="utf8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def faults(text):
    """Return the tests that a page names and that are not there, and promises without any."""
    found = [f"tests/{p}::{n}" for p, n in NAMED.findall(text) if n not in names_in(p)]
    said = re.findall(r"`(?=tests/)[^`]*`", text)
    found += [f"{each}: not path::name" for each in said if not NAMED.fullmatch(each)]
    promises = re.findall(r"^- .*$", text, re.MULTILINE)
    untested = re.compile(r"\b[Nn]ot tested\b|No test asserts one")
    return found + [p for p in promises if not NAMED.search(p) and not untested.search(p)]


@pytest.mark.parametrize("name", ["determinism"])
def test_each_promise_names_a_test_that_exists(name):
    text = (BOOK / f"{name}.md").read_text(encoding="utf8")
    assert faults(text) == []
    assert len(NAMED.findall(text)) > 10


def test_a_promise_without_a_test_is_found():
    here = "tests/book/test_appendices.py"
    assert faults(f"- True. `{here}::test_a_promise_without_a_test_is_found`\n") == []
    assert faults("- Nobody knows. Not tested.\n") == []
    assert faults("- True.\n") == ["- True."]
    assert faults(f"- True. `{here}::test_nothing`\n") == [f"{here}::test_nothing"]
    assert faults("- True. `tests/none.py::test_it`\n") == ["tests/none.py::test_it"]
    assert faults(f"As in `{here}`.\n") == [f"`{here}`: not path::name"]
