"""The quiz at the end of a chapter: it works in a page without a script and without a kernel.

    Quiz("05_tokens")            shows the questions
    Quiz("05_tokens").answers()  lists what is right, with the reasons

The questions of a chapter are one file, quizzes/NN_topic.toml:

    [[question]]
    text = "How many bytes are 15 T tokens of 4 bytes?"
    [[question.option]]
    text = "60 TB"
    right = true
    why = "15e12 times 4 bytes."

Every option has its `why`, exactly one is right, and `code` stands between backticks.
"""

import html
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

FEWEST, MOST = 3, 4
"""Options of a question."""
LETTERS = "ABCD"

_CODE = re.compile(r"`([^`]+)`")

# An explanation is shown while its option is chosen.  It stands in a live region, so that a screen
# reader says it then; `hidden` keeps it out of sight where a page has taken the style away.  The
# theme's rules for legends, paragraphs and hidden elements are overruled by the longer selectors.
_SHOWN = ",".join(
    f".lq fieldset:has(label:nth-of-type({k}) :checked) div p:nth-child({k})"
    for k in range(1, MOST + 1)
)
_STYLE = f"""<style>
.lq{{counter-reset:lq;color:inherit;font:inherit;line-height:1.45;max-width:45rem;margin:.5em 0}}
.lq fieldset{{border:1px solid #8a8f98;border-radius:.4em;margin:0 0 .8em;padding:.3em .7em .5em;
min-width:0;overflow-wrap:anywhere}}
.lq legend{{float:left;width:100%;margin:0;padding:.2em 0;border:0;color:inherit;font-size:1em;
font-weight:600;line-height:inherit;white-space:normal}}
.lq legend+label{{clear:left}}
.lq label{{display:flex;gap:.5em;align-items:start;margin:0;padding:.2em 0;font-weight:400;
cursor:pointer}}
.lq input{{flex:none;width:24px;height:24px;margin:0;cursor:pointer}}
.lq label span{{min-width:0}}
.lq code{{color:inherit;background:none;font-size:.92em;white-space:pre-wrap}}
.lq div p{{display:none;margin:.3em 0 .1em;padding-left:.6em;border-left:4px solid #d97706}}
.lq div p.lq-y{{border-color:#2a9d5c}}
{_SHOWN}{{display:block!important}}
.lq input.lq-y:checked{{counter-increment:lq}}
.lq>p{{display:flex;flex-wrap:wrap;gap:.3em 1em;align-items:center;margin:0}}
.lq>p span::before{{content:counter(lq)}}
.lq button{{font:inherit;color:inherit;background:none;border:1px solid #8a8f98;border-radius:.3em;
min-height:28px;padding:.1em .7em;cursor:pointer}}
.lq :focus-visible{{outline:3px solid;outline-offset:2px}}
@media print{{.lq div p{{display:block!important}}.lq>p{{display:none}}
.lq fieldset{{break-inside:avoid}}}}
</style>"""

# A form keeps the choices of two quizzes apart and can be reset without a script; the method
# "dialog" makes Enter do nothing.  The attribute keeps JupyterLab's own keys out of it.
_FORM = '<form class="lq" method="dialog" data-lm-suppress-shortcuts="true">'


@dataclass(frozen=True)
class Option:
    """One option of a question."""

    letter: str
    text: str
    right: bool
    why: str
    """Why it is right, or what it mistakes."""


@dataclass(frozen=True)
class QuizQuestion:
    """A question with its options, one of which is right."""

    text: str
    options: tuple[Option, ...]
    place: int
    """Of the right option, from 0."""


