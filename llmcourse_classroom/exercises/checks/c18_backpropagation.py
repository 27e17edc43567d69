"""Checks of exercises 18: Backpropagation from scratch."""

import math

import numpy as np
import torch


def check_1(t, local_slopes):
    """18.1 Operations that the engine lacks"""

    def slopes_of(operation, *inputs):
        """Return the slopes alone, as a list."""
        return list(local_slopes(operation, list(inputs))[1])

    one = local_slopes("sigmoid", [0.0])
    t(
        isinstance(one, list | tuple) and len(one) == 2 and isinstance(one[1], list | tuple),
        "return two things, the result and a list of slopes: (result, [slope]), also for one input",
        "the result comes with a list of slopes",
    )
    t.close(
        [
            local_slopes(operation, inputs)[0]
            for operation, inputs in (
                ("sub", [5.0, 3.0]),
                ("div", [6.0, 2.0]),
                ("max", [3.0, 8.0]),
                ("sigmoid", [2.0]),
                ("softplus", [2.0]),
                ("silu", [2.0]),
            )
        ],
        [2.0, 3.0, 8.0, 0.88079707798, 2.12692801104, 1.76159415596],
        "the first of the two returned things is the result itself, as in the table",
        "the results are those of the table",
    )
    t.close(
        slopes_of("sub", 5.0, 3.0),
        [1.0, -1.0],
        "a - b falls when b grows: the slopes are 1 and -1",
        "a - b falls when b grows",
    )
    t.close(
        slopes_of("div", 6.0, 2.0),
        [0.5, -1.5],
        "6 / 2 has the slopes 1/b = 0.5 and -a/b^2 = -1.5: a quotient falls when its divisor "
        "grows, and the faster the larger a is",
        "a / b has the slopes 1/b and -a/b^2",
    )
    t.close(
        [slopes_of("max", 3.0, 8.0), slopes_of("max", -3.0, -8.0)],
        [[0.0, 1.0], [1.0, 0.0]],
        "max passes the larger input on as it is: slope 1 for that one, and 0 for the other, which "
        "may move a little without any effect",
        "max sends the whole gradient to the larger input",
    )
    t.close(
        slopes_of("max", 4.0, 4.0),
        [0.5, 0.5],
        "with max(4, 4) the two inputs share the slope: 0.5 and 0.5",
        "a tie is shared",
    )
    t.close(
        slopes_of("sigmoid", 2.0),
        [0.10499358540],
        "the slope of the sigmoid is s (1 - s) with s = sigmoid(a), the result and not the input",
        "the slope of the sigmoid is s (1 - s)",
    )
    t(
        not math.isclose(slopes_of("softplus", 2.0)[0], 0.11920292202, rel_tol=1e-6),
        "1 / (1 + e^a) is the slope of the logarithm alone: what stands in it moves, too, with a "
        "slope of e^a, and the two are multiplied",
        "the slope of the logarithm is multiplied by that of what stands in it",
    )
    t.close(
        slopes_of("softplus", 2.0),
        [0.88079707798],
        "the slope of ln(1 + e^a) is e^a / (1 + e^a), which is the sigmoid",
        "the slope of softplus is the sigmoid",
    )
    t(
        not math.isclose(slopes_of("silu", 2.0)[0], 0.88079707798, rel_tol=1e-6),
        "you held sigmoid(a) still: in a x sigmoid(a) both factors move with a, so the slope has "
        "two parts",
        "both factors of SiLU move",
    )
    t.close(
        slopes_of("silu", 2.0),
        [1.09078424878],
        "the slope of SiLU is s + a s (1 - s), which is 1.0908 at a = 2",
        "the slope of SiLU at 2 is 1.0908",
    )
    try:
        far = [
            local_slopes(op, [a]) for op in ("sigmoid", "softplus", "silu") for a in (-500.0, 500.0)
        ]
    except OverflowError:
        far = None
    t(
        far is not None,
        "at -500 or 500 something overflows: a float holds e^500, but not its square. Write the "
        "slope with the result",
        "nothing overflows at 500",
    )
    t.close(
        far or [],
        [(0, [0]), (1, [0]), (0, [0]), (500, [1]), (0, [0]), (500, [1])],
        "far out the curves are straight: the slopes are 0 or 1 there, and never nan",
        "at -500 and 500 the slopes are 0 or 1",
        absolute=1e-12,
    )


