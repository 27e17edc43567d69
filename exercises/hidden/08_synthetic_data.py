"""Hidden tests of the exercises of chapter 08."""

import math
import random


def check_1(t, call, rng):
    """Logits of many sizes and temperatures."""

    def log_softmax(logits, temperature):
        scaled = [z / temperature for z in logits]
        top = max(scaled)
        total = top + math.log(sum(math.exp(z - top) for z in scaled))
        return [z - total for z in scaled]

    for _ in range(8):
        size, temperature = rng.randrange(2, 9), rng.choice([0.5, 1, 2, 4.0, 10])
        scale = rng.choice([1, 5, 2_000])
        student, teacher = ([rng.gauss(0, scale) for _ in range(size)] for _ in range(2))
        log_q, log_p = log_softmax(student, temperature), log_softmax(teacher, temperature)
        case = f"student {student}, teacher {teacher}, T = {temperature}"
        # Near a probability of 1, rounding of logits in the thousands is all that is left.
        near = {"relative": 1e-6, "absolute": 1e-9}
        t.close(call("log_softmax", student, temperature), log_q, case, **near)
        pairs = list(zip(log_p, log_q, strict=True))
        right = temperature**2 * sum(math.exp(a) * (a - b) for a, b in pairs)
        t.close(call("soft_loss", student, teacher, temperature), right, case, **near)
        slope = [temperature * (math.exp(b) - math.exp(a)) for a, b in pairs]
        t.close(call("gradient", student, teacher, temperature), slope, case, **near)


def check_2(t, call, rng):
    """Proposals with repetitions, budgets and rates."""
    found = call("keep_verified", list("aBcDE"), list("ABCDE"), 3, 4)
    t.equal([list(found[0]), found[1]], [["B", "D"], 4], "a budget that ends before the proposals")
    for _ in range(8):
        texts = [rng.choice("abcdABCDEF") for _ in range(rng.randrange(30))]
        wanted, budget = rng.randrange(0, 7), rng.randrange(0, 25)
        kept, attempts = [], 0
        for text in texts:
            if len(kept) == wanted or attempts == budget:
                break
            attempts += 1
            if text.isupper() and text not in kept:
                kept.append(text)
        found = call("keep_verified", texts, list("ABCDEF"), wanted, budget)
        case = f"{texts}, {wanted} wanted, budget {budget}"
        t.equal([list(found[0]), found[1]], [kept, attempts], case)
        again = call("keep_verified", list("AxAByBC"), list("ABC"), 3, 20)
        t.equal([list(again[0]), again[1]], [["A", "B", "C"], 7], "what comes again")
        rate = rng.uniform(0.01, 1)
        right = wanted / rate
        t.close(call("expected_attempts", wanted, rate), right, f"rate {rate}", relative=1e-9)
        cost = rng.uniform(0.1, 3)
        found = call("cost_of_a_kept_token", rng.randrange(1, 900), rate, cost)
        t.close(found, cost / rate, f"rate {rate}, cost {cost}", relative=1e-9)


def check_3(t, call, rng):
    """Rare and frequent kinds."""
    for _ in range(8):
        p, n = rng.choice([0.5, 0.1, 0.01, rng.random() / 2]), rng.randrange(1, 400)
        case = f"p = {p}, n = {n}"
        t.close(call("chance_to_lose", p, n), (1 - p) ** n, case, relative=1e-6)
        chance, right = rng.choice([0.5, 0.05, rng.uniform(0.01, 0.9)]), 1
        while (1 - p) ** right > chance:
            right += 1
        t.equal(call("samples_to_keep", p, chance), right, f"p = {p}, chance {chance}")
        parts = [rng.random() for _ in range(rng.randrange(1, 20))]
        probabilities = [x / sum(parts) for x in parts]
        right = sum(1 - (1 - x) ** n for x in probabilities)
        found = call("kinds_left", probabilities, n)
        t.close(found, right, f"{probabilities}, {n}", relative=1e-6)
    t.equal(call("samples_to_keep", 0.5, 0.125), 3, "a chance that is met exactly")


def check_4(t, call, rng):
    """Languages of several sizes, shares and seeds."""

    def run(true, n, fresh, generations, seed):
        draws, believed, alive, kinds = random.Random(seed), true, [len(true)], range(len(true))
        for _ in range(generations):
            m = round(fresh * n)
            words = draws.choices(kinds, weights=believed, k=n - m)
            words += draws.choices(kinds, weights=true, k=m)
            believed = [words.count(word) / n for word in kinds]
            alive.append(sum(p > 0 for p in believed))
        return alive

    for _ in range(4):
        parts = [1 / rank for rank in range(1, rng.randrange(10, 40))]
        true = [x / sum(parts) for x in parts]
        n, fresh, seed = rng.randrange(40, 120), rng.choice([0.0, 0.1, 0.3]), rng.randrange(10**6)
        case = f"{len(true)} words, n = {n}, fresh {fresh}, seed {seed}"
        found = call("words_alive", true, n, fresh, 6, seed)
        t.equal(list(found), run(true, n, fresh, 6, seed), case)
        seeds, shares = [seed, seed + 1], [0.4, 0.0, 0.2]
        ends = {s: sum(run(true, n, s, 6, each)[-1] for each in seeds) / 2 for s in shares}
        wanted = rng.choice(list(ends.values()))
        enough = [s for s in shares if ends[s] >= wanted]
        found = call("least_fresh_share", true, n, shares, 6, seeds, wanted)
        t.equal(found, min(enough), f"{case}, {wanted} wanted")
        none = call("least_fresh_share", true, n, shares, 6, seeds, len(true) + 1)
        t.equal(none, None, f"{case}, more wanted than there are")
    t.equal(call("what_fresh_text_does"), "it brings words back", "the conclusion")
