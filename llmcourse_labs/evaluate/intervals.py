"""How sure a share of right answers is, and whether two models differ.

A benchmark is a sample of the questions that could have been asked.  Asked others, the same model
has another score; an interval says how far the score may be from the one of all questions.

Shape suffixes:  N items, D draws of the bootstrap, K clusters.
"""

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from llmcourse.base.arguments import require, require_each

CONFIDENCE = 0.95
"""Share of the intervals that should hold the truth."""

DRAWS = 2_000
"""Samples of a bootstrap."""


class Interval(NamedTuple):
    """Where a number may be."""

    low: float
    """Its lower end."""
    high: float
    """Its upper end."""


def wilson(right: int, total: int, *, confidence: int | float = CONFIDENCE) -> Interval:
    """Return the interval of a share: all p that do not contradict the count.

    An interval holds the p whose own standard error would put the share seen within z of them::

        |right / total - p| <= z sqrt(p (1 - p) / total)

    and that is a quadratic in p, with the ends::

        (s + z^2 / 2n  -+  z sqrt(s (1 - s) / n + z^2 / 4n^2)) / (1 + z^2 / n),   s = right / n

    Unlike  s -+ z sqrt(s (1 - s) / n)  it stays between 0 and 1, and has a width where s is 0 or 1.

    Args:
        right: right answers.
        total: answers, 1 or more.
        confidence: between 0 and 1.

    Raises:
        ValueError: if a number is out of its range.

    Source: Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953; Brown, Cai and DasGupta
        2001, section 3.1.1, https://doi.org/10.1214/ss/1009213286
    """
    require("total", total, least=1)
    require("right", right, least=0, most=total)
    z2 = _z(confidence) ** 2
    share = right / total
    middle = share + z2 / (2 * total)
    spread = math.sqrt(z2 * (share * (1 - share) / total + z2 / (4 * total**2)))
    scale = 1 + z2 / total
    return Interval(max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale))


def bootstrap(
    values: Sequence[int | float],
    *,
    generator: torch.Generator,
    clusters: Sequence[Hashable] | None = None,
    draws: int = DRAWS,
    confidence: int | float = CONFIDENCE,
) -> Interval:
    """Return an interval of a mean: between quantiles of the means of samples of the values.

    A sample has as many values as there are, drawn with replacement.  Items that belong together
    (questions on one story, wordings of one question) are right or wrong together and tell less
    than as many others; with `clusters`, whole clusters are drawn::

        mean of a sample = sum of the values of its clusters / number of these values

    Args:
        values: one of each item, such as 1.0 where it is right; at least 2.
        generator: of the draws.
        clusters: the name of each value's cluster, at least two different ones; None: each value
            is alone.
        draws: how many samples.
        confidence: between 0 and 1.

    Raises:
        ValueError: if there are too few values or clusters, or their numbers differ.

    Source: Efron 1979, https://doi.org/10.1214/aos/1176344552; Field and Welsh 2007 (clusters),
        https://doi.org/10.1111/j.1467-9868.2007.00593.x
    """
    require_each({"draws": draws}, least=1)
    require("confidence", confidence, above=0, below=1)
    sums_K, sizes_K = _by_cluster(values, clusters)
    number = len(sums_K)
    # Drawing `number` clusters with replacement: how often each one comes.
    drawn_DK = torch.randint(number, (draws, number), generator=generator)
    means_D = sums_K[drawn_DK].sum(1) / sizes_K[drawn_DK].sum(1)
    return _between(means_D, confidence)


class Pair(NamedTuple):
    """Two models on the same items."""

    both: int
    """Items that both have right."""
    first_only: int
    """Items that only the first has right."""
    second_only: int
    """Items that only the second has right."""
    neither: int
    """Items that neither has right."""

    @property
    def difference(self) -> float:
        """Share of right answers of the first, less that of the second."""
        return (self.first_only - self.second_only) / sum(self)

    @property
    def disagree(self) -> float:
        """Share of the items that one of the two has right and the other has not."""
        return (self.first_only + self.second_only) / sum(self)


def paired(first: Sequence[int | float], second: Sequence[int | float]) -> Pair:
    """Count how two models did on the same items.

    Raises:
        ValueError: if there is no item, or their numbers differ.
    """
    if not first or len(first) != len(second):
        raise ValueError(
            f"give both models' answers to the same items, got {len(first)} and {len(second)}"
        )
    seen = [(bool(a), bool(b)) for a, b in zip(first, second, strict=True)]
    cells = ((True, True), (True, False), (False, True), (False, False))
    return Pair(*map(seen.count, cells))


