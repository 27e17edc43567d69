"""Pages of exercises, in Chromium: examples of them, in `make soak` all; axe as for chapters."""

from tests.browser import visits
from tests.browser.every_page import check_page

PAGES = visits.pages("exercises")


@visits.each_page(visits.examples(PAGES), rest=PAGES)
def test_a_page_is_whole_light_and_accessible(book, chromium, path, soaking):
    check_page(chromium, path, axe=soaking or path in visits.for_axe())
