"""The numbers next to one that a rule refuses."""

from hypothesis import given
from hypothesis import strategies as st

from llmcourse.parallel import legal


@given(number=st.integers(1, 300))
def test_divisors_are_all_that_divide(number):
    found = legal.divisors(number)
    assert found == sorted(set(found))
    assert {d for d in range(1, 400) if number % d == 0} == set(found)


@given(step=st.integers(1, 50), about=st.integers(-100, 400))
def test_multiples_stand_on_both_sides_and_are_above_zero(step, about):
    found = legal.multiples(step, about)
    assert found
    assert all(n > 0 and n % step == 0 for n in found)
    assert found[-1] > about
    assert all(abs(n - about) <= step for n in found) or found == [step]


@given(allowed=st.sets(st.integers(1, 60), min_size=1), number=st.integers(-5, 70))
def test_nothing_allowed_is_nearer_on_either_side(allowed, number):
    named = [int(word) for word in legal.nearest(number, list(allowed)).split(" or ") if word]
    below, above = ({n for n in allowed if n < number}, {n for n in allowed if n > number})
    assert named == [*([max(below)] if below else []), *([min(above)] if above else [])]
