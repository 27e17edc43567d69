"""Typical wrong answers to the exercises of chapter 29, and what the checks say to them."""

# %% 29.1 difference_of_norms
# says: you subtracted norms: all weights changed their sign, and the norm stayed. Subtract the
# weights, then take the norm
import math


def layer_ratios(before, after):
    moved, was = {}, {}
    for name, w in before.items():
        parts = name.split(".")
        layer_name = ".".join(parts[:2]) if parts[0] == "blocks" else name
        moved[layer_name] = moved.get(layer_name, 0.0) + after[name].double().square().sum().item()
        was[layer_name] = was.get(layer_name, 0.0) + w.double().square().sum().item()
    ratios = {}
    for layer_name in was:
        change = abs(math.sqrt(moved[layer_name]) - math.sqrt(was[layer_name]))
        if was[layer_name] == 0:
            ratios[layer_name] = math.inf if change else 0.0
        else:
            ratios[layer_name] = change / math.sqrt(was[layer_name])
    return ratios


# %% 29.1 relative_to_after
# says: from 1 to 4 is three times what was there *before*: you divided by something else, by the
# weights after perhaps
import math


def layer_ratios(before, after):
    moved, was = {}, {}
    for name, w in before.items():
        parts = name.split(".")
        layer_name = ".".join(parts[:2]) if parts[0] == "blocks" else name
        change = after[name].double() - w.double()
        moved[layer_name] = moved.get(layer_name, 0.0) + change.square().sum().item()
        was[layer_name] = was.get(layer_name, 0.0) + after[name].double().square().sum().item()
    ratios = {}
    for layer_name in was:
        if was[layer_name] == 0:
            ratios[layer_name] = math.inf if moved[layer_name] else 0.0
        else:
            ratios[layer_name] = math.sqrt(moved[layer_name] / was[layer_name])
    return ratios


# %% 29.1 mean_of_ratios
# says: you took the mean of the ratios, 1 and 0: a small matrix then counts as much as a large
# one
import math


def layer_ratios(before, after):
    found = {}
    for name, w in before.items():
        parts = name.split(".")
        layer_name = ".".join(parts[:2]) if parts[0] == "blocks" else name
        moved, was = (after[name].double() - w.double()).norm().item(), w.double().norm().item()
        ratio = moved / was if was else (math.inf if moved else 0.0)
        found.setdefault(layer_name, []).append(ratio)
    return {layer_name: sum(ratios) / len(ratios) for layer_name, ratios in found.items()}


# %% 29.1 norms_added
# says: you added the norms of the matrices, 1 + 10: as one long vector the layer has the norm of
# (1, 10), the root of 101
import math


def layer_ratios(before, after):
    moved, was = {}, {}
    for name, w in before.items():
        parts = name.split(".")
        layer_name = ".".join(parts[:2]) if parts[0] == "blocks" else name
        change = after[name].double() - w.double()
        moved[layer_name] = moved.get(layer_name, 0.0) + change.norm().item()
        was[layer_name] = was.get(layer_name, 0.0) + w.double().norm().item()
    ratios = {}
    for layer_name in was:
        if was[layer_name] == 0:
            ratios[layer_name] = math.inf if moved[layer_name] else 0.0
        else:
            ratios[layer_name] = moved[layer_name] / was[layer_name]
    return ratios


# %% 29.1 subtracted_in_bf16
# says: the change was rounded: in bf16, 1 - 0.01 keeps 8 bits. Widen both before you subtract
import math


def layer_ratios(before, after):
    moved, was = {}, {}
    for name, w in before.items():
        parts = name.split(".")
        layer_name = ".".join(parts[:2]) if parts[0] == "blocks" else name
        change = (after[name] - w).double()
        moved[layer_name] = moved.get(layer_name, 0.0) + change.square().sum().item()
        was[layer_name] = was.get(layer_name, 0.0) + w.double().square().sum().item()
    ratios = {}
    for layer_name in was:
        if was[layer_name] == 0:
            ratios[layer_name] = math.inf if moved[layer_name] else 0.0
        else:
            ratios[layer_name] = math.sqrt(moved[layer_name] / was[layer_name])
    return ratios


# %% 29.1 small_number_below
# says: what was all zeros has no size: the ratio is math.inf if it moved, however little, and 0
# if it did not. A small number in the denominator hides that
import math


