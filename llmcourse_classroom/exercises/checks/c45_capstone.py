"""Checks of exercises 45: Capstone: the whole machine."""

import math


def check_1(t, is_equal, largest_error, mesh_gradient):
    """45.1 The first gate: equal"""
    t.close(
        list(mesh_gradient([[[6.0], [1.0]], [[5.0]]], [[3, 1], [2]])),
        [2.0],
        "6 + 1 + 5 over 3 + 1 + 2 tokens is 2: divide the sum of all by the number of all, once",
        "every token counts once",
    )
    t.close(
        list(mesh_gradient([[[4.0, 0.0]], [[0.0, 2.0], [2.0, 2.0]]], [[2], [1, 0]])),
        [2.0, 4 / 3],
        "each weight has its own sum, and a micro-batch without a token that counts adds to no "
        "number of tokens",
        "each weight has its own sum",
    )
    t.close(
        [largest_error([1.0, 0.0], [1.0, 0.001]), largest_error([-3.0, 9.0], [-4.0, 10.0])],
        [0.001, 0.1],
        "the distance 0.001 is compared with the largest entry, 1, and not with its own entry; "
        "sizes have no sign",
        "errors are relative to the largest entry",
    )
    t.equal(
        [
            bool(is_equal([0.0, 0.0], [0.0, 0.0], 0.1)),
            bool(is_equal([1.0], [1.0, 2.0], 0.1)),
            bool(is_equal([1.0, 2.0], [1.0], 0.1)),
        ],
        [False, False, False],
        "a reference of zeros and lists of different lengths are not equal: a comparison that "
        "compares nothing must not pass",
        "a comparison that compares nothing does not pass",
    )
    t.equal(
        [
            bool(is_equal([1.0, 2.0], [1.0, 2.0 + 1e-7], 1e-6)),
            bool(is_equal([1.0, 2.0], [1.0, 2.01], 1e-6)),
            bool(is_equal([3.0, 4.0], [3.0, 2.5], 0.5)),
        ],
        [True, False, True],
        "an error of at most the tolerance is equal, and one above it is not",
        "the tolerance decides",
    )
    nan = float("nan")
    t.equal(
        [bool(is_equal([1.0, nan], [1.0, 2.0], 0.1)), bool(is_equal([1.0, 2.0], [1.0, nan], 0.1))],
        [False, False],
        "a NaN is equal to nothing: look for it before you take a maximum",
        "a NaN does not pass",
    )


def check_2(t, load, machine, save, *, begin, step):
    """45.2 The second gate: resumes"""
    data = [0.5, -1.0, 2.0, 0.25, 3.0]
    state = begin()
    for _ in range(3):
        step(state, data)
    text, before = save(state), dict(state)
    step(state, data)
    t(isinstance(text, str), "save returns a string, which nothing can change afterwards")
    t.equal(
        load(text),
        before,
        "load(save(state)) has weight, momentum, place, draws and done as they were at that step, "
        "to the last bit",
        "all of the state comes back",
    )
    whole = machine(data, 20, 4, [])
    t.equal(
        [whole[0]["done"], whole[1]],
        [20, 20],
        "without a crash, 20 steps are taken, and the state says that 20 are done",
        "without a crash nothing is taken twice",
    )
    killed = machine(data, 20, 4, [7, 14])
    t.equal(
        killed[0],
        whole[0],
        "a crash changes nothing: after two of them the state is that of the run without, every "
        "bit of it",
        "crashes change nothing",
    )
    t.equal(
        [machine(data, 6, 2, [3])[1], killed[1]],
        [7, 26],
        "from the last checkpoint, not from the beginning: with a crash after step 3 and "
        "checkpoints after every second step, step 3 alone is taken again",
        "only steps since the last checkpoint are taken again",
    )
    t.equal(
        [machine(data, 6, 2, [4])[1], machine(data, 6, 10, [4])[1]],
        [6, 10],
        "a step that was saved is not lost when the process dies right after it; and before the "
        "first checkpoint the run begins anew",
        "what was saved is not lost",
    )
    t.equal(
        machine(data, 9, 3, [1, 2, 3, 8])[0],
        machine(data, 9, 3, [])[0],
        "crashes before the first checkpoint begin anew with begin(), and change nothing either",
        "a crash before the first checkpoint begins anew",
    )


