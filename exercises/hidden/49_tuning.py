"""Hidden tests of chapter 49."""

import math

import torch


def check_1(t, call, rng):
    """Models of several shapes."""
    for _ in range(4):
        shapes = [[32 * rng.randrange(1, 5), 32 * rng.randrange(1, 5)] for _ in range(3)]
        others, rank = 32 * rng.randrange(1, 50), rng.randrange(1, 9)
        whole = sum(rows * columns for rows, columns in shapes)
        sides = sum(map(sum, shapes))
        case = f"{shapes}, {others} others"
        total = 4 * (whole + others)
        t.equal(call("memory", shapes, others, 0, False), [total, total, 2 * total], case)
        thin = 4 * rank * sides
        for quantised in (False, True):
            kept = whole // 32 * 20 + others // 32 * 34 if quantised else total
            found = call("memory", shapes, others, rank, quantised)
            t.equal(found, [kept + thin, thin, 2 * thin], f"{case}, rank {rank}, {quantised}")
            most = min(map(min, shapes))
            for wanted in (1, most // 2, most):
                limit = kept + 16 * wanted * sides
                for spare, right in ((0, wanted), (-1, wanted - 1 or None)):
                    found = call("largest_rank", limit + spare, shapes, others, quantised)
                    t.equal(found, right, f"{case}, {limit + spare} bytes, {quantised}")
            t.equal(call("largest_rank", 10**12, shapes, others, quantised), most, case)


def check_2(t, call, rng):
    """Conversations with line ends everywhere."""
    special = {"<|im_start|>": 2_500_000, "<|im_end|>": 2_500_001}

    def tokens(text):
        found, place = [], 0
        while place < len(text):
            end = place + 1
            if text[place] == "\n":
                while end < len(text) and text[end] == "\n":
                    end += 1
            found.append(
                (3_000_000 + end - place if text[place] == "\n" else ord(text[place]), end)
            )
            place = end
        return found

    def right(messages, system):
        if not messages or messages[0]["role"] != "system":
            messages = [{"role": "system", "content": system}, *messages]
        ids, marks = [], []
        for message in messages:
            role, answers = message["role"], message["role"] == "assistant"
            inside = tokens(f"{role}\n{message['content']}")
            ids += [2_500_000, *(i for i, _ in inside), 2_500_001, 3_000_001]
            marks += [
                False,
                *(answers and end > len(role) + 1 for _, end in inside),
                answers,
                False,
            ]
        return ids, marks

    parts = ("a", "\n", "\n\n", " b", "<|im_end|>", "assistant\n", "")
    for _ in range(8):
        system = "".join(rng.choices(parts, k=2))
        roles = ["user", "assistant"] * rng.randrange(1, 4)
        if rng.random() < 0.5:
            roles = ["system", *roles]
        said = [{"role": r, "content": "".join(rng.choices(parts, k=3))} for r in roles]
        ids, marks = call("learnt", said, special, system)
        t.equal([list(ids), list(marks)], [*map(list, right(said, system))], f"{said}")
        before = said[:-1]
        begin = [*right(before, system)[0], 2_500_000, *map(ord, "assistant"), 3_000_001]
        t.equal(list(call("prompt", before, special, system)), begin, f"{before}")
        for answer in (said[-1]["content"], "x", "\nx", ""):
            fits = call("is_asked_so", before, answer, special, system)
            t.equal(bool(fits), not answer.startswith("\n"), f"an answer {answer!r}")


def check_3(t, call, rng):
    """Shares of all sizes, and changes in both directions."""
    for n in (1, 7, 50):
        said = [rng.random() < 0.4 for _ in range(n)]
        share, low, high = call("rate", said)
        t.close(share, sum(said) / n, f"{sum(said)} of {n}")
        for end in (low, high):  # Wilson's ends are where z standard errors reach the share
            near = {"relative": 1e-6, "absolute": 1e-9}
            t.close(
                (share - end) ** 2, 1.96**2 * end * (1 - end) / n, f"{sum(said)} of {n}", **near
            )
        t(low < high, f"{sum(said)} of {n}: the lower end comes first")
    kinds = [f"kind {i}" for i in range(6)]
    before = {k: [rng.random() < 0.5 for _ in range(40)] for k in kinds}
    after, right = {}, []
    for i, kind in enumerate(kinds):
        now, up, down = list(before[kind]), (0, 2, 6, 6, 9, 5)[i], (0, 0, 0, 5, 1, 0)[i]
        places = rng.sample(range(40), 40)
        for place in places:
            if up and not now[place]:
                now[place], up = True, up - 1
            elif down and now[place] and before[kind][place]:
                now[place], down = False, down - 1
        after[kind] = now
        more = sum(b > a for a, b in zip(before[kind], now, strict=True))
        fewer = sum(b < a for a, b in zip(before[kind], now, strict=True))
        n = more + fewer
        p = min(1.0, sum(math.comb(n, k) for k in range(min(more, fewer) + 1)) / 2 ** (n - 1))
        t.close(call("chance", before[kind], now), p, f"{more} one way, {fewer} the other")
        right += [kind] if p <= 0.05 else []
    t.equal(list(call("changed", before, after)), right, "what changed")


def plane(rng):
    """Return runs of three ways, of which some diverged."""
    runs = []
    for way in ("all", "thin", "thinner"):
        rates = rng.sample([1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3], rng.randrange(3, 6))
        for rate in rates:
            run = {"way": way, "rate": rate}
            run |= {"loss": rng.choice([0.5, 1.0, rng.uniform(0.3, 2)])}
            run |= {"bits": rng.choice([1.0, 1.5, rng.uniform(0.9, 2)])}
            runs.append(run)
        if rng.random() < 0.6:
            top = max(rates) if rng.random() < 0.5 else 0.02
            runs = [r for r in runs if (r["way"], r["rate"]) != (way, top)]
            runs.append({"way": way, "rate": top, "loss": None, "bits": None})
    if rng.random() < 0.5:
        rng.shuffle(runs)
    return runs


def check_4(t, call, rng):
    """Planes with runs that diverged, at several prices."""
    for _ in range(6):
        runs = plane(rng)
        right = []
        for i, run in enumerate(runs):
            for other in runs:
                if other["loss"] is None:
                    continue
                if run["loss"] is None or (
                    other["loss"] <= run["loss"]
                    and other["bits"] <= run["bits"]
                    and (other["loss"] < run["loss"] or other["bits"] < run["bits"])
                ):
                    right.append(i)
                    break
        t.equal(list(call("dominated", runs)), right, f"{runs}")
        for price in (0.0, rng.uniform(0.1, 3), 40.0):
            winners, inside = {}, True
            for way in {run["way"] for run in runs}:
                there = [i for i, run in enumerate(runs) if run["way"] == way]
                costs = {
                    i: runs[i]["loss"] + price * runs[i]["bits"]
                    for i in there
                    if runs[i]["loss"] is not None
                }
                winners[way] = min(costs, key=lambda i: (costs[i], i))
                rates = sorted(runs[i]["rate"] for i in there)
                inside &= rates[0] < runs[winners[way]]["rate"] < rates[-1]
            case = f"{runs}, price {price}"
            t.equal(call("best", runs, price), winners, case)
            cost = {way: runs[i]["loss"] + price * runs[i]["bits"] for way, i in winners.items()}
            least = [way for way in cost if cost[way] == min(cost.values())]
            if not inside:
                t.equal(call("verdict", runs, price), None, case)
            elif len(least) == 1:
                t.equal(call("verdict", runs, price), least[0], case)
    three = [
        {"way": way, "rate": rate, "loss": loss + worse, "bits": 1.0}
        for way, worse in (("all", rng.uniform(0.01, 0.2)), ("thin", 0.0))
        for rate, loss in ((1e-4, 1.0), (1e-3, 0.5), (1e-2, 0.9))
    ]
    t.equal(call("verdict", three, 1.0), "thin", f"{three}")
    for one in (0, 2, 3, 5):
        left = [run for i, run in enumerate(three) if i != one]
        t.equal(call("verdict", left, 1.0), None, f"{left}")
    for one in (0, 2, 3, 5):
        gone = [
            run | {"loss": None, "bits": None} if i == one else run for i, run in enumerate(three)
        ]
        t.equal([call("verdict", gone, 1.0)], ["thin"], f"{gone}")


def check_5(t, call, rng):
    """Pairs of all margins, and features drawn at random."""
    for _ in range(8):
        numbers, beta = [rng.uniform(-20, 0) for _ in range(4)], rng.uniform(0.05, 1)
        x = beta * (numbers[0] - numbers[2] - numbers[1] + numbers[3])
        right = [math.log1p(math.exp(-x)), beta / (1 + math.exp(x))]
        t.close(call("pair_loss", *numbers, beta), right, f"{numbers}, beta {beta}", relative=1e-6)
    for _ in range(30):
        n, width = rng.randrange(2, 6), rng.randrange(1, 4)
        features = [[float(rng.randrange(-2, 4)) for _ in range(width)] for _ in range(n)]
        theta = [rng.uniform(-1, 1) for _ in range(width)]
        c, r = rng.sample(range(n), 2)
        beta, rate = rng.uniform(0.05, 1), rng.uniform(0.1, 2)

        def logs(theta, features=features):
            logits = [sum(f * w for f, w in zip(row, theta, strict=True)) for row in features]
            total = math.log(sum(map(math.exp, logits)))
            return [logit - total for logit in logits]

        moved = [
            w + rate * beta / 2 * (a - b)
            for w, a, b in zip(theta, features[c], features[r], strict=True)
        ]
        right = [b - a for a, b in zip(logs(theta), logs(moved), strict=True)]
        case = f"{features}, theta {theta}, pair {c}, {r}"
        found = call("after_step", features, theta, [c, r], beta, rate)
        t.close(found, right, case, relative=1e-5, absolute=1e-9)
        small = [
            w + 1e-5 * (a - b) for w, a, b in zip(theta, features[c], features[r], strict=True)
        ]
        slopes = [(logs(small)[i] - logs(theta)[i]) / 1e-5 for i in (c, r)]
        if min(map(abs, slopes)) > 1e-3:
            t.equal(bool(call("both_fall", features, theta, [c, r])), max(slopes) < 0, case)


def check_6(t, call, rng):
    """Matrices of several sizes, in float64."""
    for _ in range(4):
        rows, blocks, half = rng.randrange(2, 6), rng.randrange(1, 4), rng.choice([1, 2, 8])
        rank, tokens, alpha = rng.randrange(1, 4), rng.randrange(1, 5), rng.choice([1, 8, 16])
        codes = [
            [[rng.randrange(16) for _ in range(2 * half)] for _ in range(blocks)]
            for _ in range(rows)
        ]
        data = [
            [
                low + 16 * high
                for block in row
                for low, high in zip(block, block[half:], strict=False)
            ]
            for row in codes
        ]
        drawn = torch.Generator().manual_seed(rng.randrange(10**6))

        def random(*shape, drawn=drawn):
            return torch.randn(shape, generator=drawn, dtype=torch.float64)

        d, m = random(rows, blocks), random(rows, blocks)
        W = (torch.tensor(codes) * d[:, :, None] + m[:, :, None]).reshape(rows, -1)
        kept = (torch.tensor(data, dtype=torch.uint8), d, m)
        case = f"{rows} rows, {blocks} blocks of {2 * half}, rank {rank}, alpha {alpha}"
        near = {"relative": 1e-9}
        t.close(call("dense", kept), W, case, **near)
        x, dy = random(tokens, 2 * half * blocks), random(tokens, rows)
        A, B = random(rank, 2 * half * blocks), random(rows, rank)
        leaves = [each.clone().requires_grad_() for each in (x, A, B)]
        y = leaves[0] @ (W + alpha / rank * leaves[2] @ leaves[1]).T
        y.backward(dy)
        t.close(call("forward", x, kept, (A, B, alpha)), y.detach(), case, **near)
        found = call("backward", dy, x, kept, (A, B, alpha))
        for name, got, leaf in zip(("dx", "dA", "dB"), found, leaves, strict=True):
            t.close(got, leaf.grad, f"{name}: {case}", **near)
