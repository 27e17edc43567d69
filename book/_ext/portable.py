r"""A chapter is a plain notebook; this makes a page of it, with all the comforts of a page.

What stands in the notebook is CommonMark, tables, dollar mathematics, images and links, so that
JupyterLab, VS Code, Colab and GitHub show it as it is.  Before Sphinx reads it,

    # 19 A title                              gets the strip of phases, from the chapter's part
    **Minutes** 40 (reading) + 20 s (running) moves up into a card, with "You need" as links
    > **Popular account: "..."**  text        becomes a box
    $$ ... \tag{19.2} $$   and   (19.2)       become a numbered equation and a link to it
    **Figure 19.2.** What to see.             after a cell that draws becomes its caption,
    Figure 19.2                               elsewhere a link to it
    ([Dao, 2023](https://arxiv...))           whose address the bibliography has, a citation
    show(linear_backward)                     alone in a cell, the listing, with its links
    assert ...                                are counted; the cells of those out of sight, too

and afterwards the first plain use of a term of the glossary in each section is linked to it.
"""

import ast
import copy
import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from course import PHASES, parts_of
from docutils import nodes
from pybtex.backends import plaintext
from pybtex.plugin import register_plugin
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from llmcourse_classroom import listing as listings

Cell = dict[str, Any]

BOX = re.compile(r"^> \*\*(?P<title>.+?)\*\*(?P<body>.*(?:\n>.*)*)", re.MULTILINE)
TAG = re.compile(r"\s*\\tag\{(?P<number>\d+\.\d+)\}\s*\$\$")
FIGURE = re.compile(r"\*\*Figure (?P<number>\d+\.\d+)\.\*\* (?P<caption>.+?)(?:\n\n|\Z)", re.DOTALL)
LINK = r"\[(?P<{0}>[^\]\[]+)\]\((?P<{0}_url>[^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)"
ONE_LINK = re.compile(LINK.format("text"))
GROUP = re.compile(r"\((\[[^\]\[]+\]\(\S+?\)(?:; \[[^\]\[]+\]\(\S+?\))*)\)")
MINUTES = re.compile(r"\*\*Minutes\*\* (\d+) \(reading\) \+ (.+?) \(running\)\n*")
NEEDED = re.compile(r"^## You need$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*$|^ {4}\S.*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


# --- the notebook's text


def outside_code(pattern: re.Pattern[str], replace: Any, text: str) -> str:
    """Replace in Markdown, but neither in fences nor in code spans."""
    parts, last = [], 0
    for found in FENCE.finditer(text):
        parts += [pattern.sub(replace, text[last : found.start()]), found[0]]
        last = found.end()
    return "".join([*parts, pattern.sub(replace, text[last:])])


def boxed(text: str) -> str:
    """Make boxes of quotes that begin with a bold label."""

    def box(found: re.Match[str]) -> str:
        body = re.sub(r"^> ?", "", found["body"].strip(), flags=re.MULTILINE).strip()
        return f"```{{admonition}} {found['title'].rstrip('.')}\n:class: errata\n{body}\n```"

    return BOX.sub(box, text)


def numbered(text: str, tags: set[str]) -> str:
    """Make labels of the tags of equations, and links of their numbers."""

    def link(found: re.Match[str]) -> str:
        return f"{{eq}}`{label(found[1])}`" if found[1] in tags else found[0]

    def label(number: str) -> str:
        return "eq-" + number.replace(".", "-")

    text = outside_code(re.compile(r"\((\d+\.\d+)\)"), link, text)
    return TAG.sub(lambda found: f" $$ ({label(found['number'])})", text)


def with_figures(text: str, figures: set[str]) -> str:
    """Make links of the numbers of figures."""

    def link(found: re.Match[str]) -> str:
        return f"{{numref}}`fig-{found[1].replace('.', '-')}`" if found[1] in figures else found[0]

    return outside_code(re.compile(r"\bFigure (\d+\.\d+)\b(?!\.\*\*)"), link, text)


def cited(text: str, keys: dict[str, str]) -> str:
    """Make citations of links to what the bibliography has: in parentheses, or with "(year)"."""

    def group(found: re.Match[str]) -> str:
        urls = [link["text_url"] for link in ONE_LINK.finditer(found[1])]
        if not all(url in keys for url in urls):
            return found[0]
        return "{cite:p}`" + ",".join(keys[url] for url in urls) + "`"

    def textual(found: re.Match[str]) -> str:
        named = re.search(r"\(\d{4}\w?\)$", found["text"]) and keys.get(found["text_url"])
        return f"{{cite:t}}`{named}`" if named else found[0]

    return outside_code(ONE_LINK, textual, outside_code(GROUP, group, text))


def addresses(bibliography: str) -> dict[str, str]:
    """Return the key of every address in a bibliography; what is on paper has its place there."""
    found = {}
    for key, body in re.findall(r"@\w+\{(\w+),(.*?)\n\}", bibliography, re.DOTALL):
        url = re.search(r"\burl = \{(.*?)\}", body)
        found[url[1] if url else f"../book/bibliography.md#{key}"] = key
    return found


# --- the notebook's cells


def tree_of(cell: Cell) -> ast.Module:
    """Return the syntax tree of a cell, without IPython's own lines."""
    source = "\n".join(line for line in text_of(cell).split("\n") if not line.startswith("%"))
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE))


