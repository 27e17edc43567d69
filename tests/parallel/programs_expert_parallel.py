"""What ranks run in the tests of expert parallelism, and the same in one process."""

import contextlib
from dataclasses import replace
from typing import Any

import torch
from parallel_kit import gradients_of, patched, weights_of
from torch import Tensor

from llmcourse import optim
from llmcourse.backward.recompute import recomputed
from llmcourse.loss import cross_entropy
from llmcourse.model import Transformer, auxiliary_loss, tiny
from llmcourse.model.moe import Experts, Routing
from llmcourse.parallel import collectives, expert_parallel
from llmcourse.parallel.expert_parallel import exchange, experts, shard

NUM_EXPERTS, WIDTH, HIDDEN = 12, 7, 10
IGNORED = -100


# One layer, with counts that no router has to agree to
CASES = {
    "uneven": lambda n, g: torch.randint(0, 5, (n, NUM_EXPERTS), generator=g),
    "even": lambda n, g: torch.full((n, NUM_EXPERTS), 2),
    "an expert without rows": lambda n, g: _without(CASES["uneven"](n, g), experts=[5]),
    "a rank whose experts get nothing": lambda n, g: _without(
        CASES["uneven"](n, g), experts=range(NUM_EXPERTS - NUM_EXPERTS // n, NUM_EXPERTS)
    ),
    "a rank that sends nothing": lambda n, g: _without(CASES["uneven"](n, g), ranks=[n - 1]),
    "a rank that neither sends nor gets": lambda n, g: _without(
        CASES["uneven"](n, g), ranks=[0], experts=range(NUM_EXPERTS // n)
    ),
    "everything to one expert": lambda n, g: _without(
        CASES["uneven"](n, g) + 1, experts=[e for e in range(NUM_EXPERTS) if e != 7]
    ),
    "nobody sends anything": lambda n, g: torch.zeros(n, NUM_EXPERTS, dtype=torch.int64),
}
"""How many rows each of n ranks has for every expert."""


def _without(counts_NE: Tensor, *, ranks: Any = (), experts: Any = ()) -> Tensor:
    counts_NE[list(ranks)] = 0
    counts_NE[:, list(experts)] = 0
    return counts_NE


def layer(case: str, num_ranks: int, dtype: str) -> dict[str, Any]:
    """Return counts, rows and gradients of their results for every rank, and the weights."""
    g = torch.Generator().manual_seed(len(case) + 31 * num_ranks)
    kind = {"dtype": getattr(torch, dtype), "generator": g}
    counts_NE = CASES[case](num_ranks, g)
    sizes = counts_NE.sum(1).tolist()
    return {
        "counts": counts_NE,
        "rows": [torch.randn(size, WIDTH, **kind) for size in sizes],
        "drows": [torch.randn(size, WIDTH, **kind) for size in sizes],
        "weights": {
            **{n: torch.randn(NUM_EXPERTS, HIDDEN, WIDTH, **kind) for n in ("w_gate", "w_up")},
            "w_down": torch.randn(NUM_EXPERTS, WIDTH, HIDDEN, **kind),
        },
    }


def whole_experts(weights: dict[str, Tensor]) -> Experts:
    given = Experts(NUM_EXPERTS, WIDTH, HIDDEN, generator=None).to(weights["w_up"].dtype)
    given.load_state_dict(weights)
    return given


def layer_alone(case: str, num_ranks: int, dtype: str) -> dict[str, Any]:
    """Apply every row's expert to it, one row after the other, and go backward."""
    given = layer(case, num_ranks, dtype)
    weights = {name: w.clone().requires_grad_() for name, w in given["weights"].items()}
    out, drows, total = [], [], torch.zeros((), dtype=weights["w_up"].dtype)
    for counts_E, rows, dout in zip(given["counts"], given["rows"], given["drows"], strict=True):
        x = rows.clone().requires_grad_()
        ids = torch.arange(NUM_EXPERTS).repeat_interleave(counts_E)
        gate = torch.einsum("rfd,rd->rf", weights["w_gate"][ids], x)
        up = torch.einsum("rfd,rd->rf", weights["w_up"][ids], x)
        y = torch.einsum("rdf,rf->rd", weights["w_down"][ids], gate * gate.sigmoid() * up)
        out.append(y.detach())
        drows.append(x)
        total = total + (y * dout).sum()
    total.backward()
    return {
        "out": out,
        "drows": [x.grad for x in drows],
        "weights": {name: w.grad for name, w in weights.items()},
    }


def layer_on_ranks(rank, case: str, dtype: str) -> dict[str, Any]:
    axis = rank.axis("ep")
    given = layer(case, axis.size, dtype)
    mine = expert_parallel.ParallelExperts(whole_experts(given["weights"]), axis)
    x = given["rows"][axis.index].clone().requires_grad_()
    y = mine(x, given["counts"][axis.index])
    (y * given["drows"][axis.index]).sum().backward()
    gradients = {name: p.grad for name, p in mine.named_parameters()}
    return {"out": y.detach(), "dtype": str(y.dtype), "drows": x.grad, "weights": gradients}


def narrow_layer(rank) -> dict[str, Any]:
    """Run a layer under autocast: rows go out in float32, and come back in bf16."""
    with torch.autocast("cpu", torch.bfloat16):
        return layer_on_ranks(rank, "uneven", "float32")


def exchange_rows(rank) -> tuple[Tensor, Tensor, Tensor]:
    """Send r + s rows to rank s, which say who sent them; return what came, and a gradient."""
    axis = rank.axis("ep")
    counts = [axis.index + other for other in range(axis.size)]
    rows = torch.full((sum(counts), 2), float(axis.index), requires_grad=True)
    received = expert_parallel.all_to_all(rows, counts, counts, axis)
    (received * (axis.index + 1)).sum().backward()
    return received.detach(), rows.grad, torch.tensor(counts)


# A whole model
SETTINGS = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-3}
"""A large eps, so that AdamW does not blow up what rounding leaves of a gradient of 0."""


def model_of(dtype: str, *, favoured: Any = None, **settings: Any) -> Transformer:
    """Return a small model with experts, far enough from its start to route unevenly.

    Where some experts are favoured, nobody chooses another one.
    """
    config = replace(tiny(), num_experts=NUM_EXPERTS, experts_per_token=3, hidden=24, **settings)
    g = torch.Generator().manual_seed(5)
    model = Transformer(config, generator=g)
    model = model.double() if dtype == "float64" else model
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("gain"):
                p.uniform_(0.5, 1.5, generator=g)
            else:
                p.mul_(6 if "w_router" in name else 3)
        for block in model.blocks if favoured else ():
            # Every token has a large first channel, by which the router goes.
            block.feed_forward_norm.gain[0] = 1.0
            model.embedding[:, 0] = 0.2
            block.feed_forward.router.w_router[:, 0] = -1.0
            block.feed_forward.router.w_router[favoured, 0] = 1.0
    return model


def share(step: int, index: int) -> tuple[Tensor, Tensor]:
    """Return a rank's share of a batch: ids and targets, of which some are masked."""
    g = torch.Generator().manual_seed(100 * step + index)
    ids, targets = (torch.randint(0, 300, (2, 9), generator=g) for _ in range(2))
    targets[:, :2] = IGNORED
    return ids, targets


def loss_of(model: Transformer, ids: Tensor, targets: Tensor) -> Tensor:
    routings: list[Routing] = []
    value = cross_entropy(model(ids, routings=routings), targets, ignore_index=IGNORED)
    balance = auxiliary_loss(routings, model.config)
    return value if balance is None else value + balance


def alone(num_ranks: int, dtype: str, *, steps: int = 3, **settings: Any) -> dict[str, Any]:
    """Train in one process on whole batches, or share by share where shares are balanced."""
    model = model_of(dtype, **settings)
    optimizer = optim.AdamW(model.parameters(), **SETTINGS)
    losses, gradients = [], []
    by_share = model.config.balance_weight > 0
    for step in range(steps):
        parts = [share(step, index) for index in range(num_ranks)]
        if not by_share:
            parts = [tuple(torch.cat(column) for column in zip(*parts, strict=True))]
        values = [loss_of(model, *part) for part in parts]
        (sum(values) / len(values)).backward()
        losses.append([float(value.detach()) for value in values])
        gradients.append(gradients_of(model))
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "gradients": gradients, "parameters": weights_of(model)}


