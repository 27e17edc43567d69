"""nbformat is imported without a grammar that takes three seconds, and leaves no trace of that."""

import subprocess
import sys

import pytest

GRAMMAR = "rfc3987_syntax"


def said_by(code):
    command = [sys.executable, "-c", f"import sys\n{code}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_it_is_imported_without_the_grammar():
    code = "from llmcourse_classroom.exercises import exercise\nprint(*sys.modules, sep='\\n')"
    assert {"nbformat", "jsonschema"} <= (names := set(said_by(code)))
    assert GRAMMAR not in names


@pytest.mark.parametrize("before", ["", f"import {GRAMMAR}; "])
def test_who_wants_the_grammar_gets_it(before):
    pytest.importorskip("jupyter_events", reason="brings the grammar")
    code = f"{before}from llmcourse_classroom.notebooks import nbformat; import {GRAMMAR} as g"
    assert said_by(f"{code}; print(g.is_valid_syntax('iri', 'https://example.org'))") == ["True"]
