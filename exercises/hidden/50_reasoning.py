"""Hidden tests of chapter 50."""

import fractions
import itertools
import math

import torch


def check_1(t, call, rng):
    """Sums of all sizes, and texts that are nearly right."""
    for most in (9, 99, 9_999):
        a, b = rng.randrange(1, most + 1), rng.randrange(1, most + 1)
        prompt, right = f"{a} + {b} = ", f"{a + b}"
        if rng.random() < 0.7:
            c, d = rng.randrange(most), rng.randrange(most)
            prompt = f"{c} + {d} = {c + d}\n{prompt}"
        t.equal(call("check_sum", prompt, right), 1.0, f"{prompt!r}, {right!r}")
        other = rng.choice("123456789")
        wrong = [f"{right}{other}", f"{other}{right}", f"{right} {other}", f"{other} {right}"]
        wrong += [f"{prompt}{right}", f"0{right}", f"+{right}", f"-{right}", f"{right}.0", f"{a}"]
        wrong += [f" {right}", f"{right} ", f"{right}\n", f"\n{right}", f"{right}…", f"{a + b + 1}"]
        zero = rng.choice([0x0660, 0x0966, 0xFF10])
        wrong += ["".join(chr(zero + int(digit)) for digit in right), "", "…", "none", right[:-1]]
        wrong += [f"{right[0]}_{right[1:]}"]
        for text in wrong:
            t.equal(call("check_sum", prompt, text), 0.0, f"{prompt!r}, {text!r}")
    text = call("fool")
    t(isinstance(text, str) and len(text) <= 1_000, "a text of at most 1,000 characters")
    missing = [result for result in range(20, 199) if str(result) not in text]
    t.equal(missing[:3], [], "results that do not stand in the text")


def refuses(call, *arguments):
    """Say whether a call ends with a ValueError, which may come as the words of another process."""
    try:
        call(*arguments)
    except Exception as error:
        return "ValueError" in f"{type(error).__name__} {error}"
    return False


def check_2(t, call, rng):
    """Draws of all numbers, against exact fractions."""
    near = {"relative": 1e-6, "absolute": 1e-9}
    for n in (1, rng.randrange(3, 40), rng.randrange(100, 400), 10_000):
        for c in {0, 1, rng.randrange(n), n}:
            for k in {1, rng.randrange(1, n + 1), n}:
                none = fractions.Fraction(math.comb(n - c, k), math.comb(n, k))
                right = float(1 - none)
                t.close(call("pass_at_k", n, c, k), right, f"n {n}, c {c}, k {k}", **near)
        t(refuses(call, "pass_at_k", n, 1, n + rng.randrange(1, 9)), f"n {n} and a larger k")
    for _ in range(4):
        chances = [rng.choice([0.0, 1.0, rng.random()]) for _ in range(rng.randrange(1, 9))]
        k = rng.randrange(1, 65)
        right = math.fsum(1 - math.prod([1 - p] * k) for p in chances) / len(chances)
        t.close(call("pass_at", k, chances), right, f"k {k}, {chances}", **near)
    for n in (2, 5, 12):
        k, p = rng.randrange(2, n + 1), rng.uniform(0.1, 0.9)
        sure = fractions.Fraction(p)
        chances = [math.comb(n, c) * sure**c * (1 - sure) ** (n - c) for c in range(n + 1)]
        short = [1 - fractions.Fraction(n - c, n) ** k for c in range(n + 1)]
        right = sum(a * b for a, b in zip(chances, short, strict=True)) - 1 + (1 - sure) ** k
        t.close(call("bias", n, k, p), float(right), f"n {n}, k {k}, p {p}", **near)


def check_3(t, call, rng):
    """Tables of all shapes, some rows of which are equal."""
    near = {"relative": 1e-6, "absolute": 1e-6}
    for _ in range(5):
        width = rng.randrange(2, 9)
        rows = []
        for _ in range(rng.randrange(2, 7)):
            kind = rng.randrange(4)
            if kind == 0:
                rows.append([rng.choice([0.0, 1.0, 0.1, 0.7, -2.3])] * width)
            elif kind == 1:
                rows.append([rng.uniform(-3, 3) for _ in range(width)])
            else:
                rows.append([float(rng.random() < 0.5) for _ in range(width)])
        rows += [[0.1] * width, [1.0] + [0.0] * (width - 1)]
        right = []
        for row in rows:
            exact = [fractions.Fraction(r) for r in row]
            mean = sum(exact) / width
            square = sum((r - mean) ** 2 for r in exact) / width
            right.append([float(r - mean) / math.sqrt(square) if square else 0.0 for r in exact])
        given = torch.tensor(rows, dtype=torch.float64)
        aim = torch.tensor(right, dtype=torch.float64)
        t.close(call("advantages", given), aim, f"{rows}", **near)
        differ = [i for i, row in enumerate(rows) if len({*row}) > 1]
        t.equal(call("kept", given), differ, f"{rows}")
    t.equal(call("kept", torch.ones(3, 4, dtype=torch.float64)), [], "all rewards are 1")
    for group in (1, 2, 3, 5):
        chances = [rng.choice([0.0, 1.0, rng.random(), 0.02]) for _ in range(rng.randrange(1, 6))]
        right = 0.0
        for p in chances:  # over all that the checker can say of a group
            for paid in itertools.product((0, 1), repeat=group):
                if len({*paid}) == 1:
                    right += math.prod(p if r else 1 - p for r in paid) / len(chances)
        t.close(call("silent", chances, group), right, f"{chances}, groups of {group}", **near)
