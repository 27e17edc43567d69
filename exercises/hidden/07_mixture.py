"""Hidden tests of the exercises of chapter 07."""

import math


def check_1(t, call, rng):
    """Orders of many weights, any window, and counts."""
    for _ in range(8):
        weights = [rng.randrange(1, 12) for _ in range(rng.randrange(1, 5))]
        total, given, right = sum(weights), [0] * len(weights), []
        for n in range(1, total + 1):
            behind = [w * n - c * total for w, c in zip(weights, given, strict=True)]
            chosen = behind.index(max(behind))
            given[chosen] += 1
            right.append(chosen)
        t.equal(list(call("one_period", weights)), right, f"weights {weights}")
        window = rng.randrange(10**12)
        source = right[window % total]
        t.equal(call("source_of", weights, window), source, f"weights {weights}, window {window}")
        periods, rest = divmod(window, total)
        wanted = [periods * w + right[:rest].count(i) for i, w in enumerate(weights)]
        t.equal(list(call("counts", weights, window)), wanted, f"{weights}, {window} windows")


def check_2(t, call, rng):
    """Mixtures of many sizes."""
    for _ in range(6):
        names = rng.sample(["web", "books", "code", "maths", "talk"], rng.randrange(2, 5))
        sizes = {name: rng.randrange(1_000, 10**7) for name in [*names, "unused"]}
        parts = [rng.random() for _ in names]
        shares = {name: p / sum(parts) for name, p in zip(names, parts, strict=True)}
        run = rng.randrange(10**5, 10**8)
        case = f"a run of {run}, {shares}, {sizes}"
        right = {name: shares[name] * run / sizes[name] for name in names}
        found = call("epochs", run, shares, sizes)
        t.equal(sorted(found), sorted(right), case)
        t.close([found[n] for n in names], [right[n] for n in names], case, relative=1e-9)
        limit = rng.uniform(0.2, 6)
        wanted = sorted(name for name in names if right[name] > limit)
        t.equal(list(call("read_too_often", run, shares, sizes, limit)), wanted, case)
        size = sizes[names[0]]
        exactly = call("read_too_often", 1_000, {"x": 0.5, "y": 0.5}, {"x": 500, "y": 250}, 1)
        t.equal(list(exactly), ["y"], "once is not more than once")
        t.close(
            call("largest_share", run, size, limit),
            min(1.0, limit * size / run),
            f"{case}, at most {limit} epochs",
            relative=1e-9,
        )


def check_3(t, call, rng):
    """Laws that are known, noise, and best shares."""
    for _ in range(6):
        c, k, slope = rng.uniform(0, 3), rng.uniform(0.1, 2), rng.uniform(-4, 4)
        shares = [rng.random() for _ in range(rng.randrange(2, 7))]
        noise = [rng.uniform(0.9, 1.1) for _ in shares]
        losses = [c + k * math.exp(slope * r) * e for r, e in zip(shares, noise, strict=True)]
        logs = [math.log(loss - c) for loss in losses]
        mean_r, mean_y = sum(shares) / len(shares), sum(logs) / len(logs)
        pairs = list(zip(shares, logs, strict=True))
        t_right = sum((r - mean_r) * (y - mean_y) for r, y in pairs)
        t_right /= sum((r - mean_r) ** 2 for r in shares)
        right = [math.exp(mean_y - t_right * mean_r), t_right]
        case = f"shares {shares}, losses {losses}, floor {c}"
        t.close(list(call("fit", shares, losses, c)), right, case, relative=1e-6)
        r = rng.random()
        wanted = c + k * math.exp(slope * r)
        t.close(call("predict", (c, k, slope), r), wanted, f"law {(c, k, slope)}, {r}")
        laws = [
            (rng.uniform(0, 3), rng.uniform(0.2, 2), -rng.uniform(1, 4)),
            (rng.uniform(0, 3), rng.uniform(0.2, 2), rng.uniform(1, 4)),
        ]
        weights = [rng.uniform(0.2, 3), rng.uniform(0.2, 3)]

        def total(n, laws=laws, weights=weights):
            pairs = zip(weights, laws, strict=True)
            return sum(w * (c + k * math.exp(s * n / 1_000)) for w, (c, k, s) in pairs)

        found = call("best_share", laws, weights)
        best = min(map(total, range(1_001)))
        t.close(total(found * 1_000), best, f"laws {laws}, weights {weights}", relative=1e-9)
    falling = [(rng.uniform(1, 2), 1.0, -1.0), (2.0, 0.5, -0.5)]
    t.equal(call("best_share", falling, [1, rng.uniform(0.5, 2)]), 1.0, "both losses fall")
    flat = [(rng.uniform(1, 2), 0.5, 0.0), (2.0, 0.25, 0.0)]
    t.equal(call("best_share", flat, [1, 2]), 0.0, "no loss changes")
    t.equal(call("when_addresses_count_more"), "it falls", "the conclusion")


def check_4(t, call, rng):
    """Orders by turns, by chance and by a biased hand."""
    for _ in range(4):
        r = rng.choice([0.2, 0.25, 0.5])
        shares = {"x": r, "y": 1 - r}
        n = rng.randrange(200, 500)
        chance = ["x" if rng.random() < r else "y" for _ in range(n)]
        right = {}
        for name, share in shares.items():
            right[name] = (chance.count(name) - n * share) / math.sqrt(n * share * (1 - share))
        found = call("z_scores", chance, shares)
        case = f"{n} windows, shares {shares}"
        t.close([found["x"], found["y"]], [right["x"], right["y"]], case, relative=1e-6)
        gap, had = 0.0, {"x": 0, "y": 0}
        for place, name in enumerate(chance, 1):
            had[name] += 1
            gap = max(gap, *(abs(had[each] - s * place) for each, s in shares.items()))
        t.close(call("largest_gap", chance, shares), gap, case, relative=1e-6)
        by_turns = (["x", *["y"] * round(1 / r - 1)] * n)[:n]
        biased = ["x" if rng.random() < r + 0.3 else "y" for _ in range(n)]
        t.equal(call("verdict", by_turns, shares), "exact", f"by turns, {case}")
        t.equal(call("verdict", biased, shares), "biased", f"biased, {case}")
        t.equal(call("verdict", [*by_turns, "z"], shares), "biased", "a source without a share")
        halves = ["x"] * 100 + ["y"] * 100
        t.equal(call("verdict", halves, {"x": 0.5, "y": 0.5}), "by chance", "in two halves")
