"""AdamW over all tensors of a group, in blocks that stay in the processor's cache.

A loop over tensors calls eight operators for each, and each of them walks through whole tensors in
memory.  Here a large tensor is cut into blocks, and every operator is done on a block before the
next block is touched; small tensors are joined in a row first, which saves calls.

Taught in: chapters/25_optimizers.ipynb
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llmcourse.optim.adam import AdamW

BLOCK = 1 << 17
"""Numbers in a block: five rows of it are 2.6 MB.  Smaller blocks would fit into a nearer cache,
but a call of an operator costs as much as some ten thousand numbers, and a block takes seven."""


class Row:
    """Small tensors end to end, with their gradients and means; the means keep their shapes, too.

    The means live here from step to step.  Weights and gradients are copied in, and weights back.
    """

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self.sizes = [w.numel() for w in weights]
        like = {"dtype": weights[0].dtype, "device": weights[0].device}
        self.w, self.g, self.mean, self.mean_square = torch.zeros(4, sum(self.sizes), **like)
        self.means, self.mean_squares = (self.parts(x) for x in (self.mean, self.mean_square))

    def parts(self, x: Tensor) -> list[Tensor]:
        """Return views of a row in the tensors' shapes."""
        pieces = zip(x.split(self.sizes), self.weights, strict=True)
        return [piece.view(w.shape) for piece, w in pieces]


class Scalars(NamedTuple):
    """What all numbers of one update share."""

    lr: float
    decay: float
    beta1: float
    beta2: float
    eps: float
    correction1: float
    correction2: float


class AdamWByGroups(AdamW):
    """AdamW with the arithmetic of `AdamW`, block by block.

    Settings, errors and saved state are those of `AdamW`; a state saved by one is read by the
    other.  Small tensors take two more numbers per weight.
    """

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the gradients that are there."""
        before, self._rows = getattr(self, "_rows", {}), {}
        for index, group in enumerate(self.param_groups):
            for (*kind, steps), weights in self._alike(group).items():
                small = [w for w in weights if not _is_large(w)]
                for w in weights:
                    self._begin(w, steps)
                    if _is_large(w):
                        state = self.state[w]
                        rows = (w, w.grad, state["mean"], state["mean_square"])
                        _update_in_blocks(*rows, _scalars(group, steps))
                if small:
                    row = self._row(before.get((index, *kind, steps - 1)), small)
                    self._rows[index, *kind, steps] = row
                    _update_row(row, _scalars(group, steps))

    def _alike(self, group: dict[str, Any]) -> dict[tuple, list[Tensor]]:
        """Return the weights that have a gradient, by what they must share to stand in one row."""
        alike: dict[tuple, list[Tensor]] = {}
        for w in group["params"]:
            if w.grad is not None:
                steps = self.state[w]["step"] if w in self.state else 0
                alike.setdefault((w.dtype, w.device, steps + 1), []).append(w)
        return alike

    def _begin(self, w: Tensor, steps: int) -> None:
        """Give a tensor its state if it has none, and count the step."""
        state = self.state[w]
        if not state:
            state |= {"mean": torch.zeros_like(w), "mean_square": torch.zeros_like(w)}
        state["step"] = steps

    def _row(self, row: Row | None, weights: list[Tensor]) -> Row:
        """Return the row of these weights: that of the last step, or a new one with their means."""
        if row is not None and self._holds(row, weights):
            return row
        row = Row(weights)
        for w, mean, mean_square in zip(weights, row.means, row.mean_squares, strict=True):
            mean.copy_(self.state[w]["mean"])
            mean_square.copy_(self.state[w]["mean_square"])
            self.state[w] |= {"mean": mean, "mean_square": mean_square}
        return row

    def _holds(self, row: Row, weights: list[Tensor]) -> bool:
        """Whether a row has the means of exactly these weights; loading a state replaces them."""
        return len(row.weights) == len(weights) and all(
            old is new and self.state[new]["mean"] is mean
            for old, new, mean in zip(row.weights, weights, row.means, strict=True)
        )


def _is_large(w: Tensor) -> bool:
    """Whether a tensor is updated where it lies, rather than in a row with others."""
    return w.numel() >= BLOCK and w.is_contiguous()


def _scalars(group: dict[str, Any], steps: int) -> Scalars:
    """Return the numbers of a group's update."""
    (beta1, beta2), lr = group["betas"], group["lr"]
    corrections = 1 - beta1**steps, 1 - beta2**steps
    return Scalars(lr, group["weight_decay"], beta1, beta2, group["eps"], *corrections)


def _update_row(row: Row, scalars: Scalars) -> None:
    """Update the small tensors of a row together."""
    torch.cat([w.flatten() for w in row.weights], out=row.w)
    torch.cat([w.grad.flatten() for w in row.weights], out=row.g)
    _update_in_blocks(row.w, row.g, row.mean, row.mean_square, scalars)
    for w, new in zip(row.weights, row.parts(row.w), strict=True):
        w.copy_(new)


def _update_in_blocks(w: Tensor, g: Tensor, mean: Tensor, mean_square: Tensor, s: Scalars) -> None:
    """Update weights and means in place; formulas as in `AdamW`.

    The root of the second correction is taken out of the fraction, which saves a pass::

        mhat / (sqrt(vhat) + eps) = (root / correction1) m / (sqrt(v) + root eps)
    """
    root = math.sqrt(s.correction2)
    scratch = torch.empty(min(BLOCK, w.numel()), dtype=w.dtype, device=w.device)
    rows = (w.view(-1), g.reshape(-1), mean.view(-1), mean_square.view(-1))
    for w_b, g_b, mean_b, mean_square_b in zip(*(x.split(BLOCK) for x in rows), strict=True):
        if s.decay:
            w_b.mul_(1 - s.lr * s.decay)
        mean_b.lerp_(g_b, 1 - s.beta1)
        mean_square_b.mul_(s.beta2).addcmul_(g_b, g_b, value=1 - s.beta2)
        divisor = torch.sqrt(mean_square_b, out=scratch[: len(g_b)]).add_(root * s.eps)
        w_b.addcdiv_(mean_b, divisor, value=-s.lr * root / s.correction1)
