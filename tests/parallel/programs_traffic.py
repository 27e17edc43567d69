"""What ranks run in the tests of the bytes that they send."""

from dataclasses import replace
from typing import Any

import torch
from parallel_kit import patched

from llmcourse import loss, optim
from llmcourse.model import Transformer, tiny, tiny_moe
from llmcourse.parallel import context_parallel, expert_parallel, mesh, zero
from llmcourse.parallel import data_parallel as dp
from llmcourse.parallel import tensor_parallel as tp
from llmcourse.parallel.expert_parallel import ParallelExperts
from llmcourse.parallel.world import Axis, Rank
from llmcourse_labs.scale import arithmetic, cost

LENGTHS = {"vocab_size": 48, "context_length": 24}
TIED = replace(tiny(), num_layers=5, width=20, hidden=24, num_kv_heads=4, **LENGTHS)
MODELS = {
    "tied": TIED,
    "untied": replace(TIED, tied_head=False, qk_norm=True, num_kv_heads=2),
    "three": replace(TIED, width=22, num_heads=6, num_kv_heads=3, qk_norm=True),
    "one kv head": replace(TIED, num_kv_heads=1, tied_head=False),
    "mixture": replace(tiny_moe(), num_layers=3, num_experts=12, experts_per_token=3),
}
"""Sizes that do not divide: 5 layers, and of the third the number of parameters by 3."""