def layer_ratios(before, after):
    moved, was = {}, {}
    for name, w in before.items():
        parts = name.split(".")
        layer_name = ".".join(parts[:2]) if parts[0] == "blocks" else name
        change = after[name].double() - w.double()
        moved[layer_name] = moved.get(layer_name, 0.0) + change.square().sum().item()
        was[layer_name] = was.get(layer_name, 0.0) + w.double().square().sum().item()
    return {name: math.sqrt(moved[name] / (was[name] + 1e-12)) for name in was}


# %% 29.2 shares_of_squares
# says: you took shares of the *squares*, 9/10 and 1/10: the effective rank takes those of the
# singular values, 3/4 and 1/4
import torch


def effective_rank(a_TM, b_TN):
    r_a, r_b = (torch.linalg.qr(x.T).R for x in (a_TM, b_TN))
    s_R = torch.linalg.svdvals(r_a @ r_b.T).square()
    if s_R.sum() == 0:
        return 0.0
    p_R = s_R / s_R.sum()
    return torch.special.entr(p_R).sum().exp().item()


# %% 29.2 stable_rank
# says: 10/9 is the stable rank, the sum of the squares over the largest: here an entropy counts
import torch


def effective_rank(a_TM, b_TN):
    r_a, r_b = (torch.linalg.qr(x.T).R for x in (a_TM, b_TN))
    s_R = torch.linalg.svdvals(r_a @ r_b.T)
    if s_R.sum() == 0:
        return 0.0
    return (s_R.square().sum() / s_R[0].square()).item()


# %% 29.2 plain_rank
# says: you counted the singular values that are not 0: a weak direction counts less than a strong
# one, and 3 and 1 give 1.75
import torch


def effective_rank(a_TM, b_TN):
    r_a, r_b = (torch.linalg.qr(x.T).R for x in (a_TM, b_TN))
    s_R = torch.linalg.svdvals(r_a @ r_b.T)
    if s_R.sum() == 0:
        return 0.0
    return float((s_R > 1e-10 * s_R[0]).sum())


# %% 29.2 bits
# says: you measured the entropy in bits (log2) and raised e to it: e goes with ln, and 2 with
# log2
import math
import torch


def effective_rank(a_TM, b_TN):
    r_a, r_b = (torch.linalg.qr(x.T).R for x in (a_TM, b_TN))
    s_R = torch.linalg.svdvals(r_a @ r_b.T)
    if s_R.sum() == 0:
        return 0.0
    p_R = s_R / s_R.sum()
    return (torch.special.entr(p_R).sum() / math.log(2)).exp().item()


# %% 29.2 terms_as_directions
# says: two terms with the same a are one outer product, a times the sum of both b: rank 1. The
# sizes |a| |b| of the terms are singular values only if the terms are perpendicular
import torch


def effective_rank(a_TM, b_TN):
    s_R = a_TM.norm(dim=1) * b_TN.norm(dim=1)
    if s_R.sum() == 0:
        return 0.0
    p_R = s_R / s_R.sum()
    return torch.special.entr(p_R).sum().exp().item()


# %% 29.2 nan_at_zero
# says: a singular value of 0 spoils the result: 0 times ln 0 is NaN to torch. It counts as 0
import torch


def effective_rank(a_TM, b_TN):
    r_a, r_b = (torch.linalg.qr(x.T).R for x in (a_TM, b_TN))
    s_R = torch.linalg.svdvals(r_a @ r_b.T)
    if s_R.sum() == 0:
        return 0.0
    p_R = s_R / s_R.sum()
    return (-(p_R * p_R.log()).sum()).exp().item()


# %% 29.3 subtracted_at_the_end
# says: you missed layer 0, which finds out who is male: it writes no pronoun itself, and what it
# writes is read by layer 2. A layer that is taken out leaves the stream as it is, and all later
# layers are computed anew
import itertools
import torch


def holders(layers, table_VE, fact, other):
    def share_right(out, rows_NE, right_N):
        x_NE, taken_NE = rows_NE, torch.zeros_like(rows_NE)
        for place, (w_in_HE, w_out_EH) in enumerate(layers):
            added_NE = (x_NE @ w_in_HE.T).relu() @ w_out_EH.T
            x_NE = x_NE + added_NE
            if place in out:
                taken_NE = taken_NE + added_NE
        scores_NV = (x_NE - taken_NE) @ table_VE.T
        return (scores_NV.argmax(-1) == right_N).double().mean().item()

    def holds(out):
        fact_loss, other_loss = (
            share_right((), *asked) - share_right(out, *asked) for asked in (fact, other)
        )
        return fact_loss >= 1 / 2 and other_loss <= 1 / 8

    places = range(len(layers))
    alone = [place for place in places if holds((place,))]
    pairs = itertools.combinations([place for place in places if place not in alone], 2)
    return [(place,) for place in alone] + [pair for pair in pairs if holds(pair)]


