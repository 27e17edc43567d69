"""Widgets that train a small Llama in the browser: on ranks, past bad batches, after a crash."""

import functools
import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import traitlets

from llmcourse import model as models
from llmcourse import nutshell, train
from llmcourse.data.corpus import stories
from llmcourse.data.tokenizer.files import unspell
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widgets.live import LiveRun, small_run

FLOOR = 0.38
"""Entropy of the stories, in nats per token; these widgets do not show it."""


def lab_run(**settings: Any) -> train.TrainConfig:
    """The model of chapter 28, 73,968 weights: a step takes some milliseconds in a browser."""
    shape = replace(
        models.stories(),
        num_layers=2,
        width=48,
        num_heads=2,
        num_kv_heads=2,
        head_size=24,
        hidden=128,
        vocab_size=384,
        context_length=48,
    )
    given = {"batch_size": 8, "learning_rate": 5e-3, "warmup_steps": 20} | settings
    return train.TrainConfig.of(model=shape, **given)


@functools.cache
def _merges(vocab_size: int) -> list[tuple[bytes, bytes]]:
    """Learn as many merges from some stories as a vocabulary has room for."""
    return nutshell.learn_merges(stories(60_000, seed=0), vocab_size - 1)


class LiveRanks(LiveRun):
    """Threads of the reader's browser as ranks: each computes the gradient of its part of a batch.

    The gradients are summed by messages around a ring, `all_reduce_ring` in JavaScript
    (js/live/rank.js).  Shown are the time lines of the ranks with every message,
    the losses of runs with 1, 2 and 4 ranks, a fingerprint of every rank's weights, and the speed.

    Args:
        config: of the run; 1, 2 and 4 ranks must divide its batch.
        losses: of a recorded run on one rank; None for that of the usual run, if it is this one.
        state: ranks, sync (whether gradients are summed), pace.

    Raises:
        ValueError: as for LiveRun, and if 4 does not divide the batch.
    """

    script = "live_ranks.js"
    alt = (
        "A small Llama that trains in your own browser on one, two or four ranks, each a thread: "
        "their time lines in a step with every message between them, the loss, and a fingerprint "
        "of every rank's weights."
    )

    ranks = Choice(("1", "2", "4"), default="2")
    sync = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        config: train.TrainConfig | None = None,
        *,
        losses: Sequence[float] | None = None,
        **state: Any,
    ) -> None:
        if losses is None:
            losses = [] if config else recorded_runs("live_labs")["ranks"]["small"]["0"]
        config = config or replace(small_run(), steps=120)
        if config.batch_size % 4:
            raise ValueError(f"4 ranks must divide the batch, got {config.batch_size} sequences")
        merges = _merges(config.model.vocab_size)
        super().__init__(config, merges, floor=FLOOR, rows={}, losses=losses, **state)


class LiveSpike(LiveRun):
    """A run that meets bad batches after a saved step, with clipping or without.

    A bad batch has tokens drawn at random, each as likely as the others, for inputs and targets.
    All ways begin at the same saved weights.  Shown are loss and gradient norm of the last run of
    each kind: without a bad batch, with bad batches and clipping, with bad batches alone.

    Args:
        config: of the run.
        saved: the step whose state is saved.
        recorded: what came of the kinds, "calm", "clipped" and "free": of each a list of losses
            ("loss") and one of norms ("norm"), from step 1 on; None for those of the usual run.
        state: clipping, bad (bad batches in a row), pace.

    Raises:
        ValueError: as for LiveRun, and if the saved step is no multiple of 10 within the run.
    """

    script = "live_spike.js"
    alt = (
        "A small Llama that trains in your own browser until a saved step and then meets bad "
        "batches of random tokens, with clipping and without: loss and gradient norm."
    )

    saved = traitlets.Int().tag(sync=True)
    recorded = traitlets.Dict().tag(sync=True)
    clipping = traitlets.Bool(True).tag(sync=True)
    bad = Whole(3, low=1, high=10, step=1, label="bad batches in a row")

    def __init__(
        self,
        config: train.TrainConfig | None = None,
        *,
        saved: int = 100,
        recorded: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
        **state: Any,
    ) -> None:
        if recorded is None:
            recorded = {} if config else recorded_runs("live_labs")["spike"]["lab"]["0"]
        config = config or lab_run(steps=140, final_share=1.0)
        if saved % 10 or not 20 <= saved < config.steps:
            raise ValueError(f"the saved step must be a multiple of 10 in the run, got {saved}")
        found = {"saved": saved, "recorded": dict(recorded)}
        merges = _merges(config.model.vocab_size)
        super().__init__(config, merges, floor=FLOOR, rows={}, **found, **state)

    def still(self) -> str:
        """Return the losses of the recorded runs as a picture."""
        names = {
            "calm": "no bad batch",
            "clipped": "three bad batches, clipping on",
            "free": "three bad batches, clipping off",
        }
        curves = {
            names[way]: [(at + 1, loss) for at, loss in enumerate(each["loss"]) if at >= self.saved]
            for way, each in self.recorded.items()
        }
        return _picture(self.alt, curves, "loss") if curves else super().still()


