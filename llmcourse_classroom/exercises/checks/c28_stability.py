"""Checks of exercises 28: Stability."""

import math

import torch


def check_1(t, verdicts):
    """28.1 A spike, or a new level?"""
    # The chapter's example: median 3, median distance 1, and with a factor of 2 the limit 5.97.
    seen = [1.0, 2.0, 4.0, 3.0, 100.0]
    t.equal(
        verdicts(seen, 5, 2.0, 0.0, 9),
        ["fine"] * 5,
        "the memory of five is not full before the sixth value: until then every finite value is "
        "fine, also 100",
        "nothing is said before the memory is full",
    )
    t(
        verdicts([*seen, 20.0], 5, 2.0, 0.0, 9)[-1] == "spike",
        "20 is no spike to you, after 1, 2, 4, 3, 100. A mean and a standard deviation run after "
        "the 100; the median stays at 3, and the limit at 5.97",
        "one wild value in the memory does not lift the limit",
    )
    t(
        verdicts([*seen, 5.5], 5, 2.0, 0.0, 9)[-1] == "fine",
        "5.5 is a spike to you: the distance of 1 is multiplied by 1.4826, which makes it the "
        "standard deviation of a normal distribution, and then by the factor. The limit is 5.97",
        "the spread has its constant",
    )
    t(
        verdicts([1.0, 2.0, 3.0, 5.5], 3, 2.0, 0.0, 9)[-1] == "spike",
        "5.5 after 1, 2, 3 is fine to you: a value is judged by those before it, whose limit is "
        "4.97, and enters the memory afterwards",
        "a value is judged before it is remembered",
    )
    t(
        verdicts([1.0, 2.0, 3.0, 2.0, 30.0], 3, 2.0, 0.0, 9)[-1] == "spike",
        "30 after 1, 2, 3, 2 is fine to you: the memory holds the last `window` values, here 2, 3, "
        "2. When one enters a full memory, the oldest is forgotten",
        "the oldest value is forgotten",
    )
    t(
        verdicts([1.0, 2.0, 3.0, 4.0, 5.2], 4, 2.0, 0.0, 9)[-1] == "fine",
        "5.2 after 1, 2, 3, 4 is a spike to you: the median of four is the mean of the two in the "
        "middle, 2.5, as is the median distance, 1. The limit is 5.47",
        "the median of an even number of values",
    )
    t(
        verdicts([1.0, 2.0, 3.0, -50.0], 3, 2.0, 0.0, 9)[-1] == "fine",
        "a loss that falls is no spike: only a value above the limit is",
        "a sudden fall is fine",
    )
    t.equal(
        verdicts([1.0, 2.0, 3.0, math.nan, 9.0, math.inf, -math.inf], 3, 2.0, 0.0, 9)[3:],
        ["not finite", "spike", "not finite", "not finite"],
        "NaN is in no order to any number, so that NaN > limit is False: ask first whether a value "
        "is finite, and do not remember it if it is not",
        "values that are not finite have their own verdict and are not remembered",
    )
    calm = [2.0, 2.0, 2.0]
    t(
        verdicts([*calm, 3.0], 3, 2.0, 1.0, 9)[-1] == "fine",
        "a value that is equal to the limit is no spike: only one above it is",
        "the limit itself is fine",
    )
    t.equal(
        [
            verdicts([1.0, 2.0, 3.0, 5.5], 3, 2.0, 1.0, 9)[-1],
            verdicts([*calm, 2.9, 3.1], 3, 2.0, 1.0, 9)[-2:],
        ],
        ["spike", ["fine", "spike"]],
        "least_rise is not added to the spreads: the larger of the two counts. After 1, 2, 3 the "
        "limit is 2 + max(2.97, 1) = 4.97, and after 2, 2, 2 it is 2 + max(0, 1) = 3",
        "the larger of spreads and least rise counts",
    )
    t.equal(
        verdicts([1.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0], 3, 2.0, 0.0, 9)[3:],
        ["spike"] * 4,
        "your spikes enter the memory: after two of them a value of 9 passes for usual",
        "spikes are not remembered",
    )
    t.equal(
        verdicts([1.0, 2.0, 3.0, 9.0, 2.0, 9.0, math.nan, 9.0], 3, 2.0, 0.0, 2)[3:],
        ["spike", "fine", "spike", "not finite", "new level"],
        "patience is for spikes in a row: the 2.0 between the first two ends the row, and NaN "
        "neither ends it nor counts",
        "only spikes in a row are a new level",
    )
    t.equal(
        verdicts([1.0, 2.0, 3.0, 9.0, 9.5, 50.0, 9.2, 50.0, 9.4], 3, 2.0, 0.0, 2)[3:],
        ["spike", "new level", "fine", "fine", "spike", "fine"],
        "a new level throws away all that was remembered and keeps this value alone: 9.5, 50 and "
        "9.2 fill the memory again, and until then everything is fine. The second 50 is a spike",
        "a new level begins a new memory",
    )


