"""A whole Transformer, cut in place among the ranks of an axis.

The modules stay what they are.  Their parameters become slices, so that attention computes this
rank's heads and the feed-forward network this rank's hidden units; what reads activations gets them
through `f`, and what it writes leaves through `g`.
"""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from llmcourse.base.runtime import fingerprint
from llmcourse.model import Transformer
from llmcourse.model.decoder import KVCache
from llmcourse.parallel.collectives import all_reduce_ordered
from llmcourse.parallel.tensor_parallel.layers import (
    enter_tp,
    leave_tp,
    vocabulary_parallel_embedding,
    vocabulary_parallel_linear,
)
from llmcourse.parallel.tensor_parallel.shape import check_shape
from llmcourse.parallel.tensor_parallel.table import copies, slice_of, summed_over
from llmcourse.parallel.world import Axis

CUT_LAYERS = ("blocks.*.attention", "blocks.*.feed_forward")
"""Modules that read the residual stream whole and leave a part of a sum."""


class Holding(NamedTuple):
    """What `shard` notes on every parameter, as its attribute `holding`."""

    summed_over: Literal["axis", "copies"] | None
    num_holders: int
    """Ranks that hold the same entries."""


def shard(
    model: Transformer,
    axis: Axis,
    *,
    sequence_parallel: bool = False,
    replicate_kv: bool = False,
) -> Transformer:
    """Cut a model among the ranks of an axis, in place, as `TABLE` says.

    The parameters keep their names and become this rank's slices.  `model(ids_BT)` returns this
    rank's logits of all positions, for `cross_entropy` of this package; `sync` completes the
    gradients after the backward pass.  A cache from `new_cache` holds this rank's heads.

    Args:
        model: whole, and the same on every rank.
        axis: the ranks.
        sequence_parallel: whether the residual stream and its norms hold T / n positions of each
            row on every rank, in place of all of them on all ranks.
        replicate_kv: whether fewer key/value heads than ranks are allowed; then several ranks hold
            the same head.

    Returns:
        The model.

    Raises:
        ValueError: if the shape does not divide, see `check_shape`, or the model is cut already.
        MismatchError: if the ranks' models differ.

    Source:
        Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053; sequence parallelism: Korthikanti et
        al. 2022, section 4.2.2, https://arxiv.org/abs/2205.05198
    """
    check_shape(
        model.config, axis.size, sequence_parallel=sequence_parallel, replicate_kv=replicate_kv
    )
    if hasattr(model.embedding, "holding"):
        raise ValueError("the model is cut already: shard a whole one")
    if not model.embedding.is_meta:  # ranks have to begin with one model
        with axis.collective("shard", fingerprint(dict(model.named_parameters()))):
            pass
    _cut(model, axis, sequence_parallel=sequence_parallel, replicate_kv=replicate_kv)
    _connect(model, axis, sequence_parallel=sequence_parallel)
    return model


def sync(model: nn.Module, axis: Axis) -> None:
    """Sum the gradients of which every rank has a part: once per step, after the last backward.

    Complete already are those of slices that one rank alone has.  Summed over all ranks are the
    gains of the norms where time is cut, since a rank has normalised its own tokens only, and
    always the gains of queries and keys, since a rank has its own heads only; summed over the ranks
    that hold the same key/value head are the gradients of the copies.

    Args:
        model: from `shard`, or a part of it.
        axis: the ranks.

    Raises:
        ValueError: if the model was not cut.
    """
    gradients = [(p.grad, held) for p, held in _cut_parameters(model) if p.grad is not None]
    replicated = [gradient for gradient, held in gradients if held.summed_over == "axis"]
    _sum_together(replicated, axis, "all_reduce_replicated")
    copied = [(gradient, held) for gradient, held in gradients if held.summed_over == "copies"]
    if copied:
        holders = axis.block(copied[0][1].num_holders)
        _sum_together([gradient for gradient, _ in copied], holders, "all_reduce_kv_copies")
        axis.sent_bytes += holders.sent_bytes  # a block counts its own


