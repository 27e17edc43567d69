"""Widgets about a training step and a whole run."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from llmcourse import train
from llmcourse_classroom.measured import phases_of_step
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_classroom.widgets.course import curriculum

MOST_STEPS, MOST_SNAPSHOTS = 2_000, 20
MOST_ROWS, MOST_COLUMNS = 48, 64
MOST_CHARACTERS = 600
"""Characters of a sample that the page keeps."""


# --- one step


class TrainingLoop(Widget):
    """The seven phases of a step as a ring; the chosen one says what it takes, gives and does.

    Args:
        phases: seven, each with name, takes, gives, function, facts (pairs of a name and a value)
            and perhaps share, its part of the step's time from 0 to 1.  `of_next_step`
            makes them from a run.
        phase: the one chosen at first, 1 to 7.

    Raises:
        ValueError: if there are not seven, or one lacks something.
    """

    script = "training_loop.js"
    alt = (
        "A ring of seven phases: data, forward, loss, backward, sync, optimizer, checkpoint, and "
        "back to data.  Each shows what goes in, what comes out, and its numbers in a real step."
    )

    phases = traitlets.List(traitlets.Dict()).tag(sync=True)
    chapters = traitlets.List().tag(sync=True)
    """Of each phase the chapter that begins its part: what it is called, and its page."""
    phase = Whole(1, low=1, high=7, step=1, label="phase")

    def __init__(self, phases: Sequence[Mapping[str, Any]], **state: Any) -> None:
        if len(phases) != 7:
            raise ValueError(f"a step has seven phases, not {len(phases)}")
        for number, phase in enumerate(phases, start=1):
            needed = ("name", "takes", "gives", "function", "facts")
            missing = [name for name in needed if name not in phase]
            if missing:
                raise ValueError(f"phase {number} has no {missing}")
            if not 0 <= phase.get("share", 0) <= 1:
                raise ValueError(f"phase {number}: share must be from 0 to 1, not {phase['share']}")
        chapters = []
        for number in range(1, 8):
            first = next(one for one in curriculum() if f"Phase {number}" in one["part"])
            name = f"{first['number']} {first['title']}"
            chapters.append([name, f"{first['number']}_{first['slug']}.html"])
        super().__init__(phases=[dict(phase) for phase in phases], chapters=chapters, **state)

    @classmethod
    def of_next_step(cls, run: train.Run, **state: Any) -> "TrainingLoop":
        """Return the loop with the numbers of a run's next step, which a copy of the run takes."""
        return cls(phases_of_step(run), **state)


# --- the whole run


def packed(matrix: np.ndarray) -> dict[str, Any]:
    """Return the scale and the values (base64) of a matrix in 8 bits an entry."""
    scale, values = quantised(matrix)
    return {"scale": scale, "values": base64.b64encode(values.tobytes()).decode("ascii")}


def quantised(matrix: np.ndarray) -> tuple[float, np.ndarray]:
    """Return a scale, and whole numbers from −127 to 127 that times the scale are the matrix.

    scale = max abs(w) / 127, q = round(w / scale); each entry is off by at most half a scale.
    """
    scale = float(np.abs(matrix).max()) / 127
    if scale == 0:
        return 0.0, np.zeros(matrix.shape, dtype=np.int8)
    return scale, np.round(matrix / scale).astype(np.int8)


