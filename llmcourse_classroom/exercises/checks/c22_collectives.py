"""Checks of exercises 22: Collectives from scratch."""

import math

import numpy as np

from llmcourse.parallel import world


def check_1(t, reduce_scatter_schedule, *, sums_after):
    """22.1 Reduce-scatter as a schedule"""
    answer = reduce_scatter_schedule(4)
    t(
        isinstance(answer, list | tuple) and all(isinstance(row, list | tuple) for row in answer),
        "return a list of steps, each of them a list of whole numbers",
        "a list of lists",
    )
    steps = [[int(chunk) for chunk in row] for row in answer]
    t(
        [len(row) for row in steps] != [3] * 4,
        "your table has a row for each rank: the outer list is of steps, the inner ones of ranks",
        "the outer list is of steps",
    )
    t(
        len(steps) == 3 and all(len(row) == 4 for row in steps),
        "four ranks take three steps, and each step lists four chunks: a chunk is at its own rank "
        "after three hops, and a fourth would carry it past",
        "three steps of four chunks",
    )
    t(
        all(0 <= chunk < 4 for row in steps for chunk in row),
        "there are chunks 0 to 3 only: before chunk 0 comes chunk 3, since it is a ring",
        "chunks are counted round the ring",
    )
    t(
        all(len(set(row)) == 4 for row in steps),
        "in some step two ranks send the same chunk: the four ranks send four different ones, so "
        "that all sums grow at the same time",
        "in each step every chunk is on its way",
    )
    t(
        len({tuple(row) for row in steps}) == len(steps),
        "you send the same chunks in every step: then the next rank adds the same numbers again, "
        "and they get no further",
        "another chunk in every step",
    )
    t(
        steps[1] == [steps[0][r - 1] for r in range(4)],
        "what a rank sends in step 1 is not the chunk that it received in step 0: the sum that "
        "came has to travel on",
        "what was received is passed on",
    )
    ends = sums_after(steps, 4)
    t(
        not all(sorted(ends[r][(r + 1) % 4]) == [0, 1, 2, 3] for r in range(4)),
        "your sums are whole, but that of chunk r + 1 is at rank r: you begin with a rank's own "
        "chunk. Here a rank is to keep its own, so it begins with the one before",
        "a rank never sends its own chunk",
    )
    t(
        all(sorted(ends[r][r]) == [0, 1, 2, 3] for r in range(4)),
        "at the end, chunk r of rank r has to hold the numbers of every rank, each once",
        "chunk r of rank r is the whole sum",
    )
    t.equal(
        answer,
        [[3, 0, 1, 2], [2, 3, 0, 1], [1, 2, 3, 0]],
        "in step s, rank r sends chunk r - 1 - s, counted round the ring",
        "the schedule of four ranks",
    )
    t.equal(
        [reduce_scatter_schedule(n) for n in (1, 2, 3)],
        [[], [[1, 0]], [[2, 0, 1], [1, 2, 0]]],
        "one rank has nothing to send, two swap once, three take two steps",
        "one, two and three ranks",
    )


def check_2(t, three_processes):
    """22.2 An all-reduce between three processes"""
    # Seven entries are chunks of 3, 2 and 2; the digits of a sum say who is in it.
    try:
        answers, waited = three_processes([[100.0] * 7, [10.0] * 7, [1.0] * 7]), ""
    except world.RankError as error:
        answers, waited = None, error.cause
    t(
        "waited" not in waited,
        "the processes wait for each other: all of them send, and none comes to the line in which "
        "it would receive. Use exchange, which does both at once",
        "nobody waits for ever",
    )
    t(not waited or "waited" in waited, f"a process failed: {waited}", "no process fails")
    if answers is not None:
        sums = np.array([np.asarray(x, dtype=float) for x, _ in answers])
        sent = [num_bytes for _, num_bytes in answers]
        t(
            sums.shape == (3, 7),
            "every process has to return a row as long as its own",
            "a row from every process",
        )
        own = np.array([[i in part for i in range(7)] for part in ((0, 1, 2), (3, 4), (5, 6))])
        t(
            not (sums > 111).any(),
            "some numbers are in the sum more than once: in the second round, what comes is "
            "complete and takes the place of what was there",
            "every row is in the sum once",
        )
        t(
            (sums == 111).all() or not (sums[own] == 111).all(),
            "every process has its own chunk of the sum and no other: that is the reduce-scatter, "
            "and the all-gather is missing",
            "a second time round brings every chunk to everybody",
        )
        t(
            not ((sums[:, :6] == 111).all() and (sums[:, 6] != 111).all()),
            "the last entry is left out: seven entries on three ranks are chunks of 3, 2 and 2",
            "no entry is left over",
        )
        t(
            (sums == 111).all(),
            "some entries are parts of the sum. In the second round, begin with the chunk that is "
            "complete after the first: it is the one that was added to last",
            "every process has 111 everywhere",
        )
        t(
            sent != [56, 56, 56],
            "you send whole rows: 56 bytes from each process. A ring sends chunks, and each "
            "process adds only those that pass it",
            "chunks travel, not rows",
        )
        t(
            max(sent) <= 40 and sum(sent) <= 112,
            f"your processes send {sent} bytes; in a ring, none sends more than 40",
            "no process sends more than in a ring",
        )
        if (sums == 111).all():
            rows = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
            short = [np.asarray(x) for x, _ in three_processes(rows.tolist())]
            t.close(
                short[0],
                rows.sum(axis=0),
                "two numbers on three ranks: one of the chunks is empty, and nothing else changes",
                "rows shorter than the ring",
                relative=1e-5,
            )
            t(
                all(np.array_equal(x, short[0]) for x in short),
                "the processes have sums that differ in the last digits: add each chunk once, and "
                "copy the result",
                "the same bits everywhere",
            )


