"""What several draws are worth, exactly: one right among k, and a vote of n.

Shape suffixes:  P prompts, A answers, Y points of the quadrature, J powers.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require


def pass_at(k: int, p_P: Float[Tensor, " P"]) -> float:
    """Return the chance that one of k draws is right, on average over prompts.

    Formula::

        mean of 1 - (1 - p)^k

    It is what a checker makes of k draws that it picks a right one from, too ("best of k").

    Args:
        k: draws, 1 or more.
        p_P: how likely a draw is right, for each prompt.
    """
    require("k", k, least=1)
    return -torch.expm1(k * torch.log1p(-p_P)).mean().item()


def vote(n: int, right: float, others_A: Float[Tensor, " A"]) -> float:
    """Return the chance that the right answer wins a vote of n draws.

    The answer that was drawn most often wins; among equals one is picked at random.  What is
    missing from 1 has no vote, such as answers without a number.

    Formula, with E(x, c) the sum of x^j / j! over j below c, and s what has no vote::

        n! * sum over c >= 1 of  right^c / c!  *  integral over y from 0 to 1 of
            [x^(n - c)]  e^(s x) * product over others p of  (E(p x, c) + y (p x)^c / c!)

    c is how often the right answer is drawn.  Equals are told apart by lots, one for each answer:
    y is the chance that another answer has the lower one.  A power series is cut at n, and the
    integral of a polynomial is exact by Gauss and Legendre: nothing is approximated.

    Args:
        n: draws, 1 or more.
        right: probability of the right answer.
        others_A: probabilities of each other answer; their sum and `right` are at most 1.
    """
    require("n", n, least=1)
    silent = max(0.0, 1 - right - others_A.sum().item())
    points, weights = np.polynomial.legendre.leggauss(n // 2 + 1)
    y_Y1 = torch.from_numpy((points + 1) / 2)[:, None]
    won = 0.0
    for c in range(1, n + 1):
        powers_J = torch.arange(n - c + 1, dtype=torch.float64)
        factorials_J = torch.lgamma(powers_J + 1).exp()
        if 2 * c > n:  # more than all others together
            rest = (1 - right) ** (n - c) / math.factorial(n - c)
        else:
            series_YJ = (silent**powers_J / factorials_J).expand(len(y_Y1), -1)
            apart_JJ = (powers_J - powers_J[:, None]).long()
            for p in others_A.double():
                terms_J = (p**powers_J / factorials_J).where(powers_J < c, 0.0)
                product_YJ = series_YJ @ terms_J[apart_JJ].where(apart_JJ >= 0, 0.0)
                tied = p**c / float(math.factorial(c))
                product_YJ[:, c:] += y_Y1 * tied * series_YJ[:, :-c]
                series_YJ = product_YJ
            rest = (torch.from_numpy(weights / 2) * series_YJ[:, -1]).sum().item()
        won += right**c / math.factorial(c) * rest
    return math.factorial(n) * won
