"""What holds for every page, in one visit: from its file, in both themes, and on a phone.

Opened from a file, a page has no more than what lies beside it: a module that is imported, a file
that is fetched, an address from the root are errors, which a server would hide.  What only a server
shows is looked at for a few pages, in test_representative_pages.py.
"""

from pathlib import Path

from playwright.sync_api import Browser

from tests.browser import visits

MOST_BYTES = {True: 1_000_000, False: 1_500_000}
"""Unpacked, of all that a chapter, and another page, loads before its reader moves."""
MOST_REQUESTS = 25


def faults(chromium: Browser, address: str, root: str, *, axe: bool = True) -> list[str]:
    """Return what is wrong with a page below a root; axe is most of the time."""
    with visits.opened(chromium, address) as (page, visit):
        found = [f"asks {address}" for address in visit.outside(root)]
        files = visit.files(root)
        most = MOST_BYTES["/chapters/" in address]
        if visit.weight > most:
            found.append(f"weighs {visit.weight:,} bytes, more than {most:,}")
        if not 1 < len(files) <= MOST_REQUESTS:
            found.append(f"{len(files)} requests, not 2 to {MOST_REQUESTS}")
        found += visit.errors
        for look in (visits.BOXES, visits.CUT_FORMULAS):
            found += page.evaluate(look)
        found += visits.look_on_a_phone(page)
        page.set_viewport_size(visits.WIDE)
        visits.show_theme(page, "dark")
        found += page.evaluate(visits.WHITE)
        # Last: it takes from the page what repeats.
        found += visits.axe_in_both_themes(page) if axe else []
    return found


def check_page(chromium: Browser, path: Path, *, axe: bool = True) -> None:
    assert faults(chromium, path.as_uri(), visits.HTML.as_uri(), axe=axe) == []
