"""Checks of exercises 08: Synthetic data and distillation."""

import math
import random


def check_1(t, gradient, log_softmax, soft_loss):
    """08.1 Learn from all probabilities"""
    teacher = [math.log(3), math.log(2), 0.0]
    t.close(
        [math.exp(x) for x in log_softmax(teacher, 1)],
        [1 / 2, 1 / 3, 1 / 6],
        "the logits ln 3, ln 2, 0 have the probabilities 1/2, 1/3, 1/6 at T = 1",
        "at T = 1 the probabilities are 1/2, 1/3, 1/6",
    )
    t.close(
        [math.exp(x) for x in log_softmax(teacher, 2)],
        [0.4177376677, 0.3410813774, 0.2411809549],
        "at T = 2 the logits are halved before the softmax, which gives 0.418, 0.341, 0.241",
        "a temperature of 2 brings them closer together",
    )
    t.close(
        log_softmax([5_000.0, 4_990.0], 1),
        [-0.000045398900, -10.000045398900],
        "logits of 5,000 and 4,990 differ by 10: take the largest off before the exponentials, "
        "which are too large for the computer otherwise",
        "logits in the thousands do no harm",
    )
    t.close(
        soft_loss([0.0, 0.0, 0.0], teacher, 1),
        0.0872080240,
        "by hand the loss is 1/2 ln(3/2) + 1/6 ln(1/2) = 0.0872: the teacher's probability stands "
        "in front, and the difference is ln p - ln q",
        "the loss computed by hand is right",
    )
    t.close(
        soft_loss([0.0, 0.0, 0.0], teacher, 4),
        0.1000140331,
        "at T = 4 the loss is 16 times the divergence of the softened ones, 0.1000: T squared "
        "keeps its size",
        "T squared keeps the size of the loss",
    )
    t.close(
        soft_loss([0.0, 0.0], [3_000.0, 0.0], 1),
        math.log(2),
        "a teacher that is certain has p = 1 and p = 0, and the second term is 0: the loss is ln 2",
        "a teacher that is certain gives cross-entropy",
    )
    t.close(
        gradient([0.0, 0.0, 0.0], [math.log(4), math.log(2), 0.0], 1),
        [1 / 3 - 4 / 7, 1 / 3 - 2 / 7, 1 / 3 - 1 / 7],
        "for the teacher's probabilities 4/7, 2/7, 1/7 the gradient at T = 1 is 1/3 minus each of "
        "them: student minus teacher",
        "the gradient is student minus teacher",
    )
    t.close(
        gradient([0.0, 0.0, 0.0], teacher, 2),
        [-0.1688086687, -0.0154960881, 0.1843047569],
        "at T = 2 the gradient is 2 (q - p) = -0.169, -0.015, 0.184: one T of the two in front is "
        "left over",
        "at T = 2 it is 2 (q - p)",
    )


def check_2(t, cost_of_a_kept_token, expected_attempts, keep_verified):
    """08.2 Write, check, keep"""
    taken, good = [], list("ABCDE")

    def proposals(texts):
        for text in texts:
            taken.append(text)
            yield text

    kept, attempts = keep_verified(proposals("aBaCdE"), good, 2, 100)
    t.equal(
        [list(kept), attempts],
        [["B", "C"], 4],
        "of a B a C d E two capitals are kept after four attempts, bad ones counted",
        "two are kept after four attempts",
    )
    t.equal(
        "".join(taken),
        "aBaC",
        "more proposals were asked for than needed: each costs a run of the model, so stop before "
        "taking the next one",
        "no proposal is asked for in vain",
    )
    t.equal(
        [list(x) if isinstance(x, list) else x for x in keep_verified("ABABC", good, 3, 9)],
        [["A", "B", "C"], 5],
        "A and B come twice and are kept once: what is kept again teaches nothing new",
        "what comes again is not kept again",
    )
    t.equal(
        [list(x) if isinstance(x, list) else x for x in keep_verified("aBcDE", good, 3, 4)],
        [["B", "D"], 4],
        "a budget of 4 ends after four proposals, with two kept",
        "the budget is kept",
    )
    t.equal(
        [list(x) if isinstance(x, list) else x for x in keep_verified("aB", good, 3, 9)],
        [["B"], 2],
        "when there are no more proposals, return what was kept",
        "the end of the proposals is the end",
    )
    t.close(
        expected_attempts(100, 0.2),
        500.0,
        "if one in five passes, 100 kept ones take 500 proposals on average",
        "100 at one in five take 500",
    )
    t.close(
        cost_of_a_kept_token(300, 0.25, 2.0),
        8.0,
        "if one in four passes, each kept token has three others beside it that were thrown away: "
        "four times 2.0 was paid for it",
        "at one in four, a kept token costs four times as much",
    )


