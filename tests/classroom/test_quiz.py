"""Quizzes: every file is whole, and what is shown is what the file says, and nothing more."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_classroom.exercises import quiz
from llmcourse_classroom.exercises.quiz import Quiz, marked_up, parsed
from tests.classroom.small_exam import Reader

QUESTION = """
[[question]]
text = "What does `len` return for <b> & \\"c\\"?"
[[question.option]]
text = "bytes"
why = "`len(text)` counts characters."
[[question.option]]
text = "characters"
right = true
why = "A text is a row of them."
[[question.option]]
text = "tokens"
why = "Those come later."
"""
OPTION = '[[question.option]]\ntext = "{}"\nwhy = "because"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "05_tokens.toml").write_text(QUESTION * 2)
    (tmp_path / "06_broken.toml").write_text(QUESTION.replace("right = true\n", ""))
    (tmp_path / "README.md").write_text("no quiz")
    monkeypatch.setattr(quiz, "_folder", lambda: tmp_path)
    return tmp_path


def faults(questions):
    """Return what is wrong with the questions of a chapter, beyond their form."""
    found = [] if len(questions) == 5 else [f"{len(questions)} questions"]
    if len({question.place for question in questions}) == 1:
        found.append("the right option is always at the same place")
    if len({question.text for question in questions}) != len(questions):
        found.append("a question is there twice")
    for number, question in enumerate(questions, start=1):
        for what in ("text", "why"):
            said = {" ".join(getattr(o, what).lower().split()) for o in question.options}
            if len(said) != len(question.options):
                found.append(f"question {number}: two options have the same {what}")
    return found


def guessable(questions):
    """Return what tells the right options of many questions without reading them."""
    found = []
    for places in {len(question.options) for question in questions}:
        own = [question for question in questions if len(question.options) == places]
        for place in range(places):
            share = sum(question.place == place for question in own) / len(own)
            if abs(share - 1 / places) > 0.05:
                found.append(f"place {place + 1} of {places}: {share:.0%}")
    longest = [
        len(question.options[question.place].text) == max(len(o.text) for o in question.options)
        for question in questions
    ]
    chance = sum(1 / len(question.options) for question in questions)
    if sum(longest) > chance:
        found.append(f"the longest is right {sum(longest)} times; by chance {chance:.0f}")
    return found


def test_no_place_and_no_length_tells_the_right_option_and_such_a_habit_is_found():
    assert guessable([q for topic in quiz.topics() for q in Quiz(topic).questions]) == []
    assert guessable(asked((0, 1, 2), longest=False)) == []
    (said,) = guessable(asked((0, 1, 2), longest=True))
    assert said == "the longest is right 3 times; by chance 1"
    places = ["place 1 of 3: 50%", "place 2 of 3: 50%", "place 3 of 3: 0%"]
    assert guessable(asked((0, 1), longest=False)) == places


def asked(places, *, longest):
    options = [OPTION.format(f"option {number}") for number in range(3)]
    right = OPTION.format("the option that is right" if longest else "right") + "right = true\n"
    rows = [[*options[:place], right, *options[place + 1 :]] for place in places]
    return parsed("".join('[[question]]\ntext = "?"\n' + "".join(row) for row in rows), "")


@pytest.mark.parametrize("topic", quiz.topics())
def test_every_quiz_of_the_course_is_whole(topic):
    assert re.fullmatch(r"[0-9]{2}_[a-z0-9_]+", topic)
    assert faults(Quiz(topic).questions) == []


def made(places=(0, 1, 2, 1, 0), *, change=lambda _number, text: text):
    parts = []
    for number, place in enumerate(places):
        part = f'[[question]]\ntext = "question {number}"\n'
        for letter in range(3):
            right = "right = true\n" if letter == place else ""
            part += f'[[question.option]]\ntext = "o{letter}"\nwhy = "w{letter}"\n{right}'
        parts.append(change(number, part))
    return parsed("\n".join(parts), "made.toml")


MUTANTS = {
    "4 questions": {"places": [0, 1, 2, 1]},
    "same place": {"places": [1] * 5},
    "question is there twice": {"change": lambda _, text: re.sub("question .", "the same", text)},
    "same text": {"change": lambda n, text: text.replace('"o1"', '" O0 "') if n else text},
    "same why": {"change": lambda _, text: text.replace("w2", "w0")},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_check_of_the_files_notices(mutant):
    assert faults(made()) == []
    assert mutant in " ".join(faults(made(**MUTANTS[mutant])))


def test_an_unknown_topic_names_those_that_there_are_and_a_malformed_file_its_question(folder):
    assert quiz.topics() == ["05_tokens", "06_broken"]
    for topic in ("99_none", "../05_tokens", "", "README"):
        with pytest.raises(ValueError, match="there are 05_tokens, 06_broken"):
            Quiz(topic)
    with pytest.raises(ValueError, match=r"quizzes/06_broken\.toml, question 1: 0 options are"):
        Quiz("06_broken")


MALFORMED = {
    "is not TOML": "[[question]",
    "must hold": "",
    "[[question]] tables": "question = []",
    "tables, and nothing else": f'title = "a"\n{QUESTION}',
    "and nothing else": "question = [1]",
    "question 2: a question has no option": f'{QUESTION}[[question]]\ntext = "a"',
    "a question has no text": '[[question]]\noption = "a"',
    "a question has ['hint']": QUESTION.replace("text", 'hint = "a"\ntext', 1),
    "the question: text must be a text": QUESTION.replace("text = ", "text = 5 # ", 1),
    "give 3 or 4": f'[[question]]\ntext = "a"\n{OPTION.format("b") * 2}',
    "3 or 4 [[question.option]]": QUESTION + OPTION.format("b") * 2,
    "2 options are right": QUESTION.replace("why", "right = true\nwhy", 1),
    "option B: right must be true": QUESTION.replace("true", '"yes"'),
    "option C has no why": QUESTION.replace('why = "Those come later."', ""),
    "option C has ['wy']": f"{QUESTION}wy = 'a'",
    "option C: why must be a text": QUESTION.replace("Those come later.", " "),
}


@pytest.mark.parametrize("message", MALFORMED)
def test_a_malformed_file_is_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        parsed(MALFORMED[message], "quizzes/x.toml")
    assert str(error.value).startswith("quizzes/x.toml")


def test_right_may_be_said_to_be_false():
    assert parsed(QUESTION.replace("why", "right = false\nwhy", 1), "x") == parsed(QUESTION, "x")


def test_the_text_form_tells_no_answer_and_the_answers_are_those_of_the_file(folder):
    shown = repr(Quiz("05_tokens"))
    assert shown.startswith("Quiz 05_tokens: 2 questions\n1. What does `len` return")
    assert "\n   A. bytes\n   B. characters\n   C. tokens\n2. " in shown
    assert "row of them" not in shown
    lines = Quiz("05_tokens").answers().splitlines()
    assert lines == ["1. B. characters", "   A text is a row of them.",
                     "2. B. characters", "   A text is a row of them."]  # fmt: skip


def test_the_page_form_shows_every_text_of_the_file_in_groups_without_script_or_address(folder):
    read = Reader(Quiz("05_tokens")._repr_html_())
    tags = [tag for tag, _ in read.tags]
    assert not {"script", "iframe", "img", "link", "a"} & set(tags)
    names = {name for _, attributes in read.tags for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("id", "src", "href")]
    assert (tags.count("fieldset"), tags.count("legend"), tags.count("input")) == (2, 2, 6)
    names = [attributes["name"] for tag, attributes in read.tags if tag == "input"]
    assert names == ["05_tokens-1"] * 3 + ["05_tokens-2"] * 3
    hidden = [attributes for tag, attributes in read.tags if tag == "p" and "hidden" in attributes]
    assert len(hidden) == 6
    text = "".join(Reader(Quiz("05_tokens")._repr_html_()).texts)
    for question in parsed(QUESTION, "x"):
        for said in (question.text, *(t for o in question.options for t in (o.text, o.why))):
            assert said.replace("`", "") in text
    assert (text.count("Not quite:"), text.count("Right:")) == (4, 2)


@given(st.text(alphabet="ab`<>&\"' \n", max_size=20))
def test_nothing_of_a_text_becomes_an_element_but_code(text):
    shown = marked_up(text)
    read = Reader(shown)
    assert {tag for tag, _ in read.tags} <= {"code"}
    assert len(read.tags) == len(re.findall(r"`[^`]+`", " ".join(text.split())))
    assert html.unescape(re.sub(r"</?code>", "`", shown)) == " ".join(text.split())


def test_a_quiz_is_light(folder):
    (folder / "07_five.toml").write_text("".join(QUESTION for _ in range(5)) + OPTION.format("x"))
    shown = Quiz("07_five")
    texts = [q.text for q in shown.questions]
    texts += [t for q in shown.questions for o in q.options for t in (o.text, o.why)]
    assert len(shown._repr_html_().encode()) - sum(len(t.encode()) for t in texts) < 12_000
