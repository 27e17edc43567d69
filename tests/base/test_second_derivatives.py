"""Second derivatives are right, or refused: never other numbers."""

import pytest
import torch
import torch.nn.functional as F

from llmcourse.loss import cross_entropy
from llmcourse.model import attention, ops
from llmcourse.model.moe import balance_loss
from llmcourse.model.moe.routing import softmax
from llmcourse.parallel.context_parallel import ring_attention
from llmcourse.parallel.tensor_parallel.nodes import f
from llmcourse.parallel.world import Axis

ALONE = Axis("cp", (0,), 0, group=None, messages=[])
TARGETS = torch.tensor([1, 0, 3])
ROTATIONS, ONES = attention.rope_rotations(4, 3), torch.ones(4).double()
TOKENS = torch.tensor([1, 2, 3, 0])


def alike(function):
    return lambda x: function(x, x, x)


def with_targets(function):
    return lambda x: function(x, TARGETS)


CASES = {
    # name: (function of x, the same by torch's own operators, shape of x)
    "cross_entropy": (with_targets(cross_entropy), with_targets(F.cross_entropy), (3, 4)),
    "attention_flash": (alike(attention.attention_flash), alike(attention.attention), (1, 3, 2, 4)),
    "ring_attention": (alike(ring_attention(ALONE)), alike(attention.attention), (1, 4, 2, 4)),
    "linear": (lambda x: ops.linear(x, x.T @ x), lambda x: F.linear(x, x.T @ x), (3, 4)),
    "rmsnorm": (lambda x: ops.rmsnorm(x, ONES), lambda x: F.rms_norm(x, (4,), eps=1e-5), (3, 4)),
    "silu_gate": (lambda x: ops.silu_gate(x, x), lambda x: F.silu(x) * x, (3, 4)),
    "rope_adjacent": (lambda x: attention.rope_adjacent(x, ROTATIONS).sin(), None, (1, 3, 2, 4)),
    "softmax of a router": (softmax, lambda x: x.softmax(-1), (3, 4)),
    "balance_loss": (
        lambda x: balance_loss(x.square(), TOKENS),
        lambda x: (x.square().sum(0) * TOKENS / 6 * 4 / 3).sum(),
        (3, 4),
    ),
    "entry of a cut layer": (lambda x: f(x, ALONE).sin(), torch.sin, (3, 4)),
}


def curvature(function, x):
    """A derivative of the gradient, along a path through the function and one beside it."""
    (dx,) = torch.autograd.grad(function(x).pow(3).sum() + x.pow(3).sum(), x, create_graph=True)
    return torch.autograd.grad(dx.square().sum(), x)[0]


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_are_right_or_refused(case):
    ours, theirs, shape = CASES[case]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x.requires_grad_()
    try:
        found = curvature(ours, x)
    except RuntimeError as refusal:
        assert "no second derivative" in str(refusal)  # noqa: PT017 - either is right
        return
    assert theirs is None or torch.allclose(found, curvature(theirs, x), rtol=1e-8)
    if theirs is None:
        assert torch.autograd.gradgradcheck(ours, x)
