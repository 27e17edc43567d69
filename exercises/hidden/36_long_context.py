"""Hidden tests of the exercises of chapter 36."""

import numpy as np

from llmcourse.model.attention import RopeScaling


def check_1(t, call, rng):
    """Heads, bases and lengths of many kinds, against the package."""
    for _ in range(8):
        pairs, theta = rng.randrange(2, 40), rng.choice([100.0, 10_000.0, 500_000.0])
        s, low = rng.choice([1, 2, 4.0, 8, 32]), rng.choice([0.5, 1, 2])
        high, length = low + rng.choice([1, 3, 10]), rng.choice([16, 64, 2_048, 8_192])
        case = f"K {2 * pairs}, theta {theta}, s {s}, low {low}, high {high}, L {length}"
        scaling = RopeScaling(
            kind="llama3",
            factor=float(s),
            original_length=length,
            low_freq_factor=float(low),
            high_freq_factor=float(high),
        )
        right = scaling.frequencies(2 * pairs, theta=theta)
        found = list(call("slower_speeds", 2 * pairs, theta, s, (low, high), length))
        t.equal(len(found), pairs, case)
        for ours, theirs in zip(found, right, strict=True):
            t.close(ours / theirs, 1.0, case, relative=1e-6)
        n = rng.uniform(0, 2 * high)
        share = min(1, max(0, (n - low) / (high - low)))
        t.close(call("share_kept", n, low, high), share, f"{n} turns, {case}", absolute=1e-9)


def check_2(t, call, rng):
    """Shapes of many sizes."""
    for _ in range(8):
        layers, heads, groups = rng.randrange(1, 130), rng.randrange(1, 129), rng.randrange(1, 9)
        size, ranks = rng.choice([4, 64, 128]), rng.choice([1, 2, 4, 16])
        length, matrices = ranks * rng.randrange(1, 9_000), rng.randrange(1, 10**12)
        case = f"N {layers}, H {heads}, G {groups}, K {size}, T {length}, ranks {ranks}"
        pairs = 2 * layers * heads * size * (length + 1)
        found = call("pair_share", layers, heads, size, length, matrices)
        t.close(found, pairs / (pairs + matrices), f"{case}, matrices {matrices}", relative=1e-6)
        cache = 4 * layers * groups * size * length / 1e9
        t.close(call("cache_gb", layers, groups, size, length), cache, case, relative=1e-6)
        sent = cache * (ranks - 1) / ranks
        found = call("ring_gb", layers, groups, size, length, ranks)
        t.close(found, sent, case, relative=1e-6, absolute=1e-15)
        whole = rng.randrange(10**9, 10**13)
        phase = int(whole * (rng.randrange(0, 100) + rng.uniform(-0.3, 0.3)) / 100)
        phase = max(0, phase)
        found = call("tokens_of_phase", phase, whole)
        t.equal(found, round(100 * phase / whole), f"{phase} of {whole}")


def check_3(t, call, rng):
    """Rows with one document, several, and full ones."""
    for _ in range(8):
        lengths = [rng.randrange(1, 7) for _ in range(rng.randrange(1, 6))]
        total = sum(lengths) + rng.choice([0, 0, 1, 4])
        case = f"documents of {lengths} tokens in a row of {total}"
        owner = [n for n, m in enumerate(lengths) for _ in range(m)]
        owner += [None] * (total - len(owner))
        places = [sum(owner[k] == owner[i] for k in range(i)) for i in range(total)]
        places = [0 if owner[i] is None else place for i, place in enumerate(places)]
        t.equal(list(call("row_positions", lengths, total)), places, case)
        mask = [
            [i == j or (owner[i] is not None and owner[i] == owner[j] and j < i)
             for j in range(total)]
            for i in range(total)
        ]  # fmt: skip
        found = [[bool(x) for x in row] for row in call("may_read", lengths, total)]
        t.equal(found, mask, case)
        asked = [i for i in range(total - 1) if owner[i] is not None and owner[i] == owner[i + 1]]
        t.equal(list(call("learnt", lengths, total)), asked, case)
        pairs = sum(m * (m + 1) // 2 for m in lengths)
        t.equal(call("pairs_read", lengths), pairs, f"documents of {lengths} tokens")


def check_4(t, call, rng):
    """Heads with other speeds, lengths and wishes."""

    def waves(distances, w):
        angles = np.outer(distances, w)
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    def slowed(w, kind, s):
        powers = {"none": 0, "linear": -1, "ntk": -np.arange(len(w)) / (len(w) - 1)}
        return w * float(s) ** powers[kind]

    for _ in range(5):
        pairs, length = rng.randrange(3, 10), rng.randrange(24, 80)
        w = np.array([rng.choice([100.0, 1_000.0]) ** (-j / pairs) for j in range(pairs)])
        true = np.array([rng.gauss(0, 1) for _ in range(2 * pairs)])
        case = f"{pairs} pairs, {length} distances"
        # The wanted scores are those of some weights, so that every good fit meets them.
        wanted = waves(np.arange(length), w) @ true
        weights = np.asarray(call("train_head", wanted, w), dtype=float)
        t.equal(weights.shape, true.shape, case)
        again = waves(np.arange(length), w) @ weights
        t.close(list(again), list(wanted), f"{case}: the scores of your weights", absolute=1e-3)
        # From here on with weights that are given.
        further = length + rng.randrange(1, 50)
        right = waves(np.arange(further), w) @ true
        t.close(list(call("scores", true, w, further)), list(right), case, absolute=1e-9)
        worst = {}
        for kind in ("none", "linear", "ntk"):
            s = rng.choice([1, 2, 3.5, 8])
            found = list(call("slowed", w, kind, s))
            t.close(found, list(slowed(w, kind, s)), f"{case}, {kind} by {s}", relative=1e-9)
            for s in (1, 2, 4, 8):
                far = waves(np.arange(4 * length), slowed(w, kind, s)) @ true
                worst[kind, s] = float(np.abs(far[length:]).max())
            found = call("worst", true, w, kind, s, length)
            t.close(found, worst[kind, s], f"{case}, {kind} by {s}", relative=1e-6)
        for kind in ("linear", "ntk"):
            # Weights of such a size that one factor is just tame, or none is.
            size = 1.4 / rng.choice([worst[kind, s] for s in (1, 2, 4, 8)])
            limit = {s: size * worst[kind, s] for s in (8, 1, 4, 2)}
            if any(abs(x - 1.5) < 1e-3 for x in limit.values()):
                continue
            tame = [s for s, x in limit.items() if x <= 1.5]
            found = call("least_factor", size * true, w, kind, [8, 1, 4, 2], length)
            t.equal(found, min(tame, default=None), f"{case}, {kind}")
            found = call("least_factor", 1e6 * true, w, kind, [8, 1, 4, 2], length)
            t.equal(found, None, f"{case}, {kind}, scores that nothing tames")
    t.equal(call("ntk_needs"), "a larger factor", "the conclusion")
