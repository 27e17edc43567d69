"""Norms at the border of their dtype are torch's."""

import pytest
import torch
from torch import nn

from llmcourse.optim import clip_by_global_norm


def parameters(gradients):
    made = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for p, g in zip(made, gradients, strict=True):
        p.grad = g.clone()
    return made


@pytest.mark.parametrize(
    "gradients",
    [
        [torch.tensor([300.0], dtype=torch.float16)],
        [torch.full((5_000,), 100.0, dtype=torch.float16)],
        [torch.tensor([1e20])],
        [torch.tensor([3e19, -4e19]), torch.tensor([[1.2e20]])],
        [torch.tensor([1e20], dtype=torch.float32), torch.tensor([1e30], dtype=torch.float64)],
        [torch.full((3_000,), 1.0, dtype=torch.bfloat16)],
    ],
    ids=["fp16", "many of fp16", "fp32", "several", "two dtypes", "bf16"],
)
def test_the_norm_and_the_clipped_gradient_are_those_of_float64(gradients):
    exact = torch.cat([g.double().flatten() for g in gradients])
    made = parameters(gradients)
    norm = clip_by_global_norm(made, 1.0)
    assert norm == pytest.approx(float(exact.norm()), rel=1e-6)
    for p, g in zip(made, gradients, strict=True):
        expected = (g.double() / exact.norm()).to(g.dtype)
        torch.testing.assert_close(p.grad, expected)


@pytest.mark.parametrize("value", [3.0, 300.0])
def test_so_they_are_torchs(value):
    one, other = parameters([torch.tensor([value, 1.0])]), parameters([torch.tensor([value, 1.0])])
    norm = clip_by_global_norm(one, 1.0)
    assert norm == pytest.approx(float(nn.utils.clip_grad_norm_(other, 1.0)), rel=1e-6)
    torch.testing.assert_close(one[0].grad, other[0].grad)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_what_is_not_finite_stays_so(bad):
    made = parameters([torch.tensor([bad, 1.0])])
    norm = clip_by_global_norm(made, 1.0)
    assert str(norm) == str(bad)
