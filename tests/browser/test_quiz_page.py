"""The quiz in a page: by mouse, by keyboard, to a screen reader, on a phone and on paper."""

import pytest

from llmcourse_classroom.exercises import quiz
from llmcourse_classroom.exercises.quiz import LETTERS, Quiz
from tests.browser.conftest import PLAIN_PAGE
from tests.browser.visits import axe_in_both_themes

# What the book's theme says of such elements, which the quiz must overrule.
THEME = """<style>[hidden] { display: none !important; }
legend { float: left; width: 100%; font-size: 1.5rem; margin-bottom: 0.5rem; }
fieldset { border: 0; padding: 0; } p { margin: 0 0 1.15rem; font-size: 1.2rem; }</style>"""
TEXT = """
[[question]]
text = "{question}"
[[question.option]]
text = "first `a < b`"
why = "not the first of {number}"
[[question.option]]
text = "second"
right = true
why = "indeed the second of {number}"
[[question.option]]
text = "third, with_a_name_that_is_very_long_and_that_no_line_of_a_telephone_could_ever_hold()"
why = "not the third of {number}"
[[question.option]]
text = "fourth"
why = "not the fourth of {number}"
"""


@pytest.fixture
def quizzes(tmp_path, monkeypatch):
    for topic, size in (("05_tokens", 5), ("06_other", 2)):
        text = "".join(TEXT.format(question=f"Which of {n}?", number=n) for n in range(size))
        (tmp_path / f"{topic}.toml").write_text(text)
    monkeypatch.setattr(quiz, "_folder", lambda: tmp_path)
    return [Quiz("05_tokens"), Quiz("06_other")]


@pytest.fixture
def shown(page, quizzes, tmp_path):
    """Opens quizzes in a page, from a file; the first of them is there twice."""

    def opened(*, theme="light", width=760, without_style=False):
        body = THEME + "".join(q._repr_html_() for q in [*quizzes, quizzes[0]])
        if without_style:
            body = body.replace(quiz._STYLE, "")
        path = tmp_path / "quiz.html"
        path.write_text(PLAIN_PAGE.format(theme=theme, body=body), encoding="utf8")
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(path.as_uri())
        return page

    return opened


def question(page, number, form=0):
    return page.locator("form").nth(form).locator("fieldset").nth(number)


def explanations(page):
    return page.locator("form div p:visible").all_text_contents()


