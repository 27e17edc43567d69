"""The home page: a run that the reader starts, a card for each phase, and the laps as a map.

Directives
    ```{home-run}```      the live run of `small_run`, with the recorded one behind it
    ```{phase-cards}```   the seven phases, each with a drawing and a number of a recorded run
    ```{lap-map}```       the chapters as stops of a line for each lap, with the reader's own marks

Style and script of the page, home.css and home.js, are loaded by no other.
"""

from pathlib import Path
from typing import Any, NamedTuple

from course import PHASES, document_of, lap_marks, laps_of, link, parts_of
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html._assets import _CascadingStyleSheet, _JavaScript
from sphinx.util.docutils import SphinxDirective

from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widgets import LiveRun

HOME, START = "book/intro", "chapters/01_whole_run"
DRAWINGS = Path(__file__).parents[1] / "drawings"
MADE_FROM = (
    *(f"book/drawings/{name}.svg" for name in PHASES),
    "book/_ext/home.py",
    "llmcourse_classroom/widgets/live.py",
    *(f"llmcourse_classroom/{name}.json" for name in ("capstone", "live", "losses")),
    *(f"llmcourse_classroom/js/{name}" for name in ("kit.css", "kit.js", "page.js")),
    *(
        f"llmcourse_classroom/js/live_{name}.js"
        for name in ("curve", "page", "rows", "run", "thread")
    ),
)
"""Files with which the page changes."""

WHAT = (
    "The next pieces of text are read, as numbers.",
    "The model predicts each next token, a word or a piece of one.",
    "The predictions are compared with what came: one number says how wrong they were.",
    "For every weight: would the loss rise or fall with it, and how fast?",
    "If several processors work together, they average what they found in phase 4.",
    "Every weight moves a little.",
    "Now and then everything is saved, so that a crash loses little.",
)
"""What happens in each phase."""

SHOWN = ("phases", "loss", "words")
"""Parts of the live run that a stranger sees."""
WITHOUT_SCRIPTS = (
    '<noscript><p class="home-without-scripts">Without scripts this page cannot train; '
    "here is a recorded run.</p></noscript>"
)


class Number(NamedTuple):
    """A number of a recorded run."""

    number: str
    told: str


def in_tens(value: float) -> str:
    """Write a small number as one digit times a power of ten."""
    digit, power = f"{value:.0e}".split("e-")
    raised = str(int(power)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digit} · 10⁻{raised}"


def numbers() -> list[Number]:
    """Return one number for each phase, of what has been recorded."""
    home, losses = recorded_runs("live"), recorded_runs("losses")["runs"]
    run, shares, ranks = (home[part]["small"]["0"] for part in ("run", "phases", "ranks"))
    funnel = recorded_runs("capstone")["runs"]["whole"]["0"]["stages"]["funnel"]["facts"]
    killed, whole = (recorded_runs("capstone")["runs"][name]["0"] for name in ("killed", "whole"))
    equal = sum(killed["hashes"][name] == found for name, found in whole["hashes"].items())
    kill = next(event for event in killed["log"] if event["event"] == "kill")
    last = run["losses"][-20:]
    apart = max(abs(a - b) for a, b in zip(ranks["1"], ranks["2"], strict=True))

    def mean(name: str) -> str:
        return f"{sum(losses[name]) / len(losses[name]):.2f}"

    return [
        Number(
            f"{funnel['left']:,} of {funnel['documents']:,}",
            "pages of a small made-up web were worth training on",
        ),
        Number(
            f"{mean('Llama, no attention')} → {mean('Llama')}",
            "the loss of a Llama that sees a single word, and of one that may look back",
        ),
        Number(
            f"{run['losses'][0]:.2f} → {sum(last) / len(last):.2f}",
            f"the loss of the recorded run in {len(run['losses'])} steps (mean of the last 20)",
        ),
        Number(
            f"{100 * shares['backward']:.0f}\u00a0%",
            f"of a step's time on one machine; forward takes {100 * shares['forward']:.0f}\u00a0%",
        ),
        Number(
            in_tens(apart),
            "the most by which the loss of two processors differed from that of one",
        ),
        Number(
            f"{mean('Llama, SGD')} → {mean('Llama')}",
            "the loss with the plainest rule for moving weights, and with the usual one, AdamW",
        ),
        Number(
            f"{equal} of {len(whole['hashes'])}",
            f"results the same, bit for bit, though one run was killed at step {kill['step']}",
        ),
    ]


