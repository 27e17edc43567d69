"""scale.laws.mixing: a known law is found again, and its best mixture is that of a whole grid."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.data.mixture import per_mille
from llmcourse_labs.scale.laws import MixingLaw

SOURCES = ("stories", "code", "prose")
KNOWN = MixingLaw(
    sources=SOURCES,
    c=np.array([0.6, 1.1, 2.0]),
    k=np.array([0.5, 0.9, 1.4]),
    t=np.array([[0.0, 1.6, 0.8], [1.1, 0.0, 0.7], [0.9, 0.6, 0.0]]),
)
GRID = np.array([(a, b, 10 - a - b) for a in range(11) for b in range(11 - a)]) / 10


def losses_of(law, shares):
    return law.c + law.k * np.exp(shares @ law.t.T)


def simplex(size, steps):
    parts = itertools.product(range(steps + 1), repeat=size - 1)
    return np.array([[*p, steps - sum(p)] for p in parts if sum(p) <= steps]) / steps


def test_a_known_law_is_found_again_from_as_many_mixtures_as_numbers():
    runs = GRID[::4]
    law = MixingLaw.fit(SOURCES, runs, losses_of(KNOWN, runs))
    np.testing.assert_allclose(losses_of(law, GRID), losses_of(KNOWN, GRID), atol=1e-4)
    np.testing.assert_allclose(law.c, KNOWN.c, atol=1e-3)
    np.testing.assert_allclose(law.k, KNOWN.k, atol=1e-3)
    np.testing.assert_allclose(law.t, KNOWN.t, atol=5e-3)
    runs = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.4, 0.3, 0.3]])
    law = MixingLaw.fit(SOURCES, runs, losses_of(KNOWN, runs))
    np.testing.assert_allclose(losses_of(law, GRID), losses_of(KNOWN, GRID), atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_noise_moves_the_predictions_by_less_than_itself(seed):
    noise = 0.02 * np.random.default_rng(seed).standard_normal(GRID.shape)
    law = MixingLaw.fit(SOURCES, GRID, losses_of(KNOWN, GRID) + noise)
    off = losses_of(law, GRID) - losses_of(KNOWN, GRID)
    # Of N runs with M + 1 numbers each, least squares keeps (M + 1) / N of the noise's variance.
    assert np.sqrt((off**2).mean()) < 2 * 0.02 * np.sqrt(4 / len(GRID))


def test_one_run_gone_wrong_moves_the_law_little_and_the_loss_is_that_of_the_formula():
    losses = losses_of(KNOWN, GRID)
    losses[30, 1] += 2.0
    law = MixingLaw.fit(SOURCES, GRID, losses)
    assert np.abs(losses_of(law, GRID) - losses_of(KNOWN, GRID)).max() < 0.01
    free = MixingLaw(sources=SOURCES, c=np.zeros(3), k=KNOWN.k, t=KNOWN.t)
    law = MixingLaw.fit(SOURCES, GRID, losses_of(free, GRID))
    assert (law.c >= 0).all()
    np.testing.assert_allclose(losses_of(law, GRID), losses_of(free, GRID), atol=1e-4)
    law = MixingLaw.fit(SOURCES, GRID, losses_of(KNOWN, GRID))
    assert (law.t.diagonal() == 0).all()
    for i, name in enumerate(SOURCES):
        assert law.loss({name: 1.0})[name] == pytest.approx(law.c[i] + law.k[i])
    for shares in GRID:
        found = KNOWN.loss(dict(zip(reversed(SOURCES), reversed(shares.tolist()), strict=True)))
        assert list(found) == list(SOURCES)
        np.testing.assert_allclose(list(found.values()), losses_of(KNOWN, [shares])[0])
    assert KNOWN.loss({"code": 1.0}) == KNOWN.loss({"code": 1.0, "prose": 0.0, "stories": 0.0})


def drawn(seed, size):
    numbers = np.random.default_rng(seed)
    t = numbers.uniform(-1, 3, (size, size))
    np.fill_diagonal(t, 0)
    c, k = numbers.uniform(0.05, 3, (2, size))
    return MixingLaw(sources=tuple("abcdef"[:size]), c=c, k=k, t=t)


@given(
    seed=st.integers(0, 2**32 - 1),
    weights=st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any),
)
def test_no_mixture_of_a_grid_is_better_than_the_best(seed, weights):
    law = drawn(seed, size=len(weights))
    found = law.best(dict(zip(law.sources, weights, strict=True)))
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    per_mille({name: share for name, share in found.items() if share})
    weights = np.array(weights)
    (of_found,) = losses_of(law, [list(found.values())]) @ weights
    grid = simplex(len(weights), {2: 1000, 3: 50, 4: 20, 5: 12}[len(weights)])
    # At the bottom the shares that are above 0 have one slope, and rounding moves them by less than
    # a thousandth: what it costs is half the curvature times the square of that.
    reach = 0.001 * np.abs(law.t).sum(1)
    rounding = (weights * law.k * np.exp(law.t.max(1) + reach) * reach**2 / 2).sum()
    assert of_found <= (losses_of(law, grid) @ weights).min() + rounding


def test_who_wants_one_source_alone_reads_what_helps_it_most():
    assert KNOWN.best({"code": 2.0}) == {"stories": 0.0, "code": 1.0, "prose": 0.0}
    helped = MixingLaw(
        sources=("a", "b"), c=np.ones(2), k=np.ones(2), t=np.array([[0.0, -0.5], [0.7, 0.0]])
    )
    assert helped.best({"a": 1.0}) == {"a": 0.0, "b": 1.0}


def fitted(**changes):
    right = {"sources": SOURCES, "shares": GRID, "losses": losses_of(KNOWN, GRID)}
    return MixingLaw.fit(**right | changes)


ONES, THREE = np.ones((66, 3)), np.tile(GRID[:3], (9, 1))


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: fitted(sources=["a"], shares=ONES[:, :1], losses=ONES[:, :1]), "two or more sour"),
        (lambda: fitted(sources=["a", "b", "b"]), "two or more sources of different names"),
        (lambda: fitted(shares=GRID[:3], losses=ONES[:3]), "3 different mixtures .* the 4 numbers"),
        (lambda: fitted(shares=THREE, losses=ONES[:27]), "3 different mixtures"),
        (lambda: fitted(shares=GRID * 1.01), "add to 1.01: give shares of 0 or more that add to 1"),
        (lambda: fitted(shares=GRID[:, ::-1] * 2 - 1 / 3), "give shares of 0 or more"),
        (lambda: fitted(losses=np.where(GRID == 1, np.nan, 1.0)), "run 0 are .*: leave out failed"),
        (lambda: fitted(losses=GRID), "loss is 0.0: the law is about losses above 0"),
        (lambda: fitted(losses=ONES[:65]), "shares of 66 runs and losses of 65"),
        (lambda: fitted(losses=ONES[:, :2]), r"losses have the shape \(66, 2\)"),
        (lambda: fitted(shares=GRID[:11], losses=ONES[:11]), "do not tell the sources apart"),
        (lambda: KNOWN.loss({"code": 0.5, "music": 0.5}), "no source 'music': there are stories"),
        (lambda: KNOWN.loss({"code": 0.5, "prose": 0.4}), r"add to 0\.9:"),
        (lambda: KNOWN.best({"code": -1.0, "prose": 2.0}), "weight of code must be 0 or greater"),
        (lambda: KNOWN.best({"code": 0.0}), "the sum of the weights must be above 0"),
    ],
)
def test_what_cannot_be_is_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_law_out_of_all_bounds_is_told_and_not_searched_for_ever():
    wild = MixingLaw(sources=SOURCES, c=KNOWN.c, k=KNOWN.k, t=KNOWN.t * 2_000)
    with pytest.raises(ArithmeticError, match="no best mixture after 10000 shifts: t reaches from"):
        wild.best({"code": 1.0, "prose": 1.0})
