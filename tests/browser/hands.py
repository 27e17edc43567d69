"""What the tests of widgets do as a reader does: typing, choosing, pressing, dragging."""

from collections.abc import Mapping, Sequence
from typing import Any

from playwright.sync_api import Locator, Page

from tests.browser.kit import holds, noted, pictured, said, value


def has_facts(
    page: Page, *facts: str, picture: Sequence[str] = (), values: Mapping[str, str] | None = None
) -> None:
    """Assert that the sentence and the first picture have these facts, and fields these values."""
    if facts:
        holds(said(page), *facts)
    if picture:
        holds(pictured(page), *picture)
    for name, right in (values or {}).items():
        assert (found := value(page, name)) == right, f"{name} holds {found}, not {right}"


def enter(
    page: Page,
    name: str,
    text: str,
    *facts: str,
    used: str | None = None,
    note: Sequence[str] = (),
    **shown: Any,
) -> None:
    """Type a number into its field, and leave the field.

    Args:
        facts: that the sentence then has; what else is `shown`, as in `has_facts`.
        used: what the field then holds.
        note: what the widget says of a number that it did not take.
    """
    page.get_by_label(f"{name}, number", exact=True).fill(text)
    page.keyboard.press("Tab")
    values = {} if used is None else {name: used}
    has_facts(page, *facts, **({"values": values} | shown))
    if note:
        holds(noted(page), *note)


def choose(page: Page, name: str, option: str, *facts: str, **shown: Any) -> None:
    page.get_by_label(name, exact=True).select_option(option)
    has_facts(page, *facts, **shown)


def press(page: Page, name: str, *facts: str, times: int = 1, **shown: Any) -> None:
    for _ in range(times):
        page.get_by_role("button", name=name, exact=True).click()
    has_facts(page, *facts, **shown)


def keys(page: Page, control: str, pressed: str, *facts: str, **shown: Any) -> None:
    page.get_by_label(control, exact=True).focus()
    for key in pressed.split():
        page.keyboard.press(key)
    has_facts(page, *facts, **shown)


def by_key(page: Page, name: str, *facts: str, **shown: Any) -> None:
    page.get_by_role("button", name=name, exact=True).press("Enter")
    has_facts(page, *facts, **shown)


def to_the_end(page: Page, *facts: str) -> None:
    """Let a player begin where motion is not wanted: it goes to its end at once."""
    page.emulate_media(reduced_motion="reduce")
    press(page, "Reset")
    press(page, "To the end", *facts)


def drag(page: Page, at: Locator, *way: tuple[float, float]) -> None:
    """Drag from a place of an element, in pixels from its left and top, to other such places."""
    box = at.bounding_box()
    for place, (right, down) in enumerate(way):
        page.mouse.move(box["x"] + right, box["y"] + down, steps=3)
        if place == 0:
            page.mouse.down()
    page.mouse.up()


def middle(at: Locator) -> tuple[float, float]:
    box = at.bounding_box()
    return box["width"] / 2, box["height"] / 2


def stop_time(page: Page) -> None:
    """From here on the page's time goes on by `later` only: what moves can be looked at."""
    page.wait_for_timeout(200)  # what follows a redraw at once is not moved
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))


def later(page: Page, milliseconds: float) -> None:
    page.clock.run_for(milliseconds)


def place(page: Page, key: str) -> list[float]:
    """Return where the middle of what has this key in a picture is, in pixels of the page."""
    box = page.locator(f"[data-key='{key}']").first.bounding_box()
    return [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
