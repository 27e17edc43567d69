"""Widgets in which a small Llama trains in the browser: on ranks, through bad batches, after a crash."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import traitlets

from llmcourse import model as models
from llmcourse import nutshell, train
from llmcourse.course.recorded import recorded_runs
from llmcourse.course.state import Choice, Whole
from llmcourse.course.widgets.live import LiveRun, small_run
from llmcourse.data.corpus import stories


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
    return train.TrainConfig(model=shape, **given)


def _merges(config: train.TrainConfig) -> list[tuple[bytes, bytes]]:
    """Learn as many merges from some stories as the vocabulary has room for."""
    return nutshell.learn_merges(stories(60_000, seed=0), config.model.vocab_size - 1)


class LiveRanks(LiveRun):
    """Threads of the reader's browser as ranks: each computes the gradient of its part of a batch.

    The gradients are summed by messages around a ring, `all_reduce_ring` in JavaScript
    (llmcourse/course/js/live/rank.js).  Shown are the time lines of the ranks with every message,
    the losses of runs with 1, 2 and 4 ranks, a fingerprint of every rank's weights, and the speed.

    Args:
        config: of the run; 1, 2 and 4 ranks must divide its batch.
        losses: of a recorded run on one rank.
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
        losses: Sequence[float] = (),
        **state: Any,
    ) -> None:
        config = config or replace(small_run(), steps=120)
        if config.batch_size % 4:
            raise ValueError(f"4 ranks must divide the batch, got {config.batch_size} sequences")
        given = {"floor": 0.4, "rows": {}, "losses": losses}
        super().__init__(config, _merges(config), **given, **state)
