"""Front matter, index, search, and examples of what templates make of the package, in Chromium."""

from tests.browser import visits
from tests.browser.every_page import check_page

API, SOURCES = visits.examples(visits.pages("api")), visits.examples(visits.pages("sources"))


@visits.each_page([*visits.pages("others"), *API, *SOURCES])
def test_a_page_is_whole_light_and_accessible(book, chromium, path):
    check_page(chromium, path)
