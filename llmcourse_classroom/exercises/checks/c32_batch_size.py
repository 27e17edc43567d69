"""Checks of exercises 32: Batch size and accumulation."""

import math

import torch


def check_1(t, accumulated, combined):
    """32.1 One gradient out of many parts"""
    # Logits whose probabilities are 1/2, 1/4, 1/4 after token 0, and equal after the others.
    table = torch.zeros(3, 3, dtype=torch.float64)
    table[0, 0] = math.log(2)
    long = (torch.tensor([[0, 0, 1], [2, 0, 0]]), torch.tensor([[1, -100, -100], [-100, 1, 2]]))
    short = (torch.tensor([[1]]), torch.tensor([[2]]))
    empty = (torch.tensor([[1, 1]]), torch.tensor([[-100, -100]]))
    loss, gradient = accumulated(table, [long, short])
    t(
        not math.isclose(float(loss), (math.log(4) + math.log(3)) / 2, rel_tol=1e-6),
        "you averaged the means: the one target of the second micro-batch then weighs as much as "
        "the three of the first together",
        "micro-batches do not all weigh the same",
    )
    t.close(
        float(loss),
        (3 * math.log(4) + math.log(3)) / 4,
        "three targets with a surprise of ln 4 and one of ln 3 have the mean (3 ln 4 + ln 3) / 4: "
        "divide everything by 4, the targets that count",
        "the loss is the mean over the four targets that count",
    )
    t.close(
        gradient,
        torch.tensor([[1.5, -1.25, -0.25], [1 / 3, 1 / 3, -2 / 3], [0, 0, 0]]).double() / 4,
        "the gradient is probability minus target, added up over the four targets, divided by 4; "
        "a row without counted targets stays 0",
        "the gradient is that of the whole batch",
    )
    with_empty, again = accumulated(table, [empty, long, empty, short])
    t(
        math.isclose(float(with_empty), float(loss), rel_tol=1e-9)
        and torch.allclose(again, gradient),
        "micro-batches in which no target counts change nothing: their mean does not exist, their "
        "sum is 0",
        "a micro-batch without a target changes nothing",
    )
    parts = [(torch.tensor([6.0, 8.0]), 1), (torch.tensor([0.0, 0.0]), 3)]
    t(
        not torch.allclose(combined(parts, 1.0), torch.tensor([0.15, 0.2])),
        "you clipped each part: (6, 8) became (0.6, 0.8) before it was averaged. Clip the whole "
        "gradient once",
        "what is clipped is the whole gradient",
    )
    t.close(
        combined(parts, 10.0),
        torch.tensor([1.5, 2.0]),
        "the parts weigh 1/4 and 3/4, which gives (1.5, 2); its length of 2.5 is below 10, so it "
        "stays",
        "each part weighs as many targets as it has",
    )
    t.close(
        combined(parts, 1.0),
        torch.tensor([0.6, 0.8]),
        "(1.5, 2) has the length 2.5, and scaled down to length 1 it is (0.6, 0.8)",
        "a gradient that is too long is scaled down",
    )
    nothing = (torch.full((2,), math.nan), 0)
    t.close(
        combined([*parts, nothing], 10.0),
        torch.tensor([1.5, 2.0]),
        "a part with a count of 0 may hold nan, and 0 times nan is nan: leave it out",
        "a part without a target is left out",
    )


def check_2(t, from_gradients, from_squares):
    """32.2 How noisy is a gradient?"""
    three = [[3.0, 1.0], [1.0, 1.0], [2.0, 4.0]]
    signal, noise, scale = from_gradients(three)
    t.close(
        noise,
        4.0,
        "the squared deviations from (2, 2) are 2, 2 and 4; divided by m - 1 = 2 they give 4, "
        "because the mean was itself computed from the three",
        "tr(Sigma) is 4 for the three gradients of the text",
    )
    t.close(
        signal,
        20 / 3,
        "|g|^2 is 8, and too large by tr(Sigma) / m = 4/3: the estimate of |G|^2 is 6.667",
        "the noise that is left in the mean is taken off",
    )
    t.close(scale, 0.6, "4 / 6.667 is 0.6: noise divided by signal", "the noise scale is 0.6")
    t.equal(
        from_gradients([[1.0, 0.0], [-1.0, 0.0]])[2],
        math.inf,
        "(1, 0) and (-1, 0) have the mean 0 and an estimate of |G|^2 below 0: no batch is large "
        "enough, so the noise scale is infinite",
        "where no signal is seen, the noise scale is infinite",
    )
    t.close(
        from_squares([30.0], [10.0], 1, 5),
        [5.0, 25.0, 5.0],
        "squared lengths of 30 for batches of 1 and of 10 for batches of 5 give 5, 25 and a noise "
        "scale of 5, as in the chapter",
        "two batch sizes give 5, 25 and 5",
    )
    t.close(
        from_squares([30.0, 30.0], [10.0, 14.0], 2, 10),
        [7.5, 45.0, 6.0],
        "the measurements (30, 10) and (30, 14) have |G|^2 of 5 and 10 and tr(Sigma) of 50 and 40: "
        "take the means 7.5 and 45 first, and divide then, which gives 6 and not the mean of 10 "
        "and 4",
        "means are taken before the division",
    )
    t.equal(
        from_squares([30.0], [1.0], 1, 5)[2],
        math.inf,
        "with 30 and 1 the estimate of |G|^2 is negative: the noise scale is infinite",
        "here, too, it may be infinite",
    )


