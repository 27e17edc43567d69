"""scale.laws.repetition: the published curve, its ends, and how much the next pass is worth."""

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


def test_up_to_one_pass_nothing_is_repeated():
    assert [effective_tokens(200, e) for e in (0, 0.25, 1)] == [0, 50, 200]


@given(EPOCHS, EPOCHS, st.floats(0.1, 100))
def test_repeats_never_do_harm_and_never_beat_fresh_text(one, other, worth):
    few, many = sorted((one, other))
    values = [effective_tokens(1, e, repeats_worth=worth) for e in (few, many)]
    assert values[0] <= values[1] <= 1 + worth
    assert values[1] <= many * (1 + 1e-12)
    assert effective_tokens(300, many, repeats_worth=worth) == pytest.approx(300 * values[1])
