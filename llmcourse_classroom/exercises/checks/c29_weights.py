"""Checks of exercises 29: What actually changes in the weights."""

import math

import torch


def check_1(t, layer_ratios):
    """29.1 How far did each layer move?"""
    one, ten, zero = torch.tensor([[1.0]]), torch.tensor([[10.0]]), torch.tensor([[0.0]])
    old = {
        "embedding": ten,
        "blocks.1.w_q": one,
        "blocks.10.w_q": ten,
        "blocks.10.w_up": one,
        "head.norm.gain": one,
    }
    answer = layer_ratios(old, old)
    t(
        isinstance(answer, dict)
        and sorted(answer) == ["blocks.1", "blocks.10", "embedding", "head.norm.gain"],
        "the layers are `embedding`, `blocks.1`, `blocks.10` and `head.norm.gain`: the number of "
        "a block is all between two points, and other names stay whole",
        "matrices belong to their layers",
    )
    t.equal(list(answer.values()), [0.0] * 4, "nothing moved, so each ratio is 0", "no change")
    turned = layer_ratios({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([-3.0, -4.0])})["w"]
    t(
        turned != 0,
        "you subtracted norms: all weights changed their sign, and the norm stayed. Subtract the "
        "weights, then take the norm",
        "the norm of the change, not the change of the norm",
    )
    t(
        turned != 4,
        "you left out the root: sums of squares give 100 / 25. The norm is the root of the sum",
        "with the root",
    )
    t.close(
        turned, 2.0, "from (3, 4) to (-3, -4) is a way of 10, and |W| was 5", "a change of sign"
    )
    t.close(
        layer_ratios({"w": one}, {"w": 4 * one})["w"],
        3.0,
        "from 1 to 4 is three times what was there *before*: you divided by something else, by the "
        "weights after perhaps",
        "relative to the weights before",
    )
    t.close(
        layer_ratios({"w": torch.ones(2, 2)}, {"w": torch.tensor([[1.0, 3.0], [1.0, 1.0]])})["w"],
        1.0,
        "one of four ones moved by 2: the squares give 2 / 2. Sums of absolute values, 2 / 4, are "
        "another norm",
        "the root of the sum of squares",
    )
    pooled = layer_ratios(
        {"blocks.0.w_q": one, "blocks.0.w_up": ten}, {"blocks.0.w_q": 2 * one, "blocks.0.w_up": ten}
    )["blocks.0"]
    t(
        abs(pooled - 0.5) > 1e-6,
        "you took the mean of the ratios, 1 and 0: a small matrix then counts as much as a large "
        "one",
        "not the mean of the ratios",
    )
    t(
        abs(pooled - 1 / 11) > 1e-6,
        "you added the norms of the matrices, 1 + 10: as one long vector the layer has the norm "
        "of (1, 10), the root of 101",
        "not the sum of the norms",
    )
    t.close(pooled, 101**-0.5, "the layer's ratio is 1 / sqrt(1 + 100)", "one ratio for a layer")
    wide = torch.ones(3, 5)
    t.close(
        layer_ratios(
            {"blocks.0.a": one, "blocks.0.b": wide}, {"blocks.0.a": 2 * one, "blocks.0.b": wide}
        ),
        {"blocks.0": 0.25},
        "of 16 ones, one moved by 1: 1/4. You took a mean for each matrix; as one long vector, a "
        "matrix of 15 entries counts 15 times as much as one of 1",
        "every entry counts the same",
    )
    t.close(
        layer_ratios(
            {"blocks.0.a": one, "blocks.0.b": ten}, {"blocks.0.b": ten, "blocks.0.a": one}
        ),
        {"blocks.0": 0.0},
        "the second checkpoint has its names in another order: look up by name, not by place",
        "by name",
    )
    narrow = torch.tensor([0.01, 0.02, 0.03]).bfloat16()
    t.close(
        layer_ratios({"w": narrow}, {"w": torch.ones(3).bfloat16()})["w"],
        45.321599,
        "the change was rounded: in bf16, 1 - 0.01 keeps 8 bits. Widen both before you subtract",
        "bf16 weights are widened first",
        relative=1e-5,
    )
    t.equal(
        layer_ratios({"blocks.0.w": zero, "gain": zero}, {"blocks.0.w": 5 * zero, "gain": one}),
        {"blocks.0": 0.0, "gain": math.inf},
        "what was all zeros has no size: the ratio is math.inf if it moved, however little, and 0 "
        "if it did not. A small number in the denominator hides that",
        "a layer of zeros",
    )


