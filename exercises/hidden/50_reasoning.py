"""Hidden tests of chapter 50."""

import fractions
import itertools
import math

import torch


def check_1(t, call, rng):
    """Sums of all sizes, and texts that are nearly right."""
    for most in (9, 99, 9_999):
        a, b = rng.randrange(1, most + 1), rng.randrange(1, most + 1)
        prompt, right = f"{a} + {b} = ", f"{a + b}"
        if rng.random() < 0.7:
            c, d = rng.randrange(most), rng.randrange(most)
            prompt = f"{c} + {d} = {c + d}\n{prompt}"
        t.equal(call("check_sum", prompt, right), 1.0, f"{prompt!r}, {right!r}")
        other = rng.choice("123456789")
        wrong = [f"{right}{other}", f"{other}{right}", f"{right} {other}", f"{other} {right}"]
        wrong += [f"{prompt}{right}", f"0{right}", f"+{right}", f"-{right}", f"{right}.0", f"{a}"]
        wrong += [f" {right}", f"{right} ", f"{right}\n", f"\n{right}", f"{right}…", f"{a + b + 1}"]
        zero = rng.choice([0x0660, 0x0966, 0xFF10])
        wrong += ["".join(chr(zero + int(digit)) for digit in right), "", "…", "none", right[:-1]]
        wrong += [f"{right[0]}_{right[1:]}"]
        for text in wrong:
            t.equal(call("check_sum", prompt, text), 0.0, f"{prompt!r}, {text!r}")
    text = call("fool")
    t(isinstance(text, str) and len(text) <= 1_000, "a text of at most 1,000 characters")
    missing = [result for result in range(20, 199) if str(result) not in text]
    t.equal(missing[:3], [], "results that do not stand in the text")


def refuses(call, *arguments):
    """Say whether a call ends with a ValueError, which may come as the words of another process."""
    try:
        call(*arguments)
    except Exception as error:
        return "ValueError" in f"{type(error).__name__} {error}"
    return False


def check_2(t, call, rng):
    """Draws of all numbers, against exact fractions."""
    near = {"relative": 1e-6, "absolute": 1e-9}
    for n in (1, rng.randrange(3, 40), rng.randrange(100, 400), 10_000):
        for c in {0, 1, rng.randrange(n), n}:
            for k in {1, rng.randrange(1, n + 1), n}:
                none = fractions.Fraction(math.comb(n - c, k), math.comb(n, k))
                right = float(1 - none)
                t.close(call("pass_at_k", n, c, k), right, f"n {n}, c {c}, k {k}", **near)
        t(refuses(call, "pass_at_k", n, 1, n + rng.randrange(1, 9)), f"n {n} and a larger k")
    for _ in range(4):
        chances = [rng.choice([0.0, 1.0, rng.random()]) for _ in range(rng.randrange(1, 9))]
        k = rng.randrange(1, 65)
        right = math.fsum(1 - math.prod([1 - p] * k) for p in chances) / len(chances)
        t.close(call("pass_at", k, chances), right, f"k {k}, {chances}", **near)
    for n in (2, 5, 12):
        k, p = rng.randrange(2, n + 1), rng.uniform(0.1, 0.9)
        sure = fractions.Fraction(p)
        chances = [math.comb(n, c) * sure**c * (1 - sure) ** (n - c) for c in range(n + 1)]
        short = [1 - fractions.Fraction(n - c, n) ** k for c in range(n + 1)]
        right = sum(a * b for a, b in zip(chances, short, strict=True)) - 1 + (1 - sure) ** k
        t.close(call("bias", n, k, p), float(right), f"n {n}, k {k}, p {p}", **near)


def check_3(t, call, rng):
    """Tables of all shapes, some rows of which are equal."""
    near = {"relative": 1e-6, "absolute": 1e-6}
    for width in (3, *(rng.randrange(2, 9) for _ in range(4))):
        rows = []
        for _ in range(rng.randrange(2, 7)):
            kind = rng.randrange(4)
            if kind == 0:
                rows.append([rng.choice([0.0, 1.0, 0.1, 0.7, -2.3])] * width)
            elif kind == 1:
                rows.append([rng.uniform(-3, 3) for _ in range(width)])
            else:
                rows.append([float(rng.random() < 0.5) for _ in range(width)])
        rows += [[0.1] * width, [1.0] + [0.0] * (width - 1)]
        right = []
        for row in rows:
            exact = [fractions.Fraction(r) for r in row]
            mean = sum(exact) / width
            square = sum((r - mean) ** 2 for r in exact) / width
            right.append([float(r - mean) / math.sqrt(square) if square else 0.0 for r in exact])
        given = torch.tensor(rows, dtype=torch.float64)
        aim = torch.tensor(right, dtype=torch.float64)
        t.close(call("advantages", given), aim, f"{rows}", **near)
        differ = [i for i, row in enumerate(rows) if len({*row}) > 1]
        t.equal(call("kept", given), differ, f"{rows}")
    t.equal(call("kept", torch.ones(3, 4, dtype=torch.float64)), [], "all rewards are 1")
    for group in (1, 2, 3, 5):
        chances = [rng.choice([0.0, 1.0, rng.random(), 0.02]) for _ in range(rng.randrange(1, 6))]
        right = 0.0
        for p in chances:  # over all that the checker can say of a group
            for paid in itertools.product((0, 1), repeat=group):
                if len({*paid}) == 1:
                    right += math.prod(p if r else 1 - p for r in paid) / len(chances)
        t.close(call("silent", chances, group), right, f"{chances}, groups of {group}", **near)


