"""Checks of exercises 43: Validation loss and benchmarks."""

import math
import random


def check_1(t, accuracy, pick, score):
    """43.1 Choice scoring"""
    ways = ("plain", "per token", "per byte", "unconditional")
    one = [[-1.0, -2.0], 6, -4.0]
    t.close(
        [score(one, how) for how in ways[:3]],
        [-3.0, -1.5, -0.5],
        "the log-probability of a choice is the sum of those of its tokens: -3; divided by 2 "
        "tokens -1.5, by 6 bytes -0.5",
        "three scores are those by hand",
    )
    t.close(
        score(one, "unconditional"),
        1.0,
        "unconditional: -3 after the prompt, less -4 after nothing: the prompt has made the choice "
        "likelier, and the score is +1",
        "the prompt's share is found",
    )
    choices = [[[-3.0], 3, -2.0], [[-2.0, -2.0], 20, -9.0], [[-1.0, -1.0, -2.5], 15, -5.0]]
    t.equal(
        [pick(choices, how) for how in ways],
        [0, 2, 1, 1],
        "the highest score wins, and a score of -3 is higher than one of -4",
        "each way has its winner",
    )
    tie = [[[-2.0], 4, -1.0], [[-2.0], 4, -1.0]]
    t.equal(
        [pick(tie, how) for how in ways],
        [0, 0, 0, 0],
        "of equal choices take the first",
        "of equals the first wins",
    )
    t.close(
        [accuracy([[choices, 0], [choices, 2], [tie, 1]], how) for how in ways],
        [1 / 3, 1 / 3, 0.0, 0.0],
        "count the items whose picked place is the right one, and divide by the number of items",
        "the share of right items is found",
    )


def check_2(t, interval, quantile, resampled):
    """43.2 A bootstrap interval, also in clusters"""
    values, stories = [1, 0, 0, 1], ["a", "b", "b", "c"]
    t.close(
        [resampled(values, stories, [1, 1, 2]), resampled(values, stories, [0, 1, 2])],
        [0.2, 0.5],
        "picks 1, 1, 2 are the stories b, b, c: the values 0, 0, 0, 0, 1; take the mean over the "
        "values, not over the stories",
        "a story brings all its values, as often as it is picked",
    )
    t.close(
        [quantile([40, 10, 20], 0.75), quantile([40, 10, 20], 0.0), quantile([7], 0.9)],
        [30, 10, 7],
        "sort first; 0.75 of 2 steps is the place 1.5, half-way between 20 and 40",
        "quantiles are interpolated",
    )
    same = interval([1] * 5 + [0] * 5, list("aaaaabbbbb"), 400, 0)
    t.close(
        same,
        [0.0, 1.0],
        "of two stories, one all right and one all wrong, a quarter of the samples is all right "
        "and a quarter all wrong: draw as many stories as there are, not as many as items",
        "ten items of two stories say very little",
    )
    rng = random.Random(1)
    easy = [rng.random() for _ in range(100)]
    right = [float(rng.random() < p) for p in easy for _ in range(5)]
    names = [place for place in range(100) for _ in range(5)]
    clustered = interval(right, names, 400, 2)
    alone = interval(right, list(range(500)), 400, 2)
    t(
        1.2 < (clustered[1] - clustered[0]) / (alone[1] - alone[0]) < 1.9,
        "with five items of each of 100 stories the interval is about one and a half times as wide "
        "as for 500 items that have nothing in common",
        "clusters widen the interval",
    )


