"""Hidden tests of the exercises of chapter 32."""

import math
import random

import torch


def check_1(t, call, rng):
    """Micro-batches of many shapes, some without a target; parts of many counts."""
    for _ in range(6):
        size = rng.randrange(2, 8)
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        table = torch.randn(size, size, generator=generator, dtype=torch.float64)
        batches = []
        for _ in range(rng.randrange(1, 5)):
            shape = rng.randrange(1, 4), rng.randrange(1, 9)
            ids, targets = (torch.randint(0, size, shape, generator=generator) for _ in range(2))
            out = torch.rand(shape, generator=generator) < rng.choice((0.0, 0.5, 1.0))
            batches.append((ids, targets.masked_fill(out, -100)))
        batches.append((torch.tensor([[0, 1]]), torch.tensor([[1, -100]])))
        log_p = table.log_softmax(-1)
        loss, gradient, count = 0.0, torch.zeros_like(table), 0
        for ids, targets in batches:
            for i, target in zip(ids.flatten().tolist(), targets.flatten().tolist(), strict=True):
                if target == -100:
                    continue
                loss, count = loss - log_p[i, target].item(), count + 1
                gradient[i] += log_p[i].exp()
                gradient[i, target] -= 1
        found = call("accumulated", table, batches)
        case = f"{len(batches)} micro-batches, {count} targets"
        t.close(float(found[0]), loss / count, case)
        t.close(found[1], gradient / count, case, absolute=1e-12)
        counts = [rng.randrange(0, 9) for _ in range(rng.randrange(1, 6))] + [3]
        parts = [
            (
                torch.randn(4, generator=generator, dtype=torch.float64)
                * (math.nan if n == 0 else 1),
                n,
            )
            for n in counts
        ]
        whole = sum(g * n for g, n in parts if n) / sum(counts)
        length = whole.norm().item()
        for max_norm in (length * 2, length / 3):
            right = whole * min(1.0, max_norm / length)
            t.close(call("combined", parts, max_norm), right, f"counts {counts}", absolute=1e-12)


def check_2(t, call, rng):
    """Gradients with much and little noise, and pairs of sizes."""
    for _ in range(8):
        m, width, spread = rng.randrange(2, 12), rng.randrange(1, 6), rng.choice((0.1, 1, 30))
        true = [rng.gauss(0, 1) for _ in range(width)]
        gradients = [[x + rng.gauss(0, spread) for x in true] for _ in range(m)]
        mean = [math.fsum(column) / m for column in zip(*gradients, strict=True)]
        noise = math.fsum((x - y) ** 2 for g in gradients for x, y in zip(g, mean, strict=True))
        noise /= m - 1
        signal = math.fsum(x * x for x in mean) - noise / m
        scale = noise / signal if signal > 0 else math.inf
        case = f"{m} gradients of {width} numbers, spread {spread}"
        found = list(call("from_gradients", gradients))
        t.close(found[:2], [signal, noise], case, absolute=1e-9)
        t.close(found[2], scale, case, relative=1e-4)
        small = rng.randrange(1, 5)
        big, times = small * rng.randrange(2, 9), rng.randrange(1, 6)
        larger = [rng.uniform(1, 9) for _ in range(times)]
        smaller = [x + rng.uniform(0, 9) for x in larger]
        a, b = math.fsum(smaller) / times, math.fsum(larger) / times
        signal, noise = (big * b - small * a) / (big - small), (a - b) / (1 / small - 1 / big)
        scale = noise / signal if signal > 0 else math.inf
        case = f"sizes {small} and {big}, squares {smaller} and {larger}"
        found = list(call("from_squares", smaller, larger, small, big))
        t.close(found[:2], [signal, noise], case, absolute=1e-9)
        t.close(found[2], scale, case, relative=1e-4)
    t.equal(call("from_gradients", [[2.0], [-2.0], [0.0]])[2], math.inf, "no signal at all")


