"""Headless Chromium for the tests of widgets and pages.

Debian's chromium-headless-shell, or any Chromium, by Playwright.  `make test` needs one;
`make test-fast` leaves this folder out.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

from llmcourse_classroom.widget import Widget, module
from tests.browser.engine import Engine
from tests.browser.hands import has_facts
from tools.build import build_book
from tools.machine import chromium as tools_chromium

TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
PLAIN_PAGE = """<!doctype html><html lang="en" data-theme="{theme}"><meta charset="utf8">
<meta name="viewport" content="width=device-width"><title>Widgets</title>
<style>html[data-theme="dark"] {{ background: #14181e; color: #ced6dd;
--pst-color-text-base: #ced6dd; --pst-color-text-muted: #9ca4af; --pst-color-background: #14181e;
--pst-color-surface: #222832; --pst-color-border: #48566b; }}</style>
<main><h1>Widgets</h1>{body}</main></html>"""
UNFOLD = "document.querySelectorAll('.lc-more').forEach((more) => { more.open = true; })"
STILL = "<style>html .lc { --lc-move: 0ms; }</style>"
"""What a picture shows is read at once: nothing is on its way."""

CALL = """async ([text, name, given]) => {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const shipped = await import(address);
  URL.revokeObjectURL(address);
  return given.map((each) => shipped[name](...each));
}"""


def started(launch: Callable[[], Browser]) -> Browser:
    """Launch the browser; one that does not start is tried once more, and a warning says so."""
    try:
        return launch()
    except Error as error:
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # elsewhere in the tests, a warning is an error
            warnings.warn(f"Chromium did not start and is tried once more: {error}", stacklevel=2)
        return launch()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    found = {"executable_path": tools_chromium.path(), "args": tools_chromium.FLAGS}
    with sync_playwright() as playwright:
        browser = started(lambda: playwright.chromium.launch(**found))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def book() -> None:
    if not build_book.is_built():
        pytest.fail("the pages in _build are missing or older than their sources: run make book")


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """An empty page; an error of its scripts fails the test."""
    made = chromium.new_page(viewport={"width": 760, "height": 900})
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    yield made
    made.close()
    assert errors == []


@pytest.fixture(scope="session")
def arithmetic(chromium: Browser) -> Iterator[Callable[..., list[Any]]]:
    """Calls `arithmetic(WidgetClass, "function", [arguments, ...])` in the shipped module.

    One call for a whole grid of inputs: the result is the list of what the function returned.
    Not a number and infinities arrive as None.  All calls share a page, and none a module.
    """
    page = chromium.new_page()

    def call(widget: type[Widget], name: str, given: list[list[Any]]) -> list[Any]:
        return page.evaluate(CALL, [module(widget.script), name, given])

    yield call
    page.close()


@pytest.fixture
def engine(page: Page) -> Engine:
    return Engine(page)


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Callable[..., Page]:
    """Opens widgets in a page of their own, from a file, as a reader without a kernel sees them.

    Settings that are folded away are unfolded, and nothing moves, unless it is shown `as_is`.
    Its sentence then has the facts that it `says`.
    """

    def opened(
        *widgets: Widget,
        theme: str = "light",
        width: int = 760,
        as_is: bool = False,
        says: Sequence[str] = (),
    ) -> Page:
        path = tmp_path / "page.html"
        body = "".join(widget.page() for widget in widgets) + ("" if as_is else STILL)
        path.write_text(PLAIN_PAGE.format(theme=theme, body=body), encoding="utf8")
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(path.as_uri())
        for place in range(len(widgets)):
            page.locator(".lc-host .lc").nth(place).wait_for()
        if not as_is:
            page.evaluate(UNFOLD)
        page.evaluate(TWO_FRAMES)  # a picture is drawn anew when its width is known
        has_facts(page, *says)
        return page

    return opened