class LiveCrash(LiveRun):
    """Two runs from one seed: the reader terminates the thread of one, and brings it back.

    The thread is gone with all that it held.  A new one gets the last checkpoint: all of it, all
    but the moments of AdamW, or all but the place in the data.  Shown are the losses, their
    difference from the run that nobody interrupts, and fingerprints of the weights.

    Args:
        config: of the run.
        recorded: names of ways to [step, loss] points of recorded runs, the whole run first; None
            for those of the usual run.
        state: restore, pace.

    Raises:
        ValueError: as for LiveRun.
    """

    script = "live_crash.js"
    alt = (
        "Two runs of a small Llama in your own browser, from the same seed. You terminate one and "
        "restore it from its last checkpoint, whole or without a part; losses and fingerprints "
        "of the weights say whether it is still the same run."
    )

    recorded = traitlets.Dict().tag(sync=True)
    restore = Choice(("everything", "all but Adam's moments", "all but the place in the data"))
    pace = Choice(LiveRun.pace.options, default="5 steps a second")

    def __init__(
        self,
        config: train.TrainConfig | None = None,
        *,
        recorded: Mapping[str, Sequence[Sequence[float]]] | None = None,
        **state: Any,
    ) -> None:
        if recorded is None:
            recorded = {} if config else recorded_runs("live_labs")["crash"]["lab"]["0"]
        config = config or lab_run(steps=80)
        merges = _merges(config.model.vocab_size)
        super().__init__(config, merges, floor=FLOOR, rows={}, recorded=dict(recorded), **state)

    def still(self) -> str:
        """Return how far the recorded runs are from the whole one, as a picture."""
        if not self.recorded:
            return super().still()
        whole, *others = self.recorded.items()
        right = dict(whole[1])
        curves = {
            f"restored with {name}": [(at, loss - right[at]) for at, loss in points]
            for name, points in others
        }
        return _picture(self.alt, curves, "loss minus that of the run that nobody interrupts")


class LiveEpochs(LiveRun):
    """A run that reads a text of a few batches again and again, and one that reads it once.

    Shown are the training loss, and every ten steps the loss on stories that no step has read; the
    curve of an earlier text stays for comparison.

    Args:
        config: of the run.
        recorded: names of texts to [step, training loss, validation loss] rows of recorded runs;
            None for those of the usual run.
        state: size (one of SIZES), patience (validations without a better one that would end the
            run), pace.

    Raises:
        ValueError: as for LiveRun.
    """

    SIZES: Mapping[str, int] = {
        "1,000 tokens": 2,
        "4,000 tokens": 8,
        "17,000 tokens": 32,
        "new stories at each step": 0,
    }
    """What the texts are called, and of how many batches each is; 0 for one that does not end."""
    HELD_OUT = 4
    """Batches of stories that no step reads."""

    script = "live_epochs.js"
    alt = (
        "A small Llama that trains in your own browser on little text, read again and again: the "
        "solid training loss falls below the entropy, while the dashed validation loss turns and "
        "rises. With new stories at each step the two stay together."
    )

    recorded = traitlets.Dict().tag(sync=True)
    sizes = traitlets.List().tag(sync=True)
    size = Choice(tuple(SIZES))
    patience = Whole(3, low=1, high=20, step=1, label="patience, in validations")

    def __init__(
        self,
        config: train.TrainConfig | None = None,
        *,
        recorded: Mapping[str, Sequence[Sequence[float]]] | None = None,
        **state: Any,
    ) -> None:
        # The run of the home page, at a constant rate; its tokens have a known entropy.
        usual = recorded_runs("live")["run"]["small"]["0"]
        pairs = (pair.split(" ") for pair in usual["merges"])
        merges = [(unspell(a), unspell(b)) for a, b in pairs]
        if recorded is None:
            recorded = {} if config else recorded_runs("live_labs")["epochs"]["small"]["0"]
        super().__init__(
            config or small_run().replace(steps=300, final_share=1.0),
            _merges(config.model.vocab_size) if config else merges,
            floor=usual["floor"],
            rows={},
            recorded=dict(recorded),
            sizes=[list(pair) for pair in self.SIZES.items()],
            **state,
        )
        self.config = self.config | {"held_out": self.HELD_OUT}

    def still(self) -> str:
        """Return the validation losses of the recorded runs as a picture."""
        curves = {name: [(row[0], row[2]) for row in of] for name, of in self.recorded.items()}
        return _picture(self.alt, curves, "validation loss") if curves else super().still()


def _picture(alt: str, curves: Mapping[str, Sequence[tuple[int, float]]], what: str) -> str:
    """Return curves of recorded runs, and in words where each begins and ends."""
    width, height = 640, 200
    steps = [at for points in curves.values() for at, _ in points]
    values = [value for points in curves.values() for _, value in points]
    # 0 is always in the picture; where no value is above it, some height is left.
    low, high = min(0.0, *values), max(0.0, *values) or 1.0
    span = max(1, max(steps) - min(steps))
    dashes = itertools.cycle(("none", "7 3", "2 3"))
    lines = []
    for points in curves.values():
        # SVG counts y downwards.
        places = " ".join(
            f"{width * (at - min(steps)) / span:.1f},{height * (high - value) / (high - low):.1f}"
            for at, value in points
        )
        lines.append(
            f'<polyline points="{places}" fill="none" stroke="currentColor" '
            f'stroke-dasharray="{next(dashes)}"/>'
        )
    # The same for those who do not see the picture.
    words = "; ".join(
        f"{name}: {points[0][1]:.2f} at step {points[0][0]}, {points[-1][1]:.2f} at step "
        f"{points[-1][0]}"
        for name, points in curves.items()
    )
    said = html.escape(f"Recorded runs, {what}. {words}.")
    return (
        f'<figure class="lc-still"><svg viewBox="0 -4 {width} {height + 8}" role="img" '
        f'aria-label="{said}">{"".join(lines)}</svg>'
        f"<figcaption>{html.escape(alt)} {said}</figcaption></figure>"
    )
