"""Checks of exercises 36: Long context."""

import math

import numpy as np


def check_1(t, share_kept, slower_speeds):
    """36.1 The speeds of Llama 3.1"""
    t.close(
        [share_kept(8, 1, 4), share_kept(2, 1, 4), share_kept(0.5, 1, 4)],
        [1.0, 1 / 3, 0.0],
        "pairs with 8, 2 and 0.5 turns keep 1, 1/3 and 0: the share is (n - low) / (high - low), "
        "held between 0 and 1",
        "pairs with 8, 2 and 0.5 turns keep 1, 1/3 and 0",
    )
    t.close(
        slower_speeds(4, 100.0, 4, (1, 4), 4 * math.pi),
        [0.5, 0.025],
        "a head of 4 channels with theta = 100 has the speeds 1 and 0.1; in 4 pi tokens they make "
        "2 turns and 0.2, so they become 1/2 and 0.1 / 4",
        "two pairs by hand: 1 becomes 0.5, and 0.1 becomes 0.025",
    )
    llama = list(slower_speeds(128, 500_000.0, 8, (1, 4), 8_192))
    t.equal(len(llama), 64, "128 channels are 64 pairs", "64 pairs")
    t.close(
        [llama[0], llama[28], llama[32], llama[63]],
        [1.0, 0.003211445995, 0.000524846161, 3.068925989e-07],
        "pairs 0 and 28 of Llama 3.1 keep their speed, pair 32 lies between, and pair 63 is 8 "
        "times slower: 1, 3.21e-3, 5.25e-4 and 3.07e-7 radians per token",
        "the speeds are those by which transformers turns Llama 3.1",
    )


def check_2(t, cache_gb, pair_share, ring_gb, tokens_of_phase):
    """36.2 What 131,072 tokens cost"""
    t.close(
        pair_share(1, 2, 4, 7, 384),
        0.25,
        "by hand the pairs take 128 of 512 operations, a quarter: (T + 1) / 2 keys on average at "
        "4 H K operations",
        "by hand the share is a quarter",
    )
    t.close(
        [pair_share(126, 128, 128, T, 8.077e11) for T in (8_192, 131_072)],
        [0.0402, 0.4012],
        "in the 405B the pairs' share is 4.0 % at 8,192 tokens and 40.1 % at 131,072: the matrices "
        "cost the same at both lengths",
        "in the 405B it is 4 % at 8,192 tokens and 40 % at 131,072",
        relative=2e-3,
    )
    t.close(
        cache_gb(126, 8, 128, 131_072),
        67.645734912,
        "the cache of one row of 131,072 tokens in the 405B is 67.6 GB: keys and values, of the 8 "
        "key/value heads, at 2 bytes a number",
        "the cache of one row is 67.6 GB in the 405B",
    )
    t.close(
        [ring_gb(126, 8, 128, 131_072, 16), ring_gb(126, 8, 128, 131_072, 1)],
        [63.41787648, 0.0],
        "on 16 ranks each sends the keys and values of a sixteenth of the tokens 15 times: "
        "63.4 GB, and a rank that is alone sends nothing",
        "on 16 ranks each sends 63.4 GB",
    )
    t.equal(
        tokens_of_phase(800e9, 15.6e12),
        5,
        "800 billion of 15.6 trillion tokens are 5 percent",
        "the long-context phase read 5 % of all tokens",
    )


def check_3(t, learnt, may_read, pairs_read, row_positions):
    """36.3 A row of several documents"""
    t.equal(
        list(row_positions([2, 3], 6)),
        [0, 1, 0, 1, 2, 0],
        "documents of 2 and 3 tokens in a row of 6 have the positions 0 1 0 1 2 0: each begins "
        "at 0, and padding has 0",
        "every document begins at position 0",
    )
    mask = [[bool(x) for x in row] for row in may_read([2, 3], 6)]
    t(
        not any(mask[i][j] for i in range(6) for j in range(i + 1, 6)),
        "a token reads a later one: inside of a document the mask is causal",
        "no token reads a later one",
    )
    t(
        not any(mask[i][j] for i in range(2, 5) for j in range(2)),
        "the second document reads the first: the mask ends where the document does",
        "no document reads another",
    )
    t.equal(
        mask[5],
        [False] * 5 + [True],
        "padding reads itself and nothing else: a softmax over nothing has no value",
        "padding reads itself alone",
    )
    t.equal(
        [sum(row) for row in mask],
        [1, 2, 1, 2, 3, 1],
        "the tokens read 1 2 1 2 3 1 tokens: themselves, and all earlier ones of their document",
        "each token reads its document up to itself",
    )
    t.equal(
        list(learnt([2, 3], 6)),
        [0, 2, 3],
        "places 0, 2 and 3 have a target: the last token of a document is not asked for the first "
        "of the next, and padding is asked for nothing",
        "the last token of a document has no target",
    )
    t.equal(
        [pairs_read([256]), pairs_read([64] * 4)],
        [32_896, 8_320],
        "one document of 256 tokens has 256 x 257 / 2 = 32,896 pairs, four of 64 have 4 x 2,080",
        "four short documents have about a quarter of the pairs of a long one",
    )


def check_4(t, least_factor, ntk_needs, slowed, worst, *, SPEEDS, WANTED, scores, train_head):
    """36.4 Stretch a trained head"""
    weights = train_head(WANTED, SPEEDS)
    t.close(
        list(scores(weights, SPEEDS, 64)[[0, 16, 63]]),
        [1.0, math.exp(-1), math.exp(-63 / 16)],
        "at the distances 0, 16 and 63 the trained head scores 1, 0.368 and 0.019, as it was "
        "taught: the fit goes over the distances 0, 1, 2, ...",
        "within 64 the head does what it was taught",
        absolute=2e-3,
    )
    t.close(
        [list(slowed(np.array([1.0, 0.5, 0.2]), kind, 4)) for kind in ("none", "linear", "ntk")],
        [[1.0, 0.5, 0.2], [0.25, 0.125, 0.05], [1.0, 0.25, 0.05]],
        "speeds of 1, 0.5 and 0.2 become 0.25, 0.125, 0.05 with linear, and 1, 0.25, 0.05 with "
        "ntk, which multiplies pair j by 4 to the power -j/2",
        "linear slows all pairs, ntk the last one most",
    )
    t(
        worst(weights, SPEEDS, "none", 1, 64) > 2,
        "without scaling the scores beyond 64 are several times as large as any within: take the "
        "largest size from distance L on",
        "beyond 64 the untouched head runs wild",
    )
    t.close(
        worst(weights, SPEEDS, "linear", 4, 64),
        math.exp(-1),
        "divided by 4, distance 64 has the score that 16 had, 0.368, and none beyond is larger: "
        "only the speeds change, the weights stay",
        "divided by 4, distance 64 scores as 16 did",
        relative=5e-3,
    )
    factors = [16, 2, 4, 8, 1]
    t.equal(
        least_factor(weights, SPEEDS, "linear", factors, 64),
        4,
        "position interpolation needs 4 of these factors for 4 times the length: try them from "
        "the smallest on",
        "position interpolation needs a factor of 4",
    )
    t.equal(
        least_factor(weights, SPEEDS, "none", factors, 64),
        None,
        "without scaling no factor helps: then the answer is None",
        "where no factor is enough, that is said",
    )
    t.equal(
        ntk_needs(),
        "a larger factor",
        "your conclusion does not fit: compare least_factor for linear and for ntk",
        "NTK-aware scaling needs a larger factor, since the pairs in the middle are slowed by less",
    )
