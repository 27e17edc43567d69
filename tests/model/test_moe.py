"""moe: every pair by autograd, the layer by a loop over tokens and by transformers' own."""

import copy
import math
from fractions import Fraction
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import awkward, small_config

from llmcourse.base import checks
from llmcourse.model import decoder, moe, ops
from llmcourse.model.moe import DROPPED, MixtureOfExperts, experts, layer, routing, rows

N, D, H, E, K = 7, 5, 6, 4, 2  # tokens, width, hidden, experts, experts of a token; all different


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def chosen(generator, num_tokens=N, num_experts=E, k=K):
    """Experts of each token, all different; the last expert is never chosen if there are spare."""
    usable = num_experts - 1 if num_experts > k else num_experts
    order = [torch.randperm(usable, generator=generator)[:k] for _ in range(num_tokens)]
    return torch.stack(order) if order else torch.empty(0, k, dtype=torch.int64)


# --- pairs: forward equals plain torch, backward equals autograd through plain torch


def plain_chosen(scores, experts_NK):
    picked = torch.take_along_dim(scores, experts_NK, 1)
    return picked / (picked.sum(1, keepdim=True) + routing.FLOOR)


def plain_combine(rows_RD, weights, choices, positions):
    weighted = rows_RD * weights.flatten()[choices].unsqueeze(-1)
    zero = torch.zeros(len(positions), rows_RD.shape[1], dtype=rows_RD.dtype)
    return zero.index_add(0, choices // positions.shape[1], weighted)


def plain_swiglu(x, w_gate, w_up, w_down, counts):
    parts = x.split(counts.tolist())
    networks = zip(parts, w_gate, w_up, w_down, strict=True)
    return torch.cat([(F.silu(r @ g.T) * (r @ u.T)) @ d.T for r, g, u, d in networks])


def plain_balance(probabilities, counts):
    shares = counts.double() / counts.sum()
    return len(counts) * (shares * probabilities.mean(0)).sum()


def scores_input(generator):
    return {"scores": torch.rand(N, E, generator=generator) + 0.1, "experts": chosen(generator)}


def take_input(generator):
    plan = moe.dispatch(chosen(generator), E, capacity_factor=0.8)
    assert (plan.positions_NK == DROPPED).any()
    x = awkward(N, D, generator=generator)
    return {"x": x, "tokens": plan.tokens_R, "positions": plan.positions_NK}


def combine_input(generator):
    plan = moe.dispatch(chosen(generator), E, capacity_factor=0.8)
    return {
        "rows": awkward(len(plan.tokens_R), D, generator=generator),
        "weights": torch.rand(N, K, generator=generator),
        "choices": plan.choices_R,
        "positions": plan.positions_NK,
    }


def experts_input(generator):
    counts = torch.tensor([3, 0, 5, 1])
    return {
        "rows": awkward(9, D, generator=generator) / 3,
        "w_gate": torch.randn(E, H, D, generator=generator),
        "w_up": torch.randn(E, H, D, generator=generator),
        "w_down": torch.randn(E, D, H, generator=generator),
        "counts": counts,
    }


def balance_input(generator):
    return {
        "probabilities": torch.rand(N, E, generator=generator),
        "counts": torch.tensor([7, 0, 4, 3]),
    }


PAIRS = {
    "softmax": (
        (moe.softmax_forward, moe.softmax_backward, routing.softmax),
        lambda logits: logits.exp() / logits.exp().sum(1, keepdim=True),
        lambda g: {"logits": awkward(N, E, generator=g)},
    ),
    "chosen_weights": (
        (moe.chosen_weights_forward, moe.chosen_weights_backward, moe.chosen_weights),
        plain_chosen,
        scores_input,
    ),
    "take": (
        (moe.take_forward, moe.take_backward, rows._take),
        lambda x, tokens, _: x[tokens],
        take_input,
    ),
    "combine": (
        (moe.combine_forward, moe.combine_backward, rows._combine),
        plain_combine,
        combine_input,
    ),
    "grouped_swiglu": (
        (moe.grouped_swiglu_forward, moe.grouped_swiglu_backward, moe.grouped_swiglu),
        plain_swiglu,
        experts_input,
    ),
    "balance_loss": (
        (moe.balance_loss_forward, moe.balance_loss_backward, moe.balance_loss),
        plain_balance,
        balance_input,
    ),
}


def agrees(pair, backward=None):
    """Whether a pair agrees with autograd through plain torch, in float64."""
    (forward, own, _), plain, make = PAIRS[pair]

    def both(*arguments):
        with torch.no_grad():
            saved = forward(*arguments)[1]
        return plain(*arguments), saved

    return checks.check_backward(
        both, backward or own, make(seeded(1)), generator=seeded(2), tolerance=1e-12
    )


def in_double(arguments):
    return {n: x.double() if x.is_floating_point() else x for n, x in arguments.items()}


@pytest.mark.parametrize("pair", PAIRS)
def test_forward_is_plain_torch_and_backward_is_autograd(pair):
    (forward, _, _), plain, make = PAIRS[pair]
    arguments = in_double(make(seeded(1))).values()
    assert checks.relative_error(forward(*arguments)[0], plain(*arguments)) < 1e-13
    report = agrees(pair)
    assert report.ok, report


@pytest.mark.parametrize("pair", PAIRS)
def test_backward_is_the_slope_of_forward(pair):
    (forward, backward, _), _, make = PAIRS[pair]
    report = checks.check_finite_differences(
        forward, backward, make(seeded(3)), generator=seeded(4), tolerance=1e-8
    )
    assert report.ok, report


@pytest.mark.parametrize("pair", PAIRS)
def test_the_differentiable_form_passes_gradcheck(pair):
    (_, _, node), _, make = PAIRS[pair]
    arguments = in_double(make(seeded(5))).values()
    arguments = [x.requires_grad_() if x.is_floating_point() else x for x in arguments]
    assert torch.autograd.gradcheck(node, arguments, rtol=1e-6, atol=1e-7)


def without_projection(dw, saved):
    scattered = torch.zeros_like(saved.scores_NE)
    return (scattered.scatter(1, saved.experts_NK, dw / saved.total_N1),)


def swapped_weights(dy, saved):
    drows, *_, dw_down = moe.grouped_swiglu_backward(dy, saved)
    _, dw_gate, dw_up, _ = moe.grouped_swiglu_backward(dy, saved)
    return drows, dw_up, dw_gate, dw_down


def shifted_experts(dy, saved):
    drows, *weights = moe.grouped_swiglu_backward(dy, saved)
    return drows, *(w.roll(1, 0) for w in weights)


def without_up(dy, saved):
    _, *weights = moe.grouped_swiglu_backward(dy, saved)
    silent = saved._replace(w_up_EFD=torch.zeros_like(saved.w_up_EFD))
    return moe.grouped_swiglu_backward(dy, silent)[0], *weights


def first_row_only(drows, saved):
    first = saved.positions_NK[:, :1]
    return moe.take_backward(drows, moe.rows.TakeSaved(first))


def dropped_as_last_row(drows, saved):
    return (drows[saved.positions_NK].sum(1),)  # -1 counts from the end


def unweighted_rows(dy, saved):
    ones = torch.ones_like(saved.weights_NK)
    _, dweights = moe.combine_backward(dy, saved)
    return moe.combine_backward(dy, saved._replace(weights_NK=ones))[0], dweights


BACKWARD_MUTANTS = {
    "softmax without its projection": ("softmax", lambda dp, s: (s.probabilities_NE * dp,)),
    "weights as if the sum did not move": ("chosen_weights", without_projection),
    "only the first row of a token": ("take", first_row_only),
    "a dropped choice is the last row": ("take", dropped_as_last_row),
    "rows without their weights": ("combine", unweighted_rows),
    "gate and up in each other's place": ("grouped_swiglu", swapped_weights),
    "every expert gets its neighbour's gradient": ("grouped_swiglu", shifted_experts),
    "rows see the gate alone": ("grouped_swiglu", without_up),
    "balance as a sum over tokens, not a mean": (
        "balance_loss",
        lambda d, s: (moe.balance_loss_backward(d, s)[0] * len(s.probabilities_NE),),
    ),
    "balance blind to who is busy": (
        "balance_loss",
        lambda d, s: ((d * s.slope_E.mean()).expand_as(s.probabilities_NE),),
    ),
}


@pytest.mark.parametrize("mutant", BACKWARD_MUTANTS)
def test_the_comparison_notices_a_wrong_backward(mutant):
    assert not agrees(*BACKWARD_MUTANTS[mutant]).ok, f"accepted {mutant}"


# --- routing


def test_the_router_by_hand():
    """Logits 2, 1, 0, 1: of the tie between experts 1 and 3 the lower number comes first."""
    x = torch.ones(1, 1, dtype=torch.float64)
    w = torch.tensor([[2.0], [1.0], [0.0], [1.0]]).double()
    weights, chosen_NK, probabilities = moe.route(x, w, experts_per_token=2)
    total = sum(math.exp(logit) for logit in (2, 1, 0, 1))
    assert chosen_NK.tolist() == [[0, 1]]
    assert probabilities[0].tolist() == pytest.approx([math.exp(v) / total for v in (2, 1, 0, 1)])
    assert weights[0].tolist() == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)])