def shown(cells: list[Cell]) -> Iterator[tuple[Cell, str, dict[str, Any]]]:
    """Yield the cells that are one call of `show`, with the path to what they show, and how."""
    names: dict[str, str] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        tree = tree_of(cell)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        call = getattr(tree.body[0], "value", None) if len(tree.body) == 1 else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "show":
            first, *rest = ast.unparse(call.args[0]).split(".")
            options = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
            yield cell, ".".join([names.get(first, first), *rest]), options


def found_at(path: str) -> Any:
    """Return what a dotted path leads to, as `from ... import` finds it."""
    first, *rest = path.split(".")
    found = importlib.import_module(first)
    for place, name in enumerate(rest, start=1):
        try:
            found = getattr(found, name)
        except AttributeError:
            # So far a function may have hidden the module of its name, which is meant here.
            *parents, _ = names = [first, *rest[:place]]
            module = importlib.import_module(".".join(parents))
            missing = not hasattr(module, name)
            found = importlib.import_module(".".join(names)) if missing else getattr(module, name)
    return found


def source_of(path: str) -> Any:
    """Return the function or class, in Python, that a dotted path leads to."""
    thing = found_at(path)
    return inspect.unwrap(thing.fget if isinstance(thing, property) else thing)


def file_of(path: str) -> Path:
    """Return the file that has what a dotted path leads to."""
    return Path(inspect.getsourcefile(source_of(path)))


def listing(path: str, options: dict[str, Any], folder: Path) -> str:
    """Return the directive that shows a function or class of the package."""
    thing, file = source_of(path), os.path.relpath(file_of(path), folder)
    if options.get("plain"):
        source, name = listings.listing(thing, **options)
        return f"````{{plain-listing}} {name}\n{source}\n````"
    lines = [f"```{{literalinclude}} {file}", f":pyobject: {thing.__qualname__}"]
    lines += [f":{name}-at: {text}" for name, text in options.items()]
    if options or "." in thing.__qualname__:
        lines.append(":dedent:")
    return "\n".join([*lines, "```"])


def text_of(cell: Cell) -> str:
    """Return the source of a cell, which a file may hold as lines."""
    return "".join(cell["source"])


def with_listings(cells: list[Cell], folder: Path) -> list[Cell]:
    """Put the listing after each cell that shows one; the page leaves that cell out."""
    listings = {id(cell): listing(path, how, folder) for cell, path, how in shown(cells)}
    result = []
    for cell in cells:
        result.append(cell)
        if id(cell) in listings:
            cell["metadata"].setdefault("tags", []).append("remove-cell")
            own = {"id": f"{cell['id']}-listing", "metadata": {}, "cell_type": "markdown"}
            result.append({**own, "source": listings[id(cell)]})
    return result


