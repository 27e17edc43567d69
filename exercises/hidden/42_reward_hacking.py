"""Hidden tests of the exercises of chapter 42."""

import itertools
import math
import statistics


def check_1(t, call, rng):
    """Best of n by all rows of draws, with equal scores among them."""
    for _ in range(8):
        size, n = rng.randrange(1, 6), rng.randrange(1, 5)
        drawn = [rng.uniform(0.1, 1) for _ in range(size)]
        p = [x / sum(drawn) for x in drawn]
        scores = [float(rng.randrange(4)) for _ in range(size)]
        right = [0.0] * size
        for row in itertools.product(range(size), repeat=n):
            best = max(row, key=lambda i: scores[i])
            right[best] += math.prod(p[i] for i in row)
        case = f"p {p}, scores {scores}, n {n}"
        t.close(call("best_of", p, scores, n), right, case, relative=1e-9, absolute=1e-12)
        q = [rng.choice([0.0, rng.random()]) for _ in range(size)]
        q = [x / sum(q) for x in q] if sum(q) else p
        told = math.fsum(a * math.log(a / b) for a, b in zip(q, p, strict=True) if a)
        t.close(call("kl", q, p), told, f"{q} from {p}", relative=1e-9, absolute=1e-12)
        many = rng.randrange(1, 5_000)
        t.close(call("formula", many), math.log(many) - 1 + 1 / many, f"n {many}", absolute=1e-9)
    for n in (2, 3, 6, 10):
        m, gap = 1, math.inf
        while gap > 0.01:
            m *= 2
            won = [(k / m) ** n - ((k - 1) / m) ** n for k in range(1, m + 1)]
            exact = math.fsum(x * math.log(m * x) for x in won if x > 0)
            gap = (math.log(n) - (n - 1) / n) / exact - 1
        t.equal(call("answers_needed", n), m, f"n {n}")


def check_2(t, call, rng):
    """Runs with ties, and looks with noise."""
    for _ in range(30):
        length, patience = rng.randrange(1, 12), rng.randrange(1, 6)
        seen = [rng.choice([0.1, 0.2, 0.3, rng.random()]) for _ in range(length)]
        true = [rng.gauss(0, 1) for _ in range(length)]
        for end in range(length):
            kept = seen.index(max(seen[: end + 1]))
            if end - kept >= patience:
                break
        case = f"{seen}, patience {patience}"
        t.equal(list(call("stop", seen, patience)), [kept, end], case)
        t.close(call("regret", true, seen, patience), max(true) - true[kept], case, absolute=1e-9)
        marks = [rng.gauss(0, 2) for _ in range(length + 1)]
        mean = math.fsum(marks) / len(marks)
        spread = math.fsum((x - mean) ** 2 for x in marks) / (len(marks) - 1)
        right = [mean, math.sqrt(spread / len(marks))]
        t.close(list(call("looked", marks)), right, f"{marks}", relative=1e-8, absolute=1e-9)


def check_3(t, call, rng):
    """Judges and answers of any number, and scores of any size."""
    for _ in range(12):
        judges, size = rng.randrange(1, 6), rng.randrange(1, 7)
        scale = rng.choice([1.0, 3.0, 4_000.0])
        scores = [[rng.gauss(0, scale) for _ in range(size)] for _ in range(judges)]
        each = list(zip(*scores, strict=True))
        means = [math.fsum(one) / judges for one in each]
        spreads = [statistics.pstdev(one) for one in each]
        right = {
            "mean": means,
            "worst": [min(one) for one in each],
            "careful": [a - b for a, b in zip(means, spreads, strict=True)],
        }
        near = {"relative": 1e-8, "absolute": 1e-8}
        for how, told in right.items():
            t.close(call("combined", scores, how), told, f"{how} of {scores}", **near)
        beta, gold = rng.choice([0.3, 1.0, 5.0]), [rng.gauss(0, 1) for _ in range(size)]
        score = scores[0]
        weights = [math.exp((s - max(score)) / beta) for s in score]
        policy = [w / math.fsum(weights) for w in weights]
        case = f"{score}, beta {beta}"
        t.close(call("tilted", score, beta), policy, case, **near)
        worth = math.fsum(p * g for p, g in zip(policy, gold, strict=True))
        t.close(call("value", score, gold, beta), worth, case, **near)
    t.equal(call("conclusion"), "shared", "the conclusion")


def check_4(t, call, rng):
    """Sentences of other words."""
    names, numbers, things = ["Mia", "Tom", "Nora"], ["two", "six", "ten"], ["nuts", "pears"]
    for _ in range(12):
        right = f"{rng.choice(names)} has {rng.choice(numbers)} {rng.choice(things)}."
        wanted = right[:-1].split()
        words = [*wanted, *rng.sample([*names, *numbers, "or", "and"], 3)]
        rng.shuffle(words)
        words = list(dict.fromkeys(words))
        text = " ".join(rng.choices(words, k=rng.randrange(0, 7))) + rng.choice(["", ".", ". "])
        found = len(set(wanted) & set(text.replace(".", " ").split())) / len(wanted)
        t.close(call("partial", right, text), found, f"{right!r}, {text!r}", absolute=1e-9)
        glued = "x".join(wanted)  # one word, which holds all others
        t.close(call("partial", right, glued), 0.0, f"{right!r}, {glued!r}", absolute=1e-9)
        length = rng.randrange(1, 7)
        order = [word for word in words if word in wanted][:length]
        order += [words[0]] * (length - len(order))
        case = f"{right!r} with {words}, {length} words"
        t.equal(call("hacked", right, words, length), " ".join(order), case)
        pays = [rng.choice([0.0, 0.5, 1.0, rng.random()]) for _ in range(5)]
        marks = [rng.random() < 0.5 for _ in range(5)]
        fine = [pay for pay, mark in zip(pays, marks, strict=True) if mark]
        wrong = [pay for pay, mark in zip(pays, marks, strict=True) if not mark]
        told = any(a >= b for a in wrong for b in fine)
        t.equal(bool(call("has_hole", pays, marks)), told, f"{pays}, right: {marks}")
        for tail, value in (
            ("", 1.0), (" I am sure.", 1.0), ("  \n", 1.0), (" Yes. No.", 0.0), (" Yes", 0.0),
            (" I am sure. ", 1.0),
        ):  # fmt: skip
            t.close(call("strict", right, right + tail), value, f"{right + tail!r}", absolute=1e-9)
        for wrong in (
            right[:-1],
            f"Yes. {right}",
            f"or {right}",
            right.replace(" has", " or"),
            ".",
        ):
            t.close(call("strict", right, wrong), 0.0, f"{wrong!r}", absolute=1e-9)