def check_3(t, call, rng):
    """Ramps of one to four stages, against a walk of single steps."""
    for _ in range(12):
        ramp, border, batch = [], 0, 0
        for _ in range(rng.randrange(1, 5)):
            batch += rng.randrange(1, 40)
            ramp.append((border, batch))
            border += rng.randrange(1, 150)
        read = [0]
        while len(read) < 60:
            read.append(read[-1] + [size for begin, size in ramp if begin <= read[-1]][-1])
        for steps in (0, 1, 59, rng.randrange(60)):
            t.equal(call("tokens_after", ramp, steps), read[steps], f"{ramp}, {steps} steps")
        for tokens in (0, read[7], read[7] + 1, rng.randrange(read[-1])):
            right = next(n for n, seen in enumerate(read) if seen >= tokens)
            t.equal(call("steps_for", ramp, tokens), right, f"{ramp}, {tokens} tokens")
    t.equal(call("tokens_after", [(0, 4), (8, 8)], 3), 16, "a border that is met exactly")
    t.equal(call("steps_for", [(0, 90), (10, 95), (50, 99)], 91), 2, "a stage that is jumped over")
    t.equal(call("steps_for", [(0, 9), (3, 2), (5, 1)], 11), 3, "a batch that gets smaller")
    t.equal(call("steps_of_the_405b"), 1_100_929, "the published ramp")


def check_4(t, call, rng):
    """Batches of whole sequences that do and do not divide well."""
    for _ in range(12):
        count, length = rng.randrange(1, 400), rng.choice((1, 96, 4_096, 8_192))
        fits, steps = rng.randrange(1, 60), rng.randrange(0, 1_000)
        right = next(n for n in range(1, count + 1) if count % n == 0 and count // n <= fits)
        t.equal(call("sequences", count * length, length), count, f"{count * length}, {length}")
        t.equal(call("micro_batches", count, fits), right, f"{count} sequences, {fits} fit")
        found = call("forward_passes", count * length, length, fits, steps)
        t.equal(found, right * steps, f"{count} sequences, {fits} fit, {steps} steps")


def check_5(t, call, rng):
    """Bowls of several widths; laws with and without error."""

    def run(bowl, batch, rate, seed, most):
        curvatures, noise, target = bowl
        draws, x = random.Random(seed), [1.0] * len(curvatures)
        for step in range(most + 1):
            if sum(h * a * a for h, a in zip(curvatures, x, strict=True)) / 2 <= target:
                return step
            for i, h in enumerate(curvatures):
                x[i] -= rate * (h * x[i] + noise * draws.gauss(0, 1) / math.sqrt(batch))
        return math.inf

    for _ in range(4):
        curvatures = [rng.uniform(0.05, 0.5) for _ in range(rng.randrange(2, 7))]
        noise, batch, seed = rng.uniform(0.05, 0.3), rng.choice((1, 4, 9)), rng.randrange(10**6)
        target = sum(curvatures) / 2 * rng.uniform(0.2, 0.6)
        bowl = curvatures, noise, target
        rates, seeds = [0.3, 1.0, 0.1], [seed, seed + 1]
        case = f"curvatures {curvatures}, noise {noise}, batch {batch}, seed {seed}"
        found = call("steps_to", bowl, batch, 0.3, seed, 200)
        t.equal(found, run(bowl, batch, 0.3, seed, 200), case)
        means = [sum(run(bowl, batch, rate, s, 200) for s in seeds) / 2 for rate in rates]
        found = call("best_steps", bowl, batch, rates, seeds, 200)
        t.close(found, min(means), case)
        least, critical = rng.uniform(10, 90), rng.uniform(3, 60)
        batches = [1, 4, 16, 64]
        exact = [least * (1 + critical / b) for b in batches]
        t.close(list(call("knee", batches, exact)), [least, critical], "an exact law")
        rough = torch.tensor([s * rng.uniform(0.9, 1.1) for s in exact], dtype=torch.float64)
        inverse = 1 / torch.tensor(batches, dtype=torch.float64)
        rows = torch.stack([1 / rough, inverse / rough], dim=1)
        a, b = torch.linalg.lstsq(rows, torch.ones(4, 1, dtype=torch.float64)).solution.flatten()
        right = [a.item(), (b / a).item()]
        t.close(list(call("knee", batches, rough.tolist())), right, "a law with errors")
    found = call("steps_to", ([1.0], 0.0, 1e-9), 1, 0.5, 0, 2)
    t.equal(found, math.inf, "a run that does not arrive")
    t.equal(call("what_twice_the_noise_does"), "at about four times the batch", "the conclusion")
