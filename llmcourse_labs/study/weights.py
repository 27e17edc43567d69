"""What training changed in the weights: how much, in which directions, and what lies between.

Shape suffixes:  M rows, N columns of a matrix, R singular values.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require

State = dict[str, Tensor]
"""Weights by name, as `model.state_dict()` gives them."""


def changes(before: State, after: State) -> State:
    """Return the difference of two checkpoints, parameter by parameter.

    Raises:
        ValueError: if they do not have the same names and shapes.
    """
    _require_alike(before, after)
    return {name: after[name] - before[name] for name in before}


def update_ratios(before: State, after: State) -> dict[str, float]:
    """Return the length of the change over that of the parameter, in the Frobenius norm.

    A parameter that was all zeros has no scale of its own: its ratio is infinity once it moved.

    Raises:
        ValueError: if the checkpoints do not have the same names and shapes.
    """
    return {name: _ratio(change, before[name]) for name, change in changes(before, after).items()}


def _ratio(change: Tensor, before: Tensor) -> float:
    moved, was = (float(torch.linalg.vector_norm(x.double())) for x in (change, before))
    return moved / was if was else float("inf" if moved else 0)


def spectrum(w_MN: Float[Tensor, "M N"]) -> Float[Tensor, " R"]:
    """Return the singular values of a matrix, the largest first, in float64."""
    return torch.linalg.svdvals(w_MN.double())


def effective_rank(w_MN: Float[Tensor, "M N"]) -> float:
    """Return how many directions a matrix uses, as the exponential of an entropy::

        p_i = s_i / sum(s);   rank = exp(-sum p_i log p_i)

    k equal singular values give k; a matrix of zeros gives 0.

    Source:
        Roy and Vetterli 2007, section 2, EUSIPCO.
    """
    s_R = spectrum(w_MN)
    if not s_R.sum() > 0:
        return 0.0
    shares_R = s_R / s_R.sum()
    return float(torch.exp(torch.special.entr(shares_R).sum()))


def rank_for(w_MN: Float[Tensor, "M N"], share: int | float) -> int:
    """Return how few directions hold a share of the sum of squared singular values.

    Args:
        w_MN: a matrix.
        share: in (0, 1].

    Raises:
        ValueError: if share is outside its range.
    """
    require("share", share, above=0, most=1)
    squares_R = spectrum(w_MN).square()
    held_R = squares_R.cumsum(0) / squares_R.sum()
    return min(len(held_R), int((held_R < share * (1 - 1e-12)).sum()) + 1)


def low_rank(w_MN: Float[Tensor, "M N"], rank: int) -> Float[Tensor, "M N"]:
    """Return the nearest matrix of a rank: the first terms of the singular value decomposition.

    Args:
        w_MN: a matrix.
        rank: 0 or more.

    Raises:
        ValueError: if rank is negative.

    Source:
        Eckart and Young 1936, https://doi.org/10.1007/BF02288367
    """
    require("rank", rank, least=0)
    u_MR, s_R, v_RN = torch.linalg.svd(w_MN.double(), full_matrices=False)
    near_MN = u_MR[:, :rank] @ (s_R[:rank, None] * v_RN[:rank])
    return near_MN.to(w_MN.dtype)


def interpolate(before: State, after: State, t: int | float) -> State:
    """Return the checkpoint on the line between two:  (1 - t) before + t after.

    0 gives the first, 1 the second, exactly; beyond them lies the line's continuation.

    Raises:
        ValueError: if the checkpoints do not have the same names and shapes.
    """
    _require_alike(before, after)
    if t in (0, 1):
        return {name: w.clone() for name, w in (after if t else before).items()}
    return {
        name: before[name].lerp(after[name], t)
        if before[name].is_floating_point()
        else before[name].clone()
        for name in before
    }


def prune(
    w: Float[Tensor, "*shape"],
    share: int | float,
    *,
    by: Literal["smallest", "largest", "random"] = "smallest",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*shape"]:
    """Return a copy with a share of the entries set to 0, the nearest whole number of them.

    Args:
        w: weights.
        share: from 0 to 1.
        by: which entries go: those nearest to 0, those farthest from it, or any.
        generator: for "random", and for it alone.

    Raises:
        ValueError: if share is outside its range, there is no such choice, or a generator is
            missing or without effect.
    """
    require("share", share, least=0, most=1)
    if by not in ("smallest", "largest", "random"):
        raise ValueError(f"by must be smallest, largest or random, got {by!r}")
    if (by == "random") != (generator is not None):
        raise ValueError("a generator is needed for random, and has no effect otherwise")
    count = round(share * w.numel())
    if by == "random":
        order = torch.randperm(w.numel(), generator=generator)
    else:
        order = w.abs().flatten().argsort(descending=by == "largest", stable=True)
    pruned = w.clone().flatten()
    pruned[order[:count]] = 0
    return pruned.view(w.shape)


def _require_alike(before: State, after: State) -> None:
    """Raise ValueError unless two checkpoints have the same parameters."""
    if before.keys() != after.keys():
        alone = sorted(before.keys() ^ after.keys())
        raise ValueError(f"only one of the checkpoints has {alone}")
    for name in before:
        if before[name].shape != after[name].shape:
            raise ValueError(
                f"{name} is {tuple(before[name].shape)} in one checkpoint and "
                f"{tuple(after[name].shape)} in the other"
            )
