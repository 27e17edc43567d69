"""Hidden tests of the exercises of chapter 22."""

import math

import numpy as np


def check_1(t, call, rng):
    """Rings of up to 16 ranks, played with numbers of their own; an order of ranks is no help."""
    for n in (1, 2, 3, 5, 8, 16, rng.randrange(4, 13)):
        answer = call("reduce_scatter_schedule", n)
        right = []
        for hops in range(n - 1, 0, -1):  # chunk c is that many hops away from rank c
            row = [None] * n
            for c in range(n):
                row[(c - hops) % n] = c
            right.append(row)
        t.equal(answer, right, f"{n} ranks")


def check_2(t, call, rng):
    """Rows of random length with random numbers, then rows that are shorter than the ring."""
    for length in (rng.randrange(4, 40) * 3 + rng.randrange(1, 3), rng.choice((1, 2))):
        rows = [[rng.uniform(-1, 1) for _ in range(length)] for _ in range(3)]
        answers = call("three_processes", rows)
        case = f"rows of {length}"
        whole = np.array(rows).astype(np.float32).astype(np.float64).sum(axis=0)
        sums = [np.asarray(x) for x, _ in answers]
        if not t(all(x.shape == (length,) for x in sums), f"{case}: a row from every process"):
            return
        for x in sums:
            t.close(x.astype(np.float64), whole, f"{case}: the sum", relative=0, absolute=1e-6)
        t(all(x.tobytes() == sums[0].tobytes() for x in sums), f"{case}: the same bits")
        sizes = [4 * (length // 3 + (c < length % 3)) for c in range(3)]
        most = 8 * length - min(sizes[c] + sizes[c - 1] for c in range(3))
        sent = [num_bytes for _, num_bytes in answers]
        t(max(sent) <= most, f"{case}: no process sends more than in a ring")
        t(sum(sent) == 16 * length, f"{case}: four rows in all")


def check_3(t, call, rng):
    """Powers of two and their neighbours; both times at the crossover."""
    counts = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 512, 1024, rng.randrange(18, 500)]
    for n in counts:
        num_bytes, latency = rng.randrange(1, 10**9), rng.uniform(1e-6, 1e-2)
        speed = rng.uniform(1e6, 1e11)
        rounds = 0
        while 2**rounds < n:
            rounds += 1
        tree = sum(2 * (latency + num_bytes / speed) for _ in range(rounds))
        ring = sum(2 * (latency + num_bytes / (n * speed)) for _ in range(n - 1))
        answer = call("tree_and_ring", num_bytes, n, latency, speed)
        case = f"{num_bytes} bytes, {n} ranks, {latency:.3g} s, {speed:.3g} bytes/s"
        if not t(isinstance(answer, list | tuple) and len(answer) == 3, f"{case}: three numbers"):
            continue
        t.close(answer[0], tree, f"{case}: tree", relative=1e-9)
        t.close(answer[1], ring, f"{case}: ring", relative=1e-9)
        # A thousandth of a byte forgives rounding where the two differ by nothing.
        meet = latency * speed * n * (n - 1 - rounds) / max(1, n * rounds - n + 1)
        t.close(answer[2], meet, f"{case}: crossover", relative=1e-9, absolute=1e-3)
    for case in ((0, 6, 0.5, 2.0), (120, 6, 0.0, 2.0)):
        rounds_s, steps_s = 6 * (case[2] + case[0] / 2), 10 * (case[2] + case[0] / 12)
        right = [rounds_s, steps_s, case[2] * 2 * 2 / (3 - 5 / 6)]
        t.close(call("tree_and_ring", *case), right, f"{case}", relative=1e-9, absolute=1e-9)


def check_4(t, call, rng):
    """Numbers of all sizes, on up to seven ranks, with chunks that are uneven or empty."""
    generator = np.random.default_rng(rng.randrange(2**31))
    # Eight entries at least for three and four ranks, so that no luck passes.
    for n, length in ((1, 4), (2, 9), (3, 41), (4, 30), (4, 3), (5, 64), (7, 33), (6, 1)):
        exponents = generator.integers(-12, 13, (n, length))
        x = (generator.standard_normal((n, length)) * 2.0**exponents).astype(np.float32)
        ring, ordered = (np.zeros(length, dtype=np.float32) for _ in range(2))
        bounds = [c * (length // n) + min(c, length % n) for c in range(n + 1)]
        for i in range(length):
            home = max(c for c in range(n) if bounds[c] <= i < bounds[c + 1])
            for k in range(n):
                ordered[i] += x[k, i]
                ring[i] += x[(home + 1 + k) % n, i]
        _, exponent = np.frexp(np.abs(ordered).astype(np.float64))
        apart = [
            abs(float(a) - float(b)) / math.ldexp(1.0, int(e) - 24)
            for a, b, e in zip(ring, ordered, exponent, strict=True)
        ]
        answer = call("two_sums", x)
        case = f"{n} ranks, {length} entries"
        if t(isinstance(answer, list | tuple) and len(answer) == 3, f"{case}: three arrays"):
            t.equal(answer[0], ring, f"{case}: ring")
            t.equal(answer[1], ordered, f"{case}: rank order")
            t.close(answer[2], np.array(apart), f"{case}: ulps", relative=1e-9)
