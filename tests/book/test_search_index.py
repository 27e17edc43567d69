"""The index of the search: what it takes from a page, and how it is packed."""

import json
from collections import Counter

import pytest
import search
from docutils.core import publish_doctree

PAGE = """
Gradient clipping
=================

.. class:: phase-strip

* 1 data

A *large* gradient is cut at :math:`\\\\frac{1}{2}`, not at :math:`c`. The all-reduce comes first.

Whose norm?
-----------

.. code::

   clip(model, 1.0)

The norm of all: naïve, but 16,384 times.
"""
TEXT = "A large gradient is cut at …, not at c. The all-reduce comes first."


def test_a_page_falls_into_parts_and_they_into_words():
    tree = publish_doctree(PAGE, settings_overrides={"doctitle_xform": False})
    assert search.pieces(tree) == [
        ("gradient-clipping", "Gradient clipping", TEXT),
        ("whose-norm", "Whose norm?", "The norm of all: naïve, but 16,384 times. clip(model, 1.0)"),
    ]
    found = Counter(search.words("The All-Reduce of naïve ranks: clip_by_norm, pre-train-ing."))
    assert found["all"] == found["reduce"] == found["allreduce"] == 1
    assert list(search.words("Why 16,384 of 1,5?")) == ["why", "16384", "of", "1", "5"]
    assert found["naive"] == found["clip"] == found["norm"] == found["pretraining"] == 1


def test_the_index_counts_words_by_page():
    pages = {
        "chapters/26_learning_rate": [("a", "26 Learning rate", "rate rate"), ("b", "Why", "up")],
        "book/glossary": [("g", "Glossary", ""), ("term-rate", "rate", "A factor of 0.5")],
        "exercises/26_learning_rate": [("e", "26 Exercises", "rate " * 99)],
        "book/api/optim": [("o", "optim", ""), ("optim.step", "optim.step", "")],
    }
    index = search.index_of(pages)
    assert index["pages"] == [
        ["book/api/optim", "optim", 3],
        ["book/glossary", "Glossary", 2],
        ["chapters/26_learning_rate", "26 Learning rate", 0],
        ["exercises/26_learning_rate", "26 Exercises", 4],
    ]
    assert index["headings"] == [[0, "optim.step"], [1, "term-rate", "rate"], [2, "b", "Why"]]
    places = dict(zip(index["words"].split(), index["places"].split(), strict=True))
    assert places["rate"] == "011" + "023" + "03z", "once, three times, and 35 times or more"
    assert places["learning"] == "021"
    assert "26" not in places, "a number is found in titles alone"


def test_a_script_is_read_as_it_was_written_and_too_many_pages_are_refused(tmp_path):
    path = tmp_path / "texts" / "chapters" / "05.js"
    parts = [["a", "05 “Tokens”", 'one = two; "three"\u2028']]
    search.write_script(path, f"TEXTS[{json.dumps('chapters/05')}]", parts)
    text = path.read_text(encoding="utf8")
    assert text.startswith('window.SEARCH_TEXTS["chapters/05"] = [["a","05')
    assert search.read_script(path) == parts
    with pytest.raises(ValueError, match="1297 pages"):
        search.index_of({str(n): [("", "a", "")] for n in range(36**2 + 1)})
