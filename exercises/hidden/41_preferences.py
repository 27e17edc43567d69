"""Hidden tests of the exercises of chapter 41."""

import math


def sigma(x):
    """1 / (1 + exp(-x)), for x of any size."""
    return 0.5 * (1 + math.tanh(x / 2))


def soft(x):
    """-ln sigma(x), for x of any size."""
    return max(-x, 0.0) + math.log1p(math.exp(-abs(x)))


def shares(rng, number):
    """Random probabilities."""
    drawn = [rng.uniform(0.05, 1) for _ in range(number)]
    return [x / sum(drawn) for x in drawn]


def check_1(t, call, rng):
    """Scores of any size, and tables of wins with holes."""
    for _ in range(6):
        a, b = rng.uniform(-9, 9), rng.uniform(-9, 9)
        t.close(call("preferred", a, b), sigma(a - b), f"{a} against {b}", relative=1e-6)
        size = rng.choice([1, 30, 3_000])
        chosen, rejected = ([rng.uniform(-size, size) for _ in range(7)] for _ in range(2))
        right = sum(soft(c - r) for c, r in zip(chosen, rejected, strict=True)) / 7
        t.close(call("bt_loss", chosen, rejected), right, f"{chosen} {rejected}", relative=1e-6)
    for _ in range(3):
        n = rng.randrange(2, 5)
        wins = [[rng.randrange(0, 9) * (a != b) for b in range(n)] for a in range(n)]
        wins[0][1] += 1
        number, r, steps = sum(map(sum, wins)), [0.0] * n, rng.randrange(1, 9)
        for _ in range(steps):
            slope = [
                sum(
                    wins[b][a] * sigma(r[a] - r[b]) - wins[a][b] * sigma(r[b] - r[a])
                    for b in range(n)
                )
                for a in range(n)
            ]
            r = [x - 1.5 * s / number for x, s in zip(r, slope, strict=True)]
        t.close(call("scores", wins, steps, 1.5), r, f"{wins}", relative=1e-6, absolute=1e-9)


def check_2(t, call, rng):
    """Policies, references and pairs of many kinds, by differences of logits."""
    for _ in range(8):
        n, beta = rng.randrange(2, 6), rng.uniform(0.05, 3)
        logits, kept = ([rng.uniform(-3, 3) for _ in range(n)] for _ in range(2))
        pairs = [rng.sample(range(n), 2) for _ in range(rng.randrange(1, 6))]
        case = f"{logits}, {kept}, {pairs}, beta {beta}"
        ahead = [beta * ((logits[c] - kept[c]) - (logits[r] - kept[r])) for c, r in pairs]
        t.close(call("margin", logits, kept, pairs[0], beta), ahead[0], case, relative=1e-6)
        right = sum(map(soft, ahead)) / len(pairs)
        t.close(call("dpo_loss", logits, kept, pairs, beta), right, case, relative=1e-6)
        slopes = [0.0] * n
        for (c, r), x in zip(pairs, ahead, strict=True):
            slopes[c] -= beta * sigma(-x) / len(pairs)
            slopes[r] += beta * sigma(-x) / len(pairs)
        found = call("dpo_gradient", logits, kept, pairs, beta)
        t.close(found, slopes, case, relative=1e-6, absolute=1e-9)


def check_3(t, call, rng):
    """Groups of any size, some of them of equal rewards."""
    for _ in range(8):
        n = rng.randrange(2, 7)
        rewards = [rng.choice([0.0, 1.0, rng.uniform(-2, 2)]) for _ in range(n)]
        rewards = rng.choice([rewards, rewards, [rewards[0]] * n])
        lengths = [rng.randrange(1, 60) for _ in range(n)]
        middle = math.fsum(rewards) / n
        equal = min(rewards) == max(rewards)
        plain = [0.0] * n if equal else [r - middle for r in rewards]
        spread = math.sqrt(sum(a * a for a in plain) / n) or 1.0
        scaled = [a / spread for a in plain]
        near = {"relative": 1e-6, "absolute": 1e-9}
        t.close(call("advantages", rewards, False), plain, f"{rewards}", **near)
        t.close(call("advantages", rewards, True), scaled, f"{rewards}", **near)
        for by_length in (True, False):
            case = f"{rewards}, {lengths}, {by_length}"
            right = [
                a / (m if by_length else max(lengths)) for a, m in zip(scaled, lengths, strict=True)
            ]
            t.close(call("token_weights", rewards, lengths, by_length), right, case, **near)
            worst = min(range(n), key=lambda i: (round(right[i], 9), i))
            found = call("longest_blame", rewards, lengths, by_length)
            if equal:
                t.equal(found, None, case)
            else:
                t.close(right[found], right[worst], case, **near)
    t.equal(call("conclusion"), "long", "the conclusion")