def owned_parameters(model: nn.Module, axis: Axis) -> list[nn.Parameter]:
    """Return the parameters that this rank counts, so that over the ranks each counts once.

    What several ranks hold counts on the first of them: the sum of squares of the gradients over
    all ranks is that of the whole model.

    Args:
        model: as in `sync`, whose call has to come first.
        axis: the ranks.
    """
    return [p for p, held in _cut_parameters(model) if axis.index % held.num_holders == 0]


def _cut_parameters(model: nn.Module) -> list[tuple[nn.Parameter, Holding]]:
    parameters = list(model.parameters())
    if not all(hasattr(p, "holding") for p in parameters):
        raise ValueError("the model was not cut: call shard first")
    return [(p, vars(p)["holding"]) for p in parameters]


@torch.no_grad()
def _cut(model: Transformer, axis: Axis, *, sequence_parallel: bool, replicate_kv: bool) -> None:
    """Make slices of the parameters, and mark on each how many ranks hold the same, and sum it.

    The parameter objects stay; the rest of their memory goes.
    """
    config, size, settings = model.config, axis.size, {"replicate_kv": replicate_kv}
    for name, p in model.named_parameters():
        part = slice_of(name, tuple(p.shape), config, axis.index, size, **settings)
        over = summed_over(name, config, size, sequence_parallel=sequence_parallel, **settings)
        num_holders = copies(config, size) if over == "copies" else 1
        p.grad = None
        if part is None:
            num_holders = size
        else:
            dim, start, stop = part
            p.data = p.data.narrow(dim, start, stop - start).clone()
        vars(p)["holding"] = Holding(over, num_holders)


def _connect(model: Transformer, axis: Axis, *, sequence_parallel: bool) -> None:
    """Put the nodes before and after the cut layers, the embedding and the head."""
    settings = {"sequence_parallel": sequence_parallel}

    # `f` before and `g` after each cut layer, as hooks.
    def enter(_module: nn.Module, inputs: tuple) -> tuple:
        return (enter_tp(inputs[0], axis, **settings), *inputs[1:])

    def leave(_module: nn.Module, _inputs: tuple, y_BTD: Tensor) -> Tensor:
        return leave_tp(y_BTD, axis, **settings)

    # Embedding and head, whose rows, one for each token of the vocabulary, are shared out.
    def look_up(ids_BT: Int[Tensor, "B T"], w_vD: Float[Tensor, "v D"]) -> Tensor:
        return vocabulary_parallel_embedding(ids_BT, w_vD, axis, **settings)

    def project(x_BTD: Float[Tensor, "B _ D"], w_vD: Float[Tensor, "v D"]) -> Tensor:
        return vocabulary_parallel_linear(x_BTD, w_vD, axis, **settings)

    def new_cache(batch_size: int, num_positions: int | None = None) -> list[KVCache]:
        # Room for this rank's heads; more ranks than key/value heads still have one each.
        local = replace(
            model.config,
            num_heads=model.config.num_heads // axis.size,
            num_kv_heads=max(1, model.config.num_kv_heads // axis.size),
        )
        return [
            KVCache(batch_size, local, num_positions, like=model.embedding) for _ in model.blocks
        ]

    for name, module in model.named_modules():
        if any(fnmatchcase(name, pattern) for pattern in CUT_LAYERS):
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave)
    # The instance's own are found before the methods of its class.
    vars(model).update(look_up=look_up, project=project, new_cache=new_cache)


def _sum_together(gradients: list[Tensor], axis: Axis, name: str) -> None:
    """Sum several gradients over the ranks in one message, if there are any."""
    if not gradients:
        return
    row = torch.cat([gradient.flatten() for gradient in gradients])
    with axis.collective(name, f"{row.dtype} {len(row)}"):
        all_reduce_ordered(row, axis)
    parts = row.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view(gradient.shape))