def on_ranks(rank, dtype, *, steps=3, again=None, **settings: Any) -> dict[str, Any]:
    axis = rank.axis("ep")
    model = model_of(dtype, **settings)
    expert_parallel.shard_experts(model, axis)
    optimizer = optim.AdamW(model.parameters(), **SETTINGS)
    losses, gradients, sent = [], [], []
    for step in range(steps):
        before = axis.sent_bytes
        with recomputed(model, again) if again else contextlib.nullcontext():
            value = loss_of(model, *share(step, axis.index))
            value.backward()
        sent.append(axis.sent_bytes - before)
        expert_parallel.sync_gradients(model, axis)
        losses.append(float(value.detach()))
        there = ((n, p.grad) for n, p in model.named_parameters() if p.grad is not None)
        gradients.append({name: gradient.clone() for name, gradient in there})
        optimizer.step()
        optimizer.zero_grad()
    found = {"losses": losses, "gradients": gradients, "parameters": weights_of(model)}
    return {**found, "sent_bytes": sent}


# Mutants
REGROUP, EXCHANGE, SHARE_OF = experts.regroup, exchange._exchange, experts.share_of
FORWARD, SYNC, COUNTS = Experts.forward, shard.sync_gradients, experts.exchange_counts


def _never_back(rows: Tensor, counts: Tensor) -> Tensor:
    """Regroup on the way there alone: counts are then contiguous, not transposed."""
    return REGROUP(rows, counts) if counts.is_contiguous() else rows