def check_2(t, replay):
    """28.2 A hundred steps back"""
    answer = replay(30, 10, [23], 2)
    t(
        isinstance(answer, list | tuple) and len(answer) == 2,
        "return two lists: the batches in the final weights, and the pairs",
        "two lists come back",
    )
    survived, rewinds = list(answer[0]), list(answer[1])
    t(
        23 not in survived or 25 in survived,
        "batch 23 is still in the weights after the run went back: a snapshot must be a copy, and "
        "yours changed along with the weights",
        "a snapshot does not change afterwards",
    )
    t(
        len(set(survived)) == len(survived) and 23 not in survived,
        "you turned the data back as well: the run would meet the batches before the spike again, "
        "and the spike with them. They are lost",
        "the data are not turned back",
    )
    t(
        15 not in survived or 25 in survived,
        "you returned to the snapshot before batch 20: of two, the older one is brought back, here "
        "that before batch 10",
        "the older of two snapshots is brought back",
    )
    t(
        25 not in survived and 26 in survived,
        "skip is 2, and the detector speaks after batch 23: 24 and 25 are skipped, and the run "
        "goes on with 26",
        "so many batches are skipped, and no more",
    )
    t.equal(
        [survived, rewinds],
        [[*range(10), *range(26, 30)], [(23, 10)]],
        "noticed at 23, returned to the state before batch 10, the older of the last two: batches "
        "0 to 9 and 26 to 29 are in the weights, and the pair is (23, 10)",
        "noticed at 23, returned to 10",
    )
    t(
        25 not in replay(40, 10, [23, 26], 0)[0],
        "batch 25 is in the weights, though the run went back to batch 10 after it: you went on "
        "training in the snapshot itself, which was needed a second time",
        "a snapshot can be brought back twice",
    )
    t.equal(
        replay(12, 10, [3, 10], 0),
        ([11], [(3, 0), (10, 0)]),
        "with a single snapshot the run returns to that; and a snapshot is taken before its batch, "
        "so that the second one, before batch 10, does not hold batch 10",
        "one snapshot is enough to go back",
    )
    t.equal(
        replay(40, 10, [23, 33], 0)[1],
        [(23, 10), (33, 10)],
        "after the first return, the snapshot before batch 20 is thrown away: it may already hold "
        "the seed of the trouble. So at 33 the older one is that before batch 10 again",
        "the newer snapshot is thrown away",
    )
    t.equal(
        replay(60, 10, [23, 46, 50], 20),
        ([*range(10)], [(23, 10), (46, 10)]),
        "on a skipped batch nothing happens: 24 to 43 are skipped, and no snapshot is taken before "
        "30 and 40; at 46 the run returns to 10 and skips the rest, also batch 50",
        "nothing happens on a skipped batch",
    )
    t.equal(
        replay(1_000, 50, [640], 300),
        ([*range(550), *range(941, 1_000)], [(640, 550)]),
        "noticed at 640, with snapshots before 550 and 600; 641 to 940 are the 300 batches that "
        "are skipped",
        "PaLM's way: 90 batches before the noticed one are lost, and 300 after it are skipped",
    )


