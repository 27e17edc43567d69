"""Hidden tests of the exercises of chapter 15."""

import math

import torch


def _drawn(rng, *shape, scale=1.0):
    numbers = [rng.gauss(0, scale) for _ in range(math.prod(shape))]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def _shaped(t, answer, shapes, case):
    """Say whether an answer is tensors of these shapes."""
    found = [tuple(getattr(part, "shape", ("none",))) for part in answer]
    return t(found == shapes, f"{case}: tensors of shapes {shapes}")


def check_1(t, call, rng):
    """Networks of many shapes; each part is looked up by hidden unit."""
    for ranks in (1, 2, 3, 5):
        tokens, width, each = rng.randrange(1, 6), rng.randrange(2, 9), rng.randrange(1, 5)
        hidden = ranks * each
        x, bias = _drawn(rng, tokens, width), _drawn(rng, width)
        gate_up, down = _drawn(rng, width, 2 * hidden), _drawn(rng, hidden, width)
        total, case = torch.zeros(tokens, width, dtype=torch.float64), f"{hidden} on {ranks} ranks"
        for rank in range(ranks):
            answer = call("network_on_rank", x, gate_up, down, bias, rank, ranks)
            shapes = [(width, 2 * each), (each, width), (tokens, width)]
            if not _shaped(t, answer, shapes, case):
                return
            units = [rank * each + i for i in range(each)]
            columns = units + [hidden + unit for unit in units]
            t.equal(answer[0], gate_up[:, columns], f"{case}: gate_up of rank {rank}")
            t.equal(answer[1], down[units], f"{case}: down of rank {rank}")
            total += answer[2]
        right = bias.expand(tokens, -1).clone()
        for unit in range(hidden):
            gate, up = x @ gate_up[:, unit], x @ gate_up[:, hidden + unit]
            right += torch.outer(gate * torch.sigmoid(gate) * up, down[unit])
        t.close(total, right, f"{case}: the sum of the summands", relative=1e-10)


