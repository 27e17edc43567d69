"""The home page: a run that the reader starts, a card for each phase, and the two laps as a map.

Directives
    ```{home-run}```      the live run of `small_run`, with the recorded one behind it
    ```{phase-cards}```   the seven phases, each with a drawing and a number of a recorded run
    ```{lap-map}```       the chapters as stops of two lines, with the reader's own marks

Style and script of the page, home.css and home.js, are loaded by no other.
"""

from typing import Any, NamedTuple

from course import MARKS, PHASES, curriculum_of, document_of, link, parts_of
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html._assets import _CascadingStyleSheet, _JavaScript
from sphinx.util.docutils import SphinxDirective

from llmcourse.course.recorded import recorded_runs
from llmcourse.course.widgets import LiveRun

HOME, START = "book/intro", "chapters/01_whole_run"
MADE_FROM = (
    "book/_ext/home.py",
    "llmcourse/course/widgets/live.py",
    *(f"llmcourse/course/{name}.json" for name in ("capstone", "home", "losses")),
    *(f"llmcourse/course/js/{name}" for name in ("kit.css", "kit.js", "live_run.js", "page.js")),
)
"""Files with which the page changes."""

WHAT = (
    "The next pieces of text are read, as numbers.",
    "The model predicts each next token, a word or a piece of one.",
    "The predictions are compared with what came: one number says how wrong they were.",
    "For every weight: would the loss rise or fall with it, and how fast?",
    "If several processors work together, they agree on one answer to that.",
    "Every weight moves a little.",
    "Now and then everything is saved, so that a crash loses little.",
)
"""What happens in each phase."""

DRAWINGS = (
    '<path d="M6 12h68M6 28h44M6 44h68"/><path d="M92 8h14v8H92zM110 8h20v8h-20zM92 24h24v8H92z'
    'M120 24h10v8h-10zM92 40h10v8H92zM106 40h24v8h-24z" fill="currentColor" stroke="none"/>'
    '<path d="M80 28h6" stroke-dasharray="2 2"/>',
    '<path d="M14 12 52 20M14 12 52 44M14 28 52 20M14 28 52 44M14 44 52 20M14 44 52 44'
    'M52 20 90 12M52 20 90 44M52 44 90 12M52 44 90 44M90 12 128 28M90 44 128 28"/>'
    '<g fill="currentColor" stroke="none"><circle cx="14" cy="12" r="4"/><circle cx="14" cy="28" '
    'r="4"/><circle cx="14" cy="44" r="4"/><circle cx="52" cy="20" r="5"/><circle cx="52" cy="44" '
    'r="5"/><circle cx="90" cy="12" r="5"/><circle cx="90" cy="44" r="5"/>'
    '<circle cx="128" cy="28" r="7"/></g>',
    '<path d="M8 6C24 8 30 40 60 44S110 47 134 47"/><path d="M8 52h126" stroke-dasharray="4 4"/>'
    '<circle cx="60" cy="44" r="5" fill="currentColor" stroke="none"/>',
    '<path d="M126 28 94 14M126 28 94 42M90 14 56 14M90 14 56 42M90 42 56 14M90 42 56 42M52 14 20 28'
    'M52 42 20 28"/><path d="M102 12 94 14l5 7M102 44l-8-2 5-7M28 20l-8 8 11 2"/><circle cx="128" '
    'cy="28" r="7" fill="currentColor" stroke="none"/><circle cx="92" cy="14" r="4"/><circle '
    'cx="92" cy="42" r="4"/><circle cx="54" cy="14" r="4"/><circle cx="54" cy="42" r="4"/>'
    '<circle cx="16" cy="28" r="4"/>',
    '<path d="M52 12h32M88 18v20M84 44H52M48 38V18M79 8l6 4-6 4M92 33l-4 6-4-6M57 40l-6 4 6 4'
    'M44 23l4-6 4 6"/><g fill="currentColor" stroke="none"><circle cx="46" cy="12" r="6"/>'
    '<circle cx="90" cy="12" r="6"/><circle cx="90" cy="44" r="6"/><circle cx="46" cy="44" r="6"/>'
    "</g>",
    '<path d="M10 4C24 64 108 64 130 4"/><path d="M18 20 36 42 54 45 68 49" stroke-dasharray="2 4"/>'
    '<circle cx="18" cy="16" r="5"/><circle cx="70" cy="43" r="6" fill="currentColor" '
    'stroke="none"/>',
    '<path d="M12 12h20l8 8v26H12zM58 12h20l8 8v26H58zM104 12h20l8 8v26h-28z"/><path d="M18 32h16'
    'M64 32h16M18 38h10M64 38h10M42 28h12M88 28h12"/><path d="m111 33 5 6 9-12" stroke-width="3"/>',
)
"""Of each phase, 144 x 56; lines have the phase's hue."""


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
    home, losses = recorded_runs("home"), recorded_runs("losses")
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
            "pages of a small crawl were worth reading",
        ),
        Number(
            f"{mean('Llama, no attention')} → {mean('Llama')}",
            "the loss of a Llama without attention, and with it",
        ),
        Number(
            f"{run['losses'][0]:.2f} → {sum(last) / len(last):.2f}",
            f"the loss of the recorded run above, in {len(run['losses'])} steps",
        ),
        Number(
            f"{100 * shares['backward']:.0f} %",
            f"of a step's time on one machine, {100 * shares['forward']:.0f} % in forward",
        ),
        Number(
            in_tens(apart),
            "nats: the most by which a loss of two processes differed from that of one",
        ),
        Number(
            f"{mean('Llama, SGD')} → {mean('Llama')}",
            "the loss after plain gradient steps, and after AdamW's",
        ),
        Number(
            f"{equal} of {len(whole['hashes'])}",
            f"results equal bit for bit, though one run was killed at step {kill['step']}",
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
        page = f"{WITHOUT_SCRIPTS}{LiveRun.of_home_page().page()}"
        return [nodes.raw("", f'<div class="home-run">{page}</div>', format="html")]


class PhaseCards(HomeDirective):
    """Seven cards, each a link to the first chapter of its phase, and one to begin with."""

    def made(self) -> list[nodes.Node]:
        """Return the cards as a list."""
        cards = nodes.bullet_list(classes=["home-cards"])
        for number, (name, what, drawing, found) in enumerate(
            zip(PHASES, WHAT, DRAWINGS, numbers(), strict=True), start=1
        ):
            first = document_of(parts_of(self.env)[number]["chapters"][0])
            card = nodes.list_item(classes=["home-card", f"home-phase-{number}"])
            card += nodes.raw(
                "",
                '<svg viewBox="0 0 144 56" aria-hidden="true" fill="none" stroke="currentColor" '
                f'stroke-width="2" stroke-linecap="round">{drawing}</svg>',
                format="html",
            )
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
    """Both laps as lines, every chapter a stop."""

    def made(self) -> list[nodes.Node]:
        """Return a list of stops for each lap; the front matter comes before the first."""
        chapters = {
            chapter["number"]: (place, chapter)
            for place, part in enumerate(parts_of(self.env))
            for chapter in part["chapters"]
        }
        made: list[nodes.Node] = []
        laps = curriculum_of(self.env)["laps"]
        in_laps = {number for lap in laps for number in lap["chapters"]}
        before = [number for number in chapters if number not in in_laps]
        for mark, lap in zip(MARKS, laps, strict=True):
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
