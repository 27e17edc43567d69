"""A widget about what training changes in a weight matrix: how much, where, in which directions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor

from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_classroom.widgets.run import packed
from llmcourse_labs.study import weights

MOST_CHECKPOINTS = 12
MOST_ROWS, MOST_COLUMNS = 24, 32
"""Cells of the picture; of a larger matrix, rows and columns are left out evenly."""
MOST_RANK = 256
"""Singular values of a checkpoint that the page keeps."""
MOST_DIRECTIONS = 8
"""Directions of the change that the page can draw."""


def sampled(size: int, most: int) -> list[int]:
    """Return at most `most` places among `size`, evenly spread, the first and the last among them.

    place_i = round(i (size - 1) / (most - 1)); all of them where there are not more.
    """
    if size <= most:
        return list(range(size))
    return [round(i * (size - 1) / (most - 1)) for i in range(most)]


class WeightScrubber(Widget):
    """A weight matrix at its checkpoints, or its change: a field of cells, and what it amounts to.

    Singular values, and so norms and ranks, are those of the whole matrix; the picture shows at
    most 24 rows and 32 columns of it.

    Args:
        name: what the matrix is.
        steps: of the checkpoints, increasing, 0 or more: 2 to 12 of them.  The first is the start.
        matrices: one for each step, all of one shape, the smaller side at most 256.
        losses: one for each step, in nats per token.
        state: checkpoint (0 is the start), view ("change since the start", "its largest
            directions alone" or "weights"), directions (how many largest ones are meant).

    Raises:
        ValueError: if lengths or shapes do not belong together, are too large, or a number is not
            finite.
    """

    script = "weight_scrubber.js"
    alt = (
        "A weight matrix as a field of coloured cells, checkpoint by checkpoint, with the loss, "
        "the size of its change against its own size at the start, and how few directions hold "
        "most of that change."
    )

    name = traitlets.Unicode("weights").tag(sync=True)
    steps = traitlets.List(traitlets.Int()).tag(sync=True)
    losses = traitlets.List(traitlets.Float()).tag(sync=True)
    shape = traitlets.List(traitlets.Int()).tag(sync=True)
    rows = traitlets.List(traitlets.Int()).tag(sync=True)
    columns = traitlets.List(traitlets.Int()).tag(sync=True)
    start = traitlets.Dict().tag(sync=True)
    """Scale and values (base64 of 8-bit numbers) of the shown part of the first matrix."""
    changes = traitlets.List(traitlets.Dict()).tag(sync=True)
    """Change since the start for every checkpoint, as `start`, and its largest directions: a
    left and a right factor, whose product they are."""
    spectra = traitlets.List(traitlets.Dict()).tag(sync=True)
    """Singular values of the weights and of their change, for every checkpoint."""
    random = traitlets.List(traitlets.Float()).tag(sync=True)
    """Singular values of a matrix of normal draws of the same shape, always the same one."""
    checkpoint = Whole(0, low=0, high=MOST_CHECKPOINTS - 1, step=1, label="checkpoint")
    view = Choice(("change since the start", "its largest directions alone", "weights"))
    directions = Whole(1, low=1, high=MOST_DIRECTIONS, step=1, label="largest directions")

    def __init__(
        self,
        name: str,
        steps: Sequence[int],
        matrices: Sequence[Any],
        losses: Sequence[float | int],
        **state: Any,
    ) -> None:
        held = [_as_matrix(matrix) for matrix in matrices]
        _check(steps, held, losses)
        num_rows, num_columns = held[0].shape
        rows, columns = sampled(num_rows, MOST_ROWS), sampled(num_columns, MOST_COLUMNS)
        changes = [matrix - held[0] for matrix in held]
        random = torch.randn(held[0].shape, generator=torch.Generator().manual_seed(0))
        super().__init__(
            name=name,
            steps=[int(step) for step in steps],
            losses=[float(f"{float(loss):.5g}") for loss in losses],
            shape=[num_rows, num_columns],
            rows=rows,
            columns=columns,
            start=packed(held[0][rows][:, columns].numpy()),
            changes=[_change(change, rows, columns) for change in changes],
            spectra=[
                {"weights": _singular(matrix), "change": _singular(change)}
                for matrix, change in zip(held, changes, strict=True)
            ],
            random=_singular(random.double()),
            bounds={
                "checkpoint": len(steps) - 1,
                "directions": min(MOST_DIRECTIONS, num_rows, num_columns),
            },
            **{"checkpoint": len(steps) - 1, **state},
        )


def _as_matrix(matrix: Any) -> Tensor:
    if isinstance(matrix, Tensor):
        return matrix.detach().to("cpu", torch.float64)
    return torch.from_numpy(np.asarray(matrix, dtype=np.float64))


def _check(steps: Sequence[int], matrices: list[Tensor], losses: Sequence[float | int]) -> None:
    if not 2 <= len(steps) <= MOST_CHECKPOINTS:
        raise ValueError(f"give 2 to {MOST_CHECKPOINTS} checkpoints, not {len(steps)}")
    for given, what in ((matrices, "matrices"), (losses, "losses")):
        if len(given) != len(steps):
            raise ValueError(f"{len(given)} {what} for {len(steps)} steps: give one for each")
    if steps[0] < 0 or list(steps) != sorted(set(steps)):
        raise ValueError(f"steps must increase from 0 or more, not {list(steps)}")
    if not all(math.isfinite(loss) for loss in losses):
        raise ValueError(f"every loss must be finite, got {list(losses)}")
    for step, matrix in zip(steps, matrices, strict=True):
        shape = tuple(matrix.shape)
        if matrix.ndim != 2 or shape != tuple(matrices[0].shape) or matrix.numel() == 0:
            raise ValueError(f"step {step}: a matrix like the first, not of shape {shape}")
        if min(shape) > MOST_RANK:
            raise ValueError(
                f"the smaller side may be {MOST_RANK}, not {min(shape)}: give some of the rows"
            )
        if not matrix.isfinite().all():
            raise ValueError(f"step {step}: a weight is not finite")


def _change(change: Tensor, rows: list[int], columns: list[int]) -> dict[str, Any]:
    """Return the shown part of a change, and of the factors of its largest directions."""
    u_MR, s_R, v_RN = torch.linalg.svd(change, full_matrices=False)
    count = min(MOST_DIRECTIONS, len(s_R))
    root_R = s_R[:count].sqrt()
    return {
        **packed(change[rows][:, columns].numpy()),
        "left": packed((u_MR[rows, :count] * root_R).numpy()),
        "right": packed((v_RN[:count, columns] * root_R[:, None]).numpy()),
    }


def _singular(matrix: Tensor) -> list[float]:
    """Return the singular values to 5 digits."""
    return [float(f"{value:.5g}") for value in weights.spectrum(matrix).tolist()]
