"""Every page of exercises, in Chromium."""

from tests.browser import visits
from tests.browser.every_page import check_page


@visits.each_page(visits.pages("exercises"))
def test_a_page_is_whole_light_and_accessible(book, chromium, path):
    check_page(chromium, path)
