"""The directive `{licences}`: what the pages carry from others, with version and licence.

Versions and licences are read from the installed packages; their licence files are copied beside
the pages.
"""

import importlib.metadata
from importlib.metadata import Distribution
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

CARRIED = {
    "sphinx-mathjax-offline": "fonts of MathJax 3, which set the formulas when the book was built",
    "fontpkg-ibm-plex-sans": "IBM Plex Sans, cut down and named Course Text",
    "fontpkg-ibm-plex-mono": "IBM Plex Mono, cut down and named Course Code",
    "sphinx": "basic styles, the search and its index; with Snowball's English stemmer",
    "sphinx-book-theme": "the page's layout and its styles",
    "pydata-sphinx-theme": "styles and scripts under the layout; with Bootstrap (MIT)",
    "sphinx-copybutton": "copy buttons; with clipboard.js (MIT)",
    "sphinx-togglebutton": "boxes that open",
    "sphinx-design": "styles of cards and badges",
    "sphinx-exercise": "styles of exercises",
    "sphinx-proof": "styles of theorems",
    "myst-nb": "styles of notebook cells",
    "pygments": "colours of code",
}
FOLDER = "licences"


def licence_name(package: Distribution) -> str:
    """Return what a package says of its licence, in a few words."""
    metadata = package.metadata
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License :: OSI Approved :: ")
    ]
    stated = metadata.get("License-Expression") or (metadata.get("License") or "").strip()
    short = stated if stated and "\n" not in stated and len(stated) < 60 else ""
    return short or ", ".join(classifiers) or "see its licence file"


def licence_files(package: Distribution) -> list[Path]:
    """Return the licence files that came with a package."""
    names = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
    entries = [e for e in package.files or [] if e.name.upper().startswith(names)]
    return [Path(str(e.locate())) for e in entries if ".dist-info" in str(e)]


class Licences(SphinxDirective):
    """A table of the packages that the pages carry something of."""

    def run(self) -> list[nodes.Node]:
        lines = ["| package | version | licence | what the pages carry |", "|---|---|---|---|"]
        for name, what in CARRIED.items():
            package = importlib.metadata.distribution(name)
            lines.append(f"| {name} | {package.version} | {licence_name(package)} | {what} |")
        return self.parse_text_to_nodes("\n".join(lines))


def copy_licences(app: Sphinx, error: Exception | None) -> None:
    """Copy the licence files of the packages beside the pages."""
    if error is not None or app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static" / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for name in CARRIED:
        files = licence_files(importlib.metadata.distribution(name))
        texts = [path.read_text(encoding="utf8", errors="replace") for path in files]
        if texts:
            (target / f"{name}.txt").write_text("\n\n".join(texts), encoding="utf8")


def setup(app: Sphinx) -> dict[str, object]:
    app.add_directive("licences", Licences)
    app.connect("build-finished", copy_licences)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