# %% 29.3 no_control
# says: you blamed a layer without which *everything* is lost, not this fact alone: compare with
# the share of `other`
import itertools


def holders(layers, table_VE, fact, other):

    def share_right(out, rows_NE, right_N):
        x_NE = rows_NE
        for place, (w_in_HE, w_out_EH) in enumerate(layers):
            if place not in out:
                x_NE = x_NE + (x_NE @ w_in_HE.T).relu() @ w_out_EH.T
        return ((x_NE @ table_VE.T).argmax(-1) == right_N).double().mean().item()

    def holds(out):
        fact_loss, other_loss = (
            share_right((), *asked) - share_right(out, *asked) for asked in (fact, other)
        )
        return fact_loss >= 1 / 2

    places = range(len(layers))
    alone = [place for place in places if holds((place,))]
    pairs = itertools.combinations([place for place in places if place not in alone], 2)
    return [(place,) for place in alone] + [pair for pair in pairs if holds(pair)]


# %% 29.3 pairs_of_one
# says: you listed a pair of which one holds the fact alone, such as (0, 1): taking out an idle
# layer besides shows nothing new
import itertools


def holders(layers, table_VE, fact, other):

    def share_right(out, rows_NE, right_N):
        x_NE = rows_NE
        for place, (w_in_HE, w_out_EH) in enumerate(layers):
            if place not in out:
                x_NE = x_NE + (x_NE @ w_in_HE.T).relu() @ w_out_EH.T
        return ((x_NE @ table_VE.T).argmax(-1) == right_N).double().mean().item()

    def holds(out):
        fact_loss, other_loss = (
            share_right((), *asked) - share_right(out, *asked) for asked in (fact, other)
        )
        return fact_loss >= 1 / 2 and other_loss <= 1 / 8

    places = range(len(layers))
    alone = [place for place in places if holds((place,))]
    pairs = itertools.combinations(places, 2)
    return [(place,) for place in alone] + [pair for pair in pairs if holds(pair)]


# %% 29.3 singles_alone
# says: layer 1 has a stand-in, layer 2, silent until 1 is gone: alone neither is missed, together
# they are. What each alone costs, 0 and 0, does not add up to that of the pair
import itertools


def holders(layers, table_VE, fact, other):

    def share_right(out, rows_NE, right_N):
        x_NE = rows_NE
        for place, (w_in_HE, w_out_EH) in enumerate(layers):
            if place not in out:
                x_NE = x_NE + (x_NE @ w_in_HE.T).relu() @ w_out_EH.T
        return ((x_NE @ table_VE.T).argmax(-1) == right_N).double().mean().item()

    def holds(out):
        fact_loss, other_loss = (
            share_right((), *asked) - share_right(out, *asked) for asked in (fact, other)
        )
        return fact_loss >= 1 / 2 and other_loss <= 1 / 8

    places = range(len(layers))
    alone = [place for place in places if holds((place,))]
    pairs = itertools.combinations([place for place in places if place not in alone], 2)
    return [(place,) for place in alone]


# %% 29.3 losses_added
# says: layer 1 has a stand-in, layer 2, silent until 1 is gone: alone neither is missed, together
# they are. What each alone costs, 0 and 0, does not add up to that of the pair
import itertools


def holders(layers, table_VE, fact, other):
    def share_right(out, rows_NE, right_N):
        x_NE = rows_NE
        for place, (w_in_HE, w_out_EH) in enumerate(layers):
            if place not in out:
                x_NE = x_NE + (x_NE @ w_in_HE.T).relu() @ w_out_EH.T
        return ((x_NE @ table_VE.T).argmax(-1) == right_N).double().mean().item()

    def losses(place):
        return [share_right((), *asked) - share_right((place,), *asked) for asked in (fact, other)]

    def holds(out):
        fact_loss, other_loss = (sum(loss) for loss in zip(*map(losses, out)))
        return fact_loss >= 1 / 2 and other_loss <= 1 / 8

    places = range(len(layers))
    alone = [place for place in places if holds((place,))]
    pairs = itertools.combinations([place for place in places if place not in alone], 2)
    return [(place,) for place in alone] + [pair for pair in pairs if holds(pair)]


# %% 29.3 few_are_left
# says: you looked whether *few* answers are right without a layer. Of four, one was right with
# it: a fall of a quarter. Compare with the whole network
import itertools


