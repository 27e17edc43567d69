"""What the book adds to Sphinx: the phase strip, the course map, and docstrings that render.

Directives
    ```{phases} 3```     the seven phases, the third lit; several numbers, or "all"
    ```{head} 19```      a chapter's drawing, question, time, lap, and what it needs
    ```{checked} 12```   how many statements of a page are checked
    ```{coursemap}```    all chapters by part, as links

Each chapter carries the mark of its lap in the contents, and its foot leads on in its lap.
"""

import json
import re
from inspect import isfunction
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from drawings import drawing
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from llmcourse_classroom.look import read_look

PHASES = tuple(read_look()["phases"])
CURRICULUM = "llmcourse_classroom/curriculum.json"
# Stands for a colon while napoleon reads a docstring; a character that no docstring has.
COLON = "\ue000"


def curriculum_of(env: BuildEnvironment) -> dict[str, list[dict]]:
    """Return the curriculum by part and by lap."""
    return json.loads((Path(env.srcdir) / CURRICULUM).read_text(encoding="utf8"))


def parts_of(env: BuildEnvironment) -> list[dict]:
    """Return the curriculum by part; the page is rebuilt when it changes."""
    env.note_dependency(CURRICULUM)
    return curriculum_of(env)["parts"]


def laps_of(env: BuildEnvironment) -> list[tuple[str, dict]]:
    """Return the laps behind their marks ①, ②, ..., as contents, map and foot of a page have."""
    return [(chr(ord("①") + place), lap) for place, lap in enumerate(curriculum_of(env)["laps"])]


def lap_marks(env: BuildEnvironment) -> dict[str, str]:
    """Return the mark of each chapter's lap, by number; the front matter has none."""
    return {number: mark for mark, lap in laps_of(env) for number in lap["chapters"]}


def lap_of(env: BuildEnvironment, number: str) -> list[str]:
    """Return what the lap of a chapter is called, such as "First lap"; nothing if it has none."""
    laps = [lap for _, lap in laps_of(env) if number in lap["chapters"]]
    return [lap["lap"].partition(":")[0] for lap in laps]


def reading_order(env: BuildEnvironment) -> list[str]:
    """Return the chapters in the order of the laps; what belongs to no lap comes first."""
    by_number = {c["number"]: c for part in curriculum_of(env)["parts"] for c in part["chapters"]}
    of_laps = [number for lap in curriculum_of(env)["laps"] for number in lap["chapters"]]
    before = [number for number in by_number if number not in of_laps]
    order = [document_of(by_number[number]) for number in [*before, *of_laps]]
    return [document for document in order if document in env.found_docs]


def document_of(chapter: dict) -> str:
    """Return the name that Sphinx has for a chapter."""
    return f"chapters/{chapter['number']}_{chapter['slug']}"


def phase_of(env: BuildEnvironment, document: str) -> int | None:
    """Return the phase of a chapter and of its exercises, from 1 to 7; None of all other pages."""
    found = re.match(r"(?:chapters|exercises)/(\d\d)_", document)
    for phase, part in enumerate(curriculum_of(env)["parts"][: len(PHASES) + 1]):
        if phase and found and found[1] in {chapter["number"] for chapter in part["chapters"]}:
            return phase
    return None


def colour_of_phase(app: Sphinx, doctree: nodes.document) -> None:
    """Mark a page with its phase, whose hue its head, widgets and figures have."""
    phase = phase_of(app.env, app.env.docname)
    section = next(iter(doctree.findall(nodes.section)), None)
    if phase and section is not None:
        section["classes"].append(f"phase-{phase}")


def link(env: BuildEnvironment, document: str, label: str) -> pending_xref:
    """Return a link to a document; Sphinx warns when it is missing."""
    return pending_xref(
        "",
        nodes.inline("", label),
        refdomain="std",
        reftype="doc",
        reftarget=f"/{document}",
        refexplicit=True,
        refwarn=True,
        refdoc=env.docname,
    )


def unseen(text: str) -> nodes.inline:
    """Return text for screen readers."""
    return nodes.inline("", text, classes=["visually-hidden"])


