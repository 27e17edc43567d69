"""The page of `llmcourse chat --serve`: a conversation in a browser."""

from playwright.sync_api import expect

from tests.browser.visits import opened, violations
from tests.labs.tuning.test_chat_server import serving


def say(page, text):
    page.get_by_label("Your message").fill(text)
    page.get_by_role("button", name="Send").click()


def test_a_conversation_of_a_page_asks_nobody_else(chromium):
    with serving(title="runs <chat>", temperature=0.4) as port:
        root = f"http://127.0.0.1:{port}"
        with opened(chromium, f"{root}/") as (page, visit):
            expect(page.get_by_role("heading")).to_have_text("runs <chat>")
            expect(page.locator("output")).to_have_text("0.4")
            said = page.get_by_role("log").locator("p")
            say(page, "a <b>")
            say(page, "c")
            expect(said.last).to_have_text("heard a <b>c at 0.0")
            assert said.all_inner_texts()[:2] == ["a <b>", "heard a <b> at 0.0"]
            slider = page.get_by_label("temperature")
            slider.fill("0.8")
            slider.dispatch_event("change")
            say(page, "d")
            expect(said.last).to_have_text("heard a <b>cd at 0.8")
            say(page, "/temperature x")
            expect(said.last).to_contain_text("a temperature is a number")
            page.get_by_role("button", name="Reset").click()
            expect(said).to_have_count(0)
            say(page, "e")
            expect(said.last).to_have_text("heard e at 0.8")
            assert (violations(page), visit.outside(root)) == ([], [])
            # Chromium calls a stream aborted that was read to its end; its text is held above.
            assert [each for each in visit.errors if not each.startswith(f"failed: {root}")] == []


def test_the_page_says_when_the_command_has_ended(chromium):
    with serving() as port:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
    say(page, "a")
    last = page.get_by_role("log").locator("p").last
    expect(last).to_contain_text("Is the command still running?")
    context.close()


def test_a_phone_shows_all_of_it_in_both_themes(chromium):
    with serving(title="a-name-without-a-break-" * 6) as port:
        for theme in ("light", "dark"):
            view = {"viewport": {"width": 360, "height": 640}, "color_scheme": theme}
            context = chromium.new_context(**view)
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{port}/")
            say(page, "x" * 200)
            expect(page.get_by_role("log").locator("p").last).to_contain_text("heard")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert violations(page) == []
            context.close()
