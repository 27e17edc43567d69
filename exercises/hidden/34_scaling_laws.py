"""Hidden tests of the exercises of chapter 34."""

import math
import random


def check_1(t, call, rng):
    """Laws of many kinds, at budgets of many sizes."""
    for _ in range(8):
        law = {"E": rng.uniform(0.3, 2), "A": 10 ** rng.uniform(0, 3), "B": 10 ** rng.uniform(0, 3)}
        a, b = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8)
        law |= {"alpha": a, "beta": b}
        flop, many, long = (10 ** rng.uniform(*x) for x in ((12, 26), (3, 11), (4, 13)))
        case = f"{law}, C = {flop}"
        right = law["E"] + law["A"] / many**a + law["B"] / long**b
        t.close(call("loss", law, many, long), right, f"{law}, {many}, {long}", relative=1e-9)
        best = (a * law["A"] / (b * law["B"]) * (flop / 6) ** b) ** (1 / (a + b))
        found = list(call("optimum", law, flop))
        t.close(found, [best, flop / 6 / best], case, relative=1e-3)
        factor = rng.choice([2, 10, 1_000])
        right = [factor ** (b / (a + b)), factor ** (a / (a + b))]
        t.close(list(call("growth", law, factor)), right, f"{law}, {factor}", relative=1e-6)


def check_2(t, call, rng):
    """Lines with one bad point, laws with bad runs, and resamples."""

    def huber(r, delta):
        return r * r / 2 if abs(r) <= delta else delta * (abs(r) - delta / 2)

    def fit(points, delta):
        weights = [1.0] * len(points)
        for _ in range(150):
            total = sum(weights)
            triples = [(w, x, y) for w, (x, y) in zip(weights, points, strict=True)]
            mx, my = (
                sum(w * x for w, x, _ in triples) / total,
                sum(w * y for w, _, y in triples) / total,
            )
            top = sum(w * (x - mx) * (y - my) for w, x, y in triples)
            b = top / sum(w * (x - mx) ** 2 for w, x, _ in triples)
            a = my - b * mx
            weights = [delta / max(delta, abs(a + b * x - y)) for x, y in points]
        return a, b

    for _ in range(4):
        delta = rng.choice([0.05, 0.1, 0.5])
        r = rng.choice([0.3, 0.9, 1.5, -4]) * delta
        t.close(call("huber", r, delta), huber(r, delta), f"r = {r}, delta = {delta}")
        law = {"E": rng.uniform(0.3, 2), "A": rng.uniform(1, 400), "B": rng.uniform(1, 400)}
        law |= {"alpha": rng.uniform(0.2, 0.6), "beta": rng.uniform(0.2, 0.6)}
        runs, right = [], 0.0
        for _ in range(6):
            many, long = 10 ** rng.uniform(3, 9), 10 ** rng.uniform(4, 10)
            off = rng.choice([0.2, 0.7, 3]) * delta * rng.choice([-1, 1])
            predicted = law["E"] + law["A"] / many ** law["alpha"] + law["B"] / long ** law["beta"]
            runs.append([many, long, predicted * math.exp(off)])
            right += huber(off, delta)
        t.close(call("deviation", law, runs, delta), right, f"{law}, {runs}, delta {delta}")
        slope, up = rng.uniform(-2, 2), rng.uniform(-3, 3)
        points = [(x, up + slope * x + rng.gauss(0, delta / 4)) for x in range(8)]
        points[rng.randrange(8)] = (3.5, up + slope * 3.5 + rng.choice([-1, 1]) * 20 * delta)
        points.append((9.0, up + slope * 9 + 15 * delta))
        xs, ys = [x for x, _ in points], [y for _, y in points]
        case = f"x {xs}, y {ys}, delta {delta}"
        near = {"relative": 2e-3, "absolute": 2e-3 * delta}
        t.close(list(call("fit_line", xs, ys, delta)), list(fit(points, delta)), case, **near)
    xs = [float(x) for x in range(9)]
    ys = [0.1 * x + rng.gauss(0, 0.03) for x in xs]
    xs, ys = [*xs, rng.uniform(1, 7)], [*ys, rng.choice([-3.0, 3.0])]
    chosen = [[0, 8, 9, *rng.choices(range(9), k=7)] for _ in range(80)]
    slopes = sorted(fit([(xs[i], ys[i]) for i in each], 0.1)[1] for each in chosen)
    found = list(call("interval", xs, ys, 0.1, chosen))
    case = f"x {xs}, y {ys}, delta 0.1, 80 resamples"
    t.close(found, [slopes[2], slopes[-3]], case, relative=0.0, absolute=1e-4)


