"""Checks of exercises 21: Pipelines."""

from fractions import Fraction
from numbers import Integral

import torch

from llmcourse.parallel import world


def check_1(t, actions_of_rank):
    """21.1 One forward, one backward"""
    answer = actions_of_rank(1, 4, 6)
    t(
        isinstance(answer, list | tuple)
        and all(isinstance(a, list | tuple) and len(a) == 2 and a[0] in ("F", "B") for a in answer),
        "return a list of pairs such as ('F', 0) and ('B', 0)",
        "a list of pairs",
    )
    few = [kind + str(k) for kind, k in actions_of_rank(0, 4, 2)]
    t(
        not {"F2", "B2"} & {*few},
        "rank 0 of four with two micro-batches: you take a third one that does not exist; the "
        "warm-up is three forward passes only where there are three micro-batches",
        "no micro-batch that does not exist",
    )
    t(
        sorted(few) == ["B0", "B1", "F0", "F1"],
        "rank 0 of four with two micro-batches: each goes forward once and backward once; what the "
        "turns leave comes back in the third part",
        "once forward, once backward",
    )
    backwards = [k for kind, k in answer if kind == "B"]
    t(
        backwards == sorted(backwards),
        "your backward passes do not come in the order 0, 1, 2, ...: micro-batch 0 is the first "
        "that comes back from the ranks behind, whichever went forward last",
        "backward begins with micro-batch 0",
    )
    # Forward passes before the first backward pass.
    ahead = [[kind for kind, _ in actions_of_rank(rank, 4, 8)].index("B") for rank in range(4)]
    t(
        ahead != [8, 8, 8, 8],
        "this is GPipe: all forward, then all backward; in 1F1B a micro-batch goes backward as "
        "soon as it can",
        "backward begins before all are forward",
    )
    t(
        ahead != [4, 4, 4, 4],
        "all ranks of yours warm up for as long as rank 0: the last rank has its first gradient "
        "at once, and would hold four micro-batches for nothing",
        "each rank has a warm-up of its own",
    )
    t(
        ahead != [1, 2, 3, 4],
        "you count the ranks before a rank: those behind it have to get work, so rank 0 has the "
        "longest warm-up and the last rank has none",
        "the ranks behind are counted",
    )
    t(
        ahead != [5, 4, 3, 2],
        "one forward pass too many before the first backward: p - r of them, and then another one "
        "from the turns; rank p - 1 has nobody behind it, so it begins with F0 B0",
        "rank p - 1 has no warm-up",
    )
    t(
        ahead != [3, 2, 1, 1],
        "your warm-up is one forward pass too short: with three ranks behind it, rank 0 of four "
        "takes three forward, and a fourth as the first of the turns",
        "a warm-up for each rank behind",
    )
    t(
        ahead != [3, 2, 1, 0],
        "your turns begin with the backward pass: the last rank would take micro-batch 0 backward "
        "before it has gone forward there",
        "forward first, then backward",
    )
    t(
        ahead == [4, 3, 2, 1],
        "with four ranks, 4, 3, 2 and 1 forward passes come before the first backward pass: the "
        "warm-up of 3, 2, 1 and 0, and the first of the turns",
        "3, 2, 1 and 0 to warm up",
    )
    t.equal(
        [" ".join(kind + str(k) for kind, k in actions_of_rank(r, 3, 4)) for r in range(3)],
        ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"],
        "three ranks, four micro-batches: warm-up, then forward and backward by turns, then the "
        "backward passes that are left",
        "three ranks, four micro-batches",
    )
    t.equal(
        [actions_of_rank(0, 4, 2), actions_of_rank(0, 1, 2)],
        [[("F", 0), ("F", 1), ("B", 0), ("B", 1)], [("F", 0), ("B", 0), ("F", 1), ("B", 1)]],
        "with two micro-batches rank 0 of four is all warm-up; a single rank has no warm-up",
        "few micro-batches, and a single rank",
    )


