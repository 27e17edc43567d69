"""The loss as a function of size and data, and the size that is best for an amount of compute.

A model of N parameters that has read D tokens, each of them once, ends with a loss of about

    L(N, D) = E + A / N^alpha + B / D^beta            nats per token

E is the irreducible loss, the entropy of the text, which no model takes away; A / N^alpha is what a
model of this size lacks, B / D^beta what so little text cannot teach.

A token costs about 6 N FLOPs.  Among all runs with C = 6 N D, the loss is smallest for

    N = G (C / 6)^a,   D = (C / 6)^b / G,   G = (alpha A / (beta B))^(1 / (alpha + beta))
    a = beta / (alpha + beta),   b = alpha / (alpha + beta)

(put D = C / (6 N) into L and set the slope by N to 0: then alpha A / N^alpha = beta B / D^beta).

Source: Hoffmann et al. 2022, section 3.3 and appendix A.3, https://arxiv.org/abs/2203.15556.

Shape suffixes:  S fits side by side, N runs.  In the code x, y and z are the logarithms of size,
tokens and loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from llmcourse.base.arguments import require, require_fields
from llmcourse_labs.scale.laws.fitting import (
    HUBER_DELTA,
    Numbers,
    Quantity,
    checked_runs,
    deviations,
    lbfgs,
)

FLOP_PER_PAIR = 6
"""FLOPs for each parameter and token: a multiply and an add forward, twice that backward."""
EXPONENTS = (0.1, 0.2, 0.35, 0.6, 1.0, 1.6)
"""Values of alpha and of beta from which a fit starts."""
MOST_EXPONENT = 4.0
"""Fits stay below it: a term with more is a wall between two sizes."""


class Optimum(NamedTuple):
    """The best use of an amount of compute."""

    num_parameters: float
    num_tokens: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class ParametricLaw:
    """Predicts the loss from the number of parameters and of tokens."""

    E: int | float
    """The irreducible loss in nats per token, 0 or greater."""
    A: int | float
    """Of the term of size: what it is for one parameter, in nats, above 0."""
    B: int | float
    """Of the term of data: what it is for one token, in nats, above 0."""
    alpha: int | float
    """How fast size helps, above 0: twice as large divides its term by 2^alpha."""
    beta: int | float
    """How fast data help, above 0."""

    def __post_init__(self) -> None:
        """Reject numbers of no law."""
        require_fields(self, "E", least=0)
        require_fields(self, "A", "B", "alpha", "beta", above=0)

    @property
    def size_exponent(self) -> float:
        """Return a: compute times 10 makes the best model 10^a times as large."""
        return self.beta / (self.alpha + self.beta)

    def loss(self, num_parameters: Quantity, num_tokens: Quantity) -> Quantity:
        """Return the predicted loss in nats per token, of one run or of arrays of runs."""
        return self.E + self.A / num_parameters**self.alpha + self.B / num_tokens**self.beta

    def optimum(self, flop: int | float) -> Optimum:
        """Return the size and data with the least loss among all with 6 N D = `flop`."""
        require("flop", flop, above=0)
        pairs, both = flop / FLOP_PER_PAIR, self.alpha + self.beta
        G = (self.alpha * self.A / (self.beta * self.B)) ** (1 / both)
        num_parameters = G * pairs**self.size_exponent
        num_tokens = pairs / num_parameters
        return Optimum(num_parameters, num_tokens, self.loss(num_parameters, num_tokens))

    @classmethod
    def fit(
        cls,
        num_parameters: Numbers,
        num_tokens: Numbers,
        losses: Numbers,
        *,
        delta: int | float = HUBER_DELTA,
    ) -> "ParametricLaw":
        """Find the law that fits finished runs best: the least sum of Huber losses of logs.

        Args:
            num_parameters: N of every run.
            num_tokens: D of every run.
            losses: of every run, in nats per token, above 0.
            delta: where the Huber loss turns from squares to distances, in log loss.

        Raises:
            ValueError: if the runs cannot tell the five numbers apart, see `checked_runs`.
        """
        require("delta", delta, above=0)
        logs_3N = checked_runs(cls.__name__, 5, num_parameters, num_tokens, losses)
        (law,) = cls._fits(logs_3N[:, None], delta, starts=8)
        return law

    @classmethod
    def bootstrap(
        cls,
        num_parameters: Numbers,
        num_tokens: Numbers,
        losses: Numbers,
        *,
        num: int = 200,
        seed: int = 0,
        delta: int | float = HUBER_DELTA,
    ) -> list["ParametricLaw"]:
        """Fit the law to resampled runs: as many as there are, drawn with replacement.

        What the laws agree about, the runs tell; where they scatter, other runs would have given
        other numbers.  Arguments and errors are those of `fit`.

        Args:
            num_parameters: N of every run.
            num_tokens: D of every run.
            losses: of every run.
            num: how many laws.
            seed: of the draws.
            delta: of the Huber loss.

        Source:
            Efron 1979, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7.
        """
        require("num", num, least=1)
        require("delta", delta, above=0)
        logs_3N = checked_runs(cls.__name__, 5, num_parameters, num_tokens, losses)
        size = logs_3N.shape[1]
        generator = torch.Generator().manual_seed(seed)
        drawn_SN = torch.randint(size, (num, size), generator=generator)
        return cls._fits(logs_3N[:, drawn_SN], delta, starts=2)

    @classmethod
    def _fits(
        cls, logs_3SN: Float64[Tensor, "3 S N"], delta: int | float, *, starts: int
    ) -> list["ParametricLaw"]:
        """Fit a law to each row, from the best of the starts that least squares give."""
        # Around the middle of the data a term and its exponent hardly disturb each other.
        middle_x, middle_y = logs_3SN[:2].mean((1, 2)).tolist()
        x_SN, y_SN, z_SN = logs_3SN[0] - middle_x, logs_3SN[1] - middle_y, logs_3SN[2]

        def value_of(numbers_SP: Tensor, rows: Tensor) -> Tensor:
            e, a, b, *exponents = numbers_SP.T[..., None]
            alpha, beta = (MOST_EXPONENT * each.sigmoid() for each in exponents)
            terms = [e.expand_as(z_SN[rows]), a - alpha * x_SN[rows], b - beta * y_SN[rows]]
            return deviations(torch.stack(terms).logsumexp(0) - z_SN[rows], delta)

        rows = torch.arange(len(z_SN))
        tried = [_start(x_SN, y_SN, z_SN, al, be) for al in EXPONENTS for be in EXPONENTS]
        starts_TSP = torch.stack(tried)
        values_TS = torch.stack([value_of(each, rows) for each in starts_TSP])
        order_TS = values_TS.argsort(0)[:starts]
        every = rows.expand(len(order_TS), -1).flatten()
        ends_SP = lbfgs(
            lambda numbers_SP, some: value_of(numbers_SP, every[some]),
            starts_TSP[order_TS.flatten(), every],
        )
        best_S = value_of(ends_SP, every).view(len(order_TS), -1).argmin(0)
        e, a, b, *exponents = ends_SP.view(len(order_TS), len(rows), 5)[best_S, rows].T
        alpha, beta = (MOST_EXPONENT * each.sigmoid() for each in exponents)
        columns = [e.exp(), (a + alpha * middle_x).exp(), (b + beta * middle_y).exp(), alpha, beta]
        names = ("E", "A", "B", "alpha", "beta")
        return [
            cls(**dict(zip(names, row, strict=True))) for row in torch.stack(columns, -1).tolist()
        ]


def _start(x_SN: Tensor, y_SN: Tensor, z_SN: Tensor, alpha: float, beta: float) -> Tensor:
    """Return the numbers that are fitted, for given exponents: the loss is linear in E, A and B."""
    rates_SN3 = torch.stack(
        [torch.ones_like(x_SN), (-alpha * x_SN).exp(), (-beta * y_SN).exp()], -1
    )
    weights_SN1 = (-z_SN).exp()[..., None]  # divided by the loss: deviations of its logarithm
    ones_SN1 = torch.ones_like(weights_SN1)
    # A little of each term's square, so that resampled runs of few sizes have an answer, too.
    weighted_SN3 = rates_SN3 * weights_SN1
    square_S33 = weighted_SN3.mT @ weighted_SN3
    ridge_33 = 1e-9 * square_S33.diagonal(dim1=-2, dim2=-1).mean() * torch.eye(3, dtype=x_SN.dtype)
    found_S3 = torch.linalg.solve(square_S33 + ridge_33, weighted_SN3.mT @ ones_SN1)[..., 0]
    least_S1 = 0.01 * z_SN.exp().min(-1, keepdim=True).values
    shares = torch.tensor([alpha, beta], dtype=x_SN.dtype) / MOST_EXPONENT
    exponents = shares.logit().expand(len(x_SN), 2)
    return torch.cat([torch.maximum(found_S3, least_S1).log(), exponents], -1)


class Interval(NamedTuple):
    """Between which two values the middle share lies."""

    low: float
    high: float


def interval(values: Numbers, *, share: float = 0.9) -> Interval:
    """Return the percentiles between which the middle `share` of values lies."""
    require("share", share, above=0, below=1)
    low, high = np.quantile(
        np.asarray(values, dtype=np.float64), [(1 - share) / 2, (1 + share) / 2]
    )
    return Interval(float(low), float(high))


def intervals(laws: Sequence[ParametricLaw], *, share: float = 0.9) -> dict[str, Interval]:
    """Return the intervals of E, alpha, beta and the exponent a over the laws of a bootstrap."""
    columns = {name: [getattr(law, name) for law in laws] for name in ("E", "alpha", "beta")}
    columns["a"] = [law.size_exponent for law in laws]
    return {name: interval(column, share=share) for name, column in columns.items()}


CHINCHILLA_PRINTED = ParametricLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
"""As printed, rounded to two digits: Hoffmann et al. 2022, equation 10."""
CHINCHILLA_TEX = ParametricLaw(E=1.6934, A=406.4, B=410.7, alpha=0.3392, beta=0.2849)
"""The same fit with the digits that the TeX source of the paper has."""
CHINCHILLA_REPLICATED = ParametricLaw(E=1.8172, A=482.01, B=2085.43, alpha=0.3478, beta=0.3658)
"""Fitted again to the runs read off the paper's figure: Besiroglu et al. 2024, section 3,
https://arxiv.org/abs/2404.10102."""