def check_4(t, call, rng):
    """Answers of all numbers, against every order of draws and against exact fractions."""
    near = {"relative": 1e-6, "absolute": 1e-9}

    def drawn(answers):
        parts = [rng.randrange(1, 30) for _ in range(answers)]
        return [fractions.Fraction(part, sum(parts)) for part in parts]

    def by_orders(n, chances):
        won = fractions.Fraction(0)
        for votes in itertools.product(range(len(chances)), repeat=n):
            count = [votes.count(answer) for answer in range(len(chances))]
            if count[0] == max(count):
                won += math.prod(chances[v] for v in votes) / count.count(max(count))
        return won

    def by_series(n, chances):
        """Add answers one by one: what is left of the draws, and how many tie with the first."""
        won = fractions.Fraction(0)
        for c in range(1, n + 1):
            states = {(n - c, 1): chances[0] ** c * math.comb(n, c)}
            for p in chances[1:]:
                new = {}
                for (left, tied), has in states.items():
                    for k in range(min(c, left) + 1):
                        key = left - k, tied + (k == c)
                        new[key] = new.get(key, 0) + has * math.comb(left, k) * p**k
                states = new
            won += sum((has / tied for (left, tied), has in states.items() if not left), 0)
        return won

    for n, answers in ((2, 2), (3, 3), (4, 4), (5, 3), (6, 2)):
        chances = drawn(answers)
        right = by_orders(n, chances)
        case = f"{n} draws, {[*map(str, chances)]}"
        t(right == by_series(n, chances), case)
        t.close(call("wins", n, [*map(float, chances)]), float(right), case, **near)
    for answers in (1, 2, 3, 4, 5):
        chances = drawn(answers)
        right = float(by_series(9, chances))
        case = f"9 draws, {[*map(str, chances)]}"
        first, *others = map(float, chances)
        t.close(call("wins", 9, [first, *others]), right, case, **near)
        if abs(right - first) > 1e-7 or answers == 1:
            t.equal(call("helps", first, others), right > first + 1e-9, case)
    for answers, low, high in ((5, 0.25, 0.45), (1, 0.2, 0.45), (2, 0.35, 0.5)):
        first = rng.uniform(low, high)
        others = [(1 - first) / answers] * answers
        change = by_series(9, [*map(fractions.Fraction, (first, *others))]) - first
        t.equal(call("helps", first, others), change > 1e-9, f"{first} against {others}")
    for answers in (2, 3, 5):
        t.equal(call("helps", 1 / answers, [1 / answers] * (answers - 1)), False, "all alike")
    found = call("examples")
    for (first, *others), rises in zip(found, (True, False), strict=True):
        t(1 <= len(others) <= 5 and abs(first + sum(others) - 1) < 1e-9, f"{found}")
        change = float(by_series(9, [*map(fractions.Fraction, (first, *others))])) - first
        fits = first <= 0.3 and change > 1e-9 if rises else first >= 0.4 and change < -1e-9
        t(fits, f"{found}")