def check_4(t, call, rng):
    """Distributions of many kinds, some with answers that are never drawn."""
    near = {"relative": 1e-6, "absolute": 1e-9}
    for _ in range(8):
        a, b = rng.uniform(-9, 0), rng.uniform(-9, 0)
        x = a - b
        t.close(call("estimates", a, b), [x, x**2 / 2, math.expm1(-x) + x], f"{a}, {b}", **near)
        n = rng.randrange(2, 6)
        pi, ref = shares(rng, n), shares(rng, n)
        if rng.random() < 0.4:
            pi = [0.0, *shares(rng, n - 1)]
        case = f"{pi} from {ref}"
        logs = [math.log(p / q) if p else 0.0 for p, q in zip(pi, ref, strict=True)]
        exact = math.fsum(p * x for p, x in zip(pi, logs, strict=True))
        t.close(call("exact_kl", pi, ref), exact, case, **near)
        forms = (lambda x: x, lambda x: x * x / 2, lambda x: math.expm1(-x) + x)
        for which, form in enumerate(forms, 1):
            values = [form(x) for x in logs]
            mean = math.fsum(p * k for p, k in zip(pi, values, strict=True))
            square = math.fsum(p * (k - mean) ** 2 for p, k in zip(pi, values, strict=True))
            found = call("mean_and_deviation", pi, ref, which)
            t.close(found, [mean, math.sqrt(square)], f"{case}, k{which}", **near)
    t.equal(list(call("conclusion")), [3, 1], "the conclusion")


def check_5(t, call, rng):
    """Ratios inside and outside, advantages of either sign and 0."""
    near = {"relative": 1e-6, "absolute": 1e-9}
    for _ in range(8):
        n, clip = rng.randrange(1, 9), rng.uniform(0.05, 0.5)
        new, old = ([rng.uniform(-1, 0) for _ in range(n)] for _ in range(2))
        push = [rng.choice([0.0, rng.uniform(-2, 2), rng.uniform(-2, 2)]) for _ in range(n)]
        case = f"{new}, {old}, {push}, clip {clip}"
        total, slopes, still = 0.0, [], 0
        for a, b, advantage in zip(new, old, push, strict=True):
            ratio = math.exp(a - b)
            above, below = ratio > 1 + clip, ratio < 1 - clip
            held = 1 + clip if above else 1 - clip if below else ratio
            stop = (above and advantage > 0) or (below and advantage < 0)
            total += advantage * (held if stop else ratio)
            slopes.append(0.0 if stop else ratio * advantage / n)
            still += stop
        t.close(call("objective", new, old, push, clip), total / n, case, **near)
        t.close(call("gradient", new, old, push, clip), slopes, case, **near)
        t.close(call("stopped", new, old, push, clip), still / n, case, **near)


def check_6(t, call, rng):
    """Policies of several sizes, near and far from the reference."""
    near = {"relative": 1e-6, "absolute": 1e-9}
    forms = (lambda x: x, lambda x: x * x / 2, lambda x: math.expm1(-x) + x)
    slopes = (lambda x: 1.0, lambda x: x, lambda x: -math.expm1(-x))
    for _ in range(5):
        n = rng.randrange(2, 6)
        pi, ref = shares(rng, n), shares(rng, n)
        logs = [math.log(p / q) for p, q in zip(pi, ref, strict=True)]
        for which in (1, 2, 3):
            for name, rule in (("reward_gradient", forms), ("loss_gradient", slopes)):
                each = [rule[which - 1](x) for x in logs]
                right = [
                    math.fsum(pi[a] * each[a] * ((a == b) - pi[b]) for a in range(n))
                    for b in range(n)
                ]
                t.close(call(name, pi, ref, which), right, f"{name} {pi} {ref} k{which}", **near)
    t.equal(list(call("conclusion")), [1, 2], "the conclusion")
