"""The loss on each source as a function of the mixture: fitted on small runs, then minimised.

Runs on M sources in shares r_1 to r_M, all of one size, end with a loss on source i of about

    loss_i(r) = c_i + k_i exp(sum_j t_ij r_j)

c_i is what no mixture takes away, t_ij what source j does for source i: below that of another j,
it helps more.

The shares add to 1, so that a constant added to all t_ij of a row multiplies its k_i, and changes
nothing.  Here every t_ii is 0.  Then k_i is what source i alone leaves above c_i, and exp(t_ij)
says how many times that is what source j alone leaves.  With this every source has M + 1 numbers to
be found: c_i, k_i, and t_ij for the other sources.

Source: Ye et al. 2024, "Data mixing laws: optimizing data mixtures by predicting language modeling
performance", section 3, https://arxiv.org/abs/2403.16952.

Shape suffixes:  N runs, M sources.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from llmcourse.base.arguments import require

HUBER_NATS = 0.03
"""A fit counts greater deviations by their size, not by its square."""
SURE = 1e-9
"""By what part of itself the sum that `best` finds may be too large, before shares are rounded."""
MOST_SHIFTS = 10_000
THOUSANDTHS = 1_000


@dataclass(frozen=True, kw_only=True, eq=False)
class MixingLaw:
    """Predicts the loss on each source from the shares of all in the mixture."""

    sources: tuple[str, ...]
    """Names of the M sources, in the order of all arrays."""
    c: Float64[np.ndarray, " M"]
    """What no mixture takes away, in nats, 0 or greater."""
    k: Float64[np.ndarray, " M"]
    """What each source, read alone, leaves of its own loss above c, in nats, above 0."""
    t: Float64[np.ndarray, "M M"]
    """Row i, column j: what source j does for the loss on source i, next to source i itself."""

    @classmethod
    def fit(
        cls,
        sources: Sequence[str],
        shares: Sequence[Sequence[float]] | np.ndarray,
        losses: Sequence[Sequence[float]] | np.ndarray,
    ) -> "MixingLaw":
        """Find the law that fits finished runs best: the least sum of Huber losses.

        Args:
            sources: names of the M sources, two or more.
            shares: one row for every run: the share of each source, from 0 to 1.
            losses: one row for every run: the loss on each source, in nats.

        Raises:
            ValueError: if there are fewer than M + 1 different mixtures, or they do not tell the
                sources apart; if a row's shares do not add to 1, or a loss is not finite
                or not above 0.
        """
        size = len(sources)
        if size < 2 or len(set(sources)) < size:
            raise ValueError(f"a mixture has two or more sources of different names, got {sources}")
        shares_NM, losses_NM = _table("shares", shares, size), _table("losses", losses, size)
        if len(shares_NM) != len(losses_NM):
            raise ValueError(
                f"there are shares of {len(shares_NM)} runs and losses of {len(losses_NM)}: "
                "give one row of each for every run"
            )
        if losses_NM.min() <= 0:
            raise ValueError(f"a loss is {losses_NM.min()}: the law is about losses above 0")
        for row in shares_NM:
            _check_shares(row)
        # Enough runs, and different enough: M + 1 numbers of each source are to be found.
        distinct = len(np.unique(shares_NM, axis=0))
        if distinct <= size:
            raise ValueError(
                f"{distinct} different mixtures cannot tell the {size + 1} numbers of each source: "
                f"make runs with {size + 1} mixtures or more"
            )
        if np.linalg.matrix_rank(shares_NM) < size:
            raise ValueError(
                "the mixtures do not tell the sources apart, some shares follow from others: add "
                "mixtures that change each share by itself"
            )
        # Source by source: the law of one shares no number with that of another.
        found = [_fit_one(shares_NM, losses_M) for losses_M in losses_NM.T]
        exponents_MM = np.array([exponents for _, exponents in found])
        # As the shares add to 1, a_ii can move out of row i's exponents into k_i: t_ii is 0.
        own_M = exponents_MM.diagonal()
        return cls(
            sources=tuple(sources),
            c=np.array([floor for floor, _ in found]),
            k=np.exp(own_M),
            t=exponents_MM - own_M[:, None],
        )

    def loss(self, shares: Mapping[str, int | float]) -> dict[str, float]:
        """Return the predicted loss on each source, in nats.

        Args:
            shares: of each source in the mixture; who is not named has none.

        Raises:
            ValueError: if a name is none of the sources, or the shares do not add to 1.
        """
        shares_M = self._in_order("share", shares)
        _check_shares(shares_M)
        losses_M = self.c + self.k * np.exp(self.t @ shares_M)
        return dict(zip(self.sources, losses_M.tolist(), strict=True))

    def best(self, weights: Mapping[str, int | float]) -> dict[str, float]:
        """Return the shares for which the weighted sum of the losses is smallest.

        The sum is convex in the shares, being made of exponentials of linear functions.  So there
        is one bottom, and a simple way down: shift share from the source that helps least to the
        one that helps most, as far as that helps, and again.  By convexity the sum is above its
        smallest value by no more than

            sum_j r_j g_j - min_j g_j,        g the gradient of the sum at r

        and the shifts end when that is below `SURE` times what the sum has above its c.

        Args:
            weights: how much the loss on each source counts, 0 or more; who is not named, nothing.

        Returns:
            The share of every source, rounded to whole thousandths, as `data.MixedBatches` takes
            them when those of 0 are left out.

        Raises:
            ValueError: if a name is none of the sources, or no weight is above 0.
            ArithmeticError: if 10,000 shifts do not end at the bottom, as when t is in hundreds.

        Source:
            Lacoste-Julien and Jaggi 2015, "On the global linear convergence of Frank-Wolfe
            optimization variants", pairwise steps and their gap, https://arxiv.org/abs/1511.05932.
        """
        weights_M = self._in_order("weight", weights)
        require("the sum of the weights", weights_M.sum(), above=0)
        shares_M = self._minimum(weights_M / weights_M.sum())
        return dict(zip(self.sources, _rounded(shares_M).tolist(), strict=True))

    def _minimum(self, weights_M: np.ndarray) -> np.ndarray:
        """Return where the sum of the losses, with weights that add to 1, is smallest."""

        def parts(shares_M: np.ndarray) -> np.ndarray:
            return weights_M * self.k * np.exp(self.t @ shares_M)

        shares_M = np.full(len(self.sources), 1 / len(self.sources))
        for _ in range(MOST_SHIFTS):
            parts_M = parts(shares_M)
            slope_M = parts_M @ self.t
            if shares_M @ slope_M - slope_M.min() <= SURE * parts_M.sum():
                return shares_M
            into, out = slope_M.argmin(), np.where(shares_M > 0, slope_M, -np.inf).argmax()
            along_M = self.t[:, into] - self.t[:, out]
            shift_M = np.zeros_like(shares_M)
            shift_M[into], shift_M[out] = 1, -1
            low, high = 0.0, shares_M[out]
            if parts(shares_M + high * shift_M) @ along_M > 0:
                # The slope grows along the way; where it is 0, the shift has done all it can.
                for _ in range(60):
                    middle = (low + high) / 2
                    rises = parts(shares_M + middle * shift_M) @ along_M > 0
                    low, high = (low, middle) if rises else (middle, high)
            shares_M = shares_M + high * shift_M
        raise ArithmeticError(
            f"no best mixture after {MOST_SHIFTS} shifts: t reaches from {self.t.min():.3g} to "
            f"{self.t.max():.3g}; fit the law to mixtures that are less far apart"
        )

    def _in_order(self, what: str, given: Mapping[str, int | float]) -> np.ndarray:
        """Return the numbers of all sources, in their order."""
        if strange := sorted(set(given) - set(self.sources)):
            known = ", ".join(self.sources)
            raise ValueError(f"there is no source {strange[0]!r}: there are {known}")
        for name, value in given.items():
            require(f"the {what} of {name}", value, least=0)
        return np.array([given.get(name, 0.0) for name in self.sources], dtype=np.float64)


def _table(what: str, rows: Any, size: int) -> np.ndarray:
    """Return rows of numbers as an array, after a look at them."""
    table_NM = np.asarray(rows, dtype=np.float64)
    if table_NM.ndim != 2 or table_NM.shape[1] != size:
        raise ValueError(
            f"the {what} have the shape {table_NM.shape}: give one row for every run, with a "
            f"number for each of the {size} sources"
        )
    if not np.isfinite(table_NM).all():
        run = int(np.argwhere(~np.isfinite(table_NM))[0, 0])
        raise ValueError(f"the {what} of run {run} are {table_NM[run]}: leave out failed runs")
    return table_NM


def _check_shares(shares_M: np.ndarray) -> None:
    """Raise if these are no shares of a whole."""
    if shares_M.min() < 0 or abs(shares_M.sum() - 1) > 1e-6:
        raise ValueError(
            f"the shares {shares_M.tolist()} add to {shares_M.sum():.6g}: give shares of 0 or more "
            "that add to 1"
        )


def _fit_one(shares_NM: np.ndarray, losses_N: np.ndarray) -> tuple[float, np.ndarray]:
    """Return c and the exponents a of one source's law,  loss = c + exp(sum_j a_j r_j).

    For a given c the logarithm of  loss - c  is linear in the shares.  Least squares for several c
    give the starts, from which all numbers go on together; the best end is taken.
    """
    shares, losses = torch.from_numpy(shares_NM), torch.from_numpy(losses_N)

    def deviation(numbers: torch.Tensor) -> torch.Tensor:
        # c is a square, hence never negative.
        predicted = numbers[0] ** 2 + (shares @ numbers[1:]).exp()
        return torch.nn.functional.huber_loss(predicted, losses, delta=HUBER_NATS)

    ends = []
    for part in (0.0, 0.3, 0.6, 0.9, 0.99):
        floor = part * losses_N.min()
        line_M = np.linalg.lstsq(shares_NM, np.log(losses_N - floor), rcond=None)[0]
        ends.append(_descend(deviation, np.array([floor**0.5, *line_M])))
    best = min(ends, key=lambda numbers: deviation(torch.from_numpy(numbers)).item())
    return float(best[0] ** 2), best[1:]


def _descend(value_of: Callable[[torch.Tensor], torch.Tensor], start: np.ndarray) -> np.ndarray:
    """Return where L-BFGS ends on the way down from a start."""
    numbers = torch.from_numpy(start).requires_grad_()
    lbfgs = torch.optim.LBFGS(
        [numbers],
        max_iter=400,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        value = value_of(numbers)
        value.backward()
        return value

    lbfgs.step(closure)
    return numbers.detach().numpy()


def _rounded(shares_M: np.ndarray) -> np.ndarray:
    """Return shares in whole thousandths that add to 1: those cut most are rounded up."""
    whole_M = np.floor(shares_M * THOUSANDTHS)
    missing = THOUSANDTHS - int(whole_M.sum())
    whole_M[np.argsort(whole_M - shares_M * THOUSANDTHS, kind="stable")[:missing]] += 1
    return whole_M / THOUSANDTHS
