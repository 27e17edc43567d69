"""The list of all pages at the side of each page, made from their titles alone.

For every page, Sphinx copies the headings of all other pages, and drops them again when only titles
are wanted: two thirds of the time in which this book is written.  The theme then parses the list
twice a page, which for pages of source code gives the same list all over again: so it is kept.
"""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

SIGN = re.compile(" (?=[①-⑨])")
"""Before the sign of a lap, which never stands alone in a line."""


def titles_of(headings: nodes.bullet_list) -> nodes.bullet_list:
    """Return the title of a page with the lists of pages below it, without its headings."""
    found = nodes.bullet_list()
    for item in headings.children:
        if not isinstance(item, nodes.list_item):  # a page without a title
            found += item.deepcopy()
            continue
        kept = nodes.list_item("", item[0].deepcopy())
        if below := [node.deepcopy() for node in item.findall(addnodes.toctree)]:
            kept += nodes.bullet_list("", *below)
        found += kept
    return found


class Sidebar:
    """Lists the pages; the titles are taken when the first page is written."""

    def __init__(self) -> None:
        self.titles: dict[str, nodes.bullet_list] = {}
        self.made: dict[tuple, str] = {}
        self.dressed: dict[str, str] = {}

    def listed(self, env: BuildEnvironment, toctree: Any, settings: dict[str, Any]) -> str:
        """Return the list of pages, which Sphinx's own function makes from titles."""
        whole = env.tocs
        self.titles = self.titles or {name: titles_of(one) for name, one in whole.items()}
        env.tocs = self.titles
        try:
            return toctree(**settings)
        finally:
            env.tocs = whole

    def show(self, app: Sphinx, page: str, _template: str, context: dict[str, Any], _: Any) -> None:
        """Give the templates a function that makes the list sooner, where titles are enough.

        Pages that are not in the list, such as those of source code, have one for each folder.
        """
        toctree = context.get("toctree")
        place = page if page in app.env.found_docs else f"{page.rpartition('/')[0]}/"

        def list_of_pages(**settings: Any) -> str:
            if not settings.get("titles_only"):
                return toctree(**settings)
            key = (place, *sorted(settings.items()))
            if key not in self.made:
                listed = self.listed(app.env, toctree, settings)
                self.made[key] = SIGN.sub("\N{NO-BREAK SPACE}", listed)
            return self.made[key]

        def dressed_list(made: str = "") -> str:
            if made:
                self.dressed[place] = made
            return self.dressed.get(place, "")

        if toctree:
            context |= {"toctree": list_of_pages, "dressed_list": dressed_list}


def setup(app: Sphinx) -> dict[str, object]:
    app.connect("html-page-context", Sidebar().show)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
