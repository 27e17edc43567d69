"""The noise scale: right where it is known, unbiased where naive forms are not, with its error."""

import math

import pytest
import torch

from llmcourse_labs.study import noise_scale
from llmcourse_labs.study.noise_scale import noise_scale_from_gradients, noise_scale_from_squares

WIDTH = 40


def planted():
    """The gradient of a quadratic, and the deviations of its noise: both sums are known."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(WIDTH, generator=generator, dtype=torch.float64) - 0.3
    curvature = torch.logspace(-1, 0.3, WIDTH, dtype=torch.float64)
    return curvature * weights, torch.logspace(-0.5, 0.5, WIDTH, dtype=torch.float64).flip(0)


G, STDS = planted()
SIGNAL, NOISE = G.square().sum().item(), STDS.square().sum().item()
TRUE = NOISE / SIGNAL
"""The noise scale: about 30."""


def draws(number, seed):
    generator = torch.Generator().manual_seed(seed)
    return G + STDS * torch.randn(number, WIDTH, generator=generator, dtype=torch.float64)


def norms_of(seed, *, small=2, big=8, repetitions=60):
    """Squared norms of a big batch and, on the average, of its micro-batches."""
    means = draws(big * repetitions, seed).view(repetitions, big // small, small, WIDTH).mean(2)
    return means.square().sum(-1).mean(1), means.mean(1).square().sum(-1)


def by_squares(seed):
    return noise_scale_from_squares(*norms_of(seed), small=2, big=8)


SEEDS = range(200)


def faults(estimate):
    found = [estimate(seed) for seed in SEEDS]
    columns = torch.tensor([list(each) for each in found], dtype=torch.float64)
    errors = columns.std(0) / math.sqrt(len(SEEDS))
    wrong = []
    for name, column, true in (("gradient_square", 2, SIGNAL), ("noise", 3, NOISE)):
        if abs(columns[:, column].mean() - true) > 4 * errors[column]:
            wrong.append(name)
    if abs(columns[:, 0].median() - TRUE) > 0.03 * TRUE:
        wrong.append("batch")
    if not 0.85 < columns[:, 1].median() / columns[:, 0].std() < 1.3:
        wrong.append("standard_error")
    return wrong


@pytest.mark.parametrize(
    "estimate", [lambda seed: noise_scale_from_gradients(draws(240, seed)), by_squares]
)
def test_the_noise_scale_of_a_quadratic_is_found_with_its_error(estimate):
    assert faults(estimate) == []


def without_correction(total, squares, number):
    """|g|^2 is taken for |G|^2."""
    noise = (squares - total / number) / (number - 1)
    return total / number**2, noise


def divided_by_number(total, squares, number):
    """The noise is divided by N, as if the mean were known."""
    noise = (squares - total / number) / number
    return total / number**2 - noise / number, noise


def about_zero(total, squares, number):
    """The squares themselves are taken for noise."""
    noise = squares / number
    return total / number**2 - noise / number, noise


def swapped(seed):
    """The sizes are taken for each other."""
    return noise_scale_from_squares(*norms_of(seed), small=1, big=4)


def as_error(seed):
    """The error is that of a single repetition."""
    found = by_squares(seed)
    return found._replace(standard_error=found.standard_error * math.sqrt(60))


@pytest.mark.parametrize(("estimate", "seen"), [(swapped, "noise"), (as_error, "standard_error")])
def test_wrong_sizes_and_errors_are_noticed(estimate, seen):
    assert seen in faults(estimate)


@pytest.mark.parametrize(
    ("broken", "seen"),
    [(without_correction, "gradient_square"), (divided_by_number, "noise"), (about_zero, "noise")],
)
def test_biased_forms_are_noticed(broken, seen, monkeypatch):
    monkeypatch.setattr(noise_scale, "_signal_and_noise", broken)
    few = lambda seed: noise_scale_from_gradients(draws(24, seed))  # noqa: E731
    assert seen in faults(few)


def test_by_hand():
    # G_B of (3, 1), (1, 1), (2, 4): mean (2, 2), deviations squared 2 + 2 + 4 = 8, tr = 4.
    found = noise_scale_from_gradients(torch.tensor([[3.0, 1.0], [1.0, 1.0], [2.0, 4.0]]))
    assert found.noise == pytest.approx(4)
    assert found.gradient_square == pytest.approx(8 - 4 / 3)
    assert found.batch == pytest.approx(0.6)


def test_pure_noise_has_no_finite_scale():
    plus = torch.eye(6, dtype=torch.float64)
    found = noise_scale_from_gradients(torch.cat([plus, -plus]))
    assert found.gradient_square < 0
    assert found.batch == math.inf
    assert found.standard_error == math.inf
