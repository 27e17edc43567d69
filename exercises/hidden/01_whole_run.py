"""Hidden tests of the exercises of chapter 01."""

import math
from fractions import Fraction


def check_1(t, call, rng):
    """Runs from a part of one pass to many passes."""
    for corpus_tokens in (1, 1000, 716_438, 10**9, 15_600_000_000_000):
        steps, batch = rng.randrange(2, 10_000), rng.randrange(2, 3000)
        length = rng.choice([2, 96, 512, 8192])
        answer = call("tokens_and_epochs", steps, batch, length, corpus_tokens)
        right = steps * batch * length
        case = f"{steps:,} steps of {batch:,} × {length:,} on {corpus_tokens:,} tokens"
        if t(isinstance(answer, list | tuple) and len(answer) == 2, f"{case}: two numbers"):
            t.equal(answer[0], right, f"the tokens of {case}")
            t.close(answer[1], float(Fraction(right, corpus_tokens)), f"the epochs of {case}")


def check_2(t, call, rng):
    """The one order."""
    del rng
    t.equal(call("loop_order"), "DFBHECAG", "the order of the eight lines")


def a_set(rng):
    """Return four runs in a random order and their letters; every case is clear."""
    guess = math.log(rng.choice([256, 768, 50_257]))
    num = rng.randrange(9, 25)
    way = [i / (num - 1) for i in range(num)]

    def noisy(losses, size):
        return [guess] + [loss + rng.uniform(-size, size) for loss in losses[1:]]

    fall, easy = rng.uniform(0.1, 0.35), rng.random() < 0.5
    small = [guess - fall * x for x in way]
    floor = guess * (rng.uniform(0.12, 0.2) if easy else rng.uniform(0.4, 0.5))
    good = [floor + (guess - floor) * math.exp(-6 * x) for x in way]

    # Where the good run's text is easy, the run with too little text has the higher training loss.
    low = floor + rng.uniform(0.4, 0.6) if easy else guess * rng.uniform(0.1, 0.2)
    by_heart = [low + (guess - low) * math.exp(-8 * x) for x in way]
    apart = rng.uniform(1.2, 1.6) if easy else guess * rng.uniform(0.45, 0.5)
    rise = rng.uniform(0.4, 0.7)  # of the validation loss, in the second half
    least = low + apart - rise
    unseen = [least + (guess - least) * math.exp(-8 * x) + rise * max(0, 2 * x - 1) for x in way]

    height, end = guess * rng.uniform(3, 12), guess * rng.choice([0.75, 2.0])
    large = [height + (end - height) * x for x in way]
    thrown = [guess] + [loss * rng.uniform(0.8, 1.25) for loss in large[1:-1]] + [end - 0.02]
    runs = [
        ("A", noisy(small, 0.004), small),
        ("B", [guess, *large[1:]], thrown),
        ("C", noisy(by_heart, 0.03), unseen),
        ("D", noisy(good, 0.03), good),
    ]
    rng.shuffle(runs)
    return [(training, validation) for _, training, validation in runs], [run[0] for run in runs]


# Measured, in the order D, A, B, C: the preset `tiny` on 300 kB for 300 steps, with a hundredth of
# its learning rate, with 300 times as much, and on 3 kB.
MEASURED = [
    (
        [5.71, 4.12, 4.10, 3.79, 3.60, 3.27, 2.90, 2.78, 2.70, 2.66, 2.83],
        [5.72, 4.11, 4.05, 3.85, 3.45, 3.18, 2.99, 2.82, 2.71, 2.67, 2.63],
    ),
    (
        [5.71, 5.68, 5.61, 5.51, 5.46, 5.39, 5.35, 5.33, 5.33, 5.31, 5.32],
        [5.72, 5.68, 5.62, 5.53, 5.45, 5.40, 5.36, 5.34, 5.33, 5.32, 5.31],
    ),
    (
        [5.71, 30.59, 40.16, 30.64, 29.08, 21.79, 11.61, 7.90, 4.56, 4.31, 4.21],
        [5.72, 38.13, 35.91, 45.82, 32.21, 20.08, 11.13, 6.92, 4.72, 4.22, 4.17],
    ),
    (
        [5.72, 4.07, 3.71, 2.76, 2.27, 1.71, 1.46, 1.11, 0.91, 0.81, 0.78],
        [5.72, 4.11, 3.86, 3.32, 2.90, 2.89, 2.91, 2.91, 2.97, 2.99, 3.03],
    ),
]


def check_3(t, call, rng):
    """Measured curves in two orders, and drawn ones of other vocabularies and lengths."""
    for order in ([0, 1, 2, 3], [3, 0, 2, 1]):
        curves, letters = [MEASURED[i] for i in order], ["DABC"[i] for i in order]
        t.equal(call("match_curves", curves), letters, "four measured runs")
    for _ in range(16):
        curves, letters = a_set(rng)
        ends = ", ".join(f"{tr[-1]:.2f} / {va[-1]:.2f}" for tr, va in curves)
        t.equal(call("match_curves", curves), letters, f"runs that end at {ends}")


def check_4(t, call, rng):
    """Changes that are far from unclear, and one that is not, in any order."""
    changes = {
        "half the rate": ({"rate": 0.015}, "worse"),
        "a tenth more": ({"rate": 0.033}, "unclear"),
        "narrow": ({"width": 4}, "worse"),
        "slow and long": ({"rate": 0.001, "steps": 200}, "worse"),
        "wide and fast": ({"width": 64, "rate": 0.06}, "better"),
    }
    names = rng.sample(list(changes), 5)
    found = call("verdicts", {name: changes[name][0] for name in names})
    for name in names:
        t.equal(found.get(name), changes[name][1], f"{name}: {changes[name][0]}")
    t.equal(call("verdicts", {}), {}, "no changes")
