"""What ranks run in the tests of context parallelism, and what it is compared with in one process.

Shape suffixes:  B batch, T time of the whole sequence, t time of a rank's tokens, H query heads,
G key/value heads, K head size, V vocabulary.
"""

import contextlib
import itertools
from typing import Any, NamedTuple

import torch
from parallel_kit import gradients_of, patched, weights_of
from torch import Tensor

from llmcourse import optim
from llmcourse.backward.recompute import recomputed
from llmcourse.loss import IGNORE_INDEX, cross_entropy, shifted_targets
from llmcourse.model import ModelConfig, Transformer, attention
from llmcourse.parallel import collectives, data_parallel
from llmcourse.parallel import context_parallel as cp
from llmcourse.parallel.context_parallel import partial as parts
from llmcourse.parallel.context_parallel import ring

BATCH, TIME, HEADS, HEAD_SIZE = 2, 24, 4, 6
"""24 tokens divide into chunks for 1, 2, 3 and 4 ranks, and chunks into tiles of 4 unevenly."""

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
MASKS = ("causal", "documents", "window", "blind")


class Attended(NamedTuple):
    out_BTHK: Tensor
    dq_BTHK: Tensor
    dk_BTGK: Tensor
    dv_BTGK: Tensor


def inputs(num_kv_heads: int, dtype: str) -> list[Tensor]:
    """Draw queries, keys, values and the gradient of the output, none with mean 0."""
    g = torch.Generator().manual_seed(num_kv_heads)
    heads = (HEADS, num_kv_heads, num_kv_heads, HEADS)
    shapes = [(BATCH, TIME, h, HEAD_SIZE) for h in heads]
    drawn = (torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes)
    return [(1.5 * x + 0.3).to(DTYPES[dtype]) for x in drawn]


def documents() -> Tensor:
    """Return the document of each token; they end inside chunks, and differ between the rows."""
    ends = torch.tensor([[5, 6, 17], [9, 14, 22]])
    return (torch.arange(TIME).unsqueeze(-1) >= ends.unsqueeze(1)).sum(-1)


def mask_of(kind: str) -> Tensor | None:
    """Return a mask over whole sequences: with a batch axis, without, with rows of nothing."""
    if kind == "documents":
        return attention.document_mask(documents())
    if kind == "window":
        return attention.sliding_window_mask(TIME, TIME, 5)
    if kind == "blind":  # looks ahead, too, and three queries see nothing
        mask = torch.rand(TIME, TIME, generator=torch.Generator().manual_seed(5)) < 0.4
        mask[[0, 7, 19]] = False
        return mask
    return None


def dense(given: list[Tensor], mask: Tensor | None) -> Attended:
    """Attend in one process, in float64, with all weights at once; gradients are autograd's."""
    q, k, v, dout = (x.double() for x in given)
    if mask is not None and not mask.any(-1).all():
        # Through a row of -inf autograd's gradient is NaN: by hand then.
        out, saved = attention.attention_forward(q, k, v, mask)
        return Attended(out, *attention.attention_backward(dout, saved))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = attention.attention(*leaves, mask=mask)
    return Attended(out.detach(), *torch.autograd.grad(out, leaves, dout))


class Ringed(NamedTuple):
    mine: Attended
    forward_bytes: int
    backward_bytes: int
    num_pieces: int  # of attention that the rank computed in forward


def attend(rank, layout, num_kv_heads, mask_kind, dtype, *, cut_mask=False) -> Ringed:
    """Attend with a ring to this rank's share of the inputs; the mask is whole, or cut as well."""
    axis = rank.axis("dp")
    place = (axis.index, axis.size, layout)
    *leaves, dout = (cp.share(x, *place) for x in inputs(num_kv_heads, dtype))
    mask, record = mask_of(mask_kind), []
    if cut_mask and mask is not None:
        mask = cp.share(mask, *place, dim=-2)
    form = cp.ring_attention(axis, layout=layout, tile=4, record=record)
    leaves = [x.requires_grad_() for x in leaves]
    before = axis.sent_bytes
    out = form(*leaves, mask=mask)
    between = axis.sent_bytes
    gradients = torch.autograd.grad(out, leaves, dout)
    after = axis.sent_bytes
    with torch.no_grad():
        assert torch.equal(form(*leaves, mask=mask), out)
    pieces = itertools.takewhile(lambda message: message.name == "attend", record)
    found = Attended(out.detach(), *gradients)
    return Ringed(found, between - before, after - between, len(list(pieces)))


