"""Chapters, in Chromium: examples of them, each when its page changed, in `make soak` all.

Axe looks where a kind of element is new in the book (`visits.for_axe`), in `make soak` everywhere.
"""

from tests.browser import visits
from tests.browser.every_page import check_page

PAGES = visits.pages("chapters")


@visits.each_page(visits.examples(PAGES), rest=PAGES)
def test_a_page_is_whole_light_and_accessible(book, chromium, path, soaking):
    check_page(chromium, path, axe=soaking or path in visits.for_axe())


@visits.each_page(PAGES)
def test_the_first_picture_of_the_text_comes_early(book, chromium, path):
    page = chromium.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    found = []
    for width, height, screens in ((1440, 900, 2), (390, 844, 3)):
        page.set_viewport_size({"width": width, "height": height})
        found += page.evaluate(visits.LATE, screens)
    page.close()
    assert found == []
