"""Comforts of reading: previews of what is linked, numbered equations, listings with links.

Tables get a name for an empty corner, and references lose roles that browsers no longer know.
"""

import html
import json
import posixpath
import re
from pathlib import Path
from typing import Any

import course
import nbformat
import portable
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.directives.code import CodeBlock, LiteralInclude
from sphinx.environment import BuildEnvironment

GLOSSARY = "book/glossary"
LINK = re.compile(r'<a class="reference internal" href="([^"#]+\.html(?:#[^"]*)?)"')
MINUTES = re.compile(r"(\d+) minutes to read")


# --- previews


def explanations(env: BuildEnvironment) -> dict[str, str]:
    """Return what the glossary says of every term, by the term's anchor."""
    if GLOSSARY not in env.found_docs:
        return {}
    found = {}
    for item in env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
        text = " ".join(item.children[-1].astext().split())
        for term in item.findall(nodes.term):
            found |= dict.fromkeys(term["ids"], text)
    return found


def keep_head(app: Sphinx, doctree: nodes.document) -> None:
    """Keep a chapter's question and minutes, for links to it."""
    for card in doctree.findall(nodes.container):
        if "chapter-facts" in card["classes"]:
            question, about = (paragraph.astext() for paragraph in card.children[:2])
            kept = {"question": question, "minutes": MINUTES.match(about)[1]}
            app.env.metadata[app.env.docname] |= kept


def chapter_preview(env: BuildEnvironment, document: str) -> list[str]:
    """Return a chapter's title, its question, and its lap and minutes."""
    kept, number = env.metadata[document], document.removeprefix("chapters/")[:2]
    note = course.lap_of(env, number)
    note += [f"{kept['minutes']} minutes"] if kept.get("minutes") else []
    return [env.titles[document].astext(), kept.get("question", ""), ", ".join(note)]


def script_of(identifier: str, value: object) -> str:
    """Return an element that holds JSON in a page."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{identifier}">{text}</script>'


class Previews:
    """Gives each page what it says of the terms and chapters that it links, by address.

    The entry of a citation is in its link already; equations and figures are on the page.
    """

    def __init__(self) -> None:
        self.terms: dict[str, str] | None = None

    def add(
        self, app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any
    ) -> None:
        """Add the previews behind the page's body."""
        if self.terms is None:
            self.terms = explanations(app.env)
        own: dict[str, list[str]] = {}
        for address in set(LINK.findall(context.get("body") or "")):
            path, _, anchor = html.unescape(address).partition("#")
            document = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
            document = document.removesuffix(".html")
            if document == GLOSSARY and anchor in self.terms and page != GLOSSARY:
                own[f"{path}#{anchor}"] = ["", self.terms[anchor], ""]
            elif document.startswith("chapters/") and document in app.env.found_docs:
                own[path] = chapter_preview(app.env, document)
        if own:
            context["body"] += script_of("course-previews", own)


def plain_lists(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any
) -> None:
    """Remove roles that ARIA 1.2 deprecates and Sphinx still gives to references."""
    body = context.get("body") or ""
    body = body.replace(' role="doc-biblioentry"', "")
    context["body"] = body.replace('<div role="list" class="citation-list">', "<div>")


# --- what stays on one line

PERCENT = re.compile(r"(?<=\d) (?=%)")
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
LONG_NAME = re.compile(r'(?<=<span class="pre">)[^<>&]{16,}(?=</span>)')
AFTER_FORMULA = re.compile(
    r'(<span class="math">(?:(?!</mjx-container>).)*</mjx-container></span>)([,.;:!?)]+)(?=[\s<])',
    re.DOTALL,
)


def keep_percent(_app: Sphinx, doctree: nodes.document) -> None:
    """Keep a number and its % together."""
    literal = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)
    for text in list(doctree.findall(nodes.Text)):
        if PERCENT.search(text) and not isinstance(text.parent, literal):
            text.parent.replace(text, nodes.Text(PERCENT.sub("\u00a0", text)))


