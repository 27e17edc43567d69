"""The course's Sphinx extension, in a small book of its own."""

import copy
import html
import io
import json
import re
from pathlib import Path

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

ROOT = Path(__file__).parents[2]
MAP = "\n\n.. coursemap::\n\n.. toctree::\n   :glob:\n\n   chapters/*\n"


def page_of(title, text):
    return f"{title}\n{'=' * 20}\n\n{text}\n"


COURSE = json.loads((ROOT / "llmcourse_classroom/curriculum.json").read_text(encoding="utf8"))
FEW = {part["chapters"][0]["number"] for part in COURSE["parts"]} | {"09"}
"""Chapters of the small book: one of each part, and one more."""
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
CONFIG = {"root_doc": "intro", "nitpicky": True, "html_theme": "basic"}
CONFIG["extensions"] = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "course"]


def items_of(page, *classes):
    items = []
    for names, inner in re.findall(r'<li class="([^"]*)">(.*?)</li>', page.read_text("utf8"), re.S):
        if {*classes} & {*names.split()}:
            text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", inner)).split())
            link = re.search(r'href="([^"]*)"', inner)
            items.append({"class": names, "text": text, "href": link and link[1]})
    return items


def small_curriculum():
    whole = copy.deepcopy(COURSE)
    for part in whole["parts"]:
        part["chapters"] = [c for c in part["chapters"] if c["number"] in FEW]
    for lap in whole["laps"]:
        lap["chapters"] = [number for number in lap["chapters"] if number in FEW]
    return whole


