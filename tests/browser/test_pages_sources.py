"""Every page that shows the package's sources in Chromium."""

from tests.browser import visits
from tests.browser.every_page import check_pages


def test_pages_are_whole_light_and_accessible(chromium):
    check_pages(chromium, visits.pages("sources"))
