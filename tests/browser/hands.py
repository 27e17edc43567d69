"""What the tests of widgets do as a reader does: typing, choosing, pressing, dragging."""

from collections.abc import Sequence

from playwright.sync_api import Locator, Page

from tests.browser.kit import holds, noted, said, value


def has_facts(page: Page, *facts: str) -> None:
    """Assert that the sentence, if there are facts at all, has them."""
    if facts:
        holds(said(page), *facts)


def enter(
    page: Page,
    name: str,
    text: str,
    *facts: str,
    used: str | None = None,
    note: Sequence[str] = (),
) -> None:
    """Type a number into its field, and leave the field.

    Args:
        facts: that the sentence then has.
        used: what the field then holds.
        note: what the widget says of a number that it did not take.
    """
    page.get_by_label(f"{name}, number", exact=True).fill(text)
    page.keyboard.press("Tab")
    has_facts(page, *facts)
    if used is not None:
        assert (found := value(page, name)) == used, f"{name} holds {found}, not {used}"
    if note:
        holds(noted(page), *note)


def choose(page: Page, name: str, option: str, *facts: str) -> None:
    """Choose one of a list of options; the sentence then has these facts."""
    page.get_by_label(name, exact=True).select_option(option)
    has_facts(page, *facts)


def press(page: Page, name: str, *facts: str, times: int = 1) -> None:
    """Press a button; the sentence then has these facts."""
    for _ in range(times):
        page.get_by_role("button", name=name, exact=True).click()
    has_facts(page, *facts)


def keys(page: Page, control: str, pressed: str, *facts: str) -> None:
    """Go to a slider, box or list, and press keys; the sentence then has these facts."""
    page.get_by_label(control, exact=True).focus()
    for key in pressed.split():
        page.keyboard.press(key)
    has_facts(page, *facts)


def by_key(page: Page, name: str, *facts: str) -> None:
    """Press a button with the Enter key; the sentence then has these facts."""
    page.get_by_role("button", name=name, exact=True).press("Enter")
    has_facts(page, *facts)


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
    """Return the middle of an element, in pixels from its left and top."""
    box = at.bounding_box()
    return box["width"] / 2, box["height"] / 2