def heard(page):
    """What a screen reader is told of a quiz: role, name and whether it speaks of itself."""
    session = page.context.new_cdp_session(page)
    nodes = {n["nodeId"]: n for n in session.send("Accessibility.getFullAXTree")["nodes"]}
    found = []

    def walk(node, live):
        name = node.get("name", {}).get("value", "")
        role = node.get("role", {}).get("value", "")
        properties = {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
        live = properties.get("live", live)
        if not node.get("ignored"):
            found.append((role, name, live))
        for child in node.get("childIds", []):
            if child in nodes:
                walk(nodes[child], live)

    for node in nodes.values():
        if "parentId" not in node:
            walk(node, "off")
    return found


def test_the_explanation_of_what_is_chosen_is_shown_at_once(shown):
    page = shown()
    assert explanations(page) == []
    whys = ["not the first", "indeed the second", "not the third", "not the fourth"]
    for place, why in enumerate(whys):
        question(page, 1).locator("label").nth(place).click()
        word = "Right:" if place == 1 else "Not quite:"
        assert explanations(page) == [f"{LETTERS[place]}. {word} {why} of 1"]


def test_the_right_ones_are_counted(shown):
    page = shown()
    for number in range(5):
        question(page, number).locator("label").nth(1).click()
    question(page, 0, form=1).locator("label").nth(1).click()
    question(page, 1, form=1).locator("label").nth(0).click()
    assert said_counts(page) == ["5 of 5 right", "1 of 2 right", "0 of 5 right"]
    question(page, 4).locator("label").nth(0).click()
    assert said_counts(page)[0] == "4 of 5 right"


def said_counts(page):
    whole, found = " ".join([name for role, name, _ in heard(page) if role == "StaticText"]), []
    for part in whole.split(" right")[:-1]:
        found.append(" ".join(part.split()[-3:]) + " right")
    return found


def test_a_screen_reader_is_told_the_explanation(shown):
    page = shown()
    names = " ".join(name for _, name, _ in heard(page))
    assert "indeed" not in names
    assert "not the" not in names
    question(page, 2).locator("label").nth(0).click()
    told = [name for role, name, live in heard(page) if role == "StaticText" and live == "polite"]
    assert "".join(told) == "A. Not quite: not the first of 2"


def test_a_screen_reader_is_told_questions_and_options(shown):
    nodes = heard(shown())
    groups = [name for role, name, _ in nodes if role == "group"]
    assert groups[:2] == ["1. Which of 0?", "2. Which of 1?"]
    radios = [name for role, name, _ in nodes if role == "radio"]
    assert radios[:2] == ["A. first a < b", "B. second"]


def test_it_works_by_keyboard_alone(shown):
    page = shown()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert explanations(page) == ["A. Not quite: not the first of 0"]
    page.keyboard.press("ArrowDown")
    assert explanations(page) == ["B. Right: indeed the second of 0"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert explanations(page) == ["D. Not quite: not the fourth of 0"]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert len(explanations(page)) == 2


def test_enter_does_nothing_and_reset_starts_again(shown):
    page = shown()
    address = page.url
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    # Chromium ignores Enter on such a button; other browsers send the form, as here.
    page.evaluate("document.querySelector('form').requestSubmit()")
    page.wait_for_timeout(100)
    question(page, 0, form=1).locator("label").nth(1).click()
    assert (page.url, len(explanations(page))) == (address, 2)
    page.get_by_role("button", name="Start again").first.press("Enter")
    assert explanations(page) == ["B. Right: indeed the second of 0"]
    assert said_counts(page)[:2] == ["0 of 5 right", "1 of 2 right"]


def test_the_same_quiz_twice_keeps_two_sets_of_choices(shown):
    page = shown()
    question(page, 0).locator("label").nth(0).click()
    question(page, 0, form=2).locator("label").nth(1).click()
    assert len(explanations(page)) == 2
    assert question(page, 0).locator("input:checked").count() == 1


@pytest.mark.parametrize("width", [320, 760])
def test_it_fits(shown, width):
    page = shown(width=width)
    for number in range(5):
        question(page, number).locator("label").nth(2).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator("input").evaluate_all("all => all.map(e => e.getBoundingClientRect())")
    assert min(min(box["width"], box["height"]) for box in boxes) >= 24


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_has_the_colours_of_the_page(shown, theme):
    page = shown(theme=theme)
    question(page, 0).locator("label").nth(0).click()
    colours = page.evaluate(
        "() => ['html', 'legend', 'label', 'form div p:not(:empty)', 'form button', 'form code']"
        ".map(name => getComputedStyle(document.querySelector(name)).color)"
    )
    assert len(set(colours)) == 1
    size = "getComputedStyle(document.querySelector('legend')).fontSize"
    assert page.evaluate(size) == page.evaluate(size.replace("legend", "label"))


def test_axe_finds_nothing(shown):
    page = shown()
    assert axe_in_both_themes(page) == []
    for form in range(3):
        for number in range(2):
            question(page, number, form).locator("label").nth(number).click()
    assert axe_in_both_themes(page) == []


def test_on_paper_all_explanations_are_shown(shown):
    page = shown()
    page.emulate_media(media="print")
    assert len(explanations(page)) == 4 * (5 + 2 + 5)
    assert not page.locator("form button").first.is_visible()


def test_without_its_style_no_answer_is_shown(shown):
    page = shown(without_style=True)
    assert explanations(page) == []
    question(page, 0).locator("label").nth(0).click()
    assert explanations(page) == []


MUTANTS = {
    "by a rule for display alone": ("!important", ""),
    "by the wrong place": ("label:nth-of-type(2)", "label:nth-of-type(1)"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_check_notices_an_explanation_shown(mutant, shown, monkeypatch):
    monkeypatch.setattr(quiz, "_STYLE", quiz._STYLE.replace(*MUTANTS[mutant]))
    with pytest.raises(AssertionError):
        test_the_explanation_of_what_is_chosen_is_shown_at_once(shown)