def check_3(t, count_losses, gain, improves):
    """45.3 The third gate: improves"""
    t.close(
        list(count_losses([0, 0, 1], [[0, 1], [1]], 2)),
        [0.713558, 0.916291],
        "of [0, 0, 1] the counts plus 1 are 3 and 2 of 5: the document [0, 1] has 0.714, and [1] "
        "has 0.916",
        "frequencies are counted, plus 1",
        relative=1e-4,
    )
    t.close(
        list(count_losses([], [[3], [0, 1, 2]], 4)),
        [math.log(4)] * 2,
        "without a count every token has the same chance, and a document's loss is a mean over its "
        "own tokens",
        "without a count all tokens are alike",
    )
    model, baseline = [1.0, 2.0, 3.0, 4.0], [1.5, 2.4, 3.6, 4.5]
    t.close(
        list(gain(model, baseline)),
        [-0.5, -0.580017, -0.419983],
        "the differences are -0.5, -0.4, -0.6 and -0.5: mean -0.5, deviation 0.0816, and 1.96 of "
        "it over the root of 4; take differences first, and divide by n - 1",
        "differences are taken document by document",
        relative=1e-4,
    )
    t.equal(
        [bool(improves(model, baseline)), bool(improves(baseline, model))],
        [True, False],
        "a lower loss is better: the whole interval of model - baseline must lie below 0",
        "lower is better",
    )
    t.equal(
        bool(improves([1.0, 2.0, 1.0, 2.0], [1.1, 1.9, 1.2, 1.9])),
        False,
        "a mean of -0.025 with an interval that holds 0 is no improvement yet",
        "an interval that holds 0 says nothing",
    )


def check_4(t, honest, interval, verdict):
    """45.4 The fourth gate: honest"""
    report = {
        "scores": {
            "stories": [179, 300],
            "pronouns": [32, 50],
            "marbles": [9, 40],
            "sums": [25, 50],
        },
        "found": {"marbles": [0, 40], "stories": [110, 300], "riddles": [0, 0]},
    }
    t.close(
        [*interval(32, 50), *interval(0, 40)],
        [0.50140, 0.75860, 0.0, 0.08763],
        "32 of 50 give 0.501 to 0.759, and 0 of 40 give 0 to 0.088",
        "intervals are Wilson's",
        relative=1e-3,
        absolute=1e-9,
    )

    def says(**sentence):
        return verdict(sentence, report)

    t.equal(
        [
            says(kind="above", score="stories", than=0.5),
            says(kind="above", score="pronouns", than=0.54),
            says(kind="above", score="marbles", than=0.2),
        ],
        ["supported", "not supported", "not supported"],
        "32 of 50 is 0.64, but its interval begins at 0.501: not above 0.54. The low end decides, "
        "and not the share",
        "above chance means the whole interval",
    )
    t.equal(
        [
            says(kind="better", score="stories", than="marbles"),
            says(kind="better", score="pronouns", than="sums"),
            says(kind="better", score="marbles", than="stories"),
        ],
        ["supported", "not supported", "not supported"],
        "0.64 of 50 against 0.5 of 50: the intervals overlap, so the sentence is not supported",
        "better means that the intervals part",
    )
    t.equal(
        says(kind="same", score="pronouns", than="sums"),
        "not supported",
        "intervals that overlap do not show that two models can do the same: it is not known",
        "what is not known is not equal",
    )
    t.equal(
        [says(kind="clean", test="marbles"), says(kind="clean", test="stories")],
        ["supported", "not supported"],
        "none of 40 items was found: supported; 110 of 300 were found: not supported",
        "clean means that none was found",
    )
    t.equal(
        [
            says(kind="clean", test="tasks"),
            says(kind="clean", test="riddles"),
            says(kind="above", score="poems", than=0.1),
            says(kind="better", score="stories", than="poems"),
            says(kind="same", score="poems", than="stories"),
        ],
        ["not measured"] * 5,
        "what the report has no number for is not measured, neither supported nor refuted; none "
        "of no items found says nothing",
        "without a number nothing is said",
    )
    told = [
        {"kind": "above", "score": "stories", "than": 0.5},
        {"kind": "same", "score": "pronouns", "than": "sums"},
        {"kind": "clean", "test": "tasks"},
        {"kind": "clean", "test": "marbles"},
    ]
    t.equal(
        honest(told, report),
        [told[0], told[3]],
        "only what is supported may stand; what is not measured may not",
        "only what is supported stands",
    )
