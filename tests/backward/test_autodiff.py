"""autodiff: equal to torch on random graphs, in any order of use, at any depth."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.backward.autodiff import Array, Value, topological_order

OPS = ("+", "*", "-", "/", "tanh", "exp", "relu", "**", "log")


def grow(leaves, seed, steps, *, functions):
    """Apply the same random operations to any kind of number; earlier results are used again."""
    rng, made = random.Random(seed), list(leaves)
    for _ in range(steps):
        op, a, b = rng.choice(OPS), rng.choice(made), rng.choice(made)
        made.append(functions[op](a, b))
    return sum(made[len(leaves) :], start=made[0])


SCALAR = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b * 0.1,
    "-": lambda a, b: 1.5 - a - b,
    "/": lambda a, b: a / (2.0 + b.tanh()),
    "tanh": lambda a, _: a.tanh(),
    "exp": lambda a, _: a.tanh().exp(),
    "relu": lambda a, _: a.relu(),
    "**": lambda a, _: (a.tanh() + 3) ** -2 + a**3 * 0.01,
    "log": lambda a, _: (a.tanh() + 2.5).log(),
}


@given(seed=st.integers(0, 10_000), steps=st.integers(1, 25))
def test_scalars_equal_torch_on_random_graphs(seed, steps):
    rng = random.Random(seed)
    numbers = [rng.uniform(-1.5, 1.5) for _ in range(3)]
    ours = [Value(x) for x in numbers]
    theirs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in numbers]
    result = grow(ours, seed, steps, functions=SCALAR)
    expected = grow(theirs, seed, steps, functions=SCALAR)
    result.backward()
    expected.backward()
    assert result.data == pytest.approx(expected.item(), rel=1e-12)
    for mine, reference in zip(ours, theirs, strict=True):
        slope = 0.0 if reference.grad is None else reference.grad.item()
        assert mine.grad == pytest.approx(slope, rel=1e-9, abs=1e-12)


def test_a_value_used_twice_gets_both_slopes_and_without_order_a_wrong_one():
    a = Value(3.0)
    b = a + a
    c = b + b
    c.backward()
    assert (a.grad, b.grad, c.grad) == (4.0, 2.0, 1.0)
    without_order(c)
    assert a.grad != 4.0


def without_order(root):
    """A mutant: pass every gradient on at once, depth first, before it is complete."""
    root.grad = 1.0
    waiting = [root]
    while waiting:
        value = waiting.pop()
        for given_value, slope in value.inputs:
            given_value.grad += slope * value.grad
            waiting.append(given_value)


def test_gradients_add_up_over_calls_and_a_chain_of_100_000_is_no_deeper_than_the_stack():
    a = Value(2.0)
    b = a * a
    b.backward()
    b.backward()
    assert a.grad == 8.0
    b.zero_grad()
    assert a.grad == b.grad == 0.0
    x = Value(0.0)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    assert (y.data, x.grad) == (100_000.0, 1.0)


@given(seed=st.integers(0, 1_000), size=st.integers(1, 20))
def test_every_node_comes_after_its_inputs_and_once(seed, size):
    rng, nodes = random.Random(seed), []
    for n in range(size):
        inputs = [(rng.choice(nodes), 1.0) for _ in range(rng.randrange(3) * (n > 0))]
        nodes.append(Value(n, tuple(inputs)))
    order = topological_order(nodes[-1])
    assert order[-1] is nodes[-1]
    place = {id(node): i for i, node in enumerate(order)}
    assert len(order) == len(place)
    assert all(place[id(x)] < place[id(node)] for node in order for x, _ in node.inputs)


def both(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    numbers = [rng.normal(size=shape) for shape in shapes]
    return [Array(x) for x in numbers], [torch.tensor(x, requires_grad=True) for x in numbers]


RNG = np.random.default_rng(1)
X, LABELS = RNG.normal(size=(20, 5)), RNG.integers(0, 3, 20)


def cross_entropy_of_a_net(first, second):
    is_ours = isinstance(first, Array)
    logits = ((Array(X) if is_ours else torch.tensor(X)) @ first).tanh() @ second
    log_z = logits.logsumexp() if is_ours else logits.logsumexp(-1)
    return (log_z.sum() - logits[np.arange(20), LABELS].sum()) * (1 / 20)


ARRAYS = {
    "a small net": (((5, 8), (8, 3)), cross_entropy_of_a_net),
    "broadcast rows": (((3, 4), (4,)), lambda a, b: (a * b + b).sum()),
    "broadcast columns": (((3, 4), (3, 1)), lambda a, b: (a * b - b * 2.0).tanh().sum()),
    "broadcast a number": (((3, 4), ()), lambda a, b: (a * b + b).relu().mean()),
    "matrix product": (((3, 4), (4, 2)), lambda a, b: (a @ b).tanh().sum()),
    "a matrix twice": (((3, 3),), lambda a: ((a @ a) @ a).sum()),
    "sums": (((3, 4),), lambda a: (a.sum(1) * a.sum(1)).sum() + a.sum()),
    "curves": (((3, 4),), lambda a: ((a.tanh().exp() + 1.0).log() * a.relu()).mean()),
    "rows taken twice": (((5, 2),), lambda a: (a[[1, 1, 4]] * a[[0, 1, 2]]).sum()),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_equal_torch(case):
    shapes, compute = ARRAYS[case]
    ours, theirs = both(*shapes)
    result, expected = compute(*ours), compute(*theirs)
    result.backward()
    expected.backward()
    np.testing.assert_allclose(result.data, expected.detach().numpy(), rtol=1e-12)
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad, reference.grad.numpy(), rtol=1e-10, atol=1e-12)
        assert np.abs(mine.grad).max() > 1e-3


def test_numpy_on_the_left_does_not_take_over_and_products_are_of_matrices():
    a = Array([1.0, 2.0])
    b = np.array([3.0, 4.0]) * a + np.array([1.0, 1.0])
    b.sum().backward()
    assert a.grad.tolist() == [3.0, 4.0]
    with pytest.raises(ValueError, match="log needs a positive number, got 0"):
        Value(0).log()
    with pytest.raises(ValueError, match="backward starts from one number"):
        Array([1.0, 2.0]).backward()
    with pytest.raises(ValueError, match="@ takes two matrices"):
        Array([1.0]) @ Array([[1.0]])