@given(
    scores=st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=6),
    k=st.integers(1, 5),
)
def test_ties_go_to_the_lower_number(scores, k):
    ours = moe.top_experts(torch.tensor(scores, dtype=torch.float32), k)
    wanted = [sorted(range(5), key=lambda e: (-row[e], e))[:k] for row in scores]
    assert ours.tolist() == wanted


def test_the_tie_rule_holds_for_many_experts():
    """Wide enough for torch's other ways of sorting."""
    scores = torch.randint(0, 3, (9, 3_000), generator=seeded()).float()
    wanted = [sorted(range(3_000), key=lambda e: (-row[e], e))[:8] for row in scores.tolist()]
    assert moe.top_experts(scores, 8).tolist() == wanted


def test_a_bias_chooses_and_does_not_weigh():
    x, w = torch.ones(1, 1, dtype=torch.float64), torch.tensor([[3.0], [2.0], [1.0]]).double()
    bias = torch.tensor([-1.0, 0.0, 0.5]).double()
    settings = {"experts_per_token": 2, "scoring": "sigmoid"}
    scores = [1 / (1 + math.exp(-v)) for v in (3, 2, 1)]
    assert moe.route(x, w, **settings).experts_NK.tolist() == [[0, 1]]
    weights, chosen_NK, probabilities = moe.route(x, w, bias_E=bias, **settings)
    assert chosen_NK.tolist() == [[2, 1]]
    kept = scores[2], scores[1]
    assert weights[0].tolist() == pytest.approx([s / sum(kept) for s in kept])
    assert probabilities[0].tolist() == pytest.approx([s / sum(scores) for s in scores])


