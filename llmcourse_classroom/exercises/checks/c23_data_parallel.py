"""Checks of exercises 23: Data parallelism that is provably the same."""

import math

import numpy as np


def check_1(t, departures):
    """23.1 Which bucket leaves when"""
    # Bytes of parameters 0 to 5, in buckets of 100.  The hook of 3 fires before that of 4.
    sizes = [40, 30, 250, 60, 40, 50]
    answer = departures(sizes, 100, [5, 3, 4, 2, 0, 1])
    t(
        len(answer) > 1 and all(len(pair) == 2 for pair in answer),
        "return a list with a pair for each bucket: its parameters, and after how many hooks it "
        "leaves",
        "a pair for each bucket",
    )
    cut = [list(bucket) for bucket, _ in answer]
    left = [number for _, number in answer]
    t(
        0 not in cut[0],
        "your first bucket holds parameter 0: backward comes to it last, so that this bucket would "
        "be full at the very end",
        "buckets are filled from the last parameter",
    )
    t(
        cut[0] != [5],
        "you cut in the order of the hooks: that may differ from rank to rank, and the buckets "
        "would, too. The order of parameters is the same everywhere",
        "buckets do not depend on the order of hooks",
    )
    t(
        3 not in cut[0],
        "your first bucket holds 50 + 40 + 60 = 150 bytes: the gradient that is too much begins "
        "the next one",
        "no bucket of several gradients is over the limit",
    )
    t.equal(
        cut,
        [[5, 4], [3], [2], [1, 0]],
        "50 + 40 fit into 100, and 60 more do not; 250 stands alone; 30 + 40 fit. Inside a bucket, "
        "too, the last parameter stands first",
        "four buckets: 5 and 4, then 3, then 2, then 1 and 0",
    )
    t(
        left[:2] != [3, 2],
        "your bucket 1 leaves before bucket 0: it is full after 2 hooks, and has to wait, since "
        "all ranks must send in one order",
        "no bucket overtakes another",
    )
    t.equal(
        left,
        [3, 3, 4, 6],
        "bucket 0 is full with the third hook, and lets bucket 1 go, too; then 4 and 6 hooks. One "
        "hook that has fired counts as 1",
        "they leave after 3, 3, 4 and 6 hooks",
    )
    whole = departures([60, 40], 100, [1, 0])
    t.equal(
        [list(bucket) for bucket, _ in whole],
        [[1, 0]],
        "60 + 40 bytes are 100, and not more than 100: they share a bucket",
        "a bucket may hold exactly its limit",
    )
    unused = [number for _, number in departures(sizes, 100, [5, 4, 2, 0, 1])]
    t(
        unused != [2, 2, 3, 5],
        "parameter 3 was not used, and its bucket leaves all the same: without its hook nobody "
        "knows that nothing will come",
        "a bucket with an unused parameter is not full",
    )
    t.equal(
        unused,
        [2, None, None, None],
        "bucket 1 never becomes full, because parameter 3 was not used. Buckets 2 and 3 are full, "
        "but may not overtake it",
        "behind a bucket that is not full, all wait for `sync`",
    )
    t.equal(
        [departures([], 8, []), [list(b) for b, _ in departures([9, 9], 8, [1, 0])]],
        [[], [[1], [0]]],
        "no parameter, no bucket; and each of two gradients above the limit stands alone",
        "no parameter at all, and large ones only",
    )


def check_2(t, loss_factors):
    """23.2 The last batch"""
    # Rank 0 has micro-batches of 5 and 3 tokens, rank 1 has one of 3, rank 2 one of 1: 12 in all.
    counts = [[5, 3], [3], [1]]
    averaged = loss_factors(counts, True)
    t(
        [len(part) for part in averaged if isinstance(part, list | tuple)] == [2, 1, 1],
        "return a list for each rank, with a factor for each of its micro-batches",
        "a factor for each micro-batch",
    )
    first = float(averaged[0][0])
    t(
        not math.isclose(first, 1),
        "all of your factors are 1: that is the mean of means. The lone token of rank 2 counts as "
        "much as five of rank 0",
        "a mean over few tokens counts less than one over many",
    )
    t(
        not math.isclose(first, 1 / 2),
        "you divide by the number of micro-batches: they do not have equally many tokens",
        "micro-batches count by their tokens",
    )
    t(
        not math.isclose(first, 5 / 12),
        "you forgot that `sync` divides by the number of ranks: of your 5/12 only 5/36 is left",
        "what `sync` divides by is made up for",
    )
    t(
        not math.isclose(first, 5 / 8),
        "you divide by the tokens of the rank: then all ranks count alike, and the token of rank 2 "
        "as much as all eight of rank 0",
        "tokens count alike, and not ranks",
    )
    t(
        not math.isclose(first, 20 / 12),
        "you multiply by the number of micro-batches, which is 4: `sync` divides by the ranks, 3",
        "ranks are counted, and not micro-batches",
    )
    t.close(
        sum(averaged, []),
        [1.25, 0.75, 0.75, 0.25],
        "with the mean over three ranks: 3 x 5/12, 3 x 3/12, 3 x 3/12, 3 x 1/12",
        "with averaging: 1.25 and 0.75, 0.75, 0.25",
        relative=1e-9,
    )
    t.close(
        sum(loss_factors(counts, False), []),
        [5 / 12, 1 / 4, 1 / 4, 1 / 12],
        "with the sum over ranks nothing divides afterwards: each factor is a share in all tokens",
        "with a sum: shares that add up to 1",
        relative=1e-9,
    )
    t.close(
        sum(loss_factors([[4], [], [0, 2]], True), []),
        [2.0, 0.0, 1.0],
        "a rank without a micro-batch is a rank: `sync` divides by 3. No token, factor 0",
        "ranks and micro-batches that have nothing",
        relative=1e-9,
    )
    # Losses of single tokens stand for gradients: what arrives has to be their mean.
    tokens = [[[2.0, 2.0, 2.0]], [[6.0]]]
    factors = loss_factors([[3], [1]], True)
    parts = [f * sum(x) / len(x) for f, x in zip(sum(factors, []), sum(tokens, []), strict=True)]
    t.close(
        sum(parts) / 2,
        3.0,
        "three tokens with a loss of 2 and one with 6 have the mean 3",
        "three losses of 2 and one of 6: 3, and not 4",
        relative=1e-9,
    )