def with_captions(cells: list[Cell]) -> set[str]:
    """Move captions into the cells that draw; return the numbers of the figures."""
    numbers = set()
    for drawing, text in pairwise(cells):
        found = FIGURE.match(text_of(text)) if text["cell_type"] == "markdown" else None
        if drawing["cell_type"] == "code" and found:
            numbers.add(found["number"])
            name = "fig-" + found["number"].replace(".", "-")
            figure = {"name": name, "caption": " ".join(found["caption"].split())}
            drawing["metadata"].setdefault("mystnb", {})["figure"] = figure
            text["source"] = text_of(text)[found.end() :]
    return numbers


def num_assertions(cell: Cell) -> int:
    """Return how many statements of a cell are checked."""
    if cell["cell_type"] != "code":
        return 0
    return sum(isinstance(node, ast.Assert) for node in ast.walk(tree_of(cell)))


def with_prompts(cells: list[Cell]) -> None:
    """Say on each fold of checks how many it holds."""
    for cell in cells:
        if "checks" in cell["metadata"].get("tags", ()):
            number = num_assertions(cell)
            what = "1 check" if number == 1 else f"{number} checks"
            prompts = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}
            cell["metadata"].setdefault("mystnb", {}).update(prompts)


def head(title: str, minutes: re.Match[str], prose: list[Cell]) -> str:
    """Return the directive of the card under a title."""
    found = next(filter(None, (NEEDED.search(text_of(cell)) for cell in prose)), None)
    needs = re.findall(r"\]\((\d\d)_\w+\.ipynb", found[1] if found else "")
    lines = [f"```{{head}} {title[2:4]}", f":reading: {minutes[1]}", f":running: {minutes[2]}"]
    lines += [f":needs: {' '.join(dict.fromkeys(needs))}"] if needs else []
    return "\n".join([*lines, "```\n"])


def made_page(notebook: dict[str, Any], keys: dict[str, str], phases: str, folder: Path) -> dict:
    """Return a notebook with the book's own markup in place of the portable one."""
    notebook = copy.deepcopy(notebook)
    cells = notebook["cells"]
    prose = [cell for cell in cells if cell["cell_type"] == "markdown"]
    figures = with_captions(cells)
    tags = {found["number"] for cell in prose for found in TAG.finditer(text_of(cell))}
    for cell in prose:
        text = with_figures(numbered(cited(text_of(cell), keys), tags), figures)
        cell["source"] = boxed(text)
    for cell in cells:
        figure = cell["metadata"].get("mystnb", {}).get("figure")
        if figure:
            figure["caption"] = with_figures(cited(figure["caption"], keys), figures)
    title, _, rest = prose[0]["source"].partition("\n")
    if minutes := MINUTES.search(rest):
        rest = f"{head(title, minutes, prose)}\n{MINUTES.sub('', rest).strip()}"
        prose[0]["source"] = f"{title}\n{rest}"
    checked = sum(map(num_assertions, cells))
    if checked:
        prose[0]["source"] += f"\n\n```{{checked}} {checked}\n```"
    with_prompts(cells)
    title, _, rest = prose[0]["source"].partition("\n")
    if phases:
        prose[0]["source"] = f"{title}\n\n```{{phases}} {phases}\n```\n{rest}"
    notebook["cells"] = [
        cell
        for cell in with_listings(cells, folder)
        if cell["cell_type"] == "code" or text_of(cell).strip()
    ]
    return notebook


def phases_of(env: BuildEnvironment, number: str) -> str:
    """Return which phases a chapter's strip lights: that of its part, or all."""
    for place, part in enumerate(parts_of(env)):
        if any(chapter["number"] == number for chapter in part["chapters"]):
            return str(place) if 1 <= place <= len(PHASES) else "all"
    return ""


def read(app: Sphinx, document: str, content: list[str]) -> None:
    """Make a page of a chapter."""
    found = re.fullmatch(r"chapters/(\d\d)_\w+", document)
    if found and "```{phases}" not in content[0]:
        bibliography = Path(app.srcdir, "book", "references.bib")
        app.env.note_dependency(str(bibliography))
        keys = addresses(bibliography.read_text(encoding="utf8"))
        phases, folder = phases_of(app.env, found[1]), Path(app.srcdir, "chapters")
        app.env.temp_data["portable"] = True
        content[0] = json.dumps(made_page(json.loads(content[0]), keys, phases, folder))


# --- terms

