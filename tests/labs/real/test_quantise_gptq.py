"""GPTQ is the plain form without a trick, and better for a layer's inputs than rounding alone."""

import pytest
import torch

from llmcourse_labs.real.quantise import Grid, gptq, inverse_factor, nearest
from tests.edits import edited

GRIDS = [Grid(3, 8), Grid(2, 6, symmetric=True), Grid(4, None), Grid(8, 12, symmetric=True)]


def layer(seed=0, rows=15, columns=24, num_inputs=70):
    """A matrix and inputs that go together, of unlike sizes, one of them never used."""
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    mixed = torch.randn(columns, columns, generator=g, dtype=torch.float64)
    x = torch.randn(num_inputs, columns, generator=g, dtype=torch.float64) @ mixed + 0.5
    x[:, 5] = 0
    return w, x


def hessian(x):
    return 2 * x.T @ x


def plain(w, h, grid, damping):
    """Return codes and scales, with the inverse of what is left made anew for every column."""
    w, width = w.clone(), w.shape[1]
    h = h + damping * h.diagonal().mean() * torch.eye(width, dtype=torch.float64)
    block = grid.block or width
    codes, scales = torch.empty_like(w), []
    for j in range(width):
        if j % block == 0:
            d, m = grid.fit(w[:, j : j + block])
            scales.append(d.half())
        inverse = torch.linalg.inv(h[j:, j:])
        codes[:, j] = grid.codes(w[:, j : j + 1], d, m)[:, 0]
        on_grid = d.half().double()[:, 0] * codes[:, j] + m.half().double()[:, 0]
        w[:, j:] -= torch.outer((w[:, j] - on_grid) / inverse[0, 0], inverse[0])
    return codes, torch.cat(scales, 1)


def is_the_plain_form(of, grid, seed=0):
    w, x = layer(seed)
    codes, scales = plain(w, hessian(x), grid, 0.01)
    made = of(w, hessian(x), grid, 0.01)
    return torch.equal(made.codes_FD.double(), codes) and torch.equal(made.scales_FN, scales)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_it_is_the_plain_form_in_float64(grid, nth_seed):
    assert is_the_plain_form(gptq, grid, seed=nth_seed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w_FD[:, j:end] -= error_F1 * u_DD[j, j:end]", "pass"),
        ("w_FD[:, end:] -= errors_FB @ u_DD[start:end, end:]", "pass"),
        ("/ u_DD[j, j]", "/ u_DD[j, j].sqrt()"),
        ("u_DD[j, j:end]\n", "u_DD[j:end, j]\n"),
        ("range(start, end)", "reversed(range(start, end))"),
        ("grid.fit(w_FD[:, start:end])", "grid.fit(given_FD[:, start:end])"),
        ("kept_d_F1 * q_F1", "d_F1 * q_F1"),
    ],
)
def test_a_wrong_step_is_not_the_plain_form(old, new):
    clone = ("w_FD, u_DD = w_FD.clone(),", "given_FD, w_FD, u_DD = w_FD, w_FD.clone(),")
    assert is_the_plain_form(edited(gptq, clone), GRIDS[0])
    assert not is_the_plain_form(edited(gptq, clone, (old, new)), GRIDS[0])


def test_what_the_layer_answers_is_nearer_than_by_rounding(nth_seed):
    w, x = layer(nth_seed, columns=48, num_inputs=300)
    w, x = w.float(), x.float()
    for bits in (2, 3, 4):
        grid = Grid(bits, 16)
        ours, theirs = gptq(w, hessian(x), grid).weights(), nearest(w, grid).weights()
        # Rounding is nearer to the weights, and farther from the answers.
        assert (ours - w).norm() > (theirs - w).norm()
        assert ((ours - w) @ x.T).norm() < 0.8 * ((theirs - w) @ x.T).norm()


def test_inputs_that_have_nothing_in_common_leave_rounding_to_nearest():
    w, _ = layer()
    h = torch.diag(torch.linspace(0.1, 9, 24, dtype=torch.float64))
    made, rounded = gptq(w, h, GRIDS[0]), nearest(w, GRIDS[0])
    assert torch.equal(made.codes_FD, rounded.codes_FD)
    assert torch.equal(made.scales_FN, rounded.scales_FN)


def test_the_factor_is_that_of_the_damped_inverse():
    _, x = layer()
    h, u = hessian(x), inverse_factor(hessian(x), 0.2)
    one = torch.eye(24, dtype=torch.float64)
    assert torch.equal(u, u.triu())
    assert torch.allclose(u.T @ u @ (h + 0.2 * h.diagonal().mean() * one), one, atol=1e-9)


def test_a_hessian_without_an_inverse_is_refused():
    w, x = layer()
    with pytest.raises(ValueError, match="damping must be above 0, got 0"):
        gptq(w, hessian(x), GRIDS[0], damping=0.0)
    with pytest.raises(torch.linalg.LinAlgError):  # which damping keeps away
        torch.linalg.cholesky(hessian(x))
    for factor in (0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="mean square of the layer's inputs must be"):
            gptq(w, hessian(x) * factor, GRIDS[0])
