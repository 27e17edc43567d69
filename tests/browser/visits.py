"""Visits to built pages in Chromium: what they load, what they say, what axe finds."""

import functools
import importlib.metadata
import itertools
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tools.build import build_book

HTML = build_book.BUILD / "html"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
"""All of RULES that a theme can change."""
AXE = f"axe-playwright-python {importlib.metadata.version('axe-playwright-python')}"
CONTEXT = {"include": [["[data-axe-colour]"]]}
MARK_COLOURS = """() => {
  const seen = new Map(), behind = new Map([[null, ""]]);
  const under = (one) => {
    if (!behind.has(one)) {
      const style = getComputedStyle(one), clear = "rgba(0, 0, 0, 0)";
      const parts = [under(one.parentElement)];
      if (style.backgroundColor !== clear) parts.push(style.backgroundColor);
      if (style.backgroundImage !== "none") parts.push(style.backgroundImage);
      if (style.opacity !== "1") parts.push(style.opacity);
      behind.set(one, parts.join(" "));
    }
    return behind.get(one);
  };
  for (const one of document.querySelectorAll("body *:not(mjx-container *, script, style)")) {
    const text = [...one.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text && !one.matches("input, select, textarea") || !one.checkVisibility()) continue;
    const style = getComputedStyle(one), link = one.closest("a"), line = link?.parentElement;
    const look = [under(one), style.color, style.fontSize, style.fontWeight];
    if (line) look.push(getComputedStyle(link).textDecorationLine, getComputedStyle(line).color);
    const count = seen.get(look.join()) ?? 0;
    seen.set(look.join(), count + 1);
    if (count < 3) (link ?? one).setAttribute("data-axe-colour", "");
  }
}"""
"""Marks three texts of each look: its colour, size and weight, what lies under it, and of a link
what tells it from its line."""
THIN = """() => {
  const blocks = [...document.querySelectorAll("div.highlight pre")].slice(1);
  for (const word of blocks.flatMap((one) => [...one.querySelectorAll("span")])) {
    if (!word.matches("[data-axe-colour], .course-line")) word.replaceWith(...word.childNodes);
  }
  const seen = new Map();
  for (const kind of ["mjx-container[display=true]", "mjx-container:not([display=true])"]) {
    for (const one of [...document.querySelectorAll(kind)].slice(3)) one.replaceWith("x");
  }
  for (const one of document.querySelectorAll("dl.py, .genindextable li, nav li")) {
    const parts = [one, ...one.querySelectorAll("*")];
    const kinds = new Set(parts.map((part) => `${part.tagName} ${part.className}`));
    if ([...kinds].every((kind) => seen.get(kind) > 2)) one.remove();
    for (const kind of kinds) seen.set(kind, (seen.get(kind) ?? 0) + 1);
  }
}"""
"""What a page has a thousand times stays three times, and one block of its code stays coloured."""
BOXES = """() => [...document.querySelectorAll("body *:not(mjx-container *, pre *)")].flatMap(
  (one) => ["::before", "::after"]
    .filter((part) => /[\\ue000-\\uf8ff]/.test(getComputedStyle(one, part).content))
    .map((part) => `an empty box: ${part} of ${one.outerHTML.slice(0, 100)}`)).slice(0, 5)"""
"""Finds what a style puts before or after an element in a character of no font.

Icon fonts take theirs from the private range, and the book has no such font; MathJax has its own.
"""
WHITE = """() => [...document.querySelectorAll("div.cell_output img:not(.of-dark)")]
  .filter((one) => one.checkVisibility())
  .map((one) => `white in the dark theme: ${one.alt.slice(0, 60)}`)"""
CUT = """() => [...document.querySelectorAll("article pre")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1
    && getComputedStyle(one).backgroundImage === "none")
  .map((one) => `cut off on a phone: ${one.textContent.slice(0, 60)}`).slice(0, 5)"""
CUT_FORMULAS = """() => [...document.querySelectorAll("article mjx-container[display=true]")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
  .map((one) => `a formula is cut off: ${one.parentElement.textContent.trim().slice(0, 60)}`)"""
