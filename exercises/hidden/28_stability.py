"""Hidden tests of the exercises of chapter 28."""

import math

import torch


def middle(values):
    """Return the median."""
    ordered = sorted(values)
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def check_1(t, call, rng):
    """Runs with single spikes, long ones, new levels and numbers that are not finite."""
    settings = [(3, 2.0, 0.0, 1), (4, 3.0, 0.3, 2), (5, 8.0, 0.1, 3), (8, 4.0, 1.0, 4)]
    for window, factor, least_rise, patience in settings * 3:
        level, values = 5.0, []
        while len(values) < 80:
            level += rng.choice((-0.02, -0.02, 0.5))
            kind = rng.random()
            if kind < 0.1:
                values += [level + rng.uniform(1, 30) for _ in range(rng.randrange(1, 6))]
            elif kind < 0.15:
                values.append(rng.choice((math.nan, math.inf, -math.inf)))
            elif kind < 0.2:
                values.append(level - rng.uniform(0, 30))
            else:
                values.append(level + rng.gauss(0, 0.1))
        right, held, row = [], [], 0
        for value in values:
            full, limit = len(held) == window, None
            if full:
                centre = middle(held)
                apart = middle([abs(h - centre) for h in held])
                limit = max(centre + factor * 1.4826 * apart, centre + least_rise)
            if math.isnan(value) or math.isinf(value):
                right.append("not finite")
            elif not full or value <= limit:
                held = held[1:] if full else held
                held, row = [*held, value], 0
                right.append("fine")
            elif row + 1 < patience:
                row += 1
                right.append("spike")
            else:
                held, row = [value], 0
                right.append("new level")
        case = f"window {window}, factor {factor}, least rise {least_rise}, patience {patience}"
        t.equal(call("verdicts", values, window, factor, least_rise, patience), right, case)
    t.equal(call("verdicts", [], 3, 1.0, 0.0, 1), [], "no values")
    whole = call("verdicts", [1.0, 1.0, 1.0, 1.0, 3.0, 3.5], 4, 9.0, 2.0, 5)
    t.equal(whole, ["fine"] * 5 + ["spike"], "a value equal to the limit")
    values = [1.0, 2.0, 3.0, 9.0, 2.0, 9.0, 2.0, 9.0, math.nan, 9.0]
    right = ["fine"] * 3 + ["spike", "fine", "spike", "fine", "spike", "not finite", "new level"]
    t.equal(call("verdicts", values, 3, 2.0, 0.0, 2), right, "spikes that are no row, and a row")


def check_2(t, call, rng):
    """Every batch is asked by itself whether it survived: whether a return reaches behind it."""

    def look(num_batches, every, noticed, skip):
        used, returns, marks, resume = [], [], [], 0
        for batch in range(num_batches):
            if batch >= resume:
                used.append(batch)
                if batch % every == 0:
                    marks = [*marks[-1:], batch]
                if batch in noticed:
                    marks = [marks[0]]
                    returns.append((batch, marks[0]))
                    resume = batch + 1 + skip
        lost = [range(kept, at + 1) for at, kept in returns]
        survived = [batch for batch in used if not any(batch in span for span in lost)]
        answer = call("replay", num_batches, every, list(noticed), skip)
        case = f"{num_batches} batches, every {every}, noticed {noticed}, skip {skip}"
        if t(isinstance(answer, list | tuple) and len(answer) == 2, f"{case}: two lists"):
            t.equal(list(answer[1]), returns, f"{case}: returns")
            t.equal(list(answer[0]), survived, f"{case}: batches in the weights")

    look(0, 5, [], 3)
    look(7, 1, [0, 1, 6], 0)
    look(40, 10, [20, 30], 0)
    look(60, 10, [23, 26, 33, 47], 0)
    look(90, 10, [23, 46, 58], 12)
    look(50, 10, [23], 0)
    look(50, 7, [24, 25, 26], 0)
    for _ in range(14):
        num_batches, every = rng.randrange(20, 120), rng.randrange(1, 15)
        noticed = sorted(rng.sample(range(num_batches), rng.randrange(5)))
        look(num_batches, every, noticed, rng.choice((0, 0, 1, 9, 30)))


