"""optim: each optimizer takes the steps of torch's own, and mutants are noticed."""

import copy
import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import optim
from llmcourse.base import checks
from llmcourse.optim import factored, muon
from llmcourse_labs import study

SHAPES = ((3, 4), (5,), (2, 3, 2), (6, 3))


def parameters(shapes=SHAPES, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(s, generator=g).to(dtype)) for s in shapes]


def furthest(ours, theirs):
    pairs = zip(ours, theirs, strict=True)
    return max(checks.relative_error(p.detach(), q.detach()) for p, q in pairs)


def follow(
    make_ours, make_theirs, *, shapes=SHAPES, steps=60, skip=True, sizes=(-2, 3), change=None
):
    """Run both optimizers on the same gradients; return the largest relative weight error."""
    ours, theirs = parameters(shapes), parameters(shapes)
    a, b = make_ours(ours), make_theirs(theirs)
    g, powers = torch.Generator().manual_seed(1), range(*sizes)
    for step in range(steps):
        for mine, reference in zip(ours, theirs, strict=True):
            # Gradients of very different sizes, and one weight that sometimes gets none.
            gradient = torch.randn(mine.shape, generator=g) * 10.0 ** powers[step % len(powers)]
            mine.grad, reference.grad = gradient.clone(), gradient.clone()
        if skip and step % 7 == 3:
            ours[1].grad = theirs[1].grad = None
        if change:
            change(a, b, step)
        a.step()
        b.step()
    moved = zip(ours, parameters(shapes), strict=True)
    assert min(checks.relative_error(p.detach(), q.detach()) for p, q in moved) > 1e-3
    return furthest(ours, theirs)


def of(make, **settings):
    return lambda p: make(p, **settings)


ADAMW = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
ADAFACTOR = {"lr": 2e-2, "weight_decay": 0.1}
THEIR_ADAMW = of(torch.optim.AdamW, foreach=False, **ADAMW)
LONG = {"shapes": ((3, 4), (5,), (2, 2, 2)), "steps": 100, "sizes": (-3, 2)}


def both(ours, theirs, **settings):
    return of(ours, **settings), of(theirs, **settings)


def groups(make, **settings):
    decayed, free = {"weight_decay": 0.3}, {"weight_decay": 0.0, "lr": 1e-2}
    return lambda p: make([{"params": p[:1]} | decayed, {"params": p[1:]} | free], **settings)


def schedule(a, b, step):
    for optimizer in (a, b):
        optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)


THEIR_ADAM = partial(torch.optim.Adam, foreach=False)
ADAFACTORS = optim.Adafactor, partial(torch.optim.Adafactor, eps=(1e-30, 1e-3), foreach=False)
SGDS, RMSPROPS = (optim.SGD, torch.optim.SGD), (optim.RMSProp, torch.optim.RMSprop)
DOWN, FASTER = {"sizes": (-2, 1)}, ADAFACTOR | {"lr": 0.5}  # from step 5 on