def test_scores_that_vanish_in_float32_leave_no_nan():
    x, w = torch.ones(1, 1, requires_grad=True), torch.tensor([[-200.0], [-300.0]])
    given_back = moe.route(x, w, experts_per_token=1, scoring="sigmoid")
    (dx,) = torch.autograd.grad(given_back.weights_NK.sum(), x)
    assert torch.isfinite(given_back.weights_NK).all()
    assert torch.isfinite(dx).all()


def routed(mixture, x):
    """Return the output of a layer, and where its tokens went."""
    routings = []
    y = mixture(x, routings=routings)
    return y, *routings


def balanced_output(mixture, x):
    """Return the output of a layer and its balance loss."""
    y, routing = routed(mixture, x)
    k = mixture.router.experts_per_token
    shape = {"num_experts": mixture.num_experts, "experts_per_token": k}
    config = small_config(num_layers=1, balance_weight=1.0, **shape)
    return y, decoder.auxiliary_loss([routing], config)


def test_autocast_does_not_narrow_the_router():
    mixture = small_mixture(dtype=torch.float32)
    x = awkward(3, 5, D, generator=seeded(1))
    wide = routed(mixture, x)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = routed(mixture, x)
    for ours, theirs in zip(narrow[1], wide[1], strict=True):
        assert torch.equal(ours, theirs)
    assert narrow[0].dtype == torch.bfloat16
    assert 1e-4 < checks.relative_error(narrow[0].float(), wide[0]) < 3e-2


# --- rows


@st.composite
def choices(draw):
    """Experts of every token, with few and many experts, so that some have no row."""
    num_experts = draw(st.integers(1, 9))
    k = draw(st.integers(1, num_experts))
    num_tokens = draw(st.integers(0, 12))
    return chosen(seeded(draw(st.integers(0, 99))), num_tokens, num_experts, k), num_experts


