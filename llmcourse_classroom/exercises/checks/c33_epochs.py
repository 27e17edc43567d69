"""Checks of exercises 33: Epochs, repetition, overfitting."""

import math

from llmcourse.data import corpus


def check_1(t, gap_opens, stop_early):
    """33.1 Stop at the turn"""
    losses = [3.0, 2.5, 2.6, 2.4, 2.5, 2.45, 2.3]
    t.equal(
        list(stop_early(losses, 1)),
        [1, 2],
        "with a patience of 1 the first loss that is not better ends the run: best at place 1, "
        "end at place 2",
        "a patience of 1 stops at the first rise",
    )
    t.equal(
        list(stop_early(losses, 2)),
        [3, 5],
        "with a patience of 2 the run gets to the 2.4 at place 3 and ends at place 5: a better "
        "loss sets the waiting back to 0",
        "a better loss starts the waiting anew",
    )
    t.equal(
        list(stop_early([2.0, 2.0, 2.0, 1.9], 2)),
        [0, 2],
        "a loss that equals the best is not better: of 2.0, 2.0, 2.0 the first is the best, and a "
        "patience of 2 ends at place 2",
        "what is equal is not better",
    )
    t.equal(
        [list(stop_early(losses, 9)), list(stop_early([1.0], 1))],
        [[6, 6], [0, 0]],
        "a patience that is never used up ends at the last validation",
        "a run may also end by itself",
    )
    t.equal(
        [gap_opens([3, 2, 1], [3, 2.5, 2], 0.6), gap_opens([3, 2], [3, 2.5], 0.5)],
        [2, None],
        "the gap is validation minus training, and it must be more than the least one",
        "the gap is found where it opens",
    )


def check_2(t, epochs_for, lost_tokens, worth):
    """33.2 What are the epochs worth?"""
    t.close(
        [worth(1, 1), worth(1, 4), worth(1, 7.5)],
        [1.0, 3.7257, 6.3018],
        "1, 4 and 7.5 epochs are worth 1, 3.73 and 6.30 times the text: four epochs are three "
        "repeats",
        "1, 4 and 7.5 epochs are worth 1, 3.73 and 6.30 times the text",
        relative=1e-4,
    )
    t.close(
        worth(200, 0.25),
        50.0,
        "a quarter of an epoch of 200 tokens repeats nothing: it is worth the 50 tokens it reads",
        "less than one epoch is fresh text",
    )
    t.close(
        worth(1_000, 100),
        16_365.3,
        "100 epochs of 1,000 tokens are worth 16,365 fresh ones: multiply by the size of the text",
        "a hundred epochs are worth sixteen texts",
        relative=1e-4,
    )
    t.close(
        [lost_tokens(100, 400), lost_tokens(500, 400)],
        [400 - 372.57, 0.0],
        "four epochs of 100 tokens fall 27.4 tokens short of 400 fresh ones, and who reads only "
        "a part of the text loses nothing",
        "four epochs of 100 tokens lose 27",
        relative=1e-3,
        absolute=1e-9,
    )
    t.close(
        [epochs_for(100, 372.571), epochs_for(100, 50)],
        [4.0, 0.5],
        "a text of 100 tokens is worth 372.57 after 4 epochs, and 50 after half of one",
        "the inverse gives back the epochs",
        relative=1e-4,
    )
    t.equal(
        epochs_for(100, 1_700),
        None,
        "100 tokens are never worth 1,700: all repeats together are worth at most 15.39 times the "
        "text, so return None",
        "what no number of epochs reaches is said",
    )


def check_3(t, groups, runs_of_words, similarity, split):
    """33.3 A split that does not leak"""
    t.equal(
        list(runs_of_words("The cat saw  the CAT", 2)),
        ["cat saw", "saw the", "the cat"],
        "the runs of two words of 'The cat saw  the CAT' are cat saw, saw the and the cat: small "
        "letters, each run once, sorted",
        "runs of words are found",
    )
    t.close(
        [similarity("a b c d", "a b c e", 2), similarity("a", "b", 2)],
        [0.5, 0.0],
        "a b c d and a b c e share 2 of the 4 runs of two words that are in either; two texts "
        "without any run have the similarity 0",
        "similarity counts what is in both against what is in either",
    )
    chain = ["a b c d e", "x y z", "c d e f g", "b c d e f", "x y w", "d e f g h"]
    t.equal(
        [list(group) for group in groups(chain, 2, 0.5)],
        [[0, 2, 3, 5], [1], [4]],
        "the fourth text is a near copy of the first and of the third, and the sixth of the third, "
        "so all four are one group, although not each is like each; x y w shares only a third with "
        "x y z",
        "a chain of near copies is one group",
    )
    texts = [f"{name} went to the {place}" for name in ("mia", "tom") for place in ("lake", "town")]
    texts += ["one two three", "four five six", "seven eight nine", "ten eleven twelve"]
    halves = [[list(side) for side in split(texts, 2, 0.4, 0.25, seed)] for seed in range(12)]
    t(
        all(sorted(training + held) == list(range(8)) for training, held in halves),
        "every document stands on exactly one side",
        "nothing is lost and nothing is on both sides",
    )
    t(
        all(len({p in held for p in range(4)}) == 1 for _, held in halves),
        "the first four texts are near copies in a chain and must stand on the same side: deal out "
        "groups, not documents",
        "near copies stand on one side",
    )
    t(
        all(len(held) in (2, 4, 5) for _, held in halves),
        "a quarter of 8 documents are 2: stop as soon as so many are held out, though a group may "
        "bring in more",
        "as much is held out as was asked for",
    )
    t(
        len({tuple(held) for _, held in halves}) > 3
        and halves[5] == [list(side) for side in split(texts, 2, 0.4, 0.25, 5)],
        "another seed must give another split, and the same seed the same",
        "the seed alone decides",
    )


