"""The course's Sphinx extension, in a small book of its own."""

import io
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

ROOT = Path(__file__).parents[2]
INTRO = """
Intro
=====

.. phases:: 2

.. coursemap::

.. toctree::
   :glob:

   chapters/*
   api
"""
FEW = {"00", "05", "09", "10", "16", "18", "22", "25", "30", "32", "37", "40", "43"}
"""Chapters of the small book: one of each part, and one more."""
TOKENS = """
Tokens
======

.. phases:: 1

Text.
"""
BLUEPRINT = """
Blueprint
=========

.. phases:: all

Text.
"""
API = """
API
===

.. automodule:: a_small_module
   :members:
"""
MODULE = '''"""A small module.

Taught in: chapters/05_tokens.ipynb, chapters/09_data_loading.ipynb
"""

from typing import NamedTuple

LIMIT = 3
"""Bytes: how many at most, hence a number."""


class Pair(NamedTuple):
    """Two numbers."""

    first: int
    second: int


def public():
    """Return nothing.

    Args:
        x: a word: with a colon.
    """
'''


class Text(HTMLParser):
    """The links of a page, and its text by class of the list item around it."""

    def __init__(self):
        super().__init__()
        self.stack, self.items, self.links = [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "li":
            self.items.append({"class": attrs.get("class", ""), "text": "", "href": None})
            self.stack.append(self.items[-1])
        if tag == "a" and self.stack:
            self.stack[-1]["href"] = attrs["href"]

    def handle_endtag(self, tag):
        if tag == "li" and self.stack:
            self.stack.pop()

    def handle_data(self, data):
        if self.stack:
            self.stack[-1]["text"] += data


def items_of(page, *classes):
    parser = Text()
    parser.feed(page.read_text(encoding="utf8"))
    items = [item for item in parser.items if {*classes} & {*(item["class"] or "").split()}]
    return [item | {"text": " ".join(item["text"].split())} for item in items]


def small_curriculum():
    """Return the course's curriculum with few chapters."""
    whole = json.loads((ROOT / "llmcourse_classroom/curriculum.json").read_text(encoding="utf8"))
    for part in whole["parts"]:
        part["chapters"] = [c for c in part["chapters"] if c["number"] in FEW]
    for lap in whole["laps"]:
        lap["chapters"] = [number for number in lap["chapters"] if number in FEW]
    return whole


def build(source, curriculum=None, *, stubs=True, **pages):
    """Build a book of rst pages; return its output folder and its warnings."""
    curriculum = curriculum or small_curriculum()
    (source / "llmcourse_classroom").mkdir(parents=True, exist_ok=True)
    (source / "chapters").mkdir(exist_ok=True)
    (source / "llmcourse_classroom" / "curriculum.json").write_text(json.dumps(curriculum))
    for chapter in (chapter for part in curriculum["parts"] for chapter in part["chapters"]):
        page = source / "chapters" / f"{chapter['number']}_{chapter['slug']}.rst"
        if stubs and not page.exists():
            page.write_text(f"{chapter['slug']}\n{'=' * 20}\n")
    for name, text in pages.items():
        (source / f"{name.replace('__', '/')}.rst").write_text(text)
    warnings = io.StringIO()
    with docutils_namespace():
        app = Sphinx(
            srcdir=source,
            confdir=None,
            outdir=source / "out",
            doctreedir=source / "doctrees",
            buildername="html",
            confoverrides={
                "extensions": ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "course"],
                "root_doc": "intro",
                "nitpicky": True,
                "html_theme": "basic",
            },
            status=None,
            warning=warnings,
        )
        app.build()
    return source / "out", warnings.getvalue()


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    (folder / "code").mkdir()
    (folder / "code" / "a_small_module.py").write_text(MODULE)
    sys.path[:0] = [str(ROOT / "book" / "_ext"), str(folder / "code")]
    try:
        pages = {"chapters__05_tokens": TOKENS, "chapters__10_blueprint": BLUEPRINT, "api": API}
        yield build(folder / "source", intro=INTRO, **pages)
    finally:
        del sys.path[:2]
        sys.modules.pop("a_small_module", None)


def test_there_are_no_warnings(book):
    assert book[1] == ""


def test_one_phase_is_lit_and_says_so(book):
    items = items_of(book[0] / "intro.html", "lit", "unlit")
    looks = ["unlit", "lit", *5 * ["unlit"]]
    assert [item["class"] for item in items] == [
        f"{look} phase-{k}" for k, look in enumerate(looks, 1)
    ]
    assert items[0]["text"] == "1 data"
    assert items[1]["text"] == "2 forward (this chapter)"


def test_a_phase_links_to_the_first_chapter_of_its_part(book):
    items = items_of(book[0] / "intro.html", "lit", "unlit")
    assert items[0]["href"] == "chapters/05_tokens.html"
    assert items[1]["href"] == "chapters/10_blueprint.html"
    assert items[2]["href"] == "chapters/16_cross_entropy.html"


def test_a_chapter_does_not_link_to_itself(book):
    items = items_of(book[0] / "chapters" / "05_tokens.html", "lit", "unlit")
    assert items[0]["href"] is None
    assert items[1]["href"] == "10_blueprint.html"


def test_all_phases_are_lit_without_a_mark(book):
    items = items_of(book[0] / "chapters" / "10_blueprint.html", "lit", "unlit")
    assert [item["class"].split()[0] for item in items] == 7 * ["lit"]
    assert all("this chapter" not in item["text"] for item in items)


