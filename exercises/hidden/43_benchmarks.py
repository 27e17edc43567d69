"""Hidden tests of the exercises of chapter 43."""

import math
from collections import Counter
from random import Random

WAYS = ("plain", "per token", "per byte", "unconditional")


def check_1(t, call, rng):
    """Choices of any length, with ties."""
    for _ in range(8):
        items = []
        for _ in range(rng.randrange(1, 6)):
            choices = []
            for _ in range(rng.randrange(2, 5)):
                tokens = [-rng.choice([0.5, 1.0, 2.25, 3.0]) for _ in range(rng.randrange(1, 5))]
                choices.append([tokens, rng.randrange(1, 20), -rng.uniform(0, 20)])
            items.append([choices, rng.randrange(len(choices))])
        for how in WAYS:
            right = 0
            for choices, place in items:
                scores = []
                for tokens, size, alone in choices:
                    total = math.fsum(tokens)
                    each = dict(
                        zip(WAYS, (total, total / len(tokens), total / size, total - alone))  # noqa: B905
                    )[how]
                    scores.append(each)
                    found = call("score", [tokens, size, alone], how)
                    t.close(found, each, f"{tokens}, {size}, {alone}: {how}", relative=1e-9)
                best = scores.index(max(scores))
                t.equal(call("pick", choices, how), best, f"{choices}, {how}")
                right += best == place
            t.close(call("accuracy", items, how), right / len(items), f"{items}, {how}")


def check_2(t, call, rng):
    """Stories of unequal sizes in any order."""
    for _ in range(8):
        stories = [rng.choice("abcd") for _ in range(rng.randrange(2, 12))]
        values = [float(rng.random() < 0.5) for _ in stories]
        names = list(dict.fromkeys(stories))
        picks = [rng.randrange(len(names)) for _ in names]
        drawn = [v for k in picks for v, s in zip(values, stories, strict=True) if s == names[k]]
        case = f"{values} of {stories}, picks {picks}"
        t.close(
            call("resampled", values, stories, picks),
            math.fsum(drawn) / len(drawn),
            case,
            absolute=1e-9,
        )
        numbers = [rng.uniform(-1, 1) for _ in range(rng.randrange(1, 9))]
        q = rng.choice([0.0, 0.025, 0.5, 0.975, 1.0])
        ordered, place = sorted(numbers), q * (len(numbers) - 1)
        low = int(place)
        above = ordered[min(low + 1, len(numbers) - 1)]
        expected = ordered[low] * (1 - place + low) + above * (place - low)
        t.close(call("quantile", numbers, q), expected, f"{numbers}, {q}", absolute=1e-9)
    for seed in (rng.randrange(10**6) for _ in range(3)):
        stories = [rng.choice("abcde") for _ in range(12)]
        values = [rng.uniform(0, 1) for _ in stories]
        names = list(dict.fromkeys(stories))
        drawn, means = Random(seed), []
        for _ in range(40):
            picks = [drawn.randrange(len(names)) for _ in names]
            kept = [v for k in picks for v, s in zip(values, stories, strict=True) if s == names[k]]
            means.append(math.fsum(kept) / len(kept))
        means.sort()
        ends = []
        for place in (0.025 * 39, 0.975 * 39):
            low = int(place)
            ends.append(means[low] + (place - low) * (means[low + 1] - means[low]))
        found = call("interval", values, stories, 40, seed)
        t.close(list(found), ends, f"{values} of {stories}, seed {seed}", absolute=1e-9)


def check_3(t, call, rng):
    """Battles of several players, each of whom wins now and then."""
    for _ in range(4):
        names = "abcde"[: rng.randrange(2, 6)]
        battles = [[a, b, rng.choice([0, 0.5, 1])] for a in names for b in names if a != b] * 2
        battles += [[a, b, 1] for a in names for b in names if a != b]
        rng.shuffle(battles)
        won = Counter()
        for first, second, score in battles:
            won[first] += score
            won[second] += 1 - score
        found = call("wins", battles)
        t.close([found[n] for n in names], [won[n] for n in names], f"{battles}: wins")
        p = call("strengths", battles, 300)
        expected = dict.fromkeys(names, 0.0)
        for first, second, _ in battles:
            chance = p[first] / (p[first] + p[second])
            expected[first] += chance
            expected[second] += 1 - chance
        t.close(
            [expected[n] for n in names],
            [won[n] for n in names],
            f"{battles}: expected wins",
            relative=1e-4,
        )
        t.close(math.prod(p.values()), 1.0, f"{battles}: geometric mean", relative=1e-6)
        rating, step = dict.fromkeys(names, 1000.0), rng.choice([4, 16, 32])
        for first, second, score in battles:
            chance = 1 / (1 + 10 ** ((rating[second] - rating[first]) / 400))
            rating[first] += step * (score - chance)
            rating[second] -= step * (score - chance)
        found = call("elo", battles, step)
        t.close([found[n] for n in names], [rating[n] for n in names], f"{battles}: elo")
        ranks = list(call("ranking", rating))
        t.equal(ranks, sorted(names, key=lambda n: -rating[n]), f"{rating}: ranking")


def check_4(t, call, rng):
    """Losses of many tokens on texts of several scripts."""
    for _ in range(8):
        text = "".join(rng.choice(["Once", "東京", "é", " ", "🙂"]) for _ in range(9)) + "."
        losses = [rng.uniform(0, 5) for _ in range(rng.randrange(1, 20))]
        total, number = math.fsum(losses), rng.randrange(1, 20)
        near = {"relative": 1e-9}
        t.close(call("perplexity", losses), math.exp(total / len(losses)), f"{losses}", **near)
        bits = total / math.log(2) / len(text.encode("utf8"))
        t.close(call("bits_per_byte", losses, text), bits, f"{losses} on {text!r}", **near)
        found = call("perplexity_in", losses, number)
        t.close(found, math.exp(total / number), f"{losses} over {number}", **near)
        models = [[f"m{k}", [rng.uniform(0, 5) for _ in range(k + 1)]] for k in range(4)]
        rng.shuffle(models)
        t.equal(call("best", models, text), min(models, key=lambda m: sum(m[1]))[0], f"{models}")


def check_5(t, call, rng):
    """Splits of every kind, and what was seen."""
    for _ in range(20):
        b, c = rng.randrange(0, 30), rng.randrange(0, 30)
        tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1))
        right = min(1.0, 2 * tail / 2 ** (b + c))
        t.close(call("sign_test", b, c), right, f"{b} and {c}", absolute=1e-12)
    for _ in range(4):
        p, q, number = rng.random(), rng.random(), rng.randrange(1, 60)
        told = []
        for seed in range(12):
            drawn = Random(seed)
            pairs = [(drawn.random() < p, drawn.random() < q) for _ in range(number)]
            b, c = pairs.count((True, False)), pairs.count((False, True))
            both = pairs.count((True, True))
            found = list(call("one_test", number, p, q, seed))
            t.equal(found, [both + b, both + c, b, c], f"{number} items, {p}, {q}, seed {seed}")
            tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1))
            told.append((b > c, c > b, min(1.0, 2 * tail / 2 ** (b + c)) <= 0.05))
        shares = [sum(column) / 12 for column in zip(*told, strict=True)]
        found = list(call("outcomes", number, p, q, 12))
        t.close(found, shares, f"{number} items, {p}, {q}: twelve tests", absolute=1e-9)
    t.equal(list(call("conclusion")), [3200, "one test in four"], "the conclusion")
