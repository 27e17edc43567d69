"""scale.laws.isoflop: bottoms of valleys and power laws, against laws that are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.scale import laws
from llmcourse_labs.scale.laws import ParametricLaw

SIZES = np.geomspace(1e5, 1e7, 7)


@given(st.floats(math.log(1.1e5), math.log(9e6)), st.floats(0.1, 3), st.floats(0.01, 2))
def test_the_bottom_of_a_parabola_is_found(place, bottom, curvature):
    found = laws.valley(SIZES, bottom + curvature / 2 * (np.log(SIZES) - place) ** 2)
    assert found.num_parameters == pytest.approx(math.exp(place), rel=1e-6)
    assert found.loss == pytest.approx(bottom, rel=1e-6)
    assert found.curvature == pytest.approx(curvature, rel=1e-6)


def test_the_valleys_of_a_law_lie_near_its_optima():
    """A parabola is not the law's own valley: near its bottom the two differ by a few per cent."""
    law = ParametricLaw(E=0.4, A=60.0, B=400.0, alpha=0.45, beta=0.45)
    budgets, bottoms = np.geomspace(1e12, 1e15, 4), []
    for flop in budgets:
        best = law.optimum(flop)
        N = best.num_parameters * np.geomspace(1 / 3, 3, 7)
        found = laws.valley(N, law.loss(N, flop / 6 / N))
        assert found.num_parameters == pytest.approx(best.num_parameters, rel=0.03)
        assert found.loss == pytest.approx(best.loss, rel=2e-3)
        bottoms.append(found.num_parameters)
    assert laws.power_law(budgets, bottoms).exponent == pytest.approx(law.size_exponent, abs=0.01)


@given(coefficient=st.floats(1e-3, 1e3), exponent=st.floats(-2, 2))
def test_a_power_law_is_found_again(coefficient, exponent):
    x = np.geomspace(1e3, 1e6, 5)
    found = laws.power_law(x, coefficient * x**exponent)
    assert found.exponent == pytest.approx(exponent, abs=1e-9)
    assert found.coefficient == pytest.approx(coefficient, rel=1e-7)
    assert found.value(2e7) == pytest.approx(coefficient * 2e7**exponent, rel=1e-6)


def test_least_squares_are_those_of_logarithms():
    x, y = np.array([1.0, 10.0, 100.0]), np.array([1.0, 20.0, 100.0])
    found = laws.power_law(x, y)
    assert found.exponent == pytest.approx(1)
    assert found.coefficient == pytest.approx(2 ** (1 / 3))
