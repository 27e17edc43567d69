"""Checks of exercises 26: The learning rate over time."""

import math

import torch


def check_1(t, learning_rate_of):
    """26.1 The published schedule, to the step"""
    of_405b = 8e-5, 8_000, 1_200_000, 8e-7, 3
    first = learning_rate_of(0, *of_405b)
    t(
        first != 0,
        "your first step has the rate 0: it reads a batch, runs forward and backward, and moves "
        "nothing. It is to have the first of 8,000 equal parts of the peak",
        "the first step already moves",
    )
    t.close(
        [first, learning_rate_of(3_999, *of_405b), learning_rate_of(7_999, *of_405b)],
        [1e-8, 4e-5, 8e-5],
        "warm-up has 8,000 steps, and step 7,999 is the last of them: 1e-8 at step 0, half of the "
        "peak after half of the steps, the peak at step 7,999",
        "warm-up: 1e-8 at step 0, the peak at step 7,999",
        relative=1e-9,
    )
    middle = learning_rate_of(604_000, *of_405b)
    t(
        not math.isclose(middle, 8e-7 + 7.92e-5 * (1 + math.cos(math.pi * 604 / 1_200)) / 2),
        "your cosine counts its steps from step 0: then it is below the peak when it takes over "
        "from warm-up. It has 1,192,000 steps of its own, and begins with the first of them",
        "the cosine counts from the end of warm-up",
    )
    t(
        not math.isclose(middle, 4e-5),
        "your cosine goes down to 0, and half-way it has half of the peak. The wave itself ends at "
        "`final`: a lower limit at the very end leaves all rates before it too small",
        "the whole wave lies between peak and final",
    )
    t(
        not math.isclose(middle, 8e-7 + 7.92e-5 * math.cos(math.pi / 4)),
        "you took a quarter of a wave: it arrives at its steepest. Half a wave, from the cosine of "
        "0 to the cosine of pi, is flat at both ends",
        "half a wave, flat at both ends",
    )
    t(
        not math.isclose(middle, 4.039984344708618e-05, rel_tol=1e-8),
        "you took the anneal out of the cosine's own steps: the wave ends at num_steps, and the "
        "anneal follows",
        "the wave ends at num_steps",
    )
    t.close(
        middle,
        4.04e-5,
        "at step 604,000 the cosine is half-way, and the rate is the mean of 8e-5 and 8e-7; "
        "math.cos counts in radians, where half a turn is pi",
        "half-way: 4.04e-5",
        relative=1e-9,
    )
    t(
        not math.isclose(learning_rate_of(306_000, *of_405b), 6.02e-5),
        "you go down in a straight line: half-way one cannot tell it from the cosine, which after "
        "a quarter of its steps is still at 6.84e-5",
        "the cosine is no straight line",
    )
    t.close(
        [learning_rate_of(s, *of_405b) for s in (8_000, 306_000, 902_000, 1_199_999)],
        [8e-5, 6.840142853498729e-5, 1.239857146501272e-5, 8.000000001375351e-7],
        "the cosine has the peak at step 8,000, (1 + cos 45 degrees)/2 = 0.854 of its way still "
        "to go at step 306,000, 0.146 at 902,000, and is all but down at 1,199,999",
        "at the peak when it begins, steep in the middle, flat at the end",
        relative=1e-9,
    )
    at_end, *after = (
        learning_rate_of(1_200_000 + more, *of_405b) for more in (0, 1, 2, 3, 4, 1_000)
    )
    t(
        not math.isclose(after[-1], 8e-7),
        "with you the rate stays at `final` for ever: the anneal is missing, which takes it from "
        "there to 0",
        "the cosine is not the end",
    )
    t(
        not math.isclose(at_end, 8e-7 * 2 / 3),
        "your anneal is a step early: at step 1,200,000 the rate is still 8e-7, and three steps "
        "later it is 0. It is warm-up that starts with one part done",
        "the anneal begins with the whole of final",
    )
    t(
        not after[-1] < 0,
        "your straight line goes on below 0: a negative rate climbs",
        "the rate is never negative",
    )
    t.close(
        [at_end, *after],
        [8e-7, 8e-7 * 2 / 3, 8e-7 / 3, 0.0, 0.0, 0.0],
        "from step 1,200,000 on: 8e-7, two thirds and one third of it, and then 0",
        "anneal: three steps from 8e-7 to 0",
        relative=1e-9,
        absolute=1e-18,
    )
    t.close(
        [learning_rate_of(0, 2.0, 0, 10, 0.5, 0), learning_rate_of(5, 2.0, 0, 10, 0.5, 0)],
        [2.0, 1.25],
        "without warm-up the cosine begins at step 0, with the peak",
        "no warm-up",
        relative=1e-9,
    )
    t.close(
        [learning_rate_of(s, 2.0, 0, 10, 0.5, 0) for s in (10, 11)],
        [0.0, 0.0],
        "without an anneal the rate is 0 from step num_steps on",
        "no anneal",
        absolute=1e-12,
    )
    t.close(
        [learning_rate_of(s, 3.0, 4, 4, 1.0, 2) for s in (3, 4, 5, 6)],
        [3.0, 1.0, 0.5, 0.0],
        "if warm-up takes all of num_steps no step is left for the cosine: step 3 has the peak, "
        "and step 4 is the first of the anneal",
        "no cosine",
        relative=1e-9,
        absolute=1e-12,
    )


