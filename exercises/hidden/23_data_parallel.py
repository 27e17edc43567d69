"""Hidden tests of the exercises of chapter 23."""

import math
from itertools import zip_longest


def check_1(t, call, rng):
    """Models of all sizes, hooks in orders of their own, and parameters that were not used."""
    for num_unused in (0, 0, 0, 0, 0, 0, 1, 1, 2, 5):
        n = rng.randrange(6, 25)
        sizes = [rng.choice((1, 5, 10, 20, 40, 90)) for _ in range(n)]
        limit = rng.choice((20, 40, 60, 100))
        unused = rng.sample(range(n), num_unused)
        fired = sorted(range(n), key=lambda p: -p + rng.uniform(-4, 4))
        fired = [p for p in fired if p not in unused]
        right, at = [], n - 1
        while at >= 0:
            size, first = sizes[at], at
            while at and size + sizes[at - 1] <= limit:
                at -= 1
                size += sizes[at]
            right.append(list(range(first, at - 1, -1)))
            at -= 1
        left, sent = [], 0
        for number in range(1, len(fired) + 1):  # plays backward, hook by hook
            while sent < len(right) and set(right[sent]) <= set(fired[:number]):
                left.append(number)
                sent += 1
        left += [None] * (len(right) - sent)
        answer = call("departures", sizes, limit, fired)
        case = f"{n} gradients, limit {limit}, {num_unused} not used"
        if t(all(len(pair) == 2 for pair in answer), f"{case}: pairs"):
            t.equal([list(bucket) for bucket, _ in answer], right, f"{case}: buckets")
            t.equal([number for _, number in answer], left, f"{case}: when they leave")
    t.equal(len(call("departures", [3, 3, 3, 3], 6, [3, 2, 1, 0])), 2, "two exactly full buckets")
    t.equal(len(call("departures", [], 6, [])), 0, "no parameter")


def check_2(t, call, rng):
    """Up to six ranks with numbers of micro-batches of their own; every token has its say."""
    for _ in range(8):
        ranks = rng.randrange(1, 7)
        counts = [[rng.randrange(9) for _ in range(rng.randrange(4))] for _ in range(ranks)]
        counts[rng.randrange(ranks)].append(rng.randrange(1, 60))
        losses = [[[rng.uniform(0, 9) for _ in range(c)] for c in of_rank] for of_rank in counts]
        every = [x for of_rank in losses for part in of_rank for x in part]
        for average in (True, False):
            factors = call("loss_factors", counts, average)
            case = f"{counts}, average {average}"
            if not t([len(f) for f in factors] == [len(c) for c in counts], f"{case}: shape"):
                continue
            arrived = 0.0
            for of_rank, weights in zip(losses, factors, strict=True):
                for part, factor in zip(of_rank, weights, strict=True):
                    share = 1 / (len(part) * (ranks if average else 1)) if part else 0
                    arrived += sum(part) * factor * share
                    t(bool(part) or factor == 0, f"{case}: no token, factor 0")
            t.close(arrived, math.fsum(every) / len(every), case, relative=1e-9)
    for average, times in ((True, 3), (False, 1)):
        answer = call("loss_factors", [[5, 3], [3], [1]], average)
        shares = [[times * c / 12 for c in part] for part in ([5, 3], [3], [1])]
        flat = [x for part in answer for x in part]
        t.close(flat, [x for part in shares for x in part], "12 tokens", relative=1e-9)


