"""A whole Transformer, cut in place among the ranks of an axis.

The modules stay what they are.  Their parameters become slices, so that attention computes this
rank's heads and the feed-forward network this rank's hidden units; what reads activations gets them
through `f`, and what it writes leaves through `g`.
"""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from llmcourse.base.runtime import fingerprint
from llmcourse.model import ModelConfig, Transformer
from llmcourse.model.decoder import KVCache
from llmcourse.parallel.collectives import all_reduce_ordered
from llmcourse.parallel.tensor_parallel.layers import (
    entered,
    left,
    vocabulary_parallel_embedding,
    vocabulary_parallel_linear,
)
from llmcourse.parallel.tensor_parallel.shape import check_shape
from llmcourse.parallel.tensor_parallel.table import copies, slice_of, summed_over
from llmcourse.parallel.world import Axis

CUT_LAYERS = ("blocks.*.attention", "blocks.*.feed_forward")
"""Modules that read the residual stream whole and leave a part of a sum."""


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a model was cut; `shard` leaves it on the model and on each of its blocks."""

    config: ModelConfig
    """Of the whole model."""
    index: int
    """Of this rank."""
    size: int
    """Ranks."""
    sequence_parallel: bool
    """Whether every rank has a stretch of time between the cut layers."""
    replicate_kv: bool
    """Whether several ranks may hold the same key/value head."""

    def slice_of(self, name: str, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Return this rank's part of a whole parameter, see `table.slice_of`."""
        settings = {"replicate_kv": self.replicate_kv}
        return slice_of(name, shape, self.config, self.index, self.size, **settings)

    def summed_over(self, name: str) -> str | None:
        """Return over which ranks a gradient has to be summed, see `table.summed_over`."""
        settings = {
            "sequence_parallel": self.sequence_parallel,
            "replicate_kv": self.replicate_kv,
        }
        return summed_over(name, self.config, self.size, **settings)


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
    if hasattr(model, "sharding"):
        raise ValueError("the model is cut already: shard a whole one")
    _check_equal(model, axis)
    sharding = Sharding(
        config=model.config,
        index=axis.index,
        size=axis.size,
        sequence_parallel=sequence_parallel,
        replicate_kv=replicate_kv,
    )
    _cut(model, sharding)
    _connect(model, axis, sharding)
    for module in (model, *model.blocks):
        module.sharding = sharding
    return model


def sync(model: nn.Module, axis: Axis) -> None:
    """Sum the gradients of which every rank has a part: once per step, after the last backward.

    Complete already are those of slices that one rank alone has.  Summed over all ranks are the
    gains of the norms where time is cut, since a rank has normalised its own tokens only, and
    always the gains of queries and keys, since a rank has its own heads only; summed over the ranks
    that hold the same key/value head are the gradients of the copies.

    Args:
        model: from `shard`, or a part of it that keeps its parameters' names and has a block.
        axis: the ranks.

    Raises:
        ValueError: if the model was not cut.
    """
    sharding = sharding_of(model)
    partial = {"axis": [], "copies": []}
    for name, p in model.named_parameters():
        ranks = sharding.summed_over(name)
        if ranks is not None and p.grad is not None:
            partial[ranks].append(p.grad)
    _sum_together(partial["axis"], axis, "all_reduce_replicated")
    holders = axis.block(copies(sharding.config, axis.size))
    _sum_together(partial["copies"], holders, "all_reduce_kv_copies")
    axis.sent_bytes += holders.sent_bytes


def counted_once(model: nn.Module, axis: Axis) -> list[nn.Parameter]:
    """Return the parameters that this rank counts, so that over the ranks each counts once.

    What is whole on every rank counts on the first one, and a copied head on the first that holds
    it: the sum of squares of their gradients over all ranks is that of the whole model.

    Args:
        model: as in `sync`, whose call has to come first.
        axis: the ranks.
    """
    sharding = sharding_of(model)
    return [p for name, p in model.named_parameters() if _counts(name, p, sharding, axis.index)]


def sharding_of(model: nn.Module) -> Sharding:
    """Return how a model, or a part of one that has a block, was cut.

    Raises:
        ValueError: if it was not.
    """
    for module in model.modules():
        if hasattr(module, "sharding"):
            return module.sharding
    raise ValueError("the model was not cut: call shard first")


def _counts(name: str, p: nn.Parameter, sharding: Sharding, index: int) -> bool:
    """Whether a rank is the first of those that hold the same entries."""
    if sharding.slice_of(name, _whole_shape(p, sharding.size)) is None:
        return index == 0
    if sharding.summed_over(name) == "copies":
        return index % copies(sharding.config, sharding.size) == 0
    return True


def _whole_shape(p: nn.Parameter, size: int) -> tuple[int, ...]:
    """Return a shape that divides like the whole one: enough to know whether it is cut."""
    return tuple(n * size for n in p.shape)


def _check_equal(model: Transformer, axis: Axis) -> None:
    """Compare a hash of the weights with the neighbours': ranks have to begin with one model."""
    if not model.embedding.is_meta:
        with axis.collective("shard", fingerprint(dict(model.named_parameters()))):
            pass


@torch.no_grad()
def _cut(model: Transformer, sharding: Sharding) -> None:
    """Make slices of the parameters; the parameter objects stay, the rest of their memory goes."""
    for name, p in model.named_parameters():
        part = sharding.slice_of(name, tuple(p.shape))
        p.grad = None
        if part is not None:
            dim, start, stop = part
            p.data = p.data.narrow(dim, start, stop - start).clone()


def _connect(model: Transformer, axis: Axis, sharding: Sharding) -> None:
    """Put the nodes before and after the cut layers, the embedding and the head."""
    settings = {"sequence_parallel": sharding.sequence_parallel}

    def enter(_module: nn.Module, inputs: tuple) -> tuple:
        return (entered(inputs[0], axis, **settings), *inputs[1:])

    def leave(_module: nn.Module, _inputs: tuple, y_BTD: Tensor) -> Tensor:
        return left(y_BTD, axis, **settings)

    def look_up(ids_BT: Int[Tensor, "B T"], w_vD: Float[Tensor, "v D"]) -> Tensor:
        return vocabulary_parallel_embedding(ids_BT, w_vD, axis, **settings)

    def project(x_BTD: Float[Tensor, "B _ D"], w_vD: Float[Tensor, "v D"]) -> Tensor:
        return vocabulary_parallel_linear(x_BTD, w_vD, axis, **settings)

    def new_cache(batch_size: int) -> list[KVCache]:
        local = replace(
            sharding.config,
            num_heads=sharding.config.num_heads // axis.size,
            num_kv_heads=max(1, sharding.config.num_kv_heads // axis.size),
        )
        return [KVCache(batch_size, local, like=model.embedding) for _ in model.blocks]

    for name, module in model.named_modules():
        if any(fnmatchcase(name, pattern) for pattern in CUT_LAYERS):
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave)
    model.look_up, model.project, model.new_cache = look_up, project, new_cache


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