def check_2(t, bubble, *, row):
    """21.2 The bubble of any schedule"""
    gpipe = [row("F0 F1 F2 F3 B0 B1 B2 B3")] * 3
    answer = bubble(gpipe, 1, 2)
    t(
        isinstance(answer, list | tuple) and [isinstance(n, Integral) for n in answer] == [1, 1],
        "return two whole numbers, numerator and denominator: as_integer_ratio() of a Fraction is "
        "such a pair",
        "two whole numbers",
    )
    found = Fraction(*answer)
    t(
        found.as_integer_ratio() == tuple(answer),
        "lowest terms are asked for: 6/12 is 1/2",
        "in lowest terms",
    )
    t(
        found != 0,
        "no rank of yours waits for another: rank 1 cannot begin before rank 0 has sent it "
        "something",
        "ranks wait for each other",
    )
    t(
        found != Fraction(1, 3),
        "this is the share of the whole time: 6 of 18 units; asked for is idle time relative to "
        "working time, 6 of 12",
        "relative to the working time",
    )
    t(
        found != Fraction(3, 2),
        "you put the idle time of all three ranks over the working time of one of them",
        "all ranks over all ranks",
    )
    t(
        found != Fraction(1, 4),
        "you count the gaps between actions: a rank is also idle before its first action and "
        "after its last one, until the step ends",
        "idle at the start and at the end too",
    )
    t(
        found != Fraction(1, 6),
        "your step ends with the last rank: a backward pass needs the gradient from the stage "
        "after, which comes up from the last rank, so the ranks before it end later",
        "backward waits for the stage after",
    )
    t(
        found >= 0,
        "your idle time is negative: a rank does one action after the other, so none begins before "
        "the last one on its rank has ended, even if its input is there",
        "one action at a time",
    )
    t(
        found != 38,
        "you add the two times for which an action waits: both run at once, so it begins at the "
        "later of them",
        "the later of two times",
    )
    t(
        found != 2,
        "this is working time relative to idle time, the wrong way round",
        "idle over working",
    )
    t.equal(
        answer,
        (1, 2),
        "GPipe with p = 3 and m = 4: each rank works for 12 units of 18, so (p - 1)/m = 1/2",
        "GPipe: (p - 1)/m",
    )
    one_f_one_b = [
        row("F0 F1 F2 B0 F3 B1 B2 B3"), row("F0 F1 B0 F2 B1 F3 B2 B3"),
        row("F0 B0 F1 B1 F2 B2 F3 B3"),
    ]  # fmt: skip
    t.equal(
        [bubble(one_f_one_b, 1, 2), bubble(one_f_one_b, 3, 5)],
        [(1, 2), (1, 2)],
        "1F1B waits as long as GPipe, (p - 1)/m, whatever the units of the two passes are",
        "1F1B: the same",
    )
    t(
        bubble([row("F0 F0.1 B0.1 B0")] * 2, 1, 2) != (1, 2),
        "one micro-batch through two chunks on each of two ranks: chunk 1 of rank 0 is the stage "
        "after chunk 0 of rank 1, and has to wait for it; here only one rank works at any time "
        "((p - 1)/(v m) holds where m is a multiple of p)",
        "chunk 1 of rank 0 waits for the last rank",
    )
    interleaved = [
        row("F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1"),
        row("F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1"),
    ]
    t(
        bubble(interleaved, 1, 2) != (3, 4),
        "you gave rank 0 stages 0 and 1, and rank 1 stages 2 and 3: chunk c of rank r is stage "
        "c p + r, so rank 0 has 0 and 2",
        "chunk c of rank r is stage c p + r",
    )
    t.equal(
        [bubble([row("F0 F0.1 B0.1 B0")] * 2, 1, 2), bubble(interleaved, 1, 2)],
        [(1, 1), (1, 4)],
        "two chunks on each of two ranks: with one micro-batch only one rank works at any time, "
        "1/1; with two of them (p - 1)/(v m) = 1/4",
        "interleaved: (p - 1)/(v m)",
    )
    short = [row("F0 F1 B0 F2 B1 F3 B2 B3"), *one_f_one_b[1:]]
    t.equal(
        bubble(short, 1, 2),
        (1, 1),
        "1F1B in which rank 0 warms up with one forward pass too few: the bubble is 1/1, twice as "
        "large, since rank 0 has to wait for a gradient before it sends the next micro-batch",
        "a warm-up that is too short",
    )
    crossed = [row("F0 F1 B0 B1"), row("F0 F1 B1 B0")]
    t.equal(
        [bubble(crossed, 1, 2), bubble(crossed, 2, 1)],
        [(5, 6), (2, 3)],
        "two ranks that go backward in different orders: 5/6 with a forward pass of 1 unit and a "
        "backward pass of 2, and 2/3 the other way round",
        "the units of the two passes",
    )
    t.equal(
        bubble([row("F0 B0 F1 B1")], 1, 2),
        (0, 1),
        "a single rank is never idle: 0/1",
        "a single rank",
    )


