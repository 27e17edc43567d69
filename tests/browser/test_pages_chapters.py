"""Every chapter, in Chromium.

Axe looks where a kind of element is new, and in `make soak` everywhere.
"""

from tests.browser import visits
from tests.browser.every_page import check_page

PAGES = visits.pages("chapters")
EXAMPLES = visits.examples(PAGES)


@visits.each_page(PAGES)
def test_a_page_is_whole_light_and_accessible(book, chromium, path, soaking):
    check_page(chromium, path, axe=soaking or path in EXAMPLES)
