"""Ring attention: keys and values travel from rank to rank, queries stay where they are.

Forward: in each of n steps a rank attends to the keys it has at the moment, while they are on
their way to the next rank, and merges what it read with what it had.  Backward: the keys and values
travel once more, and the gradients that the ranks add up for them travel behind them, home to the
rank that holds them.  With n ranks and L bytes of keys and values on each, a rank sends (n-1) L
bytes in forward and (n-1) (L + L') in backward, L' being the bytes of their gradients, which are
summed in float32 at least.

Shape suffixes:  B batch, T time of the whole sequence, t time of this rank's tokens, H query heads,
G key/value heads, K head size.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from llmcourse.base.pairs import differentiable, upcast
from llmcourse.model.attention import FlashSaved, flash_backward
from llmcourse.model.attention.dense import require_heads
from llmcourse.parallel.context_parallel.layout import Layout, chunks_of, positions, share
from llmcourse.parallel.context_parallel.partial import empty_partial, merge, read_part
from llmcourse.parallel.world import Axis, Message


class RingSaved(NamedTuple):
    """What `ring_backward` needs: what this rank holds, and one log-sum-exp per query and head."""

    q_BtHK: Float[Tensor, "B t H K"]
    k_BtGK: Float[Tensor, "B t G K"]
    v_BtGK: Float[Tensor, "B t G K"]
    out_BtHK: Float[Tensor, "B t H K"]
    logsumexp_BHt: Float[Tensor, "B H t"]
    """Over the keys of all ranks; 0 for a query that sees nothing."""
    mask_tT: Bool[Tensor, "*masked t T"] | None
    """The mask's rows of this rank's queries; None is causal."""


def ring_attention(
    axis: Axis,
    *,
    layout: Layout = "zigzag",
    tile: int = 64,
    record: list[Message] | None = None,
) -> Callable[..., Tensor]:
    """Return a form of attention for queries, keys and values that are shared out over an axis.

    It is called as the other forms are, so that ``model.attend_with(ring_attention(axis))`` makes
    a model attend over the tokens of all ranks; the model needs the positions of its own tokens
    too, ``model(ids_Bt, positions_BT=...)``.  Every rank of the axis has to call it, with the same
    number of tokens.  Parameters are copies on all ranks: their gradients are parts that
    `data_parallel.sum_gradients` adds up.

    A mask is given as the rows of this rank's queries, (t, T) or (B, t, T), with a column for each
    token of the whole sequence in its order, see `share`; a whole one, (T, T) or (B, T, T), is cut
    here.

    Args:
        axis: the ranks.
        layout: which tokens a rank holds, "zigzag" or "blocks".
        tile: queries, and keys, of one tile.
        record: where to note the time of every piece of attention that is computed.

    Raises:
        ValueError: if there is no such layout, or the tile is below 1; and, when it is called, if
            the tokens do not divide into chunks, the mask has another shape, or there are not as
            many queries as keys.

    Source:
        Liu, Zaharia and Abbeel 2023, https://arxiv.org/abs/2310.01889
    """
    chunks_of(axis.index, axis.size, layout)
    if tile < 1:
        raise ValueError(f"tile must be 1 or greater, got {tile}")
    settings: dict[str, Any] = {"axis": axis, "layout": layout, "tile": tile, "record": record}
    pair = differentiable(
        partial(ring_forward, **settings), partial(ring_backward, **settings), autocast="lower"
    )

    def attend(
        q_BtHK: Float[Tensor, "B t H K"],
        k_BtGK: Float[Tensor, "B t G K"],
        v_BtGK: Float[Tensor, "B t G K"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B t H K"]:
        return pair(q_BtHK, k_BtGK, v_BtGK, mask)

    return attend


def ring_forward(
    q_BtHK: Float[Tensor, "B t H K"],
    k_BtGK: Float[Tensor, "B t G K"],
    v_BtGK: Float[Tensor, "B t G K"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    axis: Axis,
    layout: Layout = "zigzag",
    tile: int = 64,
    record: list[Message] | None = None,
) -> tuple[Float[Tensor, "B t H K"], RingSaved]:
    """Return what this rank's queries read from the keys of all ranks, and what backward needs.

    Steps in which every key lies in the future compute nothing, but the ring still turns.  Parts
    are computed and merged in float32 at least, whatever the dtype of the inputs.

    Arguments and errors as in `ring_attention`.
    """
    require_heads(q_BtHK, k_BtGK, v_BtGK, mask)
    if q_BtHK.shape[1] != k_BtGK.shape[1]:
        raise ValueError(
            f"{q_BtHK.shape[1]} queries and {k_BtGK.shape[1]} keys: a rank has both of the same "
            "tokens, and no cache"
        )
    mask_tT = None if mask is None else rows_of_mask(mask, q_BtHK.shape[1], axis, layout)
    q_wide, total = upcast(q_BtHK), empty_partial(upcast(q_BtHK))
    with axis.collective("ring_attention", _alike(q_BtHK, k_BtGK, layout)):
        for _, kv, allowed_ts in _pieces(k_BtGK, v_BtGK, mask_tT, axis, layout):
            if allowed_ts is not None:
                with _noted(record, "attend", axis):
                    total = merge(total, read_part(q_wide, kv[0], kv[1], allowed_ts, tile=tile))
    out_BtHK = total.out_BtHK.to(q_BtHK.dtype)
    seen_BHt = total.logsumexp_BHt > -math.inf
    logsumexp_BHt = total.logsumexp_BHt.where(seen_BHt, 0.0)
    return out_BtHK, RingSaved(q_BtHK, k_BtGK, v_BtGK, out_BtHK, logsumexp_BHt, mask_tT)


def ring_backward(
    dout_BtHK: Float[Tensor, "B t H K"],
    saved: RingSaved,
    *,
    axis: Axis,
    layout: Layout = "zigzag",
    tile: int = 64,
    record: list[Message] | None = None,
) -> tuple[Float[Tensor, "B t H K"], Float[Tensor, "B t G K"], Float[Tensor, "B t G K"]]:
    """Gradients of `ring_forward` for this rank's queries, keys and values.

    The log-sum-exp over all keys turns every part of the scores into weights of the whole softmax,
    so that each part of the gradient is one `flash_backward`.  The sum for the keys of rank j sets
    out at rank j + 1, follows the keys from rank to rank, and is home at rank j after n - 1 steps.
    """
    q_BtHK, k_BtGK, v_BtGK, out_BtHK, logsumexp_BHt, mask_tT = saved
    q_wide, out_wide, dout_wide = (upcast(x) for x in (q_BtHK, out_BtHK, dout_BtHK))
    dq_BtHK, passing = torch.zeros_like(q_wide), None
    home = torch.zeros_like(upcast(torch.stack((k_BtGK, v_BtGK))))
    with axis.collective("ring_attention_backward", _alike(q_BtHK, k_BtGK, layout)):
        for owner, kv, allowed_ts in _pieces(k_BtGK, v_BtGK, mask_tT, axis, layout):
            dkv = torch.zeros_like(home)
            if allowed_ts is not None:
                with _noted(record, "attend backward", axis):
                    part = FlashSaved(q_wide, kv[0], kv[1], out_wide, logsumexp_BHt.flatten(0, 1))
                    dq_part, dkv[0], dkv[1] = flash_backward(dout_wide, part, allowed_ts, tile)
                    dq_BtHK += dq_part
            if owner == axis.index:
                home = dkv
            else:
                passing = _pass_on(dkv if passing is None else passing.add_(dkv), axis)
    if passing is not None:
        home += passing
    return dq_BtHK.to(q_BtHK.dtype), home[0].to(k_BtGK.dtype), home[1].to(v_BtGK.dtype)


def round_the_ring(
    x: Shaped[Tensor, "..."], axis: Axis
) -> Iterator[tuple[int, Shaped[Tensor, "..."]]]:
    """Yield every rank's tensor with the index of its owner: this rank's own, then those before it.

    A tensor is on its way to the next rank while it is yielded, and so must not be changed.  Each
    rank sends n - 1 times.  Shape and dtype are the same on every rank.
    """
    for step in range(axis.size):
        waits, room = [], x
        if step < axis.size - 1:
            room = torch.empty_like(x)
            waits = [axis.post_receive(room, _before(axis)), axis.post_send(x, _after(axis))]
        yield (axis.index - step) % axis.size, x
        for wait in waits:
            wait()
        x = room


def rows_of_mask(
    mask: Bool[Tensor, "..."], num_queries: int, axis: Axis, layout: Layout
) -> Bool[Tensor, "*masked t T"]:
    """Return the rows of a mask that belong to this rank's queries, cutting them if need be.

    Raises:
        ValueError: if the mask has neither t nor T rows, or not T columns.
    """
    length = num_queries * axis.size
    if mask.shape[-1] != length or mask.shape[-2] not in (num_queries, length):
        raise ValueError(
            f"the mask must end in ({num_queries}, {length}), the rows of this rank's queries, or "
            f"in ({length}, {length}), got {tuple(mask.shape)}"
        )
    if mask.shape[-2] == num_queries:
        return mask
    return share(mask, axis.index, axis.size, layout, dim=-2)


def _pieces(
    k_BtGK: Float[Tensor, "B t G K"],
    v_BtGK: Float[Tensor, "B t G K"],
    mask_tT: Bool[Tensor, "*masked t T"] | None,
    axis: Axis,
    layout: Layout,
) -> Iterator[tuple[int, Float[Tensor, "2 B t G K"], Bool[Tensor, "*masked t s"] | None]]:
    """Yield whose keys and values have come, themselves, and where this rank's queries may look.

    None in place of the mask says that they may look at nothing.
    """
    length = k_BtGK.shape[1] * axis.size
    held = [positions(length, i, axis.size, layout).to(k_BtGK.device) for i in range(axis.size)]
    for owner, kv in round_the_ring(torch.stack((k_BtGK, v_BtGK)), axis):
        if mask_tT is None:
            allowed_ts = held[owner] <= held[axis.index].unsqueeze(-1)
        else:
            allowed_ts = mask_tT.to(k_BtGK.device).index_select(-1, held[owner])
        yield owner, upcast(kv), allowed_ts if allowed_ts.any() else None


def _pass_on(x: Shaped[Tensor, "..."], axis: Axis) -> Shaped[Tensor, "..."]:
    """Send a tensor to the next rank, and return the one that comes from the rank before."""
    return axis.exchange(x, _after(axis), torch.empty_like(x), _before(axis))


def _after(axis: Axis) -> int:
    return (axis.index + 1) % axis.size


def _before(axis: Axis) -> int:
    return (axis.index - 1) % axis.size


def _alike(q_BtHK: Tensor, k_BtGK: Tensor, layout: Layout) -> str:
    """Say what has to be the same on every rank."""
    return f"{k_BtGK.dtype} {list(q_BtHK.shape)} {list(k_BtGK.shape)} {layout}"


@contextlib.contextmanager
def _noted(record: list[Message] | None, name: str, axis: Axis) -> Iterator[None]:
    """Note when something was computed, in the form of the log of messages."""
    start = time.monotonic()
    yield
    if record is not None:
        rank = axis.ranks[axis.index]
        record.append(Message(rank, name, axis.name, 0, start, time.monotonic()))
