"""scale.laws: planted laws are found again within their intervals, and optima are the smallest."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.scale import laws
from llmcourse_labs.scale.laws import KaplanLaw, ParametricLaw
from llmcourse_labs.scale.laws.fitting import deviations, lbfgs

KNOWN = ParametricLaw(E=0.38, A=60.0, B=400.0, alpha=0.45, beta=0.5)
SIZES = np.tile(np.geomspace(2e4, 1e6, 6), 5)
TOKENS = np.repeat(np.geomspace(3e11, 6e12, 5), 6) / 6 / SIZES


def loss_of(law, N, D):
    return law.E + law.A * N**-law.alpha + law.B * D**-law.beta


def noisy(law, share, seed):
    drawn = np.random.default_rng(seed).standard_normal(len(SIZES))
    return loss_of(law, SIZES, TOKENS) * np.exp(share * drawn)


def numbers_of(law):
    return {"E": law.E, "alpha": law.alpha, "beta": law.beta, "a": law.size_exponent}


def test_every_row_goes_down_its_own_valley_and_deviations_are_squares_near():
    """Rosenbrock's banana, of another steepness in each row, from far away."""
    steep_S = torch.tensor([1.0, 10.0, 100.0, 300.0], dtype=torch.float64)

    def value_of(at_SP, rows):
        x, y = at_SP.T
        return (1 - x) ** 2 + steep_S[rows] * (y - x**2) ** 2

    starts = torch.tensor([[-1.2, 1.0], [3.0, -2.0], [-1.2, 1.0], [0.0, 5.0]], dtype=torch.float64)
    ends = lbfgs(value_of, starts)
    torch.testing.assert_close(ends, torch.ones_like(ends), atol=1e-4, rtol=0)
    one = [lbfgs(lambda at, _, k=k: value_of(at, torch.tensor([k])), starts[[k]]) for k in range(4)]
    torch.testing.assert_close(torch.cat(one), ends, atol=1e-4, rtol=0)
    logs = torch.tensor([[0.001, -0.002], [0.1, -0.3]], dtype=torch.float64)
    near, far = deviations(logs, 0.01).tolist()
    assert near == pytest.approx((0.1**2 + 0.2**2) / 2 / 2)
    assert far == pytest.approx(((10 - 0.5) + (30 - 0.5)) / 2)


@pytest.mark.parametrize(
    "law",
    [
        KNOWN,
        ParametricLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28),
        ParametricLaw(E=0.05, A=9.0, B=2e4, alpha=0.2, beta=0.8),
        ParametricLaw(E=2.0, A=5e3, B=30.0, alpha=0.9, beta=0.15),
    ],
)
def test_a_known_law_is_found_again(law):
    found = ParametricLaw.fit(SIZES, TOKENS, loss_of(law, SIZES, TOKENS))
    for name in ("E", "A", "B", "alpha", "beta"):
        assert getattr(found, name) == pytest.approx(getattr(law, name), rel=2e-3), name


def test_neither_a_run_gone_wrong_nor_their_order_moves_the_law_and_no_change_fits_better():
    """Squares in place of Huber's distances are drawn after it: the mutant is noticed."""
    losses = noisy(KNOWN, 0.001, 0)
    wrong = losses.copy()
    wrong[17] *= 1.5
    before, after, squares = (
        ParametricLaw.fit(SIZES, TOKENS, each, delta=delta)
        for each, delta in ((losses, 1e-3), (wrong, 1e-3), (wrong, 1e3))
    )
    assert abs(after.E - before.E) < 0.01
    assert abs(after.size_exponent - before.size_exponent) < 0.01
    assert abs(squares.E - before.E) > 0.03
    losses, turned = noisy(KNOWN, 0.005, 3), np.random.default_rng(3).permutation(len(SIZES))
    runs = SIZES, TOKENS, losses
    one, two = ParametricLaw.fit(*runs), ParametricLaw.fit(*(each[turned] for each in runs))
    assert (two.E, two.size_exponent) == pytest.approx((one.E, one.size_exponent), abs=1e-3)
    losses = noisy(KNOWN, 0.005, 1)
    law = ParametricLaw.fit(SIZES, TOKENS, losses)

    def deviation(law):
        logs = np.log(loss_of(law, SIZES, TOKENS)) - np.log(losses)
        return deviations(torch.from_numpy(logs)[None], 1e-3).item()

    least = deviation(law)
    for name in ("E", "A", "B", "alpha", "beta"):
        for factor in (0.97, 0.999, 1.001, 1.03):
            changed = replace(law, **{name: factor * getattr(law, name)})
            assert deviation(changed) > least - 1e-6 * least, (name, factor)


