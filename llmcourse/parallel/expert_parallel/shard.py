"""Expert parallelism for a whole model: cut its experts, and agree on the gradients of the rest."""

from collections.abc import Sequence

import torch
from torch import nn

from llmcourse.model.moe import MixtureOfExperts
from llmcourse.parallel.data_parallel import sum_gradients
from llmcourse.parallel.expert_parallel.experts import ParallelExperts, share_of
from llmcourse.parallel.world import Axis

EXPERT_WEIGHTS = (".experts.w_gate", ".experts.w_up", ".experts.w_down")


def shard_experts(model: nn.Module, axis: Axis) -> None:
    """Replace the experts of every mixture in a model by this rank's share of them, in place.

    Make optimizers afterwards.  Parameters keep their names; the first dim of an expert's weights
    is cut.

    Args:
        model: a `Transformer` with experts, or a `MixtureOfExperts`; alike on every rank.
        axis: the ranks.

    Raises:
        ValueError: if the model has no experts, has been cut already, or they cannot be cut
            evenly.
    """
    layers = [m for m in model.modules() if isinstance(m, MixtureOfExperts)]
    if not layers:
        raise ValueError("the model has no mixture of experts: expert parallelism cuts nothing")
    if any(isinstance(layer.experts, ParallelExperts) for layer in layers):
        raise ValueError("the experts are cut already: call shard_experts once")
    for layer in layers:
        layer.experts = ParallelExperts(layer.experts, axis)


def check_experts(num_experts: int, size: int) -> None:
    """Raise ValueError, with the nearest numbers, if experts cannot be cut over so many ranks."""
    if num_experts < 1:
        raise ValueError(f"ep must be 1 for a model without experts, got {size}")
    share_of(num_experts, 0, size)


def slice_of(name: str, shape: Sequence[int], index: int, size: int) -> tuple[int, int, int] | None:
    """Return the part of a parameter that a rank holds: (dim, start, stop); None is all of it."""
    if f".{name}".endswith(EXPERT_WEIGHTS):
        return (0, *share_of(shape[0], index, size))
    return None


def owned_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that only this rank has, its experts', by name."""
    return {
        f"{prefix}.{name}" if prefix else name: p
        for prefix, module in model.named_modules()
        if isinstance(module, ParallelExperts)
        for name, p in module.named_parameters()
    }


@torch.no_grad()
def sync_gradients(model: nn.Module, axis: Axis) -> None:
    """Make the gradients those of the mean of all ranks' losses.

    Gradients of copies are summed over the ranks.  An expert's gradient is that sum already: its
    rows came from all ranks, and brought the gradients of their losses back.

    Args:
        model: after `shard_experts` and a backward pass.
        axis: the ranks, with equally many tokens each.
    """
    owned = set(map(id, owned_parameters(model).values()))
    sum_gradients([p for p in model.parameters() if id(p) not in owned], axis)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(axis.size)