def check_3(t, first_drift):
    """23.3 Who drifted first?"""

    def on_all(text, num_ranks=3, names=("embedding", "w_q", "gain")):
        return [{name: f"{text} {name}" for name in names} for _ in range(num_ranks)]

    def changed(snapshot, rank, *names):
        copy = [dict(of_rank) for of_rank in snapshot]
        for name in names:
            copy[rank][name] += " other"
        return copy

    weights = [on_all(f"weights {step}") for step in range(4)]
    gradients = [on_all(f"gradient {step}") for step in (1, 2, 3)]
    t(
        first_drift(weights, gradients) is None,
        "all ranks are equal in every snapshot: return None. That fingerprints change from step to "
        "step is training",
        "None where nothing differs",
    )
    # From step 2 on, rank 2 keeps a gradient of the gain to itself.  Clipping spreads it.
    late = [gradients[0], *(changed(g, 2, "gain") for g in gradients[1:])]
    spread = [*weights[:2], *(changed(w, 2, "embedding", "w_q", "gain") for w in weights[2:])]
    answer = first_drift(spread, late)
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return the three: step, where, and the suspects",
        "step, where, suspects",
    )
    step, where, suspects = answer
    t(
        step != 3,
        "you return the last difference: look for the first, the others follow from it",
        "the first difference counts",
    )
    t(
        where != "optimizer",
        "you looked at the weights alone, or first: after clipping all of them differ, and say "
        "nothing of the cause. The gradients of the same step come before",
        "gradients are looked at before the weights that they change",
    )
    t(
        step != 1,
        "that is the second step: the gradients of step 1 are the first in the list",
        "steps are counted from 1",
    )
    t(
        sorted(suspects) == ["gain"],
        "only the gain differs in the first snapshot: leave out what is equal there, and what "
        "differs later",
        "parameters of that snapshot alone",
    )
    t.equal(
        (step, where, {name: list(ranks) for name, ranks in suspects.items()}),
        (2, "sync", {"gain": [2]}),
        "in step 2, after sync, rank 2 has another gradient of the gain than ranks 0 and 1",
        "step 2, sync, the gain on rank 2",
    )
    odd = [changed(g, 0, "w_q") for g in gradients]
    t.equal(
        first_drift([weights[0], *(changed(w, 0, "w_q") for w in weights[1:])], odd),
        (1, "sync", {"w_q": [0]}),
        "ranks 1 and 2 agree, so rank 0 is the odd one: it is not right because it is the first",
        "rank 0 may be the odd one",
    )
    t.equal(
        first_drift([changed(w, 1, "embedding") for w in weights], gradients),
        (0, "start", {"embedding": [1]}),
        "the weights differ before the first step: nobody sent those of rank 0 to the others",
        "a missing broadcast at the start",
    )
    stepped = [*weights[:2], *(changed(w, 1, "gain") for w in weights[2:])]
    t.equal(
        first_drift(stepped, [*gradients[:2], changed(gradients[2], 1, "w_q", "gain")]),
        (2, "optimizer", {"gain": [1]}),
        "the gradients of steps 1 and 2 are equal, and after step 2 a weight is not: that was the "
        "optimizer. Unequal gradients in step 3 follow from it",
        "equal gradients, and an optimizer that differs",
    )
    pair = [snapshot[:2] for snapshot in gradients]
    t.equal(
        first_drift([w[:2] for w in weights], [changed(g, 0, "gain", "w_q") for g in pair]),
        (1, "sync", {"gain": [1], "w_q": [1]}),
        "of two ranks each is one half: then the fingerprint of rank 0 counts as the usual one",
        "two ranks, two parameters",
    )