def mcnemar(pair: Pair) -> float:
    """Return the p-value of "both models are equally good", exactly.

    Items on which both are right, or both are wrong, say nothing about which is better.  Of the n
    others, equal models would win each with a half; p is the chance of a split at least as uneven::

        p = min(1, 2 sum over k <= min(b, c) of (n choose k) / 2^n),   n = b + c

    Source: McNemar 1947, https://doi.org/10.1007/BF02295996; the sign test in its exact form.
    """
    fewer, number = min(pair.first_only, pair.second_only), pair.first_only + pair.second_only
    tail = sum(math.comb(number, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**number)


def paired_bootstrap(
    first: Sequence[int | float],
    second: Sequence[int | float],
    *,
    generator: torch.Generator,
    clusters: Sequence[Hashable] | None = None,
    draws: int = DRAWS,
    confidence: int | float = CONFIDENCE,
) -> Interval:
    """Return an interval of the first model's mean less the second's, over the same items.

    `bootstrap` of the items' differences: what makes an item hard for both drops out.

    Raises:
        ValueError: as `bootstrap`, or if the numbers of values differ.
    """
    if len(first) != len(second):
        raise ValueError(
            f"give both models' values of the same items, got {len(first)} and {len(second)}"
        )
    differences = [float(a) - float(b) for a, b in zip(first, second, strict=True)]
    return bootstrap(
        differences, generator=generator, clusters=clusters, draws=draws, confidence=confidence
    )


def items_to_tell(
    difference: int | float,
    disagree: int | float,
    *,
    power: int | float = 0.8,
    confidence: int | float = CONFIDENCE,
) -> int:
    """Return how many items tell two models apart.

    An item's difference is 1, 0 or -1, with the mean delta and the variance d - delta^2 (d if the
    models are equal).  The number n such that a test on n items says "they differ" with the
    probability `power`::

        n = ((z sqrt(d) + z_power sqrt(d - delta^2)) / delta)^2

    For two models that answer independently, such as on different items of one kind, d is
    p (1 - q) + q (1 - p).  Models that fail on the same items have a smaller d, and need fewer.

    Args:
        difference: of the shares of right answers, not 0.
        disagree: d, the share of items that only one of the models has right; at least the
            difference.
        power: between 1/2 and 1.
        confidence: between 0 and 1.

    Raises:
        ValueError: if a number is out of its range.

    Source: Connor 1987, Biometrics 43, p. 207, https://doi.org/10.2307/2531961
    """
    delta = abs(difference)
    require("the difference, without its sign,", delta, above=0, most=1)
    require("disagree", disagree, least=delta, most=1)
    require("power", power, least=0.5, below=1)
    z_power = NormalDist().inv_cdf(power)
    root = _z(confidence) * math.sqrt(disagree) + z_power * math.sqrt(disagree - delta**2)
    return math.ceil((root / delta) ** 2 - 1e-9)


# --- parts


def _z(confidence: int | float) -> float:
    """Return how many standard errors a two-sided interval reaches to each side."""
    require("confidence", confidence, above=0, below=1)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _by_cluster(
    values: Sequence[int | float], clusters: Sequence[Hashable] | None
) -> tuple[Float64[Tensor, " K"], Float64[Tensor, " K"]]:
    """Return the sum of the values of each cluster, and how many they are."""
    values_N = torch.tensor([float(x) for x in values], dtype=torch.float64)
    if not values_N.isfinite().all():
        raise ValueError("values must be finite: leave out the items that have none")
    if clusters is None:
        sums_K, sizes_K = values_N, torch.ones_like(values_N)
    elif len(clusters) != len(values):
        raise ValueError(f"give a cluster for each of {len(values)} values, got {len(clusters)}")
    else:
        place = {name: k for k, name in enumerate(dict.fromkeys(clusters))}
        of_N = torch.tensor([place[name] for name in clusters], dtype=torch.int64)
        empty_K = torch.zeros(len(place), dtype=torch.float64)
        sums_K = empty_K.index_add(0, of_N, values_N)
        sizes_K = empty_K.index_add(0, of_N, torch.ones_like(values_N))
    if len(sums_K) < 2:
        raise ValueError(
            f"a bootstrap needs 2 or more {'values' if clusters is None else 'clusters'}, got "
            f"{len(sums_K)}: one alone says nothing of its spread"
        )
    return sums_K, sizes_K


def _between(means_D: Float64[Tensor, " D"], confidence: int | float) -> Interval:
    """Return the quantiles that leave out the same share on both sides."""
    ends = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    return Interval(*torch.quantile(means_D, ends).tolist())