def check_2(t, call, rng):
    """A block of random size; the gradients are found entry by entry, from the formula."""
    for _ in range(2):
        tokens, hidden, width = (3 * rng.randrange(1, 4) for _ in range(3))
        x, gain, dy = _drawn(rng, tokens, width), _drawn(rng, width), _drawn(rng, tokens, width)
        gate, up, down = (_drawn(rng, *s) for s in [(width, hidden)] * 2 + [(hidden, width)])
        found = call("three_processes", x, gain, gate, up, down, dy)
        case = f"{tokens} tokens of width {width}, {hidden} hidden units"
        if not t(all(one["y"].shape == (tokens // 3, width) for one in found), f"{case}: shapes"):
            return
        scale = (x.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        h = x * scale * gain
        a, b = h @ gate, h @ up
        sigmoid = torch.sigmoid(a)
        dhidden = dy @ down.T
        da = dhidden * b * sigmoid * (1 + a * (1 - sigmoid))
        db = dhidden * a * sigmoid
        dh = da @ gate.T + db @ up.T
        dn = dh * gain
        dx = dy + scale * (dn - x * scale.square() * (dn * x).mean(1, keepdim=True))
        t.close(
            torch.cat([one["y"] for one in found]),
            x + (a * sigmoid * b) @ down,
            f"{case}: y",
            relative=1e-9,
        )
        t.close(torch.cat([one["dx"] for one in found]), dx, f"{case}: dx", relative=1e-9)
        for name, whole, dim in (
            ("dG", h.T @ da, 1),
            ("dU", h.T @ db, 1),
            ("dW", (a * sigmoid * b).T @ dy, 0),
        ):
            joined = torch.cat([one[name] for one in found], dim)
            t.close(joined, whole, f"{case}: {name}", relative=1e-9)
        dgain = sum(one["dgain"] for one in found)
        t.close(dgain, (dh * x * scale).sum(0), f"{case}: the gain", relative=1e-9)
        t(all(sum(one["seen"].tolist()) == tokens // 3 for one in found), f"{case}: norms")
        sent = sum(one["sent_bytes"].item() for one in found)
        t(sent <= 8 * x.nbytes, f"{case}: {sent} bytes sent")


def check_3(t, call, rng):
    """Rings in which chunks come in any order; after each, the state is that of all keys so far."""
    for ranks, size in ((2, 2), (3, 4), (4, 2)):
        length, width = ranks * size, rng.randrange(2, 6)
        places = list(range(length))
        rng.shuffle(places)
        held = [torch.tensor(places[r * size : (r + 1) * size]) for r in range(ranks)]
        q, k, v = (_drawn(rng, length, width, scale=3.0) for _ in range(3))
        for rank in range(ranks):
            at, order = held[rank], list(range(ranks))
            rng.shuffle(order)
            if not rank:  # the last positions first
                order.sort(key=lambda r: -int(held[r].max()))
            state = (
                torch.full((size,), -math.inf, dtype=torch.float64),
                torch.zeros(size, dtype=torch.float64),
                torch.zeros(size, width, dtype=torch.float64),
            )
            seen = []
            for r in order:
                answer = call("ring_step", state, q[at], k[held[r]], v[held[r]], at, held[r])
                case = f"{ranks} ranks, chunks {order}, after chunk {r}"
                if not _shaped(t, answer, [(size,), (size,), (size, width)], case):
                    return
                seen += held[r].tolist()
                state = _state_of(q[at], k[seen], v[seen], at, torch.tensor(seen))
                t.close(answer, state, case, relative=1e-9)
    # The first query may look at nothing yet.
    q, k, v = _drawn(rng, 2, 3), _drawn(rng, 2, 3), _drawn(rng, 2, 3)
    at, late = torch.tensor([0, 3]), torch.tensor([1, 2])
    empty = _state_of(q, k[:0], v[:0], at, late[:0])
    answer = call("ring_step", empty, q, k, v, at, late)
    t.close(answer, _state_of(q, k, v, at, late), "nothing to look at", relative=1e-9)
    # Scores in the thousands, the largest of them last.
    state = empty
    for i in range(2):
        key = (1_000.0 * (i + 1)) * q[1:] / q[1].square().sum()
        state = call("ring_step", state, q, key, v[:1], at, torch.tensor([i + 1]))
    t.close(float(state[0][1]), 2_000 / math.sqrt(3), "large scores", relative=1e-9)
    t.close(float(state[1][1]), 1.0, "large scores: the sum", relative=1e-9)


def _state_of(q, k, v, q_positions, k_positions):
    """The state after all of some keys, query by query."""
    largest, total, out = [], [], []
    for query, place in zip(q, q_positions, strict=True):
        allowed = k_positions <= place
        scores = (k[allowed] @ query) / math.sqrt(len(query))
        top = float(scores.max()) if len(scores) else -math.inf
        weights = torch.exp(scores - top)
        largest.append(top)
        total.append(float(weights.sum()))
        out.append((weights[:, None] * v[allowed]).sum(0))
    return (
        torch.tensor(largest, dtype=torch.float64),
        torch.tensor(total, dtype=torch.float64),
        torch.stack(out),
    )


def check_4(t, call, rng):
    """Routings of up to five ranks: the rows of a rank are sorted, and then looked up."""
    for ranks, share in ((1, 3), (2, 2), (3, 3), (5, 2), (4, 1)):
        experts = list(range(ranks * share))
        used = rng.sample(experts, max(1, len(experts) - 2)) if share > 1 else experts
        chosen = [[rng.choice(used) for _ in range(rng.randrange(4, 12))] for _ in range(ranks)]
        if ranks > 1:
            chosen[0] += [experts[-1]] * 5  # uneven on purpose
        if ranks > 3:
            chosen[2] = []
        rows = [(e, r, i) for r, part in enumerate(chosen) for i, e in enumerate(part)]
        sent = [[0] * ranks for _ in range(ranks)]
        for e, r, _ in rows:
            sent[r][e // share] += 1
        landed = [sorted(row for row in rows if row[0] // share == d) for d in range(ranks)]
        places = [[None] * len(part) for part in chosen]
        for d, part in enumerate(landed):
            for place, (_, r, i) in enumerate(part):
                places[r][i] = (d, place)
        starts = [
            [sum(row[0] < d * share + j for row in landed[d]) for j in range(share)]
            for d in range(ranks)
        ]
        answer = call("plan_of", chosen, ranks * share)
        case = f"{ranks} ranks with {share} experts each, {chosen}"
        if t(isinstance(answer, list | tuple) and len(answer) == 4, f"{case}: four lists"):
            t.equal(answer[0], sent, f"{case}: sent")
            t.equal(answer[1], [list(column) for column in zip(*sent, strict=True)], "received")
            t.equal(answer[2], starts, f"{case}: starts")
            t.equal(answer[3], places, f"{case}: places")
    answer = call("plan_of", [[3, 0, 3, 1, 3], [1, 0, 3]], 4)
    t.equal(answer[0], [[2, 3], [2, 1]], "sent and received differ")
    t.equal(answer[2], [[0, 2], [0, 0]], "an expert without rows")


FAULTS = ("none", "dp sum", "cp mean", "tp norm", "tp entrance", "kv copies")


def check_5(t, call, rng):
    """Logs made up from the six patterns, with rounding, and curves that part after step 1."""
    for heads in (2, 2, 4):
        meshes = [(2, 4, 2), (rng.choice((3, 4)), 1, 2), (1, 2, 1), (2, 8, rng.choice((2, 4)))]
        meshes.append((1, heads, 2))
        # A fault must be told from all others by all runs, whatever their order.
        for fault in FAULTS:
            alone = {"losses": _curve(rng, rng.uniform(2, 9)), "norms": _curve(rng, 0.7)}
            runs = [_run(rng, alone, mesh, fault, heads) for mesh in meshes]
            rng.shuffle(runs)
            runs.insert(0, _run(rng, alone, (2, 4, 2), fault, heads))
            t.equal(call("name_fault", alone, runs, heads), fault, f"{fault}, {heads} heads")
    alone = {"losses": _curve(rng, 5.0), "norms": _curve(rng, 0.7)}
    for fault in ("dp sum", "cp mean"):
        runs = [_run(rng, alone, (n, tp, n), fault, 2) for n, tp in ((1, 4), (2, 1), (4, 2))]
        t.equal(call("name_fault", alone, runs, 2), fault, f"{fault} with dp = cp")


def _curve(rng, first):
    return [first * math.exp(-0.1 * step) * rng.uniform(0.97, 1.03) for step in range(8)]


def _run(rng, alone, mesh, fault, heads):
    """A log whose first step has the pattern of a fault."""
    dp, tp, cp = mesh
    norm = {
        "none": 1,
        "dp sum": dp,
        "cp mean": cp,
        "tp norm": math.sqrt(tp),
        "tp entrance": rng.uniform(0.95, 0.995) if tp > 1 else 1,
        "kv copies": rng.uniform(0.96, 0.995) if tp > heads else 1,
    }[fault]
    norms = [x * norm * (1 + rng.uniform(-1, 1) * 1e-13) for x in alone["norms"]]
    times = cp if fault == "cp mean" else 1
    losses = [x * times * (1 + rng.uniform(-1, 1) * 1e-13) for x in alone["losses"]]
    if fault in ("tp norm", "tp entrance", "kv copies"):  # other updates
        later = range(1, len(losses))
        losses[1:] = [losses[i] * (1 + 0.02 * i * rng.uniform(0.5, 1)) for i in later]
        norms[1:] = [norms[i] * (1 + 0.02 * i * rng.uniform(0.5, 1)) for i in later]
    return {"dp": dp, "tp": tp, "cp": cp, "losses": losses, "norms": norms}