def check_2(t, diagnose):
    """26.2 Which regime is this?"""

    def run_of(rate, losses, validation):
        """Put a run together: losses as a text of numbers, validation as {place: loss}."""
        losses = [float(number) for number in losses.split()]
        measured = [validation.get(place) for place in range(len(losses))]
        return {"rate": rate, "train": losses, "validation": measured}

    # The runs of the chapter at steps 10, 20, ... 200, validation every 40 steps; ln 400 = 5.99.
    low = run_of(
        1e-4,
        "6.00 5.99 5.95 5.95 5.92 5.87 5.80 5.72 5.65 5.62 "
        "5.58 5.54 5.49 5.47 5.42 5.37 5.34 5.31 5.26 5.23",
        {3: 5.95, 7: 5.72, 11: 5.53, 15: 5.38, 19: 5.24},
    )
    good = run_of(
        1e-2,
        "5.65 4.99 4.79 4.59 4.21 3.54 3.39 2.89 2.67 2.63 "
        "2.46 2.41 2.14 1.90 2.04 1.86 1.88 1.87 1.58 1.59",
        {3: 4.54, 7: 2.92, 11: 2.39, 15: 1.92, 19: 1.65},
    )
    high = run_of(
        1e-1,
        "4.75 4.82 4.83 4.81 4.75 4.76 4.76 4.65 4.59 4.55 "
        "4.39 4.39 4.33 4.34 4.26 4.16 4.30 4.21 4.11 4.01",
        {3: 4.74, 7: 4.66, 11: 4.35, 15: 4.21, 19: 4.07},
    )
    gone = run_of(
        1.0,
        "5.17 4.93 4.84 5.20 5.02 5.67 7.56 6.13 9.69 7.46 "
        "6.15 7.78 8.63 6.30 6.65 11.90 11.35 14.86 11.36 36.59",
        {3: 4.93, 7: 6.50, 11: 8.85, 15: 9.87, 19: 29.80},
    )
    answer = diagnose([low, good, high, gone], 400, 5, 0.25)
    t(
        isinstance(answer, list | tuple) and [type(word) for word in answer] == [str] * 4,
        "return a list with one text for each run",
        "a verdict for each run",
    )
    t(
        answer[3] != "too high",
        "you wait for NaN: the losses of the last run are finite, and far above ln 400 = 5.99, "
        "worse than knowing nothing. A Llama may diverge without ever becoming infinite",
        "divergence may be finite",
    )
    t(
        answer[2] != "good",
        "you took the run with the rate 0.1 for good: it leads after ten steps, and not at the "
        "end. Compare the validation losses that were measured last",
        "runs are compared at the end",
    )
    t(
        answer[0] != "good",
        "you took the run with the rate 1e-4 for good: its curve is clean and falls all the time, "
        "and ends 3.6 nats above the best",
        "a clean curve may be a late one",
    )
    t.equal(
        answer,
        ["too low", "good", "too high", "diverging"],
        "the four runs of the chapter, in its order",
        "the four runs of the chapter",
    )
    t.equal(
        diagnose([high, low, gone, good], 400, 5, 0.25),
        ["too high", "too low", "diverging", "good"],
        "the same four in another order: whether a rate is too low is told by the rates, and not "
        "by the places in the list",
        "the order of the list does not matter",
    )
    text_known = run_of(0.01, "5.0 2.0 1.0 0.5 0.25", {1: 2.0, 4: 2.75})
    steady = run_of(0.003, "5.5 3.0 2.0 1.5 1.25", {1: 3.0, 4: 1.75})
    t.equal(
        diagnose([text_known, steady], 400, 2, 0.25),
        ["too high", "good"],
        "you compared training losses: the first run ends at 0.25 on the text that it has learnt "
        "by heart, and at 2.75 on any other. The second ends at 1.75 on validation",
        "validation decides",
    )
    swing = run_of(0.5, "2.0 2.0 9.0 3.0 8.5 9.5 4.0", {1: 2.0, 6: 4.0})
    t.equal(
        diagnose([swing, good], 400, 4, 0.25),
        ["diverging", "good"],
        "one run swings: the mean of its last four losses, 3, 8.5, 9.5 and 4, is 6.25. It is above "
        "5.99, although the last loss alone is below, and so is the mean of all seven",
        "the mean of the last losses counts, neither the last alone nor all",
    )
    spike = run_of(0.02, "5.0 3.0 2.0 1.5 1.5 9.0 1.5", {1: 4.0, 6: 1.75})
    t.equal(
        diagnose([good, spike], 400, 4, 0.25),
        ["good", "good"],
        "a single loss of 9 among 1.5, 1.5 and 1.5 has a mean of 3.4: that is a spike, and no "
        "divergence",
        "one spike is no divergence",
    )
    broken = run_of(0.3, "4.0 2.5 1.5 nan nan", {2: 1.5})
    answer = diagnose([broken, good], 400, 4, 0.125)
    t(
        answer[0] == "diverging",
        "a run whose losses end in NaN is not diverging with you: every comparison with NaN is "
        "False, so that it slips through `mean > limit`",
        "NaN is found",
    )
    t(
        answer[1] == "good",
        "you compare with a run that diverges: it measured 1.5 before it broke. The best is to be "
        "looked for among the others",
        "a diverging run is never the best",
    )
    pairs = [
        run_of(r, "4.0 2.0 2.0 1.5", {0: 4.0, 2: v}) for r, v in ((3, 2.25), (2, 2.0), (1, 2.5))
    ]
    t.equal(
        diagnose(pairs, 400, 3, 0.25),
        ["good", "good", "too low"],
        "validation losses of 2.25, 2 and 2.5, with a margin of 0.25: at most 0.25 above the best "
        "is good, for the best and for others; not measured at the end, they stand further up",
        "several runs may be good",
    )
    t.equal(
        diagnose([swing, broken, run_of(9, "inf", {0: 1.0})], 400, 4, 0.25),
        ["diverging"] * 3,
        "all three diverge, the last with a single infinite loss: nobody is left to compare",
        "all of them diverge",
    )


