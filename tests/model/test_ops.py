"""ops: forward passes agree with torch, backward passes with autograd, and mutants are noticed."""

import pytest
import torch
import torch.nn.functional as F
from edits import edited
from strategies import awkward

from llmcourse.base import checks
from llmcourse.model import ops

SHAPES = {
    "linear": {"x": (2, 3, 8), "w": (5, 8)},
    "rmsnorm": {"x": (2, 3, 8), "gain": (8,)},
    "silu_gate": {"gate": (2, 3, 8), "up": (2, 3, 8)},
}
PLAIN = {
    "linear": F.linear,
    "rmsnorm": lambda x, gain: F.rms_norm(x, gain.shape, gain, 1e-5),
    "silu_gate": lambda gate, up: F.silu(gate) * up,
}


def inputs_of(pair, generator):
    return {name: awkward(*shape, generator=generator) for name, shape in SHAPES[pair].items()}


def judged(pair, generator, backward):
    def both(*arguments):
        with torch.no_grad():
            y, saved = getattr(ops, f"{pair}_forward")(*arguments)
        plain = PLAIN[pair](*arguments)
        torch.testing.assert_close(y, plain, rtol=1e-12, atol=1e-12)
        return plain, saved

    inputs = inputs_of(pair, generator)
    return checks.check_backward(both, backward, inputs, generator=generator, tolerance=1e-12)


@pytest.mark.parametrize("pair", SHAPES)
def test_linear_rmsnorm_and_silu_gate_match_torch_and_autograd(pair, generator):
    report = judged(pair, generator, getattr(ops, f"{pair}_backward"))
    assert report.ok, report


@pytest.mark.parametrize("pair", SHAPES)
def test_the_differentiable_form_passes_gradcheck(pair, generator):
    arguments = [v.double().requires_grad_() for v in inputs_of(pair, generator).values()]
    assert torch.autograd.gradcheck(getattr(ops, pair), arguments, rtol=1e-6, atol=1e-7)


DW = "matmul_nt(dy_NF.T, x_ND.T)"
DGATE = "slope_BTF.mul_(dy_BTF).mul_(up_BTF)"
MUTANTS = {
    "rmsnorm": {
        "forgets the gradient through the rms": (".addcmul_(n_BTD, projection_BT1, value=-1)", ""),
        "forgets 1/rms": (".mul_(inv_rms_BT1)", ""),
        "averages the gain over the batch": ("dgain_D.to", "(dgain_D / 2).to"),
        "returns zero": ("dx_BTD.to", "(0 * dx_BTD).to"),
    },
    "silu_gate": {
        "swaps gate and up": (f"{DGATE}, dup_BTF", f"dup_BTF, {DGATE}"),
        "forgets the slope of the sigmoid": (
            "silu_BTF.neg_().add_(gate_BTF).add_(1.0).mul_(sigmoid_BTF)",
            "sigmoid_BTF",
        ),
        "forgets up": (".mul_(up_BTF)", ""),
    },
    "linear": {
        "averages over the batch": (DW, f"{DW} / 2"),
        "uses the first sequence only": (DW, "matmul_nt(dy_BTF[0].T, x_BTD[0].T)"),
        "flips the sign": ("return dx_ND", "return -dx_ND"),
    },
}


@pytest.mark.parametrize(("pair", "mutant"), [(p, m) for p in MUTANTS for m in MUTANTS[p]])
def test_the_check_notices_a_broken_backward(pair, mutant, generator):
    broken = edited(getattr(ops, f"{pair}_backward"), MUTANTS[pair][mutant])
    assert not judged(pair, generator, broken).ok, f"accepted a backward pass that {mutant}"


def test_linear_and_its_gradients_match_torch_at_sizes_of_both_kernels_whatever_leads(generator):
    for rows, inner, columns in ((3, 5, 7), (1, 64, 64), (512, 96, 128)):
        x = awkward(rows, inner, generator=generator)
        w = awkward(columns, inner, generator=generator)
        exact = F.linear(x.double(), w.double())
        assert checks.relative_error(ops.linear(x, w).double(), exact) < 1e-6
    x, w = awkward(2, 3, 4, 5, generator=generator), awkward(6, 5, generator=generator)
    torch.testing.assert_close(ops.linear(x, w), F.linear(x, w))
    assert ops.linear(x[:, :0], w).shape == (2, 0, 4, 6)
    x = awkward(4, 160, 96, generator=generator).requires_grad_()
    w = awkward(80, 96, generator=generator).requires_grad_()
    dy = torch.randn(4, 160, 80, generator=generator)
    ours = torch.autograd.grad(ops.linear(x, w), (x, w), dy)
    exact = torch.autograd.grad(F.linear(x.double(), w.double()), (x, w), dy.double())
    for mine, reference in zip(ours, exact, strict=True):
        assert checks.relative_error(mine, reference) < 2e-6


def test_embedding_matches_torch_and_refuses_unknown_ids_and_swiglu_is_its_formula(generator):
    w = awkward(7, 3, generator=generator)
    ids = torch.tensor([[0, 6, 2], [2, 2, 1]])
    torch.testing.assert_close(ops.embedding(ids, w), w[ids], rtol=0, atol=0)
    with pytest.raises(IndexError):
        ops.embedding(torch.tensor([[7]]), w)
    x = awkward(2, 3, 4, generator=generator, dtype=torch.float64)
    gate, up = (awkward(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    down = awkward(4, 6, generator=generator, dtype=torch.float64)
    wanted = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    torch.testing.assert_close(ops.swiglu(x, gate, up, down), wanted, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(ops.swiglu(x, up, gate, down), wanted, rtol=1e-3)
