"""A widget's program, its style and what starts it, once for the book and not in every page.

The output of a notebook carries all of a widget, for front ends without a kernel: up to 110 kB of
program, again for each widget of a page.  Here the program becomes a script that all pages share;
book/_static/widgets.js loads it when the reader comes near.  It is a classic script that sets a
text, since a page that is opened from a file may load no module.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from llmcourse_classroom.widget import as_json, source, styles

FOLDER = "widgets"
WIDGET = re.compile(
    r'<style>[^<]*</style>\s*<script type="application/json" id="(?P<id>lc-[^"]+)-state">'
    r'(?P<payload>.*?)</script>\s*<script type="module">.*?</script>',
    re.DOTALL,
)


class Programs:
    """The programs of the widgets that pages show."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def take(
        self, _app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any
    ) -> None:
        """Leave of each widget its place and state, and keep its program."""

        def left(found: re.Match[str]) -> str:
            payload = json.loads(found["payload"])
            kind = found["id"].split("-")[1]
            name = f"{kind}-{hashlib.sha256(payload['esm'].encode()).hexdigest()[:10]}"
            self.texts[name] = payload["esm"]
            address = f"{'../' * page.count('/')}_static/{FOLDER}/{name}.js"
            start = f'<script type="application/json" id="{found["id"]}-state"'
            return f'{start} data-program="{address}">{as_json(payload["state"])}</script>'

        context["body"] = WIDGET.sub(left, context.get("body") or "")

    def write(self, app: Sphinx, error: Exception | None) -> None:
        """Write the programs, and beside them what all widgets need."""
        if error is not None or app.builder.format != "html":
            return
        static = Path(app.outdir) / "_static"
        (static / FOLDER).mkdir(parents=True, exist_ok=True)
        for name, text in self.texts.items():
            script = f'(globalThis.coursePrograms ??= {{}})["{name}"] = {json.dumps(text)};\n'
            (static / FOLDER / f"{name}.js").write_text(script, encoding="utf8")
        (static / "kit.css").write_text(styles(), encoding="utf8")
        live = source("page.js").replace("export async", "async")
        (static / "live.js").write_text(live, encoding="utf8")


def setup(app: Sphinx) -> dict[str, object]:
    programs = Programs()
    app.connect("html-page-context", programs.take, priority=930)  # before what a page loads
    app.connect("build-finished", programs.write, priority=450)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
