"""Hidden tests of the exercises of chapter 03."""

import math
from itertools import combinations, combinations_with_replacement

import numpy as np
import torch


def turned(rng, eigenvalues):
    """Return a symmetric matrix with these eigenvalues, turned at random."""
    seeded = torch.Generator().manual_seed(rng.randrange(2**31))
    size = len(eigenvalues)
    turn = torch.linalg.qr(torch.randn(size, size, generator=seeded, dtype=torch.float64))[0]
    matrix = turn @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ turn.T
    return (matrix + matrix.T) / 2


def check_1(t, call, rng):
    """Valleys of every scale, turned at random: steep, stretched, with flat directions, saddles."""
    for size, num_flat in ((1, 0), (2, 0), (4, 0), (9, 0), (2, 1), (6, 2), (12, 5)):
        scale = 10 ** rng.uniform(-4, 4)
        curved = [scale * 10 ** rng.uniform(-5, 0) for _ in range(size - num_flat)]
        values = curved + [0.0] * num_flat
        rng.shuffle(values)
        right = (2 / max(curved), 2 / (min(curved) + max(curved)))
        answer = call("learning_rates", turned(rng, values))
        t.close(answer, right, f"the rates for the curvatures {sorted(values)}", relative=1e-7)
    axes = torch.diag(torch.tensor([3.0, 0.5, 0.0], dtype=torch.float64))
    t.close(call("learning_rates", axes), (2 / 3, 4 / 7), "a valley along the axes", relative=1e-9)
    for size, downwards in ((2, 0.5), (3, 1e-4), (5, 3.0)):
        values = [rng.uniform(0.1, 1) for _ in range(size - 1)]
        values.append(-downwards * max(values))
        answer = call("learning_rates", turned(rng, values))
        t.equal(answer, None, f"the eigenvalues {values}, one of them below 0")


def counted(curvatures, rate):
    """Return the number of steps, by halving; None where rounding could decide."""
    sizes = [abs(1 - rate * curvature) for curvature in curvatures]
    if max(sizes) >= 1:
        return math.inf
    low, high = 0, 1
    while max(sizes) ** high > 1e-3:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if max(sizes) ** middle > 1e-3 else (low, middle)
    edges = [abs(max(sizes) ** steps / 1e-3 - 1) for steps in (low, high)]
    return high if min(edges) > 1e-9 else None


def check_2(t, call, rng):
    """The gentlest, the steepest or one between decides; few steps and many."""
    cases = []
    for times_critical in (1e-5, 0.03, 0.4, 0.6, 0.97, 0.9999, 1.01, 3.0):
        curvatures = [10 ** rng.uniform(-2, 2) for _ in range(rng.randrange(1, 6))]
        cases.append((curvatures, times_critical * 2 / max(curvatures)))
    cases += [([7.0], rate / 7) for rate in (0.3, 0.9, 0.9999, 1.3, 1.9, 1.9999)]
    cases += [([2.0, 50.0, 9.0], 0.0385), ([1.0, 1000.0], 2 / 1001), ([9.0, 1.0], 1 / 9)]
    for curvatures, rate in cases:
        right = counted(curvatures, rate)
        if right is not None:
            answer = call("steps_to_thousandth", curvatures, rate)
            t.equal(answer, right, f"steps for the curvatures {curvatures} at {rate}")
    for rate, right in ((0.125, 1), (0.25, math.inf), (0.5, math.inf)):
        answer = call("steps_to_thousandth", [8.0], rate)
        t.equal(answer, right, f"steps for the curvature 8 at {rate}")


def check_3(t, call, rng):
    """Epochs with a shorter batch, all batches, careless loaders, repeated windows."""
    for num_windows, num_weights in ((3, 1), (5, 4), (7, 2)):
        rows = [[rng.gauss(1, 3) for _ in range(num_weights)] for _ in range(num_windows)]
        order = rng.sample(range(num_windows), num_windows)
        windows = range(num_windows)
        loaders = {
            "an epoch with a shorter batch": [order[i : i + 2] for i in range(0, num_windows, 2)],
            "all batches of 2 different windows": list(map(list, combinations(windows, 2))),
            "batches with repeats": list(map(list, combinations_with_replacement(windows, 3))),
            "without the first window": [[i, j, i] for i in windows[1:] for j in windows[1:]],
            "one batch": [order[:2]],
        }
        for name, batches in loaders.items():
            table = np.array(rows)
            means = [sum(table[i] for i in batch) / len(batch) for batch in batches]
            errors = np.array(means) - table.mean(0)
            answer = call("bias_and_error", torch.tensor(rows, dtype=torch.float64), batches)
            right = (torch.from_numpy(errors.mean(0)), float((errors**2).sum() / len(batches)))
            case = f"{name}, {num_windows} windows"
            t.close(answer, right, case, relative=1e-9, absolute=1e-12)


def rolled(curvatures, rate, momentum):
    """Return the steps of a ball, by matrices: (x, v) of a direction, times one matrix a step."""
    matrices = [np.array([[1 - rate * c, -rate * momentum], [c, momentum]]) for c in curvatures]
    states = [np.array([1.0, 0.0]) for _ in curvatures]
    with np.errstate(all="ignore"):
        for step in range(1, 2001):
            states = [m @ s for m, s in zip(matrices, states, strict=True)]
            if all(abs(s[0]) < 0.001 for s in states):
                return step
    return math.inf


def check_4(t, call, rng):
    """Bowls of one to three directions, rates below and above the limit, and races."""
    for momentum in (0.0, 0.5, 0.9, 0.0, 0.8):
        curvatures = [10 ** rng.uniform(-0.7, 1.5) for _ in range(rng.randrange(1, 4))]
        for share in (0.03, 0.5, 0.9, 1.3):
            rate = share * 2 / max(curvatures)
            right = rolled(curvatures, rate, momentum)
            answer = call("steps_to_rest", curvatures, rate, momentum)
            t.equal(answer, right, f"{curvatures} at {rate} with momentum {momentum}")
    for momentum, bowl in ((0.0, [1.0, 30.0]), (0.9, [1.0, 30.0]), (0.5, [2.0, 3.0])):
        rates = [0.002 * 1.6**k for k in range(14)]
        rng.shuffle(rates)
        steps = {rate: rolled(bowl, rate, momentum) for rate in rates}
        best = min(sorted(rates), key=steps.get)
        answer = call("best_rate", bowl, momentum, rates)
        t.equal(tuple(answer), (best, steps[best]), f"the best of 14 rates on {bowl}, {momentum}")
    t.equal(tuple(call("best_rate", [1.0], 0.0, [1.0005, 1.0, 0.9995])), (0.9995, 1), "equals")
    t.equal(list(call("conclusions")), ["plain", "momentum", "smaller"], "conclusions")