def check_3(t, tree_and_ring):
    """22.3 Where the ring overtakes the tree"""
    # Six ranks, 60 bytes at 1 byte a second, and 1,000 seconds of latency: the thousands count
    # messages, and the rest is bytes.
    answer = tree_and_ring(60, 6, 1_000, 1)
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return three numbers: seconds of the tree, seconds of the ring, and the crossover",
        "three numbers",
    )
    tree_s, ring_s, crossover = (float(number) for number in answer)
    t(
        not math.isclose(tree_s, 3_180),
        "your tree goes one way only: the sum is at rank 0 then, and the others have yet to get it",
        "the tree goes in and out again",
    )
    t(
        not math.isclose(tree_s, 2 * math.log2(6) * 1_060),
        "there is no part of a round: six ranks need three, as seven or eight do",
        "rounds are whole",
    )
    t.close(
        tree_s,
        6_360,
        "the tree of six ranks: three rounds in, three out, each 1,000 s + 60 s",
        "the tree: six messages of the whole tensor, one after the other",
        relative=1e-9,
    )
    t(
        not math.isclose(ring_s, 10_600),
        "your ring sends the whole tensor in every step: it is a sixth, and that is its advantage",
        "the ring sends chunks",
    )
    t(
        not math.isclose(ring_s, 5_050),
        "you have the reduce-scatter of the ring without the all-gather",
        "the ring goes round twice",
    )
    t(
        not math.isclose(ring_s, 1_100),
        "you paid the latency once: in a ring a rank cannot send on what has not arrived, so each "
        "of the steps waits for it again",
        "latency is paid in every step",
    )
    t.close(
        ring_s,
        10_100,
        "the ring of six ranks: 2 x 5 steps, each 1,000 s + 10 s",
        "the ring: ten messages of a sixth, one after the other",
        relative=1e-9,
    )
    t.close(
        tree_and_ring(64, 8, 1_000, 1)[:2],
        [6_384, 14_112],
        "eight ranks need three rounds, as 2 x 2 x 2 = 8, and 2 x 7 steps",
        "eight ranks: three rounds",
        relative=1e-9,
    )
    t.close(
        [tree_and_ring(60, n, 1_000, 1)[2] for n in (1, 2, 3)],
        [0.0, 0.0, 0.0],
        "with one, two or three ranks the tree saves no message, and so it is never faster: 0.0",
        "up to three ranks the crossover is 0",
        absolute=1e-6,
    )
    t(
        not math.isclose(crossover, 1_000 * 6) and not math.isclose(crossover, 1_000),
        "latency x bandwidth, with or without the number of ranks, is a rough figure: put the two "
        "times equal and solve for the bytes",
        "the crossover is the solution of an equation",
    )
    t.close(
        crossover,
        1_000 * (5 - 3) / (3 - 5 / 6),
        "at the crossover both times are equal: 3 (1,000 + L) = 5 (1,000 + L/6), so L = 923.08",
        "six ranks: the ring is faster from 923 bytes on",
        relative=1e-9,
    )
    # 512 ranks, links of 50 GB/s, and 10 microseconds for a message as an assumption; the bf16
    # gradients of a 70B model that is cut into 32 parts.
    t.close(
        tree_and_ring(70_553_706_496 * 2 / 32, 512, 1e-5, 50e9),
        [1.587637637, 0.18625976572, 31_367_341.96],
        "70B over 512 replicas: the tree takes 1.59 s, the ring 0.186 s, of which 10 ms are "
        "latency, and they meet at 31 MB",
        "70B over 512 replicas: 1.59 s against 0.186 s",
        relative=1e-6,
    )


