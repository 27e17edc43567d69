"""optim: the same steps as torch's optimizers, exact schedules, and mutants that are noticed."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import model, optim


def parameters():
    g = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=g)) for s in ((3, 4), (5,), (2, 2, 2))]


ADAMW = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def test_adamw_state_survives_saving():
    one, other = parameters(), parameters()
    a, b = optim.AdamW(one, **ADAMW), optim.AdamW(other, **ADAMW)
    g = torch.Generator().manual_seed(1)
    for step in range(6):
        if step == 3:
            b.load_state_dict(copy.deepcopy(a.state_dict()))
            for p, q in zip(other, one, strict=True):
                p.data.copy_(q.data)
        for p, q in zip(one, other, strict=True):
            p.grad = q.grad = torch.randn(p.shape, generator=g)
        a.step()
        if step >= 3:
            b.step()
    assert all(torch.equal(p, q) for p, q in zip(one, other, strict=True))


@given(scale=st.floats(1e-3, 1e3))
def test_adam_steps_do_not_depend_on_the_scale_of_the_gradient(scale):
    moved = []
    for factor in (1.0, scale):
        p = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        optimizer = optim.AdamW([p], lr=0.1, eps=1e-30, weight_decay=0.0)
        for t in range(3):
            p.grad = factor * torch.tensor([1.0, -2.0, 0.5 + t], dtype=torch.float64)
            optimizer.step()
        moved.append(p.detach())
    torch.testing.assert_close(*moved, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD", "RMSProp", "Muon", "Adafactor", "Lion"])
def test_the_rate_by_place_and_the_gradient_by_a_closure(name):
    """As others' code calls an optimizer; with torch's own, where it has one of the same rule."""
    make = getattr(optim, name)
    one, other = ([torch.nn.Parameter(torch.full((2, 3), 0.5))] for _ in range(2))
    a, b = make(one, 0.1), make(other, lr=0.1)

    def closure(optimizer=a, w=one[0]):
        optimizer.zero_grad()
        loss = (w**2).sum()
        loss.backward()
        return loss

    for _ in range(3):
        loss = a.step(closure)
        closure(b, other[0])
        assert b.step() is None
    assert loss.item() < 2 * 3 * 0.25
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[0], torch.full((2, 3), 0.5))


def test_decay_groups_leave_gains_and_embeddings_alone():
    decoder = model.Transformer(model.tiny(), generator=torch.Generator().manual_seed(0))
    decayed, free = optim.decay_groups(decoder, weight_decay=0.1)
    names = {id(p): n for n, p in decoder.named_parameters()}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    free_names = {names[id(p)] for p in free["params"]}
    assert "embedding" in free_names
    assert all(n == "embedding" or n.endswith("gain") for n in free_names)
    assert len(decayed["params"]) + len(free["params"]) == len(names)


GRADIENTS = {
    "fp16": [torch.tensor([300.0], dtype=torch.float16)],
    "many of fp16": [torch.full((5_000,), 100.0, dtype=torch.float16)],
    "fp32": [torch.tensor([1e20])],
    "several": [torch.tensor([3e19, -4e19]), torch.tensor([[1.2e20]])],
    "two dtypes": [torch.tensor([1e20]), torch.tensor([1e30], dtype=torch.float64)],
    "bf16": [torch.full((3_000,), 1.0, dtype=torch.bfloat16)],
    "infinite": [torch.tensor([math.inf, 1.0])],
    "no number": [torch.tensor([math.nan, 1.0])],
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_the_norm_and_the_clipped_gradient_at_the_border_of_a_dtype_are_those_of_float64(case):
    gradients = GRADIENTS[case]
    exact = torch.cat([g.double().flatten() for g in gradients]).norm()
    made = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for p, g in zip(made, gradients, strict=True):
        p.grad = g.clone()
    norm = optim.clip_by_global_norm(made, 1.0)
    assert norm == pytest.approx(exact.item(), rel=1e-6, nan_ok=True)
    for p, g in zip(made, gradients, strict=True):
        if exact.isfinite():
            torch.testing.assert_close(p.grad, (g.double() / exact).to(g.dtype))


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 1e6])
def test_clipping_equals_torch(max_norm):
    ours, theirs = parameters(), parameters()
    g = torch.Generator().manual_seed(3)
    for p, q in zip(ours, theirs, strict=True):
        p.grad = torch.randn(p.shape, generator=g)
        q.grad = p.grad.clone()
    norm = optim.clip_by_global_norm(ours, max_norm)
    assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(theirs, max_norm)), rel=1e-6)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-7)


def test_clipping_takes_a_single_tensor_shards_and_no_gradient():
    p = torch.nn.Parameter(torch.zeros(3, 2))
    p.grad = torch.full((3, 2), 2.0)
    assert optim.clip_by_global_norm(p, 1.0) == pytest.approx(24**0.5)
    torch.testing.assert_close(p.grad.norm(), torch.tensor(1.0))
    p = torch.nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([3.0, 4.0])
    norm = optim.clip_by_global_norm([p], 1.0, sum_over_shards=lambda total: total * 4)
    assert norm == pytest.approx(10.0)
    torch.testing.assert_close(p.grad, torch.tensor([0.3, 0.4]))
    assert optim.clip_by_global_norm(parameters(), 1.0) == 0.0


COSINE = {"peak": 2.0, "num_steps": 110, "warmup_steps": 10, "final": 0.5}


def test_cosine_is_what_is_done_by_hand_and_equals_torchs_after_warmup():
    by_hand = {0: 0.2, 9: 2.0, 10: 2.0, 60: 1.25, 110: 0.5, 1000: 0.5}
    assert {step: optim.warmup_cosine(step, **COSINE) for step in by_hand} == pytest.approx(by_hand)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=100, eta_min=0.5)
    for step in range(10, 111):
        assert optim.warmup_cosine(step, **COSINE) == pytest.approx(theirs.param_groups[0]["lr"])
        theirs.step()
        schedule.step()


WSD = {"peak": 2.0, "num_steps": 100, "warmup_steps": 10, "decay_steps": 20, "final": 0.4}


def test_wsd_is_what_is_done_by_hand_and_without_decay_flat():
    by_hand = {0: 0.2, 4: 1.0, 10: 2.0, 79: 2.0, 80: 2.0, 90: 1.2, 100: 0.4, 500: 0.4}
    found = {step: optim.warmup_stable_decay(step, **WSD) for step in by_hand}
    assert found == pytest.approx(by_hand)
    flat = WSD | {"decay_steps": 0}
    assert {optim.warmup_stable_decay(s, **flat) for s in range(10, 100)} == {2.0}
    assert optim.warmup_stable_decay(100, **flat) == optim.warmup_stable_decay(400, **flat) == 0.4


@given(step=st.integers(0, 300))
def test_schedules_stay_between_zero_and_the_peak(step):
    for value in (optim.warmup_cosine(step, **COSINE), optim.warmup_stable_decay(step, **WSD)):
        assert 0 < value <= 2.0
