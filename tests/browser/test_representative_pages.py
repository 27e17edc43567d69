"""What pages do when they are used, and that the looks at every page find what is wrong."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import visits
from tests.browser.every_page import faults

MARKS = {"a widget": ("chapters", 'class="lc-host"'), "mathematics": ("chapters", "<mjx-container")}
MARKS |= {"an exercise": ("exercises", ""), "search": ("others", 'id="search-results"')}
MARKS |= {"a listing": ("sources", "")}


@pytest.mark.parametrize("kind", MARKS)
def test_a_server_shows_the_same_as_a_file(book, chromium, kind):
    part, mark = MARKS[kind]
    path = next(path for path in visits.pages(part) if mark in path.read_text(encoding="utf8"))
    with visits.served(visits.HTML) as root:
        address = f"{root}/{path.relative_to(visits.HTML).as_posix()}"
        assert faults(chromium, address, root, axe=False) == []  # what axe sees is the same


def test_examples_have_every_kind_of_element(tmp_path):
    words = {"short": "<p>a</p>", "plain": "<p>one</p><p>two</p>"}
    words |= {"table": "<p>one</p><table><td>1</td></table>"}
    words |= {"long": "<p>one</p><p>two</p><p>three</p>"}
    words |= {"coloured": '<p>one</p><p style="color: #eee">2</p>', "unicode": "<p>één</p>"}
    words |= {"skips": "<h2>a</h2><h4>b</h4>", "wide": f"<i>{'x' * 40}</i>\n"}
    for name, text in words.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf8")
    chosen = visits.examples(sorted(tmp_path.iterdir()))
    assert sorted(path.stem for path in chosen) == sorted(words.keys() - {"plain", "long"})
    assert visits.examples([]) == []


@pytest.fixture
def opens(chromium, tmp_path):
    pages = []

    def opened(text):
        (tmp_path / "page.html").write_text(text, encoding="utf8")
        pages.append(chromium.new_page(viewport=visits.WIDE))
        pages[-1].goto((tmp_path / "page.html").as_uri())
        return pages[-1]

    yield opened
    for page in pages:
        page.close()


def rules_of(found):
    return sorted({line.split(" (")[0] for line in found})


def test_axe_finds_what_is_wrong(opens):
    page = opens(
        "<html><body><h2>a</h1><img src='data:,'><button></button><h4>late</h4></body></html>"
    )
    found = " ".join(visits.axe_in_both_themes(page))
    assert "0.1." in visits.AXE
    for rule in ("image-alt", "button-name", "html-has-lang", "heading-order"):
        assert rule in found, f"{visits.AXE} missed {rule}"


CHAPTER = """<!doctype html><title>A chapter</title>
<article><p class=chapter-question>Why?</p><svg class=drawing width=240 height=140></svg>
<svg width=20 height=20></svg><p style="height: %d%%">Words.</p><svg width=300 height=100></svg>
</article>"""


@pytest.mark.parametrize(("words", "late"), [(150, False), (210, True), (None, True)])
def test_a_chapter_whose_first_picture_is_late_is_found(opens, words, late):
    text = CHAPTER % words if words else CHAPTER.replace("300", "30") % 10
    page = opens(text.replace("%", "vh"))
    found = page.evaluate(visits.LATE, 2)
    page.set_content(text.replace("chapter-question", "words"))  # no chapter
    assert (page.evaluate(visits.LATE, 2), len(found)) == ([], late)


PALE = """<!doctype html><html lang=en><title>Code</title><style>pre { background: #fff }
.k { color: #111 } .n { color: #ddd } [data-theme=dark] .k { color: #eee }</style>
<main><h1>Code</h1>
<div class=highlight><pre tabindex=0><span class=k>one</span> <span class=k>two</span></pre></div>
<div class=highlight><pre tabindex=0><span class=k>one</span> <span class=%s>two</span></pre></div>
</main></html>"""


def test_axe_finds_a_pale_word_of_code_in_either_theme(opens):
    dark, light = ("dark: color-contrast", "light: color-contrast")
    for kind, expected in (("k", [dark]), ("n", [dark, light])):
        assert rules_of(visits.axe_in_both_themes(opens(PALE % kind))) == expected


UNSEEN = """<!doctype html><html lang=en><title>Link</title><style>
a { text-decoration: none; color: #36f } [data-theme=dark] a { color: #006 }
body { background: #fff; color: #000 }</style>
<main><h1>Link</h1><p>Here is <a href="#x">a link</a> in the middle of a sentence.</p></main></html>
"""


def test_axe_finds_a_link_that_looks_like_text_in_one_theme(opens):
    found = visits.axe_in_both_themes(opens(UNSEEN))
    assert (len(found), rules_of(found)) == (1, ["dark: link-in-text-block"])


ENTRY = "<dl class=py><dt>name</dt><dd>{}</dd></dl>"


@pytest.mark.parametrize("inside", ["<img src=x.png>", "<p class=rare><img src=x.png></p>"])
def test_axe_finds_what_is_wrong_in_every_entry_and_in_the_last(opens, inside):
    entries = [ENTRY.format(inside if "rare" not in inside else "text")] * 9
    text = "".join([*entries, ENTRY.format(inside)])
    page = opens(
        f"<!doctype html><html lang=en><title>Entries</title><main><h1>Entries</h1>{text}</main>"
    )
    assert rules_of(visits.axe_in_both_themes(page)) == ["page: image-alt"]
    assert page.locator("dl.py").count() == (4 if "rare" in inside else 3)


def test_an_outside_request_is_seen(chromium, tmp_path):
    (tmp_path / "bad.html").write_text("<html lang=en><img src='http://192.0.2.1/x.png'></html>")
    with visits.served(tmp_path) as root, visits.opened(chromium, f"{root}/bad.html") as (_, visit):
        assert visit.outside(root) == ["http://192.0.2.1/x.png"]


def test_the_strip_leads_to_other_phases(chromium):
    address = (visits.HTML / "chapters/16_cross_entropy.html").as_uri()
    with visits.opened(chromium, address) as (page, _):
        assert page.locator("ul.phase-strip li").count() == 7
        assert "3 loss" in page.locator("ul.phase-strip li.lit").text_content()
        page.locator("ul.phase-strip a", has_text="1 data").click()
        page.wait_for_load_state()
        assert "/chapters/05_tokens.html" in page.url


def test_focus_is_visible_on_links_and_buttons(chromium):
    address = (visits.HTML / "book/intro.html").as_uri()
    with visits.opened(chromium, address) as (page, _):
        for _ in range(12):
            page.keyboard.press("Tab")
            shown = page.evaluate(
                "() => { const s = getComputedStyle(document.activeElement);"
                " return parseFloat(s.outlineWidth) + (s.boxShadow === 'none' ? 0 : 1); }"
            )
            assert shown > 0, page.evaluate("document.activeElement.outerHTML")


def test_a_page_that_is_wider_than_a_phone_is_found(opens):
    (found,) = visits.look_on_a_phone(opens("<html lang=en><p style='width: 380px'>wide"))
    assert "pixels wide on a phone of 360" in found


FORMULA = """<html lang=en><article><mjx-container display=true
style="display: block; width: 300px; overflow: auto"><p style="width: {}px">x</p></mjx-container>"""


@pytest.mark.parametrize(("width", "num_faults"), [(300, 0), (310, 1)])
def test_a_formula_that_is_cut_off_is_found(opens, width, num_faults):
    assert len(opens(FORMULA.format(width)).evaluate(visits.CUT_FORMULAS)) == num_faults


def test_a_character_of_an_icon_font_is_found(opens):
    style = "<style>.a::before { content: '\\f0f3' } .b::after { content: '\\2193' }</style>"
    page = opens(f"<html lang=en>{style}<p class=a>one<p class=b>two")
    assert page.evaluate(visits.BOXES) == ['an empty box: ::before of <p class="a">one</p>']


def test_the_buttons_show_and_hide_the_side_bars(chromium):
    address = (visits.HTML / "chapters/16_cross_entropy.html").as_uri()
    with visits.opened(chromium, address) as (page, visit):
        chapters = page.get_by_role("link", name="The course map", exact=True)
        menu = page.get_by_role("button", name="Toggle primary sidebar")
        heading = page.get_by_role("heading", name=re.compile("^Temperature"))
        entry = page.locator(".bd-toc, #pst-secondary-sidebar-modal").get_by_role(
            "link", name="Temperature", exact=True
        )
        list_button = page.get_by_role("button", name="Toggle secondary sidebar")
        for width in (390, 768):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("scrollTo(0, 0)")
            expect(chapters).not_to_be_in_viewport()
            menu.click()
            expect(chapters).to_be_in_viewport()
            behind = "getComputedStyle(document.querySelector('dialog[open]')).backgroundColor"
            assert (
                page.evaluate(behind) == "rgb(255, 255, 255)"
            )  # the text below does not show through
            page.keyboard.press("Escape")
            expect(chapters).not_to_be_in_viewport()
            menu.focus()
            page.keyboard.press("Enter")
            expect(chapters).to_be_in_viewport()
            page.keyboard.press("Escape")
            expect(chapters).not_to_be_in_viewport()
            expect(menu).to_be_focused()
            list_button.click()
            expect(entry).to_be_in_viewport()
            expect(heading).not_to_be_in_viewport()
            entry.click()
            expect(entry).not_to_be_in_viewport()
            expect(heading).to_be_in_viewport()
        page.set_viewport_size({"width": 1440, "height": 900})
        expect(list_button).to_be_hidden()
        expect(entry).to_be_in_viewport()
        shown = page.locator(".bd-sidebar-primary")
        expect(shown).to_be_visible()
        menu.click()
        expect(shown).to_be_hidden()
        menu.focus()
        page.keyboard.press("Enter")
        expect(shown).to_be_visible()
        page.keyboard.press("Enter")  # the button that was pressed by key keeps the focus
        expect(shown).to_be_hidden()
        assert visit.errors == []


PLACES = """(theme) => {
  document.documentElement.dataset.theme = theme;
  const shown = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility());
  return shown.map((one) => JSON.stringify([one.localName, one.getBoundingClientRect()]));
}"""


@pytest.mark.parametrize("name", ["book/api/model.html", "chapters/16_cross_entropy.html"])
def test_nothing_moves_when_the_theme_becomes_known(chromium, name):
    """The theme's script comes last: until then its name is auto, and a moved page is a shift."""
    with visits.opened(chromium, (visits.HTML / name).as_uri()) as (page, _):
        page.add_style_tag(content="* { transition: none !important; }")
        page.wait_for_load_state("networkidle")  # figures that came near have come
        page.evaluate("() => document.fonts.ready.then(() => 0)")  # and letters of formulas
        places = {theme: page.evaluate(PLACES, theme) for theme in ("auto", "light", "dark")}
        moved = [a for a, b in zip(places["auto"], places["light"], strict=True) if a != b]
        assert ((len(moved), moved[:3]), places["light"]) == ((0, []), places["dark"])


def test_without_scripts_a_page_can_be_read_with_its_formulas(chromium):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((visits.HTML / "chapters/16_cross_entropy.html").as_uri())
    expect(page.locator(".bd-header-article")).to_have_css("background-color", "rgb(255, 255, 255)")
    formula = page.locator("span.math mjx-container").first
    expect(formula).to_be_visible()
    assert formula.locator("math").count() == 1  # what a screen reader reads
    expect(formula.locator("mjx-c").first).to_have_css("font-family", re.compile("MJXTEX"))
    assert page.locator(".sidebar-toggle:visible").count() == 0  # they would do nothing
    context.close()


def test_deeper_is_folded_and_opens_by_key_by_link_and_on_paper(book, chromium):
    address = (visits.HTML / "chapters/16_cross_entropy.html").as_uri()
    with visits.opened(chromium, address) as (page, _):
        folds = page.locator("#deeper details.deeper")
        assert folds.count() == page.locator("#deeper > section").count() > 1
        assert page.locator("details.deeper[open]").count() == 0
        folds.first.locator("> summary").focus()
        page.keyboard.press("Enter")
        assert page.locator("details.deeper[open]").count() == 1
        page.keyboard.press("Enter")
        last = page.locator("#deeper > section").last
        anchor = last.get_attribute("id")
        for _ in range(2):  # once more, after it was closed by hand
            page.locator(f"a[href='#{anchor}']").first.evaluate("one => one.click()")
            expect(last.locator("> details")).to_have_attribute("open", "")
            expect(last.locator("p").first).to_be_in_viewport()
            last.locator("> details > summary").click()
            expect(last.locator("> details")).not_to_have_attribute("open", "")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details.deeper:not([open])").count() == 0
    with visits.opened(chromium, f"{address}#{anchor}") as (page, _):
        assert page.locator("details.deeper[open]").count() == 1


def test_a_figure_opens_in_its_own_size_where_the_screen_is_narrow(book, chromium):
    address = (visits.HTML / "chapters/11_attention.html").as_uri()
    with visits.opened(chromium, address) as (page, _):
        enlarge = page.locator("button.course-enlarge")
        dialog = page.locator("dialog.course-figure")
        assert enlarge.count() == page.locator(".bd-article img.of-light").count() > 5
        assert page.locator("button.course-enlarge:visible").count() == 0
        page.set_viewport_size({"width": 1440, "height": 900})
        page.locator(".bd-article img.of-light").first.click()
        expect(dialog).to_be_hidden()
        page.set_viewport_size({"width": 360, "height": 740})
        visits.show_theme(page, "dark")
        enlarge.first.click()
        expect(dialog).to_be_visible()
        picture = page.locator(".bd-article img.of-dark").first
        shown = dialog.locator("img").evaluate("one => [one.src, one.width]")
        assert shown == [picture.evaluate("one => one.src"), int(picture.get_attribute("width"))]
        assert dialog.evaluate("one => one.scrollWidth > one.clientWidth")  # it scrolls
        assert [line for line in visits.violations(page, "dialog.course-figure") if line] == []
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        picture.click()  # a tap
        expect(dialog).to_be_visible()
        dialog.get_by_role("button").click()
        expect(dialog).to_be_hidden()


def test_folded_code_is_named_by_its_title(book, chromium):
    address = (visits.HTML / "chapters/11_attention.html").as_uri()
    with visits.opened(chromium, address) as (page, _):
        folds = page.locator("details.course-code > summary")
        names = set(folds.all_text_contents())
        assert {"Code: set-up", "Code: the figure", "Code: checks"} <= names
        assert page.get_by_text("Show code cell source").count() == 0
        folds.first.click()
        expect(page.locator("details.course-code pre").first).to_contain_text("# @title Set-up")
