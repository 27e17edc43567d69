"""Checks of 18_backpropagation, written by tools.exercises from its solutions."""

import math
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


def check_2(t, backward_order):
    """18.2 The order of the backward pass"""

    def fault(arrows, order):
        """Say what is wrong with an order: nothing, or a pair (user, node) in which it errs."""
        place = {node: i for i, node in enumerate(order)}
        for x, y in arrows:
            if y in place and x in place and place[x] < place[y]:
                return (y, x)
        return None

    twice = [("a", "b"), ("a", "b"), ("b", "c"), ("b", "c")]
    small = backward_order(twice, "c")
    t(
        isinstance(small, list | tuple),
        "return a list of nodes: is there a return?",
        "a list is returned",
    )
    t(
        list(small) != ["a", "b", "c"],
        "your list is the order of the forward pass: backward starts at the root, so c comes first",
        "backward starts at the root",
    )
    t(
        list(small)[:1] == ["c"],
        "the list starts with the root: it is a node like the others, and the first to have a turn",
        "the root comes first",
    )
    t(
        len(set(small)) == len(small),
        "a node is listed twice, because two arrows lead to it: it has one turn, after its last "
        "use",
        "a node that is used twice has one turn",
    )
    t.equal(
        small,
        ["c", "b", "a"],
        "for b = a + a and c = b + b the only order is c, b, a",
        "b = a + a, c = b + b: the order is c, b, a",
    )
    t.equal(
        backward_order([("a", "b")], "a"),
        ["a"],
        "a root that depends on nothing is listed all the same, and what is computed from it is "
        "not",
        "a root without inputs stands alone",
    )
    # The node a is used at once by the root, and by b far behind.
    late = [("a", "loss"), ("c", "loss"), ("b", "c"), ("a", "b")]
    t(
        fault(late, backward_order(late, "loss")) is None,
        "you listed nodes by their distance from the root: a is used by the loss and by b, and it "
        "has to wait for b, however near the loss it is",
        "a node waits for its last user, however near the root it is",
    )
    split = [("a", "p"), ("a", "q"), ("p", "loss"), ("q", "loss"), ("x", "a")]
    t(
        all(fault(e, backward_order(e, "loss")) is None for e in (split, split[::-1])),
        "you followed one branch to its end before the other had its turn: a is used by p and by "
        "q, and it has to wait for both",
        "a node that two branches use waits for both",
    )
    moved = [("b", "c"), ("a", "loss"), ("a", "b"), ("b", "loss"), ("c", "loss")]
    t(
        fault(moved, backward_order(moved, "loss")) is None,
        "b is listed before c, which uses it: did you move a node to the end of a list while a "
        "loop walked along that list? The loop then skips the next one",
        "a node that is met again waits for its new user",
    )
    aside = [("a", "b"), ("b", "loss"), ("a", "metric"), ("b", "metric"), ("metric", "plot")]
    listed = list(backward_order(aside, "loss"))
    t(
        not {"metric", "plot"} & set(listed),
        "you listed a node that the loss does not depend on: start from the root, and follow "
        "arrows towards the inputs only",
        "what the root does not depend on is left out",
    )
    t(
        {"a", "b"} <= set(listed),
        "a node is missing: did it wait for a user that never has a turn, since the loss does not "
        "depend on that user?",
        "no node waits for a user that the root does not depend on",
    )
    t.equal(
        listed,
        ["loss", "b", "a"],
        "for a -> b -> loss with a metric aside the only order is loss, b, a",
        "a metric aside changes nothing",
    )
    try:
        long_way = backward_order([(i, i + 1) for i in range(5_000)], 5_000)
    except RecursionError:
        long_way = None
    t(
        long_way is not None,
        "a chain of 5,000 nodes exceeds Python's limit of nested calls: keep a list of your own "
        "instead of calling yourself",
        "no recursion limit",
    )
    t(
        list(long_way or []) == list(range(5_000, -1, -1)),
        "a chain of 5,000 nodes has one order, from its end to its start",
        "a chain of 5,000 nodes is in order",
    )
    ladder = [
        (f"{side}{i}", f"{other}{i + 1}") for i in range(9) for side in "lr" for other in "lr"
    ]
    ladder += [("l9", "loss"), ("r9", "loss")]
    steps = list(backward_order(ladder, "loss"))
    t(
        len(steps) == 21 == len(set(steps)) and fault(ladder, steps) is None,
        "in a ladder of ten rungs, where both nodes of a rung use both of the next, each node has "
        "to wait for two users, and there are 21 nodes",
        "a ladder of diamonds is in order",
    )


