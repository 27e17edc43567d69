"""Checks of exercises 01: a whole training run in one page."""


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
        [epochs, tokens_and_epochs(300, 12, 96, 502_657)[1]],
        [4.096, 0.687546378544415],
        "you rounded the epochs: the chapter's run reads 345,600 of 502,657 tokens, 0.688 of a "
        "pass",
        "4.096 epochs here, and 0.688 in the chapter's run",
    )


def check_2(t, loop_order):
    """01.2 A loop in disorder"""
    order = loop_order()
    t.equal(
        sorted(order),
        list("ABCDEFGH"),
        "each of the eight letters has to come once",
        "each line stands in the loop once",
    )
    place = {letter: order.index(letter) for letter in order}
    t(
        place["D"] < place["F"] < place["B"],
        "the model needs ids to read, and the loss needs logits: data, forward, loss",
        "data, forward, loss",
    )
    t(
        place["B"] < place["H"],
        "you go backward before there is a loss, and backward asks how the loss changes",
        "backward comes after the loss",
    )
    t(
        place["H"] < place["A"],
        "your optimizer moves the weights before the gradients of this batch are there",
        "the optimizer comes after the gradients",
    )
    t(
        place["H"] < place["E"] < place["A"],
        "your processes do not share this step's gradients before they move: each goes its own way,"
        " and after one step they hold different models",
        "all processes move by the same gradient",
    )
    t(
        place["E"] < place["C"],
        "you clip what each process has found, and take the mean then: a process with unusual text "
        "is shortened alone, and the direction of the mean changes. Limit what the optimizer uses",
        "what is clipped is the mean",
    )
    t(
        place["C"] < place["A"],
        "you clip after the weights have moved: the long gradient has done its harm",
        "clipping comes before the optimizer",
    )
    t(
        place["A"] < place["G"],
        "you save between drawing a batch and learning from it: a run that is resumed from this "
        "file goes on with the next batch, and never learns from this one",
        "saving comes last",
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


def check_4(t, verdicts, *, CHANGES, final_loss):
    """01.4 Turn the knobs"""
    found = verdicts(CHANGES)
    without = [final_loss(seed) for seed in (0, 1, 2)]
    before = f"{min(without):.2f} to {max(without):.2f} without it"
    t(
        found["rate / 30"] != "better",
        "you call it better when the loss rises: at a thirtieth of the rate it stays near ln 300",
        "a lower loss is better",
    )
    t(
        found["width 17"] == "unclear",
        "you compared one run with one, or two means: with width 17 one run ends above one without "
        "it, and one below. A difference counts if it is larger than what the seed does",
        "a difference that the seed can make is unclear",
    )
    t(
        found["rate / 30"] == "worse",
        "you are never sure: at a thirtieth of the rate all runs end 2.8 higher than without the "
        "change, and the seed makes a difference below 0.1",
        "a difference that is larger than the seed's counts",
    )
    t.equal(
        verdicts({"half": {"steps": 50}, "both": {"width": 64, "steps": 300}}),
        {"half": "worse", "both": "better"},
        "you wrote down verdicts, or took one setting of a change: other changes are asked for "
        "here, with other names and two settings at once",
        "other changes, too",
    )
    for name, change in CHANGES.items():
        changed = [final_loss(seed, **change) for seed in (0, 1, 2)]
        better, worse = max(changed) < min(without), min(changed) > max(without)
        ranges = f"{min(changed):.2f} to {max(changed):.2f} with it, {before}"
        t.equal(
            found[name],
            "better" if better else "worse" if worse else "unclear",
            f"{name}: the runs end at {ranges}",
            f"{name}: {ranges}",
        )
