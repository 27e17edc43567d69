"""The widget of chapter 13 about a norm and a gate: it computes what torch does, and obeys."""

import random

import torch
import torch.nn.functional as F

from llmcourse import nutshell
from llmcourse_classroom.widgets.norm import NormAndGate
from tests.browser.hands import choose, enter, press
from tests.browser.kit import holds, said, table

DRAWS = random.Random(13)
POINTS = [[DRAWS.uniform(-4, 4), DRAWS.uniform(-4, 4)] for _ in range(50)] + [[0, 0], [1, 1]]
GATES = [-6, -1.2785, -0.5, 0, 0.3, 2, 6]


@torch.no_grad()
def test_lists_are_normed_as_torch_does(arithmetic):
    x = torch.tensor(POINTS, dtype=torch.float64)
    expected = {
        "RMSNorm": nutshell.RMSNorm(2).double()(x),
        "LayerNorm": F.layer_norm(x, (2,), eps=1e-5),
    }
    for norm, y in expected.items():
        got = arithmetic(NormAndGate, "normed", [[norm, point] for point in POINTS])
        assert torch.tensor(got, dtype=torch.float64).sub(y).abs().max() < 1e-12


def test_curves_and_slopes_are_those_of_autograd(arithmetic):
    for name, curve in (("SiLU", F.silu), ("ReLU", F.relu)):
        g = torch.tensor(GATES, dtype=torch.float64, requires_grad=True)
        y = curve(g)
        (slope,) = torch.autograd.grad(y.sum(), g)
        got = arithmetic(NormAndGate, "bent", [[name, gate] for gate in GATES])
        expected = torch.stack([y.detach(), slope], dim=-1)
        assert torch.tensor(got, dtype=torch.float64).sub(expected).abs().max() < 1e-12


def test_doubling_changes_nothing_and_a_gate_below_zero_has_a_slope_with_silu_only(show):
    page = show(NormAndGate(first=1, second=0.5))
    holds(said(page), "(1, 0.5) has", "0.791", "RMSNorm makes it (1.26, 0.632)")
    press(page, "Double both channels", "(2, 1) has", "RMSNorm makes it (1.26, 0.632)")
    press(page, "Add 0.5 to both", "(2.5, 1.5) has", "RMSNorm makes it (1.21, 0.728)")
    assert table(page)[1][2] == "(1.21, 0.728)"  # times 10
    holds(said(page), "SiLU makes -0.238 of the gate -2", "slope -0.0908", "gradient")
    choose(page, "curve of the gate", "ReLU")
    holds(said(page), "ReLU makes 0 of the gate -2", "slope 0: nothing reaches")
    enter(page, "gate g", "6", picture=["ReLU with its tangent at 6", "is 6 and its slope 1"])
    show(NormAndGate(first=1, second=-2, norm="LayerNorm"), says=["mean of -0.5", "LayerNorm"])