def test_the_map_links_every_chapter_and_marks_its_lap(book):
    items = items_of(book[0] / "intro.html", "course-map-chapter")
    assert [item["text"][:2] for item in items] == sorted(FEW)
    assert all(item["href"].startswith(f"chapters/{item['text'][:2]}_") for item in items)
    assert items[0]["text"] == "00 How to use this book"
    assert [item["text"] for item in items[1:4]] == [
        "05 From text to token IDs ①",
        "09 Feeding the machine ②",
        "10 The blueprint ①",
    ]


def test_the_map_has_every_part(book):
    page = (book[0] / "intro.html").read_text(encoding="utf8")
    curriculum = ROOT / "llmcourse_classroom" / "curriculum.json"
    parts = json.loads(curriculum.read_text(encoding="utf8"))["parts"]
    assert re.findall(r'<p class="rubric">(.+?)</p>', page) == [part["part"] for part in parts]


def test_the_foot_of_a_page_leads_on_in_its_lap(tmp_path, monkeypatch):
    """Chapter 09, of the second lap, stands between 05 and 10 in the contents."""
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    names = "00_how_to_use", "05_tokens", "09_data_loading", "10_blueprint"
    few = small_curriculum()
    for part in few["parts"]:
        part["chapters"] = [c for c in part["chapters"] if c["number"] in {n[:2] for n in names}]
    for lap in few["laps"]:
        lap["chapters"] = [number for number in lap["chapters"] if number in {"05", "09", "10"}]
    (tmp_path / "exercises").mkdir()
    pages = {f"chapters__{name}": f"{name[3:]}\n{20 * '='}\n" for name in names}
    pages["exercises__05_tokens"] = "Exercises\n=========\n"
    toc = [".. toctree::", "", *(f"   {name.replace('__', '/')}" for name in sorted(pages))]
    out, warnings = build(tmp_path, few, intro="Home\n====\n\n" + "\n".join(toc), **pages)
    assert warnings == ""
    leads = {}
    for name in pages:
        page = (out / f"{name.replace('__', '/')}.html").read_text(encoding="utf8")
        for side in ("prev", "next"):
            found = re.search(rf'<link rel="{side}" title="(.*?)" href="(.*?)"', page)
            leads[name, side] = found.groups() if found else None
    assert leads["chapters__05_tokens", "next"] == ("blueprint ①", "10_blueprint.html")
    assert leads["chapters__10_blueprint", "prev"] == ("tokens ①", "05_tokens.html")
    assert leads["chapters__10_blueprint", "next"] == ("data_loading ②", "09_data_loading.html")
    assert leads["exercises__05_tokens", "prev"] == ("tokens ①", "../chapters/05_tokens.html")
    blueprint = ("blueprint ①", "../chapters/10_blueprint.html")
    assert leads["exercises__05_tokens", "next"] == blueprint
    assert leads["chapters__05_tokens", "prev"] == ("how_to_use", "00_how_to_use.html")
    contents = (out / "intro.html").read_text(encoding="utf8")
    assert re.findall(r"(\w+)<span class=\"lap\"> (.)</span>", contents) == [
        ("tokens", "①"),
        ("data_loading", "②"),
        ("blueprint", "①"),
    ]


def test_modules_link_to_their_chapters(book):
    page = (book[0] / "api.html").read_text(encoding="utf8")
    taught = re.search(r"<em>Taught in:</em>(.*?)</p>", page, flags=re.DOTALL)[1]
    assert 'href="chapters/05_tokens.html"' in taught
    assert 'href="chapters/09_data_loading.html"' in taught
    assert "09 Feeding the machine" in taught


def test_the_text_of_a_field_stays_text(book):
    page = (book[0] / "api.html").read_text(encoding="utf8")
    assert "Bytes: how many at most, hence a number." in page
    assert "a word: with a colon." in page


def test_fields_of_tuples_are_named_without_filler(book):
    page = (book[0] / "api.html").read_text(encoding="utf8")
    assert 'id="a_small_module.Pair.second"' in page
    assert "Alias for field" not in page


def test_a_wrong_phase_is_reported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    wrong = {"zero": "0", "eight": "8", "word": "three", "comma": "1,2", "joined": "12", "none": ""}
    pages = {name: f"Page\n====\n\n.. phases:: {argument}\n" for name, argument in wrong.items()}
    _, warnings = build(tmp_path, intro="Intro\n=====\n\nText.\n", **pages)
    for name, argument in wrong.items():
        what = f"phases: {argument!r} is not" if argument else 'in "phases" directive'
        assert re.search(rf"{name}\.rst:\d+: ERROR: .*{re.escape(what)}", warnings), name


def test_the_map_follows_the_curriculum(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    intro = "Intro\n=====\n\n.. coursemap::\n\n.. toctree::\n   :glob:\n\n   chapters/*\n"
    build(tmp_path, intro=intro)
    changed = small_curriculum()
    changed["parts"][1]["chapters"][0]["title"] = "Another title"
    out, warnings = build(tmp_path, changed)
    assert warnings == ""
    items = items_of(out / "intro.html", "course-map-chapter")
    assert items[1]["text"] == "05 Another title ①"


def test_a_chapter_without_a_page_is_reported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    intro = "Intro\n=====\n\n.. coursemap::\n"
    _, warnings = build(tmp_path, stubs=False, intro=intro)
    assert warnings.count("unknown document") == len(FEW)
    assert "chapters/05_tokens" in warnings
