"""The older form of the law, which has no irreducible loss.

    L(N, D) = ((N_c / N)^(alpha_N / alpha_D) + D_c / D)^alpha_D        nats per token

Without end of data it is (N_c / N)^alpha_N, without end of size (D_c / D)^alpha_D: both go to 0.
N counts the parameters without the embedding.

Source: Kaplan et al. 2020, equation 1.5, https://arxiv.org/abs/2001.08361.
"""

from dataclasses import dataclass

import numpy as np
import torch
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

EXPONENTS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Values of alpha_N and of alpha_D from which a fit starts."""


@dataclass(frozen=True, kw_only=True)
class KaplanLaw:
    """Predicts the loss from the number of parameters and of tokens, down to a loss of 0."""

    N_c: int | float
    """Parameters at which, without end of data, the loss is 1 nat."""
    D_c: int | float
    """Tokens at which, without end of size, the loss is 1 nat."""
    alpha_N: int | float
    """How fast size helps, above 0: twice as large divides the loss by 2^alpha_N."""
    alpha_D: int | float
    """How fast data help, above 0."""

    def __post_init__(self) -> None:
        """Reject numbers of no law."""
        require_fields(self, "N_c", "D_c", "alpha_N", "alpha_D", above=0)

    def loss(self, num_parameters: Quantity, num_tokens: Quantity) -> Quantity:
        """Return the predicted loss in nats per token, of one run or of arrays of runs."""
        of_size = (self.N_c / num_parameters) ** (self.alpha_N / self.alpha_D)
        return (of_size + self.D_c / num_tokens) ** self.alpha_D

    @classmethod
    def fit(
        cls,
        num_parameters: Numbers,
        num_tokens: Numbers,
        losses: Numbers,
        *,
        delta: int | float = HUBER_DELTA,
    ) -> "KaplanLaw":
        """Find the law that fits finished runs best, as `ParametricLaw.fit` does.

        Raises:
            ValueError: if the runs cannot tell the four numbers apart, see `checked_runs`.
        """
        require("delta", delta, above=0)
        x_N, y_N, z_N = checked_runs(cls.__name__, 4, num_parameters, num_tokens, losses)
        middle_x, middle_y = x_N.mean(), y_N.mean()

        def value_of(numbers_SP: Tensor, _rows: Tensor) -> Tensor:
            # p is what size alone leaves in the middle of the data, q what data alone leave: logs.
            p, q, log_alpha_N, log_alpha_D = numbers_SP.T[..., None]
            alpha_D = log_alpha_D.exp()
            of_size_SN = (p - log_alpha_N.exp() * (x_N - middle_x)) / alpha_D
            of_data_SN = (q - alpha_D * (y_N - middle_y)) / alpha_D
            return deviations(alpha_D * torch.logaddexp(of_size_SN, of_data_SN) - z_N, delta)

        level = z_N.mean().item()
        starts = [
            [level - lower, level - 1.0 + lower, np.log(alpha_N), np.log(alpha_D)]
            for lower in (0.0, 0.5, 1.0)
            for alpha_N in EXPONENTS
            for alpha_D in EXPONENTS
        ]
        ends_SP = lbfgs(value_of, torch.tensor(starts, dtype=torch.float64))
        best_P = ends_SP[value_of(ends_SP, torch.arange(len(ends_SP))).argmin()]
        p, q, log_alpha_N, log_alpha_D = best_P
        alpha_N, alpha_D = log_alpha_N.exp(), log_alpha_D.exp()
        return cls(
            N_c=(p / alpha_N + middle_x).exp().item(),
            D_c=(q / alpha_D + middle_y).exp().item(),
            alpha_N=alpha_N.item(),
            alpha_D=alpha_D.item(),
        )


KAPLAN_PUBLISHED = KaplanLaw(N_c=8.8e13, D_c=5.4e13, alpha_N=0.076, alpha_D=0.095)
"""Kaplan et al. 2020, equations 1.1 and 1.2."""
