"""The law of batches: right by hand, found where it is planted, refused where there is none."""

import math

import numpy as np
import pytest

from llmcourse_labs.study.batch_law import BatchLaw, fit_batch_law

BATCHES = [2, 8, 32, 128]
MANY = BATCHES * 3


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


def agrees(fit):
    """Whether a fit finds a law again, and of noisy steps the line of weighted least squares."""
    exact = fit(BATCHES, [BatchLaw(50, 40).steps(b) for b in BATCHES])
    noise = np.random.default_rng(3).standard_normal(12)
    steps = [BatchLaw(50, 40).steps(b) * math.exp(x / 3) for b, x in zip(MANY, noise, strict=True)]
    slope, intercept = np.polyfit(1 / np.array(MANY), steps, 1, w=1 / np.array(steps))
    right = pytest.approx((intercept, slope / intercept), rel=1e-9)
    return exact == pytest.approx((50, 40), rel=1e-9) and fit(MANY, steps) == right


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


def test_a_planted_law_is_found_by_weighted_least_squares_and_by_no_poorer_fit():
    assert agrees(fit_batch_law)
    for poorer in (of_plain_errors, line_in_batches, swapped):
        assert not agrees(poorer)
