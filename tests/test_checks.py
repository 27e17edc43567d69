"""checks: errors are relative to the largest entry, and nothing to compare is an error."""

import pytest
import torch

from llmcourse import checks


def test_relative_error_is_relative_to_the_largest_entry():
    reference = torch.tensor([1e-8, -2e-8])
    assert checks.relative_error(reference * 0, reference) == 1.0
    assert checks.relative_error(reference, reference) == 0.0
    assert checks.relative_error(reference + 1e-8, reference) == pytest.approx(0.5)


def test_a_reference_of_zeros_is_an_error():
    for nothing in (torch.zeros(3), torch.zeros(0)):
        with pytest.raises(ValueError, match="zero everywhere"):
            checks.relative_error(nothing, nothing)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shapes differ"):
        checks.relative_error(torch.ones(1), torch.ones(2))


def cube(x):
    return x**3, x


def test_a_right_backward_is_accepted_and_wrong_ones_are_not(generator):
    inputs = {"x": torch.randn(4, generator=generator)}
    right = checks.check_backward(cube, lambda dy, x: (3 * x**2 * dy,), inputs, generator=generator)
    assert right.ok
    for wrong in (lambda dy, x: (3 * x**2,), lambda dy, x: (2 * x**2 * dy,)):
        assert not checks.check_backward(cube, wrong, inputs, generator=generator).ok


def test_a_gradient_of_zeros_is_an_error(generator):
    with pytest.raises(ValueError, match="zero everywhere"):
        checks.check_backward(
            lambda x: (x * 0, x),
            lambda dy, x: (x * 0,),
            {"x": torch.ones(2)},
            generator=generator,
        )


def test_integer_inputs_get_no_gradient(generator):
    report = checks.check_backward(
        lambda w, i: (w[i] ** 2, (w, i)),
        lambda dy, s: (torch.zeros_like(s[0]).index_add(0, s[1], 2 * s[0][s[1]] * dy),),
        {"w": torch.randn(5, generator=generator), "i": torch.tensor([1, 1, 3])},
        generator=generator,
    )
    assert report.ok
    assert list(report.relative_errors) == ["w"]
