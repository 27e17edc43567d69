"""The gradient noise scale: how many sequences a batch needs before more of them hardly help.

The gradient of one sequence is the true gradient G plus noise of covariance Sigma.  The mean over a
batch of B has the expected square::

    E |G_B|^2 = |G|^2 + tr(Sigma) / B

so the noise is as long as the signal at the noise scale::

    B_simple = tr(Sigma) / |G|^2

Below it a batch twice as large halves the steps to a loss, nearly; far above it, it saves none.
Both estimators return it in units of what one gradient is of: sequences, or micro-batches.

Source: McCandlish et al. 2018, section 2.2 and appendix A, https://arxiv.org/abs/1812.06162

Shape suffixes:  N gradients, P parameters, R repetitions.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require


class NoiseScale(NamedTuple):
    """What an estimator has found."""

    batch: float
    """The noise scale; infinite where the gradient cannot be told from noise."""
    standard_error: float
    """Of the noise scale."""
    gradient_square: float
    """``|G|^2``, estimated without bias, so it may be negative where there is little to see."""
    noise: float
    """tr(Sigma), of a batch of one."""


def noise_scale_from_gradients(gradients_NP: Float[Tensor, "N P"]) -> NoiseScale:
    """Estimate the noise scale from single gradients at the same weights.

    With their mean g::

        tr(Sigma) = sum_i |g_i - g|^2 / (N - 1)
        |G|^2     = |g|^2 - tr(Sigma) / N

    The square of a mean of N is too large by tr(Sigma) / N, hence the second term.  The standard
    error is the jackknife's: the estimate is made N times, each time without one gradient.  It is a
    little too large where the noise is, by a fifth in the tests, and never too small on average
    (Efron and Stein 1981).

    Args:
        gradients_NP: of single sequences (or micro-batches of equal size), a row each; 3 or more.

    Raises:
        ValueError: if there are fewer than 3, or they are not finite.
    """
    number = len(gradients_NP)
    require("the number of gradients", number, least=3)
    g_NP = gradients_NP.double()
    products_NN = g_NP @ g_NP.T
    if not products_NN.isfinite().all():
        raise ValueError("a gradient is not finite: leave out the step at which it was taken")
    squares_N, total = products_NN.diagonal(), products_NN.sum()
    gradient_square, noise = _signal_and_noise(total, squares_N.sum(), number)
    # Without gradient i the sum of all products lacks row i and column i.
    totals_N = total - 2 * products_NN.sum(1) + squares_N
    without_N = _ratio(*_signal_and_noise(totals_N, squares_N.sum() - squares_N, number - 1))
    spread = (without_N - without_N.mean()).square().sum().item()
    error = math.sqrt((number - 1) / number * spread)
    batch = _ratio(gradient_square, noise).item()
    return NoiseScale(batch, _finite(error), gradient_square.item(), noise.item())


def noise_scale_from_squares(
    small_squares_R: Float[Tensor, " R"],
    big_squares_R: Float[Tensor, " R"],
    *,
    small: int,
    big: int,
) -> NoiseScale:
    """Estimate the noise scale from the squared norms of gradients of two batch sizes.

    A run that accumulates has both for nothing: the gradient of every micro-batch, and their mean.
    One repetition gives::

        |G|^2     = (big |G_big|^2 - small |G_small|^2) / (big - small)
        tr(Sigma) = (|G_small|^2 - |G_big|^2) / (1 / small - 1 / big)

    Both are averaged over the repetitions before one is divided by the other: a mean of ratios
    would be drawn by the repetitions in which ``|G|^2`` is near 0.  The standard error is that of a
    ratio of means, to first order.

    Args:
        small_squares_R: ``|G_small|^2`` of each repetition, perhaps itself a mean over some.
        big_squares_R: ``|G_big|^2`` of the same repetitions; 3 or more.
        small: sequences of the small batch, 1 or more.
        big: sequences of the big batch, above `small`.

    Raises:
        ValueError: if sizes are not in order, there are fewer than 3 repetitions, or one is not
            finite.

    Source:
        McCandlish et al. 2018, appendix A.1, https://arxiv.org/abs/1812.06162
    """
    require("small", small, least=1)
    require("big", big, above=small)
    number = len(big_squares_R)
    require("the number of repetitions", number, least=3)
    small_R, big_R = small_squares_R.double(), big_squares_R.double()
    if not (small_R.isfinite().all() and big_R.isfinite().all()):
        raise ValueError("a squared norm is not finite: leave out the step at which it was taken")
    signal_R = (big * big_R - small * small_R) / (big - small)
    noise_R = (small_R - big_R) / (1 / small - 1 / big)
    signal, noise = signal_R.mean(), noise_R.mean()
    ratio = _ratio(signal, noise)
    error = (noise_R - ratio * signal_R).std() / signal / math.sqrt(number)
    return NoiseScale(ratio.item(), _finite(error.item()), signal.item(), noise.item())


def _signal_and_noise(total: Tensor, squares: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return |G|^2 and tr(Sigma) from sums of products: of all pairs, and of each with itself."""
    noise = (squares - total / number) / (number - 1)
    return total / number**2 - noise / number, noise


def _ratio(signal: Tensor, noise: Tensor) -> Tensor:
    """Return noise / signal, infinite where no signal is left."""
    return torch.where(signal > 0, noise / signal, math.inf)


def _finite(error: float) -> float:
    """Return a standard error; infinite where the estimate itself may be."""
    return error if math.isfinite(error) else math.inf
