"""What ranks run to prove collectives: a module of its own, so that they import nothing else."""

import functools
import threading
from unittest import mock

import torch
import torch.distributed as dist

from llmcourse.parallel import collectives
from llmcourse.parallel.collectives import chunks, passes, sums, trees
from llmcourse.parallel.collectives.trees import tree_links
from llmcourse.parallel.world import MismatchError

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)


def values(index, shape, dtype=torch.float32, *, seed=0):
    """What a rank brings: nothing cancels, and sums of floats have to be rounded."""
    g = torch.Generator().manual_seed(1000 * seed + index)
    if dtype == torch.int64:
        return torch.randint(-1000, 1000, shape, generator=g)
    return (3 * torch.randn(shape, generator=g, dtype=torch.float64) + 1).to(dtype)


def whole_values(index, shape, dtype=torch.float32, *, seed=0):
    """Small whole numbers, whose sums are exact in any order and any dtype."""
    g = torch.Generator().manual_seed(1000 * seed + index)
    return torch.randint(-8, 9, shape, generator=g).to(dtype)


def lengths(num_ranks):
    """Lengths that are easily got wrong, and a large one."""
    return sorted({0, 1, num_ranks - 1, num_ranks, num_ranks + 1, 7 * num_ranks, 10_007})


def all_reduces(rank, algorithm):
    return {
        (length, dtype): collectives.all_reduce(
            values(rank.index, (length,), dtype), rank.axis("dp"), algorithm=algorithm
        )
        for length in lengths(rank.size)
        for dtype in DTYPES
    }


def reduced(rank, algorithm, shape, dtype, seed):
    x = values(rank.index, shape, dtype, seed=seed)
    return collectives.all_reduce(x, rank.axis("dp"), algorithm=algorithm)


def large(rank, length, piece_bytes):
    """All-reduce and reduce-scatter a tensor that goes in pieces of this size."""
    axis, x, found = rank.axis("dp"), values(rank.index, (length,)), {}
    with mock.patch.dict(passes.pieces.__kwdefaults__, piece_bytes=piece_bytes):
        for name in ("ring", "ordered"):
            found[name] = collectives.ALGORITHMS[name](x.clone(), axis)
        for ordered in (False, True):
            found[ordered] = collectives.reduce_scatter(x, axis, ordered=ordered)
    return found, [m.num_bytes for m in rank.messages]


def scattered(rank, ordered):
    """Reduce-scatter every length and dtype; return the chunks, and whether the input was kept."""
    found = {}
    for length in lengths(rank.size):
        for dtype in DTYPES:
            x = values(rank.index, (length,), dtype)
            before = x.clone()
            chunk = collectives.reduce_scatter(x, rank.axis("dp"), ordered=ordered)
            found[length, dtype] = chunk, torch.equal(x, before)
    return found


def gathered(rank):
    """Cut a tensor that all ranks know by `chunk_sizes`, and gather it again."""
    found = {}
    for length in lengths(rank.size):
        for dtype in DTYPES:
            whole = values(99, (length, 2), dtype)
            chunk = whole.split(collectives.chunk_sizes(length, rank.size))[rank.index]
            found[length, dtype] = collectives.all_gather(chunk, rank.axis("dp"), length=length)
    return found


def like_gloo(rank, dtype):
    """Return pairs of ours and gloo's for every collective, on numbers whose sums are exact."""
    axis, n, last = rank.axis("dp"), rank.size, rank.size - 1
    ours = [whole_values(rank.index, (5 * n + 1,), dtype, seed=k) for k in range(9)]
    theirs = [x.clone() for x in ours]
    pairs = {}
    for (name, all_reduce), x, y in zip(
        collectives.ALGORITHMS.items(), ours[:4], theirs[:4], strict=True
    ):
        dist.all_reduce(y)
        pairs[name] = all_reduce(x, axis), y
    dist.broadcast(theirs[4], last)
    pairs["broadcast"] = collectives.broadcast(ours[4], axis, source=last), theirs[4]
    dist.reduce(theirs[5], last)
    pairs["reduce"] = collectives.reduce(ours[5], axis, to=last), theirs[5]
    if rank.index != last:
        pairs["reduce"] = ours[5], whole_values(rank.index, (5 * n + 1,), dtype, seed=5)
    even = 5 * n
    y = torch.empty(5, dtype=dtype)
    dist.reduce_scatter(y, list(theirs[6][:even].split(5)))
    pairs["reduce_scatter"] = collectives.reduce_scatter(ours[6][:even], axis), y
    y = [torch.empty(even + 1, dtype=dtype) for _ in range(n)]
    dist.all_gather(y, theirs[7])
    pairs["all_gather"] = collectives.all_gather(ours[7], axis), torch.cat(y)
    y = [torch.empty(5, dtype=dtype) for _ in range(n)]
    dist.all_to_all(y, list(theirs[8][:even].split(5)))
    x = collectives.all_to_all(ours[8][:even].split(5), axis, lengths=[5] * n)
    pairs["all_to_all"] = torch.cat(x), torch.cat(y)
    return pairs


def parcels(rank, rest):
    """Send chunks whose lengths differ, some of them empty; return what came, and the bytes."""
    axis, n = rank.axis("dp"), rank.size
    sent = [values(parcel(rank.index, to), (parcel(rank.index, to), *rest)) for to in range(n)]
    due = [parcel(source, rank.index) for source in range(n)]
    before = axis.sent_bytes
    received = collectives.all_to_all(sent, axis, lengths=due)
    return received, axis.sent_bytes - before, received[rank.index] is not sent[rank.index]


def parcel(source, to):
    """How much one rank sends to another: uneven, and nothing to the next one."""
    return 0 if to == source + 1 else 3 * source + to


def every_call(rank, length, dtype, root):
    """Call every collective once; return the bytes sent by axis and by log."""
    axis = rank.axis("dp")
    x = values(rank.index, (length,), dtype)
    sizes = collectives.chunk_sizes(length, axis.size)
    chunks, due = x.split(sizes), [sizes[axis.index]] * axis.size
    calls = {
        "broadcast": lambda: collectives.broadcast(x, axis, source=root),
        "reduce": lambda: collectives.reduce(x, axis, to=root),
        "reduce_scatter": lambda: collectives.reduce_scatter(x, axis),
        "reduce_scatter ordered": lambda: collectives.reduce_scatter(x, axis, ordered=True),
        "all_gather": lambda: collectives.all_gather(chunks[axis.index], axis, length=length),
        "all_to_all": lambda: collectives.all_to_all(chunks, axis, lengths=due),
    }
    for name, all_reduce in collectives.ALGORITHMS.items():
        calls[f"all_reduce_{name}"] = functools.partial(all_reduce, x, axis)
    found = {}
    for name, call in calls.items():
        before = axis.sent_bytes
        call()
        last = rank.messages[-1]
        found[name] = axis.sent_bytes - before, last.num_bytes, last.name
    return found, len(rank.messages)


def awkward_tensors(rank):
    """All-reduce and broadcast tensors that are not a row: return what became of them."""
    axis = rank.axis("dp")
    base = values(rank.index, (4, 6))
    column = base[:, 1:4:2]  # a view with gaps
    parameter = torch.nn.Parameter(values(rank.index, (3, 2)))
    scalar = torch.tensor(1.0 + rank.index)
    return {
        "same": collectives.all_reduce_ring(column, axis) is column,
        "column": column,
        "around": base[:, [0, 2, 4, 5]],
        "transposed": collectives.broadcast(values(rank.index, (2, 3)).T, axis),
        "parameter": collectives.all_reduce_ordered(parameter, axis),
        "needs_grad": parameter.requires_grad and parameter.is_leaf,
        "scalar": collectives.all_reduce_tree(scalar, axis),
        "rows": collectives.reduce_scatter(values(rank.index, (5, 2, 3)), axis),
        "rows of a view": collectives.reduce_scatter(values(rank.index, (2, 5)).T, axis),
    }


def along_axes(rank):
    """On a mesh, sum along one axis, along the other, along both, and along the world."""
    dp, tp = rank.axis("dp"), rank.axis("tp")
    x = values(rank.index, (7,))
    return {
        "dp": collectives.all_reduce_ring(x.clone(), dp),
        "tp": collectives.all_reduce_ring(x.clone(), tp),
        "both": collectives.all_reduce_ordered(collectives.all_reduce_ordered(x.clone(), tp), dp),
        "world": collectives.all_reduce_ordered(x.clone(), rank.world),
        "from dp 1": collectives.broadcast(x.clone(), dp, source=1),
        "logged": [m.axis for m in rank.messages],
    }


def two_threads(rank):
    """Two threads, each on a channel of its own, all-reduce at the same time."""
    axis, other = rank.axis("dp"), rank.axis("dp").channel(1)
    first = [values(rank.index, (1000,), seed=k) for k in range(20)]
    second = [values(rank.index, (997,), seed=100 + k) for k in range(20)]
    thread = threading.Thread(
        target=lambda: [collectives.all_reduce_ordered(x, other) for x in second]
    )
    thread.start()
    for x in first:
        collectives.all_reduce_ordered(x, axis)
    thread.join()
    return torch.stack(first), torch.stack(second)


DISAGREEMENTS = {
    "collective": lambda odd: {"algorithm": "ring" if odd else "tree"},
    "shape": lambda odd: {"shape": 6 + odd},
    "dims": lambda odd: {"shape": (2, 3) if odd else (3, 2)},
    "dtype": lambda odd: {"dtype": DTYPES[odd]},
    "source": lambda odd: {"call": collectives.broadcast, "source": int(odd)},
    "order": lambda odd: {"call": collectives.reduce_scatter, "ordered": odd},
    "length": lambda odd: {"call": collectives.all_gather, "shape": 2 + odd},
    "rows": lambda odd: {"call": _all_to_all, "shape": (2, 3 + odd)},
}