GROUPED = groups(optim.AdamW, **ADAMW), groups(torch.optim.AdamW, foreach=False, **ADAMW)
FOLLOWED = {
    "AdamW": (of(optim.AdamW, **ADAMW), THEIR_ADAMW, LONG, 1e-6),
    "AdamW under a schedule and with groups": (*GROUPED, LONG | {"change": schedule}, 1e-6),
    "SGD": (*both(*SGDS, lr=1e-2), LONG, 1e-6),
    "SGD with momentum": (*both(*SGDS, lr=1e-2, momentum=0.9), LONG, 1e-6),
    "RMSProp": (*both(*RMSPROPS, lr=1e-2, alpha=0.9), {}, 1e-6),
    "Adam": (*both(optim.Adam, THEIR_ADAM, lr=3e-3), {}, 2e-6),
    "Adam with decay": (*both(optim.Adam, THEIR_ADAM, lr=3e-3, weight_decay=0.3), {}, 2e-6),
    "Adafactor": (*both(*ADAFACTORS, **ADAFACTOR), DOWN, 2e-6),
    "Adafactor at a rate above 1 / sqrt(t)": (*both(*ADAFACTORS, **FASTER), DOWN, 2e-6),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_an_optimizer_follows_torchs(name):
    ours, theirs, how, bound = FOLLOWED[name]
    assert follow(ours, theirs, **how) < bound


class CoupledDecay(optim.AdamW):
    def _update(self, w, g, group):
        super()._update(w, g + group["weight_decay"] * w, {**group, "weight_decay": 0.0})


class NoCorrection(optim.AdamW):
    def _update(self, w, g, group):
        self.state[w].setdefault("step", 10**6) if self.state[w] else None
        super()._update(w, g, group)
        self.state[w]["step"] = 10**6


class EpsInsideRoot(optim.AdamW):
    def _update(self, w, g, group):
        super()._update(w, g, {**group, "eps": group["eps"] ** 0.5})


class RootOfSum(optim.RMSProp):
    @torch.no_grad()
    def step(self):
        for w in self.param_groups[0]["params"]:
            if w.grad is not None:
                v = self.state[w].setdefault("v", torch.zeros_like(w))
                v.mul_(0.9).addcmul_(w.grad, w.grad, value=0.1)
                w.addcdiv_(w.grad, (v + 1e-3).sqrt(), value=-1e-2)


DECOUPLED = of(optim.AdamW, betas=(0.9, 0.999), lr=3e-3, weight_decay=0.3)
SLOWER = of(optim.SGD, lr=1e-2, momentum=0.8)
NOTICED = {
    "decay in the gradient": (of(CoupledDecay, **ADAMW), THEIR_ADAMW, LONG, 1e-5),
    "no correction": (of(NoCorrection, **ADAMW), THEIR_ADAMW, LONG, 1e-5),
    "eps inside the root": (of(EpsInsideRoot, **ADAMW), THEIR_ADAMW, LONG, 1e-5),
    "another momentum": (SLOWER, FOLLOWED["SGD with momentum"][1], LONG, 1e-3),
    "eps inside the root of RMSProp": (of(RootOfSum, lr=1e-2), FOLLOWED["RMSProp"][1], {}, 1e-4),
    "AdamW for Adam": (DECOUPLED, FOLLOWED["Adam with decay"][1], {}, 1e-3),
}


@pytest.mark.parametrize("name", NOTICED)
def test_the_comparison_notices_another_rule(name):
    ours, theirs, how, bound = NOTICED[name]
    assert follow(ours, theirs, **how) > bound


def whole(state, square, forgotten):
    return factored._remember(state, "v", square, forgotten)


def row_and_column(state, square, forgotten):
    rows = factored._remember(state, "r", square.mean(-1, keepdim=True), forgotten)
    return rows, factored._remember(state, "c", square.mean(-2, keepdim=True), forgotten)


def swapped(state, square, forgotten):
    rows, columns = row_and_column(state, square, forgotten)
    return rows @ columns / rows.mean() if square.ndim > 1 else square


def not_normalised(state, square, forgotten):
    rows, columns = row_and_column(state, square, forgotten)
    return rows @ columns


@pytest.mark.parametrize("mutant", [whole, swapped, not_normalised])
def test_the_comparison_notices_a_wrong_mean_square(mutant, monkeypatch):
    monkeypatch.setattr(factored, "_mean_square", mutant)
    how = {"shapes": ((3, 4), (6, 3), (2, 3, 2)), "skip": False, "sizes": (-2, 1)}
    assert follow(*both(*ADAFACTORS, **ADAFACTOR), **how) > 1e-4


@pytest.mark.parametrize("changes", [{"decay_exponent": 0.7}, {"clip": 0.5}, {"eps": (1e-30, 0.1)}])
def test_every_setting_of_adafactor_matters(changes):
    small = parameters(((3, 4),))
    small[0].data *= 1e-2
    other = copy.deepcopy(small)
    a, b = optim.Adafactor(small, **ADAFACTOR), optim.Adafactor(other, **(ADAFACTOR | changes))
    g = torch.Generator().manual_seed(1)
    for _ in range(5):
        small[0].grad = torch.randn(3, 4, generator=g)
        other[0].grad = small[0].grad.clone()
        a.step()
        b.step()
    assert checks.relative_error(small[0].detach(), other[0].detach()) > 1e-3


def test_the_mean_square_of_adafactor_is_a_row_and_a_column_and_exact_if_of_rank_one():
    w = torch.nn.Parameter(torch.ones(30, 20))
    optimizer = optim.Adafactor([w])
    w.grad = torch.ones(30, 20)
    optimizer.step()
    numbers = sum(x.numel() for x in optimizer.state[w].values() if isinstance(x, torch.Tensor))
    assert numbers == 30 + 20
    g = torch.Generator().manual_seed(0)
    outer = torch.rand(4, 1, generator=g) @ torch.rand(1, 3, generator=g) + 0
    torch.testing.assert_close(factored._mean_square({}, outer, 1.0), outer, rtol=1e-6, atol=0)


def by_singular_values(x, num_steps, coefficients=muon.COEFFICIENTS):
    """The same polynomial, applied to the singular values alone."""
    a, b, c = coefficients
    u, s, v = torch.linalg.svd(x.double(), full_matrices=False)
    s = s / torch.linalg.vector_norm(x.double())
    for _ in range(num_steps):
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag(s) @ v


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 99))
def test_newton_schulz_is_a_polynomial_of_the_singular_values(rows, columns, seed):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).double()
    for num_steps in (0, 1, 5):
        ours = optim.newton_schulz(x, num_steps, dtype=torch.float64)
        assert checks.relative_error(ours, by_singular_values(x, num_steps)) < 1e-9


def test_newton_schulz_brings_singular_values_near_one():
    g = torch.Generator().manual_seed(0)
    s = torch.logspace(0, -2, 20, dtype=torch.float64)
    u, v = (torch.linalg.qr(torch.randn(n, 20, generator=g).double())[0] for n in (40, 30))
    found = torch.linalg.svdvals(optim.newton_schulz(u @ torch.diag(s) @ v.T))[:20]
    assert 0.65 < found.min() < found.max() < 1.25


