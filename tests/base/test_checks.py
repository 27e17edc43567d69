"""checks: errors are relative to the largest entry, and nothing to compare is an error."""

import pytest
import torch
from strategies import awkward

from llmcourse import loss
from llmcourse.base import checks
from llmcourse.model import attention, ops


def test_relative_error_is_relative_to_the_largest_entry_and_a_report_a_table():
    reference = torch.tensor([1e-8, -2e-8])
    assert checks.relative_error(reference * 0, reference) == 1.0
    assert checks.relative_error(reference, reference) == 0.0
    assert checks.relative_error(reference + 1e-8, reference) == pytest.approx(0.5)
    right, wrong, bound = str(checks.GradReport({"x": 2e-12, "gain": 0.5}, 1e-9)).splitlines()
    assert right.split() == ["x", "2.0e-12", "ok"]
    assert wrong.split() == ["gain", "5.0e-01", "WRONG"]
    assert "1e-09" in bound


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: checks.relative_error(torch.zeros(3), torch.zeros(3)), "zero everywhere"),
        (lambda: checks.relative_error(torch.zeros(0), torch.zeros(0)), "zero everywhere"),
        (lambda: checks.relative_error(torch.ones(1), torch.ones(2)), "shapes differ"),
    ],
)
def test_nothing_to_compare_is_an_error(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()


def cube(x):
    return x**3, x


def test_a_right_backward_is_accepted_and_gradients_of_zeros_are_errors(generator):
    inputs = {"x": torch.randn(4, generator=generator)}
    right = checks.check_backward(cube, lambda dy, x: (3 * x**2 * dy,), inputs, generator=generator)
    assert right.ok
    for wrong in (lambda dy, x: (3 * x**2,), lambda dy, x: (2 * x**2 * dy,)):
        assert not checks.check_backward(cube, wrong, inputs, generator=generator).ok
    report = checks.check_backward(
        lambda w, i: (w[i] ** 2, (w, i)),
        lambda dy, s: (torch.zeros_like(s[0]).index_add(0, s[1], 2 * s[0][s[1]] * dy),),
        {"w": torch.randn(5, generator=generator), "i": torch.tensor([1, 1, 3])},
        generator=generator,
    )
    assert report.ok
    assert list(report.relative_errors) == ["w"]
    pair = lambda x: (x * 0, x), lambda dy, x: (x * 0,)
    with pytest.raises(ValueError, match="zero everywhere"):
        checks.check_backward(*pair, {"x": torch.ones(2)}, generator=generator)
    pair = lambda x: (torch.ones(2).double(), x), lambda dy, x: (torch.zeros_like(x),)
    with pytest.raises(ValueError, match="every slope is zero"):
        checks.check_finite_differences(*pair, {"x": torch.ones(2)}, generator=generator)


def pairs_of_the_package(generator):
    """Every pair of functions that the model is made of, with awkward inputs."""
    x = awkward(2, 5, 6, generator=generator) / 3
    y = awkward(2, 5, 6, generator=generator) / 3
    w = awkward(4, 6, generator=generator) / 3
    heads = {"q": 4, "k": 2, "v": 2}
    heads = {name: awkward(2, 5, n, 4, generator=generator) / 3 for name, n in heads.items()}
    ids = torch.tensor([[0, 2, 2], [3, 0, 2]])
    targets = torch.tensor([0, 5, 2, 2, 3, 1, 4, 0, 1, 5])
    rotations = attention.rope_rotations(4, 5)
    return {
        "linear": (ops.linear_forward, ops.linear_backward, {"x": x, "w": w}),
        "rmsnorm": (ops.rmsnorm_forward, ops.rmsnorm_backward, {"x": x, "gain": y[0, 0]}),
        "silu_gate": (ops.silu_gate_forward, ops.silu_gate_backward, {"gate": x, "up": y}),
        "attention": (attention.attention_forward, attention.attention_backward, heads),
        "flash": (attention.flash_forward, attention.flash_backward, heads),
        "rope": (
            lambda x: (attention.rope_adjacent(x, rotations), rotations),
            lambda dy, saved: (attention.rope_adjacent_backward(dy, saved),),
            {"x": heads["q"]},
        ),
        "embedding": (
            lambda w: (ops.embedding(ids, w), ids),
            lambda dy, saved: (ops.embedding_backward(dy, saved, 4),),
            {"w": w},
        ),
        "loss": (
            lambda logits: loss.token_losses_forward(logits, targets, targets > 0),
            loss.token_losses_backward,
            {"logits": x.flatten(0, 1)},
        ),
        "loss in chunks": (
            lambda x, w: loss.chunked_forward(x, w, targets[:5] % 4, num_chunks=3),
            loss.chunked_backward,
            {"x": x[0], "w": w},
        ),
    }


PAIRS = tuple(pairs_of_the_package(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_of_the_package_agrees_with_differences(name, generator):
    forward, backward, inputs = pairs_of_the_package(generator)[name]
    report = checks.check_finite_differences(forward, backward, inputs, generator=generator)
    assert report.ok, f"\n{report}"
    assert set(report.relative_errors) == set(inputs)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("factor", [-1.0, 1.0 + 1e-5])
def test_differences_notice_one_wrong_entry(name, factor, generator):
    """A sign, or the largest entry of the last gradient off by a hundred-thousandth."""
    forward, backward, inputs = pairs_of_the_package(generator)[name]

    def broken(dy, saved):
        *others, last = backward(dy, saved)
        last = last.clone()
        last.view(-1)[last.abs().argmax()] *= factor
        return *others, last

    report = checks.check_finite_differences(forward, broken, inputs, generator=generator)
    assert not report.ok, f"\n{report}"
