"""Checks of exercises 07: Mixture and curation."""

import math


def check_1(t, counts, one_period, source_of):
    """07.1 Whose turn is it?"""
    t.equal(
        one_period([1, 2, 1]),
        [1, 0, 2, 1],
        "the weights 1, 2, 1 give the order 1, 0, 2, 1, as computed by hand: what is due at "
        "window n is w n / W, with n counted from 1",
        "the weights 1, 2, 1 give the order 1, 0, 2, 1",
    )
    t.equal(
        one_period([1, 1]),
        [0, 1],
        "two equal weights take turns, the first source first: of equal ones the first",
        "equal weights take turns",
    )
    t.equal(
        one_period([5, 3, 2]),
        [0, 1, 2, 0, 0, 1, 0, 2, 1, 0],
        "the weights 5, 3, 2 give 0 1 2 0 0 1 0 2 1 0: a source that has just had a window is "
        "behind by less, because what it has had counts against what is due",
        "the weights 5, 3, 2 mix their sources",
    )
    t.equal(
        [source_of([1, 2, 1], 0), source_of([1, 2, 1], 10**15 + 2)],
        [1, 2],
        "window 0 belongs to source 1, and window 10^15 + 2 to source 2, since 10^15 is a whole "
        "number of periods of 4: look the place up in the period, counted from 0",
        "any window can be looked up",
    )
    t.equal(
        [counts([1, 2, 1], 6), counts([5, 3, 2], 10**15 + 3)],
        [[2, 3, 1], [5 * 10**14 + 1, 3 * 10**14 + 1, 2 * 10**14 + 1]],
        "the first 6 windows of 1, 2, 1 are 1 0 2 1 1 0, so the counts are 2, 3, 1: whole periods "
        "times the weights, and what the rest of a period gives",
        "counts come from whole periods and a rest",
    )


def check_2(t, epochs, largest_share, read_too_often):
    """07.2 How often is it read?"""
    sizes = {"web": 2_000, "books": 100, "code": 300}
    found = epochs(1_000, {"web": 0.5, "books": 0.5}, sizes)
    t.equal(
        sorted(found),
        ["books", "web"],
        "epochs are wanted of the sources in the mixture alone: code has no share here",
        "each source of the mixture has its epochs",
    )
    t.close(
        [found["web"], found["books"]],
        [0.25, 5.0],
        "half of 1,000 tokens is a quarter of 2,000 and five times 100: share times the tokens of "
        "the run, divided by the tokens of the source",
        "a source of 100 tokens is read five times",
    )
    t.close(
        [largest_share(1_000, 100, 4), largest_share(1_000, 2_000, 4)],
        [0.4, 1.0],
        "a source of 100 tokens can give 0.4 of 1,000 tokens in four epochs, and a source of 2,000 "
        "could give more than the whole run: its share is 1",
        "four epochs of 100 tokens are 0.4 of 1,000",
    )
    shares = {"web": 0.3, "code": 0.3, "books": 0.4}
    t.equal(
        read_too_often(1_000, shares, sizes, 1),
        ["books"],
        "books are read four times and code exactly once: once is not more than once",
        "what is read exactly as often as allowed is not read too often",
    )
    t.equal(
        read_too_often(1_000, shares, sizes, 0.1),
        ["books", "code", "web"],
        "all three are read more than 0.1 times: give their names in alphabetical order",
        "names come in alphabetical order",
    )