def joined(found: list[Ringed], layout: str) -> Attended:
    shares = zip(*(ringed.mine for ringed in found), strict=True)
    return Attended(*(cp.join([torch.as_tensor(x) for x in xs], layout) for xs in shares))


# The whole model
def made(*, tied_head: bool = True) -> Transformer:
    """Return a small decoder in float64, gains unlike 1."""
    heads = {"num_heads": HEADS, "num_kv_heads": 2, "head_size": HEAD_SIZE}
    sizes = {"num_layers": 2, "width": 10, "hidden": 14, "vocab_size": 19, "context_length": TIME}
    config = ModelConfig(**sizes, **heads, tied_head=tied_head, qk_norm=not tied_head)
    g = torch.Generator().manual_seed(0)
    model = Transformer(config, generator=g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return model


class Batch(NamedTuple):
    """Whole sequences of ids, what they are asked for, where they stand, and what they may see."""

    ids_BT: Tensor
    targets_BT: Tensor
    positions_BT: Tensor
    mask: Tensor | None


def batch(step: int, *, packed: bool) -> Batch:
    """Draw the batch of a step; most of the first half is not asked for."""
    g = torch.Generator().manual_seed(100 + step)
    ids_BT = torch.randint(0, 19, (BATCH, TIME), generator=g)
    found_BT = documents() if packed else torch.zeros(BATCH, TIME, dtype=torch.int64)
    targets_BT = shifted_targets(ids_BT, documents_BT=found_BT)
    targets_BT[:, 1:11] = IGNORE_INDEX
    places_BT = torch.arange(TIME).expand(BATCH, TIME)
    if not packed:
        return Batch(ids_BT, targets_BT, places_BT, None)
    first_BT = (found_BT.unsqueeze(-1) == found_BT.unsqueeze(-2)).int().argmax(-1)
    return Batch(ids_BT, targets_BT, places_BT - first_BT, attention.document_mask(found_BT))


class Trace(NamedTuple):
    losses: list[float]
    gradients: list[dict[str, Any]]  # by name, after they were summed
    local: dict[str, Any]  # gradients of this rank alone, in the first step
    weights: dict[str, Any]  # at the end
    ring_bytes: int  # sent in attention by this rank, in the first step


def alone(*, packed: bool, tied_head: bool = True, steps: int = 3) -> Trace:
    """Train in one process, on whole sequences, with the attention that is written out."""
    model = made(tied_head=tied_head)
    model.attend_with(attention.attention)
    optimizer = _optimizer(model)
    losses, gradients = [], []
    for step in range(steps):
        ids, targets, positions, mask = batch(step, packed=packed)
        loss = cross_entropy(model(ids, positions_BT=positions, mask=mask), targets)
        loss.backward()
        losses.append(loss.item())
        gradients.append(gradients_of(model))
        optimizer.step()
        optimizer.zero_grad()
    return Trace(losses, gradients, {}, weights_of(model), 0)


def train(rank, layout, *, packed, tied_head=True, steps=3, again=None, mutant=None) -> Trace:
    """Train as `alone` does, on this rank's share of every sequence; `again` is recomputed."""
    axis, model = rank.axis("dp"), made(tied_head=tied_head)
    model.attend_with(cp.ring_attention(axis, layout=layout, tile=4))
    optimizer = _optimizer(model)
    losses, gradients, local, ring_bytes = [], [], {}, 0
    for step in range(steps):
        mine, num_tokens = _share_of(batch(step, packed=packed), axis, layout, mutant)
        num_messages = len(axis.messages)
        with recomputed(model, again) if again else contextlib.nullcontext():
            positions = None if mutant == "positions forgotten" else mine.positions_BT
            logits = model(mine.ids_BT, positions_BT=positions, mask=mine.mask)
            loss = cross_entropy(logits, mine.targets_BT, num_tokens=num_tokens)
            loss.backward()
        if step == 0:
            local = gradients_of(model)
            sent = axis.messages[num_messages:]
            ring_bytes = sum(m.num_bytes for m in sent if m.name.startswith("ring_attention"))
        if mutant != "gradients stay local":
            data_parallel.sum_gradients(model.parameters(), axis)
        losses.append(float(collectives.all_reduce_ordered(loss.detach().clone(), axis)))
        gradients.append(gradients_of(model))
        optimizer.step()
        optimizer.zero_grad()
    return Trace(losses, gradients, local, weights_of(model), ring_bytes)


def _share_of(whole: Batch, axis, layout: str, mutant: str | None) -> tuple[Batch, int]:
    """Cut a batch, and count the tokens that are asked for on all ranks."""
    place = (axis.index, axis.size, "blocks" if mutant == "tokens of another layout" else layout)
    ids, targets, positions = (cp.share(x, *place) for x in whole[:3])
    if mutant == "targets shifted after the cut":
        counted = targets != IGNORE_INDEX
        targets = shifted_targets(ids).where(counted, IGNORE_INDEX)
    counted = (targets != IGNORE_INDEX).sum().reshape(1)
    num_tokens = int(collectives.all_reduce_ordered(counted, axis))
    if mutant == "mean of the ranks' means":
        num_tokens = max(1, int((targets != IGNORE_INDEX).sum())) * axis.size
    mask = whole.mask if whole.mask is None else cp.share(whole.mask, *place, dim=-2)
    return Batch(ids, targets, positions, mask), num_tokens


def narrow(rank, layout: str) -> dict[str, Any]:
    """Return logits and gradients of the whole model under bf16 autocast, and bytes sent."""
    axis, model = rank.axis("dp"), made().float()
    model.attend_with(cp.ring_attention(axis, layout=layout))
    place = (axis.index, axis.size, layout)
    ids, targets, positions = (cp.share(x, *place) for x in batch(0, packed=False)[:3])
    with torch.autocast("cpu", torch.bfloat16):
        before = axis.sent_bytes
        logits = model(ids, positions_BT=positions)
        forward_bytes = axis.sent_bytes - before
        with torch.no_grad():
            assert torch.equal(model(ids, positions_BT=positions), logits)
    before = axis.sent_bytes
    num_tokens = int((batch(0, packed=False).targets_BT != IGNORE_INDEX).sum())
    cross_entropy(logits, targets, num_tokens=num_tokens).backward()
    backward_bytes = axis.sent_bytes - before
    data_parallel.sum_gradients(model.parameters(), axis)
    return {
        "dtype": str(logits.dtype),
        "logits": logits.float(),
        "gradients": gradients_of(model),
        "bytes": (forward_bytes, backward_bytes),
    }


def narrow_alone(*, autocast: bool) -> tuple[Tensor, dict[str, Tensor]]:
    model = made().float()
    ids, targets, positions, _ = batch(0, packed=False)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(ids, positions_BT=positions)
    cross_entropy(logits, targets).backward()
    return logits.detach().float(), gradients_of(model)


def _optimizer(model: Transformer) -> optim.AdamW:
    return optim.AdamW(optim.decay_groups(model, weight_decay=0.1), lr=1e-2)


def refused(rank) -> list[str]:
    axis, x, said = rank.axis("dp"), torch.ones(2, 4, 2, 6), []
    for call in (
        lambda: cp.check_length(8, 2, "stripes"),
        lambda: cp.work_pairs(8, 2, "stripes"),
        lambda: cp.ring_attention(axis, layout="stripes"),
        lambda: cp.ring_attention(axis)(x[:, :2], x, x),
    ):
        try:
            call()
        except ValueError as error:
            said.append(str(error))
    return said


def attend_otherwise(rank, length: int, layout: str) -> None:
    x = torch.ones(1, 4 if rank.index else length, 2, 4)
    cp.ring_attention(rank.axis("dp"), layout="zigzag" if rank.index else layout)(x, x, x)


def added_up(rank) -> list[Any]:
    """Sum gradients of several dtypes, shapes and strides, some missing on some or on all ranks."""
    axis = rank.axis("dp")
    g = torch.Generator().manual_seed(axis.index)
    shapes = [(3, 5), (), (4,), (2, 3), (0, 2), (2,)]
    dtypes = [torch.float32] * 3 + [torch.float64] * 2 + [torch.float32]
    zeros = (torch.zeros(s, dtype=dtype) for s, dtype in zip(shapes, dtypes, strict=True))
    parameters = list(map(torch.nn.Parameter, zeros))
    for p in parameters[:-1]:
        p.grad = torch.randn(p.shape, generator=g, dtype=p.dtype)
    parameters[0].grad = parameters[0].grad.T.contiguous().T  # other strides
    if axis.index == 1:
        parameters[2].grad = None
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    before = [None if p.grad is None else p.grad.clone() for p in parameters]
    data_parallel.sum_gradients([*parameters, frozen], axis)
    return [before, [p.grad for p in parameters], frozen.grad]


# Mutants
def _merge_without_rescaling(one, other):
    total = MERGE(one, other)
    weight = (other.logsumexp_BHt - total.logsumexp_BHt).exp().nan_to_num()
    added = weight.transpose(1, 2).unsqueeze(-1) * other.out_BtHK
    return total._replace(out_BtHK=one.out_BtHK + added)


def _merge_of_means(one, other):
    seen = (one.logsumexp_BHt > -torch.inf).int() + (other.logsumexp_BHt > -torch.inf).int()
    share = 1 / seen.clamp(min=1).transpose(1, 2).unsqueeze(-1)
    return MERGE(one, other)._replace(out_BtHK=(one.out_BtHK + other.out_BtHK) * share)


def _one_step_too_few(x, axis):
    for step, arrived in enumerate(ROUND(x, axis)):
        if step < axis.size - 1:
            yield arrived


def _named_backwards(x, axis):
    for owner, y in ROUND(x, axis):
        yield (2 * axis.index - owner) % axis.size, y


def _stay_where_they_are(x, axis):
    PASS_ON(x, axis)
    return x


def _doubled(dout, saved, allowed, tile):
    dq, dk, dv = attention.flash_backward(dout, saved, allowed, tile)
    return dq, 2 * dk, 2 * dv


def _weights_of_the_part(dout, saved, allowed, tile):
    _, alone = attention.flash_forward(saved.q_BTHK, saved.k_BSGK, saved.v_BSGK, allowed, tile)
    return attention.flash_backward(
        dout, saved._replace(logsumexp_NT=alone.logsumexp_NT), allowed, tile
    )


def _output_of_the_part(dout, saved, allowed, tile):
    out, _ = attention.flash_forward(saved.q_BTHK, saved.k_BSGK, saved.v_BSGK, allowed, tile)
    return attention.flash_backward(dout, saved._replace(out_BTHK=out), allowed, tile)


def _values_first(x, axis):
    for owner, kv in ROUND(x, axis):
        yield owner, kv if owner == axis.index else kv.flip(0)


MERGE, ROUND, ROWS, PASS_ON = parts.merge, ring.round_the_ring, ring.rows_of_mask, ring._pass_on

MUTANTS = {
    "no rescaling when parts are merged": patched(ring, merge=_merge_without_rescaling),
    "the mean of the parts": patched(ring, merge=_merge_of_means),
    "causal by local place": patched(
        ring, positions=lambda n, index, size, *_: torch.arange(n // size)
    ),
    "one step too few": patched(ring, round_the_ring=_one_step_too_few),
    "keys taken for those of another rank": patched(ring, round_the_ring=_named_backwards),
    "values taken for keys": patched(ring, round_the_ring=_values_first),
    "gradients of keys stay where they are": patched(ring, _pass_on=_stay_where_they_are),
    "keys' gradients forgotten": patched(ring, _pass_on=lambda *x: torch.zeros_like(PASS_ON(*x))),
    "gradients of keys doubled": patched(ring, flash_backward=_doubled),
    "weights of the part alone in backward": patched(ring, flash_backward=_weights_of_the_part),
    "output of the part alone in backward": patched(ring, flash_backward=_output_of_the_part),
    "mask cut otherwise": patched(ring, rows_of_mask=lambda mask, *more: ROWS(mask.mT, *more)),
    "first rows of the mask": patched(ring, rows_of_mask=lambda mask, n, *_: mask[..., :n, :]),
    "by a ring": patched(data_parallel.buckets, all_reduce_ordered=collectives.all_reduce_ring),
}
OF_ATTENTION = list(MUTANTS)[:-1]

OF_MASKS = ("mask cut otherwise", "first rows of the mask")
"""They break nothing where there is no mask."""

OF_TRAINING = ["positions forgotten", "gradients stay local", "mean of the ranks' means"]
OF_TRAINING += ["targets shifted after the cut", "tokens of another layout"]
