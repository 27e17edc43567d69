"""Checks of exercises 42: Reward hacking."""

import math


def check_1(t, answers_needed, best_of, formula, kl):
    """42.1 Best of n"""
    t.close(
        best_of([0.5, 0.25, 0.25], [1.0, 2.0, 3.0], 2),
        [4 / 16, 5 / 16, 7 / 16],
        "an answer is the best of two if both draws are up to its score and not both are below "
        "it: 1/4, then 9/16 - 4/16, then 16/16 - 9/16",
        "the best of two is found",
        relative=1e-9,
    )
    t.close(
        best_of([0.2, 0.5, 0.3], [7.0, 7.0, 1.0], 2),
        [0.91 * 2 / 7, 0.91 * 5 / 7, 0.09],
        "answers of the same score win together, with 1 - 0.3^2 = 0.91, and share it as 0.2 to 0.5",
        "equal scores share",
        relative=1e-9,
    )
    t.close(
        [kl([0.75, 0.25], [0.5, 0.5]), kl([1.0, 0.0], [0.25, 0.75])],
        [0.75 * math.log(1.5) + 0.25 * math.log(0.5), math.log(4)],
        "the KL is the sum of q log(q / p): each term is weighted by q, and is 0 where q is 0",
        "the KL is that of q from p",
        relative=1e-9,
    )
    t.close(
        [formula(1), formula(2), formula(100)],
        [0.0, math.log(2) - 1 / 2, math.log(100) - 99 / 100],
        "the formula is log n - (n - 1) / n, with the natural logarithm",
        "the formula is as printed",
        relative=1e-9,
        absolute=1e-12,
    )
    t.equal(
        [answers_needed(2), answers_needed(4)],
        [16, 16],
        "double m until the formula is at most 1.01 times the exact KL of m equally likely answers",
        "the formula needs many answers",
    )


def check_2(t, looked, regret, stop):
    """42.2 When to stop"""
    gold = [0.1, 0.5, 0.4, 0.6, 0.5, 0.5, 0.9]
    t.equal(
        [list(stop(gold, patience)) for patience in (1, 2)],
        [[1, 2], [3, 5]],
        "with patience 1 the first look that is not better ends the run; with 2 it takes two in a "
        "row since the best, and a better one begins the count anew",
        "patience ends the run",
    )
    t.equal(
        list(stop(gold, 9)),
        [6, 6],
        "a run that never runs out of patience ends with its last look, and keeps its best",
        "a patient run goes to its end",
    )
    t.equal(
        list(stop([0.3, 0.3, 0.3, 0.2], 2)),
        [0, 2],
        "a look that is only as good as the best is not better: it counts against the patience",
        "as good is not better",
    )
    t.close(
        looked([0.0, 1.0, 1.0, 2.0]),
        [1.0, math.sqrt(2 / 3) / 2],
        "the standard error is the standard deviation, with n - 1 in its denominator, over the "
        "root of n",
        "a look has its error",
        relative=1e-9,
    )
    t.close(
        regret([0.0, 0.4, 0.7, 0.6, 0.1], [0.1, 0.5, 0.4, 0.45, 0.9], 2),
        0.3,
        "by what was seen, the look at place 1 is kept: it is truly worth 0.4, and the best of the "
        "run was 0.7",
        "the regret is measured in true worth",
        relative=1e-9,
    )