def check_2(t, effective_rank):
    """29.2 The directions of a matrix too large to write"""
    axes = torch.eye(3, dtype=torch.float64)
    # Two perpendicular terms of the sizes 3 and 1: the example of the chapter.
    answer = float(effective_rank(axes[:2, :2] * torch.tensor([[3.0], [1.0]]), axes[:2]))
    t(
        abs(answer - 1.3841) > 1e-3,
        "you took shares of the *squares*, 9/10 and 1/10: the effective rank takes those of the "
        "singular values, 3/4 and 1/4",
        "shares of the singular values",
    )
    t(
        abs(answer - 10 / 9) > 1e-6,
        "10/9 is the stable rank, the sum of the squares over the largest: here an entropy counts",
        "the entropy, and not the stable rank",
    )
    t(
        abs(answer - 2) > 1e-6,
        "you counted the singular values that are not 0: a weak direction counts less than a "
        "strong one, and 3 and 1 give 1.75",
        "weak directions count less",
    )
    t(
        abs(answer - 2.2512) > 1e-3,
        "you measured the entropy in bits (log2) and raised e to it: e goes with ln, and 2 with "
        "log2",
        "e to the entropy in nats",
    )
    t(
        abs(answer - 0.5623) > 1e-3,
        "you returned the entropy, 0.5623: e to this power is the number of directions",
        "e to the entropy",
    )
    t.close(answer, 1.7547654, "the singular values 3 and 1 give 1.7547654", "3 and 1 give 1.75")
    same = torch.tensor([[1.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    t.close(
        effective_rank(same, axes[:2]),
        1.0,
        "two terms with the same a are one outer product, a times the sum of both b: rank 1. The "
        "sizes |a| |b| of the terms are singular values only if the terms are perpendicular",
        "terms that point the same way are one direction",
        relative=1e-5,
    )
    t.close(
        effective_rank(axes * torch.tensor([[1.0], [1.0], [0.0]]), axes),
        2.0,
        "a singular value of 0 spoils the result: 0 times ln 0 is NaN to torch. It counts as 0",
        "a singular value of 0 counts nothing",
    )
    t.equal(
        float(effective_rank(torch.zeros(2, 4, dtype=torch.float64), axes[:2])),
        0.0,
        "a matrix of zeros has no direction: its effective rank is 0. Its shares would be 0 / 0",
        "a matrix of zeros",
    )
    some = torch.tensor([[1.0, 2, -1, 0], [0.5, 0, 1, 3], [-2, 1, 1, 1]], dtype=torch.float64)
    t.close(
        effective_rank(some, some[:, :2].flip(0)),
        1.9810766,
        "three terms, four rows, two columns: the singular values of a.T @ b are 6.742 and 5.110",
        "more terms than columns",
        relative=1e-5,
    )
    t.close(
        effective_rank(some * 1e-12, some[:, :2].flip(0)),
        1.9810766,
        "the scale of a matrix is not to matter, and gradients are small: a fixed threshold, or a "
        "small number in a denominator, spoils that",
        "a small matrix uses as many directions",
        relative=1e-5,
    )
    # Rows of ones, and of +1, -1, +1, ...: perpendicular, with the sizes 3 and 1 once more.
    ones = torch.ones(4_300_000, dtype=torch.float64)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(2_150_000)
    t.close(
        effective_rank(torch.stack([3 * ones, signs]), torch.stack([signs, ones])),
        1.7547654,
        "4.3 million rows and columns, of which only the singular values 3 : 1 are not 0",
        "a matrix of 148 TB, without building it",
        relative=1e-5,
    )


def check_3(t, holders, *, FEATURES, layer, rows):
    """29.3 Which layers hold the fact?"""
    tokens = ["He", "She", "and", "the"]
    table = torch.eye(len(FEATURES))[[FEATURES.index(token) for token in tokens]]
    names = rows("Ben", "Tom", "Mia", "Lily"), torch.tensor([0, 0, 1, 1])
    parks = rows(*["park"] * 8), torch.tensor([2] * 8)
    men = [({name: 1}, {"male": 1}) for name in ("Ben", "Tom")]
    women = [({name: 1}, {"female": 1}) for name in ("Mia", "Lily")]
    gender = layer(*men, *women)
    pronoun = layer(({"male": 1}, {"He": 1}), ({"female": 1}, {"She": 1}))
    # Reads the gender as well, and is silent if the pronoun is already there.
    stand_in = layer(({"male": 1, "He": -2}, {"He": 1}), ({"female": 1, "She": -2}, {"She": 1}))
    and_unit = ({"park": 1}, {"and": 1})
    idle, text = layer(({"park": -1}, {"He": 1})), layer(and_unit)
    found = holders([gender, idle, pronoun, text], table, names, parks)
    t(
        isinstance(found, list) and all(isinstance(place, list | tuple) for place in found),
        "return a list of tuples, also for single layers: (2,)",
        "a list of tuples",
    )
    t(
        torch.equal(names[0], rows("Ben", "Tom", "Mia", "Lily")),
        "you changed the rows that were given: `x += ...` writes into them, `x = x + ...` does not",
        "the rows stay as they are",
    )
    t(
        (0,) in [tuple(place) for place in found],
        "you missed layer 0, which finds out who is male: it writes no pronoun itself, and what it "
        "writes is read by layer 2. A layer that is taken out leaves the stream as it is, and all "
        "later layers are computed anew",
        "later layers work with what they get",
    )
    t(
        not any(len(place) == 2 for place in found),
        "you listed a pair of which one holds the fact alone, such as (0, 1): taking out an idle "
        "layer besides shows nothing new",
        "no pairs with a layer that holds the fact alone",
    )
    t.equal(
        found, [(0,), (2,)], "layers 0 and 2 hold the fact, each needed by itself", "a chain of two"
    )
    t(
        (0,) not in holders([layer(*men, *women, and_unit), pronoun], table, names, parks),
        "you blamed a layer without which *everything* is lost, not this fact alone: compare with "
        "the share of `other`",
        "a layer that all needs is not the fact's place",
    )
    t.equal(
        holders([gender, pronoun, stand_in, text], table, names, parks),
        [(0,), (1, 2)],
        "layer 1 has a stand-in, layer 2, silent until 1 is gone: alone neither is missed, "
        "together they are. What each alone costs, 0 and 0, does not add up to that of the pair",
        "a layer and its stand-in",
    )
    t.equal(
        holders([layer(men[0]), pronoun, text], table, names, parks),
        [],
        "you looked whether *few* answers are right without a layer. Of four, one was right with "
        "it: a fall of a quarter. Compare with the whole network",
        "the fall counts, and not what is left",
    )
    t.equal(
        holders([gender, pronoun], table, (rows("Ben", "park"), torch.tensor([0, 3])), parks),
        [(0,), (1,)],
        "a fall from all to a half is a fall of a half: at least a half, so it counts",
        "a fall of exactly a half counts",
    )
    # Layer 0 is needed for Mia and for park, layer 1 for Mia alone.
    three = [
        layer(*women, and_unit),
        layer(({"female": 1}, {"She": 1})),
        layer(({"Ben": 1}, {"He": 1})),
    ]
    mia = rows("Mia"), torch.tensor([1])
    for count, places in ((1, [(0,), (1,)]), (2, [(1,)])):
        words = ["park"] * count + ["Ben"] * (8 - count)
        control = rows(*words), torch.tensor([2] * count + [0] * (8 - count))
        t.equal(
            holders(three, table, mia, control),
            places,
            f"{count} of the 8 other answers is lost with layer 0: at most an eighth may be lost",
            f"{count} of 8 others lost",
        )
    t.equal(holders([], table, names, parks), [], "no layer holds anything here", "no layer")


def check_4(t, mixed):
    """29.4 A mean of two networks"""
    net = {
        "w_gate": torch.tensor([[1.0, 0], [0, 2], [-1, 1]], dtype=torch.float64),
        "w_up": torch.tensor([[2.0, 1], [0, -1], [3, 0]], dtype=torch.float64),
        "w_down": torch.tensor([[1.0, -2, 0], [0, 1, 4]], dtype=torch.float64),
    }
    order = [2, 0, 1]
    twin = {name: w[:, order] if name == "w_down" else w[order] for name, w in net.items()}
    found = mixed(net, twin, 0.5)
    t(
        isinstance(found, dict) and sorted(found) == sorted(net),
        "return a dictionary with w_gate, w_up and w_down",
        "three matrices",
    )
    t(
        not torch.allclose(found["w_up"], (net["w_up"] + twin["w_up"]) / 2),
        "you mixed unit 0 with unit 0: both networks compute the same, with their units in another "
        "order, and your mean is another network. Match the units first",
        "units are matched before they are mixed",
    )
    t(
        not torch.allclose(found["w_up"], (net["w_up"] + twin["w_up"][order]) / 2),
        "you used the order the wrong way round: [2, 0, 1] undoes [1, 2, 0], and not itself",
        "the order is used the right way round",
    )
    t(
        not torch.allclose(found["w_down"], (net["w_down"] + twin["w_down"]) / 2),
        "you reordered rows and left w_down behind: a unit's third part is its *column* there",
        "the columns of w_down move along",
    )
    for name, w in net.items():
        t.close(found[name], w, f"{name}: a network mixed with itself is itself", f"{name} matched")
    near = {name: w + 0.5 for name, w in twin.items()}
    t.close(
        mixed(net, near, 0.25)["w_up"],
        net["w_up"] + 0.125,
        "at t = 0.25 the first network counts three quarters, and the second one quarter",
        "a quarter of the way",
    )
    # The ups of units 0 and 1 are alike: the gates tell which is which.
    alike = {**net, "w_up": torch.tensor([[1.0, 1], [1, 1.01], [3, 0]], dtype=torch.float64)}
    swap = [1, 0, 2]
    other = {name: w[:, swap] if name == "w_down" else w[swap] for name, w in alike.items()}
    other["w_up"] = alike["w_up"]
    t(
        torch.allclose(mixed(alike, other, 1)["w_gate"], alike["w_gate"]),
        "you matched by one matrix alone: two units with the same `up` can have different gates. "
        "The differences of all three matrices count",
        "matched by all three matrices",
    )
    # Now the gates and ups of all units are alike, and only w_down differs.
    alike = {name: w if name == "w_down" else torch.ones_like(w) for name, w in net.items()}
    other = {**alike, "w_down": net["w_down"][:, order]}
    t.close(
        mixed(alike, other, 0.5)["w_down"],
        net["w_down"],
        "these units differ in w_down alone, and you did not match by it",
        "matched by w_down as well",
    )
    # Unit 0 has two to choose from, and unit 1 needs one of them.
    left, right = (
        {"w_gate": gate, "w_up": torch.zeros(2, 2).double(), "w_down": torch.zeros(2, 2).double()}
        for gate in torch.tensor([[[0.0, 0], [1, 0]], [[1.1, 0], [-1.5, 0]]], dtype=torch.float64)
    )
    t.close(
        mixed(left, right, 1)["w_gate"],
        torch.tensor([[-1.5, 0], [1.1, 0]], dtype=torch.float64),
        "you gave each unit in turn the nearest that was left: 0 takes 1.1, and 1 has to take "
        "-1.5, together 7.46. The other way it is 2.26: the whole sum counts",
        "the best order of all, not unit by unit",
    )
    # Units at (0, 0) and (0, 2), in the second at (0, 0) and (2, -0.25).
    left["w_gate"] = torch.tensor([[0.0, 0], [0, 2]]).double()
    right["w_gate"] = torch.tensor([[0.0, 0], [2, -0.25]]).double()
    t.close(
        mixed(left, right, 1)["w_gate"],
        right["w_gate"][[1, 0]],
        "you added distances, 0 + 3.01 against 2.02 + 2: the *squared* differences count, 9.06 "
        "against 8.06",
        "squared differences",
    )
    t.equal(mixed(net, near, 0)["w_gate"], net["w_gate"], "t = 0 gives the first network", "t = 0")
    t(
        torch.equal(twin["w_up"], net["w_up"][order])
        and torch.equal(near["w_up"], twin["w_up"] + 0.5),
        "you changed the networks that were given: build new tensors",
        "what was given stays as it is",
    )
    x_E = torch.tensor([0.3, -0.7], dtype=torch.float64)
    y_E, z_E = (
        part["w_down"] @ (torch.nn.functional.silu(part["w_gate"] @ x_E) * (part["w_up"] @ x_E))
        for part in (near, mixed(net, near, 1))
    )
    t.close(z_E, y_E, "at t = 1 the result computes what the second network computes", "t = 1")