class PhaseStrip(SphinxDirective):
    """The seven phases at the head of a chapter, each a link to the first chapter of its part."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        lit = self._lit()
        every = len(lit) == len(PHASES)
        strip = nodes.bullet_list(classes=["phase-strip", "all"] if every else ["phase-strip"])
        for number, name in enumerate(PHASES, start=1):
            paragraph = nodes.paragraph()
            paragraph += self._label(number, name)
            if number in lit and not every:
                paragraph += unseen(" (this chapter)")
            own = "lit" if number in lit else "unlit"
            strip += nodes.list_item("", paragraph, classes=[own, f"phase-{number}"])
        heading = nodes.paragraph("", "Phases of a training step:", classes=["visually-hidden"])
        return [heading, strip]

    def _lit(self) -> set[int]:
        words = self.arguments[0].split()
        if words == ["all"]:
            return set(range(1, len(PHASES) + 1))
        if all(word in "1234567" and len(word) == 1 for word in words):
            return {int(word) for word in words}
        raise self.error(f"phases: {self.arguments[0]!r} is not 'all' or numbers from 1 to 7")

    def _label(self, number: int, name: str) -> nodes.Node:
        part = parts_of(self.env)[number]  # part number = phase number
        document = document_of(part["chapters"][0])
        if document == self.env.docname:
            return nodes.inline("", f"{number} {name}")
        return link(self.env, document, f"{number} {name}")


class Head(SphinxDirective):
    """The card at the head of a chapter: drawing, question, time, lap, and what it needs."""

    required_arguments = 1
    option_spec: ClassVar = {"reading": str, "running": str, "needs": str.split}

    def run(self) -> list[nodes.Node]:
        number = self.arguments[0]
        all_chapters = {c["number"]: c for part in parts_of(self.env) for c in part["chapters"]}
        part, place = self._place()
        facts = nodes.container(classes=["chapter-facts"])
        question = all_chapters[number]["question"]
        facts += nodes.paragraph("", question, classes=["chapter-question"])
        facts += nodes.paragraph("", " · ".join(self._about()))
        needs = [all_chapters[other] for other in self.options.get("needs", ())]
        if needs:
            line = nodes.paragraph("", nodes.Text("You need"), classes=["chapter-needs"])
            for chapter in needs:
                label = f"{chapter['number']} {chapter['title']}"
                line += [nodes.Text(" "), link(self.env, document_of(chapter), label)]
            facts += line
        picture = nodes.raw("", drawing(part, place), format="html")
        return [nodes.container("", picture, facts, classes=["chapter-head"])]

    def _place(self) -> tuple[int, int]:
        """Return where the chapter stands: the number of its part, and its place there."""
        for number, part in enumerate(parts_of(self.env)):
            for place, chapter in enumerate(part["chapters"]):
                if chapter["number"] == self.arguments[0]:
                    return number, place
        raise self.error(f"head: there is no chapter {self.arguments[0]!r}")

    def _about(self) -> list[str]:
        number = self.arguments[0]
        marks = lap_marks(self.env)
        lap = [f"{marks[number]} {name.lower()}" for name in lap_of(self.env, number)]
        minutes, running = self.options["reading"], self.options["running"]
        return [f"{minutes} minutes to read, {running} to run", *lap]


class Checked(SphinxDirective):
    """How many statements of a page are checked; a script adds the button that shows the checks."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        number = int(self.arguments[0])
        what = (
            "1 statement of this page is"
            if number == 1
            else f"{number} statements of this page are"
        )
        text = f"{what} checked each time that it is built."
        return [nodes.paragraph("", text, classes=["course-checked"])]


class CourseMap(SphinxDirective):
    """Every chapter of the curriculum, as a link."""

    def run(self) -> list[nodes.Node]:
        whole = nodes.container(classes=["course-map"])
        for mark, lap in laps_of(self.env):
            whole += nodes.paragraph("", f"{mark} {lap['lap']}", classes=["course-map-lap"])
        marks = lap_marks(self.env)
        for part in parts_of(self.env):
            whole += nodes.rubric("", part["part"])
            chapters = nodes.bullet_list(classes=["course-map-part"])
            for chapter in part["chapters"]:
                chapters += self._entry(chapter, marks.get(chapter["number"], ""))
            whole += chapters
        return [whole]

    def _entry(self, chapter: dict, mark: str) -> nodes.list_item:
        label = f"{chapter['number']} {chapter['title']}"
        paragraph = nodes.paragraph("", "", link(self.env, document_of(chapter), label))
        paragraph += nodes.inline("", f" {mark}", classes=["lap"])
        return nodes.list_item("", paragraph, classes=["course-map-chapter"])