def keep_together(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any
) -> None:
    """Keep a formula and the comma behind it together, and the two dashes of a flag.

    Names that are wide for a column of a table may break.
    """
    body = AFTER_FORMULA.sub(r'<span class="unbroken">\1\2</span>', context.get("body") or "")
    body = CELL.sub(lambda cell: LONG_NAME.sub(breakable, cell[0]), body)
    context["body"] = body.replace('<span class="pre">--', '<span class="pre unbroken">--')


def breakable(name: re.Match[str]) -> str:
    """Return a long name that may go on in the next line, behind a dot or an underscore."""
    return re.sub(r"([._])(?=\w)", r"\1<wbr>", name[0])


# --- the code behind a figure

FOLD = re.compile(
    r'<details class="admonition hide above-input">\s*<summary[^>]*>.*?</summary>'
    r"(?=(?P<start>.*?)</pre>)",
    re.DOTALL,
)
TITLE = re.compile(r'<pre><span></span><span class="c1"># @title (?P<title>[^<]*)</span>')


def name_folds(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any
) -> None:
    """Give folded code a short line with its title, in the place of one bar like all others."""

    def named(found: re.Match[str]) -> str:
        title = TITLE.search(found["start"])
        text = f"Code: {title['title'][:1].lower()}{title['title'][1:]}" if title else "Code"
        return f'<details class="course-code"><summary>{text}</summary>'

    context["body"] = FOLD.sub(named, context.get("body") or "")


# --- equations


def number_equations(app: Sphinx, doctree: nodes.document) -> None:
    """Give every displayed equation that has no label a number of its own."""
    env, domain = app.env, app.env.get_domain("math")
    document = env.docname
    for place, equation in enumerate(list(doctree.findall(nodes.math_block)), start=1):
        if equation.get("label") or equation.get("nowrap"):
            continue
        label = f"{document}-{place}"
        domain.note_equation(document, label, location=equation)
        equation["docname"], equation["label"] = document, label
        equation["number"] = domain.get_equation_number_for(label)
        equation["ids"].append(nodes.make_id(f"equation-{label}"))