LATE = """(most) => {
  if (!document.querySelector(".chapter-question")) return [];
  const first = [...document.querySelectorAll("article :is(svg, img, .lc-host)")]
    .filter((one) => !one.closest(".drawing") && one.checkVisibility())
    .map((one) => one.getBoundingClientRect())
    .find(({ width, height }) => width > 200 && height > 60);
  const down = first ? (first.top + first.height / 2 + scrollY) / innerHeight : Infinity;
  return down <= most ? [] : [
    `the first picture of the text is ${down.toFixed(1)} screens down, not within ${most}`];
}"""
"""Finds a chapter whose text has its first figure or widget late; its head does not count."""
WIDE = {"width": 1200, "height": 900}
THEMES = ("dark", "light")


class Quiet(SimpleHTTPRequestHandler):
    """Serves the book without a line for every request."""

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@dataclass
class Visit:
    """What one page did when it was opened."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    weight: int = 0
    """The bytes of all files that it had loaded before anybody moved on it."""

    def outside(self, root: str) -> list[str]:
        """Return what was asked of anybody but the book itself."""
        own = (root, "data:", f"blob:{root}", "blob:null")
        return [address for address in self.requests if not address.startswith(own)]

    def files(self, root: str) -> list[Path]:
        paths = [a.removeprefix(root) for a in self.requests if a.startswith(root)]
        return [HTML / unquote(urlsplit(path).path).lstrip("/") for path in paths]


def listen(page: Page) -> Visit:
    visit = Visit()
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on("requestfailed", lambda request: visit.errors.append(f"failed: {request.url}"))
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("console", lambda said: visit.errors.extend([said.text] * (said.type == "error")))
    return visit


def settle(page: Page) -> None:
    """Come near each widget in sight, until it is alive, and go back to where the page began."""
    start, hosts = page.evaluate("scrollY"), page.locator(".lc-host:visible")
    for place in range(hosts.count()):
        hosts.nth(place).scroll_into_view_if_needed()
        hosts.nth(place).locator(".lc").wait_for(state="attached")
    page.evaluate("y => scrollTo({ top: y, behavior: 'instant' })", start)


@contextmanager
def opened(browser: Browser, address: str, **options: object) -> Iterator[tuple[Page, Visit]]:
    """Open a page in a fresh context with the network off but for loopback."""
    context = browser.new_context(viewport=WIDE, **options)
    page = context.new_page()
    visit = listen(page)
    page.goto(address)
    root = next(each for each in (HTML.as_uri(), address) if address.startswith(each))
    visit.weight = sum(path.stat().st_size for path in visit.files(root) if path.is_file())
    settle(page)
    yield page, visit
    context.close()


def violations(page: Page, context: dict | None = None, **options: object) -> list[str]:
    asked = {"runOnly": RULES, "resultTypes": ["violations"], **options}
    found = Axe().run(page, context=context, options=asked).response["violations"]
    return [
        f"{rule['id']} ({len(rule['nodes'])}): {node['html'][:160]} | {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"][:3]
    ]


def axe_in_both_themes(page: Page) -> list[str]:
    """Return axe's findings in the light and in the dark theme.

    Elements take axe its time, most of them words of code.  So three texts are marked for each
    look, other code loses its colours, and of a template's entries some are left.  Then axe looks
    at the page without colours once, and at the colours of the marked texts in each theme.
    """
    page.add_style_tag(content="* { transition: none !important; }")  # a colour half-way is none
    for theme in THEMES:
        show_theme(page, theme)
        page.evaluate(MARK_COLOURS)
    page.evaluate(THIN)
    without = {name: {"enabled": False} for name in COLOUR_RULES}
    found = [f"page: {line}" for line in violations(page, rules=without)]
    for theme in THEMES:
        show_theme(page, theme)
        found += [f"{theme}: {line}" for line in violations(page, CONTEXT, runOnly=COLOUR_RULES)]
    return found


def show_theme(page: Page, theme: str) -> None:
    page.evaluate("t => document.documentElement.dataset.theme = t", theme)


def look_on_a_phone(page: Page) -> list[str]:
    """Return whether a page, as narrow as a phone, goes sideways or cuts off code.

    Printed text may scroll inside itself if a shadow says so.
    """
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_timeout(100)
    width = page.evaluate("document.documentElement.scrollWidth")
    found = [f"{width} pixels wide on a phone of 360"] if width > 360 else []
    return found + page.evaluate(CUT)


Part = Literal["chapters", "exercises", "others", "api", "sources"]


def pages(part: Part) -> list[Path]:
    """Return the pages of a part of the book; "others" are the front matter, index and search.

    Those that only lead to another are left out: the index at the root, and old addresses.
    """
    parts = {"chapters": [], "exercises": [], "others": [], "api": [], "sources": []}
    for path in sorted(HTML.rglob("*.html")):
        folders = path.relative_to(HTML).parts[:-1]
        if "_static" not in folders and not _leads_on(path):
            own = [name for name in ("chapters", "exercises", "api") if name in folders]
            parts["sources" if "_modules" in folders else own[0] if own else "others"].append(path)
    return parts[part]


def _leads_on(path: Path) -> bool:
    return path.stat().st_size < 1_000 and 'http-equiv="refresh"' in path.read_text("utf8").lower()


_TAG = re.compile(r"<(\w+)([^>]*)>")
_FORMULA = re.compile(r"(<mjx-container[^>]*>).*?(?=</mjx-container>)", re.DOTALL)
_HEADINGS = frozenset(f"h{level}" for level in range(1, 7))
_LOOKS = re.compile(r'(?:class|style|role)="[^"]*"')


@functools.cache
def kinds(path: Path) -> frozenset[tuple]:
    """Return the kinds of elements on a page, by what a style can tell, and its steps of headings.

    Two words of code of one colour are one kind; so are two tables, and two formulas.
    """
    tags = _TAG.findall(_FORMULA.sub(r"\1", path.read_text(encoding="utf8")))
    levels = [tag for tag, _ in tags if tag in _HEADINGS]
    found = {(tag, *_LOOKS.findall(attributes)) for tag, attributes in set(tags)}
    return frozenset(found | set(itertools.pairwise(levels)))


def examples(paths: list[Path]) -> list[Path]:
    """Return pages that stand for all that one template made.

    The longest, the shortest, the one with the widest line and the one with most characters beyond
    ASCII; and then, one by one, what has most kinds of elements that none before it has.
    """
    text = functools.cache(lambda path: path.read_text(encoding="utf8"))
    rules = (lambda path: len(text(path)), lambda path: -len(text(path)))
    rules += (lambda path: max(map(len, re.sub("<[^>]*>", "", text(path)).split("\n"))),)
    rules += (lambda path: len(text(path)) - len(text(path).encode("ascii", "ignore")),)
    chosen = {max(paths, key=rule): None for rule in rules} if paths else {}
    unseen = set().union(*map(kinds, paths)).difference(*map(kinds, chosen))
    while unseen:
        most = max(paths, key=lambda path: len(kinds(path) & unseen))
        chosen[most] = None
        unseen -= kinds(most)
    return list(chosen)


@functools.cache
def for_axe() -> frozenset[Path]:
    """Return the examples at which axe looks: what one part of the book shows it sees there."""
    parts = ("chapters", "exercises", "others", "api", "sources")
    return frozenset(examples([path for part in parts for path in pages(part)]))


def each_page(paths: list[Path], rest: Iterable[Path] = ()) -> pytest.MarkDecorator:
    """Make a test of every page; without a book, one that fails for want of it.

    The rest are visited when they changed, and in `make soak`.
    """
    shared = [path for path in (HTML / "_static").rglob("*") if path.suffix in {".css", ".js"}]
    shared = [path.relative_to(build_book.ROOT).as_posix() for path in sorted(shared)]
    pages = [
        pytest.param(
            path,
            id=path.relative_to(HTML).as_posix(),
            marks=[
                pytest.mark.depends_on(path.relative_to(build_book.ROOT).as_posix(), *shared),
                *([pytest.mark.soak] if path not in paths else []),
            ],
        )
        for path in [*paths, *(path for path in rest if path not in paths)]
    ]
    return pytest.mark.parametrize("path", pages or [pytest.param(HTML, id="no book")])
