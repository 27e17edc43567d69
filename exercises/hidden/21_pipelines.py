"""Hidden tests of the exercises of chapter 21."""

import math
from fractions import Fraction
from functools import cache


def check_1(t, call, rng):
    """1F1B by another rule: forward while fewer than p - r are live, else backward."""
    cases = [(0, 4, 8), (3, 4, 8), (1, 4, 2), (0, 6, 3), (0, 1, 3), (2, 5, 9)]
    for _ in range(6):
        p = rng.randrange(2, 10)
        cases.append((rng.randrange(p), p, rng.randrange(1, 20)))
    for rank, p, m in cases:
        right, gone, back = [], 0, 0
        while back < m:
            if gone < m and gone - back < p - rank:
                right.append(("F", gone))
                gone += 1
            else:
                right.append(("B", back))
                back += 1
        t.equal(
            call("actions_of_rank", rank, p, m), right, f"rank {rank} of {p}, {m} micro-batches"
        )


def _any_order(rng, p, m, v):
    """Return rows that can be run: actions in a random order in which they can happen."""
    stages = p * v
    rows = [[] for _ in range(p)]
    todo = [(kind, k, s) for kind in "FB" for k in range(m) for s in range(stages)]
    while todo:
        waiting = {*todo}
        free = [a for a in todo if not _needed(a, stages) & waiting]
        kind, k, s = rng.choice(free)
        todo.remove((kind, k, s))
        rows[s % p].append((kind, k, s // p))
    return rows


def _needed(action, stages):
    kind, k, s = action
    if kind == "F":
        return {("F", k, s - 1)}
    return {("F", k, s), ("B", k, s + 1)}


def check_2(t, call, rng):
    """Times by recursion, from the action that is asked for back to the first."""
    turns = [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)]
    cases = [([[(kind, k, 0) for kind in "FB" for k in range(3)]] * 4, 2, 3)]
    cases += [([[(*a, 0) for a in turns], [(k, n, 0) for n in range(3) for k in "FB"]], 3, 1)]
    for _ in range(4):
        sizes = rng.randrange(2, 5), rng.randrange(2, 5), rng.randrange(1, 4)
        cases.append((_any_order(rng, *sizes), rng.randrange(1, 6), rng.randrange(1, 6)))
    cases += [(_any_order(rng, 3, 3, 2), 1, 2), (_any_order(rng, 1, 3, 2), 1, 2)]
    for rows, forward, backward in cases:
        right = _right_2(rows, {"F": forward, "B": backward})
        answer = call("bubble", rows, forward, backward)
        t.equal(answer, right, f"{rows}, units {forward} and {backward}")


def _right_2(rows, units):
    p = len(rows)
    stages = p * (1 + max(c for row in rows for _, _, c in row))
    places = {}
    for r, row in enumerate(rows):
        places |= {(kind, k, c * p + r): (r, i) for i, (kind, k, c) in enumerate(row)}

    @cache
    def end(r, i):
        if i < 0:
            return 0
        kind, k, c = rows[r][i]
        source = c * p + r + (-1 if kind == "F" else 1)
        start = end(r, i - 1)
        if 0 <= source < stages:
            start = max(start, end(*places[kind, k, source]))
        return start + units[kind]

    length = max(end(r, len(row) - 1) for r, row in enumerate(rows))
    working = sum(units[kind] for row in rows for kind, _, _ in row)
    return Fraction(p * length - working, working).as_integer_ratio()


def _held_rows(rng, p, m, v):
    """Return rows of F with B, or with I and W, in any order on each rank."""
    rows = []
    for _ in range(p):
        split = rng.randrange(2)
        left = {
            (k, c): ["F", "I", "W"] if split else ["F", "B"] for k in range(m) for c in range(v)
        }
        row = []
        while left:
            key = rng.choice(sorted(left))
            row.append((left[key].pop(0), *key))
            if not left[key]:
                del left[key]
        rows.append(row)
    return rows


def check_3(t, call, rng):
    """For each forward pass, all whose time from F to B or W includes it."""
    gpipe = [[(kind, k, 0) for kind in "FB" for k in range(5)]] * 3
    halves = [[(kind, k, 0) for kind in "FIW" for k in range(4)]]
    turns = [[(kind, k, 0) for k in range(4) for kind in "FIW"]]
    two = [[("F", 0, 0), ("F", 0, 1), ("B", 0, 1), ("B", 0, 0)], []]
    steps = [("F", 0), ("F", 1), ("I", 0), ("F", 2), ("I", 1), ("W", 0), ("I", 2), ("W", 1)]
    cases = [gpipe, halves, turns, two, [[(*a, 0) for a in [*steps, ("W", 2)]]]]
    for _ in range(6):
        sizes = rng.randrange(1, 5), rng.randrange(1, 7), rng.randrange(1, 4)
        cases.append(_held_rows(rng, *sizes))
    for rows in cases:
        right = []
        for row in rows:
            spans = {}
            for i, (_, *what) in enumerate(row):
                spans.setdefault(tuple(what), []).append(i)
            begins = [i for i, action in enumerate(row) if action[0] == "F"]
            counts = [sum(each[0] <= i <= each[-1] for each in spans.values()) for i in begins]
            right.append(max(counts, default=0))
        t.equal(call("most_held", rows), right, f"{rows}")


def check_4(t, call, rng):
    """GPipe, 1F1B and last first, of random micro-batches; gradients by hand."""
    num_micro, width = rng.randrange(3, 6), rng.randrange(1, 5)
    weights = [[rng.uniform(0.3, 1.5) for _ in range(width)] for _ in range(3)]
    inputs = [[rng.uniform(-2, 2) for _ in range(width)] for _ in range(num_micro)]
    forward = [f"F{k}" for k in range(num_micro)]
    backward = [f"B{k}" for k in range(num_micro)]
    by_turns = []
    for ahead in (2, 1, 0):
        row = forward[:ahead]
        for k in range(num_micro - ahead):
            row = [*row, forward[k + ahead], backward[k]]
        by_turns.append([*row, *backward[num_micro - ahead :]])
    right = [[0.0] * width for _ in range(3)]
    for k, x in enumerate(inputs):
        for i in range(width):
            values = [x[i]]
            for weight in weights:
                values.append(math.tanh(weight[i] * values[-1]))
            slope = 2 * (k + 1) * values[3]
            for rank in (2, 1, 0):
                inner = slope * (1 - values[rank + 1] ** 2)
                right[rank][i] += inner * values[rank]
                slope = inner * weights[rank][i]
    cases = {
        "1F1B": by_turns,
        "GPipe": [[*forward, *backward]] * 3,
        "last first": [[*forward, *backward[::-1]]] * 3,
    }
    for case, rows in cases.items():
        answers = call("three_stages", rows, weights, inputs)
        for rank, (gradient, passes) in enumerate(answers):
            t.close(
                [float(g) for g in gradient], right[rank], f"{case}: rank {rank}", relative=1e-9
            )
            kinds = "".join(word[0] for word in rows[rank])
            t(passes == kinds, f"{case}: passes of rank {rank}")


def _talk(rng, n, length, swaps):
    """Return rows in which messages come in one order for all, but for some swaps."""
    rows = [[] for _ in range(n)]
    for _ in range(length):
        a, b = rng.sample(range(n), 2)
        rows[a].append(("send", b))
        rows[b].append(("receive", a))
    for _ in range(swaps):
        row = rng.choice(rows)
        if len(row) > 1:
            i = rng.randrange(len(row) - 1)
            row[i], row[i + 1] = row[i + 1], row[i]
    return rows


def check_5(t, call, rng):
    """What can happen, by a graph of events; without buffers a send and its receive are one."""
    s, r = "send", "receive"
    cases = [
        [[(r, 1), (s, 1)], [(s, 0), (r, 0)]],
        [[(s, 1), (r, 1)], [(s, 0), (r, 0)]],
        [[(r, 2), (s, 1)], [(r, 0), (s, 2)], [(r, 1), (s, 0)]],
        [[(r, 1), (s, 1)], [(r, 0), (s, 0), (s, 2)], [(r, 1)]],
        [[(s, 1), (r, 1), (s, 1)], [(r, 0), (r, 0), (s, 0)]],
        [[(r, 2)], [(r, 2), (s, 2)], [(r, 1), (s, 1), (s, 0)]],
        [[(s, 1), (r, 2), (s, 2)], [(r, 2), (r, 0)], [(r, 0), (s, 0), (s, 1)]],
    ]
    cases += [_talk(rng, rng.randrange(2, 6), rng.randrange(2, 12), n) for n in (0, 1, 3, 5, 8)]
    for rows in cases:
        for buffered in (True, False):
            right = _right_5(rows, buffered)
            t.equal(call("waiting", rows, buffered), right, f"{rows}, buffered = {buffered}")


def _right_5(rows, buffered):
    events, numbers = [], {}
    for rank, row in enumerate(rows):
        events.append([])
        for what, other in row:
            pair = (rank, other) if what == "send" else (other, rank)
            number = numbers[what, pair] = numbers.get((what, pair), -1) + 1
            events[rank].append((what if buffered else "message", pair, number))
    before = {}
    for chain in events:
        for last, event in zip([None, *chain], chain, strict=False):
            needs = before.setdefault(event, set())
            needs |= {last} if last else set()
            if event[0] == "receive":
                needs.add(("send", *event[1:]))
    happened = set()
    while new := {e for e, needs in before.items() if needs <= happened} - happened:
        happened |= new
    stuck, waits_for = [], {}
    for rank, chain in enumerate(events):
        place = next((i for i, event in enumerate(chain) if event not in happened), None)
        if place is not None:
            stuck.append((rank, place))
            waits_for[rank] = rows[rank][place][1]
    if not stuck:
        return None
    rank = stuck[0][0]
    for _ in rows:
        rank = waits_for[rank]  # in the ring for certain
    ring = [rank]
    while waits_for[ring[-1]] != rank:
        ring.append(waits_for[ring[-1]])
    first = ring.index(min(ring))
    return stuck, ring[first:] + ring[:first]