def check_5(t, call, rng):
    """Policies of several sizes, answer by answer."""
    near = {"relative": 1e-6, "absolute": 1e-9}

    def random(*shape):
        numbers = [rng.gauss(0, 1) for _ in range(math.prod(shape))]
        return torch.tensor(numbers, dtype=torch.float64).view(shape)

    for length, cap in ((1, 0.8), (2, 1.02), (3, 1e6), (2, rng.uniform(1, 2))):
        tokens, number = rng.randrange(2, 4), rng.randrange(1, 5)
        theta = random(length, tokens)
        theta_q = theta + 0.7 * random(length, tokens)
        p, q = ([row.softmax(0).tolist() for row in x] for x in (theta, theta_q))

        def slope(answer, advantage, p=p, q=q, cap=cap):
            rows = []
            for place, token in enumerate(answer):
                w = min(p[place][token] / q[place][token], cap) * advantage
                rows.append([w * (x - (i == token)) for i, x in enumerate(p[place])])
            return torch.tensor(rows, dtype=torch.float64)

        drawn = [[rng.randrange(tokens) for _ in range(length)] for _ in range(number)]
        paid = [rng.uniform(-2, 2) for _ in range(number)]
        case = f"{number} answers of {length} tokens, cap {cap}"
        answers = torch.tensor(drawn)
        advantages = torch.tensor(paid, dtype=torch.float64)
        right = sum(slope(a, r) for a, r in zip(drawn, paid, strict=True)) / number
        t.close(call("gradient", theta, theta_q, answers, advantages, cap), right, case, **near)
        log_p, log_q = (
            torch.tensor(
                [[math.log(x[i][a]) for i, a in enumerate(answer)] for answer in drawn],
                dtype=torch.float64,
            )
            for x in (p, q)
        )
        loss = 0.0
        for pay, row_p, row_q in zip(paid, log_p.tolist(), log_q.tolist(), strict=True):
            for a, b in zip(row_p, row_q, strict=True):
                loss -= pay * min(math.exp(a - b), cap) * a / number
        t.close(call("token_loss", log_p, log_q, advantages, cap), loss, f"loss: {case}", **near)
        rewards = random(*[tokens] * length)
        right = 0
        for answer in itertools.product(range(tokens), repeat=length):
            chance = math.prod(q[i][a] for i, a in enumerate(answer))
            right = right + chance * slope(answer, rewards[answer].item())
        t.close(call("expected", theta, theta_q, rewards, cap), right, f"mean: {case}", **near)


def check_6(t, call, rng):
    """Single steps against autograd; whole runs by what all of them have in common."""
    near = {"relative": 1e-6, "absolute": 1e-9}
    for _ in range(5):
        questions, answers, group = rng.randrange(1, 5), rng.randrange(2, 6), rng.randrange(2, 9)
        numbers = [[rng.gauss(0, 1) for _ in range(answers)] for _ in range(questions)]
        drawn = [[rng.randrange(answers) for _ in range(group)] for _ in range(questions)]
        paid = [[float(rng.random() < 0.5) for _ in range(group)] for _ in range(questions)]
        paid[0] = [rng.choice([0.0, 1.0])] * group
        rate = rng.uniform(0.1, 2)
        leaf = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
        log_p, total = leaf.log_softmax(1), 0.0
        for question in range(questions):
            mean = sum(paid[question]) / group
            square = sum((r - mean) ** 2 for r in paid[question]) / group
            for place, r in zip(drawn[question], paid[question], strict=True):
                if square:
                    total += (r - mean) / math.sqrt(square) * log_p[question, place] / group
        slope = torch.autograd.grad(total, leaf)[0] if isinstance(total, torch.Tensor) else 0.0
        given = leaf.detach(), torch.tensor(drawn), torch.tensor(paid, dtype=torch.float64)
        right = leaf.detach() + rate * slope
        t.close(call("step", *given, rate), right, f"{numbers}, {drawn}, {paid}, {rate}", **near)
    rows = [0.1, 0.3, 0.25, 0.2, 0.15], [0.25, 0.2, 0.2, 0.15, 0.2], [0.4, 0.3, 0.15, 0.1, 0.05]
    chances = [rng.sample(row, 5) for row in rows]
    logits = torch.tensor(chances, dtype=torch.float64).log()
    places = [rng.randrange(5) for _ in chances]
    begin = sum(row[place] for row, place in zip(chances, places, strict=True)) / 3
    entropy = -sum(p * math.log(p) for row in chances for p in row) / 3
    for reward in ("right", "coin"):
        for steps in (0, 2):
            curves = call("run", logits, places, reward, steps, 4, 0.5, rng.randrange(100))
            t.equal([len(curve) for curve in curves], [steps + 1] * 2, f"{steps} steps")
            t.close([curve[0] for curve in curves], [begin, entropy], "the start", **near)
    seed = rng.randrange(1000)
    for reward in ("right", "coin"):
        runs = [call("run", logits, places, reward, 5, 8, 1.0, s) for s in (seed, seed, seed + 1)]
        once, again, other = ([*entropies] for _, entropies in runs)
        t(once == again, f"seed {seed} twice, {reward}")
        t(once != other, f"seeds {seed} and {seed + 1}, {reward}")
    for s in range(seed, seed + 2):
        found, entropies = call("run", logits, places, "right", 80, 8, 2.0, s)
        t(found[-1] > 0.9 and entropies[-1] < 0.4, f"right, seed {s}")
    ends = [call("run", logits, places, "coin", 60, 8, 2.0, s) for s in range(seed, seed + 8)]
    t(sum(found[-1] for found, _ in ends) / 8 < begin + 0.4, "a coin does not know what is right")
    fell = [entropy - entropies[-1] for _, entropies in ends]
    t(sum(fell) / 8 > 0.2, "a coin moves the policy")
    said = call("conclusion")
    t.equal([*said["right"], *said["coin"]], ["up", "down", "either", "down"], "what all runs say")
