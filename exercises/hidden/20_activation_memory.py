"""Hidden tests of the exercises of chapter 20."""

import itertools

import torch

# Bytes per number, copies of (s, b, h), copies of (b, a, s, s), split over the ranks?
TABLE = [
    (2, 1, 0, False),
    (2, 1, 0, False),
    (2, 3, 0, True),
    (2, 0, 1, True),
    (1, 0, 1, True),
    (2, 0, 1, True),
    (2, 1, 0, True),
    (1, 1, 0, False),
    (2, 1, 0, False),
    (2, 1, 0, False),
    (2, 4, 0, True),
    (2, 4, 0, True),
    (1, 1, 0, False),
]


def check_1(t, call, rng):
    """Small layers and large ones, on one rank and on several; the table row by row."""
    for ranks in (1, 1, 2, 3, 4, 8):
        a = ranks * rng.randrange(2, 9)
        s, b, h = rng.choice((3, 7, 100, 2048)), rng.randrange(2, 6), a * rng.choice((4, 64, 128))
        for how in ("nothing", "attention", "block"):
            right = 0
            for size, of_width, of_scores, split in TABLE[: 1 if how == "block" else None]:
                scores = 0 if how == "attention" else of_scores * b * a * s * s
                right += size * (of_width * s * b * h + scores) // (ranks if split else 1)
            answer = call("layer_bytes", s, b, h, a, ranks, how)
            case = f"s {s}, b {b}, h {h}, a {a}, {ranks} ranks, {how}"
            t.close(answer, right, case, relative=1e-9)


def check_2(t, call, rng):
    """Rows of any length; what is live is listed anew at each step."""
    for count in (1, 2, 3, 5, 8, 13):
        for chance in (0.0, 0.5, 1.0):
            inputs = [rng.randrange(1, 100) for _ in range(count)]
            insides = [rng.randrange(1, 10_000) for _ in range(count)]
            again = [rng.random() < chance for _ in range(count)]
            if chance == 0.5:
                again[rng.randrange(count)] = True
            steps = [(i, None) for i in range(count)] + [(i, i) for i in reversed(range(count))]
            right = [
                sum(inputs[: i + 1])
                + sum(insides[j] for j in range(i + 1) if not again[j] or j == running)
                for i, running in steps
            ]
            answer = call("live_bytes", inputs, insides, again)
            t.equal(answer, right, f"inputs {inputs}, insides {insides}, recomputed {again}")


def check_3(t, call, rng):
    """Any shape and rate, with few or many draws in between."""
    for shape, rate in (((64,), 0.5), ((8, 9), 0.1), ((3, 4, 5), 0.3), ((40,), 0.8), ((7,), 0.0)):
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        x, dy = (torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(2))
        before = generator.get_state()
        masks = []
        for _ in range(2):
            kept = torch.rand(shape, generator=generator, dtype=torch.float64) >= rate
            masks.append(kept.double() / (1 - rate))
        torch.rand(rng.randrange(1, 2_000), generator=generator)
        now = generator.get_state()
        leaf = x.clone().requires_grad_()
        u = leaf + masks[0] * leaf.square()
        y = u + masks[1] * u**3
        (right,) = torch.autograd.grad(y, leaf, dy)
        answer = call("backward_with_recompute", x, dy, rate, before, now)
        if t(isinstance(answer, list | tuple) and len(answer) == 2, "gradient and state"):
            case = f"shape {shape}, rate {rate}"
            t.close(answer[0], right, f"{case}: dx", relative=1e-9, absolute=1e-15)
            t.equal(answer[1], now, f"{case}: the state that is left")


def peak_of(inputs, insides, plan):
    """Return the largest sum of what is live during the backward pass."""
    kept = [0 if again else inside for inside, again in zip(insides, plan, strict=True)]
    return max(sum(inputs[: i + 1]) + sum(kept[:i]) + insides[i] for i in range(len(inputs)))


def work_of(works, plan):
    """Return the extra work of a plan."""
    return sum(cost for cost, again in zip(works, plan, strict=True) if again)


def check_4(t, call, rng):
    """Rows that mislead, at every limit from hopeless to generous, and random rows."""
    cases = []
    for inputs, insides, works in (
        ([1, 1, 1], [5, 4, 9], [7, 6, 1]),
        ([1, 1, 1], [4, 9, 1], [5, 3, 9]),
        ([1, 1, 1, 1], [10, 6, 5, 2], [20, 4, 4, 1]),
        ([1, 1, 1, 1], [2, 8, 7, 5], [3, 7, 4, 5]),
    ):
        highest = peak_of(inputs, insides, [False] * len(inputs))
        lowest = peak_of(inputs, insides, [True] * len(inputs))
        step = max(1, (highest - lowest) // 4)
        cases += [
            (inputs, insides, works, limit)
            for limit in {lowest - 1, *range(lowest, highest, step), 17, 12, 19, 18, highest}
        ]
    for count in (1, 4, 6, 8):
        inputs, insides, works = (
            [rng.randrange(1, most) for _ in range(count)] for most in (4, 30, 20)
        )
        highest = peak_of(inputs, insides, [False] * count)
        lowest = peak_of(inputs, insides, [True] * count)
        cases.append((inputs, insides, works, rng.randrange(lowest, highest + 1)))
    for inputs, insides, works, limit in cases:
        plans = itertools.product((False, True), repeat=len(inputs))
        fitting = [plan for plan in plans if peak_of(inputs, insides, plan) <= limit]
        answer = call("cheapest_plan", inputs, insides, works, limit)
        case = f"inputs {inputs}, insides {insides}, works {works}, limit {limit}"
        if not fitting:
            t(answer is None, f"{case}: no plan fits")
            continue
        if t(isinstance(answer, list | tuple) and len(answer) == len(inputs), f"{case}: a list"):
            plan = [again is True for again in answer]
            t(peak_of(inputs, insides, plan) <= limit, f"{case}: {answer} does not fit")
            least = min(work_of(works, plan) for plan in fitting)
            t.equal(work_of(works, plan), least, f"{case}: the least work")
