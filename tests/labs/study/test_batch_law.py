"""The law of batches: right by hand, found where it is planted, refused where there is none."""

import math

import numpy as np
import pytest

from llmcourse_labs.study.batch_law import BatchLaw, fit_batch_law

BATCHES = [2, 8, 32, 128]


def test_by_hand():
    law = BatchLaw(least_steps=60, critical_batch=30)
    assert [law.steps(b) for b in (10, 30, 60)] == [240, 120, 90]
    assert [law.sequences(b) for b in (10, 30, 60)] == [2_400, 3_600, 5_400]
    assert law.least_sequences == 1_800


def test_steps_and_sequences_are_mccandlishs_hyperbola():
    law = BatchLaw(41.5, 52.3)
    for batch in (0.1, 1, 17, 1e6):
        assert law.sequences(batch) == pytest.approx(batch * law.steps(batch), rel=1e-13)
        above_steps = law.steps(batch) / law.least_steps - 1
        above_sequences = law.sequences(batch) / law.least_sequences - 1
        assert above_steps * above_sequences == pytest.approx(1, rel=1e-7)


def noisy(seed, spread):
    """Steps that a law gives, each wrong by a factor of about 1 + spread."""
    generator = np.random.default_rng(seed)
    law = BatchLaw(50, 40)
    return [law.steps(b) * math.exp(spread * generator.standard_normal()) for b in BATCHES * 3]


def faults(fit):
    """What is wrong with a fit, of exact steps and of 200 sets of noisy ones."""
    wrong = []
    exact = fit(BATCHES, [BatchLaw(50, 40).steps(b) for b in BATCHES])
    if exact != pytest.approx((50, 40), rel=1e-9):
        wrong.append("exact")
    found = np.array([fit(BATCHES * 3, noisy(seed, 0.06)) for seed in range(200)])
    if found.mean(0) != pytest.approx((50, 40), rel=0.03):
        wrong.append("mean")
    # The best unbiased fit of these draws has spreads of 2.0 and 2.6.
    if np.any(found.std(0) > (2.4, 3.1)):
        wrong.append("spread")
    return wrong


def of_plain_errors(batches, steps):
    """Errors in steps count, not relative ones: small batches decide alone."""
    slope, intercept = np.polyfit(1 / np.asarray(batches), steps, 1)
    return BatchLaw(intercept, slope / intercept)


def line_in_batches(batches, steps):
    """The line is laid through S B against 1 instead of S against 1 / B."""
    slope, intercept = np.polyfit(batches, np.multiply(steps, batches), 1)
    return BatchLaw(slope, intercept / slope)


def swapped(batches, steps):
    law = fit_batch_law(batches, steps)
    return BatchLaw(law.critical_batch, law.least_steps)


def test_a_planted_law_is_found():
    assert faults(fit_batch_law) == []


@pytest.mark.parametrize(
    ("fit", "seen"), [(of_plain_errors, "spread"), (line_in_batches, "spread"), (swapped, "exact")]
)
def test_poorer_fits_are_noticed(fit, seen):
    assert seen in faults(fit)


def test_the_line_is_the_one_of_weighted_least_squares():
    steps = noisy(3, 0.3)
    slope, intercept = np.polyfit(1 / np.array(BATCHES * 3), steps, 1, w=1 / np.array(steps))
    law = fit_batch_law(BATCHES * 3, steps)
    assert law.least_steps == pytest.approx(intercept, rel=1e-9)
    assert law.least_sequences == pytest.approx(slope, rel=1e-9)