def check_2(t, gradients_by_backward):
    """18.2 Value.backward"""

    def chain(length):
        """Return a program that adds x to itself and then 1 again and again."""
        lines = [("v0", "x", "+", "x")]
        return lines + [(f"v{i}", f"v{i - 1}", "+", "one") for i in range(1, length)]

    twice = [("b", "a", "+", "a"), ("c", "b", "+", "b")]
    found = gradients_by_backward({"a": 3.0}, twice)
    t(
        found["c"] != 0,
        "the last value has a gradient of 0: the derivative of a value by itself is 1, and without "
        "this start all gradients stay 0",
        "the derivative of the result by itself is 1",
    )
    t(
        found["a"] not in (6, 8),
        "b = a + a; c = b + b gives 6 or 8 with you: b passed its gradient on before all of it had "
        "arrived, and then once more. Each value has one turn, when everything that uses it has "
        "had its own",
        "each value has one turn",
    )
    t(
        found["a"] != 1,
        "b = a + a; c = b + b gives 1 with you: what arrives second takes the place of what "
        "arrived first. Add it",
        "what arrives is added up",
    )
    t.close(
        found,
        {"a": 4.0, "b": 2.0, "c": 1.0},
        "b = a + a; c = b + b is 4 a: the gradients are 4, 2 and 1",
        "b = a + a; c = b + b: the gradients are 4, 2 and 1",
    )
    past = gradients_by_backward({"a": 3.0}, [*twice, ("d", "b", "+", "c")])
    t.close(
        past,
        {"a": 6.0, "b": 3.0, "c": 1.0, "d": 1.0},
        "with d = b + c, b had its turn before c had passed its share on. To go by distance from "
        "the result is not enough: b is one arrow away from d, and two",
        "with d = b + c, b waits for c",
    )
    product = [("wx", "w", "*", "x"), ("error", "wx", "+", "bias"), ("loss", "error", "*", "error")]
    numbers = {"w": 0.5, "x": 3.0, "bias": -1.0, "unused": 7.0}
    right = {"w": 3.0, "x": 0.5, "bias": 1.0, "unused": 0.0, "wx": 1.0, "error": 1.0, "loss": 1.0}
    t.close(
        gradients_by_backward(numbers, product),
        right,
        "for loss = (w x + bias)^2 some gradient is not the product of the slopes on its way",
        "a neuron and its squared error",
    )
    t.close(
        gradients_by_backward(numbers, product, calls=2),
        {name: 2 * gradient for name, gradient in right.items()},
        "after a second call the gradients are not twice those of the first: what the first call "
        "left in grad was passed on again. Keep apart what arrives in one call",
        "two calls give twice the gradients of one",
    )
    try:
        long_way = gradients_by_backward({"x": 2.0, "one": 1.0}, chain(5_000))
    except RecursionError:
        long_way = None
    t(
        long_way is not None,
        "a chain of 5,000 lines exceeds Python's limit of nested calls: keep a list of your own "
        "instead of calling yourself",
        "no recursion limit",
    )
    t.close(
        [long_way[name] for name in ("x", "one")] if long_way else [],
        [2.0, 4_999.0],
        "in a chain of 5,000 lines x counts twice, and the 1 that every line adds 4,999 times",
        "a chain of 5,000 lines",
    )


