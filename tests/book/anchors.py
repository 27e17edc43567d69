"""The sections that a link may lead to."""

import json
import re
from functools import cache
from pathlib import Path

from myst_parser.mdit_to_docutils.base import default_slugify

ROOT = Path(__file__).parents[2]
CHAPTER_LINK = re.compile(
    r"\[(?P<text>[^\]]+)\]\((?:\.\./)?chapters/(?P<chapter>(?P<number>\d\d)_\w+)\.ipynb"
    r"(?:#(?P<anchor>[^)]+))?\)"
)


@cache
def sections(chapter: str) -> list[str]:
    """Return the anchors of a chapter's headings, as MyST makes them; those of equal words end
    in numbers."""
    found = []
    for cell in json.loads((ROOT / "chapters" / f"{chapter}.ipynb").read_text("utf8"))["cells"]:
        if cell["cell_type"] == "markdown":
            for title in re.findall(r"^#{1,3} (.+)$", "".join(cell["source"]), re.MULTILINE):
                slug, number = default_slugify(re.sub(r"[*_`]|\$[^$]*\$", "", title)), 1
                while slug in found:
                    slug, number = f"{slug}-{number}", number + 1
                found.append(slug)
    return found
