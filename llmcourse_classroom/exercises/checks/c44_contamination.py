"""Checks of exercises 44: Contamination and integrity."""

import random


def check_1(t, covered, flagged):
    """44.1 How much of an item stands in the text?"""
    t.close(
        covered("the cat sat on the mat", ["we saw the cat sat there"], 3),
        0.5,
        "of the cat sat on the mat, the run the cat sat stands in the text: 3 of 6 words",
        "three of six words are covered",
    )
    t.close(
        covered("a b c d e", ["x a b c d y"], 3),
        0.8,
        "of a b c d e, the runs a b c and b c d are found: 4 of 5 words, each counted once",
        "overlapping runs count each word once",
    )
    t.close(
        covered("A b C", ["a B c d"], 2),
        1.0,
        "capitals do not count: compare small letters with small letters",
        "capitals do not hide an item",
    )
    t.close(
        covered("a b c", ["x a", "b c"], 3),
        0.0,
        "a run does not go over the end of a text: x a and b c do not hold a b c",
        "each text is searched by itself",
    )
    t.close(
        [covered("a b", ["x a b y"], 13), covered("a b", ["x a", "b"], 13)],
        [1.0, 0.0],
        "an item of fewer than n words is looked for whole",
        "short items are looked for whole",
    )
    items = ["a b c d", "c d e f", "e f g h"]
    t.equal(
        [list(flagged(items, ["a b c d e"], 2, 0.5)), list(flagged(items, ["a b c d e"], 2, 0.8))],
        [[0, 1], [0]],
        "of c d e f three words of four are covered: flagged where half is enough, and not where "
        "0.8 is asked for",
        "items are flagged from a share on",
    )


def check_2(t, exposure, others_needed, rank, was_read):
    """44.2 Ask for the canary"""
    t.equal(
        [rank(-5.0, [-4.0, -6.0, -7.0]), rank(-1.0, [-2.0])],
        [2, 1],
        "one of three strings is likelier than the canary, so its rank is 2; log-probabilities are "
        "negative, and -4 is likelier than -5",
        "the rank counts from 1",
    )
    t.equal(
        rank(-5.0, [-5.0, -5.0, -8.0]),
        3,
        "a string that is as likely as the canary counts as likelier: rank 3",
        "ties count against the canary",
    )
    t.close(
        [exposure(-5.0, [-4.0, -6.0, -7.0]), exposure(0.0, [-1.0] * 1023)],
        [1.0, 10.0],
        "rank 2 of 4 gives away 1 bit, rank 1 of 1,024 gives away 10: the canary itself is one of "
        "the candidates",
        "exposure is counted in bits",
    )
    t.equal(
        [was_read(-1.0, [-2.0] * 19, 0.05), was_read(-1.0, [-2.0] * 18, 0.05)],
        [True, False],
        "rank 1 of 20 is a p-value of 0.05, and rank 1 of 19 is 0.053: the p-value is rank / R",
        "the p-value is the rank over all candidates",
    )
    t.equal(
        [others_needed(0.05), others_needed(0.001), others_needed(0.3), others_needed(1)],
        [19, 999, 3, 1],
        "for 0.05 there must be 20 candidates, so 19 others; for 0.3 there must be 4; and one "
        "other it takes in any case",
        "few candidates can prove little",
    )


def check_3(t, false_alarms, order_score, p_value):
    """44.3 The order of the questions"""
    small = [[0, -1, -3], [-2, 0, -1], [-2, -4, 0]]
    t.equal(
        [order_score(small, [0, 1, 2]), order_score(small, [2, 0, 1]), order_score(small, [1])],
        [-2, -3, 0],
        "neighbours 0, 1 and 1, 2 have -1 and -1; 2, 0 and 0, 1 have -2 and -1: scores[i][j] is "
        "that of j after i, and a single question has no neighbour",
        "an order has the sum of its neighbours",
    )
    flat = [[0.0] * 5 for _ in range(5)]
    t.close(
        p_value(flat, 9, 0),
        1.0,
        "where all orders score the same, all shuffles score at least as high: p = 10 / 10",
        "equal scores prove nothing",
    )
    known = [[5.0 if j == i + 1 else 0.0 for j in range(20)] for i in range(20)]
    t.close(
        [p_value(known, 99, 3), p_value(known, 19, 4)],
        [0.01, 0.05],
        "if no shuffle scores as high, p is 1 / (1 + shuffles) and not 0: 0.01 of 99 shuffles, "
        "0.05 of 19",
        "the published order is one of the draws",
    )
    rng = random.Random(5)
    noise = [[[rng.gauss(0, 1) for _ in range(6)] for _ in range(6)] for _ in range(200)]
    t.close(
        p_value(noise[0], 199, 7),
        0.425,
        "a table of noise has p = 0.425 with 199 shuffles and seed 7: shuffle one list again and "
        "again, from one random.Random(seed)",
        "the draws are those of the seed",
    )
    t.close(
        false_alarms(noise, 39, 0.1),
        0.12,
        "of 200 tables of noise, about one in ten has a p-value of 0.1 or less (0.12 with seeds "
        "0 to 199)",
        "a level of 0.1 gives one false alarm in ten",
    )


def check_4(t, clean_score, leak_shows, share_interval):
    """44.4 The clean subset"""
    t.close(
        list(share_interval(5, 50)),
        [0.04348, 0.21361],
        "5 of 50 give 0.043 to 0.214: the middle is (5 + z²/2) / (50 + z²)",
        "5 of 50 are 4 to 21 %",
        relative=1e-3,
    )
    t.close(
        [*share_interval(0, 50), *share_interval(3, 3)],
        [0.0, 0.07135, 0.43849, 1.0],
        "0 of 50 give 0 to 0.071, and 3 of 3 give 0.44 to 1: the root holds k (n - k) / n + z²/4",
        "no right answer does not prove a share of 0",
        relative=1e-3,
        absolute=1e-9,
    )
    right = [True] * 40 + [False] * 10 + [True] * 5 + [False] * 45
    flags = [True] * 50 + [False] * 50
    t.close(
        list(clean_score(right, flags)),
        [0.1, 0.04348, 0.21361, 50],
        "of 50 items that are not flagged 5 are right: 0.1, with the interval of 50 items and not "
        "of 100",
        "the clean subset has its own share and interval",
        relative=1e-3,
    )
    t.equal(
        clean_score([True, True], [True, True]),
        None,
        "if all items are flagged there is no clean subset, and no score: return None",
        "without a clean subset there is no score",
    )
    same = [True, False] * 50
    t.equal(
        [leak_shows(right, flags), leak_shows(same, flags), leak_shows(same, [False] * 100)],
        [True, False, None],
        "40 of 50 against 5 of 50 shows a leak; half against half does not; and without a flagged "
        "item there is nothing to compare",
        "a leak shows where the intervals part",
    )
    t.equal(
        leak_shows([True] * 6 + [False] * 4 + [True] * 4 + [False] * 6, [True] * 10 + [False] * 10),
        False,
        "6 of 10 against 4 of 10 is well within both intervals: compare the low end of the one "
        "with the high end of the other",
        "a small difference of few items shows nothing",
    )
