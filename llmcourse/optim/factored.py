"""Adafactor: the mean square of a matrix from the means of its rows and columns."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from llmcourse.base.arguments import require, require_each
from llmcourse.optim.adamw import PerTensor


class Adafactor(PerTensor):
    """An optimizer whose state is a row and a column per matrix, not a second matrix::

        b = 1 - t^-0.8
        r = b r + (1 - b) mean over columns of (g^2 + eps1)        one number per row
        c = b c + (1 - b) mean over rows of (g^2 + eps1)           one number per column
        v = r c^T / mean(r)                                        of rank one
        u = g / sqrt(v);   u = u / max(1, rms(u) / clip)
        w = w - max(eps2, rms(w)) min(lr, 1 / sqrt(t)) u

    A vector keeps its whole mean square.  Of a tensor with more dimensions, the last two are rows
    and columns.

    Args:
        params: tensors or groups.
        lr: largest relative step, positive.
        decay_exponent: how fast the memory grows, positive; 0.8 in the paper.
        eps: (eps1, eps2): added to g^2; smallest scale of a weight.  Both positive.
        clip: largest root-mean-square of an update, positive.
        weight_decay: share of a weight that is removed per step and unit of lr, 0 or greater.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Shazeer and Stern 2018, algorithms 4 and 5, https://arxiv.org/abs/1804.04235
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: int | float = 1e-2,
        *,
        decay_exponent: int | float = 0.8,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip: int | float = 1.0,
        weight_decay: int | float = 0.0,
    ) -> None:
        rates = {"lr": lr, "decay_exponent": decay_exponent, "clip": clip}
        require_each(rates | {"eps[0]": eps[0], "eps[1]": eps[1]}, above=0)
        require("weight_decay", weight_decay, least=0)
        super().__init__(params, {**rates, "eps": eps, "weight_decay": weight_decay})

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        state = self.state[w]
        state["step"] = state.get("step", 0) + 1
        eps1, eps2 = group["eps"]
        forgotten = state["step"] ** -group["decay_exponent"]
        v = _mean_square(state, g.square().add_(eps1), forgotten)
        update = g * v.rsqrt()
        update.div_(max(1.0, _rms(update) / group["clip"]))
        relative_step = min(group["lr"], state["step"] ** -0.5)
        scale = max(eps2, _rms(w))
        w.mul_(1 - group["lr"] * group["weight_decay"])
        w.add_(update, alpha=-scale * relative_step)


def _mean_square(state: dict[str, Any], square: Tensor, forgotten: float) -> Tensor:
    """Move the running means towards a squared gradient; return what they say of every entry."""
    if square.ndim < 2:
        return _remember(state, "mean_square", square, forgotten)
    rows = _remember(state, "row_mean", square.mean(-1, keepdim=True), forgotten)
    columns = _remember(state, "column_mean", square.mean(-2, keepdim=True), forgotten)
    return rows @ columns / rows.mean(-2, keepdim=True)


def _remember(state: dict[str, Any], name: str, new: Tensor, forgotten: float) -> Tensor:
    """Return the running mean of a name after one more value."""
    if name not in state:
        state[name] = torch.zeros_like(new)
    return state[name].lerp_(new, forgotten)


def _rms(x: Tensor) -> float:
    """Return the root of the mean square of all entries."""
    return float(torch.linalg.vector_norm(x)) / max(1, x.numel()) ** 0.5
