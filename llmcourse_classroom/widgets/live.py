"""A widget that trains a Llama in the reader's own browser."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import traitlets

from llmcourse import model as models
from llmcourse import train
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.corpus.story_grammar import STORY_GRAMMAR
from llmcourse.data.tokenizer.files import unspell
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.state import Choice, Limited, Whole, one_of
from llmcourse_classroom.widget import Widget
from llmcourse_classroom.widgets.run import MOST_CHARACTERS, MOST_STEPS

MOST_WEIGHTS = 1_000_000
"""Of the model: a browser has one thread for it."""

SHAPE = (
    "num_layers",
    "width",
    "num_heads",
    "num_kv_heads",
    "head_size",
    "hidden",
    "vocab_size",
    "context_length",
    "rope_theta",
    "norm_eps",
)
"""What the page is told of the model."""

SETTINGS = ("batch_size", "steps", "learning_rate", "warmup_steps", "final_share", "clip_norm")
"""What it is told of the run."""

FIXED: dict[str, Any] = {
    "schedule": "cosine",
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
    "dropout": 0.0,
    "accumulate": 1,
    "batch_ramp": "",
    "corpus": "stories",
    "without": "nothing",
}
"""What it cannot change."""

ROWS = {
    "names": [" Tom", " Mia", " Ben", " Lily", " Max", " Anna"],
    "numbers": [" two", " three", " four", " five", " six"],
    "colours": [" red", " blue", " green", " yellow", " white"],
    "never seen": ["#", "$", "%", "~"],
}
"""Rows of the embedding that are shown, those that the vocabulary has."""

PARTS = ("phases", "loss", "words", "rows")
"""What can be shown of a run: the time of its phases, its loss, what it writes, embedding rows."""


def small_run() -> train.TrainConfig:
    """135,488 weights and 400 steps: little sentences after some ten seconds in a browser."""
    shape = replace(
        models.stories(), num_layers=2, width=64, head_size=16, hidden=160, context_length=64
    )
    return train.TrainConfig(model=shape, batch_size=8, steps=400)


def letters_run() -> train.TrainConfig:
    """The small run letter by letter, at a constant rate: what chapter 03 turns the rate of."""
    config = small_run().replace(warmup_steps=0, final_share=1.0)
    return replace(config, model=replace(config.model, vocab_size=260))


class LiveRun(Widget):
    """A Llama that learns to write stories while the reader looks on, in their own browser.

    Forward, backward and AdamW are llmcourse_classroom/js/live; the stories are those of
    `corpus.stories`, told there.  Nothing runs before the reader presses a button, nor while the
    widget is out of sight.  The recorded run lies behind; it is all there is on paper, and where a
    browser cannot train.

    Args:
        config: shape of the model and settings of the run.
        merges: of the tokenizer: pairs of byte strings, in the order in which they were learnt.
        floor: the entropy of the stories in these tokens, in nats per token.
        losses: of step 1, 2, ... of a recorded run, in nats per token.
        samples: step of that run to what it wrote then.
        rows: names of groups, and tokens of each, whose rows of the embedding are shown; None for
            names, numbers, colours and tokens that no story has.
        show: which of PARTS, from top to bottom.
        bounds: of a subclass's own state, see `Widget`.
        state: learning_rate, pace, step (of the recorded run, its last if not given; then of the
            reader's).

    Raises:
        ValueError: if the run has settings that the page does not know, the vocabulary has no room
            for the merges or no such token, losses and samples do not fit to the steps, or show has
            another part.
    """

    script = "live_run.js"
    alt = (
        "A small Llama that learns to write stories in your own browser: its loss step by step on "
        "the way from ln V down to the entropy of the stories, what it writes, rows of its "
        "embedding, and the share of every phase of a step in its time."
    )

    config = traitlets.Dict().tag(sync=True)
    text = traitlets.Dict().tag(sync=True)
    """The grammar, the merges as pairs of ids, and the token that ends a story."""
    floor = traitlets.Float().tag(sync=True)
    losses = traitlets.List(traitlets.Float()).tag(sync=True)
    samples = traitlets.List().tag(sync=True)
    """Pairs of a step and a text, in order."""
    rows = traitlets.List().tag(sync=True)
    """Pairs of the name of a group and pairs of a token and its id."""
    show = traitlets.List(traitlets.Unicode()).tag(sync=True)
    learning_rate = Limited(6e-3, low=1e-4, high=1.0, step=1e-4, label="learning rate")
    pace = Choice(("full speed", "5 steps a second", "1 step a second"))
    step = Whole(0, low=0, high=MOST_STEPS, step=1, label="step")

    def __init__(
        self,
        config: train.TrainConfig,
        merges: Sequence[tuple[bytes, bytes]],
        *,
        floor: float,
        losses: Sequence[float] = (),
        samples: Mapping[int, str] | None = None,
        rows: Mapping[str, Sequence[str]] | None = None,
        show: Sequence[str] = PARTS,
        bounds: Mapping[str, Any] | None = None,
        **state: Any,
    ) -> None:
        # What the page could not do is refused here, where somebody reads the message.
        for part in show:
            one_of("show", part, PARTS)
        _check_config(config)
        _check_recorded(config.steps, losses, samples or {})
        if not 0 < floor < math.log(config.model.vocab_size):
            raise ValueError(f"floor must be above 0 and below ln V, got {floor}")
        tokens, pairs = _vocabulary(merges, config.model.vocab_size)
        classes = STORY_GRAMMAR.classes.items()
        super().__init__(
            # The page trains and tells stories by itself: it gets settings and a grammar, no text.
            config={
                **{name: getattr(config.model, name) for name in SHAPE},
                **{name: config.flat()[name] for name in SETTINGS},
            },
            text={
                "grammar": {
                    "classes": {kind: [dict(value) for value in of] for kind, of in classes},
                    "variables": dict(STORY_GRAMMAR.variables),
                    "plots": [[list(beat) for beat in plot] for plot in STORY_GRAMMAR.plots],
                },
                "merges": pairs,
                "end": END_OF_TEXT,
            },
            floor=floor,
            # Three digits draw the same curve, and keep the page small.
            losses=[float(f"{value:.3g}") for value in losses],
            samples=[[at, text[:MOST_CHARACTERS]] for at, text in sorted((samples or {}).items())],
            rows=_rows(rows, tokens) if "rows" in show else [],
            show=list(show),
            bounds={"step": config.steps, **(bounds or {})},
            # What the caller sets comes last, and wins.
            **{"learning_rate": config.schedule.learning_rate, "step": len(losses), **state},
        )

    @classmethod
    def recorded(cls, name: str, **given: Any) -> "LiveRun":
        """Return a run, before the one of equal settings that tools/runs/live_runs.py recorded.

        Args:
            name: "small", the run of the home page, or "chapter 01", which has 354,000 weights.
            given: rows, learning_rate, pace, step.

        Raises:
            ValueError: if no run of that name is recorded.
        """
        runs = recorded_runs("live")["run"]
        if name not in runs:
            raise ValueError(f"no run {name!r} is recorded; there are {', '.join(runs)}")
        found = runs[name]["0"]
        merges = [pair.split(" ") for pair in found["merges"]]
        return cls(
            small_run() if name == "small" else replace(train.PRESETS["stories"](), steps=300),
            [(unspell(a), unspell(b)) for a, b in merges],
            floor=found["floor"],
            losses=found["losses"],
            samples={int(step): text for step, text in found["samples"].items()},
            **given,
        )

    def still(self) -> str:
        """Return the recorded run as a picture: what stands where no script runs."""
        words = super().still()
        if not self.losses:
            return words
        width, height, top = 640, 200, math.log(self.config["vocab_size"])
        points = " ".join(
            f"{width * (i + 1) / len(self.losses):.1f},{height * (1 - loss / top):.1f}"
            for i, loss in enumerate(self.losses)
        )
        low = height * (1 - self.floor / top)
        last = self.samples[-1] if self.samples else (0, "")
        written = f"After step {last[0]} it wrote: “{last[1]}”" if self.samples else ""
        return (
            f'<figure class="lc-still"><svg viewBox="0 -4 {width} {height + 8}" role="img" '
            f'aria-label="loss of a recorded run: {self.losses[0]:.2f} at first, '
            f'{self.losses[-1]:.2f} at step {len(self.losses)}">'
            f'<polyline points="{points}" fill="none" stroke="currentColor"/>'
            f'<path d="M0 {low:.1f}H{width}" stroke="currentColor" stroke-dasharray="6 4"/></svg>'
            f"<figcaption>{words} The picture is a recorded run: loss {self.losses[0]:.2f} at "
            f"first, {self.losses[-1]:.2f} nats per token at step {len(self.losses)}; dashed, the "
            f"entropy, {self.floor:.2f}. {html.escape(written)}</figcaption></figure>"
        )


def _check_config(config: train.TrainConfig) -> None:
    """Raise ValueError for a run that the page does not know how to do."""
    settings = config.flat()
    for name, value in FIXED.items():
        if settings[name] != value:
            raise ValueError(f"{name} must be {value!r} in a page, got {settings[name]!r}")
    shape = config.model
    if not shape.tied_head or shape.qk_norm or shape.num_experts or shape.rope_scaling:
        raise ValueError(
            "the page has a dense Llama alone: tied_head, no qk_norm, no experts, no rope_scaling"
        )
    for name in ("width", "head_size", "hidden", "vocab_size", "context_length"):
        if getattr(shape, name) % 4:
            raise ValueError(f"{name} must be a multiple of 4, got {getattr(shape, name)}")
    if not 1 <= config.steps <= MOST_STEPS:
        raise ValueError(f"steps must be from 1 to {MOST_STEPS:,}, got {config.steps:,}")
    per_layer = shape.width * (
        2 * (shape.num_heads + shape.num_kv_heads) * shape.head_size + 3 * shape.hidden
    )
    weights = shape.vocab_size * shape.width + shape.num_layers * per_layer
    if weights > MOST_WEIGHTS:
        raise ValueError(f"a page trains at most {MOST_WEIGHTS:,} weights, not {weights:,}")


def _check_recorded(steps: int, losses: Sequence[float], samples: Mapping[int, str]) -> None:
    if len(losses) > steps:
        raise ValueError(f"give the losses of at most {steps} steps, not {len(losses)}")
    if not all(math.isfinite(value) for value in losses):
        raise ValueError("a recorded loss is not finite")
    if not all(0 <= at <= len(losses) for at in samples):
        raise ValueError(f"samples must be of steps 0 to {len(losses)}, not {sorted(samples)}")


def _vocabulary(
    merges: Sequence[tuple[bytes, bytes]], vocab_size: int
) -> tuple[dict[bytes, int], list[list[int]]]:
    """Return the id of every token, and the merges as pairs of ids."""
    if 256 + len(merges) + 1 > vocab_size:
        raise ValueError(
            f"{len(merges)} merges need a vocabulary of {257 + len(merges)}, got {vocab_size}"
        )
    id_of = {bytes([byte]): byte for byte in range(256)}
    pairs = []
    for number, (a, b) in enumerate(merges):
        pairs.append([id_of[a], id_of[b]])
        id_of[a + b] = 256 + number
    return id_of, pairs


def _rows(rows: Mapping[str, Sequence[str]] | None, id_of: Mapping[bytes, int]) -> list[list[Any]]:
    """Return groups of tokens with their ids."""
    found = []
    for name, tokens in (ROWS if rows is None else rows).items():
        missing = [token for token in tokens if token.encode() not in id_of]
        if missing and rows is not None:
            raise ValueError(f"{name}: the vocabulary has no token {missing}")
        known = [[token, id_of[token.encode()]] for token in tokens if token not in missing]
        if known:
            found.append([name, known])
    return found