def mark_contents(_app: Sphinx, env: BuildEnvironment) -> None:
    """Put the mark of its lap behind each chapter in the contents."""
    marks = lap_marks(env)
    for document, contents in env.tocs.items():
        mark = marks.get(document.removeprefix("chapters/")[:2])
        if document.startswith("chapters/") and mark:
            title = next(contents.findall(nodes.reference))
            if not title.astext().endswith(mark):  # Sphinx keeps the contents between builds
                title += nodes.inline("", f" {mark}", classes=["lap"])


def lead_on_in_the_lap(
    app: Sphinx, document: str, _template: str, context: dict[str, object], _doctree: object
) -> None:
    """Let the foot of a page lead to its neighbours in the order of the laps.

    From chapter to chapter; from exercises back to their chapter and on to the next.  A chapter
    names its exercises in its text.  At the ends it is the neighbour in the contents.
    """
    order = reading_order(app.env)
    chapter = document.replace("exercises/", "chapters/")
    if chapter not in order:
        return
    place = order.index(chapter)
    before = [chapter] if chapter != document else order[max(place - 1, 0) : place]
    marks = lap_marks(app.env)
    for side, found in {"prev": before, "next": order[place + 1 : place + 2]}.items():
        for other in found:  # one, or none
            title = app.builder.render_partial(app.env.titles[other])["title"]
            mark = marks.get(other.removeprefix("chapters/")[:2], "")
            link = app.builder.get_relative_uri(document, other)
            context[side] = {"link": link, "title": f"{title} {mark}".rstrip()}


# The text under a field is text.  Napoleon takes "Bytes: how many" in it for a type "Bytes", so
# the colons of the first line are hidden while napoleon, which runs at priority 500, reads it.
def hide_colons(
    _app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Replace the colons of a field's first line, before napoleon."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", COLON)


def show_colons(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Put the colons back, after napoleon; drop what NamedTuple says about every field."""
    lines[:] = [
        line.replace(COLON, ":") for line in lines if not line.startswith("Alias for field number")
    ]


def link_chapters(
    app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Make "Taught in: chapters/NN_slug.ipynb" a sentence that links the chapters."""
    if what != "module":
        return
    titles = {
        document_of(chapter): f"{chapter['number']} {chapter['title']}"
        for part in parts_of(app.env)
        for chapter in part["chapters"]
    }
    for place, line in enumerate(lines):
        if not line.startswith("Taught in: "):
            continue
        documents = re.findall(r"(chapters/\w+)\.ipynb", line)
        named = [f":doc:`{titles.get(name, name)} </{name}>`" for name in documents]
        lines[place] = f"*Taught in:* {', '.join(named)}."


def skip_others(_app: Sphinx, _what: str, name: str, found: object, *_: object) -> bool | None:
    """Leave out a named tuple's `__new__`, whose fields say it all, and methods of torch."""
    of_torch = isfunction(found) and found.__module__.startswith("torch.")
    return True if name == "__new__" or of_torch else None


def setup(app: Sphinx) -> dict[str, object]:
    app.add_directive("phases", PhaseStrip)
    app.add_directive("head", Head)
    app.add_directive("checked", Checked)
    app.add_directive("coursemap", CourseMap)
    app.connect("doctree-read", colour_of_phase)
    app.connect("env-updated", mark_contents)
    app.connect("html-page-context", lead_on_in_the_lap)
    app.connect("autodoc-skip-member", skip_others)
    app.connect("autodoc-process-docstring", hide_colons, priority=400)
    app.connect("autodoc-process-docstring", show_colons, priority=600)
    app.connect("autodoc-process-docstring", link_chapters)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
