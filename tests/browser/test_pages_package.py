"""Every page about the package in Chromium: the API and the sources."""

from tests.browser import visits
from tests.browser.every_page import check_pages


def test_pages_are_whole_light_and_accessible(chromium):
    check_pages(chromium, visits.pages(package=True))