MUTANTS = {
    "size and data exchanged": lambda n: {**n, "alpha": n["beta"], "beta": n["alpha"]},
    "the exponent of data for that of size": lambda n: {**n, "a": 1 - n["a"]},
    "no irreducible loss": lambda n: {**n, "E": 0.0},
    "half the exponents": lambda n: {**n, "alpha": n["alpha"] / 2, "beta": n["beta"] / 2},
}


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_noise_moves_the_numbers_within_their_intervals(mutant):
    """Three sets of runs and wide intervals; how often they cover, `make soak` counts."""
    true = numbers_of(KNOWN)
    true = MUTANTS[mutant](true) if mutant else true
    inside = [
        all(low <= true[name] <= high for name, (low, high) in found.items())
        for found in (wide_intervals(seed) for seed in range(3))
    ]
    assert sum(inside) == (3 if mutant is None else 0), mutant


@cache
def wide_intervals(seed):
    resampled = ParametricLaw.bootstrap(SIZES, TOKENS, noisy(KNOWN, 0.003, seed), num=60, seed=seed)
    found = laws.intervals(resampled, share=0.9)
    # Three times as wide as the middle 90 %: five standard errors to each side.
    return {k: (2 * low - high, 2 * high - low) for k, (low, high) in found.items()}


def test_intervals_cover_as_often_as_is_said(soaking):
    if not soaking:
        pytest.skip("two minutes: make soak")
    covered = dict.fromkeys(numbers_of(KNOWN), 0)
    for seed in range(200):
        losses = noisy(KNOWN, 0.005, seed)
        found = laws.intervals(ParametricLaw.bootstrap(SIZES, TOKENS, losses, num=100, seed=seed))
        for name, true in numbers_of(KNOWN).items():
            covered[name] += found[name].low <= true <= found[name].high
    assert all(0.75 <= count / 200 <= 0.95 for count in covered.values()), covered


def test_the_same_seed_draws_the_same_laws():
    losses = noisy(KNOWN, 0.005, 0)
    one, two, other = (
        ParametricLaw.bootstrap(SIZES, TOKENS, losses, num=5, seed=seed) for seed in (4, 4, 5)
    )
    assert one == two
    assert one != other
    assert len({law.E for law in one}) == 5


LAWS = st.builds(
    ParametricLaw,
    E=st.floats(0, 3),
    A=st.floats(1, 1e4),
    B=st.floats(1, 1e4),
    alpha=st.floats(0.2, 1),
    beta=st.floats(0.2, 1),
)


@given(law=LAWS, flop=st.floats(1e12, 1e25))
def test_the_optimum_is_the_smallest_around(law, flop):
    best = law.optimum(flop)
    assert 6 * best.num_parameters * best.num_tokens == pytest.approx(flop)
    assert best.loss == pytest.approx(loss_of(law, best.num_parameters, best.num_tokens))
    for factor in (0.5, 0.99, 0.9999, 1.0001, 1.01, 2):
        N = factor * best.num_parameters
        assert loss_of(law, N, flop / 6 / N) >= best.loss * (1 - 1e-12)


def test_kaplans_constants_say_what_doubling_gives():
    law = laws.KAPLAN_PUBLISHED
    assert law.loss(2e9, 1e30) / law.loss(1e9, 1e30) == pytest.approx(0.949, abs=5e-4)
    assert law.loss(1e9, 1e30) == pytest.approx((8.8e13 / 1e9) ** 0.076, rel=1e-6)
    assert law.loss(1e30, 1e9) == pytest.approx((5.4e13 / 1e9) ** 0.095, rel=1e-6)


@pytest.mark.parametrize(
    "law",
    [
        KaplanLaw(N_c=3e4, D_c=4e5, alpha_N=0.3, alpha_D=0.2),
        KaplanLaw(N_c=8.8e13, D_c=5.4e13, alpha_N=0.076, alpha_D=0.095),
        KaplanLaw(N_c=2e3, D_c=6e6, alpha_N=0.5, alpha_D=0.6),
    ],
)
def test_a_known_law_of_kaplans_form_is_found_again(law):
    losses = ((law.N_c / SIZES) ** (law.alpha_N / law.alpha_D) + law.D_c / TOKENS) ** law.alpha_D
    np.testing.assert_allclose(law.loss(SIZES, TOKENS), losses, rtol=1e-12)
    found = KaplanLaw.fit(SIZES, TOKENS, losses)
    for name in ("N_c", "D_c", "alpha_N", "alpha_D"):
        assert getattr(found, name) == pytest.approx(getattr(law, name), rel=1e-3), name


def test_kaplans_form_cannot_follow_a_floor_and_an_interval_holds_the_middle():
    """Fitted to a law with a floor, it promises too much where nothing was run."""
    old = KaplanLaw.fit(SIZES, TOKENS, loss_of(KNOWN, SIZES, TOKENS))
    off = np.log(old.loss(SIZES, TOKENS) / loss_of(KNOWN, SIZES, TOKENS))
    assert 0.003 < np.abs(off).mean() < 0.05
    assert old.loss(1e9, 1e11) < 0.5 * KNOWN.loss(1e9, 1e11)
    low, high = laws.interval(np.arange(101), share=0.9)
    assert (low, high) == pytest.approx((5, 95))
