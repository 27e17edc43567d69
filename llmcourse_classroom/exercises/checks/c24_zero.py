"""Checks of exercises 24: ZeRO."""

import math

import torch


def check_1(t, shards):
    """24.1 Shards of a row"""
    # A row of 6 + 4 + 1 entries.
    answer = shards([(2, 3), (4,), (1,)], 3)
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return a list for each rank, here three, each a list of tuples (parameter, start, stop)",
        "a list for each rank",
    )
    found = [[tuple(map(int, piece)) for piece in part] for part in answer]
    t(
        [sum(stop - start for _, start, stop in part) for part in found] != [3, 3, 5],
        "the rest of the division went to the last rank: 11 entries are 4, 4 and 3",
        "the first chunks are the longer ones",
    )
    t(
        found[0] != [(0, 0, 3)] or (0, 4, 5) not in found[1],
        "you give the last entry of a piece: stop is the first entry that does not belong to it, "
        "as in flattened[start:stop]",
        "stop is not part of a piece",
    )
    t(
        all(start < stop for part in found for _, start, stop in part),
        "a piece of yours has no entry: such pieces are left out",
        "no empty pieces",
    )
    t(
        (0, 0, 6) not in [piece for part in found for piece in part],
        "a rank of yours has the whole matrix of six entries, where a chunk has four at most: cuts "
        "go through parameters",
        "a cut goes through the matrix",
    )
    t(
        (1, 6, 8) not in found[1],
        "you give places in the row: start and stop are counted within the parameter, whose first "
        "entry is 0",
        "places are counted within a parameter",
    )
    t.equal(
        answer,
        [[(0, 0, 4)], [(0, 4, 6), (1, 0, 2)], [(1, 2, 4), (2, 0, 1)]],
        "the chunks are 0:4, 4:8 and 8:11 of the row; the parameters begin at 0, 6 and 10",
        "11 entries on three ranks",
    )
    t.equal(
        [sum(stop - start for _, start, stop in part) for part in shards([(9,)], 4)],
        [3, 2, 2, 2],
        "9 entries on four ranks are 3, 2, 2, 2: chunks of 3 for all who still get some would "
        "leave the last rank with nothing",
        "chunks differ by one entry at most",
    )
    t.equal(
        shards([(), (0, 3), (2,)], 4),
        [[(0, 0, 1)], [(2, 0, 1)], [(2, 1, 2)], []],
        "() is one entry, (0, 3) is none, and with three entries the fourth rank has no piece",
        "single numbers, empty parameters, a rank without a piece",
    )


def check_2(t, stage3_schedule, *, gathered_units):
    """24.2 Gathered for a moment"""
    answer = stage3_schedule([0, 1, 2])
    t(
        isinstance(answer, list) and all(isinstance(e, tuple) and len(e) == 2 for e in answer),
        "return a list of pairs (what, unit)",
        "a list of pairs",
    )
    computed = [(what, unit) for what, unit in answer if what in ("forward", "backward")]
    t(
        [unit for what, unit in computed if what == "backward"] == [2, 1, 0],
        "backward begins with the unit that forward used last",
        "backward runs in the opposite order",
    )
    before = gathered_units(answer)
    t(
        all(
            unit in there
            for (what, unit), there in zip(answer, before, strict=True)
            if what in ("forward", "backward")
        ),
        "a unit computes while it is not gathered: after forward it was freed, so backward has to "
        "gather it again",
        "whoever computes is gathered",
    )
    t(
        max(len(there) for there in before) == 1,
        "several units are gathered at a time: each is gathered right before its computation "
        "and freed right after it",
        "one unit is gathered at a time",
    )
    t(
        sum(what == "gather" for what, _ in answer) != 6,
        "the last unit is freed and gathered again at once: backward begins with the unit with "
        "which forward ended, so it stays gathered in between",
        "the last unit stays for its backward",
    )
    t(
        ("reduce", 2) in answer and answer.index(("reduce", 2)) < answer.index(("free", 2)),
        "after its last backward computation a unit is reduced, and only then freed",
        "reduced, then freed",
    )
    t.equal(
        stage3_schedule([0, 1]),
        [
            ("gather", 0),
            ("forward", 0),
            ("free", 0),
            ("gather", 1),
            ("forward", 1),
            ("backward", 1),
            ("reduce", 1),
            ("free", 1),
            ("gather", 0),
            ("backward", 0),
            ("reduce", 0),
            ("free", 0),
        ],
        "two units: gather, forward, free; gather, forward, backward, reduce, free; gather, "
        "backward, reduce, free",
        "two units",
    )
    shared = stage3_schedule([0, 1, 0])
    t(
        sum(event == ("reduce", 0) for event in shared) == 1,
        "unit 0 is used twice, and you reduce it after each backward: a rank would send a gradient "
        "that is not complete, and then again",
        "a shared unit is reduced once",
    )
    t.equal(
        [event for event in shared if event[1] == 0][6:],
        [("free", 0), ("gather", 0), ("backward", 0), ("reduce", 0), ("free", 0)],
        "uses of 0, 1, 0: unit 0 is freed after its first backward, and reduced after its second, "
        "the last one",
        "a shared unit is freed in between",
    )