def check_4(t, continuation, counts_of, memorised):
    """33.4 Find the memorised line"""
    t.equal(
        counts_of("abcabd", 2),
        {"ab": {"c": 1, "d": 1}, "bc": {"a": 1}, "ca": {"b": 1}},
        "in abcabd, ab is followed by c once and by d once, bc by a, ca by b; the last two letters "
        "are followed by nothing",
        "followers are counted",
    )
    t.equal(
        continuation({"ab": {"d": 1}}, "xxab", 2, 4),
        "d",
        "after bd nothing is known: stop there, and return only what was appended",
        "it stops where it knows nothing",
    )
    counts = {"ab": {"d": 1, "c": 1}, "bc": {"a": 2, "x": 1}, "ca": {"b": 1}}
    t.equal(
        continuation(counts, "ab", 2, 4),
        "cabc",
        "after ab come c and d equally often: take c, the first of the alphabet, then go on with "
        "the last two letters, bc, ca, ab",
        "the likeliest letter is taken each time",
    )
    t.equal(
        [
            len(continuation(counts_of("aaab", 1), "a", 1, 7)),
            continuation({"": {"z": 1}}, "q", 0, 2),
        ],
        [7, "zz"],
        "append exactly `length` letters; with k = 0 every letter follows the empty run",
        "the length is kept",
    )
    read = corpus.stories(3_000, seed=0).split(corpus.END_OF_TEXT)[:12]
    new = corpus.stories(3_000, seed=1).split(corpus.END_OF_TEXT)[:12]
    long = counts_of("".join(read), 20)
    t.equal(
        list(memorised(long, [*read[:3], *new[:3]], 20, 25, 60)),
        [0, 1, 2],
        "a model that counts 20 letters back recites 60 letters of each story that it has read, "
        "and of no other: compare what is appended with the next letters of the document",
        "read stories are recited, new ones are not",
    )
    t(
        len(list(memorised(counts_of("".join(read), 3), read, 3, 25, 60))) < 3,
        "three letters back are too few to recite stories: give the model only the last k letters",
        "a model with a short memory recites hardly anything",
    )


def check_5(t, best_size, loss_on, what_more_text_does, what_much_smoothing_does):
    """33.5 Overfit, and mend it"""
    t.close(
        loss_on("abab", "aba", 1, 1.0, 2),
        -(math.log(3 / 4) + math.log(2 / 3)) / 2,
        "in abab, a is followed by b twice and b by a once: with alpha = 1 and two letters the "
        "probabilities are 3/4 and 2/3",
        "smoothed counts give the loss",
    )
    t.close(
        loss_on("aaaa", "bbb", 2, 0.5, 27),
        math.log(27),
        "after a run that was never seen all 27 letters are equally likely, whatever alpha is",
        "what was never seen is equal chances",
    )
    t.close(
        loss_on("aab", "ab", 0, 1.0, 2),
        -(math.log(3 / 5) + math.log(2 / 5)) / 2,
        "with k = 0 the letters are counted alone: a 2 of 3, b 1 of 3",
        "no context means plain counts",
    )
    letters = [
        "".join(c for c in corpus.stories(n, seed=seed).lower() if c == " " or c.isalpha())
        for n, seed in ((2_000, 0), (20_000, 0), (4_000, 1))
    ]
    few, many, new = letters
    t.equal(
        [best_size(few, new, range(8), 0.01, 27), best_size(many, new, [5, 4, 3], 0.01, 27)],
        [3, 4],
        "judge the size on text that was not counted: of 2,000 letters the best k is 3, and of "
        "20,000 it is 4",
        "the best size is found on new text",
    )
    t.equal(
        best_size("aaaa", "bbbb", [3, 2], 1.0, 3),
        2,
        "on text without a known letter all sizes have the loss ln V: take the smaller one",
        "of equals the smaller is taken",
    )
    t.equal(
        what_more_text_does(),
        "the best k grows",
        "your conclusion about more text does not fit: print best_size for 2,000, 20,000 and "
        "100,000 letters",
        "more text bears a larger model",
    )
    t.equal(
        what_much_smoothing_does(),
        "the gap shrinks and new text is predicted worse",
        "your conclusion about smoothing does not fit: at k = 4 compare both losses for alpha 0.01 "
        "and 1",
        "too much smoothing closes the gap from the wrong side",
    )