def check_3(t, scores_and_limit):
    """28.3 QK-norm"""

    def found(q, k, gain_q, gain_k, *, num_heads=1, eps=0.0):
        """Return your answer to rows of numbers."""
        numbers = [torch.tensor(rows, dtype=torch.float64) for rows in (q, k, gain_q, gain_k)]
        return scores_and_limit(*numbers, num_heads, eps)

    # One token, one head: the mean square of (3, 4, 0, 0) is 25 / 4.
    ones = [1.0] * 4
    answer = found([[3.0, 4, 0, 0]], [[0.0, 2, 0, 0]], ones, ones)
    t(
        isinstance(answer, list | tuple)
        and len(answer) == 2
        and isinstance(answer[0], torch.Tensor)
        and answer[0].shape == (1, 1, 1),
        "return two things: a tensor of shape (heads, tokens, tokens), and a number",
        "a tensor and a number come back",
    )
    score = answer[0].item()
    t(
        not math.isclose(score, 0.4),
        "you scaled the vectors to length 1. Root mean square 1 is length √K; with length 1 no "
        "score exceeds 1/√K, and the softmax could hardly choose",
        "a vector of root mean square 1 has length √K",
    )
    t(
        not math.isclose(score, 3.2),
        "q · k is divided by √K also with QK-norm",
        "the product is divided by √K",
    )
    t(
        math.isclose(score, 1.6),
        "(3, 4, 0, 0) becomes (1.2, 1.6, 0, 0), the key has root mean square 1 already, and "
        "1.6 × 2 / √4 = 1.6. The mean is not taken off",
        "one query, one key: 1.6",
    )
    longer = [
        found([[30.0, 40, 0, 0]], [[0.0, 2, 0, 0]], ones, ones)[0].item(),
        found([[3.0, 4, 0, 0]], [[0.0, 20, 0, 0]], ones, ones)[0].item(),
    ]
    t.close(
        longer,
        [1.6, 1.6],
        "a query or a key that is ten times as long gives another score: both are to be "
        "normalised, since either of them can grow",
        "neither the length of queries nor that of keys counts",
    )
    two_heads = found([[3.0, 4, 30, 40]], [[0.0, 1, 0, 1]], [1.0, 1], [1.0, 1], num_heads=2)[0]
    t(
        not two_heads.isnan().any(),
        "head 0 has the first K of the D channels, and head 1 the next K. You mixed them: the key "
        "(0, 1, 0, 1) is (0, 1) in each head, and not zeros in one of them",
        "each head has K channels in a row",
    )
    t.close(
        two_heads,
        torch.full((2, 1, 1), 1.6 / math.sqrt(2), dtype=torch.float64),
        "you took the mean square over all heads together: a head with longer vectors than the "
        "others then has larger scores, and √K is no limit. Each head is normalised by itself",
        "each head is normalised by itself",
    )
    # Two channels are one pair, which turns by one radian for each position.
    ahead = found([[1.0, 0], [1, 0]], [[1.0, 0], [1, 0]], [1.0, 1], [1.0, 1])[0]
    near, far = math.sqrt(2), math.sqrt(2) * math.cos(1)
    t.close(
        ahead,
        torch.tensor([[[near, far], [far, near]]], dtype=torch.float64),
        "the score of equal vectors falls with their distance: row t is rotated to position t, and "
        "`rotate` takes (T, H, K), with the tokens first",
        "queries and keys are rotated to their positions",
    )
    t.close(
        found([[1.0, 0]], [[1.0, 0]], [3.0, 1], [2.0, 1])[0][0, 0, 0],
        6 * math.sqrt(2),
        "gains of 3 and 2 make the score six times as large: queries have theirs, and keys have "
        "theirs",
        "the gains multiply",
    )
    oblique = found([[1.0, 0], [1, 0]], [[0.0, 1], [0, 1]], [3.0, 1], [1.0, 2])[0]
    score, root_sine = oblique[0, 1, 0].item(), math.sqrt(2) * math.sin(1)
    t(
        not math.isclose(score, -6 * root_sine),
        "queries and keys have changed places: the axes are head, query, key",
        "the axes are head, query, key",
    )
    t(
        not math.isclose(score, root_sine),
        "the gains have changed places: gain_q_K is for the queries",
        "queries and keys have their own gains",
    )
    t.close(
        score,
        6 * root_sine,
        "the gain belongs to the norm, ahead of the rotation: after it, channels have been mixed, "
        "and a gain for each of them would depend on the position",
        "norm and gain come before the rotation",
    )
    t.close(
        [
            found([[0.0, 0]], [[1.0, 1]], [1.0, 1], [1.0, 1], eps=3.0)[0].item(),
            found([[1.0, 1]], [[1.0, 1]], [1.0, 1], [1.0, 1], eps=3.0)[0].item(),
        ],
        [0.0, 0.25 * math.sqrt(2)],
        "eps stands beside the mean square, under the root: with a mean square of 1 and eps = 3 a "
        "vector is divided by 2, and a query of zeros is no NaN",
        "eps stands under the root",
    )
    t.close(
        found([[1.0] * 4], [[1.0] * 4], [1.0, -3, 2, 1], [0.5, 0.25, 0.5, 0])[1],
        3.0,
        "gains of (1, -3, 2, 1) and at most 0.5, K = 4: the limit is 2 × 3 × 0.5 = 3. A gain of -3 "
        "makes a vector as long as one of 3",
        "√K times the largest absolute gains",
    )