def normal(rng, *shape):
    """Return random numbers in float64."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def check_3(t, call, rng):
    """Each score by itself, from two short lists of numbers."""

    def vector(numbers, gains, eps, position):
        k = len(numbers)
        root = math.sqrt(math.fsum(n * n for n in numbers) / k + eps)
        scaled = [gain * n / root for gain, n in zip(gains, numbers, strict=True)]
        turned = []
        for pair in range(k // 2):
            angle = position * 10_000.0 ** (-2 * pair / k)
            a, b = scaled[2 * pair : 2 * pair + 2]
            turned.append(a * math.cos(angle) - b * math.sin(angle))
            turned.append(a * math.sin(angle) + b * math.cos(angle))
        return turned

    sizes = [(1, 1, 2), (3, 2, 4), (5, 1, 6), (4, 3, 2), (2, 4, 8), (6, 2, 2)]
    for num_tokens, num_heads, k in sizes:
        shape = (num_tokens, num_heads, k)
        q, keys = 30 * normal(rng, *shape) + 1, 0.1 * normal(rng, *shape)
        q[:, 0] *= 7  # heads differ in length
        gains = [2 * normal(rng, k) for _ in range(2)]
        for gain in gains:
            gain[rng.randrange(k)] = -9 - rng.random()
        eps = rng.choice((1e-6, 0.02, 1.0))
        right = torch.empty(num_heads, num_tokens, num_tokens, dtype=torch.float64)
        for h in range(num_heads):
            for i in range(num_tokens):
                for j in range(num_tokens):
                    left = vector(q[i, h].tolist(), gains[0].tolist(), eps, i)
                    other = vector(keys[j, h].tolist(), gains[1].tolist(), eps, j)
                    products = [a * b for a, b in zip(left, other, strict=True)]
                    right[h, i, j] = math.fsum(products) / math.sqrt(k)
        answer = call("scores_and_limit", q.flatten(1), keys.flatten(1), *gains, num_heads, eps)
        case = f"{num_tokens} tokens, {num_heads} heads of {k} channels, eps {eps}"
        if t(isinstance(answer, list | tuple) and len(answer) == 2, f"{case}: two results"):
            t.close(answer[0], right, f"{case}: scores", relative=1e-9)
            largest = [max(abs(g) for g in gain.tolist()) for gain in gains]
            limit = math.sqrt(k) * largest[0] * largest[1]
            t.close(answer[1], limit, f"{case}: limit", relative=1e-9)


def output(kind, weight, x):
    """Return what a layer computes."""
    return {
        "linear": lambda: x @ weight.T,
        "gain": lambda: x * weight,
        "norm": lambda: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5),
        "exp": x.exp,
        "softmax": lambda: x.softmax(-1),
        "entropy": lambda: torch.where(x > 0, -x * x.log(), 0.0),
    }[kind]()


def expected(layers, x, slope, largest):
    """Return the first bad tensor, from one graph over all layers."""
    leaves = [w if w is None else w.clone().requires_grad_() for _, w in layers]
    h, outputs = x.clone().requires_grad_(), []
    for (kind, _), weight in zip(layers, leaves, strict=True):
        h = output(kind, weight, h)
        h.retain_grad()
        outputs.append(h)
    h.backward(slope)
    looked = [(place, "weight", w) for place, (_, w) in enumerate(layers) if w is not None]
    looked += [(place, "output", out.detach()) for place, out in enumerate(outputs)]
    for place in reversed(range(len(layers))):
        looked.append((place, "gradient of the output", outputs[place].grad))
        if leaves[place] is not None:
            looked.append((place, "gradient of the weight", leaves[place].grad))
    for place, what, values in looked:
        numbers = values.flatten().tolist()
        good = sum(-largest <= n <= largest and not math.isinf(n) for n in numbers)
        if good < len(numbers):
            return place, what, 1 - good / len(numbers)
    return None


def check_4(t, call, rng):
    """Long chains with one fault or several: each place, each kind, with and without a limit."""
    width = rng.randrange(3, 6)

    def chain():
        w = [(normal(rng, width, width) / 2).float() for _ in range(2)]
        layers = [("linear", w[0]), ("norm", None), ("gain", torch.ones(width)), ("linear", w[1])]
        x = normal(rng, rng.randrange(1, 4), width).float()
        return layers, x, torch.ones_like(x)

    def look(case, layers, x, slope, largest):
        right = expected(layers, x, slope, largest)
        answer = call("first_bad", layers, x, slope, largest)
        t.close(answer, right, f"{case}, largest {largest}", relative=1e-6)
        return right

    for largest in (math.inf, 1e6):
        look("no fault", *chain(), largest)
        for bad in (math.nan, -math.inf, 3e30, -3e30):
            layers, x, slope = chain()
            layers[3][1][rng.randrange(width), 0] = bad
            look(f"weight of layer 3 with {bad}", layers, x, slope, largest)
            layers, x, slope = chain()
            slope[0, rng.randrange(width)] = bad
            look(f"slope with {bad}", layers, x, slope, largest)
        layers, x, slope = chain()
        layers.insert(1, ("exp", None))
        layers[0] = ("linear", 1000 * torch.eye(width))
        x[:, 0] = 1.0
        look("exp of 1000", layers, x, slope, largest)
        layers.append(("gain", torch.full((width,), math.nan)))
        look("exp of 1000 and a weight behind it", layers, x, slope, largest)
    for largest in (3.0, 2.9):
        layers = [("linear", -3 * torch.eye(width))]
        look("a weight of -3", layers, torch.ones(1, width), torch.ones(1, width), largest)
    layers, x, slope = chain()
    layers += [("softmax", None), ("gain", torch.ones(width)), ("entropy", None)]
    layers[2] = ("gain", torch.full((width,), 3000.0))
    for largest in (math.inf, 1e7):
        right = look("entropy of a sharp softmax", layers, x, slope, largest)
        t(right is not None and right[:2] == (5, "gradient of the output"), "the tests are right")
    doubled = [("linear", 2 * torch.eye(width))] * 3
    x = torch.full((2, width), 1e20)
    x[:, 1] = 0
    for largest, scale in ((math.inf, 1e25), (1e30, 1e15), (1e9, 1.0), (1e23, 1.0)):
        look("gradient of a weight", doubled, x, torch.full_like(x, scale), largest)


def check_5(t, call, rng):
    """Every score by itself, in heads of very different size; and the clip must hold afterwards."""

    def scores(w_q, w_k, x, num_heads):
        k = len(w_q) // num_heads
        found = []
        for h in range(num_heads):
            rows = range(h * k, (h + 1) * k)
            queries, keys = (
                [
                    [math.fsum(a * b for a, b in zip(w[r], token, strict=True)) for r in rows]
                    for token in x
                ]
                for w in (w_q, w_k)
            )
            found.append(
                max(
                    math.fsum(a * b for a, b in zip(queries[i], keys[j], strict=True))
                    / math.sqrt(k)
                    for i in range(len(x))
                    for j in range(i + 1)
                )
            )
        return found

    for num_tokens, num_heads, k, d in [(1, 1, 1, 1), (5, 3, 2, 4), (7, 4, 3, 5), (3, 2, 6, 2)] * 2:
        w_q, w_k = (normal(rng, num_heads * k, d) for _ in range(2))
        sizes = torch.tensor([rng.choice((0.1, 1.0, 9.0)) for _ in range(num_heads)])
        w_q = w_q * sizes.double().repeat_interleave(k)[:, None]
        x = 2 * normal(rng, num_tokens, d)
        before = scores(w_q.tolist(), w_k.tolist(), x.tolist(), num_heads)
        tau = rng.choice((0.5, 4.0, sorted(map(abs, before))[num_heads // 2] * 0.9))
        kept = w_q.clone(), w_k.clone()
        case = f"{num_tokens} tokens, {num_heads} heads of {k} channels, tau {tau:.3g}"
        answer = call("qk_clip", w_q, w_k, x, num_heads, tau)
        if not t(isinstance(answer, list | tuple) and len(answer) == 3, f"{case}: three results"):
            continue
        new_q, new_k, largest = answer
        t(torch.equal(w_q, kept[0]) and torch.equal(w_k, kept[1]), f"{case}: what was given")
        t.close(list(largest), before, f"{case}: largest scores", relative=1e-9)
        factors = [math.sqrt(tau / s) if s > tau else 1.0 for s in before]
        rows = torch.tensor(factors, dtype=torch.float64).repeat_interleave(k)[:, None]
        t.close(new_q, kept[0] * rows, f"{case}: queries", relative=1e-9)
        t.close(new_k, kept[1] * rows, f"{case}: keys", relative=1e-9)
