"""Hidden tests of the exercises of chapter 44."""

import math
import random
from itertools import pairwise


def check_1(t, call, rng):
    """Items and texts of few words, so that runs meet often."""

    def covered(item, texts, n):
        words = item.lower().split()
        n = min(n, len(words))
        marks = [False] * len(words)
        for i in range(len(words) - n + 1):
            run = f" {' '.join(words[i : i + n])} "
            if any(run in f" {' '.join(text.lower().split())} " for text in texts):
                marks[i : i + n] = [True] * n
        return sum(marks) / len(words)

    for _ in range(12):
        texts = [
            "  ".join(rng.choice(["a", "B", "cc", "a1"]) for _ in range(rng.randrange(1, 15)))
            for _ in range(rng.randrange(1, 4))
        ]
        items = [
            " ".join(rng.choice(["A", "b", "cc", "d"]) for _ in range(rng.randrange(1, 9)))
            for _ in range(4)
        ]
        n, least = rng.randrange(1, 5), rng.choice([0.01, 0.5, 1])
        shares = [covered(item, texts, n) for item in items]
        for item, right in zip(items, shares, strict=True):
            t.close(call("covered", item, texts, n), right, f"{item!r} in {texts}, n = {n}")
        found = call("flagged", items, texts, n, least)
        right = [i for i, share in enumerate(shares) if share >= least]
        t.equal(list(found), right, f"{items} in {texts}, n = {n}, least {least}")
    words = rng.sample("abcdefghijkl", 8)
    text = " ".join(words[:6])
    t.close(call("covered", " ".join(words), [text], 3), 6 / 8, "runs that lie over each other")
    t.close(call("covered", "a b c d", [], 2), 0, "no text at all")
    t.close(call("covered", "a b c", ["x a", "b c y"], 2), 2 / 3, "a run over the end of a text")


def check_2(t, call, rng):
    """Few values, so that ties are common, and levels of every size."""
    for _ in range(12):
        own = -rng.randrange(1, 6) / 2
        others = [-rng.randrange(1, 6) / 2 for _ in range(rng.randrange(1, 30))]
        right = sorted([*others, own], reverse=True)
        right = len(right) - right[::-1].index(own)  # the last of equals
        case = f"{own} among {others}"
        t.equal(call("rank", own, others), right, case)
        bits = math.log2((len(others) + 1) / right)
        t.close(call("exposure", own, others), bits, case, absolute=1e-9)
        level = rng.choice([0.05, 0.1, 0.25, 0.5, 0.9])
        p = right / (len(others) + 1)
        if abs(p - level) > 1e-9 or len(others) == 19:
            found = call("was_read", own, others, level)
            t.equal(bool(found), p <= level, f"{case}, level {level}")
    for level in (0.5, 0.2, 0.04, 0.015, 1e-4, rng.uniform(0.001, 0.2)):
        others = next(n for n in range(1, 20_000) if 1 / (n + 1) <= level * (1 + 1e-12))
        t.equal(call("others_needed", level), others, f"level {level}")


def check_3(t, call, rng):
    """Tables of whole numbers, where ties are common, and of noise."""

    def order_score(scores, order):
        return sum(scores[a][b] for a, b in pairwise(order))

    def p_value(scores, num_shuffles, seed):
        draws, order = random.Random(seed), list(range(len(scores)))
        limit, hits = order_score(scores, order), 1
        for _ in range(num_shuffles):
            draws.shuffle(order)
            hits += order_score(scores, order) >= limit
        return hits / (num_shuffles + 1)

    for _ in range(8):
        size = rng.randrange(2, 7)
        scores = [[rng.randrange(-4, 1) for _ in range(size)] for _ in range(size)]
        order = rng.sample(range(size), rng.randrange(1, size + 1))
        right = order_score(scores, order)
        t.close(call("order_score", scores, order), right, f"{scores}, {order}", absolute=1e-9)
        shuffles, seed = rng.randrange(1, 40), rng.randrange(1_000)
        found = call("p_value", scores, shuffles, seed)
        t.close(found, p_value(scores, shuffles, seed), f"{scores}, {shuffles} shuffles, {seed}")
    tables = [[[rng.gauss(0, 1) for _ in range(5)] for _ in range(5)] for _ in range(60)]
    right = [p_value(scores, 19, seed) for seed, scores in enumerate(tables)]
    for level in (0.05, 0.3, 1.0):
        share = sum(p <= level for p in right) / len(right)
        t.close(call("false_alarms", tables, 19, level), share, f"level {level}", absolute=1e-9)


def check_4(t, call, rng):
    """Answers and flags of every kind, all and none flagged among them."""

    def share_interval(k, n):
        z2 = 1.96**2
        root = math.sqrt(4 * k * (n - k) / n + z2) * 1.96
        return [(2 * k + z2 + sign * root) / (2 * (n + z2)) for sign in (-1, 1)]

    near = {"relative": 1e-6, "absolute": 1e-9}
    for _ in range(8):
        n = rng.randrange(1, 200)
        k = rng.choice([0, n, rng.randrange(n + 1)])
        t.close(list(call("share_interval", k, n)), share_interval(k, n), f"{k} of {n}", **near)
    for chance in (0.0, 0.3, 0.7, 1.0, 0.5, 0.5):
        n = rng.randrange(4, 80)
        flags = [rng.random() < chance for _ in range(n)]
        right = [rng.random() < (0.9 if flag else 0.2) for flag in flags]
        parts = [
            [r for r, flag in zip(right, flags, strict=True) if flag == wanted]
            for wanted in (False, True)
        ]
        case = f"right {right}, flagged {flags}"
        found = call("clean_score", right, flags)
        if parts[0]:
            clean = sum(parts[0])
            whole = [clean / len(parts[0]), *share_interval(clean, len(parts[0])), len(parts[0])]
            t.close(list(found), whole, case, **near)
        else:
            t.equal(found, None, case)
        shows = call("leak_shows", right, flags)
        if all(parts):
            (_, high), (low, _) = (share_interval(sum(part), len(part)) for part in parts)
            t.equal(bool(shows), low > high, case)
        else:
            t.equal(shows, None, case)
    right, flags = [True] * 30 + [False] * 30, [False] * 30 + [True] * 30
    t.equal(bool(call("leak_shows", right, flags)), False, "flagged items that are worse")