def check_3(t, gradients):
    """18.3 Accumulate, do not overwrite"""

    def of(tape, result, name):
        """Return one gradient; none if the name is missing."""
        return gradients(tape, result).get(name)

    chain = [("b", [("a", 3.0)]), ("c", [("b", 2.0)]), ("d", [("c", 5.0)])]
    t(
        type(gradients(chain, "d")) is dict,
        "return a plain dictionary from name to gradient: is there a return? dict(...) makes one "
        "of a defaultdict",
        "a dictionary is returned",
    )
    t(
        set(gradients(chain, "d")) == {"a", "b", "c", "d"},
        "the dictionary has to hold every name on the tape: a, b, c and d, and nothing else",
        "every name on the tape has a gradient",
    )
    t.close(of(chain, "d", "d"), 1.0, "the gradient of the result for itself is 1", "d(d)/d(d) = 1")
    t(
        of(chain, "d", "a") != 0,
        "a got no gradient: you walked along the tape in the order of the forward pass, and passed "
        "zeros on before the gradient of the result arrived",
        "the tape is walked from its end",
    )
    t.close(
        gradients(chain, "d"),
        {"a": 30.0, "b": 10.0, "c": 5.0, "d": 1.0},
        "slopes of 3, 2 and 5 one after the other make 3 x 2 x 5 = 30: along a path they are "
        "multiplied, each with the gradient of its output",
        "slopes are multiplied along a path: 5, 10, 30",
    )
    fork = [("b", [("a", 2.0)]), ("c", [("a", 3.0)]), ("d", [("b", 10.0), ("c", 100.0)])]
    t.close(
        of(fork, "d", "a"),
        320.0,
        "a reaches the result by two paths, 2 x 10 and 3 x 100, and their sum is 320: add to the "
        "gradient that is there, or the last path overwrites the first",
        "two paths add up",
    )
    double = [("b", [("a", 1.0), ("a", 1.0)]), ("c", [("b", 1.0), ("b", 1.0)])]
    t(
        of(double, "c", "a") not in (6, 8),
        "b = a + a; c = b + b gives 6 or 8 with you, but c is 4 a: b had two turns, and passed on "
        "all that it had each time. An operation has one turn, when its gradient is complete",
        "each operation has one turn",
    )
    t.close(
        gradients(double, "c"),
        {"a": 4.0, "b": 2.0, "c": 1.0},
        "b = a + a; c = b + b: c is 4 a, so the gradient is 4. An input that stands twice in an "
        "operation counts twice; a dictionary of the inputs would keep one",
        "an input that is used twice counts twice",
    )
    longer = [*fork, ("e", [("d", 7.0), ("a", 1.0)]), ("f", [("e", 2.0)])]
    t(
        {"e", "f"} <= set(gradients(longer, "d")),
        "e and f are missing: the result does not depend on them, but they are on the tape, and "
        "their gradient is 0",
        "names that the result does not depend on are there, too",
    )
    t.close(
        gradients(longer, "d"),
        {"a": 320.0, "b": 10.0, "c": 100.0, "d": 1.0, "e": 0.0, "f": 0.0},
        "the gradient is asked for d, and not for the last operation of the tape: what ran after d "
        "has no influence on it, and gets 0",
        "what ran after the result gets 0",
    )
    cancel = [
        ("b", [("a", 1.0)]),
        ("c", [("a", -1.0)]),
        ("d", [("b", 1.0), ("c", 1.0), ("a", 9.0)]),
    ]
    t.close(
        of(cancel, "d", "a"),
        9.0,
        "three paths of 9, -1 and 1 add up to 9, also if a sum is 0 on the way",
        "paths may cancel",
    )
    ladder = [(f"x{i + 1}", [(f"x{i}", 1.0), (f"x{i}", -3.0)]) for i in range(12)]
    t.close(
        of(ladder, "x12", "x0"),
        4096.0,
        "twelve operations, each with the slopes 1 and -3 for the same input, make (-2)^12 = 4,096",
        "twelve steps of slope -2 make 4,096",
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
    far = 1e6 * row(1, 2, -1.5)
    t.equal(
        wrong_claims("far", far, {"right": 3e-18 * far**2, "off": 3e-18 * far**2 * (1 + 1e-6)}),
        ["off"],
        "at x of a million a step of fixed size drowns in the rounding of x + h: let the step grow "
        "with |x|",
        "the step grows with the number",
    )