def check_3(t, best_share, fit, predict, when_addresses_count_more):
    """07.3 A law for two sources"""
    t.close(
        list(fit([0.0, 0.5, 1.0], [3.0, 2.0, 1.5], 1.0)),
        [2.0, -2 * math.log(2)],
        "losses of 3, 2, 1.5 above a floor of 1 give k = 2 and t = -1.386: take the logarithm of "
        "what the loss is above the floor, and the slope of the line",
        "losses that halve their distance to the floor give k = 2, t = -2 ln 2",
    )
    t.close(
        list(fit([0.2, 0.4, 0.9], [1.3, 1.25, 1.1], 1.0)),
        [0.4400239091, -1.6200490761],
        "shares that are not spread evenly give another line: both sums are over the distances "
        "from the mean share",
        "uneven shares are fitted, too",
    )
    t.close(
        [predict((1.0, 2.0, -1.0), 0.0), predict((1.0, 2.0, -1.0), 1.0)],
        [3.0, 1.7357588823],
        "the law (1, 2, -1) says 3 at share 0 and 1 + 2/e at share 1: c + k exp(t r)",
        "a law predicts the loss at any share",
    )
    code_and_addresses = [(3.0, 1.6, -3.0), (3.8, 0.1, 2.2)]
    t.equal(
        best_share(code_and_addresses, [1, 1]),
        0.593,
        "with equal weights the sum is smallest at 0.593: add the weighted losses on both "
        "sources at each thousandth, and take the share of A",
        "equal weights ask for 0.593 of code",
    )
    t.equal(
        best_share([(2.0, 1.0, -0.5), (2.0, 1.0, 0.1)], [1, 1]),
        1.0,
        "where the sum falls all the way, the best share is 1: the last thousandth belongs to "
        "the search",
        "the best share can be 1",
    )
    t.equal(
        best_share([(2.0, 0.5, 0.0), (3.0, 0.5, 0.0)], [1, 2]),
        0.0,
        "where all shares are equally good, take the smallest",
        "of equal sums the smallest share",
    )
    t.equal(
        when_addresses_count_more(),
        "it falls",
        "your conclusion does not fit: the best share of code is 0.593 for the weights (1, 1), "
        "and 0.382 for (1, 3)",
        "if addresses count more, less code is best",
    )


def check_4(t, largest_gap, verdict, z_scores):
    """07.4 Is this loader honest?"""
    order = ["code"] * 30 + ["prose"] * 70
    found = z_scores(order, {"code": 0.2, "prose": 0.8})
    t.close(
        [found["code"], found["prose"]],
        [2.5, -2.5],
        "30 windows where 20 are due lie 10 / 4 = 2.5 standard deviations above, and the 70 of "
        "the other source 2.5 below: the standard deviation is the root of n r (1 - r), and the "
        "sign says whether there were too many",
        "30 of 100 at a share of 0.2 have a z-score of 2.5",
    )
    t.close(
        z_scores(order, {"code": 0.2, "prose": 0.7, "poems": 0.1})["poems"],
        -10 / 3,
        "no poem was delivered where 10 were due: the count is 0, and z is -3.33",
        "a source that never came has a count of 0",
    )
    t.close(
        [
            largest_gap(["a", "b", "a", "b"], {"a": 0.5, "b": 0.5}),
            largest_gap(["a", "a", "b", "b"], {"a": 0.5, "b": 0.5}),
        ],
        [0.5, 1.0],
        "a, b, a, b is off by 0.5 after the first window, and a, a, b, b by 1 after the second: "
        "look after every window, not at the end alone",
        "gaps are looked for after every window",
    )
    shares = {"a": 0.5, "b": 0.5}
    draws = list("aaabbb") * 50
    t.equal(
        [verdict(["a", "b"] * 50, shares), verdict(draws, shares)],
        ["exact", "by chance"],
        "taking turns is exact, and an order with gaps above 1 whose counts fit is by chance",
        "exact shares and chance are told apart",
    )
    t.equal(
        verdict(["a"] * 275 + ["b"] * 225, {"a": 0.4, "b": 0.6}),
        "biased",
        "275 of 500 at a share of 0.4 lie 6.8 standard deviations from the mean: biased",
        "a count that chance does not explain is biased",
    )
    t.equal(
        verdict(["a"] * 225 + ["b"] * 275, {"a": 0.6, "b": 0.4}),
        "biased",
        "too few windows are as suspicious as too many: a z-score of -6.8 is beyond 4 in size",
        "too few are as suspicious as too many",
    )
    t.equal(
        verdict(["a", "b", "spam"], shares),
        "biased",
        "a source without a share was delivered: that is no honest loader",
        "a source that was not asked for is noticed",
    )
