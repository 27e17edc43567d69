"""evaluate.intervals: closed forms by hand, enumeration, and coverage by simulation."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.evaluate import (
    Interval,
    Pair,
    bootstrap,
    items_to_tell,
    mcnemar,
    paired,
    paired_bootstrap,
    wilson,
)
from llmcourse_labs.evaluate import intervals as own

Z = 1.959963984540054


def test_wilson_by_hand():
    """0 of n: from 0 to z^2 / (n + z^2); half of n: a half -+ z / (2 sqrt(n + z^2))."""
    low, high = wilson(0, 10)
    assert low == 0
    assert high == pytest.approx(Z**2 / (10 + Z**2), rel=1e-12)
    low, high = wilson(50, 100)
    assert high - 0.5 == pytest.approx(Z / (2 * math.sqrt(100 + Z**2)), rel=1e-12)
    assert low + high == pytest.approx(1)


@given(total=st.integers(1, 3_000), share=st.floats(0, 1), confidence=st.floats(0.5, 0.999))
def test_the_ends_of_wilson_are_z_of_their_own_errors_away(total, share, confidence):
    """The definition, not the solved form: |s - p| = z sqrt(p (1 - p) / n) at both ends."""
    right = round(share * total)
    z = math.sqrt(2) * float(torch.erfinv(torch.tensor(confidence, dtype=torch.float64)))
    for end in wilson(right, total, confidence=confidence):
        away = abs(right / total - end)
        assert away == pytest.approx(z * math.sqrt(max(0, end * (1 - end) / total)), abs=1e-7)


def coverage(draw, truth, *, times=1_500, **how):
    generator = torch.Generator().manual_seed(0)
    held = 0
    for _ in range(times):
        values, clusters = draw(generator)
        given = {"clusters": clusters} if clusters is not None else {}
        low, high = bootstrap(values, generator=generator, draws=400, **given, **how)
        held += low <= truth <= high
    return held / times


def normal(generator):
    return torch.randn(150, generator=generator).tolist(), None


def in_clusters(generator):
    """80 stories of 4 items; an item is right as often as its story is easy."""
    easy = torch.rand(80, 1, generator=generator).square()
    right = torch.rand(80, 4, generator=generator) < easy
    return right.flatten().double().tolist(), [n // 4 for n in range(320)]


def test_the_bootstrap_covers_and_items_in_clusters_need_clusters():
    assert coverage(normal, 0.0) == pytest.approx(0.95, abs=0.012)
    assert coverage(normal, 0.0, confidence=0.8) == pytest.approx(0.8, abs=0.03)
    # The mutant that forgets them says 95 % and means 80 %.
    assert coverage(in_clusters, 1 / 3) == pytest.approx(0.95, abs=0.012)
    assert coverage(lambda g: (in_clusters(g)[0], None), 1 / 3) < 0.88


def test_the_bootstrap_is_that_of_all_samples_and_clusters_count_their_items(generator):
    """Three values: 27 samples, whose quantiles can be counted."""
    values = [0.0, 1.0, 5.0]
    means = sorted(sum(s) / 3 for s in itertools.product(values, repeat=3))
    low, high = bootstrap(values, generator=generator, draws=200_000, confidence=0.8)
    assert low == pytest.approx(means[2], abs=1e-9)  # 10 % of 27 samples are 2.7
    assert high == pytest.approx(means[24], abs=1e-9)
    # Samples of the clusters (0) and (1, 1, 1): means 0, 3/4 and 1, a mean of clusters has 1/2.
    low, high = bootstrap([0, 1, 1, 1], generator=generator, clusters=["a", "b", "b", "b"])
    assert (low, high) == (0, 1)
    middle = bootstrap([0, 1, 1, 1], generator=generator, clusters=list("abbb"), confidence=0.01)
    assert middle == Interval(0.75, 0.75)


def by_enumeration(fewer, more):
    """The share of all splits of the items that differ which are as uneven or more."""
    number = fewer + more
    splits = [sum(s) for s in itertools.product((0, 1), repeat=number)]
    return sum(abs(2 * k - number) >= more - fewer for k in splits) / len(splits)


def test_mcnemar_is_what_counting_gives_and_tells_equal_models_apart_as_often_as_promised():
    for b, c in itertools.product(range(7), repeat=2):
        right = by_enumeration(min(b, c), max(b, c))
        assert mcnemar(Pair(5 + 9 * b, b, c, 2 + c)) == pytest.approx(right, rel=1e-12)
    # Exact: under equality p <= 0.05 comes with a chance of at most 5 %.
    for number in range(1, 60):
        chances = [math.comb(number, k) / 2**number for k in range(number + 1)]
        small = [mcnemar(Pair(0, k, number - k, 0)) <= 0.05 for k in range(number + 1)]
        assert sum(itertools.compress(chances, small)) <= 0.05
    pair = paired([1, 1, 0, 0, 1, 1], [1, 0, 1, 0, 0, 1])
    assert pair == Pair(2, 2, 1, 1)
    assert pair.difference == pytest.approx(1 / 6)
    assert pair.disagree == pytest.approx(3 / 6)


def test_a_paired_interval_is_narrower_where_models_fail_on_the_same_items(generator):
    hard = torch.rand(400, generator=generator)
    first, second = (hard < 0.62).tolist(), (hard < 0.58).tolist()
    low, high = paired_bootstrap(first, second, generator=generator)
    assert 0 < low < high < 0.08
    shuffled = [second[k] for k in torch.randperm(400, generator=generator).tolist()]
    wide = paired_bootstrap(first, shuffled, generator=generator)
    assert wide.high - wide.low > 3 * (high - low)


@pytest.mark.parametrize(("p", "q", "same"), [(0.7, 0.6, 0.0), (0.55, 0.5, 0.7), (0.9, 0.8, 0.5)])
def test_so_many_items_tell_two_models_apart_in_four_of_five_tests(p, q, same, generator):
    """Simulated: a share `same` of items is answered alike, the rest independently."""
    times = 20_000
    disagree = (1 - same) * (p * (1 - q) + q * (1 - p)) + same * (p - q)
    number = items_to_tell(p - q, disagree)
    b = (disagree + p - q) / 2
    wins = losses = torch.zeros(times)
    for first in range(0, number, 500):  # in parts, to spare memory
        part = torch.rand(times, min(500, number - first), generator=generator)
        wins = wins + (part < b).sum(1)
        losses = losses + (part > 1 - disagree + b).sum(1)
    score = (wins - losses) / (wins + losses).double().sqrt()
    document_inputs = (score.abs() > Z).double().mean().item()
    assert document_inputs == pytest.approx(0.8, abs=0.04)  # counts are whole


def test_items_by_hand():
    """Independent, 0.5 and 0.4: d = 0.5, and n = (1.96 sqrt 0.5 + 0.84 sqrt 0.49)^2 / 0.01."""
    root = Z * math.sqrt(0.5) + 0.8416212335729143 * 0.7
    assert items_to_tell(0.1, 0.5) == math.ceil(root**2 / 0.01) == 391
    assert items_to_tell(-0.1, 0.5) == 391
    assert items_to_tell(0.1, 0.1) < 80 < items_to_tell(0.05, 0.1)


def test_the_tests_see_typical_mistakes(monkeypatch):
    """One-sided z, a one-sided p, and quantiles that leave out twice as much."""
    with monkeypatch.context() as patch:
        patch.setattr(own, "_z", lambda c: 1.6448536269514722)
        assert wilson(0, 10).high != pytest.approx(Z**2 / (10 + Z**2), rel=1e-2)
    pair = Pair(0, 8, 2, 0)
    one_sided = sum(math.comb(10, k) for k in range(3)) / 2**10
    assert mcnemar(pair) == pytest.approx(2 * one_sided)
    true = own._between
    monkeypatch.setattr(own, "_between", lambda means, c: true(means, 2 * c - 1))
    assert coverage(normal, 0.0, times=400) < 0.93
