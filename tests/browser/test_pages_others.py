"""Front matter, index, search, and examples of what templates make of the package, in Chromium.

Axe as for chapters.
"""

from tests.browser import visits
from tests.browser.every_page import check_page

MADE = visits.for_axe() & {*visits.pages("api"), *visits.pages("sources")}


@visits.each_page([*visits.pages("others"), *sorted(MADE)])
def test_a_page_is_whole_light_and_accessible(book, chromium, path, soaking):
    check_page(chromium, path, axe=soaking or path in visits.for_axe())
