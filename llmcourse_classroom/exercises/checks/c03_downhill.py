"""Checks of exercises 03: walking downhill."""

import math
from itertools import combinations, product

import torch


def check_1(t, learning_rates):
    """03.1 Learning rates from a Hessian"""
    three = torch.tensor([[4, 2, 0], [2, 4, 2], [0, 2, 4]], dtype=torch.float64)
    critical, best = learning_rates(three)
    t(
        abs(critical - 0.5) > 1e-6,
        "you read the diagonal: its entries are curvatures only if the valley lies along the "
        "axes. The curvatures are the eigenvalues",
        "the diagonal is not taken for the curvatures",
    )
    t(
        abs(critical - 0.1464466) > 1e-6,
        "you took 1/λmax, which brings the steepest direction to the minimum in one step; up to "
        "twice that rate it still comes to rest, on a zig-zag",
        "between 1/λmax and 2/λmax the weights still come to rest",
    )
    t.close(
        critical,
        0.2928932188134524,
        "the critical rate is 2/λmax with λmax = 4 + 2√2 = 6.83: sums of rows or of the diagonal "
        "are larger, and only bound it",
        "the critical rate is 2/(4 + 2√2) = 0.2929",
    )
    t.close(
        best,
        0.25,
        "the best rate makes the slowest of all directions as fast as it can be. There the "
        "gentlest and the steepest are equally slow: 2/(λmin + λmax) = 0.25",
        "the best rate is 0.25",
    )
    sheet = torch.tensor([[1, -1, 0], [-1, 2, -1], [0, -1, 1]], dtype=torch.float64)
    t.close(
        learning_rates(sheet),
        (2 / 3, 0.5),
        "you counted a flat direction as the gentlest: nothing moves along it. The curvatures of "
        "this one are 0, 1 and 3, so the best rate is 2/(1 + 3)",
        "a flat direction is left out",
    )
    t.equal(
        learning_rates(torch.tensor([[1, 2], [2, 1]], dtype=torch.float64)),
        None,
        "this Hessian has the eigenvalue −1: along that direction the landscape curves downwards "
        "and every learning rate leads away",
        "on a saddle no rate converges",
    )


def check_2(t, steps_to_thousandth):
    """03.2 Steps to a thousandth"""
    t(
        steps_to_thousandth([10], 0.15) != math.inf,
        "you took a zig-zag for running away: a factor of −0.5 shrinks as fast as 0.5",
        "a zig-zag arrives",
    )
    t.equal(
        [steps_to_thousandth([1, 100], 2 / 101), steps_to_thousandth([10], 0.15)],
        [346, 10],
        "you rounded down: after 345 steps the coordinates are still above a thousandth. Round up",
        "with a condition number of 100 and the best rate it takes 346 steps",
    )
    t.equal(
        steps_to_thousandth([1, 10], 0.05),
        135,
        "you counted for the steepest direction alone, which needs 10 steps: the gentle one is "
        "multiplied by 0.95 and needs 135",
        "all directions have to arrive, and the slowest decides",
    )
    t.equal(
        steps_to_thousandth([1, 10], 0.199),
        688,
        "you counted for the gentlest direction alone: close to the critical rate the steep one "
        "is the slowest, with a factor of −0.99",
        "close to the critical rate the steepest direction is the slowest",
    )
    t.equal(
        steps_to_thousandth([8, 8], 0.125),
        1,
        "a factor of 0 arrives in one step: not in none, and it needs no logarithm",
        "with the rate 1/λ the minimum is one step away",
    )
    t.equal(
        [steps_to_thousandth([10], 0.2), steps_to_thousandth([1, 10], 0.21)],
        [math.inf, math.inf],
        "from 2/λmax on the steepest direction never arrives, and the number of steps is infinite",
        "at the critical rate and above it never arrives",
    )