def build(source, curriculum=None, *, stubs=True, **pages):
    curriculum = curriculum or small_curriculum()
    (source / "llmcourse_classroom").mkdir(parents=True, exist_ok=True)
    (source / "chapters").mkdir(exist_ok=True)
    (source / "llmcourse_classroom" / "curriculum.json").write_text(json.dumps(curriculum))
    for chapter in (chapter for part in curriculum["parts"] for chapter in part["chapters"]):
        page = source / "chapters" / f"{chapter['number']}_{chapter['slug']}.rst"
        if stubs and not page.exists():
            page.write_text(page_of(chapter["slug"], ""))
    for name, text in pages.items():
        (source / f"{name.replace('__', '/')}.rst").write_text(text)
    warnings = io.StringIO()
    with docutils_namespace():
        folders = (source, None, source / "out", source / "doctrees")
        Sphinx(*folders, "html", CONFIG, status=None, warning=warnings).build()
    return source / "out", warnings.getvalue()


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    (folder / "code").mkdir()
    (folder / "code" / "a_small_module.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "code")
        pages = {
            "intro": page_of("Intro", f".. phases:: 2{MAP}   api\n"),
            "chapters__05_tokens": page_of("Tokens", ".. phases:: 1\n\nText."),
            "chapters__10_blueprint": page_of("Blueprint", ".. phases:: all\n\nText."),
            "api": page_of("API", ".. automodule:: a_small_module\n   :members:"),
        }
        yield build(folder / "source", **pages)


def strip_of(book, name):
    return items_of(book[0] / f"{name}.html", "lit", "unlit")


def test_the_lit_phases_say_so_and_each_links_to_the_first_chapter_of_its_part(book):
    assert book[1] == ""
    items, looks = strip_of(book, "intro"), ["unlit", "lit", *5 * ["unlit"]]
    classes = [f"{look} phase-{k}" for k, look in enumerate(looks, 1)]
    assert [item["class"] for item in items] == classes
    assert [item["text"] for item in items[:2]] == ["1 data", "2 forward (this chapter)"]
    first = ["05_tokens", "10_blueprint", "16_cross_entropy"]
    assert [item["href"] for item in items[:3]] == [f"chapters/{name}.html" for name in first]
    itself, other, *_ = strip_of(book, "chapters/05_tokens")
    assert (itself["href"], other["href"]) == (None, "10_blueprint.html")
    items = strip_of(book, "chapters/10_blueprint")
    assert [item["class"].split()[0] for item in items] == 7 * ["lit"]
    assert all("this chapter" not in item["text"] for item in items)


def test_the_map_has_every_part_and_links_every_chapter_with_its_lap(book):
    items = items_of(book[0] / "intro.html", "course-map-chapter")
    assert [item["text"][:2] for item in items] == sorted(FEW)
    assert all(item["href"].startswith(f"chapters/{item['text'][:2]}_") for item in items)
    first = ["00 How to use this book", "05 From text to token IDs ①", "09 Feeding the machine ②"]
    assert [item["text"] for item in items[:3]] == first
    page = (book[0] / "intro.html").read_text(encoding="utf8")
    parts = [part["part"] for part in small_curriculum()["parts"]]
    assert re.findall(r'<p class="rubric">(.+?)</p>', page) == parts


def test_the_foot_of_a_page_leads_on_in_its_lap(tmp_path):
    """09, of the second lap, stands between 05 and 10 in the contents; a third lap has 16."""
    names = "00_how_to_use", "05_tokens", "09_data_loading", "10_blueprint", "16_cross_entropy"
    few = small_curriculum()
    for part in few["parts"]:
        part["chapters"] = [c for c in part["chapters"] if c["number"] in {n[:2] for n in names}]
    turns = {"First": ["05", "10"], "Second": ["09"], "Third": ["16"]}
    few["laps"] = [{"lap": f"{name} lap: x", "chapters": turns[name]} for name in turns]
    (tmp_path / "exercises").mkdir()
    pages = {f"chapters__{name}": page_of(name[3:], "") for name in names}
    pages["exercises__05_tokens"] = page_of("Exercises", "")
    toc = [".. toctree::", "", *(f"   {name.replace('__', '/')}" for name in sorted(pages))]
    out, warnings = build(tmp_path, few, intro="Home\n====\n\n" + "\n".join(toc), **pages)
    assert warnings == ""
    for name, side, title, address in (
        ("chapters/05_tokens", "prev", "how_to_use", "00_how_to_use.html"),
        ("chapters/05_tokens", "next", "blueprint ①", "10_blueprint.html"),
        ("chapters/10_blueprint", "prev", "tokens ①", "05_tokens.html"),
        ("chapters/10_blueprint", "next", "data_loading ②", "09_data_loading.html"),
        ("chapters/09_data_loading", "next", "cross_entropy ③", "16_cross_entropy.html"),
        ("exercises/05_tokens", "prev", "tokens ①", "../chapters/05_tokens.html"),
        ("exercises/05_tokens", "next", "blueprint ①", "../chapters/10_blueprint.html"),
    ):
        page = (out / f"{name}.html").read_text(encoding="utf8")
        assert f'<link rel="{side}" title="{title}" href="{address}"' in page
    contents = (out / "intro.html").read_text(encoding="utf8")
    laps = [("tokens", "①"), ("data_loading", "②"), ("blueprint", "①"), ("cross_entropy", "③")]
    assert re.findall(r"(\w+)<span class=\"lap\"> (.)</span>", contents) == laps


def test_modules_link_to_their_chapters_and_texts_of_fields_stay(book):
    page = (book[0] / "api.html").read_text(encoding="utf8")
    taught = re.search(r"<em>Taught in:</em>(.*?)</p>", page, flags=re.DOTALL)[1]
    for name in ("chapters/05_tokens.html", "chapters/09_data_loading.html", "09 Feeding the"):
        assert name in taught
    for text in ("Bytes: how many at most, hence a number.", "a word: with a colon."):
        assert text in page
    assert 'id="a_small_module.Pair.second"' in page
    assert "Alias for field" not in page


def test_a_wrong_phase_is_reported(tmp_path):
    wrong = {"zero": "0", "eight": "8", "word": "three", "comma": "1,2", "joined": "12", "none": ""}
    pages = {name: page_of("Page", f".. phases:: {said}") for name, said in wrong.items()}
    _, warnings = build(tmp_path, intro=page_of("Intro", "Text."), **pages)
    for name, argument in wrong.items():
        what = f"phases: {argument!r} is not" if argument else 'in "phases" directive'
        assert re.search(rf"{name}\.rst:\d+: ERROR: .*{re.escape(what)}", warnings), name


def test_the_map_follows_the_curriculum_and_reports_a_chapter_without_a_page(tmp_path):
    build(tmp_path / "a", intro=page_of("Intro", MAP))
    changed = small_curriculum()
    changed["parts"][1]["chapters"][0]["title"] = "Another title"
    out, warnings = build(tmp_path / "a", changed)
    assert warnings == ""
    assert items_of(out / "intro.html", "course-map-chapter")[1]["text"] == "05 Another title ①"
    _, warnings = build(tmp_path / "b", stubs=False, intro=page_of("Intro", ".. coursemap::"))
    assert warnings.count("unknown document") == len(FEW)
    assert "chapters/05_tokens" in warnings
