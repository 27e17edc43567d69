"""moe: every pair by autograd, the layer by a loop over tokens and by transformers' own."""

import copy
import math
from fractions import Fraction
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from edits import edited
from hypothesis import given
from hypothesis import strategies as st
from strategies import awkward, small_config

from llmcourse.base import checks
from llmcourse.model import decoder, moe
from llmcourse.model.moe import DROPPED, MixtureOfExperts, experts, layer, routing, rows

N, D, H, E, K = 7, 5, 6, 4, 2  # tokens, width, hidden, experts, experts of a token; all different


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def chosen(generator, num_tokens=N, num_experts=E, k=K):
    """Experts of each token, all different; the last expert is never chosen if there are spare."""
    usable = num_experts - 1 if num_experts > k else num_experts
    order = [torch.randperm(usable, generator=generator)[:k] for _ in range(num_tokens)]
    return torch.stack(order) if order else torch.empty(0, k, dtype=torch.int64)


def plain_chosen(scores, experts_NK):
    picked = torch.take_along_dim(scores, experts_NK, 1)
    return picked / (picked.sum(1, keepdim=True) + routing.FLOOR)


def plain_combine(rows_RD, weights, choices, positions):
    weighted = rows_RD * weights.flatten()[choices].unsqueeze(-1)
    zero = torch.zeros(len(positions), rows_RD.shape[1], dtype=rows_RD.dtype)
    return zero.index_add(0, choices // positions.shape[1], weighted)


def plain_swiglu(x, w_gate, w_up, w_down, counts):
    networks = zip(x.split(counts.tolist()), w_gate, w_up, w_down, strict=True)
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
    shapes = {"w_gate": (E, H, D), "w_up": (E, H, D), "w_down": (E, D, H)}
    return {
        "rows": awkward(9, D, generator=generator) / 3,
        **{name: torch.randn(shape, generator=generator) for name, shape in shapes.items()},
        "counts": torch.tensor([3, 0, 5, 1]),
    }


def balance_input(generator):
    probabilities = torch.rand(N, E, generator=generator)
    return {"probabilities": probabilities, "counts": torch.tensor([7, 0, 4, 3])}


def pair_of(name, node):
    return getattr(moe, f"{name}_forward"), getattr(moe, f"{name}_backward"), node


PAIRS = {
    "softmax": (
        pair_of("softmax", routing.softmax),
        lambda logits: logits.exp() / logits.exp().sum(1, keepdim=True),
        lambda g: {"logits": awkward(N, E, generator=g)},
    ),
    "chosen_weights": (pair_of("chosen_weights", moe.chosen_weights), plain_chosen, scores_input),
    "take": (pair_of("take", rows._take), lambda x, tokens, _: x[tokens], take_input),
    "combine": (pair_of("combine", rows._combine), plain_combine, combine_input),
    "grouped_swiglu": (pair_of("grouped_swiglu", moe.grouped_swiglu), plain_swiglu, experts_input),
    "balance_loss": (pair_of("balance_loss", moe.balance_loss), plain_balance, balance_input),
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


UP = "grouped_outer(dup_RF, rows_RD, counts)"
GATE = "dw_gate_EFD = grouped_outer(dgate_RF, rows_RD, counts)"
BACKWARD_MUTANTS = {
    "without the projection of softmax": ("softmax", "(p_NE * dp_NE).sum(-1, keepdim=True)", "0"),
    "as if the sum of weights did not move": ("chosen_weights", "- projection_N1", ""),
    "only the first row of a token": ("take", "positions_NK)", "positions_NK[:, :1])"),
    "a dropped choice is the last row": (
        "take",
        "_sum_of_rows(drows_RD, saved.positions_NK)",
        "drows_RD[saved.positions_NK].sum(1)",
    ),
    "rows without their weights": ("combine", "* weights_R1", ""),
    "gate and up exchanged": ("grouped_swiglu", f"dw_gate_EFD, {UP}", f"{UP}, dw_gate_EFD"),
    "an expert gets its neighbour's gradient": ("grouped_swiglu", GATE, f"{GATE}.roll(1, 0)"),
    "rows see the gate alone": ("grouped_swiglu", "drows_RD += ", "_ = "),
    "a sum over tokens, not a mean": ("balance_loss", "(dloss *", f"({N} * dloss *"),
    "balance blind to who is busy": ("balance_loss", "slope_E)", "slope_E.mean())"),
}


@pytest.mark.parametrize("mutant", BACKWARD_MUTANTS)
def test_the_comparison_notices_a_wrong_backward(mutant):
    pair, *edit = BACKWARD_MUTANTS[mutant]
    assert not agrees(pair, edited(PAIRS[pair][0][1], edit)).ok, f"accepted {mutant}"


@given(
    scores=st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=6),
    k=st.integers(1, 5),
)
def test_ties_go_to_the_lower_number(scores, k):
    ours = moe.top_experts(torch.tensor(scores, dtype=torch.float32), k)
    assert ours.tolist() == [sorted(range(5), key=lambda e: (-row[e], e))[:k] for row in scores]


def test_the_tie_rule_holds_for_many_experts_and_vanishing_scores_leave_no_nan():
    """Wide enough for torch's other ways of sorting."""
    scores = torch.randint(0, 3, (9, 3_000), generator=seeded()).float()
    wanted = [sorted(range(3_000), key=lambda e: (-row[e], e))[:8] for row in scores.tolist()]
    assert moe.top_experts(scores, 8).tolist() == wanted
    x, w = torch.ones(1, 1, requires_grad=True), torch.tensor([[-200.0], [-300.0]])
    given_back = moe.route(x, w, experts_per_token=1, scoring="sigmoid")
    (dx,) = torch.autograd.grad(given_back.weights_NK.sum(), x)
    assert torch.isfinite(given_back.weights_NK).all()
    assert torch.isfinite(dx).all()


def routed(mixture, x):
    routings = []
    return mixture(x, routings=routings), *routings


def balanced_output(mixture, x):
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
        hits = [i for i, chosen in enumerate(experts_NK.flatten().tolist()) if chosen == expert]
        wanted.append([choice for place, choice in enumerate(hits) if place < most])
    plan = moe.dispatch(experts_NK, num_experts, capacity_factor=factor)
    assert plan.counts_E.tolist() == [len(choices) for choices in wanted]
    assert plan.choices_R.tolist() == [choice for group in wanted for choice in group]
    assert plan.tokens_R.tolist() == [choice // k for group in wanted for choice in group]
    positions = plan.positions_NK.flatten().tolist()
    for choice, position in enumerate(positions):
        kept = choice in plan.choices_R.tolist()
        assert (plan.choices_R[position] == choice) if kept else position == DROPPED


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


def some_tokens(*shape, dtype=torch.float64):
    return awkward(*shape, D, generator=seeded(3), dtype=dtype) / 2


def distance(name):
    """The largest error of output, balance loss and all gradients, against `by_tokens`."""
    mixture, x_BTD = small_mixture(**SETTINGS[name]), some_tokens(2, 4).requires_grad_()
    dy = torch.randn(x_BTD.shape, generator=seeded(9), dtype=x_BTD.dtype)

    def everything(y, balanced):
        inputs = (x_BTD, *mixture.parameters())
        gradients = torch.autograd.grad((y * dy).sum() + 3 * balanced, inputs)
        return [y.detach(), balanced.detach(), *gradients]

    y, balanced = by_tokens(mixture, x_BTD.flatten(0, 1), mixture.capacity_factor)
    wanted = everything(y.view_as(x_BTD), balanced)
    return max(map(checks.relative_error, everything(*balanced_output(mixture, x_BTD)), wanted))


SETTINGS = {
    "Mixtral": {},
    "one expert of a token": {"k": 1},
    "all experts": {"k": E},
    "many experts, most without a row": {"num_experts": 40, "k": 3},
    "DeepSeek-V3": {"scoring": "sigmoid", "num_shared": 2, "num_experts": 6, "k": 3},
    "capacity": {"capacity_factor": 0.6},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_layer_of_experts_is_its_definition(name):
    assert distance(name) < 1e-12


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


PLACES = {"forward": experts.Experts, "capacity": rows}
PLACES |= dict.fromkeys(("auxiliary_loss", "count_choices"), decoder)
WEIGHTS = "chosen_weights(scores_NE, experts_NK)"
ROWS = "positions.view(experts_NK.shape)"
COMBINED = "weights_NK, plan"
COUNTED = "torch.bincount(experts_NK.flatten(), minlength=num_experts)"
KEPT = "weights_NK * (plan.positions_NK != DROPPED)"
KEPT_COUNTED = "dispatch(experts_NK, num_experts, capacity_factor=0.6).counts_E"
LAYER_MUTANTS = {
    "Mixtral": {
        "weights are not renormalised": ("route", WEIGHTS, "scores_NE.gather(1, experts_NK)"),
        "the k worst experts": ("route", "top_experts(by_NE", "top_experts(-by_NE"),
        "rows for the next expert": ("dispatch", ", counts_E)", ", counts_E.roll(1))"),
        "results for other tokens": ("dispatch", ROWS, f"{ROWS}.flip(0)"),
        "a mean for the weights": ("combine", COMBINED, f"0 * weights_NK + 1 / {K}, plan"),
        "weights in the other order": ("combine", COMBINED, "weights_NK.flip(1), plan"),
        "gate and up exchanged": ("forward", "self.w_gate, self.w_up", "self.w_up, self.w_gate"),
        "a balance of k times the share": ("auxiliary_loss", "return c", f"return {K} * c"),
        "the counts of one expert fewer": ("count_choices", COUNTED, f"{COUNTED}.roll(1)"),
    },
    "capacity": {
        "rounded down": ("capacity", "math.ceil(exact)", "max(1, int(exact))"),
        "k is forgotten": ("capacity", "num_tokens * experts_per_token", "num_tokens"),
        "for the last tokens": ("dispatch", "R < most", "R >= counts_E[expert_R] - most"),
        "weights renormalised after a drop": (
            "combine",
            COMBINED,
            f"{KEPT} / ({KEPT}).sum(1, keepdim=True).clamp(min=1e-9), plan",
        ),
        "a balance of kept rows alone": ("count_choices", COUNTED, KEPT_COUNTED),
    },
    "DeepSeek-V3": {
        "the bias moves the weights": ("route", WEIGHTS, WEIGHTS.replace("NE", "NE + bias_E"))
    },
}


@pytest.mark.parametrize(
    ("case", "mutant"), [(case, m) for case in LAYER_MUTANTS for m in LAYER_MUTANTS[case]]
)
def test_the_comparison_notices_a_wrong_layer(case, mutant, monkeypatch):
    name, *edit = LAYER_MUTANTS[case][mutant]
    place = PLACES.get(name, layer)
    monkeypatch.setattr(place, name, edited(getattr(place, name), edit))
    assert distance(case) > 1e-3, f"accepted a layer with {mutant}"


def test_outside_training_nothing_is_dropped_and_other_experts_may_take_their_place():
    mixture = small_mixture(capacity_factor=0.25)
    x = some_tokens(2, 4)
    with torch.no_grad():
        trained = mixture(x)
        whole = mixture.eval()(x)
    expected, _ = by_tokens(mixture, x.flatten(0, 1))
    assert checks.relative_error(whole.flatten(0, 1), expected) < 1e-12
    assert checks.relative_error(trained, whole) > 1e-2
    # What expert parallelism relies on: rows sorted by expert, and how many each has.
    mixture, seen = small_mixture(), []

    class Doubled(torch.nn.Module):
        def forward(self, rows_RD, counts_E):
            seen.append(counts_E)
            return 2 * rows_RD

    mixture.experts = Doubled()
    x = some_tokens(2, 4)
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


def test_uniform_use_or_scores_give_one_and_one_expert_for_all_their_number():
    uniform = torch.full((6, 4), 0.25, dtype=torch.float64)
    skewed = torch.softmax(torch.randn(6, 4, generator=seeded(), dtype=torch.float64), 1)
    third = torch.tensor([[0, 0, 1, 0]]).double().expand(6, 4)
    for probabilities, counts, wanted in (
        (uniform, [12, 0, 0, 0], 1),
        (skewed, [3, 3, 3, 3], 1),
        (third, [0, 0, 6, 0], 4),
    ):
        value = float(moe.balance_loss(probabilities, torch.tensor(counts)))
        assert value == pytest.approx(wanted, abs=1e-15)


def test_a_bias_moves_against_the_load_and_alone_evens_it_out():
    bias = torch.tensor([0.5, 0.0, 0.0, -0.5])
    assert moe.update_bias(bias, torch.tensor([6, 2, 4, 4]), rate=0.125) is bias
    assert bias.tolist() == [0.375, 0.125, 0.0, -0.5]
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


def with_weights(block, mixture):
    with torch.no_grad():
        block.gate.weight.copy_(mixture.router.w_router)
        gate_and_up = torch.cat([mixture.experts.w_gate, mixture.experts.w_up], 1)
        block.experts.gate_up_proj.copy_(gate_and_up)
        block.experts.down_proj.copy_(mixture.experts.w_down)
    return block


def test_the_layer_and_its_gradients_equal_mixtrals_in_float64():
    """With transformers' only cast, of the router's logits, put to float64 as well."""
    from transformers import MixtralConfig  # noqa: PLC0415 - slow import
    from transformers.models.mixtral import modeling_mixtral  # noqa: PLC0415

    config = MixtralConfig(
        hidden_size=D,
        intermediate_size=H,
        num_local_experts=6,
        num_experts_per_tok=3,
        experts_implementation="eager",
    )
    mixture, x = small_mixture(num_experts=6, k=3), some_tokens(3, 5).requires_grad_()
    block = with_weights(modeling_mixtral.MixtralSparseMoeBlock(config).double(), mixture)
    dy = torch.randn(x.shape, generator=seeded(4), dtype=torch.float64)
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
    block = with_weights(modeling_deepseek_v3.DeepseekV3MoE(config).to(dtype), mixture)
    with torch.no_grad():
        block.gate.e_score_correction_bias.copy_(mixture.router.bias_E)
        for name in ("gate", "up", "down"):
            theirs = getattr(block.shared_experts, f"{name}_proj")
            theirs.weight.copy_(getattr(mixture.shared, f"w_{name}"))
        x = some_tokens(3, 5, dtype=dtype)
        assert checks.relative_error(mixture(x), block(x)) < 1e-6
        mixture.router.bias_E.zero_()  # the bias has to matter
        assert checks.relative_error(mixture(x), block(x)) > 1e-2
