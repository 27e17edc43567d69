"""Checks of exercises 13: RMSNorm, RoPE, SiLU."""

import math

import torch


def check_1(t, rmsnorm):
    """13.1 RMSNorm"""
    four, three = torch.ones(4, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    flat = rmsnorm(7 * four, four, 1e-12)
    t(isinstance(flat, torch.Tensor), "your answer is no tensor: is there a return?", "a tensor")
    t(
        not (flat.abs() < 1e-3).all(),
        "you subtracted the mean, as LayerNorm does: four 7s then become zeros. RMSNorm subtracts "
        "nothing",
        "nothing is subtracted",
    )
    t(
        not (flat.abs() > 100).any(),
        "you divided by the standard deviation, which is 0 for four 7s: it measures from the mean, "
        "and the root mean square measures from 0",
        "the size is measured from 0, not from the mean",
    )
    t(
        not torch.allclose(flat, four / 2),
        "you divided by the root of the sum: with 4 channels that is twice the root of the mean",
        "squares are averaged, so the number of channels does not matter",
    )
    row = torch.tensor([1, 5, 7], dtype=torch.float64)  # its mean square is 75 / 3
    t.close(
        rmsnorm(row, three, 1e-12),
        row / 5,
        "a token of 1, 5 and 7 has the mean square 75 / 3 = 25: with gains of 1 it is divided by "
        "the root of that, 5",
        "a token of 1, 5 and 7 is divided by 5",
    )
    t.close(
        rmsnorm(torch.stack([row, 10 * row, -100 * row]), three, 1e-12),
        torch.stack([row / 5, row / 5, -row / 5]),
        "a token is not divided by its own root mean square: take the mean over the last axis "
        "alone, and keep that axis (keepdim), or it is lined up with the columns",
        "each token has its own divisor: x and 10 x become the same",
    )
    t.close(
        rmsnorm(torch.stack([four / 1000, 0 * four]), four, 3e-6),
        torch.stack([four / 2, 0 * four]),
        "eps stands inside the root, beside the mean square: four entries of 0.001 have mean "
        "square 1e-6, and with eps = 3e-6 they are divided by 0.002",
        "eps is added to the mean square, under the root; zeros stay zeros",
    )
    t.close(
        rmsnorm(row, torch.tensor([10, 2, 0], dtype=torch.float64), 1e-12),
        torch.tensor([2, 2, 0], dtype=torch.float64),
        "the gain is to multiply the normalised vector, channel by channel: if it multiplies x "
        "beforehand, the division takes part of it back",
        "the gain scales each channel after the division",
    )
    many = torch.stack([torch.stack([row, 2 * row]), torch.stack([-row, row.flip(0)])])
    t.close(
        rmsnorm(many, three, 1e-12),
        torch.stack([torch.stack([row, row]), torch.stack([-row, row.flip(0)])]) / 5,
        "with two sequences of two tokens, each token is still divided by its own root mean "
        "square: the channels are the last axis, however many stand in front",
        "any number of axes may stand in front of the channels",
    )


def check_2(t, rotate):
    """13.2 Rotate, in both layouts"""
    quarter = math.pi / 2

    def rotated(rows, at, theta, layout):
        """Return your rotation of some rows of numbers."""
        x_TK = torch.tensor(rows, dtype=torch.float64)
        return rotate(x_TK, torch.tensor(at, dtype=torch.float64), theta, layout)

    def near(mine, right):
        return torch.allclose(mine, torch.tensor(right, dtype=torch.float64), atol=1e-5, rtol=0)

    # Two channels are one pair, and it turns by 1 radian for each position.
    turned = rotated([[1, 0], [1, 0]], [quarter, 0], 100.0, "adjacent")
    t(
        isinstance(turned, torch.Tensor) and turned.dtype == torch.float64,
        "your answer is no tensor of float64: is there a return, and no conversion to float32?",
        "a tensor of float64 comes back",
    )
    t(
        not near(turned[0], [1, 0]),
        "the first row stands at position pi/2 and was not turned: row t stands at positions_T[t], "
        "and not at t",
        "each row stands at its own position",
    )
    t(
        not near(turned[0], [0, -1]),
        "you turned clockwise: one radian takes (1, 0) towards (0, 1), and your signs of the sines "
        "are exchanged",
        "a growing position turns (1, 0) towards (0, 1)",
    )
    t(
        near(turned[1], [1, 0]),
        "position 0 turns nothing: positions are taken as they are given, from 0",
        "position 0 turns nothing",
    )
    oblique = rotated([[3, 4]], [quarter], 100.0, "adjacent")
    t(
        not near(oblique, [[-4, -4]]),
        "you overwrote a before b was computed: a quarter turn takes (3, 4) to (-4, 3), and both "
        "new numbers are made of both old ones",
        "both new numbers are made of both old ones",
    )
    t.close(
        oblique,
        torch.tensor([[-4, 3]], dtype=torch.float64),
        "at position pi/2 the first pair has turned by pi/2 radians: (3, 4) has become (-4, 3)",
        "at position pi/2 the first pair has made a quarter turn",
        absolute=1e-5,
    )
    # With K = 4 and theta = 400 the pairs turn by 1 and by 0.05 for each position: at 10 pi the
    # first has made 5 whole turns, and the second a quarter.
    slow = rotated([[1, 2, 3, 4]], [10 * math.pi], 400.0, "adjacent")
    t(
        not near(slow[0], [1, -4, 3, 2]),
        "for 'adjacent' you turned the pairs of 'halves': in 'adjacent' channel 0 is paired with "
        "channel 1",
        "'adjacent' pairs channels 0 and 1, 2 and 3",
    )
    t(
        not near(slow[0], [1, -4, 2, 3]),
        "your numbers are right, but they stand in the channels of 'halves': in 'adjacent' a and "
        "b have to be interleaved again",
        "what was taken apart is put back in its place",
    )
    t.close(
        slow,
        torch.tensor([[1, 2, -4, 3]], dtype=torch.float64),
        "pair j turns by position x theta^(-2j/K): with K = 4 and theta = 400 the second pair is "
        "20 times slower than the first",
        "with theta = 400 the second pair of four channels turns 20 times slower than the first",
        absolute=1e-5,
    )
    halves = rotated([[1, 2, 3, 4]], [10 * math.pi], 400.0, "halves")
    t(
        not near(halves[0], [1, 2, -4, 3]),
        "you rotated neighbours in both layouts: in 'halves' channel j is paired with j + K/2",
        "'halves' does not pair neighbours",
    )
    t.close(
        halves,
        torch.tensor([[1, -4, 3, 2]], dtype=torch.float64),
        "in 'halves' channels j and j + K/2 turn by one angle: spread over the channels the angles "
        "of four stand as 0, 1, 0, 1, and not as 0, 0, 1, 1",
        "'halves' pairs channel j with j + K/2, and both turn by the same angle",
        absolute=1e-5,
    )
    far, frequencies = 100_000.0, 500_000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    spokes = torch.polar(torch.ones_like(frequencies), far * frequencies)
    t.close(
        [
            rotated([[1, 0] * 4], [far], 500_000.0, "adjacent"),
            rotated([[1] * 4 + [0] * 4], [far], 500_000.0, "halves"),
        ],
        [
            torch.view_as_real(spokes).reshape(1, 8),
            torch.cat([spokes.real, spokes.imag]).reshape(1, 8),
        ],
        "at position 100,000 your angles are off: float32 holds seven digits, and an angle of "
        "100,000 radians uses up six of them. Compute the frequencies in float64",
        "at position 100,000 the angles are right to eight digits",
        relative=1e-8,
    )
    heads = torch.arange(24, dtype=torch.float64).reshape(2, 3, 1, 4).expand(2, 3, 3, 4)
    at = torch.tensor([0.0, 2.0, 7.0], dtype=torch.float64)
    t.close(
        [rotate(heads, at, 100.0, layout) for layout in ("adjacent", "halves")],
        [
            torch.stack(
                [torch.stack([rotate(one, at, 100.0, layout) for one in many]) for many in heads]
            )
            for layout in ("adjacent", "halves")
        ],
        "with two sequences of three heads the result is not that of each head by itself: T is "
        "the last axis but one, whatever stands in front of it",
        "heads and sequences in front of the tokens change nothing",
        relative=1e-9,
    )


def check_3(t, relative_codes):
    """13.3 Which codes know only the distance?"""
    generator = torch.Generator().manual_seed(13)
    places = torch.arange(12, dtype=torch.float64)
    frequencies = 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4)

    def vectors(count):
        """Return random vectors, (count, 8)."""
        return torch.randn(count, 8, generator=generator, dtype=torch.float64)

    def turned(x_NK, at):
        """Return every vector rotated for every position."""
        angles = torch.outer(at, frequencies)
        pairs = torch.view_as_complex(x_NK.reshape(-1, 1, 4, 2))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    def waved(x_NK, at):
        """Return every vector with the sines and cosines of every position added."""
        angles = torch.outer(at, frequencies)
        return x_NK[:, None] + torch.cat([angles.cos(), angles.sin()], -1)

    growth = (1.1**places).unsqueeze(-1)

    def accepted(queries, keys, tolerance=1e-9):
        """Say whether you accept one code."""
        return "it" in relative_codes({"it": (queries, keys)}, tolerance)

    def marked(place, size=1.0):
        """Return twelve vectors (size, 0), but (size, 1) at one place."""
        return torch.stack([torch.full((12,), size).double(), (places == place).double()], -1)[None]

    whole, other = torch.ones(1, 4, 2).double(), torch.full((1, 4, 2), 2.0).double()
    t(
        accepted(whole, other),
        "you refuse a code that ignores positions: all its scores are equal, so those of one "
        "distance are",
        "a code that ignores positions keeps the promise",
    )
    q, k = vectors(3), vectors(3)
    t(
        not accepted(vectors(12).reshape(1, 12, 8), vectors(12).reshape(1, 12, 8)),
        "you accept a table of random vectors: look whether the scores of each distance agree",
        "a table of random vectors does not keep the promise",
    )
    t(
        not accepted(turned(q, places) * growth, turned(k, -places) * growth),
        "you compared the scores that have one i + j: in a table with a row for each i, i - j is "
        "constant from top left to bottom right",
        "it is i - j that counts, not i + j",
    )
    # Quarter turns of whole numbers have no rounding: (1, 2) and (3, 1), at four positions.
    exact = [[[[1, 2], [-2, 1], [-1, -2], [2, -1]]], [[[3, 1], [-1, 3], [-3, -1], [1, -3]]]]
    t(
        accepted(*torch.tensor(exact, dtype=torch.float64)),
        "you refuse quarter turns, which keep the promise: have you put i - j and j - i together? "
        "RoPE tells a key behind the query from one ahead",
        "distances have a sign",
    )
    t(
        accepted(torch.cat([whole, 2 * whole]), torch.cat([whole, whole])),
        "you compared the scores of one n with those of another: here they are 2 for the first "
        "pair and 4 for the second, at all positions",
        "two pairs may have different scores",
    )
    t(
        accepted(turned(q, places), turned(k, places)),
        "you asked for scores that are equal to the last bit: sines and cosines are rounded, so "
        "compare with the tolerance",
        "rounding is no position",
    )
    t(
        accepted(turned(q, places) * growth, turned(k, places) / growth),
        "you asked for vectors that keep their length: the promise is about scores, and here the "
        "queries grow as fast as the keys shrink",
        "queries that grow and keys that shrink may keep the promise, too",
    )
    blank = torch.cat([torch.zeros(1, 8, dtype=torch.float64), q])
    t(
        not accepted(waved(blank, places), waved(blank, places)),
        "one pair that keeps the promise was enough for you: the first query and key here are all "
        "zeros, and a code that adds to the vectors shows itself only in the others",
        "every pair of query and key is looked at",
    )
    both_signs = torch.cat([q, -q])
    t(
        not accepted(waved(both_signs, places), waved(both_signs, places)),
        "you averaged over the N pairs before you compared: here the errors of a pair and of its "
        "negative cancel, and yet each of them breaks the promise",
        "each pair has to keep the promise by itself",
    )
    t(
        not accepted(turned(q, places.sqrt()), turned(k, places.sqrt())),
        "you compared only the scores with i = j: there all rotations cancel, whatever the angles",
        "all distances are looked at",
    )
    t(
        not accepted(marked(3), marked(9)),
        "all scores are 1 here, but that of query 3 and key 9 is 2: look at every distance, also "
        "where the key is ahead of the query, and at every score of that distance",
        "one score that differs is found, six places ahead of the query",
    )
    t(
        not accepted(marked(9), marked(3)),
        "all scores are 1 here, but that of query 9 and key 3 is 2: look at every distance, also "
        "where the key is behind the query, and at every score of that distance",
        "one score that differs is found, six places behind the query",
    )
    drifting = (1 + places / 10).reshape(1, 12, 1)
    t(
        not accepted(torch.ones_like(drifting), drifting, 0.15),
        "you compared each score with the next: here they grow by 0.1 at a time, within the "
        "tolerance of 0.15, and yet by 1.1 from the first to the last",
        "small steps add up: any two scores of a distance have to agree",
    )
    t(
        not accepted(marked(3, 1e3), marked(3, 1e3), 0.5),
        "scores of 1,000,000 and 1,000,001 passed at a tolerance of 0.5: torch.allclose and "
        "math.isclose allow more for large numbers, unless you set their relative tolerance to 0",
        "the tolerance is the same for large scores",
    )
    line_up = {
        "waves added": (waved(q, places), waved(k, places)),
        "queries rotated": (turned(q, places), k[:, None].expand(3, 12, 8)),
        "from position 1,000": (turned(q, places + 1000), turned(k, places + 1000)),
        "both rotated": (turned(q, places), turned(k, places)),
        "turned twice": (turned(q, 2 * places), turned(k, places)),
        "no code": (q[:, None].expand(3, 12, 8), k[:, None].expand(3, 12, 8)),
    }
    t.equal(
        relative_codes(line_up, 1e-9),
        ["from position 1,000", "both rotated", "no code"],
        "among six programs your list is another: the names stand in the order of codes, and a "
        "code that ignores positions changes no score either",
        "among six programs, rotation keeps the promise if both sides turn the same way, wherever "
        "counting starts, and a code without any position keeps it, too",
    )


