"""Out of a page, the text that was written for a reader, by two numbers of each block::

    link density = words inside links / words

Prose comes in long blocks with few links, a menu in short blocks that are nothing but links.

Source: Kohlschuetter, Fankhauser and Nejdl 2010, "Boilerplate detection using shallow text
features"; the two features are theirs, the rule is shorter than their tree.
"""

import re
from collections.abc import Iterator, Sequence
from html import unescape
from typing import NamedTuple

from llmcourse_labs.curation.step import Dropped

LONG_WORDS = 20
"""A block of so many words is prose, unless it is links."""

SHORT_WORDS = 6
"""A block of so many words is prose if the block before it or after it is long."""

MOST_LINKS = 1 / 3
"""Link density above which a block is no prose."""

_UNSEEN = "script|style|noscript|template|svg|title|textarea|select|iframe|math"
"""Elements whose content is not read."""

_NAMES = """
a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark nobr q s
samp small span strike strong sub sup time tt u var wbr
"""
_INLINE = frozenset(_NAMES.split())
"""Elements that stand inside a line of text; all others end a block."""

# Every alternative is left as soon as it fails: text of n characters takes O(n).
_TAG = re.compile(
    rf"<!--.*?(?:-->|\Z)|<(?P<unseen>{_UNSEEN})\b[^<>]*>.*?(?:</(?P=unseen)[^<>]*>?|\Z)"
    r"|<(?P<end>/?)(?P<name>[a-z][a-z0-9]*)[^<>]*>|<[!?/][^<>]*>",
    re.IGNORECASE | re.DOTALL,
)
_BEFORE = re.compile(r"(?:[\s\0\ufeff\u200b-\u200d\u2060]+|<!--.*?-->|<\?xml.*?\?>)*", re.S)
"""What may stand before a page: white space, characters that nobody sees, comments."""
_PAGE = re.compile(
    r"<(?:!doctype\s+html|(?:html|head|body|title|meta|link|script|style|base|main|article|section"
    r"|header|nav|footer)[\s/>])",
    re.IGNORECASE,
)
_ELEMENT = re.compile(r"<[a-z][a-z0-9]*(?:\s[^<>]*)?>", re.IGNORECASE)
_EMPTY_LINE = re.compile(r"\n[ \t\r\f\v]*\n")


class Block(NamedTuple):
    """A run of text that no block-level tag interrupts."""

    text: str
    num_words: int
    link_density: float


def is_page(text: str) -> bool:
    """Say whether a text looks like HTML: a page by its beginning, a part of one by its end, too.

    Markdown may begin with a comment or an element; it seldom ends with a tag.
    """
    before = _BEFORE.match(text)
    assert before is not None  # it may be empty
    begin = before.end()
    if _PAGE.match(text, begin):
        return True
    return _ELEMENT.match(text, begin) is not None and text.rstrip("\0 \n\r\t").endswith(">")


def as_page(text: str) -> str:
    """Return the text of a file that is named as a page, so that it is taken for one."""
    return text if is_page(text) else f"<body>{text}"


def blocks(html: str) -> Iterator[Block]:
    """Yield the blocks of a page that have a word.

    Nothing is built of the tree: tags that are never closed, or nested a million deep, cost
    nothing more.

    Args:
        html: a page, well-formed or not.
    """
    pieces: list[str] = []
    linked: list[str] = []
    inside_link, place = False, 0
    for tag in _TAG.finditer(html):
        if tag.start() > place:
            piece = html[place : tag.start()]
            pieces.append(piece)
            if inside_link:
                linked.append(piece)
        place = tag.end()
        name = (tag["name"] or "").lower()
        if name == "br":
            pieces.append("\n")
        elif name == "a":
            inside_link = not tag["end"]
        elif name and name not in _INLINE:
            yield from _parted(pieces, linked)
            pieces, linked = [], []
    pieces.append(html[place:])
    yield from _parted(pieces, linked + [html[place:]] * inside_link)


def _parted(pieces: Sequence[str], linked: Sequence[str]) -> Iterator[Block]:
    """Yield what stands between two block-level tags, cut where two line breaks follow."""
    text = unescape("".join(pieces))
    total = len(text.split())
    if not total:
        return
    density = min(1.0, len(unescape(" ".join(linked)).split()) / total)
    for part in _EMPTY_LINE.split(text):
        if words := part.split():
            yield Block(" ".join(words), len(words), density)


def are_prose(found: Sequence[Block]) -> list[bool]:
    """Say of each block whether it is prose: long, or next to a long one, and not of links."""
    prose = [b.num_words >= LONG_WORDS and b.link_density <= MOST_LINKS for b in found]
    kept = []
    for i, block in enumerate(found):
        # Both neighbours, and the block itself, which is kept anyway if it is long.
        beside = any(prose[max(0, i - 1) : i + 2])
        is_short = block.num_words >= SHORT_WORDS and block.link_density <= MOST_LINKS
        # Its last character tells a sentence from a heading.
        kept.append(prose[i] or (is_short and beside and block.text[-1] in ".!?:\"'”’»"))
    return kept


def main_text(html: str) -> str:
    """Return the prose of a page, its blocks divided by an empty line."""
    found = list(blocks(html))
    return "\n\n".join(b.text for b, kept in zip(found, are_prose(found), strict=True) if kept)


def extract(text: str) -> str | Dropped:
    """Return the prose of a page; a text that is no page goes on as it is (a step of a funnel)."""
    if not is_page(text):
        return text if text.strip() else Dropped("empty")
    found = main_text(text)
    return found or Dropped("no prose in the page")