def check_3(t, bytes_per_gpu):
    """24.3 From 120 GB to 1.88 GB"""
    answer = bytes_per_gpu(10, 3, 0)
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return three numbers: the bytes of weights, of gradient and of optimizer state",
        "three numbers",
    )
    model = 7_500_000_000
    in_all = [sum(bytes_per_gpu(model, 64, stage)) / 1e9 for stage in range(4)]
    t(
        not math.isclose(in_all[0], 90),
        "12 bytes of optimizer state, not 8: two running means of 4 bytes, and the float32 copy of "
        "the weight",
        "the copy of the weights counts",
    )
    t(
        math.isclose(in_all[0], 120),
        "stage 0 divides nothing: 16 bytes for each of 7.5 billion parameters are 120 GB",
        "stage 0: 120 GB",
    )
    t(
        not math.isclose(in_all[1], 2 * 7.5 / 64 + 14 * 7.5),
        "stage 1 divided the weights or the gradient: it begins with the optimizer state, the "
        "largest of the three",
        "the optimizer state goes first",
    )
    t(
        f"{in_all[1]:.1f}" == "31.4",
        "stage 1 keeps weights and gradient in full, 30 GB, and 1/64 of 90 GB",
        "stage 1: 31.4 GB",
    )
    t(
        not math.isclose(in_all[2], (14 + 2 / 64) * 7.5),
        "stage 2 divides the gradient alone: a stage also divides what the stages before it do",
        "each stage adds to the one before",
    )
    t(
        [f"{gb:.3g}" for gb in in_all[2:]] == ["16.6", "1.88"],
        "stage 2 keeps the weights in full, 15 GB, and stage 3 keeps nothing in full",
        "stages 2 and 3: 16.6 and 1.88 GB",
    )
    t.equal(
        [bytes_per_gpu(10, 3, stage) for stage in range(4)],
        [(20, 20, 120), (20, 20, 48), (20, 8, 48), (8, 8, 48)],
        "ten parameters on three ranks: the fullest has 4 of them, which is 10 / 3 rounded up; "
        "whole numbers",
        "the fullest rank has one more",
    )
    t.equal(
        [bytes_per_gpu(0, 4, 3), bytes_per_gpu(2**60 + 1, 2, 3)],
        [(0, 0, 0), (2**60 + 2, 2**60 + 2, 6 * 2**60 + 12)],
        "without parameters nothing; and (2**60 + 1) / 2 rounded up is 2**59 + 1, which a float "
        "cannot hold",
        "nothing, and very large numbers",
    )


