"""What a link leads to, shown where the link stands."""

import re

import pytest

from tests.browser import visits

KINDS = {
    "a term": ("16_cross_entropy", "a.course-term", r".{10}"),
    "a chapter": (
        "16_cross_entropy",
        "article a[href='01_whole_run.html']",
        r"First lap, \d+ minutes",
    ),
    "a citation": ("32_batch_size", ".bibtex-citation a", r"[A-Z].+\. .+20\d\d"),
    "an equation": ("32_batch_size", "article p a[href='#equation-eq-32-2']", r"32\.2"),
    "a figure": ("32_batch_size", "article p a[href='#fig-32-4']", r"Figure 32\.4"),
}


def address(name):
    return (visits.HTML / "chapters" / f"{name}.html").as_uri()


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_shows_what_it_leads_to_on_hover_and_focus(book, chromium, kind):
    name, where, said = KINDS[kind]
    with visits.opened(chromium, address(name)) as (page, visit):
        link, bubble = page.locator(where).first, page.locator("#course-preview")
        number = visit.requests.copy()
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
        assert re.search(said, shown), shown
        assert page.evaluate("document.querySelectorAll('[id]').length") == page.evaluate(
            "new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size"
        ), "a copy has no id of its own"
        if kind == "an equation":
            assert bubble.locator("mjx-container").is_visible()
        if kind == "a figure":
            assert (
                bubble.locator("img").evaluate("one => one.naturalWidth && one.offsetHeight") > 40
            )
        box = bubble.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1200
        assert set(visit.requests) == set(number), "all is in the page"
        assert visits.violations(page) == []


def test_the_first_touch_shows_and_the_second_leads_on(book, chromium):
    phone = {"has_touch": True, "is_mobile": True}
    with visits.opened(chromium, address("32_batch_size"), **phone) as (page, _):
        page.set_viewport_size({"width": 390, "height": 740})
        link, bubble = page.locator("a.course-term").first, page.locator("#course-preview")
        link.tap()
        assert bubble.is_visible()
        assert page.url == address("32_batch_size")
        page.locator("h1").tap()
        assert bubble.is_hidden()
        link.tap()
        link.tap()
        page.wait_for_url("**/glossary.html#term-*")
        page.go_back()
        page.locator("article a[href='01_whole_run.html']").first.tap()
        page.wait_for_url("**/01_whole_run.html")
