"""Checks of 01_whole_run, written by tools.exercises from its solutions."""

import numpy as np


def check_1(t, tokens_and_epochs):
    """01.1 Tokens and epochs of a run"""
    tokens, epochs = tokens_and_epochs(5_000, 64, 512, 40_000_000)
    t(
        tokens != 320_000,
        "you counted sequences: each of the 64 in a batch has 512 tokens",
        "tokens are counted, not sequences",
    )
    t(
        tokens != 327_680_000,
        "you counted the targets too: they are the same tokens, moved by one",
        "every token is counted once",
    )
    t.equal(
        tokens,
        163_840_000,
        "a step reads batch × length tokens, and there are 5,000 steps: 163,840,000",
        "5,000 steps of 64 × 512 are 163,840,000 tokens",
    )
    t(
        epochs > 1,
        "you divided the wrong way round: this run reads more than its text has, so it passes "
        "over it more than once",
        "more than one pass over 40 million tokens",
    )
    t.close(
        [epochs, tokens_and_epochs(600, 12, 96, 716_438)[1]],
        [4.096, 0.9647729461586349],
        "you rounded the epochs: the chapter's run reads 691,200 of 716,438 tokens, 0.965 of a "
        "pass",
        "4.096 epochs here, and 0.965 in the chapter's run",
    )


def check_2(t, number_of_steps):
    """01.2 Not 3.75 million steps"""
    ramp = [(0, 4_000_000), (252_000_000, 8_000_000), (2_870_000_000_000, 16_000_000)]
    llama = number_of_steps(15_600_000_000_000, ramp)
    t(
        abs(llama - 3_900_000) > 1,
        "you took the first batch for the whole run: the popular mistake, with 15.6 T tokens",
        "not all steps read the first batch",
    )
    t(
        abs(llama - 1_671_428.57) > 1,
        "you divided by the mean of the three batches: they do not hold for equally many tokens",
        "each batch counts for the tokens that were read with it",
    )
    t(
        number_of_steps(6, [(0, 4)]) != 1,
        "you rounded: 6 tokens at 4 per step are 1.5 steps",
        "parts of a step are counted",
    )
    t.close(
        llama,
        1_154_406.5,
        "you took the first token of a stage for its length: a stage lasts until the next begins",
        "Llama 3 405B: 1.15 million steps, most of them with the largest batch",
        relative=1e-9,
    )
    t.close(
        number_of_steps(100, [(0, 10), (1000, 20), (5000, 50)]),
        10.0,
        "a run of 100 tokens ends before the second stage begins: a stage that is not reached has "
        "no steps",
        "stages that are not reached have no steps",
        relative=1e-9,
    )


def check_3(t, match_curves, *, FIRST_SET, SECOND_SET):
    """01.3 Four curves, four causes"""
    first, second = match_curves(FIRST_SET), match_curves(SECOND_SET)
    t(
        first[1] != "B",
        "you took the curve that ends highest for the too large rate: that run hardly moved. A "
        "large rate throws the loss up, and may still end lower",
        "the run that hardly moved did not have a large rate",
    )
    t(
        first[0] != "D",
        "you looked at the training loss alone: in the first run it falls on, while the "
        "validation loss rises again. That is learning by heart",
        "a low training loss alone is not taken for a good run",
    )
    t(
        second[1] != "C",
        "you took the lowest training loss for learning by heart: in the second set that run is "
        "as good on validation text, so it has learnt, not memorised",
        "a low training loss alone is not taken for learning by heart",
    )
    t(
        first[3] != "C",
        "you took the largest distance at any moment: where the loss is thrown about, the curves "
        "are apart now and then. By heart means that validation stays above to the end",
        "a distance that closes again is not learning by heart",
    )
    t.equal(
        first,
        ["C", "A", "D", "B"],
        "the first set has, in this order: too little text, too small, good, too large",
        "the first set is matched",
    )
    t.equal(
        second,
        ["B", "D", "C", "A"],
        "what you wrote holds for the first set: by its places, or by its numbers. Compare the "
        "four curves of a set with each other",
        "the second set is matched",
    )


def check_4(t, first_step_below):
    """01.4 Better than counting"""
    tokens = np.array([3] * 99 + [0])  # 0.056 nats
    step = first_step_below(tokens, [1.4, 0.5, 1.4, 0.07, 1.4, 0.01])
    t(
        step != 5,
        "you counted from 0: the first loss of the list belongs to step 1",
        "steps are counted from 1",
    )
    t(
        step is not None,
        "you multiplied 0 by ln 0: the ids 1 and 2 do not occur, the sum is not a number, and no "
        "loss is below that. Leave them out",
        "ids that do not occur are left out",
    )
    t(
        step != 2,
        "you took ln 2, as if both tokens were equally frequent: one of them is 99 % of the text",
        "frequent tokens count for more",
    )
    t.equal(
        step,
        6,
        "you compared bits with nats: the entropy is 0.081 bits and 0.056 nats, and losses are in "
        "nats",
        "the entropy is in nats, as the losses are",
    )
    t.equal(
        first_step_below(tokens, [2.0, 0.02, 0.6, 0.01]),
        2,
        "you looked for the step from which the loss stays below, or for the lowest: the first "
        "one counts",
        "the first loss below counts, whatever follows",
    )
    t.equal(
        first_step_below(tokens, [2.0, 1.0]),
        None,
        "no loss is below the entropy here: the answer is None, not a step",
        "where no loss is below, the answer is None",
    )