def check_3(t, steps_for, steps_of_the_405b, tokens_after):
    """32.3 What a ramp reads"""
    ramp = [(0, 4), (10, 8)]
    t.equal(
        [tokens_after(ramp, steps) for steps in range(6)],
        [0, 4, 8, 12, 20, 28],
        "the steps of the text read 0, 4, 8, 12, 20, 28 tokens: the third begins at 8, below the "
        "border of 10, and is a small one as a whole",
        "a step that begins in a stage is whole",
    )
    t.equal(
        tokens_after([(0, 5), (10, 8)], 3),
        18,
        "after two steps of 5 exactly 10 tokens have been read: the border is reached, and the "
        "third step is a large one",
        "a border that is met exactly is reached",
    )
    t.equal(
        [steps_for(ramp, tokens) for tokens in (0, 1, 8, 12, 13, 28)],
        [0, 1, 2, 3, 4, 5],
        "0, 1, 8, 12, 13 and 28 tokens take 0, 1, 2, 3, 4 and 5 steps: a step that is begun counts",
        "steps are rounded up",
    )
    t.equal(
        [
            tokens_after([(0, 100), (10, 200), (50, 300)], 2),
            steps_for([(0, 9), (3, 2), (5, 1)], 11),
        ],
        [400, 3],
        "a large step may jump over a whole stage, which is then left out",
        "a stage can be jumped over",
    )
    t.equal(
        steps_of_the_405b(),
        1_100_929,
        "the published ramp makes 1,100,929 steps of 15.6 T tokens: 61 of 4 M, then 8 M until "
        "2.87 T, then 16 M",
        "the 405B took about 1.1 million steps",
    )


def check_4(t, forward_passes, micro_batches, sequences):
    """32.4 Count four million"""
    t.equal(
        [sequences(2**22, 4_096), sequences(2**23, 8_192), sequences(2**24, 8_192)],
        [1_024, 1_024, 2_048],
        "4 M tokens of 4,096 are 1,024 sequences, 8 M of 8,192 as many, and 16 M of 8,192 are "
        "2,048",
        "4 M tokens are 1,024 sequences of 4,096",
    )
    t.equal(
        [micro_batches(1_024, 8), micro_batches(10, 100), micro_batches(7, 3)],
        [128, 1, 7],
        "1,024 sequences of which 8 fit make 128 parts, 10 of which 100 fit make 1, and 7 of which "
        "3 fit make 7, because 7 has no other divisors",
        "parts are equal and fit",
    )
    t.equal(
        micro_batches(1_024, 12),
        128,
        "1,024 / 12 rounded up is 86, but 86 parts cannot be equal: 128 parts of 8 is the first "
        "number that divides 1,024 and fits",
        "where 12 fit, 128 parts of 8 are needed all the same",
    )
    t.equal(
        forward_passes(2**22, 4_096, 8, 61),
        7_808,
        "61 steps of 128 micro-batches are 7,808 forward passes",
        "61 steps are 7,808 forward passes",
    )


def check_5(t, best_steps, knee, steps_to, what_twice_the_noise_does):
    """32.5 Find the knee"""
    one, ten = [1.0], [0.1] * 10
    t.equal(
        [steps_to((one, 0.0, target), 1, 0.5, 0, 50) for target in (0.5, 0.125, 0.12, 0.001)],
        [0, 1, 2, 5],
        "without noise and with a rate of 0.5, x is halved in every step, and the loss x^2/2 goes "
        "0.5, 0.125, 0.03125, ...: targets of 0.5, 0.125, 0.12 and 0.001 take 0, 1, 2 and 5 steps",
        "without noise the steps are those of a pencil",
    )
    t.equal(
        steps_to((one, 0.0, 1e-9), 1, 0.5, 0, 3),
        math.inf,
        "a run that has not arrived after `most` steps takes infinitely many",
        "a run that does not arrive is infinite",
    )
    t.equal(
        [steps_to((ten, 0.3, 0.05), batch, 0.4, 3, 600) for batch in (1, 4, 64)],
        [85, 41, 30],
        "with noise, batches of 1, 4 and 64 take 85, 41 and 30 steps with seed 3: one generator "
        "for the run, a number for each direction in each step, divided by the root of the batch",
        "runs with noise come out the same every time",
    )
    t.close(
        best_steps((ten, 0.3, 0.05), 4, [0.2, 0.8, 3.2], [0, 1, 2], 600),
        27.6666666667,
        "of the rates 0.2, 0.8 and 3.2 the best takes 27.7 steps as a mean over the seeds 0, 1, 2: "
        "take the mean for each rate first, then the least",
        "the best rate is the one with the least mean",
    )
    t.close(
        knee([10, 30, 90], [240, 120, 80]),
        [60.0, 30.0],
        "240, 120 and 80 steps at 10, 30 and 90 lie on the law with 60 least steps and a critical "
        "batch of 30",
        "an exact law is found again",
    )
    t.close(
        knee([2, 8, 32, 128], [1_000, 300, 130, 60]),
        [48.1380094561, 41.8037106629],
        "relative errors count, so that 60 steps weigh as much as 1,000: minimise the sum of "
        "((a + b/B)/S - 1)^2",
        "the fit is by relative errors",
    )
    t.equal(
        what_twice_the_noise_does(),
        "at about four times the batch",
        "your conclusion does not fit: with the noise doubled, batches of 4 do what batches of 1 "
        "did before, and the knee moves with them",
        "with twice the noise the knee comes at about four times the batch",
    )
