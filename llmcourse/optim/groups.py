"""Which parameters decay, and one limit for the length of all gradients together.

Taught in: chapters/25_optimizers.ipynb
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from llmcourse.arguments import require


def decay_groups(model: nn.Module, *, weight_decay: int | float) -> list[dict[str, Any]]:
    """Split the parameters in two groups: matrices decay, gains and embeddings do not.

    Decay pulls towards zero.  A gain of a norm belongs near 1, and an embedding row that is seen
    rarely would be pulled to zero between its uses, so neither decays here.  A tied embedding is
    also the output head; it counts as an embedding.  (nanoGPT decays embeddings; the Llama papers
    do not say.)

    Returns:
        Two groups for an optimizer, empty ones left out.
    """
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim >= 2 and "embedding" not in name
        (decayed if is_matrix else free).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


@torch.no_grad()
def clip_by_global_norm(
    parameters: Iterable[Tensor],
    max_norm: int | float,
    *,
    sum_over_shards: Callable[[Tensor], Tensor] = lambda total: total,
) -> float:
    """Scale all gradients so that their joint norm is at most `max_norm`; return the norm before.

    norm = sqrt(sum over all gradients of g^2);  g = g * min(1, max_norm / norm)

    Args:
        parameters: tensors whose `.grad` is clipped in place; those without one are passed over.
        max_norm: largest allowed norm, positive.
        sum_over_shards: adds the sum of squares over the ranks that hold other shards.

    Raises:
        ValueError: if max_norm is not positive.

    Source:
        Pascanu et al. 2013, algorithm 1, https://arxiv.org/abs/1211.5063
    """
    require("max_norm", max_norm, above=0)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    squares = torch.stack([torch.linalg.vector_norm(g).square() for g in gradients]).sum()
    norm = float(sum_over_shards(squares).sqrt())
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm
