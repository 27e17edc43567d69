"""Checks of exercises 15: Splitting one forward pass over many GPUs."""

import torch

from llmcourse.base import runtime


def check_1(t, network_on_rank, *, near):
    """15.1 Columns, then rows"""
    # Three tokens of width 6, eight hidden units, two ranks.
    source = runtime.generator(15)
    shapes = ((3, 6), (6, 16), (8, 6), (6,))
    x, gate_up, down, bias = (
        torch.randn(shape, generator=source, dtype=torch.float64) for shape in shapes
    )
    gate, up = gate_up[:, :8], gate_up[:, 8:]
    y = (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down + bias
    answers = [network_on_rank(x, gate_up, down, bias, rank, 2) for rank in range(2)]
    t(
        all(
            isinstance(answer, list | tuple)
            and [getattr(part, "ndim", 0) for part in answer] == [2, 2, 2]
            for answer in answers
        ),
        "return three tensors: the rank's part of gate_up, its part of down, its summand of y",
        "two parts and a summand",
    )
    first, second, summands = zip(*answers, strict=True)
    t(
        tuple(first[0].shape) != (3, 16),
        "you cut the first matrix by rows: then x G is a sum over the ranks, and silu of a summand "
        "is not a summand of silu. It would need an all-reduce in the middle",
        "the first matrix is not cut by rows",
    )
    t(
        tuple(second[0].shape) != (8, 3),
        "you cut both matrices by columns: then each rank needs all hidden units, which have to be "
        "gathered in the middle. With its rows of down it needs its own only",
        "the second matrix is not cut by columns",
    )
    t(
        not (near(first[0], gate) and near(first[1], up)),
        "you cut gate_up as it stands: of two ranks, one has all of G and the other all of U. The "
        "product needs both columns of a hidden unit on one rank",
        "every rank has columns of G and of U",
    )
    t.equal(
        list(first),
        [torch.cat([w[:, part] for w in (gate, up)], 1) for part in (slice(4), slice(4, 8))],
        "rank 0 has columns 0 to 3 of G and then columns 0 to 3 of U, rank 1 has columns 4 to 7 "
        "of both",
        "the parts of gate_up",
    )
    t.equal(
        list(second),
        [down[:4], down[4:]],
        "rank 0 has the first four rows of down, rank 1 the last four",
        "the parts of down",
    )
    total = sum(summands)
    t(
        not near(total, y + bias),
        "the bias is in the sum twice: each of the two ranks adds it, and then all are summed",
        "the bias is not added by every rank",
    )
    t(
        not near(total, y - bias),
        "the bias is missing: one rank adds it, or each adds its share",
        "the bias is there",
    )
    t(
        not near(2 * total, y) and not near(2 * (total - bias), y - bias),
        "you divide by the number of ranks: the all-reduce adds up summands, it takes no mean",
        "a sum, and not a mean",
    )
    t(
        not near(summands[0], y) and not near(summands[1], y),
        "a rank returns all of y: its summand comes from its own hidden units, and only the sum "
        "over the ranks is y",
        "a summand is not the whole",
    )
    swapped = ((x @ gate) * torch.nn.functional.silu(x @ up)) @ down + bias
    t(
        not near(total, swapped),
        "you took silu of x U: the gate is the first half of the columns",
        "silu is taken of the gate",
    )
    t.close(
        total,
        y,
        "the sum of the two summands has to be y",
        "two summands add up to y",
        relative=1e-12,
    )
    t.close(
        sum(network_on_rank(x, gate_up, down, bias, rank, 8)[2] for rank in range(8)),
        y,
        "eight ranks with one hidden unit each: the sum of their summands has to be y",
        "eight summands do so, too",
        relative=1e-12,
    )


def check_2(t, three_processes, *, near):
    """15.2 A sequence-parallel block"""
    # Six tokens of width 4, six hidden units: two of each on a rank.
    source = runtime.generator(15)
    shapes = ((6, 4), (4,), (4, 6), (4, 6), (6, 4), (6, 4))
    given = [torch.randn(shape, generator=source, dtype=torch.float64) for shape in shapes]
    x, gain, gate, up, down = (w.clone().requires_grad_() for w in given[:5])
    h = x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt() * gain
    ffn = (torch.nn.functional.silu(h @ gate) * (h @ up)) @ down
    (x + ffn).backward(given[5])
    found = three_processes(*given)
    ys = [one["y"] for one in found]
    t(
        all(part.shape == (2, 4) for part in ys),
        "each rank returns y for its own two tokens, and not for all six, or for fewer",
        "every rank returns its own tokens",
    )
    y = torch.cat(ys)
    t(
        not near(y, 3 * x + ffn),
        "x is in the sum three times: you add it before the reduce-scatter, and every rank does. "
        "Add it to the rank's own stretch, after the sum",
        "x is added once",
    )
    t(
        not near(y, h + ffn),
        "you add the normalised tokens: the residual is x, as it came in",
        "the residual is not normalised",
    )
    t(not near(y, ffn), "x is missing: the block adds to it", "x is there")
    t.close(
        y,
        x + ffn,
        "the stretches of the three ranks, one below the other, have to be y of one process",
        "y of one process",
        relative=1e-10,
    )
    t(
        all(one["seen"].tolist() == [2] for one in found),
        "you normalise after the all-gather: then every rank does so for all tokens, and keeps "
        "them all, which sequence parallelism was to avoid",
        "a rank normalises its own tokens",
    )
    weights = (("dG", gate, 1), ("dU", up, 1), ("dW", down, 0))
    t(
        all(
            near(one[name], w.grad.chunk(3, dim)[rank])
            for name, w, dim in weights
            for rank, one in enumerate(found)
        ),
        "the gradients of the weights lack what comes from other ranks' tokens: a rank's hidden "
        "units read all six, so Scatter's backward has to bring dy of all of them",
        "weights learn from all tokens",
    )
    t(
        near(torch.cat([one["dx"] for one in found]), x.grad),
        "the weights' gradients are right, and dx is not: every rank has a gradient for your "
        "tokens, from its own hidden units, and Gather's backward has to add them up",
        "tokens learn from all hidden units",
    )
    t.close(
        sum(one["dgain"] for one in found),
        gain.grad,
        "the gradients of the norm's gain add up to that of one process",
        "the gain's gradients add up",
        relative=1e-10,
    )
    t(
        sum(one["sent_bytes"].item() for one in found) <= 4 * 2 * x.nbytes,
        "all is right, but your ranks send more than two all-gathers and two reduce-scatters: an "
        "all-reduce brings every rank the whole sum, of which it needs its own stretch",
        "no byte more than needed",
    )


def check_3(t, ring_step, *, near, play_ring):
    """15.3 One step of the ring"""
    # Queries at positions 1 and 4.  K is 4, so that the score of the first query with a key is the
    # key's first entry, and that of the second query the key's second entry.
    q, at = 2 * torch.eye(2, 4, dtype=torch.float64), torch.tensor([1, 4])

    def chunk(first, second, values, positions):
        k = torch.zeros(2, 4, dtype=torch.float64)
        k[:, 0], k[:, 1] = (torch.tensor(x, dtype=torch.float64).log() for x in (first, second))
        return k, torch.tensor(values, dtype=torch.float64), torch.tensor(positions)

    def state_of(largest, total, out):
        parts = (torch.tensor(x, dtype=torch.float64) for x in (largest, total, out))
        return tuple(part.log() if i == 0 else part for i, part in enumerate(parts))

    own = chunk([3.0, 9.0], [2.0, 1.0], [[1.0, 0, 0, 0], [0, 1, 0, 0]], [1, 4])
    past = chunk([6.0, 8.0], [1.0, 4.0], [[0.0, 0, 1, 0], [0, 0, 0, 1]], [0, 3])
    late = chunk([30.0, 20.0], [2.0, 40.0], [[1.0, 1, 0, 0], [5, 5, 5, 5]], [2, 5])

    first = play_ring(ring_step, q, at, [own])[-1]
    t(
        isinstance(first, list | tuple)
        and [tuple(getattr(part, "shape", ())) for part in first] == [(2,), (2,), (2, 4)],
        "return a state: the largest scores (t,), the sums (t,) and the sums of values (t, K)",
        "a state of three tensors",
    )
    largest, total, out = first
    t(
        not near(largest.exp(), torch.tensor([9.0, 4.0]).double())
        and not near(largest.exp(), torch.tensor([81.0, 4.0]).double()),
        "your scores are too large: divide by the square root of the length of a query",
        "scores are divided by the root of K",
    )
    t(
        not near(largest.exp()[:1], torch.tensor([9.0]).double()),
        "the query at position 1 has looked at the key at position 4, which comes later",
        "no query looks at a later key",
    )
    t(
        not near(total[:1], torch.zeros(1).double()),
        "the query at position 1 has not looked at the key at position 1: a query looks at its own "
        "position, too",
        "a query looks at its own position",
    )
    t(
        not near(total[:1], torch.tensor([4 / 3], dtype=torch.float64)),
        "a later key counts with the score 0, and so with a weight: its score has to be -inf, or "
        "its exponential 0",
        "a later key has no weight",
    )
    t(
        not near(largest.exp(), torch.tensor([3.0, 3.0]).double()),
        "you take one largest score for all queries: where the scores of a query are much smaller, "
        "nothing would be left of its sums. Each query has its own",
        "each query has its own largest score",
    )
    t(
        not total.isnan().any(),
        "NaN after the first chunk: the factor for old sums is exp(old - new), which is 0 at the "
        "start. The inverse is infinite there",
        "the first chunk leaves no NaN",
    )
    t(
        not near(total, torch.ones(2).double()),
        "you divide within the chunk: a mean of attentions over chunks is not attention over all "
        "keys, because the chunks do not have equal weight. Divide once, after the last chunk",
        "nothing is divided before the end",
    )
    t(
        not near(out[1:, :2], torch.tensor([[2 / 3, 1 / 3]], dtype=torch.float64)),
        "out is divided by total already: the state keeps the two sums apart",
        "out is a sum, not a mean",
    )
    t.close(
        first,
        state_of([3.0, 2.0], [1.0, 1.5], [[1.0, 0, 0, 0], [1, 0.5, 0, 0]]),
        "the first query sees one key. The second sees exponentials of 2 and 1: the largest is "
        "ln 2, and relative to it they are 1 and 1/2",
        "the state after one chunk",
        relative=1e-12,
    )

    second = play_ring(ring_step, q, at, [own, past])[-1]
    largest, total, out = second
    t(
        not near(largest.exp(), torch.tensor([3.0, 2.0]).double()),
        "the largest score is still that of the first chunk: a much larger score that comes later "
        "would overflow",
        "the largest score grows",
    )
    t(
        not near(total, torch.tensor([2.0, 2.75]).double()),
        "the sum so far was taken relative to the old largest score: multiply it by "
        "exp(old - new) before you add to it",
        "the sum follows the largest score",
    )
    t(
        near(total, torch.tensor([1.5, 2.0]).double())
        and not near(out[:1], torch.tensor([[1.0, 0, 1, 0]]).double()),
        "the sum of values has to be rescaled like the sum of exponentials, by exp(old - new)",
        "the sum of values follows, too",
    )
    t.close(
        second,
        state_of([6.0, 4.0], [1.5, 2.0], [[0.5, 0, 1, 0], [0.5, 0.25, 0.25, 1]]),
        "exponentials of 3 and 6 are 1/2 and 1 relative to the larger one; 2, 1, 1 and 4 are 1/2, "
        "1/4, 1/4 and 1",
        "the state after two chunks",
        relative=1e-12,
    )

    third = play_ring(ring_step, q, at, [own, past, late])[-1]
    t(
        not near(third[0].exp()[:1], torch.tensor([30.0]).double()),
        "your mask goes by places in the chunk: the query at position 1 has looked at the key at "
        "position 2, since both are the first of their rank. Compare positions in the sequence",
        "the mask goes by positions in the sequence",
    )
    t.close(
        third,
        state_of([6.0, 4.0], [1.5, 2.5], [[0.5, 0, 1, 0], [1, 0.75, 0.25, 1]]),
        "the chunk with positions 2 and 5 has nothing for the first query, and for the second the "
        "key at 2, with 2/4",
        "the state after three chunks",
        relative=1e-12,
    )

    nothing = play_ring(ring_step, q, at, [late])[-1]
    t(
        not any(part.isnan().any().item() for part in nothing),
        "NaN: a chunk came in which a query may look at nothing, and it had seen nothing before. "
        "Then -inf minus -inf is NaN",
        "nothing to look at is not NaN",
    )
    t.close(
        nothing,
        state_of([0.0, 2.0], [0.0, 1.0], [[0.0, 0, 0, 0], [1, 1, 0, 0]]),
        "a query that has seen nothing keeps -inf, 0 and 0",
        "a query that has seen nothing",
        relative=1e-12,
    )
    swapped = play_ring(ring_step, q, at, [late, past, own])[-1]
    t.close(
        swapped[2] / swapped[1][:, None],
        torch.tensor([[1 / 3, 0, 2 / 3, 0], [0.4, 0.3, 0.1, 0.4]], dtype=torch.float64),
        "the order in which chunks come makes no difference",
        "any order of chunks gives the same attention",
        relative=1e-12,
    )


def check_4(t, plan_of):
    """15.4 Rows to their experts"""
    # Experts 0 and 1 are rank 0's, experts 2 and 3 are rank 1's; nobody chose expert 2.
    answer = plan_of([[3, 0, 3, 1, 3], [1, 0, 3]], 4)
    t(
        isinstance(answer, list | tuple)
        and all(isinstance(part, list | tuple) for part in answer)
        and [len(part) for part in answer] == [2, 2, 2, 2],
        "return four lists, sent, received, starts and places, each with an entry for every rank",
        "four lists by rank",
    )
    sent, received, starts = ([list(part) for part in found] for found in answer[:3])
    t(
        all(isinstance(p, list | tuple) and len(p) == 2 for part in answer[3] for p in part),
        "places has a pair for every row: the rank that it goes to, and its place there",
        "a pair for every row",
    )
    places = [[tuple(p) if isinstance(p, list) else p for p in part] for part in answer[3]]
    t(
        sent != [[1, 4], [1, 2]],
        "you dealt the experts out in turn: a rank owns neighbours, rank 0 the experts 0 and 1",
        "a rank owns neighbouring experts",
    )
    t(
        sent != [[0, 3], [2, 0]],
        "you left out the rows that stay on their rank: no wire carries them, but the expert has "
        "to compute on them as well",
        "rows that stay are counted",
    )
    t(
        sent != [[2, 2], [3, 1]],
        "sent and received are the wrong way round: sent[0] lists what rank 0 has for each other "
        "rank",
        "a row of sent is what one rank sends",
    )
    t.equal(
        sent,
        [[2, 3], [2, 1]],
        "rank 0 has two rows for experts of its own and three for expert 3; rank 1 has two rows "
        "for rank 0 and one for itself",
        "what is sent",
    )
    t.equal(
        received,
        [[2, 2], [3, 1]],
        "received is sent with ranks exchanged: received[1][0] is sent[0][1], three rows",
        "what is received",
    )
    t(
        starts != [[0, 2], [0]],
        "expert 2 has no rows, and you left it out: then the rows of expert 3 go to expert 2, "
        "which is first in the list",
        "an expert without rows keeps its entry",
    )
    t(
        starts != [[2, 4], [0, 4]],
        "you list where the rows of an expert end: they begin where those of the expert before it "
        "end, and the first begins at 0",
        "starts, and not ends",
    )
    t(
        starts != [[2, 2], [0, 4]],
        "you list how many rows an expert has: the starts are the sums of the counts before it",
        "starts, and not counts",
    )
    t.equal(
        starts,
        [[0, 2], [0, 0]],
        "rank 0: two rows for expert 0, so that expert 1 begins at 2. Rank 1: none for expert 2, "
        "so that expert 3 begins at 0",
        "where each expert begins",
    )
    t(
        len(places[0]) != 5 or places[0][3] != (0, 1),
        "your rows are sorted by the rank that they came from, as they arrive: expert 0 would find "
        "its rows at places 0 and 2. Sort by expert first",
        "sorted by expert before rank",
    )
    t.equal(
        places,
        [[(1, 0), (0, 0), (1, 1), (0, 2), (1, 2)], [(0, 3), (0, 1), (1, 3)]],
        "on rank 0: expert 0 has row 1 of rank 0 and row 1 of rank 1, then expert 1 has row 3 of "
        "rank 0 and row 0 of rank 1. On rank 1, expert 3 has rows 0, 2 and 4 of rank 0, then row 2 "
        "of rank 1",
        "where each row lands",
    )
    t.equal(
        plan_of([[], [2, 2], [0]], 3),
        [
            [[0, 0, 0], [0, 0, 2], [1, 0, 0]],
            [[0, 0, 1], [0, 0, 0], [0, 2, 0]],
            [[0], [0], [0]],
            [[], [(2, 0), (2, 1)], [(0, 0)]],
        ],
        "three ranks with an expert each: one has no rows, and one gets none",
        "a rank without rows, and one that gets none",
    )


def check_5(t, name_fault, *, ALONE, FAULTS, KV_HEADS, MESHES, RUNS, run_on):
    """15.5 The fault behind the curve"""
    runs = dict(RUNS)
    # The last digits of a sum depend on its order.
    runs["none"] = [
        run | {"losses": [(1 + 1e-13) * loss for loss in run["losses"]]} for run in RUNS["none"]
    ]
    named = {fault: name_fault(ALONE, runs[fault], KV_HEADS) for fault in FAULTS}
    t(
        all(name in FAULTS for name in named.values()),
        "return one of the five names, or 'none'",
        "a name, or 'none'",
    )
    t(
        named["none"] == "none",
        "you accuse a run in which all is right: its first loss and its first norm are those of "
        "one process, but for the rounding of the last digits",
        "a sound program is not accused",
    )
    t(
        named["dp sum"] != "none",
        "these curves are equal to that of one process to all digits, because clipping takes the "
        "factor away. Look at the norm, which is logged before",
        "an equal curve is no proof",
    )
    t(
        named["tp norm"] != "cp mean",
        "you compare losses of later steps: after the first update the weights differ, whatever "
        "the fault is. Only the first step has the same weights in all runs",
        "losses are compared at the first step",
    )
    t(
        not (named["dp sum"] == "dp sum" and named["tp norm"] == "dp sum")
        and not (named["tp norm"] == "tp norm" and named["dp sum"] == "tp norm"),
        "a ratio of 2 with dp = 2 and tp = 4 may be dp or the root of tp: the first run alone does "
        "not tell, and some run that fits does not suffice. The ratios of all runs have to fit",
        "all runs have to fit",
    )
    t(
        named["tp norm"] == "tp norm",
        "here the first norms are 2, 1 and 1.414 times that of one process, with tp 4, 1 and 2. "
        "It is squares that are summed once too often: a factor of tp in the sum is its root in "
        "the norm. At later steps the weights differ, and so does the ratio",
        "tp norm: the root of tp",
    )
    t(
        named["dp sum"] == "dp sum",
        "here the first norms are 2, 4 and 1 times that of one process, which is dp in every run, "
        "and the losses are right",
        "dp sum: the norm follows dp",
    )
    t(
        named["kv copies"] != "none",
        "here a norm is 3 % too small, and you take that for noise: two orders of the "
        "same sum agree to 12 digits or more in float64",
        "a few percent are not rounding",
    )
    pair = (named["tp entrance"], named["kv copies"])
    t(
        pair not in (("kv copies", "kv copies"), ("tp entrance", "tp entrance")),
        "you do not tell tp entrance from kv copies: with tp = 2 and two heads for keys and values "
        "every rank has its own head, and nothing is copied. There, only one of the faults shows",
        "copies are there only where tp exceeds the heads",
    )
    t(
        pair == ("tp entrance", "kv copies"),
        "tp entrance shows wherever tp is more than 1, kv copies where tp is more than the number "
        "of heads for keys and values",
        "tp entrance and kv copies",
    )
    square = {
        fault: name_fault(
            ALONE,
            [run_on(n, tp, n, fault, steps=2) for n, tp in ((1, 4), (2, 1), (4, 2))],
            KV_HEADS,
        )
        for fault in ("cp mean", "dp sum")
    }
    t(
        named["cp mean"] != "dp sum" and len(set(square.values())) == 2,
        "with dp = cp in every run the norms fit both faults: look at the loss. Means over a "
        "rank's own tokens make it too large, while summed gradients leave it right",
        "the loss tells cp mean from dp sum",
    )
    t.equal(
        square,
        {"cp mean": "cp mean", "dp sum": "dp sum"},
        "dp and cp are equal in every run here: the loss of cp mean is too large, that of dp sum "
        "is right",
        "two programs on meshes with dp = cp",
    )
    t.equal(
        named,
        {fault: fault for fault in FAULTS},
        "every fault has its own pattern of losses and norms over the three meshes",
        "six programs, all named",
    )
    other = run_on(1, 1, 1, seed=4, steps=2)
    again = {
        fault: name_fault(
            other, [run_on(*mesh, fault, seed=4, steps=2) for mesh in MESHES], KV_HEADS
        )
        for fault in FAULTS
    }
    t.equal(
        again,
        {fault: fault for fault in FAULTS},
        "the same faults with other weights and another batch: do not compare with numbers of one "
        "run that you have seen",
        "other weights, the same names",
    )
