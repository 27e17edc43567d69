"""Formulas, set when the book is built: a page needs no script and no wait to show them.

MathJax sets them on Node (typeset.js), which Playwright brings.  A formula has a picture made of
letters of MathJax's fonts, and MathML beside it for a screen reader.  The style of the letters that
the whole book uses goes into the one stylesheet, with their fonts, cut down to these letters.
"""

import base64
import importlib.metadata
import io
import json
import re
import subprocess
from pathlib import Path

import playwright
from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

NODE = Path(playwright.__file__).parent / "driver" / "node"
PROGRAM = Path(__file__).with_name("typeset.js")
STYLE = "formulas.css"
FONTS = "output/chtml/fonts/woff-v2"
FACE = re.compile(
    r'@font-face[^{]*\{\s*font-family:\s*(?P<family>[\w-]+);[^}]*?url\("(?P<file>[^"]*)"\)[^}]*\}'
)
CLASS = re.compile(r"\bTEX(-\w+)")
STRETCHED = ("-S1", "-S4", "", "-A")
"""Fonts that may have the parts of a sign that grows."""
CONTENT = re.compile(r'([^{}]*)\{[^}]*content:\s*"((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(r"\\([0-9A-Fa-f]+) ?|\\(.)")


class Typesetter:
    """A process that sets formulas, started by the first; what is set already is kept."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.made: dict[tuple[str, bool], str] = {}

    def ask(self, **question: object) -> dict[str, str]:
        """Return the answer to one line of JSON."""
        if self.process is None:
            command = [str(NODE), str(PROGRAM), str(mathjax()), FONTS]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            self.process = subprocess.Popen(command, text=True, encoding="utf8", **pipes)
        print(json.dumps(question), file=self.process.stdin, flush=True)
        if not (answer := self.process.stdout.readline()):
            raise RuntimeError(f"{PROGRAM.name} has ended: {self.process.stderr.read()}")
        return json.loads(answer)

    def html(self, tex: str, *, display: bool) -> str:
        """Return a formula as HTML.

        Raises:
            ValueError: if TeX does not know what it says.
        """
        key = tex, display
        if key not in self.made:
            answer = self.ask(tex=tex, display=display)
            if "error" in answer:
                raise ValueError(f"{answer['error']} in the formula {tex!r}")
            self.made[key] = answer["html"]
        return self.made[key]

    def css(self) -> str:
        """Return the style of all formulas that were set, and end the process."""
        css = self.ask()["css"]
        process, self.process = self.process, None
        process.communicate()
        return css


def mathjax() -> Path:
    """Return the folder of the installed MathJax.

    Raises:
        FileNotFoundError: if it is not installed.
    """
    for entry in importlib.metadata.files("sphinx-mathjax-offline") or []:
        if entry.name == "node-main.js":
            return Path(str(entry.locate())).parent
    raise FileNotFoundError("MathJax is missing: pip install sphinx-mathjax-offline")


def letters(css: str) -> dict[str, set[int]]:
    """Return the code points that a stylesheet puts before elements, by the font that it names."""
    found: dict[str, set[int]] = {}
    for selector, text in CONTENT.findall(css):
        plain = ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], text)
        named = CLASS.search(selector)
        names = STRETCHED if "stretchy" in selector else (named[1] if named else "",)
        for name in names:
            found.setdefault(f"MJXTEX{name}", set()).update(map(ord, plain))
    return found


def with_fonts(css: str) -> str:
    """Return the style of formulas with its fonts inside, cut down to the letters that it has."""
    wanted = letters(css)

    def face(rule: re.Match[str]) -> str:
        font = TTFont(mathjax() / rule["file"])
        if not wanted.get(rule["family"], set()) & set(font.getBestCmap()):
            return ""
        font.flavor, made = "woff2", io.BytesIO()
        cutter = subset.Subsetter(subset.Options(hinting=False, drop_tables=["FFTM"]))
        cutter.populate(unicodes=wanted[rule["family"]])
        cutter.subset(font)
        font.save(made)
        data = base64.b64encode(made.getvalue()).decode()
        source = f'src: url("data:font/woff2;base64,{data}") format("woff2")'
        return f"@font-face {{ font-family: {rule['family']}; {source}; }}"

    return FACE.sub(face, css)


def tex_of(node: nodes.math_block) -> str:
    """Return a displayed formula as Sphinx has it: lines are split, paragraphs are aligned."""
    parts = [part for part in node.astext().split("\n\n") if part.strip()]
    lines = [rf"\begin{{split}}{p}\end{{split}}" if r"\\" in p else p for p in parts]
    if len(lines) < 2 or node["nowrap"]:
        return node.astext() if node["nowrap"] else "".join(lines)
    return r"\begin{align}\begin{aligned}" + r"\\".join(lines) + r"\end{aligned}\end{align}"


class Formulas:
    """Writes the formulas of pages, and their style and fonts beside them."""

    def __init__(self) -> None:
        self.typesetter = Typesetter()

    def set(self, writer: HTML5Translator, node: nodes.Element, tex: str, *, display: bool) -> None:
        """Write a formula; one with a mistake is a warning, and stays as it was written."""
        try:
            writer.body.append(self.typesetter.html(tex, display=display))
        except ValueError as error:
            writer.document.reporter.warning(str(error), base_node=node)
            writer.body.append(writer.encode(tex))

    def inline(self, writer: HTML5Translator, node: nodes.math) -> None:
        """Write a formula within a line."""
        writer.body.append(writer.starttag(node, "span", "", CLASS="math"))
        self.set(writer, node, node.astext(), display=False)
        writer.body.append("</span>")
        raise nodes.SkipNode

    def displayed(self, writer: HTML5Translator, node: nodes.math_block) -> None:
        """Write a formula of its own lines, with its number and a link to it."""
        writer.body.append(writer.starttag(node, "div", CLASS="math"))
        if node["number"]:
            writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
            writer.add_permalink_ref(node, _("Link to this equation"))
            writer.body.append("</span>")
        self.set(writer, node, tex_of(node), display=True)
        writer.body.append("</div>\n")
        raise nodes.SkipNode

    def write(self, app: Sphinx, error: Exception | None) -> None:
        """Write the style and the fonts of all formulas of the book."""
        if error is not None or app.builder.format != "html":
            return
        css = with_fonts(self.typesetter.css())
        (Path(app.outdir) / "_static" / STYLE).write_text(css, encoding="utf8")


def setup(app: Sphinx) -> dict[str, object]:
    formulas = Formulas()
    app.add_html_math_renderer("typeset", (formulas.inline, None), (formulas.displayed, None))
    app.connect("build-finished", formulas.write, priority=500)  # before the one stylesheet
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
