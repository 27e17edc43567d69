"""The pages of exercises: open checks, folded solutions, a download; and a quiz in each chapter."""

import html
import json
import re

import graded
import nbformat
import pytest

from llmcourse_classroom.exercises import exercise
from tools.build import build_book
from tools.pages import exercises

HTML = build_book.BUILD / "html"
each_topic = pytest.mark.parametrize("topic", [path.stem for path in exercises.sources()])


def questions_of(topic):
    return exercise.questions(exercise.read(exercises.SOLUTIONS / f"{topic}.ipynb"))


def page_of(name):
    return (HTML / f"{name}.html").read_text(encoding="utf8")


def words(markup):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", markup)).split())


@each_topic
def test_every_check_is_folded_with_its_solution_and_says_not_answered_yet(topic):
    found = re.findall(r'<div class="llmcourse-check".*?</div>', page_of(f"exercises/{topic}"))
    assert len(found) == len(questions_of(topic))
    for box, question in zip(found, questions_of(topic), strict=True):
        assert f"{question.number} not answered yet" in words(box)
    assert "Traceback" not in page_of(f"exercises/{topic}")
    page = page_of(f"exercises/{topic}")
    for question in questions_of(topic):
        title = rf"(?:<span[^>]*>)?Solution of {re.escape(question.number)}.*?"
        folded = rf"<details[^>]*>\s*<summary[^>]*>\s*{title}</details>"
        block = re.search(folded, page, flags=re.DOTALL)
        assert block, question.number
        assert not re.match(r"<details[^>]* open", block[0])
        last = exercise.solution_of(question.answer).strip().split("\n")[-1]
        assert words(html.escape(last)) in words(block[0])
        assert page.index(f"{question.number} not answered yet") < block.start()


def checks_of(topic):
    return graded.checks_of(build_book.ROOT / graded.CHECKS / f"c{topic}.py")


@each_topic
def test_the_code_of_every_check_is_folded_and_the_solutions_can_be_downloaded(topic):
    page, checks = page_of(f"exercises/{topic}"), checks_of(topic)
    assert list(checks) == [question.number for question in questions_of(topic)]
    for number, source in checks.items():
        start = page.index(f"What the check of {number} looks at")
        shown = words(page[start : page.index(f"Solution of {number}", start)])
        assert words(source.split("\n")[0]) in shown
        assert words(source.split("\n")[-2]) in shown
    link = re.search(r'href="([^"]*/_downloads/[^"]+\.ipynb)"', page_of(f"exercises/{topic}"))
    assert link
    notebook = json.loads((HTML / "exercises" / link[1]).resolve().read_text(encoding="utf8"))
    assert "BEGIN SOLUTION" in json.dumps(notebook)


@each_topic
def test_a_chapter_lists_its_exercises_and_ends_with_a_quiz(topic):
    page = page_of(f"chapters/{topic}")
    assert f'href="../exercises/{topic}.html"' in page
    listed = words(page[page.index('id="exercises"') : page.index('id="quiz"')])
    for question in questions_of(topic):
        assert f"{question.number} {question.title.replace('`', '')}" in listed
    assert page[page.index('id="quiz"') : page.index('id="take-away"')].count("<fieldset") == 5


def test_solutions_are_inserted_as_text_alone():
    path = exercises.SOLUTIONS / "05_tokens.ipynb"
    learners = (exercises.FOLDER / path.name).read_text(encoding="utf8")
    text = graded.with_solutions(learners, exercise.read(path), "05_tokens", checks_of("05_tokens"))
    made = nbformat.reads(text, as_version=4)
    before = [c.source for c in nbformat.reads(learners, 4).cells if c.cell_type == "code"]
    assert [c.source for c in made.cells if c.cell_type == "code"] == before
    inserted = [c for c in made.cells if c.id.startswith("solution-")]
    assert len(inserted) == len(questions_of("05_tokens"))
    assert not [c for c in inserted if "BEGIN SOLUTION" in c.source]
    assert all("\ndef check_" in c.source for c in inserted)


@pytest.mark.parametrize("name", ["book/exercises", "book/instructors"])
def test_the_pages_about_exercises_are_in_the_book(name):
    assert (HTML / f"{name}.html").exists()
    assert name in build_book.documents()
