"""What a page loads: one stylesheet and two scripts; no more.

The theme and Sphinx's extensions bring two dozen files, and Font Awesome's script alone is larger
than everything else.  Here the stylesheets become one, with the rules alone that some page needs
(needed.py), the scripts one before and one after the page is read, and icons are drawn by
book/_static/icons.css.  In a listing, what has the colour of all code has no element of its own.
Nothing comes from another host.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from needed import needed, without_unused_properties, words_of
from PIL import Image
from sphinx.application import Sphinx
from sphinx.builders.html._assets import _CascadingStyleSheet, _JavaScript

STYLE, EARLY, LATE = "book.css", "book.js", "late.js"
THEME_STYLES = ("basic.css", "styles/pydata-sphinx-theme.css")
THEME_SCRIPTS = ("scripts/bootstrap.js", "scripts/pydata-sphinx-theme.js")
# Tabs are not used, and their script asks for its own element.
UNUSED = ("design-tabs.js",)
ICON_FONT = re.compile(
    r"@font-face\s*\{[^}]*Font\s*Awesome[^}]*\}|@font-face\{[^}]*fontawesome[^}]*\}"
    r"|(?:\.fa-[a-z0-9-]+:{1,2}before,?)+\{content:[^}]*\}",
    re.IGNORECASE,
)
# A character of the icon font: an empty box without it.
ICON = re.compile(r"([\"'])(?:\\[ef][0-9a-f]{3}|[\ue000-\uf8ff])\1", re.IGNORECASE)
# The theme's name is known once its script has run: until then, and without scripts, it is light.
LIGHT = re.compile(r"html\[data-theme=([\"']?)light\1\]")
FOLDED = '["pre",".nboutput', '["pre:not(details:not([open]) *)",".nboutput'
"""What may scroll, in the theme's script: to measure what is folded costs more than the rest."""
ROCKET = "fas fa-rocket"
NUM_COLOURS = 64
PLAIN = re.compile(r'<span class="(?:n|p|w|nn|nx)">([^<]*)</span>')
"""Names, brackets and blanks of a listing: both themes give them the colour of all code."""


class Assets:
    """The files that pages asked for, in order of their first request."""

    def __init__(self) -> None:
        self.styles = list(THEME_STYLES)
        self.scripts: list[str] = []

    def gather(
        self, _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any
    ) -> None:
        """Put the one stylesheet and the one script into a page, in the place of all others."""
        # Two hosts' logos would weigh as much as a figure.
        for menu in context.get("header_buttons", []):
            for button in menu.get("buttons", []):
                if button.get("icon", "").startswith("_static"):
                    button["icon"] = ROCKET
        for sheet in context["css_files"]:
            self._note(self.styles, sheet)
        context["css_files"] = [_CascadingStyleSheet(f"_static/{STYLE}")]
        kept = [s for s in context["script_files"] if not self._note(self.scripts, s)]
        # What a page says of itself needs the script; what the script is told, comes before.
        context["body"] = PLAIN.sub(r"\1", context.get("body") or "")
        own = [s for s in kept if "DOCUMENTATION_OPTIONS" in s.attributes.get("body", "")]
        told = [s for s in kept if s not in own]
        context["script_files"] = [*told, _JavaScript(f"_static/{EARLY}"), *own]

    def _note(self, names: list[str], asset: Any) -> bool:
        """Note a file for the bundle; say whether the page may go without it."""
        name = str(asset.filename or "")
        if not name.startswith("_static/"):
            return False
        name = name.removeprefix("_static/")
        if name not in names and name not in UNUSED:
            names.append(name)
        return True

    def write(self, app: Sphinx, error: Exception | None) -> None:
        """Write what the pages load, once all files are in place."""
        if error is not None or app.builder.format != "html":
            return
        static = Path(app.outdir) / "_static"
        sheets = [stylesheet(static, name) for name in self.styles]
        early, late = scripts(static, self.scripts), scripts(static, THEME_SCRIPTS)
        if late.count(FOLDED[0]) != 1:
            raise ValueError(f"the theme's script has no {FOLDED[0]}: look for what scrolls")
        late = late.replace(*FOLDED)
        (static / EARLY).write_text(early, encoding="utf8")
        (static / LATE).write_text(late, encoding="utf8")
        pages = [path for path in Path(app.outdir).rglob("*.html") if static not in path.parents]
        programs = [path.read_text(encoding="utf8") for path in static.glob("widgets/*.js")]
        words = words_of(pages, [early, late, *programs])
        style = needed("\n".join(sheets), words)
        pages_and_scripts = [*(path.read_text(encoding="utf8") for path in pages), early, late]
        style = without_unused_properties(style, [*pages_and_scripts, *programs])
        (static / STYLE).write_text(style, encoding="utf8")
        remove_unused(static)
        shrink_figures(Path(app.outdir) / "_images")


def stylesheet(static: Path, name: str) -> str:
    """Return a stylesheet for the folder above its own, without the icon font."""
    text = (static / name).read_text(encoding="utf8")
    text = ICON_FONT.sub("", re.sub(r"/\*# sourceMappingURL=.*?\*/", "", text))
    text = LIGHT.sub('html:not([data-theme="dark"])', ICON.sub('""', text))
    folder = name.rpartition("/")[0]
    if not folder:
        return text
    return re.sub(r"url\((?![\"']?(?:data:|#|https?:|/))([\"']?)", rf"url(\1{folder}/", text)


def scripts(static: Path, names: list[str] | tuple[str, ...]) -> str:
    """Return scripts as one; each keeps its own errors to itself."""
    texts = [(static / name).read_text(encoding="utf8") for name in names]
    return "\n;\n".join(re.sub(r"//# sourceMappingURL=.*", "", text) for text in texts)


def remove_unused(static: Path) -> None:
    """Remove the icon font and the maps of the theme's sources, which no page loads."""
    shutil.rmtree(static / "vendor" / "fontawesome", ignore_errors=True)
    for path in {*static.glob("scripts/fontawesome.js*"), *static.rglob("*.map")}:
        path.unlink()


def shrink_figures(folder: Path) -> None:
    """Give the figures a palette: what matplotlib draws has few colours, and takes a third."""
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            if image.mode == "P":
                continue
            density = image.info.get("dpi")
            small = image.convert("RGB").quantize(NUM_COLOURS, dither=Image.Dither.NONE)
        temporary = path.with_suffix(".small")
        small.save(temporary, format="PNG", optimize=True, **({"dpi": density} if density else {}))
        if temporary.stat().st_size < path.stat().st_size:
            temporary.replace(path)
        else:
            temporary.unlink()


def setup(app: Sphinx) -> dict[str, object]:
    assets = Assets()
    app.connect("html-page-context", assets.gather, priority=950)  # after every extension
    app.connect("build-finished", assets.write, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
