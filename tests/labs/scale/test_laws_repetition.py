"""scale.laws.repetition: the published curve, its ends, and how much the next pass is worth."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.scale.laws import effective_tokens

EPOCHS = st.floats(1, 1_000)


@pytest.mark.parametrize(
    ("epochs", "worth"), [(1, 1.0), (4, 3.73), (7.5, 6.30), (16, 10.6), (40, 15.2)]
)
def test_passes_are_worth_what_the_published_formula_says(epochs, worth):
    digits = len(str(worth).split(".")[1])
    found = effective_tokens(1, epochs)
    assert round(found, digits) == worth
    # U + U R* (1 - exp(-R / R*)), written as the paper has it.
    assert found == pytest.approx(1 + 15.39 * (1 - math.exp(-(epochs - 1) / 15.39)), rel=1e-12)


def test_the_value_of_one_more_pass_falls_by_the_same_factor_each_time():
    """Mutants: R in place of R - 1, R* left out of the exponent, no minus."""
    values = [effective_tokens(1, e + 1) - effective_tokens(1, e) for e in range(1, 30)]
    for earlier, later in itertools.pairwise(values):
        assert later / earlier == pytest.approx(math.exp(-1 / 15.39), rel=1e-9)
    slope = (effective_tokens(1, 1 + 1e-6) - 1) / 1e-6
    assert slope == pytest.approx(1, abs=1e-5)  # the very first repeat is as good as fresh text


def test_up_to_one_pass_nothing_is_repeated():
    assert [effective_tokens(200, e) for e in (0, 0.25, 1)] == [0, 50, 200]


@given(EPOCHS, EPOCHS, st.floats(0.1, 100))
def test_repeats_never_do_harm_and_never_beat_fresh_text(one, other, worth):
    few, many = sorted((one, other))
    values = [effective_tokens(1, e, repeats_worth=worth) for e in (few, many)]
    assert values[0] <= values[1] <= 1 + worth
    assert values[1] <= many * (1 + 1e-12)
    assert effective_tokens(300, many, repeats_worth=worth) == pytest.approx(300 * values[1])


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((-1, 2, 1), "unique_tokens must be 0 or greater"),
        ((1, -0.5, 1), "epochs must be 0 or greater"),
        ((1, math.nan, 1), "epochs must be 0"),
        ((1, 2, 0), "repeats_worth must be above 0"),
    ],
)
def test_what_is_no_count_is_refused(given_, message):
    unique, epochs, worth = given_
    with pytest.raises(ValueError, match=message):
        effective_tokens(unique, epochs, repeats_worth=worth)