def check_3(t, call, rng):
    """Laws, budgets and tolerances."""
    for _ in range(8):
        a, alpha, flop = rng.uniform(0.1, 3), rng.uniform(-0.5, 0.8), 10 ** rng.uniform(3, 27)
        off, pin = rng.uniform(-0.05, 0.05), flop * 10 ** rng.uniform(-8, -1)
        t.close(call("factor", off, flop), flop**off, f"e = {off}, C = {flop}")
        t.close(call("pinned", a, alpha, pin), a * pin**alpha, f"{a}, {alpha}, {pin}")
        right = (flop / pin) ** off
        t.close(call("pinned_factor", off, flop, pin), right, f"{off}, {flop}, {pin}")
        tolerance, right = rng.uniform(0.001, 0.3), 0
        while flop ** (0.5 / 10**right) > 1 + tolerance:
            right += 1
        t.equal(call("decimals", flop, tolerance), right, f"C = {flop}, tolerance {tolerance}")
    t.equal(call("decimals", 1e25, 0.05), 3, "C = 1e25, tolerance 0.05")


def check_4(t, call, rng):
    """Models of many sizes."""

    def loss(law, many, long):
        return law["E"] + law["A"] / many ** law["alpha"] + law["B"] / long ** law["beta"]

    for _ in range(6):
        models = {}
        for name in rng.sample("ABCDEFGH", 5):
            many = 10 ** rng.uniform(8, 12)
            models[name] = [many, 10 ** rng.uniform(21, 22) / many]
        tolerance = rng.choice([0.1, 0.5, 1.0, 3.0])
        flops, right = {name: many * long for name, (many, long) in models.items()}, []
        for one in sorted(models):
            for other in sorted(models):
                ratio = flops[one] / flops[other]
                if one < other and max(ratio, 1 / ratio) <= 1 + tolerance:
                    right.append([one, other])
        found = [list(pair) for pair in call("fair_pairs", models, tolerance)]
        t.equal(found, right, f"{models}, tolerance {tolerance}")
        many, long = models[min(models)]
        t.close(call("flop", many, long), 6 * many * long, f"{many}, {long}")
        law = {"E": rng.uniform(1, 2), "A": rng.uniform(200, 600), "B": rng.uniform(200, 3_000)}
        law |= {"alpha": rng.uniform(0.3, 0.4), "beta": rng.uniform(0.25, 0.4)}
        old, new = (models[name] for name in sorted(models)[:2])
        between = loss(law, new[0], old[0] * old[1] / new[0])
        right = [loss(law, *old) - between, between - loss(law, *new)]
        found = list(call("two_parts", law, old, new))
        t.close(found, right, f"{law}, {old}, {new}", relative=1e-6, absolute=1e-9)


def check_5(t, call, rng):
    """Laws with and without noise, candidates, and means over seeds."""

    def line(budgets, losses):
        xs, ys = [math.log(x) for x in budgets], [math.log(y) for y in losses]
        mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
        top = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True))
        slope = top / sum((x - mx) ** 2 for x in xs)
        return math.exp(my - slope * mx), -slope

    def floored(budgets, losses, floors):
        found = []
        for floor in floors:
            if floor < min(losses):
                a, alpha = line(budgets, [y - floor for y in losses])
                predicted = [floor + a / x**alpha for x in budgets]
                pairs = zip(predicted, losses, strict=True)
                squares = sum((math.log(p) - math.log(y)) ** 2 for p, y in pairs)
                found.append((squares, floor, a, alpha))
        return min(found)[1:]

    def measured(seed, last):
        draws = random.Random(seed)
        budgets = [10**k for k in range(round(math.log10(last)) + 1)]
        noise = [math.exp(draws.gauss(0, 0.01)) for _ in budgets]
        return budgets, [(0.5 + 3 * x**-0.25) * n for x, n in zip(budgets, noise, strict=True)]

    floors = [i / 25 for i in range(40)]
    for _ in range(5):
        budgets, losses = measured(rng.randrange(10**6), 10 ** rng.randrange(3, 7))
        case = f"{budgets}, {losses}"
        t.close(list(call("bare", budgets, losses)), list(line(budgets, losses)), case)
        right = list(floored(budgets, losses, floors))
        t.close(list(call("with_floor", budgets, losses, floors)), right, case)
    budgets, losses = measured(2, 10**5)
    right = list(floored(budgets, losses, [i / 50 for i in range(40)]))
    found = list(call("with_floor", budgets, losses, [i / 50 for i in range(40)]))
    t.close(found, right, f"{budgets}, {losses}")
    first, last = rng.randrange(1_000), 10 ** rng.randrange(3, 6)
    seeds, target, parts = [first, first + 1, first + 2], last * rng.choice([100, 1_000]), []
    for seed in seeds:
        budgets, losses = measured(seed, last)
        true = 0.5 + 3 / target**0.25
        a, alpha = line(budgets, losses)
        floor, above, power = floored(budgets, losses, floors)
        parts.append([a / target**alpha / true - 1, (floor + above / target**power) / true - 1])
    right = [sum(each) / len(parts) for each in zip(*parts, strict=True)]
    case = f"seeds {seeds}, last {last}, target {target}"
    found = list(call("misses", seeds, last, target, floors))
    t.close(found, right, case, relative=1e-6, absolute=1e-9)
    t.equal(call("conclusion"), "the straight line promises too low a loss", "the conclusion")
