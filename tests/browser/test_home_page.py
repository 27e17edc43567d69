"""The home page: a stranger trains a model on it, and finds every chapter from it."""

import re

import pytest
from playwright.sync_api import expect

from llmcourse_classroom.widgets.course import curriculum
from tests.browser import visits

HOME = visits.HTML / "book" / "intro.html"
SHIFTS = """window.shift = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.shift += each.value;
}).observe({ type: "layout-shift", buffered: true });"""
IN_TURN = sorted(curriculum(), key=lambda chapter: chapter.get("turn", 0))
FIRSTS = ("05", "10", "16", "18", "22", "25", "30", "01")
"""First chapters of the seven phases, and the one to start with."""

pytestmark = pytest.mark.usefixtures("book")


def file_of(chapter):
    return f"chapters/{chapter['number']}_{chapter['slug']}.html"


def test_the_hero_has_trained_three_steps_after_a_click(chromium):
    with visits.opened(chromium, HOME.as_uri()) as (page, visit):
        assert len(page.workers) == 0
        page.get_by_role("button", name="Train", exact=True).click()
        said = re.compile(r"Step ([3-9]|\d\d+) of 400: loss .* A model of 135,488 weights ")
        expect(page.get_by_role("status")).to_have_text(said, timeout=20_000)
        page.get_by_role("button", name="Pause", exact=True).click()
        caption = page.locator("p", has_text=re.compile(r"What it writes after step \d"))
        expect(caption).to_be_visible()
        assert visit.errors == []


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_sentence_hero_and_start_are_above_the_fold_and_nothing_moves(chromium, width, height):
    """Mutants: nothing in the widget's place until it is there; settings before the picture."""
    context = chromium.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.add_init_script(SHIFTS)
    page.goto(HOME.as_uri())
    picture = page.locator(".home-run .lc-stage svg").nth(1)
    picture.wait_for()
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(300)
    seen = [page.locator("article h1"), page.locator(".home-lead"), page.locator("a.home-start")]
    seen += [page.get_by_role("button", name="Train", exact=True), picture]
    seen += [page.locator(".home-run .lr-words")]
    for each in seen:
        box = each.bounding_box()
        assert 0 <= box["y"] < box["y"] + box["height"] <= height, each
    train = seen[3].bounding_box()
    assert train["height"] >= 44
    assert train["width"] >= 120
    assert page.evaluate("window.shift") <= 0.1
    context.close()


def test_every_chapter_is_a_stop_in_the_order_of_the_laps_and_every_phase_a_card(chromium):
    with visits.opened(chromium, HOME.as_uri()) as (page, _):
        stops = page.locator(".home-stop a").evaluate_all("all => all.map((a) => a.href)")
        cards = page.locator(".home-card a").evaluate_all("all => all.map((a) => a.href)")
        band = page.locator(".home-band a").evaluate_all("all => all.map((a) => a.href)")
        signs = page.locator(".home-sign").all_text_contents()
    assert signs == [chapter["number"] for chapter in IN_TURN]
    assert [a.split("/html/")[1] for a in stops] == [file_of(chapter) for chapter in IN_TURN]
    known = {chapter["number"]: file_of(chapter) for chapter in IN_TURN}
    assert [a.split("/html/")[1] for a in cards] == [known[number] for number in FIRSTS]
    pages = ("how_to_read", "exercises", "instructors")
    assert [a.split("/html/")[1] for a in band] == [f"book/{name}.html" for name in pages]


def test_what_a_reader_has_marked_in_chapter_00_is_marked_on_the_map(chromium):
    """Also in a tab that was open before."""
    with visits.opened(chromium, HOME.as_uri()) as (page, visit):
        at = page.locator('.home-stop:has(.home-sign:text-is("05"))')
        expect(at).to_have_attribute("data-state", "not begun")
        other = page.context.new_page()
        other.goto((visits.HTML / file_of(IN_TURN[0])).as_uri())
        visits.settle(other)
        other.get_by_label("05 From text to token IDs ①: progress").select_option("done")
        expect(at).to_contain_text("● done")
        page.wait_for_timeout(500)  # a page that is opened reads what Chromium has stored by then
        page.reload()
        expect(at).to_have_attribute("data-state", "done")
        other.get_by_label("05 From text to token IDs ①: progress").select_option("reading")
        expect(at).to_contain_text("◐ reading")
        assert (page.locator(".home-state").count(), visit.errors) == (1, [])


def test_marks_that_cannot_be_read_leave_the_map_without_any(chromium):
    context = chromium.new_context()
    page = context.new_page()
    visit = visits.listen(page)
    page.add_init_script("localStorage.setItem('llmcourse-progress.v1', '{');")
    page.goto(HOME.as_uri())
    expect(page.locator(".home-stop").first).to_have_attribute("data-state", "not begun")
    assert visit.errors == []
    context.close()


def test_without_scripts_and_on_paper_there_is_the_recorded_run(chromium):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(HOME.as_uri())
    expect(page.locator(".home-run figure polyline")).to_be_visible()
    expect(page.locator(".home-run figcaption")).to_contain_text("nats per token at step 400")
    expect(page.locator(".home-run .home-without-scripts")).to_be_visible()
    assert page.locator(".home-stop a").count() == len(IN_TURN)
    context.close()
    with visits.opened(chromium, HOME.as_uri()) as (page, _):
        page.emulate_media(media="print")
        expect(page.locator(".home-run .lr-recorded")).to_be_visible()
        expect(page.locator(".home-run .lr-words")).to_be_visible()
        expect(page.locator(".home-run button").first).to_be_hidden()
        expect(page.locator(".home-run input").first).to_be_hidden()
        expect(page.locator(".home-start")).to_be_hidden()


def test_style_and_script_of_the_home_page_are_loaded_by_no_other():
    for path in (*visits.pages("others"), *visits.pages("chapters")):
        assert ("_static/home." in path.read_text(encoding="utf8")) == (path == HOME), path