class HomeDirective(SphinxDirective):
    """What stands on the home page."""

    def run(self) -> list[nodes.Node]:
        for path in MADE_FROM:
            self.env.note_dependency(path)
        return self.made()

    def made(self) -> list[nodes.Node]:
        """Return the nodes of the directive."""
        raise NotImplementedError


class HomeRun(HomeDirective):
    """The live run."""

    def made(self) -> list[nodes.Node]:
        """Return the widget in its page form."""
        page = f"{WITHOUT_SCRIPTS}{LiveRun.recorded('small', show=SHOWN).page()}"
        return [nodes.raw("", f'<div class="home-run">{page}</div>', format="html")]


class PhaseCards(HomeDirective):
    """Seven cards, each a link to the first chapter of its phase, and one to begin with."""

    def made(self) -> list[nodes.Node]:
        """Return the cards as a list."""
        cards = nodes.bullet_list(classes=["home-cards"])
        for number, (name, what, found) in enumerate(
            zip(PHASES, WHAT, numbers(), strict=True), start=1
        ):
            first = document_of(parts_of(self.env)[number]["chapters"][0])
            card = nodes.list_item(classes=["home-card", f"home-phase-{number}"])
            drawing = (DRAWINGS / f"{name}.svg").read_text(encoding="utf8")
            card += nodes.raw("", drawing, format="html")
            card += nodes.paragraph("", "", link(self.env, first, f"{number} {name}"))
            card += nodes.paragraph("", what)
            told = nodes.paragraph("", "", nodes.strong("", found.number), classes=["home-number"])
            told += nodes.Text(f" {found.told}")
            card += told
            cards += card
        start = nodes.list_item(classes=["home-card", "home-begin"])
        start += nodes.paragraph("", "", link(self.env, START, "Start"))
        start += nodes.paragraph("", "All seven of them, in one run, on one page: chapter 01.")
        cards += start
        return [cards]


class LapMap(HomeDirective):
    """The laps as lines, every chapter a stop."""

    def made(self) -> list[nodes.Node]:
        """Return a list of stops for each lap; the front matter comes before the first."""
        chapters = {
            chapter["number"]: (place, chapter)
            for place, part in enumerate(parts_of(self.env))
            for chapter in part["chapters"]
        }
        made: list[nodes.Node] = []
        marks = lap_marks(self.env)
        before = [number for number in chapters if number not in marks]
        for mark, lap in laps_of(self.env):
            made.append(nodes.paragraph("", f"{mark} {lap['lap']}", classes=["home-lap-name"]))
            stops = nodes.bullet_list(classes=["home-lap"])
            for number in [*before, *lap["chapters"]]:
                stops += self._stop(*chapters[number])
            made.append(stops)
            before = []
        return made

    def _stop(self, part: int, chapter: dict[str, Any]) -> nodes.list_item:
        hue = f"home-phase-{part}" if 1 <= part <= len(PHASES) else "home-phase-none"
        sign = nodes.inline("", chapter["number"], classes=["home-sign"])
        title = link(self.env, document_of(chapter), chapter["title"])
        text = nodes.paragraph("", "", sign, nodes.Text(" "), title)
        return nodes.list_item("", text, classes=["home-stop", hue])


def load_own(
    _app: Sphinx, document: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Load style and script of the home page there alone; they are no part of the bundle."""
    if document == HOME:
        context["css_files"].append(_CascadingStyleSheet("_static/home.css"))
        context["script_files"].append(_JavaScript("_static/home.js"))


def setup(app: Sphinx) -> dict[str, object]:
    app.add_directive("home-run", HomeRun)
    app.add_directive("phase-cards", PhaseCards)
    app.add_directive("lap-map", LapMap)
    app.connect("html-page-context", load_own, priority=960)  # after assets.py
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