def check_3(t, bias_and_error):
    """03.3 The bias of a loader, exactly"""
    rows = torch.tensor([[1, 0], [3, 2], [-2, 4], [6, -2], [7, 11]], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)
    thirds = [list(batch) for batch in product(range(5), repeat=3)]
    careless = [list(batch) for batch in combinations(range(4), 2)]
    t.close(
        bias_and_error(rows, [[i, j] for i in range(5) for j in range(5)])[0],
        zero,
        "you added within a batch: its gradient is the mean over its windows",
        "all 25 pairs together: a random batch is unbiased",
        absolute=1e-12,
    )
    t.close(
        bias_and_error(rows, [[0, 1], [2, 3], [4]])[0],
        torch.tensor([2 / 3, 4 / 3], dtype=torch.float64),
        "you pooled the windows of all batches: the optimizer gets one mean for each batch, so "
        "the window in the last, shorter batch has twice the weight of the others",
        "an epoch with one shorter batch is biased: the mean of the means is not the mean",
    )
    bias, error = bias_and_error(rows, careless)
    t.close(
        bias,
        torch.tensor([-1, -2], dtype=torch.float64),
        "you compared with the windows that the loader draws: it never draws the last one, and "
        "the bias is the distance to the mean over all",
        "a loader that never draws the last window is biased, whatever the batch size",
    )
    t(
        abs(error - 5) > 1e-9,
        "you averaged before you squared: errors in opposite directions then cancel, and what "
        "is left is the square of the bias",
        "errors are squared before they are averaged",
    )
    t.close(
        error,
        9.5,
        "the squared error is the distance to g, not to the mean of the loader's own gradients: "
        "the bias is part of it. Add the squares of all entries",
        "the squared error of the careless loader is its variance and its squared bias, 4.5 + 5",
    )
    t.close(
        bias_and_error(rows, thirds)[1],
        30.8 / 3,
        "you dropped repeated windows: in the batch (0, 0, 1) window 0 counts twice",
        "batches of 3 have a third of the squared error of single windows",
    )


def check_4(t, RATES, best_rate, conclusions, steps_to_rest):
    """03.4 Change something and see: race your own rate"""
    t.equal(
        steps_to_rest([1.0], 1.0, 0.0),
        1,
        "with curvature 1 and rate 1 the first step reaches the minimum, and steps are counted "
        "from 1",
        "the first step is number 1",
    )
    t.equal(
        steps_to_rest([1.0], 0.5, 0.5),
        2,
        "with momentum 0.5 the speed is 1, then 0.5 + 0.5 = 1: the gradient is added whole, so "
        "x is 0.5, then 0",
        "half of the speed is kept, and the gradient is added whole",
    )
    t.equal(
        steps_to_rest([8.0, 1.0], 0.2, 0.0),
        31,
        "the ball has to be close in every direction: the steep one is there after 14 steps, the "
        "flat one after 31",
        "the flat direction decides how long it takes",
    )
    t.equal(
        steps_to_rest([1.0, 8.0], 0.3, 0.0),
        math.inf,
        "at 0.3 the direction of curvature 8 runs away, whatever the other one does",
        "above the limit of the steep direction the ball never rests",
    )
    t.equal(
        best_rate([1.0, 8.0], 0.0, [0.24, 0.05, 0.22, 0.3, 0.2]),
        (0.22, 28),
        "of these rates 0.22 is the fastest, with 28 steps: the highest that comes to rest, 0.24, "
        "needs 83, since the steep direction then swings to and fro",
        "the best rate is below the highest that comes to rest",
    )
    raced = {
        (name, momentum): best_rate(bowl, momentum, RATES)
        for name, bowl in (("round", [1.0, 2.0]), ("stretched", [1.0, 100.0]))
        for momentum in (0.0, 0.9)
    }
    words = [
        "plain" if raced[name, 0.0][1] < raced[name, 0.9][1] else "momentum"
        for name in ("round", "stretched")
    ]
    higher = raced["round", 0.9][0] > raced["round", 0.0][0]
    told = list(conclusions())
    t.equal(
        told[:2],
        words,
        "your races say otherwise: compare the steps at the best rate of each. A momentum of 0.9 "
        "swings on a round bowl, and pays on a stretched one",
        "momentum pays where the bowl is stretched",
    )
    t.equal(
        told[2:],
        ["larger" if higher else "smaller"],
        "compare the two best rates on the round bowl that your races found: what is kept adds up",
        "and the best rates are compared, too",
    )