class RunScrubber(Widget):
    """A recorded run to go through: the loss, what the model wrote, and part of a weight matrix.

    The matrix of step 0 and the change of every later snapshot are kept in 8 bits, each with a
    scale of its own: so the first small changes are as exact as the late large ones.

    Args:
        steps: of the snapshots, increasing from 0: 2 to 20 of them.
        losses: of step 1, 2, ... of the run, in nats per token: at most 2,000.
        samples: step to what the model wrote then.
        weights: a matrix for each of `steps`, at most 48 x 64.
        groups: names of the rows, group by group; None for one group of numbered rows.
        name: what the matrix is.
        step: the step that is shown at first.

    Raises:
        ValueError: if lengths or shapes do not belong together, or are too large.
    """

    script = "run_scrubber.js"
    alt = (
        "The loss of a run step by step, what the model wrote on the way, and a weight matrix as a "
        "field of coloured cells, which begins as noise and takes on a pattern."
    )

    name = traitlets.Unicode("weights").tag(sync=True)
    losses = traitlets.List(traitlets.Float()).tag(sync=True)
    samples = traitlets.List().tag(sync=True)
    """Pairs of a step and a text, in order."""
    groups = traitlets.List().tag(sync=True)
    """Pairs of a name and the names of its rows."""
    columns = traitlets.Int().tag(sync=True)
    snapshots = traitlets.List(traitlets.Dict()).tag(sync=True)
    """Step, scale and values (base64 of 8-bit numbers): the matrix, then changes since step 0."""
    step = Whole(0, low=0, high=MOST_STEPS, step=1, label="step")
    view = Choice(("weights", "change since step 0"))

    def __init__(
        self,
        steps: Sequence[int],
        losses: Sequence[float],
        samples: Mapping[int, str],
        weights: Sequence[Any],
        *,
        groups: Mapping[str, Sequence[str]] | None = None,
        **state: Any,
    ) -> None:
        matrices = [np.asarray(matrix, dtype=np.float64) for matrix in weights]
        _check_run(steps, losses, samples, matrices)
        num_rows, num_columns = matrices[0].shape
        if groups is None:
            groups = {"rows": [str(row + 1) for row in range(num_rows)]}
        if sum(map(len, groups.values())) != num_rows:
            raise ValueError(
                f"groups name {sum(map(len, groups.values()))} rows, the matrices have {num_rows}"
            )
        super().__init__(
            losses=[float(f"{value:.5g}") for value in losses],
            samples=[[at, samples[at][:MOST_CHARACTERS]] for at in sorted(samples)],
            groups=[[group, list(rows)] for group, rows in groups.items()],
            columns=num_columns,
            snapshots=_snapshots(steps, matrices),
            bounds={"step": len(losses)},
            **state,
        )


def _check_run(
    steps: Sequence[int],
    losses: Sequence[float],
    samples: Mapping[int, str],
    matrices: list[np.ndarray],
) -> None:
    if not 2 <= len(steps) <= MOST_SNAPSHOTS:
        raise ValueError(f"give 2 to {MOST_SNAPSHOTS} snapshots, not {len(steps)}")
    if len(matrices) != len(steps):
        raise ValueError(f"{len(matrices)} matrices for {len(steps)} steps: give one for each")
    if steps[0] != 0 or list(steps) != sorted(set(steps)):
        raise ValueError(f"steps must increase from 0, not {list(steps)}")
    if not steps[-1] <= len(losses) <= MOST_STEPS:
        raise ValueError(
            f"give the losses of all {steps[-1]} steps, at most {MOST_STEPS:,}, not {len(losses)}"
        )
    if not all(math.isfinite(value) for value in losses):
        raise ValueError("a loss is not finite: leave out the steps after the run diverged")
    if not all(0 <= at <= len(losses) for at in samples):
        raise ValueError(f"samples must be of steps 0 to {len(losses)}, not {sorted(samples)}")
    for at, matrix in zip(steps, matrices, strict=True):
        if matrix.ndim != 2 or matrix.shape != matrices[0].shape or matrix.size == 0:
            raise ValueError(f"step {at}: a matrix like the first, not of shape {matrix.shape}")
        if matrix.shape[0] > MOST_ROWS or matrix.shape[1] > MOST_COLUMNS:
            raise ValueError(
                f"at most {MOST_ROWS} x {MOST_COLUMNS}, not {matrix.shape}: give a part of it"
            )
        if not np.isfinite(matrix).all():
            raise ValueError(f"step {at}: a weight is not finite")


def _snapshots(steps: Sequence[int], matrices: list[np.ndarray]) -> list[dict[str, Any]]:
    """Return the first matrix and the later changes, in 8 bits."""
    parts = [matrices[0], *(matrix - matrices[0] for matrix in matrices[1:])]
    return [{"step": int(at), **packed(part)} for at, part in zip(steps, parts, strict=True)]