def check_4(t, conclusions, missed, norm, turn, *, trained_loss):
    """13.4 Which part is missed?"""
    gain, x = torch.tensor([2.0, 10.0]), torch.tensor([[[1.0, 7.0]]])
    t.close(
        [norm("nothing", x, gain), norm("position", x, gain)],
        [torch.tensor([[[0.4, 14.0]]])] * 2,
        "(1, 7) has an rms of 5: with gains of 2 and 10 it becomes (0.4, 14), also where the "
        "positions are taken out",
        "the norm works unless it is taken out",
        relative=1e-4,
    )
    t.close(
        norm("norm", x, gain),
        torch.tensor([[[2.0, 70.0]]]),
        "without the norm (1, 7) with gains of 2 and 10 becomes (2, 70): nothing is divided, and "
        "the gains are still there",
        "without the norm only the gains are left",
    )
    quarter = torch.tensor([[0.0], [math.pi / 2]])
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    t.close(
        [turn("nothing", rows, quarter), turn("norm", rows, quarter)],
        [torch.tensor([[1.0, 0.0], [0.0, 1.0]])] * 2,
        "a quarter turn takes (1, 0) to (0, 1), also where the norms are taken out",
        "queries and keys are turned unless positions are taken out",
        absolute=1e-5,
    )
    t.close(
        turn("position", rows, quarter),
        rows,
        "without positions (1, 0) stays (1, 0) at every place",
        "without positions nothing is turned",
    )
    table = {"nothing": [1.0, 3.0], "norm": [3.9, 1.0], "position": [1.2, 3.1]}

    t.equal(
        missed(table, 0.3),
        ["norm"],
        "with losses of 1 and 3 for the whole model, 3.9 and 1 without norms, 1.2 and 3.1 without "
        "positions, only the norm is missed by more than 0.3: the means are 2, 2.45 and 2.15",
        "means are compared, not the best or the worst seed",
    )
    t.equal(
        [missed(table, bound) for bound in (0.1, 0.5)],
        [["norm", "position"], []],
        "compare with the bound that is given: means of 2, 2.45 and 2.15 miss both parts at a "
        "bound of 0.1, and none at 0.5",
        "the bound is the caller's",
    )
    found = {
        task: missed(
            {part: [trained_loss(part, task, 0, norm=norm, turn=turn)] for part in table}, 0.1
        )
        for task in ("back", "commonest")
    }
    t.equal(
        conclusions().get("back"),
        found["back"],
        "trained again, three places back misses both parts: without positions the model knows "
        "which symbols came and not where, and without norms this rate is too much for it",
        "three places back: norm and position are missed",
    )
    t.equal(
        conclusions().get("commonest"),
        found["commonest"],
        "trained again, the commonest symbol misses the norm alone: how often a symbol came does "
        "not depend on the order",
        "the commonest symbol so far: only the norm is missed",
    )
