"""What the book adds to Sphinx: the phase strip, the course map, and MathJax from a package.

Directives
    ```{phases} 3```     the seven phases, the third lit ("all" lights every one)
    ```{coursemap}```    all planned chapters by part, those in the TOC as links
"""

import importlib.metadata
import json
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PHASES = ("data", "forward", "loss", "backward", "sync", "optimizer", "checkpoint")
MATHJAX_FILES = ("tex-chtml-full.js", "output/chtml/fonts/woff-v2")


class PhaseStrip(SphinxDirective):
    """The seven phases at the head of a chapter."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        wanted = self.arguments[0].strip()
        lit = range(1, 8) if wanted == "all" else [int(wanted)]
        strip = nodes.bullet_list(classes=["phase-strip"])
        for number, name in enumerate(PHASES, start=1):
            state = "lit" if number in lit else "unlit"
            paragraph = nodes.paragraph()
            paragraph += nodes.inline("", f"{number} ", classes=["phase-number"])
            paragraph += nodes.inline("", name)
            if number in lit and wanted != "all":
                paragraph += nodes.inline("", " (this chapter)", classes=["visually-hidden"])
            strip += nodes.list_item("", paragraph, classes=[state])
        return [strip]


class CourseMap(SphinxDirective):
    """Every chapter of the curriculum; those that are written are links."""

    def run(self) -> list[nodes.Node]:
        source = Path(self.env.srcdir) / "book" / "data" / "curriculum.json"
        self.env.note_dependency(str(source))
        self.env.note_dependency(str(Path(self.env.srcdir) / "_toc.yml"))
        written = self.env.found_docs
        whole = nodes.container(classes=["course-map"])
        for part in json.loads(source.read_text(encoding="utf8")):
            whole += nodes.rubric("", part["part"])
            chapters = nodes.bullet_list(classes=["course-map-part"])
            for chapter in part["chapters"]:
                chapters += self._entry(chapter, written)
            whole += chapters
        return [whole]

    def _entry(self, chapter: dict, written: set[str]) -> nodes.list_item:
        document = f"chapters/{chapter['number']}_{chapter['slug']}"
        label = f"{chapter['number']} {chapter['title']}"
        paragraph = nodes.paragraph()
        if document in written:
            link = pending_xref(
                "",
                nodes.inline("", label),
                refdomain="std",
                reftype="doc",
                reftarget=f"/{document}",
                refexplicit=True,
                refwarn=True,
                refdoc=self.env.docname,
            )
            paragraph += link
        else:
            paragraph += nodes.inline("", label, classes=["not-written"])
            paragraph += nodes.inline("", " (not written yet)", classes=["visually-hidden"])
        state = "written" if document in written else "planned"
        return nodes.list_item("", paragraph, classes=[state])


def copy_mathjax(app: Sphinx, _error: Exception | None) -> None:
    """Copy MathJax and its fonts out of the installed package, so that no page loads them."""
    if app.builder.format != "html":
        return
    root = None
    for entry in importlib.metadata.files("sphinx-mathjax-offline") or []:
        if entry.name == "tex-chtml-full.js":
            root = Path(str(entry.locate())).parent
    if root is None:
        raise FileNotFoundError("MathJax is missing: pip install sphinx-mathjax-offline")
    target = Path(app.outdir) / "_static" / "mathjax"
    for name in MATHJAX_FILES:
        source, copy = root / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, dirs_exist_ok=True)
        else:
            shutil.copy2(source, copy)


def keep_first_line(
    _app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Let the text under a field be text: napoleon would take "Bytes: ..." for a type."""
    if what in ("attribute", "data", "property") and lines:
        lines.insert(0, "")


def setup(app: Sphinx) -> dict[str, object]:
    app.add_directive("phases", PhaseStrip)
    app.add_directive("coursemap", CourseMap)
    app.connect("autodoc-process-docstring", keep_first_line, priority=400)
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