def check_4(t, first_bad):
    """28.4 The first bad number"""

    def row(*numbers):
        return torch.tensor([numbers], dtype=torch.float32)

    one = torch.ones(1, 2)
    double = 2 * torch.eye(2)
    calm = [("linear", double), ("norm", None), ("gain", torch.ones(2))]
    t.equal(
        [
            first_bad(calm, row(1, 2), one, math.inf),
            first_bad([("linear", double)], row(1, 0.5), one, 2.0),
        ],
        [None, None],
        "all numbers of these two models are good, also one that is equal to largest: return None",
        "nothing is found in a model without a fault",
    )
    # ln 0 in a branch of `where` that is not chosen: good in forward, NaN in backward.
    guarded = [("gain", torch.ones(2)), ("softmax", None), ("entropy", None)]
    answer = first_bad(guarded, row(200, 0), one, math.inf)
    t(
        answer is not None,
        "you found nothing, though a gradient is NaN: all outputs are good here, so you have to "
        "look through backward, and NaN > largest is False",
        "a NaN in the gradient is found",
    )
    t(
        answer is None or answer[:2] != (0, "gradient of the output"),
        "you went through the gradients from layer 0 on. Backward begins at the last layer: what "
        "layer 0 receives has already passed through all others",
        "backward begins at the last layer",
    )
    t(
        answer is None or answer[0] != 2,
        "you named layer 2, the entropy, whose output has a good gradient, `slope`. What it hands "
        "down is bad, and that is the gradient of the output of layer 1",
        "a gradient belongs to the output of one layer",
    )
    t(
        answer is None or answer[2] != 1.0,
        "one of two numbers is bad, and you say all of them: the third result is a share",
        "the share of bad numbers",
    )
    t.close(
        answer,
        (1, "gradient of the output", 0.5),
        "0 times infinity: the gradient that reaches the output of layer 1, the softmax, is NaN "
        "where the softmax is 0, which is one of two numbers",
        "a NaN that only backward has",
    )
    t.close(
        first_bad([("exp", None), ("norm", None)], row(1, 100), one, math.inf),
        (0, "output", 0.5),
        "e¹⁰⁰ is infinite in float32, and infinite is bad also where largest is infinity: "
        "inf > inf is False, and inf <= inf is True",
        "an infinite output is found",
    )
    flipped = torch.tensor([[1.0, 0.0], [0.0, 1e30]])
    answer = first_bad([("exp", None), ("linear", flipped)], row(20, 1), one, 1e6)
    t(
        answer is not None,
        "you found nothing, though a weight is 10³⁰ and largest is 10⁶: a number need not be "
        "infinite to be bad",
        "a number that is too large is found",
    )
    t.close(
        answer,
        (1, "weight", 0.25),
        "all weights come first. e²⁰ is above 10⁶ as well, but it is an output, and what is stored "
        "in the model is looked at before anything is computed",
        "weights are looked at before the forward pass",
    )
    t.close(
        [
            first_bad(calm, row(1, 2), row(1, math.nan), math.inf),
            first_bad(calm, row(1, 2), row(1, -1e7), 1e6),
        ],
        [(2, "gradient of the output", 0.5), (2, "gradient of the output", 0.5)],
        "a bad number in `slope` comes out of the loss, and is looked at before any gradient of a "
        "weight; and of a negative number the absolute value counts",
        "a fault of the loss is found before all layers",
    )
    twice = [("linear", double), ("linear", double.clone())]
    t.close(
        first_bad(twice, row(0, 1e30), 1e10 * one, 1e35),
        (1, "gradient of the weight", 0.5),
        "the gradient of layer 1's weight is 10¹⁰ times its input, 2 × 10³⁰, or 0; it is looked at "
        "right after that of the layer's output",
        "the gradient of a weight is found",
    )