def check_4(t, two_sums):
    """22.4 Four numbers, four sums"""
    # In float32 the numbers around 2**25 = 33,554,432 lie 4 apart.  The exact sum is 14.
    four = np.array([9, 5, 2**25, -(2**25)], dtype=np.float32)
    x = np.repeat(four[:, None], 6, axis=1)
    given = x.copy()
    answer = two_sums(x)
    t(
        isinstance(answer, list | tuple) and [type(part) for part in answer] == [np.ndarray] * 3,
        "return three numpy arrays: the sum round the ring, the sum in rank order, and the ulps",
        "three arrays",
    )
    ring, ordered, ulps = answer
    t(
        ring.shape == ordered.shape == ulps.shape == (6,),
        "each of the three has one number for each entry, so shape (6,): the sum is over the ranks",
        "one number for each entry",
    )
    t(
        np.array_equal(x, given),
        "you changed the array you were given: `total += row` writes into the first row",
        "the given array is unchanged",
    )
    t(
        not (ring == 14).all(),
        "your sums are exact: you added in a wider type than float32. A rank rounds after every "
        "addition",
        "every addition is rounded to float32",
    )
    t.equal(
        ordered,
        np.full(6, 16, dtype=np.float32),
        "in rank order: 9 + 5 = 14, plus 2**25 rounds to 2**25 + 16, and 16 is left; in float32",
        "in rank order the sum is 16, and exact would be 14",
    )
    t(
        not (ring == ordered).all(),
        "both of your sums are in rank order: on a ring each chunk sets out from another rank",
        "the ring adds in orders of its own",
    )
    t(
        ring.tolist() != [16, 16, 13, 13, 14, 12],
        "your chunk c sets out from rank c: then it arrives at rank c - 1. It sets out from rank "
        "c + 1 and ends at home",
        "chunk c sets out from rank c + 1",
    )
    t(
        ring.tolist() != [14, 14, 13, 13, 14, 12],
        "you went round the ring backwards: rank c + 1 sends to rank c + 2, and so on up to rank c",
        "the sum goes to the next rank, not to the one before",
    )
    t(
        ring.tolist() != [13, 14, 12, 16, 16, 16],
        "the rest of the division went to the last chunk: six entries on four ranks are 2, 2, 1 "
        "and 1",
        "the first chunks are the longer ones",
    )
    t.equal(
        ring,
        np.array([13, 13, 14, 14, 12, 16], dtype=np.float32),
        "round the ring: chunk 0 adds the ranks 1, 2, 3, 0 and gives 13; chunk 1 adds 2, 3, 0, 1 "
        "and gives 14; chunk 2 gives 12, and chunk 3 gives 16; in float32",
        "the same four numbers give 13, 14, 12 and 16",
    )
    t(
        all((np.asarray(part) >= 0).all() for part in (ulps, two_sums(-x)[2])),
        "some of your ulps are below 0: take the absolute value of the difference, and that of the "
        "sum inside of np.spacing",
        "no distance is below 0, also where sums are",
    )
    t(
        not np.allclose(ulps, np.array([3, 3, 2, 2, 4, 0]) / np.finfo(np.float32).eps),
        "you counted in steps of 1.2e-7, which is the ulp of numbers from 1 to 2: at 16 an ulp is "
        "sixteen times as large",
        "an ulp grows with the number",
    )
    t.close(
        ulps,
        np.array([3, 3, 2, 2, 4, 0]) * 2.0**19,
        "next to 16 the float32 numbers lie 2**-19 apart, so a difference of 3 is 3 x 2**19 = "
        "1,572,864 ulps; in float64",
        "where large numbers cancel, millions of ulps",
        relative=1e-9,
    )
    t.equal(
        list(two_sums(np.array([[2**24, 2**24, 2**24], [1, 1, -1], [1, 1, 3]], dtype=np.float32))),
        [
            np.array([2**24 + 2, 2**24, 2**24 + 2], dtype=np.float32),
            np.array([2**24, 2**24, 2**24 + 2], dtype=np.float32),
            np.array([1.0, 0.0, 0.0]),
        ],
        "three ranks, three entries: 2**24 + 1 + 1 loses both ones, and 1 + 1 + 2**24 keeps them, "
        "one ulp apart",
        "without cancellation, one ulp",
    )
    two = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    t.equal(
        [two_sums(two)[2], two_sums(two[:1])[2], two_sums(two.reshape(5, 2))[0].shape],
        [np.zeros(5), np.zeros(5), (2,)],
        "two ranks have one addition, and a + b is b + a, bit by bit; one rank has none; with "
        "more ranks than entries some chunks are empty",
        "two ranks, one rank, and empty chunks",
    )