@given(given_choices=choices(), factor=st.sampled_from([0.0, 0.25, 0.5, 1, 1.1, 1.25, 3.0]))
def test_a_plan_is_the_definition(given_choices, factor):
    experts_NK, num_experts = given_choices
    num_tokens, k = experts_NK.shape
    most = math.ceil(Fraction(str(factor)) * num_tokens * k / num_experts) if factor else math.inf
    wanted = []
    for expert in range(num_experts):
        hits = [
            n * k + c
            for n, row in enumerate(experts_NK.tolist())
            for c in range(k)
            if row[c] == expert
        ]
        wanted.append([choice for place, choice in enumerate(hits) if place < most])
    plan = moe.dispatch(experts_NK, num_experts, capacity_factor=factor)
    assert plan.counts_E.tolist() == [len(choices) for choices in wanted]
    assert plan.choices_R.tolist() == [choice for group in wanted for choice in group]
    assert plan.tokens_R.tolist() == [choice // k for group in wanted for choice in group]
    positions = plan.positions_NK.flatten().tolist()
    for choice, position in enumerate(positions):
        kept = choice in plan.choices_R.tolist()
        assert (plan.choices_R[position] == choice) if kept else position == DROPPED


def test_drops_counted_by_hand():
    """Six tokens, two choices each, three experts: at factor 0.75 an expert takes 3 rows of 4."""
    experts_NK = torch.tensor([[0, 1], [0, 2], [1, 0], [0, 1], [2, 0], [1, 0]])
    plan = moe.dispatch(experts_NK, 3, capacity_factor=0.75)
    assert plan.counts_E.tolist() == [3, 3, 2]
    assert plan.tokens_R.tolist() == [0, 1, 2, 0, 2, 3, 1, 4]
    assert plan.positions_NK.tolist() == [[0, 3], [1, 6], [4, 2], [-1, 5], [7, -1], [-1, -1]]
    back = moe.combine(torch.ones(8, 1), plan, torch.full((6, 2), 0.5))
    assert back.flatten().tolist() == [1, 1, 1, 0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("shape", "factor", "wanted"),
    [
        ((100, 1, 10), 1, 10),
        ((100, 1, 10), 1.1, 11),  # 1.1 * 10 is 11.000000000000002 in binary
        ((7, 2, 4), 1.0, 4),
        ((7, 2, 4), 1.25, 5),
        ((1, 1, 64), 1.0, 1),
        ((0, 2, 4), 1.0, 0),
    ],
)
def test_capacity_is_rounded_up_and_exact(shape, factor, wanted):
    assert moe.capacity(*shape, capacity_factor=factor) == wanted


def test_a_row_that_is_not_finite_stays_with_its_token():
    plan = moe.dispatch(torch.tensor([[0], [0], [1]]), 2, capacity_factor=0.5)
    assert plan.positions_NK.flatten().tolist() == [0, -1, 1]
    back = moe.combine(torch.tensor([[math.inf], [2.0]]), plan, torch.ones(3, 1))
    assert back.flatten().tolist() == [math.inf, 0, 2]


# --- the layer


def small_mixture(dtype=torch.float64, num_experts=E, k=K, **settings):
    """A mixture with weights large enough that everything matters."""
    mixture = MixtureOfExperts(
        width=D, hidden=H, num_experts=num_experts, experts_per_token=k, generator=None, **settings
    )
    g = seeded(7)
    with torch.no_grad():
        for p in mixture.parameters():
            p.copy_(0.7 * torch.randn(p.shape, generator=g))
        if mixture.router.bias_E is not None:
            mixture.router.bias_E.copy_(0.3 * torch.randn(num_experts, generator=g))
    return mixture.to(dtype)


def by_tokens(mixture, x_ND, factor=0.0):
    """The definition, a token at a time: output and balance loss, by torch's autograd."""
    w_router, bias = mixture.router.w_router, mixture.router.bias_E
    k, weights = mixture.router.experts_per_token, mixture.experts
    num_experts, taken = len(w_router), [0] * len(w_router)
    most = math.ceil(Fraction(str(factor)) * len(x_ND) * k / num_experts) if factor else math.inf
    outputs, shares = [], []
    hits = [0] * num_experts
    for x_D in x_ND:
        logits = w_router @ x_D
        softmax = mixture.router.scoring == "softmax"
        scores = torch.softmax(logits, 0) if softmax else torch.sigmoid(logits)
        by = scores.tolist() if bias is None else (scores + bias).tolist()
        best = sorted(range(num_experts), key=lambda e: (-by[e], e))[:k]
        y_D = torch.zeros_like(x_D)
        for e in best:
            hits[e] += 1
            if taken[e] < most:
                taken[e] += 1
                g, u, d = weights.w_gate[e], weights.w_up[e], weights.w_down[e]
                weight = scores[e] / sum(scores[j] for j in best)
                y_D = y_D + weight * (d @ (F.silu(g @ x_D) * (u @ x_D)))
        if mixture.shared is not None:
            g, u, d = mixture.shared.w_gate, mixture.shared.w_up, mixture.shared.w_down
            y_D = y_D + d @ (F.silu(g @ x_D) * (u @ x_D))
        outputs.append(y_D)
        shares.append(scores / scores.sum())
    f = [count / (k * len(x_ND)) for count in hits]
    mean = torch.stack(shares).mean(0)
    return torch.stack(outputs), num_experts * sum(f[e] * mean[e] for e in range(num_experts))


def distance(mixture, x_BTD, factor=0.0):
    """The largest error of output, balance loss and all gradients, against `by_tokens`."""
    names, parameters = zip(*mixture.named_parameters(), strict=True)
    x_BTD = x_BTD.requires_grad_()
    dy = torch.randn(x_BTD.shape, generator=seeded(9), dtype=x_BTD.dtype)

    def everything(y, balanced):
        gradients = torch.autograd.grad((y * dy).sum() + 3 * balanced, (x_BTD, *parameters))
        return [y.detach(), balanced.detach(), *gradients]

    y, balanced = by_tokens(mixture, x_BTD.flatten(0, 1), factor)
    wanted = everything(y.view_as(x_BTD), balanced)
    ours = everything(*balanced_output(mixture, x_BTD))
    found = zip(("y", "balance", "x", *names), ours, wanted, strict=True)
    return max(checks.relative_error(mine, theirs) for _, mine, theirs in found)


SETTINGS = {
    "Mixtral": {},
    "one expert of a token": {"k": 1},
    "all experts": {"k": E},
    "many experts, most without a row": {"num_experts": 40, "k": 3},
    "DeepSeek-V3": {"scoring": "sigmoid", "num_shared": 2, "num_experts": 6, "k": 3},
    "capacity": {"capacity_factor": 0.6},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_layer_is_its_definition(name):
    settings = SETTINGS[name]
    x = awkward(2, 4, D, generator=seeded(3), dtype=torch.float64) / 2
    mixture = small_mixture(**settings)
    assert distance(mixture, x, settings.get("capacity_factor", 0.0)) < 1e-12


@given(num_experts=st.integers(1, 9), data=st.data(), T=st.integers(1, 6), seed=st.integers(0, 99))
def test_the_layer_is_its_definition_for_all_sizes(num_experts, data, T, seed):
    k = data.draw(st.integers(1, num_experts))
    factor = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    mixture = small_mixture(num_experts=num_experts, k=k, capacity_factor=factor)
    x = torch.randn(2, T, D, generator=seeded(seed), dtype=torch.float64)
    y, balanced = by_tokens(mixture, x.flatten(0, 1), factor)
    found, balance = balanced_output(mixture, x)
    assert checks.relative_error(found.flatten(0, 1), y) < 1e-12
    assert balance.item() == pytest.approx(balanced.item(), rel=1e-12)


def raw_weights(scores, experts_NK):
    return scores.gather(1, experts_NK)


def least(scores, k):
    return scores.sort(dim=1, stable=True).indices[:, :k].contiguous()


def shifted_plan(experts_NK, num_experts, *, capacity_factor=0.0):
    plan = moe.dispatch(experts_NK, num_experts, capacity_factor=capacity_factor)
    return plan._replace(counts_E=plan.counts_E.roll(1))


def misplaced(rows_RD, plan, weights):
    return moe.combine(rows_RD, plan._replace(positions_NK=plan.positions_NK.flip(0)), weights)


def last_tokens(experts_NK, num_experts, *, capacity_factor=0.0):
    """Capacity for the last tokens instead of the first."""
    flipped = moe.dispatch(experts_NK.flip(0), num_experts, capacity_factor=capacity_factor)
    num_tokens, k = experts_NK.shape
    tokens = num_tokens - 1 - flipped.tokens_R
    again = tokens * k + flipped.choices_R % k
    return moe.Plan(again, tokens, flipped.positions_NK.flip(0), flipped.counts_E)


def floored(num_tokens, k, num_experts, *, capacity_factor):
    return max(1, int(capacity_factor * num_tokens * k / num_experts))


def without_k(num_tokens, k, num_experts, *, capacity_factor):
    return moe.capacity(num_tokens, 1, num_experts, capacity_factor=capacity_factor)


def gate_for_up(rows_RD, w_gate, w_up, w_down, counts):
    return moe.grouped_swiglu(rows_RD, w_up, w_gate, w_down, counts)


def renormalised(rows_RD, plan, weights):
    kept = weights * (plan.positions_NK != DROPPED)
    return moe.combine(rows_RD, plan, kept / kept.sum(1, keepdim=True).clamp(min=1e-9))


def biased_route(x, w, *, experts_per_token, scoring, bias_E):
    found = moe.route(x, w, experts_per_token=experts_per_token, scoring=scoring, bias_E=bias_E)
    scores = ops.linear(x, w).sigmoid() + bias_E
    return found._replace(weights_NK=moe.chosen_weights(scores, found.experts_NK))


LAYER_MUTANTS = {
    "weights that are not renormalised": (routing, "chosen_weights", raw_weights, "Mixtral"),
    "the k worst experts": (routing, "top_experts", least, "Mixtral"),
    "rows for the next expert": (layer, "dispatch", shifted_plan, "Mixtral"),
    "results for other tokens": (layer, "combine", misplaced, "Mixtral"),
    "a mean instead of the weights": (
        layer,
        "combine",
        lambda r, p, w: moe.combine(r, p, torch.full_like(w, 1 / w.shape[1]) + 0 * w),
        "Mixtral",
    ),
    "weights in the other order": (
        layer,
        "combine",
        lambda r, p, w: moe.combine(r, p, w.flip(1)),
        "Mixtral",
    ),
    "gate and up in each other's place": (experts, "grouped_swiglu", gate_for_up, "Mixtral"),
    "weights that the bias moves": (layer, "route", biased_route, "DeepSeek-V3"),
    "a capacity rounded down": (rows, "capacity", floored, "capacity"),
    "a capacity that forgets k": (rows, "capacity", without_k, "capacity"),
    "a capacity for the last tokens": (layer, "dispatch", last_tokens, "capacity"),
    "weights renormalised after a drop": (layer, "combine", renormalised, "capacity"),
    "a balance that sees kept rows alone": (
        decoder,
        "count_choices",
        lambda e, n: moe.dispatch(e, n, capacity_factor=0.6).counts_E,
        "capacity",
    ),
    "a balance of k times the share": (
        decoder,
        "balance_loss",
        lambda p, c: K * moe.balance_loss(p, c),
        "Mixtral",
    ),
    "a balance through the counts of one expert fewer": (
        decoder,
        "count_choices",
        lambda e, n: moe.count_choices(e, n).roll(1),
        "Mixtral",
    ),
}


@pytest.mark.parametrize("mutant", LAYER_MUTANTS)
def test_the_comparison_notices_a_wrong_layer(mutant, monkeypatch):
    module, name, wrong, case = LAYER_MUTANTS[mutant]
    settings = SETTINGS[case]
    x = awkward(2, 4, D, generator=seeded(3), dtype=torch.float64) / 2
    mixture, factor = small_mixture(**settings), settings.get("capacity_factor", 0.0)
    assert distance(mixture, x, factor) < 1e-12
    monkeypatch.setattr(module, name, wrong)
    assert distance(mixture, x, factor) > 1e-3, f"accepted {mutant}"


def test_outside_training_nothing_is_dropped():
    mixture = small_mixture(capacity_factor=0.25)
    x = awkward(2, 4, D, generator=seeded(3), dtype=torch.float64) / 2
    with torch.no_grad():
        trained = mixture(x)
        whole = mixture.eval()(x)
    expected, _ = by_tokens(mixture, x.flatten(0, 1))
    assert checks.relative_error(whole.flatten(0, 1), expected) < 1e-12
    assert checks.relative_error(trained, whole) > 1e-2


def test_other_experts_may_take_their_place():
    """What expert parallelism relies on: rows sorted by expert, and how many each has."""
    mixture, seen = small_mixture(), []

    class Doubled(torch.nn.Module):
        def forward(self, rows_RD, counts_E):
            seen.append(counts_E)
            return 2 * rows_RD

    mixture.experts = Doubled()
    x = awkward(2, 4, D, generator=seeded(3), dtype=torch.float64)
    assert checks.relative_error(mixture(x), 2 * x) < 1e-12
    assert seen[0].dtype == torch.int64
    assert int(seen[0].sum()) == 2 * 4 * K


def test_a_layer_notes_where_tokens_went_and_keeps_nothing_of_it():
    mixture = small_mixture()
    before = set(vars(mixture))
    _, routing = routed(mixture, torch.randn(1, 3, D, generator=seeded(), dtype=torch.float64))
    assert routing.probabilities_NE.grad_fn is not None
    assert set(vars(mixture)) == before
    assert not any(isinstance(x, moe.Routing) for x in vars(mixture).values())
    copy.deepcopy(mixture)  # a graph could not be copied


# --- balance


def test_uniform_use_or_uniform_scores_give_one():
    uniform = torch.full((6, 4), 0.25, dtype=torch.float64)
    skewed = torch.softmax(torch.randn(6, 4, generator=seeded(), dtype=torch.float64), 1)
    for probabilities, counts in ((uniform, [12, 0, 0, 0]), (skewed, [3, 3, 3, 3])):
        value = float(moe.balance_loss(probabilities, torch.tensor(counts)))
        assert value == pytest.approx(1, abs=1e-15)


def test_one_expert_for_all_gives_their_number():
    probabilities = torch.zeros(6, 4, dtype=torch.float64)
    probabilities[:, 2] = 1
    assert float(moe.balance_loss(probabilities, torch.tensor([0, 0, 6, 0]))) == 4


@given(
    shares=st.lists(st.floats(0.01, 1), min_size=2, max_size=8),
    counts=st.lists(st.integers(0, 50), min_size=8, max_size=8),
)
def test_when_use_follows_the_scores_the_loss_is_at_least_one(shares, counts):
    """Chebyshev's inequality for sums, which needs both in the same order."""
    size = len(shares)
    probabilities = torch.tensor([sorted(shares)], dtype=torch.float64)
    counts = torch.tensor(sorted([*counts[: size - 1], counts[-1] + 1]))
    value = float(moe.balance_loss(probabilities / probabilities.sum(), counts))
    assert 1 - 1e-12 <= value <= size + 1e-12


def test_when_use_goes_against_the_scores_the_loss_may_be_below_one():
    """Why "at least 1" is no theorem: counts and scores are two different things."""
    probabilities = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    assert float(moe.balance_loss(probabilities, torch.tensor([0, 1]))) == pytest.approx(0.2)


def test_the_gradient_of_the_loss_pushes_the_busiest_expert_down():
    logits = torch.randn(50, 4, generator=seeded(), dtype=torch.float64)
    logits[:, 1] += 1.0
    for _ in range(300):
        logits.requires_grad_()
        probabilities = routing.softmax(logits)
        counts = moe.count_choices(moe.top_experts(probabilities, 2), 4)
        value = moe.balance_loss(probabilities, counts)
        (slope,) = torch.autograd.grad(value, logits)
        logits = (logits - 2 * slope).detach()
    assert value.item() < 1.02
    assert int(counts.max()) <= 30  # 25 is even; it was 50 at the start


def test_a_bias_moves_against_the_load():
    bias = torch.tensor([0.5, 0.0, 0.0, -0.5])
    same = moe.update_bias(bias, torch.tensor([6, 2, 4, 4]), rate=0.125)
    assert same is bias
    assert bias.tolist() == [0.375, 0.125, 0.0, -0.5]


def test_the_bias_alone_evens_out_the_load():
    g = seeded(5)
    mixture = small_mixture(num_experts=8, scoring="sigmoid")
    with torch.no_grad():
        mixture.router.w_router[0] += 2.0
        busiest = []
        for _ in range(400):
            x = torch.randn(1, 256, D, generator=g, dtype=torch.float64) + 0.5
            counts = moe.count_choices(routed(mixture, x)[1].experts_NK, 8)
            busiest.append(float(counts.max() / counts.double().mean()))
            moe.update_bias(mixture.router.bias_E, counts, rate=0.01)
    assert sum(busiest[:5]) / 5 > 2.5
    assert sum(busiest[-50:]) / 50 < 1.4


# --- transformers


def mixtral_block(mixture):
    """transformers' block with our weights."""
    from transformers import MixtralConfig  # noqa: PLC0415 - slow import
    from transformers.models.mixtral import modeling_mixtral  # noqa: PLC0415

    num_experts, hidden, width = mixture.experts.w_gate.shape
    config = MixtralConfig(
        hidden_size=width,
        intermediate_size=hidden,
        num_local_experts=num_experts,
        num_experts_per_tok=mixture.router.experts_per_token,
        experts_implementation="eager",
    )
    block = modeling_mixtral.MixtralSparseMoeBlock(config).to(mixture.router.w_router.dtype)
    with torch.no_grad():
        block.gate.weight.copy_(mixture.router.w_router)
        block.experts.gate_up_proj.copy_(
            torch.cat([mixture.experts.w_gate, mixture.experts.w_up], 1)
        )
        block.experts.down_proj.copy_(mixture.experts.w_down)
    return block


@pytest.fixture(scope="module")
def against_mixtral():
    mixture = small_mixture(num_experts=6, k=3)
    x = awkward(3, 5, D, generator=seeded(3), dtype=torch.float64) / 2
    return mixture, mixtral_block(mixture), x


def test_the_experts_equal_mixtrals(against_mixtral):
    """Given the routing, transformers keeps float64: the same numbers to 1e-12."""
    mixture, block, x = against_mixtral
    weights, experts_NK, _ = mixture.router(x.flatten(0, 1))
    plan = moe.dispatch(experts_NK, 6)
    ours = mixture.experts(moe.take(x.flatten(0, 1), plan), plan.counts_E)
    ours = moe.combine(ours, plan, weights)
    theirs = block.experts(x.flatten(0, 1), experts_NK, weights)
    assert checks.relative_error(ours, theirs) < 1e-12


def test_the_layer_equals_mixtrals_as_far_as_its_float32_goes(against_mixtral):
    mixture, block, x = against_mixtral
    y, ours = routed(mixture, x)
    assert 0 < checks.relative_error(y, block(x)) < 1e-6
    _, weights, experts_NK = block.gate(x)
    assert torch.equal(experts_NK, ours.experts_NK)
    assert checks.relative_error(ours.weights_NK, weights.double()) < 1e-6


def test_the_layer_and_its_gradients_equal_mixtrals_in_float64(against_mixtral):
    """With transformers' only cast, of the router's logits, put to float64 as well."""
    mixture, block, x = against_mixtral
    dy = torch.randn(x.shape, generator=seeded(4), dtype=torch.float64)
    x = x.clone().requires_grad_()
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        theirs = block(x)
    wanted = torch.autograd.grad((theirs * dy).sum(), (x, *block.parameters()))
    ours = mixture(x)
    dx, router, gate, up, down = torch.autograd.grad((ours * dy).sum(), (x, *mixture.parameters()))
    assert checks.relative_error(ours, theirs) < 1e-12
    names = [name for name, _ in block.named_parameters()]
    assert names == ["gate.weight", "experts.gate_up_proj", "experts.down_proj"]
    found = (dx, router, torch.cat([gate, up], 1), down)
    for mine, reference in zip(found, wanted, strict=True):
        assert checks.relative_error(mine, reference) < 1e-12


def test_the_balance_loss_is_transformers_over_k():
    from transformers.models.mixtral import modeling_mixtral  # noqa: PLC0415 - slow import

    logits = awkward(11, 5, generator=seeded(3))
    theirs = modeling_mixtral.load_balancing_loss_func((logits,), num_experts=5, top_k=3)
    probabilities = routing.softmax(logits)
    ours = moe.balance_loss(probabilities, moe.count_choices(moe.top_experts(logits, 3), 5))
    assert 3 * ours.item() == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_layer_equals_deepseeks(dtype):
    """transformers scores in float32 whatever it is given, so that both dtypes agree to 1e-6."""
    from transformers import DeepseekV3Config  # noqa: PLC0415 - slow import
    from transformers.models.deepseek_v3 import modeling_deepseek_v3  # noqa: PLC0415

    mixture = small_mixture(num_experts=6, k=3, scoring="sigmoid", num_shared=2).to(dtype)
    config = DeepseekV3Config(
        hidden_size=D,
        moe_intermediate_size=H,
        n_routed_experts=6,
        num_experts_per_tok=3,
        n_shared_experts=2,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        experts_implementation="eager",
    )
    block = modeling_deepseek_v3.DeepseekV3MoE(config).to(dtype)
    with torch.no_grad():
        block.gate.weight.copy_(mixture.router.w_router)
        block.gate.e_score_correction_bias.copy_(mixture.router.bias_E)
        block.experts.gate_up_proj.copy_(
            torch.cat([mixture.experts.w_gate, mixture.experts.w_up], 1)
        )
        block.experts.down_proj.copy_(mixture.experts.w_down)
        for theirs, ours in (("gate", "w_gate"), ("up", "w_up"), ("down", "w_down")):
            getattr(block.shared_experts, f"{theirs}_proj").weight.copy_(
                getattr(mixture.shared, ours)
            )
        x = awkward(3, 5, D, generator=seeded(3), dtype=dtype) / 2
        assert checks.relative_error(mixture(x), block(x)) < 1e-6
        mixture.router.bias_E.zero_()  # the bias has to matter
        assert checks.relative_error(mixture(x), block(x)) > 1e-2