newton_schulz = optim.newton_schulz
other_coefficients = partial(newton_schulz, coefficients=(1.5, -0.5, 0.0))


def without_a_start(x, num_steps=5, *, dtype=torch.float32):
    return newton_schulz(x, num_steps - 1, dtype=dtype)


MUON = {"lr": 2e-2, "weight_decay": 0.1, "momentum": 0.9}


def follow_muon(theirs="original", **ours):
    theirs = of(torch.optim.Muon, adjust_lr_fn=theirs, **MUON)
    return follow(of(optim.Muon, **MUON | ours), theirs, shapes=((3, 4), (6, 3), (5, 5)), steps=20)


@pytest.mark.parametrize(("scale", "theirs"), [("shape", "original"), ("adamw", "match_rms_adamw")])
def test_muon_follows_torchs_in_bf16(scale, theirs):
    assert follow_muon(theirs, scale=scale, dtype=torch.bfloat16) < 1e-6


OTHERS = [{"momentum": 0.8}, {"weight_decay": 0.4}, {"scale": "adamw"}, {"num_steps": 3}]


@pytest.mark.parametrize("mutant", [other_coefficients, without_a_start, *OTHERS])
def test_the_comparison_notices_another_iteration_and_other_settings(mutant, monkeypatch):
    settings = mutant if isinstance(mutant, dict) else {}
    monkeypatch.setattr(muon, "newton_schulz", newton_schulz if settings else mutant)
    assert follow_muon(dtype=torch.bfloat16, **settings) > 1e-3


def test_the_405b_schedule_is_the_published_one():
    rate = optim.llama3_405b_rate
    assert rate(7_999) == rate(8_000) == 8e-5
    assert math.isclose(rate(0), 8e-5 / 8_000, rel_tol=1e-12)
    assert math.isclose(rate(1_200_000), 8e-7, rel_tol=1e-9)
    assert math.isclose(rate((8_000 + 1_200_000) // 2), (8e-5 + 8e-7) / 2, rel_tol=1e-9)
    assert math.isclose(rate(1_200_001), 8e-7 * 2 / 3, rel_tol=1e-9)
    assert rate(1_200_003) == rate(2_000_000) == 0
    places = (0, 251_999_999, 252e6, 2.86e12, 2.87e12, 9e13)
    sizes = [optim.batch_at(tokens).batch_tokens for tokens in places]
    assert sizes == [2**22, 2**22, 2**23, 2**23, 2**24, 2**24]
    assert optim.num_steps_for(15.6e12) == 61 + 342_101 + 758_767
    settings = {"peak": 1.0, "num_steps": 10, "warmup_steps": 2, "final": 0.1}
    assert optim.warmup_cosine_anneal(10, anneal_steps=0, **settings) == 0
    assert optim.warmup_cosine_anneal(9, anneal_steps=0, **settings) > 0.1


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    lengths=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    tokens=st.integers(0, 200),
)
def test_steps_are_those_of_a_loop(sizes, lengths, tokens):
    starts = [0, lengths[0], lengths[0] + lengths[1]]
    stages = tuple(
        optim.BatchStage(from_tokens=start, batch_tokens=size, sequence_length=1)
        for start, size in zip(starts, sizes, strict=False)
    )
    seen = steps = 0
    while seen < tokens:
        seen += optim.batch_at(seen, stages).batch_tokens
        steps += 1
    assert optim.num_steps_for(tokens, stages) == steps


def test_rates_for_other_batches():
    settings = {"rate": 2e-4, "batch": 1_000, "new_batch": 4_000}
    assert optim.rate_for_batch(rule="linear", **settings) == 8e-4
    assert optim.rate_for_batch(rule="sqrt", **settings) == 4e-4
    with pytest.raises(Exception, match="rule"):
        optim.rate_for_batch(rule="cubic", **settings)


def bowl(curvature=2.0):
    """Steps of gradient descent on 1/2 c w^2 from 1: stable below 2 / c."""
    state = {"w": 1.0}

    def step(rate):
        loss = 0.5 * curvature * state["w"] ** 2
        state["w"] -= rate * curvature * state["w"]
        return loss

    return step


def test_a_range_test_finds_the_stable_rates_of_a_bowl_smooths_and_reaches_the_end():
    found = study.range_test(bowl(), low=1e-3, high=100.0, num_steps=60, smoothing=0.0)
    assert found.diverged
    assert found.rates == [pytest.approx(1e-3 * 1e5 ** (i / 59)) for i in range(len(found.rates))]
    assert 0.5 < found.lowest_rate < 1.3
    assert found.losses == found.smoothed
    losses = iter([4.0, 2.0, 1.0])
    found = study.range_test(lambda _: next(losses), low=0.1, high=10.0, num_steps=3, smoothing=0.5)
    assert found.smoothed == pytest.approx([4.0, 8 / 3, (4 / 8 + 2 / 4 + 1 / 2) / (7 / 8)])
    assert not found.diverged
    assert found.lowest_rate == pytest.approx(10.0)
