"""Where activations enter and leave a cut layer: four nodes of autograd's graph, in two pairs.

A cut layer reads the same x on every rank and leaves on each a part of a sum.  So its output has to
be summed in the forward pass, and the gradient of its input in the backward pass.  Each node of a
pair does forward what the other one does backward:

===============  ==========================  ==========================
node             forward                     backward
===============  ==========================  ==========================
f                x as it is                  all-reduce
g                all-reduce                  dy as it is
gather_time      all-gather along time       reduce-scatter along time
scatter_time     reduce-scatter along time   all-gather along time
===============  ==========================  ==========================

An all-reduce is a reduce-scatter and an all-gather, so both pairs send the same bytes.  Sums are
made in the order of ranks: all ranks get the same bits, and an entry's last digits do not depend on
its place, which a ring's would.

Shape suffixes:  B batch, T time, t this rank's part of it, D width, N rows.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from llmcourse.base.pairs import refuse_second_derivatives
from llmcourse.parallel.collectives import (
    all_gather,
    all_reduce_ordered,
    all_to_all,
    chunk_sizes,
    reduce_scatter,
)
from llmcourse.parallel.collectives.trees import signature
from llmcourse.parallel.legal import multiples, nearest
from llmcourse.parallel.world import Axis

Pass = Callable[[Tensor, Axis, str], Tensor]
"""What one pass does: of a tensor, the ranks, and the name under which it is logged."""


def copy_to_tp(x_BTD: Float[Tensor, "..."], _axis: Axis, _name: str) -> Float[Tensor, "..."]:
    """Return the tensor itself, as a view: autograd wants another object."""
    return x_BTD.view_as(x_BTD)


def reduce_from_tp(x_BTD: Float[Tensor, "..."], axis: Axis, name: str) -> Float[Tensor, "..."]:
    """Return the sum over all ranks, the same bits on each of them."""
    with axis.collective(name, signature(x_BTD)):
        return all_reduce_ordered(x_BTD.detach().clone(), axis)


def gather_sequence(x_BtD: Float[Tensor, "B t D"], axis: Axis, name: str) -> Float[Tensor, "B T D"]:
    """Join the stretches of time of all ranks."""
    with axis.collective(name, signature(x_BtD)):
        # Collectives cut along the first dim, so time has to stand there for the moment.
        return all_gather(x_BtD.transpose(0, 1).contiguous(), axis).transpose(0, 1).contiguous()


def reduce_scatter_sequence(
    x_BTD: Float[Tensor, "B T D"], axis: Axis, name: str
) -> Float[Tensor, "B t D"]:
    """Return the sum over all ranks of this rank's stretch of time.

    Raises:
        ValueError: if time does not divide into as many equal stretches as there are ranks.
    """
    num_tokens = x_BTD.shape[1]
    if num_tokens % axis.size:
        legal = nearest(num_tokens, multiples(axis.size, num_tokens))
        raise ValueError(
            f"{num_tokens} positions do not divide into {axis.size} equal stretches of time, one "
            f"for each rank: make it {legal}, or go without sequence_parallel"
        )
    with axis.collective(name, signature(x_BTD)):
        part = reduce_scatter(x_BTD.transpose(0, 1), axis, ordered=True)
        return part.transpose(0, 1).contiguous()


def _node(name: str, forward: Pass, backward: Pass) -> Callable[[Tensor, Axis], Tensor]:
    """Make a node of autograd's graph that takes a tensor and the ranks."""

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
            ctx.axis = axis
            return forward(x, axis, f"{name} forward")

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
            refuse_second_derivatives()
            return backward(dy, ctx.axis, f"{name} backward"), None

    return Node.apply


f = _node("f", copy_to_tp, reduce_from_tp)
"""Enter a cut layer: x as it is; backward, the ranks' gradients of x are summed.

Source:
    Shoeybi et al. 2019 (Megatron-LM), section 3, figure 3, https://arxiv.org/abs/1909.08053
"""

g = _node("g", reduce_from_tp, copy_to_tp)
"""Leave a cut layer: the ranks' parts are summed; backward, dy as it is."""

gather_time = _node("gather_time", gather_sequence, reduce_scatter_sequence)
"""Enter a cut layer from a stream of which every rank holds a stretch of time; `f` for that stream.

The layer keeps all positions for its backward pass.  Megatron keeps the stretch and gathers once
more, which saves that memory for one more all-gather.

Source:
    Korthikanti et al. 2022, section 4.2.2, https://arxiv.org/abs/2205.05198
"""

scatter_time = _node("scatter_time", reduce_scatter_sequence, gather_sequence)
"""Leave a cut layer for a stream of which every rank holds a stretch of time; `g` for it."""


def all_reduce_max(x_N: Shaped[Tensor, " N"], axis: Axis) -> Shaped[Tensor, " N"]:
    """Return the largest of all ranks' entries, for each entry, on every rank.

    As in an all-reduce that sums, rank c takes care of chunk c: 2 (n-1)/n of the bytes are sent.
    """
    with axis.collective("all_reduce_max", signature(x_N)):
        sizes = chunk_sizes(len(x_N), axis.size)
        lengths = [sizes[axis.index]] * axis.size
        parts = all_to_all(x_N.detach().split(sizes), axis, lengths=lengths)
        return all_gather(torch.stack(parts).amax(0), axis, length=len(x_N))