def check_3(t, call, rng):
    """A fault in a random place and step, on a random rank, which spreads from there."""
    names = ["embedding", "w_q", "w_k", "gain", "bias"]

    def equal(ranks):
        prints = {name: f"{rng.randrange(16**8):08x}" for name in names}
        return [dict(prints) for _ in range(ranks)]

    for ranks, where in [(n, w) for n in (2, 3, 4, 5) for w in ("start", "sync", "optimizer")]:
        steps = rng.randrange(2, 6)
        weights = [equal(ranks) for _ in range(steps + 1)]
        gradients = [equal(ranks) for _ in range(steps)]
        t.equal(call("first_drift", weights, gradients), None, f"{ranks} equal ranks")
        odd = 0 if ranks == 4 else rng.randrange(ranks)  # rank 0 may be wrong, too
        step = 0 if where == "start" else rng.randrange(1, steps)
        culprits = rng.sample(names, rng.randrange(1, 3))
        order = [weights[0]]
        for pair in zip(gradients, weights[1:], strict=True):
            order += pair
        at = {"start": 0, "sync": 2 * step - 1, "optimizer": 2 * step}[where]
        for place, snapshot in enumerate(order[at:]):
            for name in culprits if place == 0 else names:
                snapshot[odd][name] += "x"
        blamed = [1] if ranks == 2 else [odd]
        right = (step, where, dict.fromkeys(sorted(culprits), blamed))
        answer = call("first_drift", weights, gradients)
        case = f"{ranks} ranks, {where}, step {step}"
        if t(isinstance(answer, list | tuple) and len(answer) == 3, f"{case}: three results"):
            suspects = {name: list(answer[2][name]) for name in sorted(answer[2])}
            t.equal((answer[0], answer[1], suspects), right, case)
    # Four ranks of which two pairs agree, and five of which each has its own.
    parts = [{"w": text} for text in ("b", "a", "a", "b")]
    t.equal(call("first_drift", [parts], []), (0, "start", {"w": [1, 2]}), "two pairs")
    own = [{"w": text} for text in "edcba"]
    t.equal(call("first_drift", [own], []), (0, "start", {"w": [1, 2, 3, 4]}), "five of their own")


def check_4(t, call, rng):
    """Three processes with three micro-batches, three steps."""
    inputs = [
        [[[float(rng.randrange(-9, 10)) for _ in range(3)] for _ in range(3)] for _ in range(3)]
        for _ in range(3)
    ]
    answers = call("two_processes", inputs)
    if not t(len(answers) == 3, "an answer from each of three processes"):
        return
    right = [sum(x[k] for rank in inputs for x in rank[s]) / 3 for s in range(3) for k in range(3)]
    for gradients, _ in answers:
        if t(len(gradients) == 3, "gradients after each of three steps"):
            found = [float(x) for row in gradients for x in row]
            t.close(found, right, "means of three micro-batches", relative=1e-6, absolute=1e-5)
    sent = sum(num_bytes for _, num_bytes in answers)
    t(sent == 3 * 2 * 2 * 12, f"{sent} bytes sent")


def check_5(t, call, rng):
    """Loops of one to five ranks that leave parameters out; few sizes, so that many agree."""

    def right(used, sizes):
        swaps = []
        for place, met in enumerate(zip_longest(*used)):
            if None in met:
                return ["hang", place, swaps]
            if len(set(map(sizes.__getitem__, met))) > 1:
                return ["mismatch", place, swaps]
            swaps += [place] * (len(set(met)) > 1)
        return ["done", max(map(len, used)), swaps]

    def look(used, sizes):
        answer = call("meet", used, sizes)
        case = f"{used}, sizes {sizes}"
        if t(isinstance(answer, list | tuple) and len(answer) == 3, f"{case}: three results"):
            t.equal([answer[0], answer[1], list(answer[2])], right(used, sizes), case)

    for _ in range(24):
        n = rng.randrange(4, 12)
        sizes = [rng.choice((3, 3, 3, 5)) for _ in range(n)]
        order = rng.sample(range(n), n)
        missing = rng.randrange(3)
        used = []
        for _ in range(rng.randrange(1, 6)):
            left_out = rng.sample(range(n), missing if rng.random() < 0.7 else 0)
            used.append([p for p in order if p not in left_out])
        look(used, sizes)
    equal = [7, 7, 7, 7, 8]
    for used in (
        [[0, 1, 2], [3, 1, 0]],
        [[0, 1, 2], [0, 2]],
        [[0, 4], [0, 4], [0, 1]],
        [[0, 1], [0, 4], [0]],
        [[0, 1, 4], [1, 4]],
        [[2], [2], []],
        [[], []],
    ):
        look(used, equal)
