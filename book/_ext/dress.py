"""Writes the stylesheet that the book's own begins with: tokens of the look, and two fonts."""

from pathlib import Path

from sphinx.application import Sphinx

from llmcourse_classroom import look
from tools.pages import fonts


def write(app: Sphinx) -> None:
    """Write the tokens and the fonts beside the other styles."""
    if app.builder.format == "html":
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        (static / "tokens.css").write_text(look.page_css() + fonts.css(), encoding="utf8")


def setup(app: Sphinx) -> dict[str, object]:
    app.connect("build-finished", lambda app, error: None if error else write(app), priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
