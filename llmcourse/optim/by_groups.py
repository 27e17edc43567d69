"""AdamW over all tensors of a group at once, in blocks that stay in the processor's cache.

A loop over tensors calls eight small operators for each of them and walks through memory eight
times.  Here the two means of all tensors stand in one row each; the row is updated block by block,
every operator on a block before the next block is touched.

Taught in: chapters/25_optimizers.ipynb
"""

import math
from typing import Any

import torch
from torch import Tensor

from llmcourse.optim.adam import AdamW

BLOCK = 1 << 15
"""Numbers in a block: four rows of it are 512 kB, which the second cache of a core holds."""


class Row:
    """The means of several tensors, end to end, and views of them in the tensors' shapes."""

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        sizes = [w.numel() for w in weights]
        like = {"dtype": weights[0].dtype, "device": weights[0].device}
        self.mean, self.mean_square, self.update = torch.zeros(3, sum(sizes), **like)
        self.means, self.mean_squares, self.updates = (
            [part.view(w.shape) for part, w in zip(row.split(sizes), weights, strict=True)]
            for row in (self.mean, self.mean_square, self.update)
        )


class AdamWByGroups(AdamW):
    """AdamW with the arithmetic of `AdamW`, several tensors at a time.

    Settings, errors and saved state are those of `AdamW`; a state saved by one is read by the
    other.  It keeps one more number per weight, for the update.
    """

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the gradients that are there."""
        self._rows = {
            key: self._row(key, weights, group)
            for index, group in enumerate(self.param_groups)
            for key, weights in self._alike(index, group).items()
        }
        for (index, *_), row in self._rows.items():
            self._update_row(row, self.param_groups[index])

    def _alike(self, index: int, group: dict[str, Any]) -> dict[tuple, list[Tensor]]:
        """Return the weights that have a gradient, by what they must share to stand in one row."""
        alike: dict[tuple, list[Tensor]] = {}
        for w in group["params"]:
            if w.grad is not None:
                steps = self.state[w].get("step", 0) if w in self.state else 0
                alike.setdefault((index, w.dtype, w.device, steps + 1), []).append(w)
        return alike

    def _row(self, key: tuple, weights: list[Tensor], group: dict[str, Any]) -> Row:
        """Return the row of these weights: that of the last step, or a new one with their means."""
        index, dtype, device, steps = key
        row = getattr(self, "_rows", {}).get((index, dtype, device, steps - 1))
        if row is None or not self._stands(row, weights):
            row = Row(weights)
            for w, mean, mean_square in zip(weights, row.means, row.mean_squares, strict=True):
                if w in self.state:
                    mean.copy_(self.state[w]["mean"])
                    mean_square.copy_(self.state[w]["mean_square"])
                self.state[w] |= {"mean": mean, "mean_square": mean_square}
        for w in weights:
            self.state[w]["step"] = steps
        return row

    def _stands(self, row: Row, weights: list[Tensor]) -> bool:
        """Whether a row holds the means of exactly these weights; loading a state replaces them."""
        return len(row.weights) == len(weights) and all(
            old is new and self.state[new]["mean"] is mean
            for old, new, mean in zip(row.weights, weights, row.means, strict=True)
        )

    def _update_row(self, row: Row, group: dict[str, Any]) -> None:
        """Update means and weights; formulas as in `AdamW`."""
        (beta1, beta2), lr = group["betas"], group["lr"]
        steps = self.state[row.weights[0]]["step"]
        correction1, correction2 = 1 - beta1**steps, 1 - beta2**steps
        torch.cat([w.grad.flatten() for w in row.weights], out=row.update)
        scratch = torch.empty_like(row.mean[:BLOCK])
        blocks = zip(
            *(r.split(BLOCK) for r in (row.mean, row.mean_square, row.update)), strict=True
        )
        for mean, mean_square, g in blocks:
            mean.lerp_(g, 1 - beta1)
            mean_square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            root = torch.sqrt(mean_square, out=scratch[: len(g)])
            root.mul_(1 / math.sqrt(correction2)).add_(group["eps"])
            torch.div(mean, root, out=g)
        for w, update in zip(row.weights, row.updates, strict=True):
            if group["weight_decay"]:
                w.mul_(1 - lr * group["weight_decay"])
            w.sub_(update, alpha=lr / correction1)
