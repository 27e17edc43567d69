"""Checks of exercises 34: Scaling laws."""

import math
import random


def check_1(t, growth, loss, optimum):
    """34.1 The best split of a budget"""
    pencil = {"E": 1.0, "A": 4.0, "B": 1.0, "alpha": 1.0, "beta": 1.0}
    printed = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
    t.close(
        loss(pencil, 20, 5),
        1.4,
        "1 + 4/20 + 1/5 is 1.4: the floor E and both terms belong to the loss",
        "the loss of the example is 1.4",
    )
    t.close(
        list(optimum(pencil, 600)),
        [20.0, 5.0],
        "for C = 600 the example has N D = 100, and N = 20, D = 5: mind the 6, and that A stands "
        "above B in G",
        "the best split of the example is 20 and 5",
        relative=1e-4,
    )
    N, D = optimum(printed, 5.76e23)
    t.close(
        6 * N * D,
        5.76e23,
        "6 N D must be the budget, no more and no less",
        "the whole budget is spent",
    )
    t.close(
        D / N,
        92.62,
        "the printed law of Chinchilla has 93 tokens for each parameter at 5.76e23: N grows with "
        "the power beta / (alpha + beta)",
        "the printed law wants 93 tokens for each parameter",
        relative=1e-3,
    )
    t.close(
        list(growth(printed, 100)),
        [100 ** (0.28 / 0.62), 100 ** (0.34 / 0.62)],
        "with 100 times the compute N grows by 100^(0.28/0.62) = 8.0 and D by 12.5; the two "
        "factors have the product 100",
        "100 times the compute is 8.0 times the model and 12.5 times the tokens",
    )


def check_2(t, deviation, fit_line, huber, interval):
    """34.2 A fit that one bad run does not spoil"""
    t.close(
        [huber(0.05, 0.1), huber(-0.1, 0.1), huber(-3.0, 0.1)],
        [0.00125, 0.005, 0.295],
        "with delta = 0.1, a residual of -3 counts 0.1 (3 - 0.05) = 0.295, and one of 0.05 counts "
        "0.05^2 / 2: the two pieces meet at delta",
        "small residuals count by their square, large ones by their size",
    )
    law = {"E": 1.0, "A": 4.0, "B": 1.0, "alpha": 1.0, "beta": 1.0}
    t.close(
        deviation(law, [(20, 5, 1.4), (20, 5, 1.4 * math.exp(0.05)), (4, 1, 3 * math.e)], 0.1),
        0.0 + 0.00125 + 0.095,
        "the residual is the difference of the logarithms: a run that is exp(0.05) above the law "
        "counts 0.05^2 / 2, one that is e times as high 0.1 (1 - 0.05)",
        "the deviation is one of logarithms",
    )
    t.close(
        list(fit_line([-2, -1, 0, 1, 2], [-2, -1, 7, 1, 2], 0.1)),
        [0.025, 1.0],
        "the bad point pulls with 0.1 and four good ones pull back, so the line is 0.025 + x; "
        "least squares would say 1.4 + x",
        "one bad run hardly moves the line",
        relative=1e-3,
        absolute=1e-5,
    )
    t.close(
        list(fit_line([0, 1, 2, 3], [5, 3, 1, -1], 0.1)),
        [5.0, -2.0],
        "points on the line 5 - 2 x must give that line",
        "points on a line give that line",
        relative=1e-3,
    )
    xs, ys = [0, 1, 2, 3, 4, 5], [0.0, 1.02, 1.95, 3.05, 3.9, 4.0]
    draws = random.Random(3)
    resamples = [[*draws.choices(range(5), k=4), 0, 5] for _ in range(80)]
    t.close(
        list(interval(xs, ys, 0.1, resamples)),
        [0.7616666667, 0.9779411765],
        "of 80 slopes int(0.025 * 80) = 2 go at each end, and the third lowest and the third "
        "highest are the interval",
        "the middle 95 % of the slopes are the interval",
        relative=1e-3,
    )