def check_3(t, try_rules):
    """26.3 Two rules on trial"""
    # In logarithms to base 2 the points are (2, 1), (6, 3), (0, 0) and (4, 3).
    answer = try_rules([4, 64, 1, 16], [2, 8, 1, 8], 256, 7)
    t(
        isinstance(answer, list | tuple) and len(answer) == 3 and isinstance(answer[1], dict),
        "return the three: the power, the dictionary of predictions, and a name",
        "power, predictions, nearest",
    )
    power, predictions, nearest = answer
    t(
        sorted(predictions) == ["line", "linear", "same", "sqrt"],
        "the dictionary has four entries: same, sqrt, linear and line",
        "four predictions",
    )
    linear = float(predictions["linear"])
    t(
        not math.isclose(linear, 128),
        "you started from the measurement that stands last in the list, a batch of 16: the largest "
        "is 64",
        "the largest batch, wherever it stands",
    )
    t(
        not math.isclose(linear, 256),
        "you started from the smallest batch: a rule is trusted as little far as possible, and "
        "from 64 to 256 is nearer than from 1",
        "from the largest batch measured",
    )
    t(
        not math.isclose(linear, 2),
        "you divided where one multiplies: k is the new batch over the old one, here 4",
        "the rate grows with the batch",
    )
    t.close(
        [predictions["same"], linear],
        [8.0, 32.0],
        "from a batch of 64 with the rate 8 to 256, k is 4: 8 unchanged, 32 by the linear rule",
        "linear: four times the batch, four times the rate",
        relative=1e-9,
    )
    t.close(
        predictions["sqrt"],
        16.0,
        "by the root rule the rate of 8 is multiplied by the root of 4",
        "root: four times the batch, twice the rate",
        relative=1e-9,
    )
    t(
        not math.isclose(power, 0.09569797859690838, rel_tol=1e-6),
        "you put the line through rates and batches as they are: a power of the batch is a "
        "straight line in their logarithms only",
        "a power is a slope in logarithms",
    )
    t(
        not math.isclose(power, 0.5, rel_tol=1e-6),
        "you took the slope from the smallest to the largest batch: the two between have a say in "
        "a line of least squares, and here they make it steeper",
        "all measurements have a say in the line",
    )
    t(
        not math.isclose(power, 11 / 6.75, rel_tol=1e-6),
        "you swapped the axes: that is the power with which the batch grows with the rate",
        "the rate as a power of the batch",
    )
    t.close(
        power,
        0.55,
        "the least-squares slope of (2, 1), (6, 3), (0, 0) and (4, 3) is 11/20",
        "power: 0.55",
        relative=1e-9,
    )
    line = float(predictions["line"])
    t(
        not math.isclose(line, 8 * 4**0.55),
        "you started from the last point and followed the slope of the line: the line itself does "
        "not go through that point, but lies above it",
        "the line is read, and not the last point moved",
    )
    t.close(
        line,
        2**4.5,
        "the line has the height 1.75 in the middle, at 3, and the slope 0.55: at 8 it has "
        "1.75 + 5 x 0.55 = 4.5, and 2 to the power of 4.5 is 22.6",
        "the line at 256: 22.6",
        relative=1e-9,
    )
    t(
        nearest == "same",
        "7 was measured, and the predictions are 8, 16, 32 and 22.6: nearest is the rate unchanged",
        "7 is nearest to 8",
    )
    # The tables of the chapter, to three digits.
    small = [4, 16, 64]
    sgd = try_rules(small, [0.944, 3.74, 13.8], 256, 40.2)
    t(
        sgd[2] != "sqrt",
        "you judged by differences: 27.6 is 12.6 below 40.2, and 53.4 is 13.2 above it. But as "
        "factors they are 1.46 and 1.33 apart from it, and rates are compared by factors",
        "rates are compared by factors",
    )
    t(
        sgd[2] == "line",
        "SGD: 40.2 was measured, and the four are 13.8, 27.6, 55.2 and 53.4; the last is 1.33 "
        "times too high, and the others are further off",
        "SGD: the line comes nearest, and is a third too high, since the growth ends here",
    )
    adam = try_rules(small, [0.00573, 0.0163, 0.0559], 256, 0.137)
    t.close(
        [adam[0], [adam[1][name] for name in ("same", "sqrt", "linear", "line")], adam[2]],
        [0.8215603097434121, [0.0559, 0.1118, 0.2236, 0.16924214876636917], "sqrt"],
        "Adam, same pairs: the power of the three is 0.82, and 0.137 lies between the root, 0.112, "
        "and the line, 0.169, a little nearer to the root",
        "Adam, same pairs: between root and line",
        relative=1e-9,
    )
    t.equal(
        try_rules(small, [0.036, 0.0311, 0.0306], 256, 0.0328)[2],
        "same",
        "Adam, same steps: 0.0328 was measured, and the rate at 64 was 0.0306",
        "Adam, same steps: leave it as it is",
    )