def check_3(t, elo, ranking, strengths, wins):
    """43.3 Bradley–Terry and Elo"""
    battles = [["x", "y", 1], ["x", "y", 1], ["y", "x", 0], ["x", "y", 0]]
    found = wins([*battles, ["z", "x", 0.5]])
    t.equal(
        [found["x"], found["y"], found["z"]],
        [3.5, 1, 0.5],
        "a battle [y, x, 0] is a win of x, the second player; a draw is half a win for both",
        "wins are counted for both sides",
    )
    p = strengths(battles, 200)
    t.close(
        [p["x"] / p["y"], p["x"] * p["y"]],
        [3.0, 1.0],
        "x won three of four battles, so p_x / p_y = 3; after each round divide by the geometric "
        "mean, so that the product of all is 1",
        "two players by hand",
        relative=1e-6,
    )
    rng = random.Random(0)
    many = [[a, b, float(rng.random() < 0.65)] for a, b in ["ab", "bc", "ac", "cd", "ad"] * 30]
    p = strengths(many, 500)
    fought = {i: [b if i == a else a for a, b, _ in many if i in (a, b)] for i in "abcd"}
    expected = [sum(p[i] / (p[i] + p[other]) for other in fought[i]) for i in "abcd"]
    t.close(
        expected,
        [wins(many)[i] for i in "abcd"],
        "at the end each player's expected wins are his real ones: compute all new p from the old "
        "ones, and sum over all battles of a player, whether he stands first or second",
        "expected wins are real wins",
        relative=1e-5,
    )
    r = elo([["x", "y", 1], ["y", "x", 1]], 32)
    t.close(
        [r["x"], r["y"]],
        [998.529, 1001.471],
        "the first win of equals brings 16 points; the second one brings y 32 times 0.546, since "
        "984 against 1,016 was expected to lose",
        "Elo goes battle by battle",
        relative=1e-5,
    )
    t.equal(
        list(ranking({"x": 1.0, "y": 3.0, "z": 2.0})),
        ["y", "z", "x"],
        "the highest number comes first",
        "the strongest comes first",
    )


def check_4(t, best, bits_per_byte, perplexity, perplexity_in):
    """43.4 Perplexity across tokenizers"""
    t.close(
        [perplexity([math.log(2)] * 4), perplexity([math.log(2), math.log(8)])],
        [2.0, 4.0],
        "e to the mean loss: of ln 2 and ln 8 the mean is ln 4, and not the mean of 2 and 8",
        "perplexity is e to the mean loss",
    )
    t.close(
        [bits_per_byte([math.log(2)] * 4, "abcdefgh"), bits_per_byte([math.log(2)] * 4, "東京")],
        [0.5, 4 / 6],
        "4 tokens of one bit each are 4 bits, over the bytes of the text: 8 letters are 8 bytes, "
        "and 東京 has 6",
        "bits are divided by bytes",
    )
    t.close(
        perplexity_in([math.log(2)] * 4, 2),
        4.0,
        "the whole loss is 4 ln 2; over two tokens each costs 2 ln 2, and e to it is 4",
        "the same loss over other tokens",
    )
    text = "Once there was a girl named Emma."
    models = [["fine", [0.9] * 33], ["coarse", [3.0] * 9]]
    t.equal(
        [best(models, text), min(models, key=lambda m: perplexity(m[1]))[0]],
        ["coarse", "fine"],
        "the fine one pays 29.7 nats for the text and the coarse one 27: the better model pays "
        "less for the same text, whatever its tokens",
        "perplexity would name the other one",
    )


def check_5(t, conclusion, one_test, outcomes, sign_test):
    """43.5 How many items?"""
    sure = [list(one_test(5, 1.0, q, 0)) for q in (0.0, 1.0)]
    t.equal(
        sure,
        [[5, 0, 5, 0], [5, 5, 0, 0]],
        "with p = 1 and q = 0 only A is right, on each item; with 1 and 1 both are, and nobody is "
        "alone",
        "certain models have certain counts",
    )
    a, b, only_a, only_b = one_test(20_000, 0.6, 0.5, 3)
    t.close(
        [a / 20_000, b / 20_000, only_a / 20_000, only_b / 20_000],
        [0.6, 0.5, 0.3, 0.2],
        "of 20,000 items A has 60 % right, B 50 %, only A 0.6 times 0.5, only B 0.4 times 0.5: "
        "each model has a draw of its own",
        "the counts have the right sizes",
        relative=0.04,
    )
    t.close(
        [sign_test(0, 0), sign_test(3, 3), sign_test(8, 2), sign_test(2, 8)],
        [1.0, 1.0, 0.109375, 0.109375],
        "8 to 2: twice (1 + 10 + 45) / 1,024, whichever model has the 8; never more than 1",
        "the sign test is exact, and has two sides",
    )
    found = outcomes(100, 0.8, 0.6, 200)
    t(
        found[0] > 0.97 and found[1] < 0.02 and 0.75 < found[2] < 0.97,
        "80 % against 60 % on 100 items: A is nearly always ahead, and the sign test is sure in "
        "about nine tests of ten: count p of at most 0.05",
        "outcomes are shares of tests",
    )
    said = list(conclusion())
    t.equal(
        said[0],
        3200,
        "with 1,600 items the sign test is sure in about six tests of ten only, with 3,200 in nine",
        "the number of items that is enough is found",
    )
    t.equal(
        said[1],
        "one test in four",
        "print the share of tests of 100 items in which B is ahead: about a quarter",
        "the worse model wins often",
    )