def check_3(t, most_held, *, row):
    """21.3 What has to be remembered"""
    one_f_one_b = [
        row("F0 F1 F2 B0 F3 B1 F4 B2 B3 B4"), row("F0 F1 B0 F2 B1 F3 B2 F4 B3 B4"),
        row("F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"),
    ]  # fmt: skip
    answer = most_held(one_f_one_b)
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return a list with a number for each rank, here three",
        "a number for each rank",
    )
    found = [int(count) for count in answer]
    t(
        found != [5, 5, 5],
        "you counted all forward passes: in 1F1B a backward pass frees a micro-batch before the "
        "next one comes",
        "what is freed does not count",
    )
    t(
        found != [2, 1, 0],
        "you look after the backward pass has freed its micro-batch: while it runs, its own is "
        "still held, so that even the last rank holds one",
        "held until backward has ended",
    )
    t(
        found != [1, 1, 1],
        "you drop the activations when the forward pass has sent its output: they stay for the "
        "backward pass of this rank",
        "held after forward",
    )
    t(
        found != [1, 2, 3],
        "the ranks are in the opposite order: rank 0 has to wait longest for its first gradient, "
        "and holds most",
        "rank 0 holds most",
    )
    t(
        found != [0, 0, 0],
        "this is what is held at the end, when all is freed: keep the largest number on the way",
        "the worst moment, not the last",
    )
    t.equal(
        answer,
        [3, 2, 1],
        "1F1B with three ranks and five micro-batches: 3, 2 and 1, which is p - r",
        "1F1B: p - r",
    )
    t.equal(
        most_held([row("F0 F1 F2 F3 B0 B1 B2 B3")] * 2),
        [4, 4],
        "GPipe holds all four micro-batches on both ranks: the number of ranks does not limit it, "
        "nor does a formula for 1F1B apply",
        "GPipe: m",
    )
    t.equal(
        most_held([row("F0 B0 F1 F2 B1 B2")]),
        [2],
        "you stop at the first backward pass: after it the number may rise again, and higher",
        "to the end of the row",
    )
    late = [row("F0 F1 I0 F2 I1 W0 I2 W1 W2"), row("F0 I0 W0 F1 I1 W1 F2 I2 W2")]
    t(
        most_held(late) != [2, 1],
        "you free at I, the gradient of the input: the gradients of the weights, W, are computed "
        "from the same activations later",
        "I frees nothing",
    )
    t.equal(
        most_held(late),
        [3, 1],
        "I frees nothing and W frees one: when rank 0 takes micro-batch 2 forward, micro-batches 0 "
        "and 1 still wait for their W",
        "W frees",
    )
    t.equal(
        most_held([row("F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1"), row("F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1")]),
        [4, 3],
        "a micro-batch that went forward through two chunks of a rank is held twice, once for "
        "each: they are different layers with different activations",
        "each chunk holds its own",
    )
    t.equal(
        most_held([row("F0 B0"), [], row("F0 F1 F2 B0 B1 F3 B2 B3")]),
        [1, 0, 3],
        "the worst moment may be long before the last forward pass, and a rank without actions "
        "holds nothing",
        "each rank for itself",
    )


def check_4(t, one_process, three_stages):
    """21.4 The loop of a stage"""
    # 1F1B of four micro-batches on three ranks: rank 0 sends F2 while rank 1 sends B0 back.
    rows = ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
    rows = [words.split() for words in rows]
    weights = [[0.5, -1.0], [1.5, 2.0], [-0.5, 1.0]]
    inputs = [[1.0, 2.0], [0.5, -1.0], [-2.0, 1.0], [3.0, 0.25]]
    right = one_process(weights, inputs)
    try:
        answers, waited = three_stages(rows, weights, inputs), ""
    except world.RankError as error:
        answers, waited = None, error.cause
    t(
        "waited" not in waited,
        "the processes wait for each other: rank 0 sends micro-batch 2 forward while rank 1 sends "
        "the gradient of 0 back, and a plain send waits until the other side receives. Use "
        "post_send",
        "nobody waits for ever",
    )
    t(not waited or "waited" in waited, f"a process failed: {waited}", "no process fails")
    if answers is not None:
        found = [torch.as_tensor(gradient) for gradient, _ in answers]
        passes = [order for _, order in answers]
        t(
            passes != ["FFFFBBBB"] * 3,
            "you do all forward passes and then all backward passes, whatever the row says: follow "
            "its words one after the other",
            "every rank follows its row",
        )
        t(
            passes == ["".join(word[0] for word in words) for words in rows],
            f"the ranks' passes ran as {passes}, and the rows say {rows}",
            "passes run in the order of the rows",
        )
        t(
            torch.allclose(found[2], right[2]),
            "the gradient on the last rank is wrong: backward of micro-batch k begins at the loss "
            "of k, for every k of the row",
            "the last rank's gradient",
        )
        t(
            torch.allclose(found[1], right[1]) or not torch.allclose(found[2], right[2]),
            "the last rank is right and rank 1 is not: send back the gradient of x, which is "
            "x.grad after the backward pass of the stage, and continue from what is received",
            "the gradient that comes back",
        )
        t(
            all(torch.allclose(a, b) for a, b in zip(found, right, strict=True)),
            "the gradients are not those of one process: each backward pass needs the x and the y "
            "of its own micro-batch",
            "the gradients of one process",
        )


