"""muP: start values and learning rates that keep their meaning when a model gets wider.

A wider matrix sums over more numbers.  So that a step changes what it computes as much as in a
narrow one, its entries start smaller and move less far.

Shape suffixes: none; `m` is the width over that of the model whose learning rate is known.
"""

from typing import Any

import torch
from torch import nn

from llmcourse.base.arguments import require


@torch.no_grad()
def mup_start(model: nn.Module, *, m: int | float) -> None:
    """Scale the initial weights of a model that is m times as wide as another, in place::

        matrices of the blocks / sqrt(m);   output head / m;   embedding and gains stay

    Args:
        model: a `Transformer` with a head of its own, as it was initialised: each matrix of its
            blocks reads m times as many numbers as in the narrow model, and heads have the size
            that they have there.
        m: width over that of the narrow model, positive.

    Raises:
        ValueError: if m is not positive, or head and embedding are one matrix.

    Source:
        Yang et al. 2022, table 3, https://arxiv.org/abs/2203.03466
    """
    _check(model, m)
    for name, w in model.named_parameters():
        if name == "head":
            # Training turns its inputs towards its rows: then sums grow by m, and not by sqrt(m).
            w.div_(m)
        elif w.ndim == 2 and name != "embedding":
            # A sum of m times as many random terms grows by sqrt(m).
            w.div_(m**0.5)


def mup_groups(model: nn.Module, *, lr: int | float, m: int | float) -> list[dict[str, Any]]:
    """Return the groups for Adam or AdamW in which a model m times as wide needs the same lr::

        matrices of the blocks, output head: lr / m;   embedding and gains: lr

    Weight decay acts through each group's lr: the first group decays m times less.

    Args:
        model: as in `mup_start`.
        lr: learning rate of the narrow model, positive.
        m: width over that of the narrow model, positive.

    Raises:
        ValueError: if lr or m is not positive, or head and embedding are one matrix.

    Source:
        Yang et al. 2022, table 3, https://arxiv.org/abs/2203.03466
    """
    _check(model, m)
    require("lr", lr, above=0)
    read_width: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, w in model.named_parameters():
        # Matrices sum over the width; an embedding is looked up, and a gain multiplies one number.
        is_wide = w.ndim == 2 and name != "embedding"
        (read_width if is_wide else others).append(w)
    return [{"params": read_width, "lr": lr / m}, {"params": others, "lr": lr}]


def _check(model: nn.Module, m: int | float) -> None:
    """Raise ValueError for a ratio or a model that the rule is not made for."""
    require("m", m, above=0)
    if "head" not in dict(model.named_parameters()):
        raise ValueError(
            "the embedding is the output head, too, and the two want different scales: build the "
            "model with tied_head=False"
        )