def _transposed(rows: Tensor, counts: Tensor) -> Tensor:
    """Take counts by expert and rank for counts by rank and expert."""
    return REGROUP(rows, counts.T.reshape(counts.shape)) if counts.is_contiguous() else rows


def _other_sources(rows: Tensor, counts: Tensor) -> Tensor:
    """Put the last rank's rows first, on the way to the experts only."""
    if not counts.is_contiguous():
        return REGROUP(rows, counts)
    chunks = rows.split(counts.flatten().tolist())
    n, e = counts.shape
    return torch.cat([chunks[a * e + b] for b in range(e) for a in reversed(range(n))])


def _kept_here(ctx: Any, drows: Tensor) -> tuple:
    """Keep the gradients of rows that stayed here; those of all others are 0."""
    axis = ctx.axis
    parts = [drows.new_zeros(count, drows.shape[1]) for count in ctx.sent]
    parts[axis.index] = drows.split(list(ctx.received))[axis.index]
    return torch.cat(parts), None, None, None


def _copies_alone(model, axis) -> None:
    for p in expert_parallel.owned_parameters(model).values():
        p.grad.div_(axis.size)


def _all_are_copies(model, axis) -> None:
    for p in model.parameters():
        collectives.all_reduce_ring(p.grad, axis).div_(axis.size)


def _experts_are_not_divided(model, axis) -> None:
    SYNC(model, axis)
    for p in expert_parallel.owned_parameters(model).values():
        p.grad.mul_(axis.size)


def _no_gradient_without_rows(self, rows: Tensor, counts: Tensor) -> Tensor:
    return FORWARD(self, rows, counts) if len(rows) else rows * 1


MUTANTS = {
    # Those that a single layer shows,
    "rows come back in the experts' order": patched(experts, regroup=_never_back),
    "counts are transposed": patched(experts, regroup=_transposed),
    "counts of experts are swapped": patched(  # right for every rank
        experts, exchange_counts=lambda counts_NE, axis: COUNTS(counts_NE, axis).flip(1)
    ),
    "gradients are not sent back": patched(exchange._AllToAll, backward=staticmethod(_kept_here)),
    "every rank takes the first experts": patched(
        experts, share_of=lambda num, index, size: SHARE_OF(num, 0, size)
    ),
    "rows of two ranks change places": patched(experts, regroup=_other_sources),
    "rows are not grouped by expert": patched(experts, regroup=lambda rows, _: rows),
    # those that it cannot show,
    "the router's gradients stay local": patched(expert_parallel, sync_gradients=_copies_alone),
    "experts are averaged like copies": patched(expert_parallel, sync_gradients=_all_are_copies),
    "experts are not divided": patched(expert_parallel, sync_gradients=_experts_are_not_divided),
    # and one that shows where nobody chose some experts.
    "no rows, no gradient": patched(Experts, forward=_no_gradient_without_rows),
}