EVERYDAY = frozenset(
    """
architecture bubble bucket calibration capacity collective combine decoding depth divergence
document expert gate hash head hook key layout mask median merge mesh model node packing
query rank reduce retention sampling spare stage step surprise tape target temperature
timeout value weight width window zig-zag
""".split()  # noqa: SIM905 - a list of 48 strings is no easier to read
)
"""Words that are terms in one sense only: linked where they are in italics, or in a longer term."""

NOT_IN = (
    nodes.title,
    nodes.literal,
    nodes.literal_block,
    nodes.reference,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.term,
    nodes.comment,
    addnodes.pending_xref,
)

APART = {"cell_output", "phase-strip", "visually-hidden"}
"""Classes of what is not the text of a page."""


def terms_of(glossary: str) -> dict[str, str]:
    """Return the term that each spelling stands for: as it is, in the plural, and capitalised."""
    body = re.search(r"^```\{glossary\}\n(.*?)\n```$", glossary, re.DOTALL | re.MULTILINE)[1]
    spellings = {}
    for term in re.findall(r"^(?! )(\S.*)$", body, re.MULTILINE):
        for form in (term, f"{term}s", f"{term}es", re.sub("y$", "ies", term)):
            spellings.setdefault(form, term)
            spellings.setdefault(form[0].upper() + form[1:], term)
    return spellings


def sections(doctree: nodes.document) -> Iterator[list[nodes.Text]]:
    """Yield the texts of every section of a page that may hold a term, in order."""
    found: dict[nodes.Node, list[nodes.Text]] = {}
    for text in doctree.findall(nodes.Text):
        above, node = [], text.parent
        while node is not None:
            above.append(node)
            node = node.parent
        if any(isinstance(each, NOT_IN) for each in above):
            continue
        if any(APART.intersection(each.get("classes", ())) for each in above[:-1]):
            continue
        inside = [each for each in above if isinstance(each, nodes.section)]
        found.setdefault(inside[-2] if len(inside) > 1 else doctree, []).append(text)
    yield from found.values()


def link_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Link the terms of a chapter."""
    if app.env.temp_data.get("portable"):
        glossary = Path(app.srcdir, "book", "glossary.md")
        app.env.note_dependency(str(glossary))
        spellings = terms_of(glossary.read_text(encoding="utf8"))
        link_in_sections(doctree, spellings, app.env.docname)


def link_in_sections(doctree: nodes.document, spellings: dict[str, str], document: str) -> None:
    """Link the first plain use of each term in each section."""
    longest_first = sorted(spellings, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w/-])")
    for texts in sections(doctree):
        linked: set[str] = set()
        for text in texts:
            _link_in(text, pattern, spellings, linked, document)


def _link_in(
    text: nodes.Text,
    pattern: re.Pattern[str],
    spellings: dict[str, str],
    linked: set[str],
    document: str,
) -> None:
    """Link what stands in one text for the first time in its section."""
    plain, pieces, last = text.astext(), [], 0
    for found in pattern.finditer(plain):
        term = spellings[found[0]]
        stressed = isinstance(text.parent, nodes.emphasis) and found[0] == plain
        if term in linked or (term in EVERYDAY and not stressed):
            continue
        linked.add(term)
        pieces += [nodes.Text(plain[last : found.start()]), term_link(term, found[0], document)]
        last = found.end()
    if pieces:
        pieces = [p for p in [*pieces, nodes.Text(plain[last:])] if p.astext()]
        text.parent.replace(text, pieces)


def term_link(term: str, label: str, document: str) -> addnodes.pending_xref:
    """Return a link to a term of the glossary."""
    return addnodes.pending_xref(
        "",
        nodes.inline("", label, classes=["xref", "std", "std-term"]),
        refdomain="std",
        reftype="term",
        reftarget=term,
        refexplicit=True,
        refwarn=True,
        refdoc=document,
    )


def setup(app: Sphinx) -> dict[str, object]:
    sys.path.append(str(app.srcdir))
    # Else what `made_page` adds would execute it again.
    importlib.import_module("tools.build.by_code")
    # Else every citation looks through all installed packages for it, 40 ms each.
    register_plugin("pybtex.backends", "plaintext", plaintext.Backend)
    app.connect("source-read", read)
    app.connect("doctree-read", link_terms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
