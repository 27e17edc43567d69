"""Muon: a momentum whose directions all get the same length.

Shape suffixes:  M rows, N columns of a matrix.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.optim.adamw import AdamW, PerTensor

Scale = Literal["shape", "adamw"]
"""How a step is scaled by the shape of its matrix."""

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic: steep at 0, so that small singular values grow fast, and not exact at 1."""


def newton_schulz(
    x_MN: Float[Tensor, "M N"],
    num_steps: int = 5,
    *,
    coefficients: tuple[float, float, float] = COEFFICIENTS,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "M N"]:
    """Bring all singular values of a matrix near 1, with products alone::

        X = X / |X|                                   every singular value s is then at most 1
        X = a X + b (X X^T) X + c (X X^T)^2 X         s becomes a s + b s^3 + c s^5

    The singular vectors stay.  With the default coefficients five steps bring every s from 0.0015
    to 1 between 0.68 and 1.21.

    Args:
        x_MN: a matrix.
        num_steps: how often, 0 or more.
        coefficients: a, b and c.
        dtype: of the products; bf16 is enough, since the result need not be exact.

    Raises:
        ValueError: if num_steps is negative.

    Source:
        Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/
    """
    require("num_steps", num_steps, least=0)
    a, b, c = coefficients
    x = x_MN.to(dtype)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x  # the smaller of the two squares is cheaper
    x = x / torch.linalg.vector_norm(x).clamp(min=1e-7)
    for _ in range(num_steps):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).to(x_MN.dtype)


class Muon(PerTensor):
    """Momentum, made orthogonal::

        v = mu v + (1 - mu) g
        u = newton_schulz((1 - mu) g + mu v)        Nesterov's look ahead
        w = w - lr decay w - lr scale u

    For matrices inside the model alone: vectors, embeddings and the head go to AdamW.

    Args:
        params: matrices, or groups of them.
        lr: learning rate, positive.
        momentum: mu, in [0, 1).
        weight_decay: share of a weight that is removed per step and unit of lr, 0 or greater.
        num_steps: of Newton-Schulz, 1 or more.
        scale: "shape" for sqrt(max(1, rows / columns)); "adamw" for 0.2 sqrt(max(rows, columns)),
            with which a step is as long as one of AdamW and its learning rates can be used.
        dtype: of the products.

    Raises:
        ValueError: if a setting is outside its range, or a parameter is not a matrix.

    Source:
        Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/;
        Liu et al. 2025, section 2.2, for "adamw", https://arxiv.org/abs/2502.16982
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: int | float = 1e-3,
        *,
        momentum: int | float = 0.95,
        weight_decay: int | float = 0.1,
        num_steps: int = 5,
        scale: Scale = "shape",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        require("lr", lr, above=0)
        require("momentum", momentum, least=0, below=1)
        require("weight_decay", weight_decay, least=0)
        require("num_steps", num_steps, least=1)
        if scale not in get_args(Scale):
            raise ValueError(f"scale must be one of {', '.join(get_args(Scale))}, got {scale!r}")
        rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, {**rates, "num_steps": num_steps, "scale": scale, "dtype": dtype})
        shapes = [tuple(w.shape) for g in self.param_groups for w in g["params"] if w.ndim != 2]
        if shapes:
            raise ValueError(f"Muon takes matrices alone, got {shapes}: give the rest to AdamW")

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        _orthogonal_step(w, g, self.state[w], group)


def _orthogonal_step(w: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Update a matrix as `Muon` does; a group that says no more takes the usual settings."""
    mu = group["momentum"]
    if not state:
        state["velocity"] = torch.zeros_like(w)
    v = state["velocity"].lerp_(g, 1 - mu)
    dtype = group.get("dtype", torch.float32)
    update = newton_schulz(g.lerp(v, mu), group.get("num_steps", 5), dtype=dtype)
    rows, columns = w.shape
    by_shape = max(1, rows / columns) ** 0.5
    scale = by_shape if group.get("scale") == "shape" else 0.2 * max(rows, columns) ** 0.5
    w.mul_(1 - group["lr"] * group["weight_decay"])
    w.add_(update, alpha=-group["lr"] * scale)


class MuonAndAdamW(AdamW):
    """Muon for the groups that say `orthogonal`, AdamW for the others, with one learning rate.

    Steps of matrices are as long as those of AdamW (scale "adamw" of `Muon`).

    Args:
        params: groups, each with `orthogonal`.
        lr: learning rate, positive.
        momentum: of the matrices, in [0, 1).
        settings: of `AdamW`.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Liu et al. 2025, section 2.2, https://arxiv.org/abs/2502.16982
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: int | float,
        *,
        momentum: int | float = 0.95,
        **settings: Any,
    ) -> None:
        require("momentum", momentum, least=0, below=1)
        groups = [{"momentum": momentum, "orthogonal": False} | group for group in params]
        super().__init__(groups, lr, **settings)

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        if group["orthogonal"]:
            _orthogonal_step(w, g, self.state[w], group)
        else:
            super()._update(w, g, group)
