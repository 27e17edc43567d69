"""What holds for every page, in one visit over http and one from a file."""

import json

import pytest

from tests.browser import visits
from tools import build_book

MOST_BYTES = {True: 800_000, False: 400_000}  # with mathematics, without
MOST_REQUESTS = 25


def check_pages(chromium, paths):
    """Open every page; fail with all that is wrong, by page."""
    if not build_book.is_current():
        pytest.fail("the pages in _build are missing or older than their sources: run make book")
    assert paths
    wrong = {}
    with visits.served(visits.HTML) as root:
        for path in paths:
            found = [*over_http(chromium, root, path), *from_file(chromium, path)]
            if found:
                wrong[path.relative_to(visits.HTML).as_posix()] = found
    assert wrong == {}, json.dumps(wrong, indent=1)


def over_http(chromium, root, path):
    """Return what is wrong with a page that is served."""
    address = f"{root}/{path.relative_to(visits.HTML).as_posix()}"
    with visits.opened(chromium, address) as (page, visit):
        found = [f"asks {address}" for address in visit.outside(root)]
        weight, most = visit.weight(root), MOST_BYTES[visit.has_mathematics]
        if weight > most:
            found.append(f"weighs {weight:,} bytes, more than {most:,}")
        if len(visit.files(root)) > MOST_REQUESTS:
            found.append(f"{len(visit.files(root))} requests, more than {MOST_REQUESTS}")
        found += visit.errors
        found += visits.axe_in_both_themes(page)
    return found


def from_file(chromium, path):
    """Return what is wrong with a page that is opened from its file."""
    with visits.opened(chromium, path.as_uri()) as (_, visit):
        outside = [f"asks {address}" for address in visit.outside("file:///")]
        return [*outside, *visit.errors]
