"""Pages that have moved: what stands at an old address leads to the new one, without a script."""

from pathlib import Path

from sphinx.application import Sphinx

MOVED = {
    "book/api/capstone": "labs/capstone.html",
    "book/api/course": "index.html",
    "book/api/evaluate": "labs/evaluate.html",
    "book/api/posttrain": "labs/tuning.html",
    "book/api/scale": "labs/scale.html",
}
"""Old addresses, and where they lead, seen from there."""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={to}">
<link rel="canonical" href="{to}">
<meta name="robots" content="noindex">
</head>
<body><p>This page has moved: <a href="{to}">here it is</a>.</p></body>
</html>
"""


def write(app: Sphinx, error: Exception | None) -> None:
    """Write a page for each old address."""
    if error is not None or app.builder.format != "html":
        return
    for old, to in MOVED.items():
        path = Path(app.outdir) / f"{old}.html"
        if old in app.env.found_docs:
            raise ValueError(f"{old} is a page of the book, and cannot lead to {to}")
        path.write_text(PAGE.format(to=to), encoding="utf8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the extension."""
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