def number_by_chapter(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Number equations, figures and tables within their chapter: (16.1), Fig. 16.2.

    Runs after Sphinx has numbered them through the book.
    """
    for document, kinds in env.toc_fignumbers.items():
        chapter = re.match(r"chapters/(\d\d)_", document)
        if chapter is None:
            continue
        for numbers in kinds.values():
            for place, name in enumerate(numbers, start=1):
                numbers[name] = (int(chapter[1]), place)
    return []


# --- tables


def letters_of_glossary(app: Sphinx, doctree: nodes.document) -> None:
    """Put above the glossary a link to the first term of each letter."""
    if app.env.docname != GLOSSARY:
        return
    first: dict[str, str] = {}
    for term in doctree.findall(nodes.term):
        first.setdefault(term.astext()[0].upper(), term["ids"][0])
    line = nodes.paragraph(classes=["glossary-letters"])
    for letter, anchor in first.items():
        line += [nodes.reference("", letter, internal=True, refid=anchor), nodes.Text(" ")]
    glossary = next(iter(doctree.findall(addnodes.glossary)))
    glossary.parent.insert(glossary.parent.index(glossary), line)


def name_empty_headers(_app: Sphinx, doctree: nodes.document) -> None:
    """Give the empty corner of a table a name that a screen reader can say."""
    for head in doctree.findall(nodes.thead):
        for entry in head.findall(nodes.entry):
            if not entry.astext().strip():
                name = nodes.inline("", "row", classes=["visually-hidden"])
                entry.clear()
                entry.append(nodes.paragraph("", "", name))


# --- Deeper


def fold_deeper(app: Sphinx, doctree: nodes.document, document: str) -> None:
    """Fold each part of a chapter's last section, *Deeper*, behind its heading.

    Its sections are known by now, so contents and links stay; a script opens what a link leads to.
    """
    if app.builder.format != "html" or not document.startswith("chapters/"):
        return
    for section in doctree.findall(nodes.section):
        if section[0].astext() != "Deeper":
            continue
        for part in section.children:
            if isinstance(part, nodes.section):
                begin = nodes.raw("", '<details class="deeper"><summary>', format="html")
                middle, end = (
                    nodes.raw("", tag, format="html") for tag in ("</summary>", "</details>")
                )
                part.insert(1, middle)
                part.insert(0, begin)
                part.append(end)


# --- listings


class Listing(LiteralInclude):
    """`literalinclude`, with a line under a piece of the package that says where it lives."""

    def run(self) -> list[nodes.Node]:
        shown = super().run()
        path, member = self.arguments[0], self.options.get("pyobject")
        if not path.startswith("../llmcourse") or not member:
            return shown
        module = path.removeprefix("../").removesuffix(".py").replace("/", ".")
        module = module.removesuffix(".__init__")
        label = "The package's own code: "
        return [*shown, source_line(self.env.docname, module, member, label)]


class PlainListing(CodeBlock):
    """A listing without docstrings, annotations and checks: its text, as `show` displays it."""

    def run(self) -> list[nodes.Node]:
        name, self.arguments = self.arguments[0], ["python"]
        thing = portable.source_of(name)
        self.env.note_dependency(str(portable.file_of(name)))
        label = "The package's own code, without docstring, annotations and checks: "
        line = source_line(self.env.docname, thing.__module__, thing.__qualname__, label)
        return [*super().run(), line]


def source_line(document: str, module: str, member: str, label: str) -> nodes.paragraph:
    """Return the line under a listing, with a link to where it is documented."""
    # What begins with _ has no entry of its own in the API pages: its module has.
    private = any(part.startswith("_") for part in member.split("."))
    link = addnodes.pending_xref(
        "",
        nodes.literal("", f"{module}.{member}", classes=["xref", "py"]),
        refdomain="py",
        reftype="mod" if private else "obj",
        reftarget=module if private else f"{module}.{member}",
        refexplicit=True,
        refwarn=True,
        refdoc=document,
    )
    return nodes.paragraph("", "", nodes.Text(label), link, classes=["listing-source"])


def listings(app: Sphinx) -> dict[str, list[str]]:
    """Return the documents that show each function or class of the package."""
    found: dict[str, list[str]] = {}
    for document in sorted(app.env.found_docs):
        path = Path(app.srcdir) / f"{document}.ipynb"
        if not path.exists():
            continue
        for _, place, _ in portable.shown(nbformat.read(path, as_version=4).cells):
            thing = portable.source_of(place)
            name = f"{thing.__module__}.{thing.__qualname__}"
            if document not in found.setdefault(name, []):
                found[name].append(document)
    return found


class ShownIn:
    """Says under a function's documentation which chapters show its code."""

    def __init__(self) -> None:
        self.documents: dict[str, list[str]] | None = None

    def add(
        self, app: Sphinx, _what: str, name: str, _object: Any, _options: Any, lines: list[str]
    ) -> None:
        """Add the line to a docstring."""
        if self.documents is None:
            self.documents = listings(app)
        if name in self.documents:
            chapters = ", ".join(f":doc:`/{document}`" for document in self.documents[name])
            lines += ["", f"*Shown in:* {chapters}.", ""]


def setup(app: Sphinx) -> dict[str, object]:
    previews, shown = Previews(), ShownIn()
    app.add_directive("literalinclude", Listing, override=True)
    app.add_directive("plain-listing", PlainListing)
    app.connect("doctree-read", number_equations)
    app.connect("doctree-read", name_empty_headers)
    app.connect("doctree-read", keep_percent)
    app.connect("env-get-updated", number_by_chapter, priority=900)
    app.connect("autodoc-process-docstring", shown.add, priority=700)
    app.connect("doctree-read", keep_head)
    app.connect("doctree-read", letters_of_glossary)
    app.connect("doctree-resolved", fold_deeper)
    app.connect("html-page-context", previews.add, priority=400)
    app.connect("html-page-context", plain_lists, priority=401)
    app.connect("html-page-context", keep_together, priority=402)
    app.connect("html-page-context", name_folds, priority=403)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