def check_3(t, decimals, factor, pinned, pinned_factor):
    """34.3 What a rounded exponent does"""
    t.close(
        [factor(0.01, 1e25), factor(-0.01, 1e25)],
        [10**0.25, 10**-0.25],
        "C^(alpha + e) is C^alpha times C^e: 0.01 at 1e25 is 10^0.25 = 1.78",
        "0.01 in the exponent is a factor of 1.78 at 1e25",
    )
    t.equal(
        [decimals(1e25, 0.05), decimals(1e25, 0.01), decimals(100, 20)],
        [3, 4, 0],
        "rounded to 3 decimals an exponent is off by 0.0005 at most, half a unit, which is 2.9 % "
        "at 1e25; so 3 decimals are enough for 5 %, and 4 for 1 %",
        "the decimals are right",
    )
    t.close(
        pinned(3.0, 0.5, 100),
        30.0,
        "at C = C0 the bracket is 1, so y0 is the law's own value there: 3 x 100^0.5 = 30",
        "y0 is the value at C0",
    )
    t.close(
        [pinned(0.29, 0.53, 3.8e25), pinned(0.299, 0.537, 3.8e25)],
        [1.04636524e13, 1.62935223e13],
        "0.29 C^0.53 is 10.5 trillion at 3.8e25, and 0.299 C^0.537 is 16.3 trillion",
        "the two readings of Llama 3's law are 10.5 and 16.3 trillion tokens",
    )
    t.close(
        [pinned_factor(0.01, 1e25, 1e21), pinned_factor(0.3, 7.0, 7.0)],
        [10**0.04, 1.0],
        "from 1e21 to 1e25 the same 0.01 is a factor of 10^0.04 = 1.10, and at C0 itself it "
        "changes nothing",
        "a pinned law forgives 0.01: a factor of 1.10",
    )


def check_4(t, fair_pairs, flop, two_parts):
    """34.4 A fair comparison"""
    published = {
        "GPT-3": (175e9, 300e9),
        "Gopher": (280e9, 300e9),
        "Chinchilla": (70e9, 1.4e12),
    }
    printed = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
    t.close(
        flop(70e9, 1.4e12) / flop(175e9, 300e9),
        1.8666666667,
        "Chinchilla was trained with 1.87 times the compute of GPT-3: both N and D count",
        "Chinchilla had 1.87 times the compute of GPT-3",
    )
    t.close(
        flop(20, 5),
        600,
        "the rule of six says 6 FLOPs for each parameter and token: 600 for 20 and 5",
        "the rule of six is kept",
    )
    t.equal(
        [list(pair) for pair in fair_pairs(published, 0.2)],
        [["Chinchilla", "Gopher"]],
        "within 20 % only Gopher (5.04e23) and Chinchilla (5.88e23) had the same compute, and each "
        "pair is named once, in the order of the alphabet",
        "Gopher and Chinchilla are the fair pair",
    )
    t.equal(
        len(fair_pairs(published, 0.9)),
        3,
        "with a tolerance of 90 % all three pairs count, whichever of the two had more compute",
        "the order of the two does not matter",
    )
    t.close(
        list(two_parts(printed, published["GPT-3"], published["Chinchilla"])),
        [0.0344850941, 0.0311573617],
        "by the printed law 70 billion parameters with GPT-3's compute, 750 billion tokens, gain "
        "0.034 nats, and the rest of the tokens 0.031: the split first, then compute",
        "a little more than half of the gain is the split's",
    )


def check_5(t, bare, conclusion, misses, with_floor, *, measured):
    """34.5 With a floor or without: change it and see"""
    t.close(
        list(bare([1, 16], [3.0, 1.5])),
        [3.0, 0.25],
        "3 at 1 and 1.5 at 16 lie on 3 / C^0.25: the slope on logarithms is -0.25, and alpha is "
        "minus the slope",
        "the straight line of the example is 3 / C^0.25",
    )
    bent = [1 + 2 / C**0.5 for C in (1, 4, 16, 64)]
    t.close(
        list(with_floor([1, 4, 16, 64], bent, [0.0, 0.5, 1.0, 1.5])),
        [1.0, 2.0, 0.5],
        "losses made from 1 + 2 / C^0.5 must give that law: take E off before the logarithm, and "
        "leave out floors that are not below every loss",
        "a floor of 1 is found",
    )
    floors = [i / 50 for i in range(50)]
    budgets, losses = measured(2, 10**5)
    t.close(
        list(with_floor(budgets, losses, floors)),
        [0.5, 3.0681084353, 0.2541073297],
        "of the candidates the one wins whose law is nearest to the logarithms of the whole "
        "losses, not of what lies above the floor",
        "the best candidate wins",
    )
    t.close(
        list(misses(range(4), 10**4, 10**7, floors)),
        [-0.5636867530, 0.0046857420],
        "the misses are predicted / true - 1 at the target, as means over the seeds, without and "
        "with a floor",
        "the straight line misses by 56 % at a thousand times the budget",
    )
    t.equal(
        conclusion(),
        "the straight line promises too low a loss",
        "your conclusion does not fit: the line goes on falling where the losses approach their "
        "floor, and the miss grows with the distance",
        "a straight line goes on below the floor",
    )