def sent_on_mesh(rank, name, settings, batch_size: int, length: int) -> dict[str, Any]:
    """Take one step on a mesh; return the bytes that this rank sent by axis, and its place."""
    split, config = mesh.Split(**settings), MODELS[name]
    rank = Rank(rank.index, split.sizes, messages=[])
    model = Transformer(config, generator=torch.Generator().manual_seed(0))
    part = mesh.LocalModel(model, rank, split)
    rows = watched_rows(part, rank.axis("ep"))
    g = torch.Generator().manual_seed(rank.place["dp"] * split.ep + rank.place["ep"])
    shape = (batch_size // split.batch_shares, length)
    ids, targets = (torch.randint(0, 48, shape, generator=g) for _ in range(2))
    before = {axis: rank.axis(axis).sent_bytes for axis in mesh.AXES}
    part.forward_and_backward(ids, targets, num_tokens=batch_size * length)
    part.sync()
    sent = {axis: rank.axis(axis).sent_bytes - before[axis] for axis in mesh.AXES}
    numbers = [p.numel() for p in part.parameters()]
    return {
        "sent": sent,
        "place": rank.place,
        "rows": rows,
        "numbers": sum(numbers),
        "tensors": len(numbers),
        "names": sorted(name for name, _ in part.named_parameters()),
    }


def watched_rows(part: torch.nn.Module, axis: Axis) -> torch.Tensor:
    """Return a count of the rows for every rank's experts, which forward passes raise."""
    rows_N = torch.zeros(axis.size, dtype=torch.int64)

    def note(_module: torch.nn.Module, inputs: tuple) -> None:
        rows_N.add_(inputs[1].unflatten(0, (axis.size, -1)).sum(1))

    for module in part.modules():
        if isinstance(module, ParallelExperts):
            module.register_forward_pre_hook(note)
    return rows_N


def sent_by_each(rank: Rank, name: str, batch_size: int, length: int) -> dict[str, int]:
    """Take a step with each kind of parallelism by itself; return the bytes that it sent."""
    config, sent, g = MODELS[name], {}, torch.Generator().manual_seed(1)
    ids, targets = torch.randint(0, 48, (2, batch_size, length), generator=g)
    kinds = (naive, bucketed, stage_1, tensors, stretches, ring)
    for kind in kinds if not config.num_experts else (experts,):
        axis = Rank(rank.index, {"only": rank.size}, messages=[]).axis("only")
        kind(Transformer(config, generator=torch.Generator().manual_seed(0)), axis, ids, targets)
        sent[kind.__name__] = axis.sent_bytes
    return sent


def naive(model, axis, ids, targets) -> None:
    """One all-reduce for each parameter, and one that says who has gradients."""
    replica = dp.NaiveDDP(model, axis, broadcast_buffers=False)
    axis.sent_bytes = 0  # by the broadcast at the start
    loss.cross_entropy(replica(ids), targets).backward()
    replica.sync()


def bucketed(model, axis, ids, targets) -> None:
    """All gradients in one bucket."""
    replica = dp.BucketedDDP(model, axis, bucket_bytes=1 << 30, broadcast_buffers=False)
    axis.sent_bytes = replica.channel.sent_bytes = 0
    loss.cross_entropy(replica(ids), targets).backward()
    replica.sync()
    axis.sent_bytes += replica.channel.sent_bytes


def stage_1(model, axis, ids, targets) -> None:
    """Shards of the moments."""
    optimizer = zero.ZeroOptimizer(model.parameters(), optim.AdamW, axis, stage=1, lr=1e-3)
    axis.sent_bytes = 0
    loss.cross_entropy(model(ids), targets).backward()
    optimizer.sync()
    optimizer.step()


def tensors(model, axis, ids, targets, *, sequence_parallel: bool = False) -> None:
    """Slices of matrices."""
    copy = axis.size > model.config.num_kv_heads
    tp.shard(model, axis, sequence_parallel=sequence_parallel, replicate_kv=copy)
    axis.sent_bytes = 0
    tp.cross_entropy(model(ids), targets, axis).backward()
    tp.sync(model, axis)


def stretches(*given) -> None:
    """Slices of matrices, and of time."""
    tensors(*given, sequence_parallel=True)


def ring(model, axis, ids, targets) -> None:
    """Some tokens of every sequence."""
    positions_t = context_parallel.positions(ids.shape[1], axis.index, axis.size)
    model.attend_with(context_parallel.ring_attention(axis))
    logits = model(ids[:, positions_t], positions_BT=positions_t.expand(len(ids), -1))
    loss.cross_entropy(logits, targets[:, positions_t]).backward()
    dp.sum_gradients(model.parameters(), axis)


def experts(model, axis, ids, targets) -> None:
    """Some experts, and tokens of its own."""
    expert_parallel.shard_experts(model, axis)
    ids, targets = ((each + axis.index) % 48 for each in (ids, targets))
    loss.cross_entropy(model(ids), targets).backward()
    expert_parallel.sync_gradients(model, axis)


def each_by_formula(config, num_ranks, index, batch_size, length) -> dict[str, int | float]:
    one_by_one = [p.numel() for p in Transformer(config).parameters()]
    numbers, marked = cost.num_parameters(config), cost.num_parameters(config) + len(one_by_one)
    shape = {"batch_size": batch_size, "length": length, "index": index}
    wide = {"parameter_bytes": 4, "gradient_bytes": 4, "index": index}
    found = {
        "tensors": cost.tensor_parallel_bytes(config, num_ranks, **shape),
        "stretches": cost.tensor_parallel_bytes(config, num_ranks, sequence_parallel=True, **shape),
        "ring": cost.context_parallel_bytes(config, num_ranks, num_parameters=marked, **shape),
    }

    def summed(length: int, row_bytes: int) -> int | float:
        size = length * row_bytes
        whole = {"index": index, "element_bytes": row_bytes}
        return arithmetic.sent_bytes("all_reduce_ordered", size, num_ranks, **whole)

    return {name: sum(parts.values()) for name, parts in found.items()} | {
        "naive": sum(summed(n, 4) for n in one_by_one) + summed(len(one_by_one), 8),
        "bucketed": arithmetic.traffic_bytes(marked, num_ranks, 0, **wide),
        "stage_1": arithmetic.traffic_bytes(numbers, num_ranks, 1, **wide),
    }


def _skip(model, axis) -> None:
    """In place of an exchange of gradients."""


EXCHANGED = expert_parallel.experts.exchange_counts
NARROW = {"exchange_counts": lambda counts, axis: EXCHANGED(counts.int(), axis).long()}
MUTANTS = {
    "the embedding's two gradients are not exchanged": patched(mesh.part.pipeline, sync_tied=_skip),
    "gradients of norms are not summed": patched(mesh.part.tensor_parallel, sync=_skip),
    "gradients are not summed over cp, ep and dp": patched(mesh.part, sum_gradients=_skip),
    "counts travel as int32": patched(expert_parallel.experts, **NARROW),
}