def check_4(t, observed_train):
    """26.4 The training loop"""
    # One weight, which starts at 0; the batch has x = 1 and y = 1, so the gradient is 2 (w - 1).
    BATCHES, RATES = [[[[1.0]], [1.0]]], [0.25, 0.125]
    seen = observed_train([0.0], BATCHES, RATES, 2, 0)
    t(
        seen["losses"] is not None and len(seen["losses"]) == 2,
        "return a list with the loss of each step",
        "a loss for each step",
    )
    t(
        len(seen["gradients"]) == 2,
        "update has to be called once in each step",
        "one update in each step",
    )
    t(
        seen["gradients"][0] != [None],
        "you call update before backward: in the first step there is no gradient yet, and later it "
        "is the one of the step before",
        "backward comes before the update",
    )
    t(
        [rate for rate, _ in seen["updates"]] != [0.125, 0.25],
        "your first step has the rate of step 1: rate_of counts from 0, as batch_of does",
        "each step has its own rate",
    )
    t(
        seen["gradients"][1] != [-3.0],
        "the gradient of your second step is the sum of both, -2 and -1: backward adds to what it "
        "finds in .grad. Set it to None in each step",
        "the gradients are cleared",
    )
    t.equal(
        [step for _, step in seen["updates"]],
        [1, 2],
        "update counts steps from 1: with 0, AdamW's correction would divide by 0",
        "update counts from 1",
    )
    t(
        not all(math.isclose(a, b) for a, b in zip(seen["losses"], [0.25, 0.140625], strict=True)),
        "you return the losses after the updates, which cost another forward pass: return those "
        "from which the gradients came",
        "the loss is the one before the update",
    )
    t.close(
        [seen["losses"], seen["weights"]],
        [[1.0, 0.25], [0.625]],
        "from 0, the weight goes by 0.25 x 2 to 0.5 and then by 0.125 x 1 to 0.625; the losses "
        "before the two steps are 1 and 0.25",
        "two steps by hand",
        relative=1e-9,
    )
    t(seen["floats"], "return floats: loss.item(), not tensors, which keep the graph", "floats")
    seen = observed_train([0.5], BATCHES, RATES, 4, 1)
    t(
        len(seen["losses"]) != 4,
        "you began at step 0, although 1 step was done: the run would read the first batches "
        "twice, and warm up once more",
        "a run goes on where it was",
    )
    t.equal(
        [seen["batches"], seen["rates"], [step for _, step in seen["updates"]]],
        [[1, 2, 3], [1, 2, 3], [2, 3, 4]],
        "with done = 1 and num_steps = 4 the steps are 1, 2 and 3, and the updates 2, 3 and 4",
        "steps 1, 2 and 3 of 4",
    )
    t.equal(
        observed_train([0.5], BATCHES, RATES, 3, 3)["losses"],
        [],
        "all steps are done: there is nothing left to train, and no loss to return",
        "nothing left to do",
    )


