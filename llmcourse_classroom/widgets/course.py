"""The map of the course, with what a reader has marked and passed."""

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import traitlets

from llmcourse_classroom.widget import Widget

READ = ("reading", "done")
"""How far a chapter can be, beside not begun."""


def _whole() -> dict[str, list[dict[str, Any]]]:
    file = resources.files("llmcourse_classroom").joinpath("curriculum.json")
    return json.loads(file.read_text(encoding="utf8"))


def curriculum() -> list[dict[str, Any]]:
    """Return the chapters in the order of their numbers: number, slug, title, part and lap.

    The lap counts from 1, `turn` is the place in the order of the laps; the front matter has
    neither.
    """
    whole = _whole()
    laps = [(n, number) for n, lap in enumerate(whole["laps"], 1) for number in lap["chapters"]]
    places = {number: {"lap": n, "turn": turn} for turn, (n, number) in enumerate(laps, 1)}
    return [
        {name: chapter[name] for name in ("number", "slug", "title")}
        | {"part": part["part"], **places.get(chapter["number"], {})}
        for part in whole["parts"]
        for chapter in part["chapters"]
    ]


class ProgressMap(Widget):
    """The chapters by part, each not begun, being read or done; the browser keeps what is set.

    Args:
        chapters: each with number, title, part, slug and perhaps minutes, lap and turn, as
            `curriculum` gives.
        progress: number of a chapter to "reading" or "done"; wins over what the browser keeps.
        exercises: what `grading.progress.summary` returns; the browser keeps the better it has had.

    Raises:
        ValueError: if a chapter lacks a name or has the number of another.
    """

    script = "progress_map.js"
    alt = (
        "The chapters of the course by part.  With scripts, each can be marked as not begun, "
        "reading or done, and the marks are kept in this browser."
    )

    chapters = traitlets.List(traitlets.Dict()).tag(sync=True)
    laps = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """What the laps of the course are called, if these are its chapters."""
    progress = traitlets.Dict().tag(sync=True)
    exercises = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        chapters: Sequence[Mapping[str, Any]] | None = None,
        **state: Any,
    ) -> None:
        given = curriculum() if chapters is None else chapters
        laps = [lap["lap"] for lap in _whole()["laps"]] if chapters is None else []
        super().__init__(chapters=_listed(given), laps=laps, **state)

    @traitlets.validate("progress")
    def _known(self, proposal: dict[str, Any]) -> dict[str, str]:
        """Return the progress, if it is one; a chapter of another edition is kept."""
        for number, state in proposal["value"].items():
            if not re.fullmatch(r"[0-9]{2}", number):
                raise traitlets.TraitError(f"a chapter's number is such as '00', not {number!r}")
            if state not in READ:
                told = f"chapter {number} must be 'reading' or 'done', or left out, not {state!r}"
                raise traitlets.TraitError(told)
        return dict(sorted(proposal["value"].items()))

    @traitlets.validate("exercises")
    def _summed(self, proposal: dict[str, Any]) -> dict[str, Any]:
        given = proposal["value"]
        if given and not (given.get("format") == 1 and isinstance(given.get("chapters"), dict)):
            raise traitlets.TraitError("exercises must be what progress.summary() returns")
        for number, sums in given.get("chapters", {}).items():
            if not (re.fullmatch(r"[0-9]{2}", number) and _are_sums(sums)):
                raise traitlets.TraitError(f"exercises: chapter {number} cannot have {sums}")
        return given


def _are_sums(sums: Any) -> bool:
    try:
        passed, of, points, of_points = (sums[n] for n in ("passed", "of", "points", "of_points"))
        return 0 <= passed <= of and of > 0 and 0 <= points <= of_points
    except (TypeError, KeyError):
        return False


def _listed(chapters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    listed = []
    for chapter in chapters:
        if missing := [n for n in ("number", "slug", "title", "part") if n not in chapter]:
            raise ValueError(f"chapter {dict(chapter)} has no {missing}")
        names = ("number", "title", "part", "minutes", "lap", "turn")
        kept = {n: chapter[n] for n in names if n in chapter}
        listed.append({**kept, "href": f"{chapter['number']}_{chapter['slug']}.html"})
    numbers = [chapter["number"] for chapter in listed]
    if len(set(numbers)) != len(numbers):
        raise ValueError("two chapters have the same number: give every chapter one of its own")
    return listed