def check_3(t, input_gradients):
    """18.3 From slopes to arrays"""
    draw = torch.Generator().manual_seed(18)

    def normal(*shape):
        """Return random numbers."""
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def by_autograd(function, dY, *inputs):
        """Return what autograd finds."""
        leaves = [x.clone().requires_grad_() for x in inputs]
        return list(torch.autograd.grad(function(*leaves), leaves, dY))

    # Square matrices, with which a missing transpose raises no error.
    A, B, dY = normal(3, 3), normal(3, 3), normal(3, 3)
    found = input_gradients("matmul", [A, B], dY)
    t(
        isinstance(found, list | tuple) and len(found) == 2,
        "return a list with one gradient for each input: is there a return?",
        "a list of gradients is returned",
    )
    t.close(
        found,
        by_autograd(torch.matmul, dY, A, B),
        "for Y = A B the gradients are dA = dY B^T and dB = A^T dY. Square matrices hide a missing "
        "transpose: no error is raised",
        "dA = dY B^T and dB = A^T dY",
    )
    A, B, dY = normal(4, 2), normal(2, 5), normal(4, 5)
    t.close(
        input_gradients("matmul", [A, B], dY),
        by_autograd(torch.matmul, dY, A, B),
        "matrices that are not square do not come out right",
        "matrices of any shape",
    )
    X, bias, dY = normal(4, 3), normal(3), normal(4, 3)
    found = input_gradients("add bias", [X, bias], dY)
    t(
        len(found) == 2 and found[1].shape == (3,),
        "the bias has 3 entries, and its gradient has to have 3: each entry was used in all rows, "
        "so add up over the rows",
        "the gradient of a bias has the shape of the bias",
    )
    t.close(
        found,
        [dY, dY.sum(0)],
        "a bias that is added to 4 rows is used 4 times: its gradient is the sum of the rows of "
        "dY, not their mean",
        "the gradient of a bias is a sum over the rows",
    )
    table, ids, dY = normal(5, 2), torch.tensor([3, 0, 3, 3]), normal(4, 2)
    (dtable,) = input_gradients("rows", [table, ids], dY)
    t(
        not torch.equal(dtable[3], dY[3]),
        "row 3 of the table was taken three times, and got the gradient of the last use alone: "
        "dtable[ids] = dY overwrites",
        "a row that was taken three times gets three gradients",
    )
    t.close(
        dtable,
        torch.stack([dY[1], 0 * dY[0], 0 * dY[0], dY[0] + dY[2] + dY[3], 0 * dY[0]]),
        "each row of the table gets the sum of the gradients of its uses, and 0 if it was not used",
        "rows that were not taken get 0",
    )
    t.close(
        input_gradients("mean", [normal(2, 3)], torch.tensor(12.0, dtype=torch.float64)),
        [torch.full((2, 3), 2.0, dtype=torch.float64)],
        "a mean of 6 entries has the slope 1/6 for each of them: with dY = 12 each gets 2",
        "each entry of a mean gets its share of dY",
    )
    X, dY = normal(2, 3), normal(2, 3)
    t.close(
        input_gradients("tanh", [X], dY),
        by_autograd(torch.tanh, dY, X),
        "the slope of tanh is 1 - tanh(x)^2, by the result and not by the input, and each entry "
        "has its own",
        "the slope of tanh is 1 - tanh^2",
    )