def check_5(t, waiting, *, messages):
    """21.5 Who waits for whom"""
    t(
        waiting([messages("s1"), messages("r0")], True) is None,
        "rank 0 sends, rank 1 receives, and both are done: where all ranks come to their end, "
        "return None",
        "None where nobody is stuck",
    )
    swap = [messages("r1 s1"), messages("r0 s0")]
    answer = waiting(swap, True)
    t(
        answer is not None,
        "two ranks that both receive before they send wait for each other, and you return None",
        "two that only listen are a deadlock",
    )
    t(
        isinstance(answer, list | tuple)
        and [isinstance(x, list | tuple) for x in answer] == [1, 1],
        "return None or a pair of two lists: (rank, place) of all who are stuck, and the ring in "
        "the order of waiting",
        "a pair of two lists",
    )
    t(
        waiting([messages("r1 s1"), messages("s0 r0")], False) is None,
        "a receive that comes first is not a deadlock: rank 0 waits until rank 1 has sent, and "
        "then goes on; look at it again once others have moved",
        "who waits may go on later",
    )
    swap = [messages("s1 r1"), messages("s0 r0")]
    t(
        waiting(swap, False) is not None,
        "without buffers a send waits for its receive: two ranks that both send first wait for "
        "each other",
        "without buffers, a send waits",
    )
    t(
        waiting(swap, True) is None,
        "with buffers a send does not wait: two ranks that both send first both go on, and find "
        "their messages",
        "with buffers, a send goes on",
    )
    # Rank 0: F0 B0 F1 B1.  Rank 1: F0 F1 B0 B1.
    hasty = [messages("s1 r1 s1 r1"), messages("r0 r0 s0 s0")]
    t(
        waiting(hasty, True) is not None,
        "rank 0 has sent one message, and rank 1 receives it twice: a message that was received "
        "is gone",
        "each message is received once",
    )
    other = [messages("s1 r2 s2"), messages("r2 r0"), messages("r0 s0 s1")]
    t(
        waiting(other, True) is not None,
        "rank 2 receives the message that rank 0 has sent to rank 1: count what was sent for each "
        "pair of sender and receiver",
        "each message has one receiver",
    )
    three = [messages("r2 s1"), messages("r0 s2"), messages("r1 s0")]
    t(
        waiting(three, True) is not None,
        "rank 0 waits for 2, 2 for 1 and 1 for 0: no two of them wait for each other, and still "
        "nobody will ever go on",
        "a ring of three",
    )
    behind = [messages("r1 s1"), messages("r0 s0 s2"), messages("r1")]
    found = waiting(behind, True) or ([], [])
    t(
        len(found[0]) == 3,
        "rank 2 waits for rank 1, which waits for ever: rank 2 is stuck as well, though it is not "
        "in the ring",
        "who waits for the stuck is stuck",
    )
    t(
        len({*found[1]}) == len(found[1]),
        "a rank stands in your ring twice: name each once, and do not come back to the first",
        "each rank of the ring once",
    )
    t(
        len(found[1]) == 2,
        "ranks 0 and 1 wait for each other, and rank 2 only waits for rank 1: it is stuck, but "
        "nobody waits for it, so it is not part of the ring",
        "the ring is smaller than the stuck",
    )
    t.equal(
        [found, waiting(three, True), waiting(hasty, True)],
        [
            ([(0, 0), (1, 0), (2, 0)], [0, 1]),
            ([(0, 0), (1, 0), (2, 0)], [0, 2, 1]),
            ([(0, 1), (1, 1)], [0, 1]),
        ],
        "places are counted from 0 and name the action that a rank cannot end; the ring is in the "
        "order of waiting",
        "ranks, places and rings",
    )
    t.equal(
        waiting([messages("r2"), messages("r2 s2"), messages("r1 s1 s0"), []], True),
        ([(0, 0), (1, 0), (2, 0)], [1, 2]),
        "rank 0 waits for 2, and the ring is 1 and 2, beginning with 1: the lowest rank that is "
        "stuck need not be part of it, and a rank without actions is at its end",
        "the lowest one may stand outside",
    )
    # 1F1B on two ranks with three micro-batches, as the messages that it sends.
    turns = [messages("s1 s1 r1 s1 r1 r1"), messages("r0 s0 r0 s0 r0 s0")]
    t.equal(
        [waiting(turns, True), waiting(turns, False)],
        [None, ([(0, 1), (1, 1)], [0, 1])],
        "1F1B on two ranks: rank 0 sends micro-batch 1 forward while rank 1 sends the gradient of "
        "0 back; that only works if sends do not wait",
        "1F1B needs sends that do not wait",
    )
