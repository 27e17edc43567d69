"""ops: forward passes agree with torch, backward passes with autograd, and mutants are noticed."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import awkward

from llmcourse.base import checks
from llmcourse.model import ops

PAIRS = {
    "linear": (ops.linear_forward, ops.linear_backward, {"x": (2, 3, 8), "w": (5, 8)}),
    "rmsnorm": (ops.rmsnorm_forward, ops.rmsnorm_backward, {"x": (2, 3, 8), "gain": (8,)}),
    "silu_gate": (
        ops.silu_gate_forward,
        ops.silu_gate_backward,
        {"gate": (2, 3, 8), "up": (2, 3, 8)},
    ),
}


def inputs_of(pair, generator):
    return {name: awkward(*shape, generator=generator) for name, shape in PAIRS[pair][2].items()}


@pytest.mark.parametrize("pair", PAIRS)
def test_backward_matches_autograd(pair, generator):
    forward, backward, _ = PAIRS[pair]
    # Autograd differentiates the forward as torch sees it, so in-place arithmetic is avoided there.
    plain = {"rmsnorm": plain_rmsnorm, "silu_gate": plain_silu_gate}.get(pair, forward)
    inputs = inputs_of(pair, generator)
    y, _ = forward(*(v.double() for v in inputs.values()))
    y_plain, _ = plain(*(v.double() for v in inputs.values()))
    torch.testing.assert_close(y, y_plain, rtol=1e-12, atol=1e-12)

    def both(*arguments):
        with torch.no_grad():
            saved = forward(*arguments)[1]
        return plain(*arguments)[0], saved

    report = checks.check_backward(both, backward, inputs, generator=generator, tolerance=1e-12)
    assert report.ok, report


def plain_rmsnorm(x, gain, eps=1e-5):
    return F.rms_norm(x, gain.shape, gain, eps), None


def plain_silu_gate(gate, up):
    return F.silu(gate) * up, None


@pytest.mark.parametrize("pair", PAIRS)
def test_the_differentiable_form_passes_gradcheck(pair, generator):
    arguments = [v.double().requires_grad_() for v in inputs_of(pair, generator).values()]
    assert torch.autograd.gradcheck(getattr(ops, pair), arguments, rtol=1e-6, atol=1e-7)


MUTANTS = {
    "rmsnorm": {
        "forgets the gradient through the rms": lambda dx, dg, dy, s: (
            s.gain_D * dy * s.inv_rms_BT1,
            dg,
        ),
        "forgets 1/rms": lambda dx, dg, dy, s: (dx / s.inv_rms_BT1, dg),
        "averages the gain over the batch": lambda dx, dg, dy, s: (dx, dg / s.x_BTD.shape[0]),
        "returns zero": lambda dx, dg, dy, s: (dx * 0, dg),
    },
    "silu_gate": {
        "swaps gate and up": lambda dgate, dup, dy, s: (dup, dgate),
        "forgets the slope of the sigmoid": lambda dgate, dup, dy, s: (
            dy * s.up_BTF * torch.sigmoid(s.gate_BTF),
            dup,
        ),
        "forgets up": lambda dgate, dup, dy, s: (dgate / s.up_BTF, dup),
    },
    "linear": {
        "averages over the batch": lambda dx, dw, dy, s: (dx, dw / s.x_BTD.shape[0]),
        "uses the first sequence only": lambda dx, dw, dy, s: (dx, dy[0].T @ s.x_BTD[0]),
        "flips the sign": lambda dx, dw, dy, s: (-dx, dw),
    },
}


@pytest.mark.parametrize(("pair", "mutant"), [(p, m) for p in MUTANTS for m in MUTANTS[p]])
def test_the_check_notices_a_broken_backward(pair, mutant, generator):
    forward, backward, _ = PAIRS[pair]
    plain = {"rmsnorm": plain_rmsnorm, "silu_gate": plain_silu_gate}.get(pair, forward)

    def both(*arguments):
        with torch.no_grad():
            saved = forward(*arguments)[1]
        return plain(*arguments)[0], saved

    def broken(dy, saved):
        return MUTANTS[pair][mutant](*backward(dy, saved), dy, saved)

    report = checks.check_backward(both, broken, inputs_of(pair, generator), generator=generator)
    assert not report.ok, f"accepted a backward pass that {mutant}"


def test_linear_matches_torch_at_sizes_of_both_kernels(generator):
    for rows, inner, columns in ((3, 5, 7), (1, 64, 64), (512, 96, 128)):
        x = awkward(rows, inner, generator=generator)
        w = awkward(columns, inner, generator=generator)
        exact = F.linear(x.double(), w.double())
        assert checks.relative_error(ops.linear(x, w).double(), exact) < 1e-6


def test_linear_keeps_leading_dimensions(generator):
    x, w = awkward(2, 3, 4, 5, generator=generator), awkward(6, 5, generator=generator)
    torch.testing.assert_close(ops.linear(x, w), F.linear(x, w))
    assert ops.linear(x[:, :0], w).shape == (2, 0, 4, 6)


def test_linear_gradients_in_float32_at_the_size_of_the_fast_kernel(generator):
    x = awkward(4, 160, 96, generator=generator).requires_grad_()
    w = awkward(80, 96, generator=generator).requires_grad_()
    dy = torch.randn(4, 160, 80, generator=generator)
    ours = torch.autograd.grad(ops.linear(x, w), (x, w), dy)
    exact = torch.autograd.grad(F.linear(x.double(), w.double()), (x, w), dy.double())
    for mine, reference in zip(ours, exact, strict=True):
        assert checks.relative_error(mine, reference) < 2e-6


def test_embedding_matches_torch_and_refuses_unknown_ids(generator):
    w = awkward(7, 3, generator=generator)
    ids = torch.tensor([[0, 6, 2], [2, 2, 1]])
    torch.testing.assert_close(ops.embedding(ids, w), w[ids], rtol=0, atol=0)
    with pytest.raises(IndexError):
        ops.embedding(torch.tensor([[7]]), w)


def test_rmsnorm_matches_torch(generator):
    x, gain = awkward(2, 3, 8, generator=generator), awkward(8, generator=generator)
    torch.testing.assert_close(ops.rmsnorm(x, gain, 1e-5), F.rms_norm(x, (8,), gain, 1e-5))


def test_swiglu_is_its_formula(generator):
    x = awkward(2, 3, 4, generator=generator, dtype=torch.float64)
    gate, up = (awkward(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    down = awkward(4, 6, generator=generator, dtype=torch.float64)
    wanted = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    torch.testing.assert_close(ops.swiglu(x, gate, up, down), wanted, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(ops.swiglu(x, up, gate, down), wanted, rtol=1e-3)


@given(seed=st.integers(0, 2**31), scale=st.floats(1e-2, 1e2))
def test_scaling_the_input_of_rmsnorm_changes_nothing(seed, scale):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, 8, generator=g, dtype=torch.float64)
    gain = torch.ones(8, dtype=torch.float64)
    y = ops.rmsnorm(x, gain, 1e-12)
    # eps shifts the result by eps / mean(x^2) at most, here below 1e-7.
    torch.testing.assert_close(y, ops.rmsnorm(scale * x, gain, 1e-12), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("eps", [0.0, -1e-5])
def test_rmsnorm_rejects_a_wrong_eps(eps, generator):
    with pytest.raises(ValueError, match="eps must be positive"):
        ops.rmsnorm(awkward(1, 1, 4, generator=generator), torch.ones(4), eps)