def _all_to_all(x, axis):
    collectives.all_to_all([x] * axis.size, axis, lengths=[2] * axis.size)


def disagreements(rank):
    """Disagree in one way after the other; return what this rank is told."""
    told = {}
    for what in DISAGREEMENTS:
        try:
            disagree(rank, what)
        except MismatchError as error:
            told[what] = str(error)
    return told


def disagree(rank, what):
    settings = {"call": collectives.all_reduce, "shape": 6, "dtype": torch.float32}
    settings |= DISAGREEMENTS[what](rank.index == 1)
    call, shape, dtype = (settings.pop(name) for name in ("call", "shape", "dtype"))
    call(torch.ones(shape, dtype=dtype), rank.axis("dp"), **settings)


# Mutants.  Each is one mistake in the code that the collectives share, put there while they run.
def _sums_the_wrong_way_round(chunks, axis, into):
    n, r = axis.size, axis.index
    passing = [chunks[(r + step + 2) % n] for step in range(n - 1)]
    steps = [passes.RingStep(torch.empty_like(mine), mine, into) for mine in passing]
    return [each._replace(into=each.buffer) for each in steps[:-1]] + steps[-1:]


def _gathers_the_wrong_way_round(chunks, axis):
    return [
        passes.RingStep(chunk, None, chunk)
        for step in range(axis.size - 1)
        for chunk in [chunks[(axis.index + step + 1) % axis.size]]
    ]


def _adds_twice(chunks, axis, into):
    steps = passes.reduce_scatter_steps(chunks, axis, into)
    return [*steps[:-1], *(each._replace(mine=2 * each.mine) for each in steps[-1:])]


def _does_not_add_the_last_one(chunks, axis, into):
    steps = passes.reduce_scatter_steps(chunks, axis, into)
    return [s._replace(mine=s.mine if k < len(steps) - 1 else None) for k, s in enumerate(steps)]


def _sums_in_the_order_of_arrival(chunks, axis, into):
    n, r = axis.size, axis.index
    parts = [torch.empty_like(chunks[r]) for _ in chunks]
    parts[r] = chunks[r].clone()
    passes.exchange_all(chunks, parts, axis)
    total = parts[r].clone()
    for k in range(1, n):
        total += parts[r - k]
    into.copy_(total)


def _in_float64(chunks, axis, into):
    parts = [torch.empty_like(into) for _ in chunks]
    parts[axis.index] = chunks[axis.index].clone()
    passes.exchange_all(chunks, parts, axis)
    into.copy_(torch.stack(parts).double().sum(0))


def _tree_without_its_last_child(place, size):
    parent, children = tree_links(place, size)
    lonely = place == size - 1 and parent is not None  # nobody expects it, and it expects nobody
    return (None, []) if lonely else (parent, [c for c in children if c != size - 1])


def _everybody_to_everybody(x, axis):
    parts = [torch.empty_like(x) for _ in range(axis.size)]
    parts[axis.index] = x.clone()
    with axis.collective("all_reduce_ring"):
        passes.exchange_all([x] * axis.size, parts, axis)
    x.zero_()
    for part in parts:
        x += part
    return x


GATHER = passes.all_gather_steps
MUTANTS = {
    "forgets the last step": ("ring", sums, "all_gather_steps", lambda *x: GATHER(*x)[:-1]),
    "sums the wrong way round": ("ring", sums, "reduce_scatter_steps", _sums_the_wrong_way_round),
    "gathers the wrong way round": ("ring", sums, "all_gather_steps", _gathers_the_wrong_way_round),
    "adds twice": ("ring", sums, "reduce_scatter_steps", _adds_twice),
    "does not add the last one": ("ring", sums, "reduce_scatter_steps", _does_not_add_the_last_one),
    "order of arrival": ("ordered", sums, "sum_in_order", _sums_in_the_order_of_arrival),
    "sums in float64": ("ordered", sums, "sum_in_order", _in_float64),
    "a tree without its last child": ("tree", trees, "tree_links", _tree_without_its_last_child),
}


def mutated(rank, name, length):
    algorithm, module, target, mutant = MUTANTS[name]
    axis = rank.axis("dp")
    right = collectives.all_reduce(values(rank.index, (length,)), axis, algorithm=algorithm)
    with mock.patch.object(module, target, mutant):
        wrong = collectives.all_reduce(values(rank.index, (length,)), axis, algorithm=algorithm)
    return right, wrong


def wasteful(rank, length):
    """An all-reduce whose sums are right and whose messages are too many."""
    axis = rank.axis("dp")
    before = axis.sent_bytes
    x = _everybody_to_everybody(whole_values(rank.index, (length,)), axis)
    return x, axis.sent_bytes - before


def rotated_gather(rank):
    """An all-gather that puts the chunks in the place of the rank that brought them to it."""
    axis = rank.axis("dp")
    with mock.patch.object(chunks, "all_gather_steps", _gathers_the_wrong_way_round):
        return collectives.all_gather(values(rank.index, (3,)), axis)