def check_5(t, observed_save):
    """26.5 Save"""

    def tensors(*values):
        return [torch.tensor(value, dtype=torch.float64) for value in values]

    STATE = tensors([1.0, 2.0], [[3.0]]), tensors([0.1, 0.2], [[0.3]]), tensors([4.0, 5.0], [[6.0]])
    seen = observed_save(*STATE, 7, 123)
    t(
        "run.pt" in seen["files"],
        "after the save there is no file under the name: is the new one renamed?",
        "the file has its name",
    )
    t(
        seen["raised"],
        "writing failed, since the disk was full, and your save returned as if all were well: "
        "leave the error to the caller",
        "an error of writing is raised",
    )
    t(
        seen["kept"],
        "a save that failed half-way has destroyed the old file: write to another name, and rename "
        "it when it is complete",
        "a failure leaves the old file",
    )
    t.equal(
        seen["files"],
        ["run.pt"],
        "after a save that went well, the folder holds another file as well: rename, do not copy",
        "one file is left",
    )
    content = seen["content"]
    t(
        isinstance(content, dict) and sorted(content) == ["m", "step", "v", "weights"],
        "the file holds a dictionary with weights, m, v, step and chance",
        "five entries",
    )
    t(
        content["step"] == 7,
        "the number of steps is not what was given, 7: the schedule and the corrections of AdamW "
        "would start elsewhere",
        "the number of steps",
    )
    t.close(content["weights"], STATE[0], "the weights are not those that were given", "weights")
    t.close(
        [content["m"], content["v"]],
        list(STATE[1:]),
        "m and v are not those that were given: the next step of AdamW would be another one",
        "both means",
    )
    t.close(
        seen["drawn"],
        seen["next"],
        "with the state that you kept, chance goes on elsewhere: keep torch.get_rng_state() as it "
        "is when save is called",
        "chance can go on where it was",
    )


def check_6(t, observed_load):
    """26.6 Load, and go on"""

    def tensors(*values):
        return [torch.tensor(value, dtype=torch.float64) for value in values]

    STATE = tensors([1.0, 2.0], [[3.0]]), tensors([0.1, 0.2], [[0.3]]), tensors([4.0, 5.0], [[6.0]])
    seen = observed_load(*STATE, 7, 123)
    t(isinstance(seen["loaded"], list), "return four: weights, m, v, step", "four things")
    weights, m, v, step = seen["loaded"]
    t.close(weights, STATE[0], "the weights are not those of the file", "the weights")
    t.close([m, v], list(STATE[1:]), "m and v are not those of the file", "both means")
    t.equal(step, 7, "the number of steps is not that of the file", "the number of steps")
    t.close(
        seen["drawn"],
        seen["next"],
        "after loading, chance does not go on where it was: set torch's generator to the state in "
        "the file, and draw nothing afterwards",
        "chance goes on where it was",
    )
    t(
        not seen["ran"],
        "your load ran code that a stranger had put into the file: torch.load needs "
        "weights_only=True, which refuses all but data",
        "a file cannot run code",
    )
