"""Chapters, in Chromium: examples of them, each when its page changed, in `make soak` all.

Axe looks where a kind of element is new in the book (`visits.for_axe`), in `make soak` everywhere.
"""

from tests.browser import visits
from tests.browser.every_page import check_page

PAGES = visits.pages("chapters")


@visits.each_page(visits.examples(PAGES), rest=PAGES)
def test_a_page_is_whole_light_and_accessible(book, chromium, path, soaking):
    check_page(chromium, path, axe=soaking or path in visits.for_axe())