class Quiz:
    """The questions of a chapter.

    Args:
        topic: such as "05_tokens"; `topics()` lists those that there are.

    Raises:
        ValueError: if there is no quiz of that name, or its file is malformed.
    """

    def __init__(self, topic: str) -> None:
        file = _folder().joinpath(f"{topic}.toml")
        if not file.is_file():
            raise ValueError(f"there is no quiz {topic!r}; there are {', '.join(topics())}")
        self.topic = topic
        self.questions = parsed(file.read_text(encoding="utf8"), f"quizzes/{topic}.toml")

    def __repr__(self) -> str:
        lines = [f"Quiz {self.topic}: {len(self.questions)} questions"]
        for number, question in enumerate(self.questions, start=1):
            lines.append(f"{number}. {question.text}")
            lines += [f"   {option.letter}. {option.text}" for option in question.options]
        return "\n".join(lines)

    def answers(self) -> str:
        """Return what is right in each question, and why, as text."""
        lines = []
        for number, question in enumerate(self.questions, start=1):
            right = question.options[question.place]
            lines += [f"{number}. {right.letter}. {right.text}", f"   {right.why}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        numbered = enumerate(self.questions, start=1)
        fields = "".join(_fieldset(each, n, f"{self.topic}-{n}") for n, each in numbered)
        count = f"<span> of {len(self.questions)} right</span>"
        again = '<button type="reset">Start again</button>'
        return f"{_FORM}{_STYLE}{fields}<p>{count}{again}</p></form>"


def _fieldset(question: QuizQuestion, number: int, name: str) -> str:
    """Return the HTML of one question; name is that of its group of radio buttons."""
    labels, reasons = [], []
    for option in question.options:
        kind = ' class="lq-y"' if option.right else ""
        button = f'<input type="radio" name="{html.escape(name)}"{kind}>'
        text, why = f"{option.letter}. {marked_up(option.text)}", marked_up(option.why)
        labels.append(f"<label>{button}<span>{text}</span></label>")
        word = "Right:" if option.right else "Not quite:"
        reasons.append(f"<p{kind} hidden><b>{option.letter}. {word}</b> {why}</p>")
    return (
        f"<fieldset><legend>{number}. {marked_up(question.text)}</legend>{''.join(labels)}"
        f'<div aria-live="polite">{"".join(reasons)}</div></fieldset>'
    )


def marked_up(text: str) -> str:
    """Return text as HTML: what stands between backticks is code, and nothing else means more."""
    return _CODE.sub(r"<code>\1</code>", html.escape(" ".join(text.split())))


# --- the files


def _folder() -> Any:
    return resources.files("llmcourse_classroom.exercises").joinpath("quizzes")


def topics() -> list[str]:
    """Return the names of the quizzes that there are."""
    folder = _folder()
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def parsed(text: str, name: str) -> tuple[QuizQuestion, ...]:
    """Return the questions in the TOML of a file; a ValueError names the file and the question."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} is not TOML: {error}") from None
    questions = given.get("question")
    if given.keys() != {"question"} or not _is_tables(questions):
        raise ValueError(f"{name} must hold [[question]] tables, and nothing else")
    found = []
    for number, question in enumerate(questions, start=1):
        try:
            found.append(_question(question))
        except ValueError as error:
            raise ValueError(f"{name}, question {number}: {error}") from None
    return tuple(found)


def _is_tables(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(each, dict) for each in given) and given != []


def _question(given: Mapping[str, Any]) -> QuizQuestion:
    _names(given, {"text", "option"}, "a question")
    options = given["option"]
    if not (_is_tables(options) and FEWEST <= len(options) <= MOST):
        raise ValueError(f"give {FEWEST} or {MOST} [[question.option]] tables")
    found = []
    for letter, written in zip(LETTERS, options, strict=False):
        where, option = f"option {letter}", {"right": False} | written
        _names(option, {"text", "right", "why"}, where)
        if not isinstance(option["right"], bool):
            raise ValueError(f"{where}: right must be true, or left out")
        text, why = (_text(option, name, where) for name in ("text", "why"))
        found.append(Option(letter, text, option["right"], why))
    right = [place for place, option in enumerate(found) if option.right]
    if len(right) != 1:
        raise ValueError(f"{len(right)} options are right: exactly one must be")
    return QuizQuestion(_text(given, "text", "the question"), tuple(found), right[0])


def _names(given: Mapping[str, Any], needed: set[str], what: str) -> None:
    if missing := sorted(needed - given.keys()):
        raise ValueError(f"{what} has no {' and no '.join(missing)}")
    if unknown := sorted(given.keys() - needed):
        raise ValueError(f"{what} has {unknown}; it may have {sorted(needed)}")


def _text(given: Mapping[str, Any], name: str, what: str) -> str:
    if not (isinstance(given[name], str) and given[name].strip()):
        raise ValueError(f"{what}: {name} must be a text that says something")
    return given[name].strip()