def check_4(t, wrong_claims):
    """18.4 Find the wrong gradient"""

    def row(*numbers):
        """Return numbers as a tensor of float64."""
        return torch.tensor(numbers, dtype=torch.float64)

    def surprise_slopes(x_D):
        """Return the gradient of "surprise": softmax minus one-hot."""
        return x_D.softmax(0) - (torch.arange(len(x_D)) == 0).double()

    at, plane = row(1, -2, 0.5), row(1, 2, 3)
    three = {"right": row(1), "double": row(2), "nothing": row(0)}
    found = wrong_claims("plane", row(0.75), three)
    t(
        isinstance(found, list | tuple),
        "return a list of labels: is there a return?",
        "a list of labels is returned",
    )
    t(
        list(found) != ["right"],
        "you listed the claim that agrees: the wrong ones are asked for",
        "the wrong claims are listed, not the right one",
    )
    t(
        list(found) != ["right", "nothing"],
        "your slopes are twice what they should be: from x - h to x + h it is 2h",
        "the difference is divided by the whole distance",
    )
    t(
        list(found) != ["right", "double"],
        "your slope is 0 on a straight line that rises: are x + h and x - h the same tensor? "
        "ahead_D = x_D makes no copy",
        "the two sides are two tensors",
    )
    t.equal(
        found,
        ["double", "nothing"],
        "on a straight line every step is exact but for rounding, and yet you err: is your step "
        "too small? At h = 1e-12 rounding is one part in ten thousand",
        "on a straight line the right claim passes and two others fail",
    )
    t.equal(
        wrong_claims("plane", at, {"right": plane, "sum": row(6, 6, 6)}),
        ["sum"],
        "with three entries you err: did you move all of them at once? That gives the sum of the "
        "slopes. Move one entry at a time",
        "each entry has a slope of its own",
    )
    t.equal(
        wrong_claims("plane", row(0.3, 9.7, 9.9), {"right": plane}),
        [],
        "a straight line again, and you convict the right claim: your step is too small. The loss "
        "is 49 here, and at h = 1e-8 its rounding leaves seven digits of the slope; near 1e-5 it "
        "leaves ten",
        "the step is large enough for a loss of 49",
    )
    bend = row(0.3, -0.7, 0.2)
    found = wrong_claims("bowl", bend, {"right": 2 * bend, "a step ahead": 2 * bend + 1e-6})
    t(
        "right" not in found,
        "you differ from the exact gradient of a parabola: there central differences are exact, "
        "but one-sided ones are off by h. Take (f(x + h) - f(x - h)) / 2h",
        "central differences are exact on a parabola",
    )
    t(
        "a step ahead" in found,
        "a claim that is off by one part in a million passes: your tolerance is too wide. What "
        "torch.allclose allows by itself is 1e-5",
        "one part in a million is convicted",
    )
    t.equal(
        wrong_claims("waves", at, {"right": 3 * (3 * at).cos(), "off": 3 * (3 * at).cos() * 1.001}),
        ["off"],
        "on waves you convict the right claim, or see nothing: is your step too large? Within "
        "0.0001 a wave bends by more than the accuracy asked for",
        "the step is small enough for waves",
    )
    before = at.clone()
    t.equal(
        wrong_claims("surprise", at, {"right": surprise_slopes(at)}),
        [],
        "the slope of one entry depends on the others here, and you convict the right claim: was "
        "the entry put back to where it was before you moved the next? Work on a copy",
        "one entry is moved at a time",
    )
    t(
        torch.equal(at, before),
        "you changed x_D itself: move an entry of a copy",
        "x_D is unchanged",
    )
    quarter = row(math.pi / 6, 1, 2)
    t.equal(
        wrong_claims("waves", quarter, {"right": 3 * (3 * quarter).cos()}),
        [],
        "an entry of the gradient is 0 here, and there you ask for equality: measure against the "
        "largest entry of the gradient, and not entry by entry",
        "an entry of 0 is measured against the largest entry",
    )
    slip = surprise_slopes(at)
    cancel = {"sum": slip + row(1e-3, -1e-3, 0), "last": slip + row(0, 0, 1e-6), "right": slip}
    t.equal(
        wrong_claims("surprise", at, cancel),
        ["sum", "last"],
        "every entry has to agree: two errors may cancel in a sum or mean, and the last entry "
        "counts as much as the first",
        "every entry is compared",
    )
    t.equal(
        wrong_claims("faint", at, {"right": 1e-9 * slip, "double": 2e-9 * slip}),
        ["double"],
        "a gradient of a billionth may be twice what it should be, and you let it pass: a fixed "
        "tolerance does not fit, take 1e-8 of the largest entry",
        "the tolerance follows the size of the gradient",
    )
    far = 1e6 * row(1, 2, -1.5)
    t.equal(
        wrong_claims("far", far, {"right": 3e-18 * far**2, "off": 3e-18 * far**2 * (1 + 1e-6)}),
        ["off"],
        "at x of a million a step of fixed size drowns in the rounding of x + h: let the step grow "
        "with |x|",
        "the step grows with the number",
    )


