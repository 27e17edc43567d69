"""optim: RMSProp, Adam, Adafactor, Muon, each against a reference."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import optim
from llmcourse.base import checks
from llmcourse.optim import factored, muon

SHAPES = ((3, 4), (5,), (2, 3, 2), (6, 3))


def parameters(shapes=SHAPES, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(s, generator=g).to(dtype)) for s in shapes]


def follow(make_ours, make_theirs, *, shapes=SHAPES, steps=60, skip=True, scales=5):
    """Run both optimizers on the same gradients; return the largest relative weight error."""
    ours, theirs = parameters(shapes), parameters(shapes)
    a, b = make_ours(ours), make_theirs(theirs)
    g = torch.Generator().manual_seed(1)
    for step in range(steps):
        for mine, reference in zip(ours, theirs, strict=True):
            gradient = torch.randn(mine.shape, generator=g) * 10.0 ** (step % scales - 2)
            mine.grad, reference.grad = gradient.clone(), gradient.clone()
        if skip and step % 7 == 3:
            ours[1].grad = theirs[1].grad = None
        a.step()
        b.step()
    moved = [checks.relative_error(p.detach(), q.detach()) for p, q in _pairs(ours, shapes)]
    assert min(moved) > 1e-3
    return max(
        checks.relative_error(m.detach(), r.detach()) for m, r in zip(ours, theirs, strict=True)
    )


def _pairs(moved, shapes):
    return zip(moved, parameters(shapes), strict=True)


def test_rmsprop_follows_torch():
    error = follow(
        lambda p: optim.RMSProp(p, lr=1e-2, alpha=0.9),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, alpha=0.9),
    )
    assert error < 1e-6


class RootOfSum(optim.RMSProp):
    """eps inside the root."""

    @torch.no_grad()
    def step(self):
        for w in self.param_groups[0]["params"]:
            if w.grad is not None:
                v = self.state[w].setdefault("v", torch.zeros_like(w))
                v.mul_(0.9).addcmul_(w.grad, w.grad, value=0.1)
                w.addcdiv_(w.grad, (v + 1e-3).sqrt(), value=-1e-2)


def test_the_comparison_notices_a_broken_rmsprop():
    error = follow(
        lambda p: RootOfSum(p, lr=1e-2), lambda p: torch.optim.RMSprop(p, lr=1e-2, alpha=0.9)
    )
    assert error > 1e-4


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adam_follows_torch(weight_decay):
    settings = {"lr": 3e-3, "weight_decay": weight_decay}
    error = follow(
        lambda p: optim.Adam(p, **settings),
        lambda p: torch.optim.Adam(p, foreach=False, **settings),
    )
    assert error < 2e-6


def test_adam_is_not_adamw_once_weights_decay():
    settings = {"lr": 3e-3, "weight_decay": 0.3, "betas": (0.9, 0.999)}
    error = follow(
        lambda p: optim.AdamW(p, **settings),
        lambda p: torch.optim.Adam(p, foreach=False, **settings),
    )
    assert error > 1e-3


# --- Adafactor


ADAFACTOR = {"lr": 2e-2, "weight_decay": 0.1}


@pytest.mark.parametrize("lr", [2e-2, 0.5])  # the second is above 1 / sqrt(t) from step 5 on
def test_adafactor_follows_torch(lr):
    settings = ADAFACTOR | {"lr": lr}
    error = follow(
        lambda p: optim.Adafactor(p, **settings),
        lambda p: torch.optim.Adafactor(p, eps=(1e-30, 1e-3), foreach=False, **settings),
        scales=3,
    )
    assert error < 2e-6


def whole(state, square, forgotten):
    return factored._remember(state, "v", square, forgotten)


def swapped(state, square, forgotten):
    rows = factored._remember(state, "r", square.mean(-1, keepdim=True), forgotten)
    columns = factored._remember(state, "c", square.mean(-2, keepdim=True), forgotten)
    return rows @ columns / rows.mean() if square.ndim > 1 else square


def not_normalised(state, square, forgotten):
    rows = factored._remember(state, "r", square.mean(-1, keepdim=True), forgotten)
    columns = factored._remember(state, "c", square.mean(-2, keepdim=True), forgotten)
    return rows @ columns


@pytest.mark.parametrize("mutant", [whole, swapped, not_normalised])
def test_the_comparison_notices_a_wrong_mean_square(mutant, monkeypatch):
    monkeypatch.setattr(factored, "_mean_square", mutant)
    error = follow(
        lambda p: optim.Adafactor(p, **ADAFACTOR),
        lambda p: torch.optim.Adafactor(p, eps=(1e-30, 1e-3), foreach=False, **ADAFACTOR),
        shapes=((3, 4), (6, 3), (2, 3, 2)),
        skip=False,
        scales=3,
    )
    assert error > 1e-4


@pytest.mark.parametrize(
    "changes", [{"decay_exponent": 0.7}, {"clip": 0.5}, {"eps": (1e-30, 1e-1)}]
)
def test_every_setting_of_adafactor_matters(changes):
    shapes = ((3, 4),)
    small = parameters(shapes)
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


def test_the_state_of_adafactor_is_a_row_and_a_column():
    w = torch.nn.Parameter(torch.ones(30, 20))
    optimizer = optim.Adafactor([w])
    w.grad = torch.ones(30, 20)
    optimizer.step()
    numbers = sum(x.numel() for x in optimizer.state[w].values() if isinstance(x, torch.Tensor))
    assert numbers == 30 + 20


def test_a_mean_square_of_rank_one_is_found_exactly():
    g = torch.Generator().manual_seed(0)
    outer = torch.rand(4, 1, generator=g) @ torch.rand(1, 3, generator=g) + 0
    found = factored._mean_square({}, outer, 1.0)
    torch.testing.assert_close(found, outer, rtol=1e-6, atol=0)


# --- Muon


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


def wrong_coefficients(x, num_steps=5, *, dtype=torch.float32):
    return newton_schulz(x, num_steps, coefficients=(1.5, -0.5, 0.0), dtype=dtype)


def without_a_start(x, num_steps=5, *, dtype=torch.float32):
    return newton_schulz(x, num_steps - 1, dtype=dtype)


newton_schulz = optim.newton_schulz
MATRICES = ((3, 4), (6, 3), (5, 5))
MUON = {"lr": 2e-2, "weight_decay": 0.1, "momentum": 0.9}


def follow_muon(theirs="original", **ours):
    return follow(
        lambda p: optim.Muon(p, **(MUON | ours)),
        lambda p: torch.optim.Muon(p, adjust_lr_fn=theirs, **MUON),
        shapes=MATRICES,
        steps=20,
    )


@pytest.mark.parametrize(("scale", "theirs"), [("shape", "original"), ("adamw", "match_rms_adamw")])
def test_muon_follows_torchs_in_bf16(scale, theirs):
    assert follow_muon(theirs, scale=scale, dtype=torch.bfloat16) < 1e-6


@pytest.mark.parametrize("mutant", [wrong_coefficients, without_a_start])
def test_the_comparison_notices_another_iteration(mutant, monkeypatch):
    monkeypatch.setattr(muon, "newton_schulz", mutant)
    assert follow_muon(dtype=torch.bfloat16) > 1e-3


@pytest.mark.parametrize(
    "changes",
    [{"momentum": 0.8}, {"weight_decay": 0.4}, {"scale": "adamw"}, {"num_steps": 3}],
)
def test_the_comparison_notices_other_settings(changes):
    assert follow_muon(dtype=torch.bfloat16, **changes) > 1e-3


def test_muon_takes_matrices_alone():
    with pytest.raises(ValueError, match=r"matrices alone, got \[\(5,\), \(2, 3, 2\)\]"):
        optim.Muon(parameters())


# --- bad settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: optim.RMSProp(p, lr=0), "lr must be above 0"),
        (lambda p: optim.RMSProp(p, lr=1, alpha=1.0), "alpha must be below 1"),
        (lambda p: optim.RMSProp(p, lr=1, eps=0.0), "eps must be above 0"),
        (lambda p: optim.Adam(p, lr=1, betas=(0.9, 1.0)), r"betas\[1\] must be below 1"),
        (lambda p: optim.Adafactor(p, lr=0), "lr must be above 0"),
        (lambda p: optim.Adafactor(p, clip=0), "clip must be above 0"),
        (lambda p: optim.Adafactor(p, eps=(0.0, 1e-3)), r"eps\[0\] must be above 0"),
        (lambda p: optim.Adafactor(p, weight_decay=-1), "weight_decay must be 0 or greater"),
        (lambda p: optim.Muon(p[:1], momentum=1), "momentum must be below 1"),
        (lambda p: optim.Muon(p[:1], num_steps=0), "num_steps must be 1 or greater"),
        (lambda p: optim.newton_schulz(p[0], -1), "num_steps must be 0 or greater"),
    ],
)
def test_settings_outside_their_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(parameters())


# --- schedules and batches


def test_the_405b_schedule_is_the_published_one():
    rate = optim.llama3_405b_rate
    assert rate(7_999) == rate(8_000) == 8e-5
    assert math.isclose(rate(0), 8e-5 / 8_000, rel_tol=1e-12)
    assert math.isclose(rate(1_200_000), 8e-7, rel_tol=1e-9)
    middle = (8_000 + 1_200_000) // 2
    assert math.isclose(rate(middle), (8e-5 + 8e-7) / 2, rel_tol=1e-9)
    assert math.isclose(rate(1_200_001), 8e-7 * 2 / 3, rel_tol=1e-9)
    assert rate(1_200_003) == rate(2_000_000) == 0


def test_without_an_anneal_the_rate_ends_at_zero():
    settings = {"peak": 1.0, "num_steps": 10, "warmup_steps": 2, "final": 0.1}
    assert optim.warmup_cosine_anneal(10, anneal_steps=0, **settings) == 0
    assert optim.warmup_cosine_anneal(9, anneal_steps=0, **settings) > 0.1
    with pytest.raises(ValueError, match="anneal_steps must be 0 or greater"):
        optim.warmup_cosine_anneal(1, anneal_steps=-1, **settings)


def test_the_405b_batch_ramp():
    sizes = [
        optim.batch_at(t).batch_tokens for t in (0, 251_999_999, 252e6, 2.86e12, 2.87e12, 9e13)
    ]
    assert sizes == [2**22, 2**22, 2**23, 2**23, 2**24, 2**24]
    assert optim.num_steps_for(15.6e12) == 61 + 342_101 + 758_767
    with pytest.raises(ValueError, match="no stage has begun"):
        optim.batch_at(-1)
    with pytest.raises(ValueError, match="tokens must be 0 or greater"):
        optim.num_steps_for(-1)


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
    with pytest.raises(ValueError, match="new_batch must be above 0"):
        optim.rate_for_batch(1e-3, batch=1, new_batch=0, rule="sqrt")


def bowl(curvature=2.0):
    """Steps of gradient descent on 1/2 c w^2 from 1: stable below 2 / c."""
    state = {"w": 1.0}

    def step(rate):
        loss = 0.5 * curvature * state["w"] ** 2
        state["w"] -= rate * curvature * state["w"]
        return loss

    return step


def test_a_range_test_finds_the_stable_rates_of_a_bowl():
    found = optim.range_test(bowl(), low=1e-3, high=100.0, num_steps=60, smoothing=0.0)
    assert found.diverged
    assert found.rates == [pytest.approx(1e-3 * 1e5 ** (i / 59)) for i in range(len(found.rates))]
    assert 0.5 < found.lowest_rate < 1.3
    assert found.losses == found.smoothed


def test_a_range_test_smooths_and_reaches_the_end():
    losses = iter([4.0, 2.0, 1.0])
    found = optim.range_test(lambda _: next(losses), low=0.1, high=10.0, num_steps=3, smoothing=0.5)
    assert found.smoothed == pytest.approx([4.0, 8 / 3, (4 / 8 + 2 / 4 + 1 / 2) / (7 / 8)])
    assert not found.diverged
    assert found.lowest_rate == pytest.approx(10.0)


def test_bad_range_tests_are_refused():
    with pytest.raises(ValueError, match=r"high must be above 1\.0"):
        optim.range_test(bowl(), low=1.0, high=0.5, num_steps=5)
    with pytest.raises(ValueError, match="num_steps must be 2"):
        optim.range_test(bowl(), low=1.0, high=2.0, num_steps=1)
    with pytest.raises(ValueError, match="before the first update"):
        optim.range_test(lambda _: math.nan, low=1.0, high=2.0, num_steps=5)