def check_3(t, chance_to_lose, kinds_left, samples_to_keep):
    """08.3 What is never seen is lost"""
    t.close(
        [chance_to_lose(0.1, 2), chance_to_lose(0.001, 1_000)],
        [0.81, 0.3676954248],
        "a tenth is missing in two samples with 0.9 x 0.9 = 0.81: all n samples have to miss it",
        "all samples have to miss it",
    )
    t.equal(
        [samples_to_keep(0.1, 0.05), samples_to_keep(0.001, 0.05)],
        [29, 2_995],
        "29 samples keep a tenth with 95 %, and 2,995 a thousandth: solve (1 - p)^n <= chance and "
        "round up",
        "about 3 / p samples keep a kind with 95 %",
    )
    t.equal(
        samples_to_keep(0.5, 0.25),
        2,
        "two samples miss a half with exactly 0.25: at most is enough, so the answer is 2",
        "a chance that is met exactly is enough",
    )
    t.close(
        kinds_left([0.5, 0.4, 0.1], 2),
        0.75 + 0.64 + 0.19,
        "of kinds with 0.5, 0.4 and 0.1, two samples hold 0.75 + 0.64 + 0.19 = 1.58 on average: "
        "add the chances that each occurs",
        "two samples hold 1.58 of three kinds on average",
    )


def check_4(t, least_fresh_share, next_generation, what_fresh_text_does, words_alive):
    """08.4 Show the collapse, and stop it"""
    drawn = random.Random(5)
    first = drawn.choices(range(3), weights=[0.5, 0.5, 0.0], k=6)
    both = first + drawn.choices(range(3), weights=[0.2, 0.3, 0.5], k=2)
    shares = next_generation([0.5, 0.5, 0.0], [0.2, 0.3, 0.5], 8, 0.25, random.Random(5))
    t.close(
        list(shares),
        [both.count(word) / 8 for word in range(3)],
        "of 8 words with a quarter fresh, 6 are drawn from what is believed first, then 2 from the "
        "true probabilities; the shares are counts divided by 8",
        "six own words and two fresh ones are counted",
    )
    zipf = [1 / rank for rank in range(1, 51)]
    true = [p / sum(zipf) for p in zipf]
    alone = words_alive(true, 200, 0.0, 20, 1)
    t.equal(
        [len(alone), alone[0]],
        [21, 50],
        "20 generations after generation 0 are 21 numbers, and generation 0 knows all 50 words",
        "generation 0 knows all words",
    )
    t(
        alone == sorted(alone, reverse=True) and alone[-1] < 25,
        "without fresh text no word comes back, and after 20 generations fewer than half are left: "
        "each generation draws from what the one before believes",
        "without fresh text words die and none comes back",
    )
    rng, believed, right = random.Random(7), true, [50]
    for _ in range(5):
        own = rng.choices(range(50), weights=believed, k=180)
        own += rng.choices(range(50), weights=true, k=20)
        believed = [own.count(word) / 200 for word in range(50)]
        right.append(sum(p > 0 for p in believed))
    t.equal(
        list(words_alive(true, 200, 0.1, 5, 7)),
        right,
        "with a tenth of fresh words the numbers alive differ: use one generator for the whole "
        "run, and fresh words in every generation",
        "a run with fresh words is the same every time",
    )
    t.equal(
        least_fresh_share(true, 200, [0.5, 0.0, 0.2], 10, [1, 2, 3], 34),
        0.2,
        "of the shares 0, 0.2 and 0.5 the least that keeps 34 words on average is 0.2: try them "
        "from the smallest on, with the mean over the seeds",
        "the least share that suffices is found",
    )
    t.equal(
        least_fresh_share(true, 200, [0.0, 0.1], 10, [1, 2], 50),
        None,
        "no share keeps all 50 words with samples of 200: then return None",
        "where no share suffices, that is said",
    )
    t.equal(
        what_fresh_text_does(),
        "it brings words back",
        "your conclusion does not fit: with a tenth of fresh text the number of words alive goes "
        "up and down, and settles; it does not go on falling",
        "fresh text brings words back",
    )
