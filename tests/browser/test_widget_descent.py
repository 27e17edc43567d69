"""The widgets of chapters 02 and 03: the page's arithmetic is the package's, and they obey."""

import itertools
import math

import pytest
import torch

from llmcourse import loss, optim
from llmcourse_classroom.widgets import Bowl, StepByHand
from tests.browser.hands import enter, keys, press
from tests.browser.kit import holds, said, table, value
from tests.browser.twins import each

WORDS, SHARES = ["a", "mat", "floor", "on", "the"], [0.15, 0.10, 0.05, 0.20, 0.50]
MAKERS = {
    "sgd": lambda place, lr: optim.SGD([place], lr=lr),
    "momentum": lambda place, lr: optim.SGD([place], lr=lr, momentum=0.9),
    "adam": lambda place, lr: optim.AdamW([place], lr=lr, weight_decay=0),
}


def by_hand(**state):
    return StepByHand(probabilities=SHARES, words=WORDS, target="on", **state)


def walked(kind, settings, draws):
    place = torch.tensor([settings["start_x"], settings["start_y"]], dtype=torch.float64)
    curvature = torch.tensor([settings["lambda_x"], settings["lambda_y"]], dtype=torch.float64)
    place.requires_grad_()
    optimizer = MAKERS[kind](place, settings["learning_rate"])
    points = [place.tolist()]
    for step in range(settings["steps"]):
        noise = torch.tensor(draws[2 * step : 2 * step + 2], dtype=torch.float64)
        place.grad = curvature * place.detach() + settings["noise"] * noise
        optimizer.step()
        points.append(place.tolist())
    return points


def grid():
    draws = torch.randn(80, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    fixed = {"lambda_x": 1.0, "steps": 40, "start_x": 8.0, "start_y": -2.5}
    choices = itertools.product(MAKERS, (0.01, 0.15, 0.21), (0.0, 0.7), (0.3, 10.0))
    for kind, eta, noise, lambda_y in choices:
        settings = {"lambda_y": lambda_y, "learning_rate": eta, "noise": noise, **fixed}
        yield [kind, settings, draws.tolist()]


def test_walks_as_the_optimizers_of_the_package(arithmetic):
    for case, got in each(arithmetic, Bowl, "walk", grid()):
        right = torch.tensor(walked(*case))
        torch.testing.assert_close(torch.tensor(got), right, rtol=1e-9, atol=1e-12)


def test_noise_is_normal_and_repeats(arithmetic):
    first, again, other = arithmetic(Bowl, "normals", [[1, 20000], [1, 20000], [2, 20000]])
    assert first == again
    assert first != other
    drawn = torch.tensor(first)
    assert abs(drawn.mean()) < 4 / math.sqrt(20000)
    assert abs(drawn.var() - 1) < 4 * math.sqrt(2 / 20000)


def test_the_critical_rate_divides_coming_from_going(arithmetic):
    steep = {"lambda_x": 1.0, "lambda_y": 8.0}
    (critical,) = arithmetic(Bowl, "criticalRate", [[steep]])
    assert critical == 2 / 8
    base = steep | {"noise": 0, "steps": 200, "start_x": 1.0, "start_y": 1.0}
    rates = [base | {"learning_rate": critical * f} for f in (0.99, 1.01)]
    below, above = arithmetic(Bowl, "walk", [["sgd", one, [0] * 400] for one in rates])
    assert abs(below[-1][1]) < 0.1
    assert abs(above[-1][1]) > 10


def test_loss_gradient_and_step_are_the_packages_and_an_edit_keeps_proportions(arithmetic):
    cases = [[SHARES, 3], [[0.001, 0.001, 0.001, 0.001, 0.996], 0], [[0.2] * 5, 4]]
    losses = arithmetic(StepByHand, "lossOf", cases)
    gradients = arithmetic(StepByHand, "gradient", cases)
    rates = (0.1, 1.0, 20.0)
    steps = iter(arithmetic(StepByHand, "afterStep", [[*c, r] for c in cases for r in rates]))
    for (shares, target), got, slope in zip(cases, losses, gradients, strict=True):
        logits = torch.tensor(shares, dtype=torch.float64).log()[None]
        counted = torch.tensor([True])
        each, saved = loss.token_losses_forward(logits, torch.tensor([target]), counted)
        assert got == pytest.approx(each.item(), rel=1e-12)
        (expected,) = loss.token_losses_backward(torch.ones_like(each), saved)
        assert slope == pytest.approx(expected[0].tolist(), rel=1e-12)
        for rate in rates:
            moved = logits.clone().requires_grad_()
            moved.grad = expected
            optim.SGD([moved], lr=rate).step()
            after = torch.softmax(moved.detach(), dim=-1)[0]
            torch.testing.assert_close(
                torch.tensor(next(steps), dtype=torch.float64), after, rtol=1e-9, atol=1e-12
            )
    (after,) = arithmetic(StepByHand, "edited", [[SHARES, 4, 0.25]])
    assert after == pytest.approx([0.225, 0.15, 0.075, 0.3, 0.25])


def test_fields_buttons_keys_and_a_press_move_the_ball(show):
    page = show(Bowl())
    press(page, "Step")
    keys(page, "steps taken", "ArrowRight", "After 2 steps")
    enter(page, "learning rate", "0.25", "runs away")
    holds(page.get_by_role("img").first.get_attribute("aria-label"), "rate 0.25")
    page.locator(".lc-stage").nth(1).click(position={"x": 200, "y": 60})
    holds(said(page), "After 0 steps")  # the ball is put there
    assert float(value(page, "start at x")) < 0
    press(page, "Step")
    press(page, "Reset", "After 0 steps")


def test_a_step_lowers_the_loss_and_fills_the_table(show):
    page = show(by_hand(), says=["1.609"])
    press(page, "Step", "0.8248")
    assert len(table(page)) == 2
    press(page, "Reset", "1.609")
    enter(page, "probability of “on”", "0.6")  # moves the others
    assert value(page, "probability of “the”") == "0.25"