def check_3(t, combined, conclusion, tilted, value):
    """42.3 Five judges"""
    scores = [[1.0, 5.0, 2.0], [3.0, -1.0, 2.0]]
    t.close(
        [combined(scores, "mean"), combined(scores, "worst")],
        [[2.0, 2.0, 2.0], [1.0, -1.0, 2.0]],
        "go through the answers: each has a score by every judge, of which the mean or the lowest "
        "is taken",
        "scores are combined answer by answer",
        relative=1e-9,
    )
    t.close(
        combined(scores, "careful"),
        [1.0, -1.0, 2.0],
        "careful is the mean minus the standard deviation over the judges, divided by their "
        "number: of 1 and 3 it is 1, of 5 and -1 it is 3",
        "the careful score pays for disagreement",
        relative=1e-9,
        absolute=1e-12,
    )
    t.close(
        tilted([0.0, math.log(2), math.log(4)], 1.0) + tilted([0.0, math.log(2)], 0.5),
        [1 / 7, 2 / 7, 4 / 7, 1 / 5, 4 / 5],
        "probabilities are in proportion to exp(score / beta): with beta = 1/2 a score of ln 2 "
        "counts four times",
        "the policy is tilted",
        relative=1e-9,
    )
    t.close(
        tilted([5_000.0, 5_000.0, 0.0], 1.0),
        [0.5, 0.5, 0.0],
        "exp(5000) is too large for a computer: take the highest score off before the exponential",
        "large scores do not overflow",
        relative=1e-9,
        absolute=1e-12,
    )
    t.close(
        value([0.0, math.log(3)], [1.0, -1.0], 1.0),
        -0.5,
        "the policy is made by the score, 1/4 and 3/4, and is worth the mean of gold under it",
        "worth is measured by gold",
        relative=1e-9,
    )
    t.equal(
        conclusion(),
        "shared",
        "compare value(scores[0], ...) with value(combined(scores, 'worst'), ...) for shared = 0 "
        "and shared = 1: where all judges are fooled by the same answers, the lowest score is high",
        "what an ensemble cannot cure is named",
    )


def check_4(t, hacked, has_hole, partial, strict):
    """42.4 Write a reward, and see it hacked"""
    answer = "Ben has five nuts."
    t.close(
        [partial(answer, "nuts, Ben has"), partial(answer, "five five five."), partial(answer, "")],
        [0.5, 0.25, 0.0],
        "Ben and has are 2 of 4 words (nuts, with its comma is another word); a word that is "
        "repeated counts once",
        "a part of the answer is a part of the marks",
        relative=1e-9,
        absolute=1e-12,
    )
    words = ["nuts", "two", "five", "Ben", "has", "or"]
    t.equal(
        hacked(answer, words, 6),
        "nuts five Ben has nuts nuts",
        "each time the word is appended for which the longer text is rewarded most, the first of "
        "equals: nuts, five, Ben, has, and then nothing pays any more",
        "the reward is hacked word by word",
    )
    t.equal(
        [strict(answer, text) for text in (answer, f" {answer} I am sure. ")],
        [1.0, 1.0],
        "the right sentence is right, with one more sentence and with white space at both ends, "
        "too",
        "a right answer is rewarded",
    )
    t.equal(
        [
            strict(answer, text)
            for text in (
                "nuts five Ben has.",
                "Ben has five or six nuts.",
                f"I am sure. {answer}",
                f"{answer} I am sure. I am sure.",
                "",
                f"{answer} I am su",
                "Ben has five nuts",
            )
        ],
        [0.0] * 7,
        "words in another order, a hedge, the answer in second place, three sentences, nothing, "
        "and a text that was cut get 0.0",
        "no hack is rewarded",
    )
    t.equal(
        [
            bool(has_hole(rewards, right))
            for rewards, right in (
                ([1.0, 1.0, 0.2], [True, False, False]),
                ([1.0, 0.9, 0.8], [True, True, False]),
                ([1.0, 0.5, 0.7], [True, True, False]),
            )
        ],
        [True, False, True],
        "the worst case decides: compare the highest reward of a wrong text with the lowest of a "
        "right one; as much is a hole, too",
        "a hole is found",
    )
    t.equal(
        [bool(has_hole(*given)) for given in (([0.4, 0.5], [True, True]), ([0.4], [False]))],
        [False, False],
        "without a wrong text, or without a right one, there is nothing to compare, and no hole",
        "one kind of text shows no hole",
    )
