"""The page of errata has every box of the chapters once, and its rows lead to what they name."""

import json
import re

import pytest
from anchors import CHAPTER_LINK, ROOT, sections
from portable import BOX

ROW = re.compile(r"^\| (?P<account>.+?) \| (?P<holds>.+?) \| (?P<link>\[\d\d\]\(\S+\)) \|$", re.M)
PAGE = (ROOT / "book" / "errata.md").read_text(encoding="utf8")
ROWS = [(row["account"], CHAPTER_LINK.fullmatch(row["link"])) for row in ROW.finditer(PAGE)]
CHAPTERS = sorted(path.stem for path in (ROOT / "chapters").glob("*.ipynb"))


def plain(account):
    return re.sub(r"^[^:]*: ", "", account).replace('"', "").rstrip(".")


def boxes(chapter):
    cells = json.loads((ROOT / "chapters" / f"{chapter}.ipynb").read_text("utf8"))["cells"]
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return [plain(box["title"]) for box in BOX.finditer(text)]


def rows(chapter, *, of_boxes):
    """Return the accounts of a chapter's rows: those of its boxes link to no section."""
    mine = [(account, link) for account, link in ROWS if link["chapter"] == chapter]
    return [account for account, link in mine if bool(link["anchor"]) != of_boxes]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_box_has_its_row_and_every_row_its_box_or_section(chapter):
    assert sorted(rows(chapter, of_boxes=True)) == sorted(boxes(chapter))
    linked = {link["anchor"] for _, link in ROWS if link["chapter"] == chapter}
    assert linked - {None} <= set(sections(chapter))


def test_rows_are_in_order_say_something_once_and_every_chapter_has_a_box():
    table = PAGE[PAGE.index("|---|") : PAGE.index("## Errors inside")].strip().splitlines()[1:]
    assert len(ROWS) == len(table), "a row does not end with a link to a chapter"
    numbers = [link["number"] for _, link in ROWS]
    assert numbers == sorted(numbers)
    assert all(link["text"] == link["number"] for _, link in ROWS)
    assert len(set(ROW.findall(PAGE))) == len(ROWS)
    assert all(boxes(chapter) for chapter in CHAPTERS)


def test_a_missing_row_and_a_row_without_a_box_are_noticed_whatever_their_label(monkeypatch):
    assert plain('Popular account: "a is b", or "c: d".') == "a is b, or c: d"
    assert plain("A common belief: it is.") == "it is"
    first = rows(CHAPTERS[0], of_boxes=True)
    assert first == boxes(CHAPTERS[0])
    monkeypatch.setitem(globals(), "ROWS", ROWS[1:])
    assert rows(CHAPTERS[0], of_boxes=True) != boxes(CHAPTERS[0])
    link = CHAPTER_LINK.fullmatch(f"[00](../chapters/{CHAPTERS[0]}.ipynb)")
    monkeypatch.setitem(globals(), "ROWS", [*ROWS, (first[0], link), ("another", link)])
    assert sorted(rows(CHAPTERS[0], of_boxes=True)) != boxes(CHAPTERS[0])
    assert "gone" not in sections(CHAPTERS[0])
