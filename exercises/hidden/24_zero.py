"""Hidden tests of the exercises of chapter 24."""

from bisect import bisect_right

import torch


def check_1(t, call, rng):
    """Every entry is looked up by itself: its rank by the chunks, its parameter by the row."""
    cases = [([(3, 4), (5,), (), (2, 2)], n) for n in (1, 2, 4, 7)]
    cases += [([()], 3), ([(0,), (2,)], 2), ([(2, 0), (0, 5)], 3)]
    for _ in range(5):
        shapes = [
            tuple(rng.randrange(5) for _ in range(rng.randrange(4)))
            for _ in range(rng.randrange(1, 6))
        ]
        cases.append((shapes, rng.randrange(1, 9)))
    for shapes, num_ranks in cases:
        owners = [
            (parameter, entry)
            for parameter, shape in enumerate(shapes)
            for entry in range(_product(shape))
        ]
        ends = [
            (rank + 1) * (len(owners) // num_ranks) + min(rank + 1, len(owners) % num_ranks)
            for rank in range(num_ranks)
        ]
        right = [[] for _ in range(num_ranks)]
        for place, (parameter, entry) in enumerate(owners):
            pieces = right[bisect_right(ends, place)]
            if pieces and pieces[-1][0] == parameter:
                pieces[-1] = (parameter, pieces[-1][1], entry + 1)
            else:
                pieces.append((parameter, entry, entry + 1))
        t.equal(call("shards", shapes, num_ranks), right, f"{shapes} on {num_ranks} ranks")


def _product(shape):
    size = 1
    for each in shape:
        size *= each
    return size


def check_2(t, call, rng):
    """The events of a step, told from the computations that they stand between."""
    cases = [[0], [0, 1, 2, 3], [0, 1, 0], [0, 0], [1, 0, 1, 1], [2, 1, 0, 1, 2]]
    cases += [[rng.randrange(4) for _ in range(rng.randrange(2, 9))] for _ in range(5)]
    for uses in cases:
        n = len(uses)
        units = uses + uses[::-1]
        right = []
        for i, unit in enumerate(units):
            if i == 0 or units[i - 1] != unit:
                right.append(("gather", unit))
            right.append(("forward" if i < n else "backward", unit))
            if i == 2 * n - 1 - uses.index(unit):  # backward of its first use is its last
                right.append(("reduce", unit))
            if i == 2 * n - 1 or units[i + 1] != unit:
                right.append(("free", unit))
        t.equal(call("stage3_schedule", list(uses)), right, f"uses {uses}")


def check_3(t, call, rng):
    """Models and numbers of ranks of all sizes, also those that do not divide."""
    cases = [(0, 3), (1, 1), (1, 5), (128_000_000_000, 1_024), (2**61 + 3, 2)]
    cases += [(rng.randrange(1, 10**13), rng.randrange(2, 20_000)) for _ in range(2)]
    cases += [(7 * n + 1, n) for n in (rng.randrange(2, 99),)]
    for parameters, ranks in cases:
        fullest = (parameters + ranks - 1) // ranks
        for stage in range(4):
            w, g, o = [fullest if stage > 2 - i else parameters for i in range(3)]
            answer = call("bytes_per_gpu", parameters, ranks, stage)
            right = (2 * w, 2 * g, 12 * o)
            t.equal(answer, right, f"{parameters} parameters, {ranks} ranks, stage {stage}")


def check_4(t, call, rng):
    """A ledger of every message of a step."""
    for _ in range(7):
        parameters, ranks = rng.randrange(1, 10**12), rng.randrange(2, 20_000)
        micro, keep = rng.randrange(2, 40), bool(rng.randrange(2))
        for stage in range(4):
            ledger = []
            for number in range(micro):
                last = number == micro - 1
                if stage == 3:
                    ledger += ["gather for forward", "gather for backward"]
                if last or (stage >= 2 and not keep):
                    ledger.append("reduce")
            if stage < 3:
                ledger.append("gather")
            right = len(ledger) * 2 * parameters * (1 - 1 / ranks)
            answer = call("bytes_sent", parameters, ranks, stage, micro, keep)
            case = f"{parameters} parameters, {ranks} ranks, stage {stage}, {micro} micro, {keep}"
            t.close(float(answer), right, case, relative=1e-9)
    t.close(float(call("bytes_sent", 10, 1, 3, 2, True)), 0.0, "one rank")


def check_5(t, call, rng):
    """Layers of other sizes, entry by entry; one has fewer rows than there are ranks."""
    for rows, columns, tokens in ((2, 3, 4), (rng.randrange(8, 12), rng.randrange(2, 6), 3)):
        w, *given = (
            [[float(rng.randrange(-4, 5)) for _ in range(width)] for _ in range(height)]
            for height, width in [(rows, columns), *[(tokens, rows), (tokens, columns)] * 3]
        )
        xs, dys = given[::2], given[1::2]
        found = call("run_layer", _tensor(w), [*map(_tensor, xs)], [*map(_tensor, dys)])
        case = f"{rows} rows, {columns} columns, {tokens} tokens on each rank"
        if not t(isinstance(found, list) and len(found) == 3, f"{case}: three ranks"):
            continue
        mean = [
            [
                sum(
                    x[k][i] * dy[k][j] for x, dy in zip(xs, dys, strict=True) for k in range(tokens)
                )
                / 3
                for j in range(columns)
            ]
            for i in range(rows)
        ]
        ends = [(rows // 3) * r + min(r, rows % 3) for r in range(4)]
        for r, one in enumerate(found):
            y = [[sum(a * w[i][j] for i, a in enumerate(x)) for j in range(columns)] for x in xs[r]]
            dx = [[sum(a * w[i][j] for j, a in enumerate(d)) for i in range(rows)] for d in dys[r]]
            t.close(one["y"], _tensor(y), f"{case}: y of rank {r}")
            t.close(one["dx"], _tensor(dx), f"{case}: dx of rank {r}")
            own = _tensor(mean)[ends[r] : ends[r + 1]]
            t.close(one["dshard"], own, f"{case}: the shard of rank {r}", absolute=1e-5)
            t(one["kept_bytes"] < 4 * rows * columns, f"{case}: rank {r} keeps gathered weights")
        sent = sum(one["sent_bytes"] for one in found)
        t(sent <= 3 * 2 * 4 * rows * columns, f"{case}: {sent} bytes sent")


def _tensor(rows):
    return torch.tensor(rows)