def check_5(t, qk_clip):
    """28.5 QK-Clip"""

    def number(*rows):
        return torch.tensor(rows, dtype=torch.float64)

    # One head with one channel. Queries 8 and 4, keys 4 and 2: scores 32, 16, 8.
    w_q, w_k, x = number([4.0]), number([2.0]), number([2.0], [1.0])
    answer = qk_clip(w_q, w_k, x, 1, 8.0)
    t(
        isinstance(answer, list | tuple)
        and len(answer) == 3
        and all(isinstance(w, torch.Tensor) and w.shape == (1, 1) for w in answer[:2]),
        "return three things: the new w_q and w_k, of the shapes that you got, and a list",
        "two matrices and a list come back",
    )
    t(
        w_q.item() == 4 and w_k.item() == 2,
        "the matrices that you were given have changed: compute new ones",
        "what was given stays as it is",
    )
    new_q, new_k, largest = answer
    t.close(
        list(largest),
        [32.0],
        "x = 2 and 1, w_q = 4, w_k = 2: the first query is 8 and the first key 4, so that the "
        "largest score is 32. It is that from before the clip",
        "the largest score before",
    )
    t(
        not math.isclose(new_q.item() * new_k.item(), 0.5),
        "you multiplied both matrices by tau/s = 1/4. A score is a product of a query and a key, "
        "so it became 16 times smaller: 2 in place of 8",
        "the score becomes tau, and not less",
    )
    t.close(
        [new_q.item(), new_k.item()],
        [2.0, 1.0],
        "s = 32 and tau = 8: both matrices are multiplied by the same factor √(8/32) = 1/2, so w_q "
        "becomes 2 and w_k becomes 1",
        "both matrices share the factor",
    )
    # Two heads of one channel: scores 32, 16, 8 as before, and 0.5 at most.
    two_q, two_k = number([4.0], [0.25]), number([2.0], [0.5])
    new_q, new_k, largest = qk_clip(two_q, two_k, x, 2, 8.0)
    t(
        not math.isclose(new_q[1].item(), 0.125),
        "the second head has scores of 0.5 at most, and you scaled it along with the first: each "
        "head has its own largest score and its own factor",
        "a head is not scaled for what another one did",
    )
    t(
        new_q[1].item() <= 0.25 and new_k[1].item() <= 0.5,
        "you scaled the second head *up* to tau: its largest score is 0.5, and it was to stay as "
        "it is",
        "no head is scaled up",
    )
    t.close(
        [new_q.flatten().tolist(), new_k.flatten().tolist(), list(largest)],
        [[2.0, 0.25], [1.0, 0.5], [32.0, 0.5]],
        "the first head is halved twice, and the second one stays: w_q = (2, 0.25), "
        "w_k = (1, 0.5), largest scores (32, 0.5)",
        "heads are clipped one by one",
    )
    # The first query is 1, the second key 100: a score that nobody sees.
    one, tokens = number([1.0, 0.0], [0.0, 0.0]), number([1.0, 0.0], [0.0, 100.0])
    other = number([0.0, 1.0], [0.0, 0.0])
    future = qk_clip(one, other, tokens, 1, 8.0)
    t(
        max(future[2]) < 50,
        "query 0 and key 1 have a score of 70.7, but a token sees only itself and those before it: "
        "this pair does not count",
        "what is not seen does not count",
    )
    t.close(
        list(qk_clip(number([3.0], [0.0]), number([5.0], [0.0]), number([1.0]), 1, 100.0)[2]),
        [15 / math.sqrt(2)],
        "a score is divided by √K: with K = 2, 3 · 5 is a score of 10.6",
        "scores are divided by √K",
    )
    below = qk_clip(number([4.0]), number([-2.0]), x, 1, 8.0)
    t(
        not (below[0].isnan().any() or below[1].isnan().any()),
        "all scores of this head are negative, -8 at most, and you took the root of a negative "
        "number: such a head stays as it is",
        "a head with negative scores alone",
    )
    t.close(
        [below[0].item(), below[1].item(), *below[2]],
        [4.0, -2.0, -8.0],
        "scores of -32, -16 and -8: the largest is -8, which is below tau = 8. A score far below 0 "
        "only means that a key is not read",
        "the largest score, and not the largest absolute value",
    )
