"""What a link leads to, shown where the link stands."""

import re

from tests.browser import visits

KINDS = {
    "a.course-term": r".{10}",
    "a[href='03_downhill.html']": r"03 Walking downhillWhy is there.+First lap, \d+ minutes",
    ".bibtex-citation a": r"[A-Z].+\. .+20\d\d",
    "p a[href='#equation-eq-32-2']": r"32\.2",
    "p a[href='#fig-32-5']": r"Figure 32\.5",
}
"""A term, a chapter, a citation, an equation, a figure: the link, and what its preview says."""
PAGE = visits.HTML / "chapters" / "32_batch_size.html"
IDS = "[...document.querySelectorAll('[id]')].map((one) => one.id)"


def test_a_link_shows_what_it_leads_to_on_hover_and_focus(book, chromium):
    with visits.opened(chromium, PAGE.as_uri()) as (page, visit):
        bubble, ids, requests = (
            page.locator("#course-preview"),
            page.evaluate(IDS),
            visit.requests[:],
        )
        for where, said in KINDS.items():
            link = page.locator(f"article {where}").first
            link.hover()
            assert bubble.is_visible()
            bubble.hover()
            page.wait_for_timeout(400)
            assert bubble.is_visible(), "it stays while the pointer is on it"
            page.keyboard.press("Escape")
            assert bubble.is_hidden()
            link.focus()
            assert bubble.is_visible()
            assert link.get_attribute("aria-describedby") == "course-preview"
            assert link.get_attribute("title") is None
            shown = bubble.evaluate("one => one.textContent")
            assert re.search(said, shown, re.DOTALL), shown
            assert page.evaluate(IDS) == ids, "a copy has no id of its own"
            box, place = bubble.bounding_box(), link.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 1200
            assert min(abs(box["y"] - place["y"]), abs(box["y"] + box["height"] - place["y"])) < 60
            if "equation" in where:
                assert bubble.locator("mjx-container").is_visible()
            if "fig" in where:
                figure = bubble.locator("img.of-light")
                assert figure.evaluate("one => one.naturalWidth && one.offsetHeight")
                assert bubble.locator("img.of-dark").is_hidden()
        later = visit.requests[len(requests) :]
        assert all("/_images/" in each for each in later), "all but figures is in the page"
        assert visits.violations(page, {"include": [["#course-preview"]]}) == []


def test_the_first_touch_shows_and_the_second_leads_on(book, chromium):
    phone = {"has_touch": True, "is_mobile": True}
    with visits.opened(chromium, PAGE.as_uri(), **phone) as (page, _):
        page.set_viewport_size({"width": 390, "height": 740})
        link, bubble = page.locator("a.course-term").first, page.locator("#course-preview")
        link.tap()
        page.wait_for_timeout(400)
        assert bubble.is_visible(), "it stays when the finger is lifted"
        assert page.url == PAGE.as_uri()
        page.get_by_role("heading", level=1).tap()
        assert bubble.is_hidden()
        link.tap()
        link.tap()
        page.wait_for_url("**/glossary.html#term-*")
        page.go_back()
        page.locator("article a[href='03_downhill.html']").first.tap()
        page.wait_for_url("**/03_downhill.html")
