"""What a larger batch buys: fewer steps at first, then only more data.

A step along the gradient of a batch of B sequences lowers the loss by as much as 1 / (1 + N / B)
steps along the true gradient would, at the best rate of each, where N is the noise scale.  So a
run to some loss takes

    steps      S = S_min (1 + N / B)
    sequences  E = B S = E_min (1 + B / N),  E_min = N S_min

At B = N both are twice the least there can be.  The law holds for one noise scale, and that grows
while the loss falls: a whole run gives a mean over its way, the critical batch.

Source: McCandlish et al. 2018, equations 2.7 and 2.11, https://arxiv.org/abs/1812.06162
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from llmcourse.base.arguments import require


class BatchLaw(NamedTuple):
    """Steps and sequences to one loss, as functions of the batch."""

    least_steps: int | float
    """S_min: what a batch without noise would take."""
    critical_batch: int | float
    """N: the batch at which steps and sequences are both twice their least."""

    @property
    def least_sequences(self) -> int | float:
        """Return E_min, which the smallest batches come near to."""
        return self.least_steps * self.critical_batch

    def steps(self, batch: int | float) -> int | float:
        """Return S = S_min (1 + N / B).

        Raises:
            ValueError: if the batch is not positive.
        """
        require("batch", batch, above=0)
        return self.least_steps * (1 + self.critical_batch / batch)

    def sequences(self, batch: int | float) -> int | float:
        """Return E = E_min (1 + B / N), which is B S.

        Raises:
            ValueError: if the batch is not positive.
        """
        require("batch", batch, above=0)
        return self.least_sequences * (1 + batch / self.critical_batch)


def fit_batch_law(batches: Sequence[int | float], steps: Sequence[int | float]) -> BatchLaw:
    """Fit the law to measured runs, by least squares of the relative errors.

    With x = 1 / B the law is the straight line S = S_min + E_min x.  Its two numbers minimise::

        sum_i ((S_min + E_min / B_i) / S_i - 1)^2

    Args:
        batches: of the runs, two different ones at least.
        steps: that each run took to the same loss.

    Raises:
        ValueError: if there are too few runs, a number is not positive, or the line has no place
            for a law: steps that do not fall with the batch, or that fall faster than it grows.
    """
    if len(batches) != len(steps):
        raise ValueError(f"{len(batches)} batches and {len(steps)} numbers of steps: give as many")
    for name, values in (("batch", batches), ("steps", steps)):
        for value in values:
            require(name, value, above=0)
    if len(set(batches)) < 2:
        raise ValueError(f"a line needs two different batches, not {sorted(set(batches))}")
    B, S = np.asarray(batches, dtype=float), np.asarray(steps, dtype=float)
    (least_steps, least_sequences), *_ = np.linalg.lstsq(
        np.stack([1 / S, 1 / (B * S)], axis=1), np.ones(len(S)), rcond=None
    )
    if not (least_steps > 0 and least_sequences > 0):
        raise ValueError(
            f"the runs give S_min = {least_steps:.4g} and E_min = {least_sequences:.4g}, and both "
            "must be above 0: steps have to fall with the batch, and not faster than it grows"
        )
    return BatchLaw(float(least_steps), float(least_sequences / least_steps))
