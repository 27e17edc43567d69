"""Weight gradients for later: a backward pass in two parts adds the same bits as one."""

import pytest
import torch

from llmcourse.backward.recompute import recompute
from llmcourse.model import ops
from llmcourse.parallel.pipeline import WeightQueue, deferred_weight_grads
from tests.strategies import awkward


def network(generator):
    """Return an input and weights: used once, used three times, frozen, and cut from another."""
    shapes = {"once": (6, 8), "thrice": (6, 6), "frozen": (6, 6), "whole": (9, 6)}
    weights = {n: awkward(*s, generator=generator).requires_grad_() for n, s in shapes.items()}
    weights["frozen"].requires_grad_(False)
    weights["gain"] = awkward(6, generator=generator).requires_grad_()
    return awkward(2, 3, 8, generator=generator).requires_grad_(), weights


def output(x, weights):
    x = ops.linear(x, weights["once"])
    for _ in range(3):
        x = ops.rmsnorm(ops.linear(x, weights["thrice"]), weights["gain"])
    return ops.linear(ops.linear(x, weights["frozen"]), weights["whole"][:4]).float()


def accumulated(generator, backward, dtype, autocast=None):
    x, weights = network(generator)
    x, *cut = (w.detach().to(dtype).requires_grad_(w.requires_grad) for w in (x, *weights.values()))
    weights = dict(zip(weights, cut, strict=True))
    waiting = []
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast is not None):
            y = output(x, weights)
        waiting.append(backward(y, torch.randn(y.shape, generator=generator)))
    for queue in waiting:
        if queue is not None:
            queue.run()
            assert len(queue) == 0
    assert all(w.grad is not None for w in weights.values() if w.requires_grad)
    return {n: w.grad for n, w in weights.items()} | {"x": x.grad}


def at_once(y, dy):
    y.backward(dy)


def in_two_parts(y, dy):
    with deferred_weight_grads() as queue:
        y.backward(dy)
    assert len(queue) == 4  # the frozen weight has no gradient, the cut one gets it at once
    return queue


@pytest.mark.parametrize(
    ("dtype", "autocast"),
    [(torch.float32, None), (torch.float64, None), (torch.float32, torch.bfloat16)],
)
def test_later_weights_add_the_same_bits(dtype, autocast):
    found = [
        accumulated(torch.Generator().manual_seed(0), each, dtype, autocast)
        for each in (at_once, in_two_parts)
    ]
    assert found[0].pop("frozen") is found[1].pop("frozen") is None
    for name, gradient in found[0].items():
        assert gradient.abs().max() > 0.1
        assert gradient.dtype == dtype
        assert torch.equal(gradient, found[1][name]), name


@pytest.mark.parametrize("mutant", ["never run", "run at once", "uses added one by one"])
def test_weights_that_come_otherwise_are_noticed(mutant, monkeypatch):
    def run_one_by_one(self):
        for parameter, dy, saved in self._waiting:
            torch.autograd.backward(parameter, ops.linear_backward(dy, saved)[1])
        self._waiting = []

    if mutant == "never run":
        monkeypatch.setattr(WeightQueue, "run", lambda self: self._waiting.clear())
    elif mutant == "run at once":
        monkeypatch.setattr(WeightQueue, "put", lambda self, dy, saved: False)
    else:
        monkeypatch.setattr(WeightQueue, "run", run_one_by_one)
    with pytest.raises(AssertionError):
        test_later_weights_add_the_same_bits(torch.float32, None)


def test_the_queue_holds_the_gradients_of_the_matrices(generator):
    x, weights = network(generator)
    with deferred_weight_grads() as queue:
        output(x, weights).sum().backward()
    assert weights["once"].grad is weights["thrice"].grad is None
    assert min(w.grad.abs().max() for w in (x, weights["whole"], weights["gain"])) > 0
    fired = []
    weights["thrice"].register_post_accumulate_grad_hook(fired.append)
    queue.run()
    assert len(fired) == 1
    before = weights["once"].grad.clone()
    queue.run()  # nothing is left
    assert torch.equal(before, weights["once"].grad)


def test_after_an_error_and_outside_of_the_context_gradients_come_at_once(generator):
    x, weights = network(generator)
    first, second = deferred_weight_grads(), deferred_weight_grads()
    with pytest.raises(RuntimeError, match="leave the first one"), first, second:
        pass
    output(x, weights).sum().backward()
    assert weights["once"].grad.abs().max() > 0


def test_what_is_computed_again_in_backward_gets_its_gradients_at_once(generator):
    x, weights = network(generator)
    output(x, weights).sum().backward()
    wanted = {n: w.grad for n, w in weights.items() if w.requires_grad}
    for name in wanted:
        weights[name].grad = None
    with deferred_weight_grads() as queue:
        recompute(output, x, weights).sum().backward()
    queue.run()
    assert all(
        w is weights[n].grad is None or torch.equal(w, weights[n].grad) for n, w in wanted.items()
    )


@pytest.mark.parametrize("copies", [False, True])
def test_later_weights_find_their_parameter_under_hooks_for_saved_tensors(copies, generator):
    """Such hooks give backward another tensor than the parameter, without the `.grad` to add to."""
    w = torch.nn.Parameter(torch.randn(3, 4, generator=generator))
    x = torch.randn(2, 4, generator=generator)
    ops.linear(x, w).square().sum().backward()
    expected, w.grad = w.grad, None

    def pack(saved):
        return saved.detach().clone() if copies else saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        loss = ops.linear(x, w).square().sum()
    with deferred_weight_grads() as queue:
        loss.backward()
    del loss  # and with it the graph
    assert len(queue) == 1
    assert w.grad is None
    queue.run()
    assert torch.equal(w.grad, expected)
