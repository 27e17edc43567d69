"""What the search of the book finds things by: an index of all pages, and the text of each.

The index is one script, which is loaded when somebody begins to search (book/_static/search.js).
It holds the titles, the headings with their places, and for each word the pages that have it, with
how often.  The texts come one by one, for the snippets of the pages found.  Both are scripts
because a page opened from a file may load nothing else.  See docs/adr/0035-search.md.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

KINDS = {"chapters/": 0, "book/glossary": 2, "book/api/": 3, "exercises/": 4}
"""The order of kinds, as in search.js; what is not named here is 1, a page of the front matter."""
WORD = re.compile(r"[a-z0-9]+")
HYPHENATED = re.compile(r"[a-z]+(?:-[a-z]+)+")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
FURNITURE = {"phase-strip", "visually-hidden", "chapter-needs", "course-checked"}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MOST = 35
"""How often a word is counted on a page, at most: one digit."""

Piece = tuple[str, str, str]
"""A part of a page: the anchor of its heading, the heading, the text up to the next."""


def pieces(tree: nodes.document) -> list[Piece]:
    """Return the parts of a page: sections, terms of the glossary, entries of the package.

    Prose comes before code and outputs, so that a snippet is a sentence where there is one.
    """
    found: list[tuple[str, str, list[str], list[str]]] = []
    for node in tree.findall():
        if isinstance(node, nodes.section):
            heading = node.next_node(nodes.title)
            found.append((node["ids"][0], heading.astext() if heading else "", [], []))
        elif isinstance(node, nodes.term) and node["ids"]:
            found.append((node["ids"][0], node.astext(), [], []))
        elif isinstance(node, addnodes.desc_signature) and node["ids"]:
            # The heading of an entry of the package is its anchor, which is its name.
            found.append((node["ids"][0], node["ids"][0], [], [node.astext()]))
        elif isinstance(node, nodes.TextElement) and found and is_text(node) and is_own(node):
            is_code = isinstance(node, nodes.literal_block)
            found[-1][3 if is_code else 2].append(text_of(node))
    return [
        (anchor, heading, " ".join(" ".join(prose + code).split()))
        for anchor, heading, prose, code in found
    ]


def is_text(node: nodes.TextElement) -> bool:
    """Say whether a node is a whole block of text, no heading, and no part of another."""
    whole = (nodes.TextElement, addnodes.desc_signature)
    hidden = (nodes.raw, nodes.comment, nodes.math_block, nodes.title, nodes.term, nodes.Inline)
    return not isinstance(node, (*hidden, addnodes.desc_signature)) and not isinstance(
        node.parent, whole
    )


def is_own(node: nodes.Node | None) -> bool:
    """Say whether a text is a page's own, not of what stands at the head of every chapter."""
    while isinstance(node, nodes.Element):
        if not FURNITURE.isdisjoint(node["classes"]):
            return False
        node = node.parent
    return True


def text_of(node: nodes.Element) -> str:
    """Return the text of a block, with "…" for a formula that is more than letters."""
    parts = []
    for text in node.findall(nodes.Text):
        if isinstance(text.parent, nodes.math) and "\\" in text:
            parts.append("…")
        elif not isinstance(text.parent, nodes.raw):
            parts.append(str(text))
    return "".join(parts)


def words(text: str) -> Iterator[str]:
    """Yield the words of a text: without accents, split at hyphens, and all-reduce joined, too."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    yield from WORD.findall(THOUSANDS.sub("", plain))
    for joined in HYPHENATED.findall(plain):
        yield joined.replace("-", "")


def kind_of(page: str) -> int:
    """Return the kind of a page, an index of the weights in search.js."""
    return next((kind for start, kind in KINDS.items() if page.startswith(start)), 1)


def index_of(pages: dict[str, list[Piece]]) -> dict[str, Any]:
    """Return what search.js ranks by.

    `words` and `places` go together: behind the word "softmax" stands "0b3" for each page that has
    it, two digits for the page and one for how often, all in base 36.
    """
    if len(pages) > len(DIGITS) ** 2:
        raise ValueError(f"{len(pages)} pages, more than two digits can count")
    names = sorted(pages)
    places: dict[str, list[str]] = {}
    for number, name in enumerate(names):
        place = DIGITS[number // len(DIGITS)] + DIGITS[number % len(DIGITS)]
        counts = Counter(
            word for _, heading, text in pages[name] for word in words(f"{heading} {text}")
        )
        for word, count in counts.items():
            # Numbers of tables and listings are no words; those of headings are found as such.
            if len(word) > 1 and len(word) < 30 and not word.isdigit():
                places.setdefault(word, []).append(place + DIGITS[min(count, MOST)])
    ordered = sorted(places)
    return {
        "pages": [[name, pages[name][0][1], kind_of(name)] for name in names],
        "headings": [
            [number, anchor] if heading == anchor else [number, anchor, heading]
            for number, name in enumerate(names)
            for anchor, heading, _ in pages[name][1:]
            if heading
        ],
        "words": " ".join(ordered),
        "places": " ".join("".join(places[word]) for word in ordered),
    }


class Search:
    """Keeps the texts of the pages written, and makes of all texts the index."""

    def __init__(self) -> None:
        self.written: dict[str, list[Piece]] = {}

    def begin(self, app: Sphinx) -> None:
        """Make no index of Sphinx's own: it knows no counts, and forgives no letter."""
        if app.builder.format == "html":
            app.builder.search = False

    def page(self, _app: Sphinx) -> list[tuple[str, dict, str]]:
        """Ask for the page of all results."""
        return [("search", {}, "search.html")]

    def keep(self, _app: Sphinx, page: str, _template: str, _context: Any, tree: Any) -> None:
        """Keep one page's parts, code and outputs as well."""
        if tree is not None:
            self.written[page] = pieces(tree)

    def write(self, app: Sphinx, error: Exception | None) -> None:
        """Write the texts of this build's pages, and the index of all."""
        if error is not None or app.builder.format != "html":
            return
        static = Path(app.outdir, "_static")
        for page, parts in self.written.items():
            write_script(
                static / "search_texts" / f"{page}.js", f"TEXTS[{json.dumps(page)}]", parts
            )
        texts = {page: static / "search_texts" / f"{page}.js" for page in app.env.found_docs}
        found = {page: read_script(path) for page, path in texts.items() if path.exists()}
        index = index_of({page: parts for page, parts in found.items() if parts})
        write_script(static / "search_index.js", "INDEX", index)


def write_script(path: Path, name: str, value: object) -> None:
    """Write a value as a script, which a page opened from a file may load."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(f"window.SEARCH_{name} = {text};\n", encoding="utf8")


def read_script(path: Path) -> Any:
    """Return the value of such a script, of an earlier build as well."""
    return json.loads(path.read_text(encoding="utf8").partition(" = ")[2].removesuffix(";\n"))


def setup(app: Sphinx) -> dict[str, object]:
    search = Search()
    app.connect("builder-inited", search.begin)
    app.connect("html-collect-pages", search.page)
    app.connect("html-page-context", search.keep)
    app.connect("build-finished", search.write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