def holders(layers, table_VE, fact, other):

    def share_right(out, rows_NE, right_N):
        x_NE = rows_NE
        for place, (w_in_HE, w_out_EH) in enumerate(layers):
            if place not in out:
                x_NE = x_NE + (x_NE @ w_in_HE.T).relu() @ w_out_EH.T
        return ((x_NE @ table_VE.T).argmax(-1) == right_N).double().mean().item()

    def holds(out):
        return share_right(out, *fact) <= 1 / 2 and share_right(out, *other) >= 7 / 8

    places = range(len(layers))
    alone = [place for place in places if holds((place,))]
    pairs = itertools.combinations([place for place in places if place not in alone], 2)
    return [(place,) for place in alone] + [pair for pair in pairs if holds(pair)]


# %% 29.4 as_they_stand
# says: you mixed unit 0 with unit 0: both networks compute the same, with their units in another
# order, and your mean is another network. Match the units first
def mixed(first, second, t):
    return {name: (1 - t) * first[name] + t * second[name] for name in first}


# %% 29.4 wrong_way_round
# says: you used the order the wrong way round: [2, 0, 1] undoes [1, 2, 0], and not itself
import itertools
import torch


def mixed(first, second, t):
    first_HU, second_HU = (
        torch.cat([net["w_gate"], net["w_up"], net["w_down"].T], dim=1) for net in (first, second)
    )

    def distance(order):
        return (first_HU - second_HU[list(order)]).square().sum().item()

    order = list(min(itertools.permutations(range(len(first_HU))), key=distance))
    order = sorted(range(len(order)), key=order.__getitem__)
    matched = {
        "w_gate": second["w_gate"][order],
        "w_up": second["w_up"][order],
        "w_down": second["w_down"][:, order],
    }
    return {name: (1 - t) * first[name] + t * matched[name] for name in first}


# %% 29.4 down_left_behind
# says: you reordered rows and left w_down behind: a unit's third part is its *column* there
import itertools
import torch


def mixed(first, second, t):
    first_HU, second_HU = (
        torch.cat([net["w_gate"], net["w_up"], net["w_down"].T], dim=1) for net in (first, second)
    )

    def distance(order):
        return (first_HU - second_HU[list(order)]).square().sum().item()

    order = list(min(itertools.permutations(range(len(first_HU))), key=distance))
    matched = {
        "w_gate": second["w_gate"][order],
        "w_up": second["w_up"][order],
        "w_down": second["w_down"],
    }
    return {name: (1 - t) * first[name] + t * matched[name] for name in first}


# %% 29.4 up_alone
# says: you matched by one matrix alone: two units with the same `up` can have different gates.
# The differences of all three matrices count
import itertools


def mixed(first, second, t):
    first_HU, second_HU = (net["w_up"] for net in (first, second))

    def distance(order):
        return (first_HU - second_HU[list(order)]).square().sum().item()

    order = list(min(itertools.permutations(range(len(first_HU))), key=distance))
    matched = {
        "w_gate": second["w_gate"][order],
        "w_up": second["w_up"][order],
        "w_down": second["w_down"][:, order],
    }
    return {name: (1 - t) * first[name] + t * matched[name] for name in first}


# %% 29.4 nearest_in_turn
# says: you gave each unit in turn the nearest that was left: 0 takes 1.1, and 1 has to take -1.5,
# together 7.46. The other way it is 2.26: the whole sum counts
import torch


def mixed(first, second, t):
    first_HU, second_HU = (
        torch.cat([net["w_gate"], net["w_up"], net["w_down"].T], dim=1) for net in (first, second)
    )

    order = []
    for unit_U in first_HU:
        left = [h for h in range(len(second_HU)) if h not in order]
        order.append(min(left, key=lambda h: (unit_U - second_HU[h]).square().sum().item()))
    matched = {
        "w_gate": second["w_gate"][order],
        "w_up": second["w_up"][order],
        "w_down": second["w_down"][:, order],
    }
    return {name: (1 - t) * first[name] + t * matched[name] for name in first}


# %% 29.4 t_turned
# says: at t = 0.25 the first network counts three quarters, and the second one quarter
import itertools
import torch


def mixed(first, second, t):
    first_HU, second_HU = (
        torch.cat([net["w_gate"], net["w_up"], net["w_down"].T], dim=1) for net in (first, second)
    )

    def distance(order):
        return (first_HU - second_HU[list(order)]).square().sum().item()

    order = list(min(itertools.permutations(range(len(first_HU))), key=distance))
    matched = {
        "w_gate": second["w_gate"][order],
        "w_up": second["w_up"][order],
        "w_down": second["w_down"][:, order],
    }
    return {name: t * first[name] + (1 - t) * matched[name] for name in first}