def check_4(t, bytes_sent):
    """24.4 What a stage sends"""
    # Four ranks, 2,000 parameters: a unit is 3/4 of 4,000 bytes.
    one = [float(bytes_sent(2_000, 4, stage, 1, False)) for stage in range(4)]
    t(
        one[0] != 8_000,
        "a rank has its own chunk already: it sends 3/4 of the bytes, not all of them",
        "(n - 1)/n of the bytes",
    )
    t(
        one[0] == 6_000,
        "an all-reduce is two units of 3,000 bytes: a reduce-scatter and an all-gather",
        "stage 0 sends two units",
    )
    t(
        one[1:3] != [9_000, 9_000],
        "you all-reduce the gradients and then gather the weights: a rank that updates one chunk "
        "needs the sum of that chunk only, which is a reduce-scatter",
        "no all-reduce at stages 1 and 2",
    )
    t(
        one[1:3] == [6_000, 6_000],
        "stages 1 and 2 reduce-scatter gradients and gather weights: two units, as stage 0",
        "stages 1 and 2 send two units",
    )
    t(
        one[3] != 6_000,
        "at stage 3 the weights are freed between forward and backward, so they are gathered twice",
        "stage 3 gathers twice",
    )
    t.close(one[3], 9_000.0, "stage 3 sends three units", "stage 3 sends three units")
    four = [float(bytes_sent(2_000, 4, stage, 4, False)) for stage in range(4)]
    t(
        four[1] != 15_000,
        "stage 1 keeps full gradients, so they add up and are reduced once, however many "
        "micro-batches there are",
        "stage 1 reduces once",
    )
    t(
        four[3] != 18_000,
        "you gather the weights twice in a step: every micro-batch has a forward and a backward "
        "pass, and between two passes the weights are freed",
        "stage 3 gathers for every micro-batch",
    )
    t.close(
        four,
        [6_000.0, 6_000.0, 15_000.0, 36_000.0],
        "with four micro-batches: 2, 2, 4 + 1 and 4 + 8 units",
        "four micro-batches: 2, 2, 5 and 12 units",
    )
    t.close(
        [float(bytes_sent(2_000, 4, stage, 4, True)) for stage in range(4)],
        [6_000.0, 6_000.0, 6_000.0, 27_000.0],
        "with full gradients kept there is one reduce-scatter for the whole step: 2, 2, 1 + 1 and "
        "1 + 8 units",
        "full gradients kept: 2, 2, 2 and 9 units",
    )
    t.close(
        float(bytes_sent(2_000, 1, 3, 4, False)), 0.0, "one rank has nobody to send to", "one rank"
    )


def check_5(t, run_layer):
    """24.5 A shard and its gather"""
    # Seven rows on three ranks: 3, 2 and 2.
    whole_numbers = torch.arange(-52, 53) % 11 - 5.0
    w, x, dy, _ = whole_numbers.split((21, 42, 18, 24))
    w, xs, dys = w.view(7, 3), list(x.view(3, 2, 7)), list(dy.view(3, 2, 3))
    found = run_layer(w, xs, dys)
    own = [x.T @ dy for x, dy in zip(xs, dys, strict=True)]
    total = sum(own)
    inputs = [dy @ w.T for dy in dys]
    dshards = [one["dshard"] for one in found]
    t.close(
        [one["y"] for one in found],
        [x @ w for x in xs],
        "y is this rank's x times all of w, gathered from the three shards in the order of ranks",
        "y on each rank",
    )
    t(
        all(one["kept_bytes"] < w.nbytes for one in found),
        "you save the gathered weights for backward: then every rank has all of w between the "
        "passes, which stage 3 was to avoid",
        "the gathered weights are freed after forward",
    )
    t(
        not all(one["dx"].equal(sum(inputs)) for one in found),
        "you sum dx over the ranks: it is the gradient of this rank's own tokens, and nobody else "
        "has them",
        "dx stays on its rank",
    )
    t.close(
        [one["dx"] for one in found],
        inputs,
        "dx is dy times the transpose of all of w, which backward has to gather again",
        "dx on each rank",
    )
    t(
        [each.shape for each in dshards] != [part.shape for part in total.split((3, 2, 2))]
        or not all(map(torch.equal, dshards, total.split((3, 2, 2)))),
        "you return the sum over the ranks: divide by their number, as data parallelism does",
        "the mean over the ranks",
    )
    t(
        [each.shape for each in dshards] != [part.shape for part in total.split((3, 2, 2))]
        or not all(
            each.equal(g.split((3, 2, 2))[rank])
            for rank, (each, g) in enumerate(zip(dshards, own, strict=True))
        ),
        "each rank keeps its rows of its own gradient: the others' share of these rows is lost",
        "summed over the ranks",
    )
    t.close(
        dshards,
        [part / 3 for part in total.split((3, 2, 2))],
        "the gradient of a shard is its rows of the mean over the ranks of x.T @ dy",
        "the gradient of each shard",
    )
    t(
        sum(one["sent_bytes"] for one in found) <= 3 * 2 * w.nbytes,
        "your ranks send more than two all-gathers and one reduce-scatter: an all-reduce, for one, "
        "gives every rank the sum of all rows, of which it needs its own",
        "no byte more than stage 3",
    )