def check_5(t, conclusions, final_loss, *, POINTS, SIGNS, ring_start):
    """18.5 Change something and see"""
    np.seterr(all="ignore")  # a rate of 200 overflows

    def recomputed(width, rate, curve, seed):
        """Train with torch, which has an engine of its own."""
        weights = [torch.tensor(x, requires_grad=True) for x in ring_start(width, seed)]
        bend = {"tanh": torch.tanh, "relu": torch.relu, "none": lambda x: x}[curve]
        for step in range(101):
            w_in, b_in, w_out, b_out = weights
            score = bend(torch.tensor(POINTS) @ w_in + b_in) @ w_out + b_out
            loss = torch.log(1 + torch.exp(score * -torch.tensor(SIGNS))).mean()
            if step < 100:
                slopes = torch.autograd.grad(loss, weights)
                with torch.no_grad():
                    pairs = zip(weights, slopes, strict=True)
                    weights = [(w - rate * slope).requires_grad_() for w, slope in pairs]
        return loss.item()

    def works(width, rate):
        """Say whether a setting works."""
        return all(recomputed(width, rate, "tanh", seed) < 0.2 for seed in range(6))

    found = final_loss(8, 2.0, "tanh", 0)
    right = recomputed(8, 2.0, "tanh", 0)
    t(isinstance(found, float), "return a float: float(loss.data)", "a float is returned")
    t(
        found < 0.6,
        "the loss hardly falls: are the weights changed against their gradients, 100 times?",
        "the network learns",
    )
    t.close(
        found,
        right,
        "the final loss is another one. Are gradients set back to zero after each step, and is it "
        "the loss after 100 steps, not before the last one?",
        "the loss after 100 steps",
        relative=1e-6,
    )
    t.close(
        [final_loss(3, 0.5, curve, 4) for curve in ("relu", "none")],
        [recomputed(3, 0.5, curve, 4) for curve in ("relu", "none")],
        "with relu, or without a curve, the final loss is another one: does the curve reach the "
        "hidden units?",
        "every curve is used",
        relative=1e-6,
    )
    told = conclusions()
    t(
        isinstance(told, dict) and set(told) == {"width", "rates", "no curve", "lower"},
        'return a dictionary with "width", "rates", "no curve" and "lower"',
        "four conclusions are drawn",
    )
    t.equal(
        told["width"],
        next(width for width in range(1, 20) if works(width, 2.0)),
        "another width is the smallest that works for each of the six seeds. Fewer units draw "
        "fewer lines around the middle: with three, a closed line succeeds from some starts only",
        "the smallest width that works",
    )
    t.equal(
        sorted(told["rates"]),
        [rate for rate in (0.02, 0.2, 2, 20, 200) if works(8, rate)],
        "other rates work. Too low, and 100 steps are not enough; too high, and the loss jumps or "
        "is not a number. A rate works if all six seeds do",
        "the rates that work",
    )
    t.close(
        told["no curve"],
        recomputed(8, 2.0, "none", 0),
        "without a curve two matrices are one, and no straight line separates middle and ring: "
        "the loss stays at that of equal chances, which you know",
        "without a curve nothing is learnt",
        absolute=0.006,
    )
    means = {c: sum(recomputed(8, 2.0, c, s) for s in range(6)) for c in ("tanh", "relu")}
    t.equal(
        told["lower"],
        min(means, key=means.get),
        "over the six seeds the other curve has the lower mean",
        "the curve with the lower loss",
    )
