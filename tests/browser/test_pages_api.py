"""Every page about the package's interface in Chromium."""

from tests.browser import visits
from tests.browser.every_page import check_pages


def test_pages_are_whole_light_and_accessible(chromium):
    check_pages(chromium, visits.pages("api"))