def check_4(t, two_processes):
    """23.4 A hook that averages"""
    # Two steps of two micro-batches.  In the first, rank 0 has 11, 22, 33 and rank 1 33, 44, 55.
    steps_0 = [[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], [[100.0, 0.0, 0.0], [0.0, 100.0, 0.0]]]
    steps_1 = [[[3.0, 4.0, 5.0], [30.0, 40.0, 50.0]], [[300.0, 0.0, 0.0], [0.0, 0.0, 200.0]]]
    try:
        answers, failed = two_processes([steps_0, steps_1]), ""
    except NotImplementedError:
        raise
    except RuntimeError as error:
        answers, failed = None, str(error)
    t(
        "require gradient" not in failed,
        "you register a hook on the frozen parameter, and torch refuses: it never gets a gradient",
        "a frozen parameter has no hook",
    )
    t(not failed or "require gradient" in failed, f"a process failed: {failed}", "none fails")
    if answers is not None:
        found = np.array([np.asarray(gradients, dtype=float) for gradients, _ in answers])
        num_bytes = sum(sent for _, sent in answers)
        t(
            not np.array_equal(found[:, 0], [[11, 22, 33], [33, 44, 55]]),
            "every process keeps its own gradients: write the mean into p.grad",
            "the mean arrives in p.grad",
        )
        t(
            not np.array_equal(found[:, 0], [[44, 66, 88]] * 2),
            "that is the sum over the processes: divide it by how many they are",
            "a mean, and not a sum",
        )
        t(
            not (num_bytes == 24 and np.array_equal(found[:, 0], [[22, 33, 44]] * 2)),
            "the first step is right, and in the second nothing is sent: set the count back to 0",
            "the second step is like the first",
        )
        t(
            num_bytes != 96,
            "you send in every micro-batch: the mean is right, and you sent twice as many bytes as "
            "needed. A gradient is complete with the last micro-batch of the step",
            "nothing is sent before the last micro-batch",
        )
        t.equal(
            found[:, 0].tolist(),
            [[22.0, 33.0, 44.0]] * 2,
            "in the first step, 11 and 33 have the mean 22, 22 and 44 have 33, 33 and 55 have 44. "
            "Every parameter has its own count of passes",
            "the means of the first step",
        )
        t.equal(
            found[:, 1].tolist(),
            [[200.0, 50.0, 100.0]] * 2,
            "in the second step, 100 and 300 have the mean 200, 100 and 0 have 50, 0 and 200 have "
            "100",
            "the means of the second step",
        )
        t.equal(
            num_bytes,
            48,
            "two steps send 3 numbers of 4 bytes from each of two processes: 48 bytes in all",
            "48 bytes in all",
        )


def check_5(t, meet):
    """23.5 Which gradients meet"""
    # Parameters 0, 1 and 3 have 4 entries, parameter 2 has 9.
    sizes = [4, 4, 9, 4]
    answer = meet([[0, 1, 3], [0, 3]], sizes)
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return the three: how it ended, the number of sums, and the places of swaps",
        "how, sums, swaps",
    )
    how, sums, swaps = answer
    t(
        how != "done",
        "your loops end with the shortest list: rank 0 has a third call, and waits for a partner",
        "a rank with a call left waits",
    )
    t(
        how != "mismatch",
        "you compare parameters: at place 1 they differ, but both have 4 entries, so that nobody "
        "notices",
        "sizes are noticed, and parameters are not",
    )
    t(
        list(swaps) != [],
        "your gradients find those of the same parameter: but calls meet by their place, so that "
        "parameter 3 of rank 1 is added to parameter 1 of rank 0",
        "calls meet by place",
    )
    t(
        sums != 3,
        "you count the sum that hangs: it was begun on rank 0, and never completed",
        "only completed sums count",
    )
    t.equal(
        [how, sums, list(swaps)],
        ["hang", 2, [1]],
        "place 0 is right, place 1 adds parameter 3 to parameter 1, and at place 2 rank 0 is alone",
        "two sums, of which one is a swap, and then a hang",
    )
    t.equal(
        list(meet([[0, 1, 2], [0, 2]], sizes)),
        ["mismatch", 1, []],
        "at place 1 a gradient with 4 entries meets one with 9: that is an error, and not a swap",
        "different sizes are an error",
    )
    t.equal(
        [list(meet([[0, 2], [0, 2], [0, 1]], sizes)), list(meet([[0], [0], [1]], sizes))],
        [["mismatch", 1, []], ["done", 1, [0]]],
        "it is rank 2 that differs: all ranks meet, and not two of them",
        "three ranks, of which the last differs",
    )
    t.equal(
        list(meet([[0, 2], [1, 2]], sizes)),
        ["done", 2, [0]],
        "both loops end without an error, and parameters 0 and 1 have wrong gradients",
        "a swap that ends well for the program, and not for the model",
    )
    t.equal(
        list(meet([[0, 1], [0, 2], [0]], sizes)),
        ["hang", 1, []],
        "rank 2 never makes its second call, so that the sizes of the others are not compared",
        "nothing is compared before all have called",
    )
    t.equal(
        [list(meet([[], []], sizes)), list(meet([[1], []], sizes))],
        [["done", 0, []], ["hang", 0, []]],
        "no call at all is done at once; one call alone hangs at once",
        "ranks without a call",
    )
