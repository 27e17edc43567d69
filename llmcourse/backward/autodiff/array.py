"""Automatic differentiation of whole arrays: the same engine, with one node for each operation.

What was a slope, one number, becomes a function: it takes the gradient of the result and returns
the gradient of the input (a vector-Jacobian product).  Nothing else changes.
"""

from collections.abc import Callable
from typing import Any, Union

import numpy as np

from llmcourse.backward.autodiff.order import topological_order

Pull = Callable[[np.ndarray], np.ndarray]
"""Takes d(result) / d(output) to d(result) / d(input)."""


class Array:
    """An array of float64 that knows what it was computed from.

    Args:
        data: anything that numpy takes as numbers.
        inputs: the arrays it was computed from, each with the function that pulls a gradient back.
        name: what to call it in a drawing.
    """

    __array_ufunc__ = None  # numpy + Array must ask Array, not add element by element

    def __init__(
        self, data: Any, inputs: "tuple[tuple[Array, Pull], ...]" = (), name: str = ""
    ) -> None:
        self.data = np.asarray(data, dtype=np.float64)
        self.inputs = inputs
        self.name = name
        self.grad = np.zeros_like(self.data)

    def __repr__(self) -> str:
        return f"Array(shape={self.data.shape}, name={self.name!r})"

    def backward(self) -> None:
        """Add d(this) / d(array) to the gradient of every array that this one depends on.

        Raises:
            ValueError: if this is not a single number, such as a loss.
        """
        if self.data.size != 1:
            raise ValueError(
                f"backward starts from one number, such as a loss; this has {self.data.size}"
            )
        order = topological_order(self)
        arrived = {id(array): np.zeros_like(array.data) for array in order}
        arrived[id(self)] = np.ones_like(self.data)
        for array in reversed(order):
            array.grad = array.grad + arrived[id(array)]
            for x, pull in array.inputs:
                arrived[id(x)] = arrived[id(x)] + pull(arrived[id(array)])

    def __add__(self, other: "Operand") -> "Array":
        other = _as_array(other)
        pulls = tuple((each, _unbroadcast(each)) for each in (self, other))
        return Array(self.data + other.data, pulls, "+")

    def __mul__(self, other: "Operand") -> "Array":
        other = _as_array(other)
        to_self, to_other = _unbroadcast(self), _unbroadcast(other)
        pulls = (
            (self, lambda dy: to_self(dy * other.data)),
            (other, lambda dy: to_other(dy * self.data)),
        )
        return Array(self.data * other.data, pulls, "×")

    def __matmul__(self, other: "Array") -> "Array":
        """Product of two matrices:  dA = dY B^T,  dB = A^T dY."""
        if self.data.ndim != 2 or other.data.ndim != 2:
            raise ValueError(
                f"@ takes two matrices, got shapes {self.data.shape} and {other.data.shape}"
            )
        return Array(
            self.data @ other.data,
            # Y is linear in A and in B: each gradient is dY times the other one, transposed.
            ((self, lambda dy: dy @ other.data.T), (other, lambda dy: self.data.T @ dy)),
            "@",
        )

    def __neg__(self) -> "Array":
        return self * -1.0

    def __sub__(self, other: "Operand") -> "Array":
        return self + -_as_array(other)

    def __radd__(self, other: "Operand") -> "Array":
        return self + other

    def __rmul__(self, other: "Operand") -> "Array":
        return self * other

    def __rsub__(self, other: "Operand") -> "Array":
        return -self + other

    def __getitem__(self, index: Any) -> "Array":
        """Take entries; what was taken twice gets both gradients."""

        def pull(dy):
            dx = np.zeros_like(self.data)
            np.add.at(dx, index, dy)
            return dx

        return Array(self.data[index], ((self, pull),), "[]")

    def sum(self, axis: int | None = None, *, keepdims: bool = False) -> "Array":
        """Add up all entries, or those along an axis: each gets the gradient of its sum."""

        def pull(dy):
            if axis is not None and not keepdims:
                dy = np.expand_dims(dy, axis)
            return np.broadcast_to(dy, self.data.shape)

        return Array(self.data.sum(axis=axis, keepdims=keepdims), ((self, pull),), "sum")

    def mean(self) -> "Array":
        """Return the mean of all entries."""
        return self.sum() * (1 / self.data.size)

    def exp(self) -> "Array":
        """Return e^this, entry by entry."""
        result = np.exp(self.data)
        return Array(result, ((self, lambda dy: dy * result),), "exp")

    def log(self) -> "Array":
        """Return the natural logarithm, entry by entry."""
        return Array(np.log(self.data), ((self, lambda dy: dy / self.data),), "log")

    def tanh(self) -> "Array":
        """Return the hyperbolic tangent, entry by entry."""
        result = np.tanh(self.data)
        return Array(result, ((self, lambda dy: dy * (1 - result**2)),), "tanh")

    def relu(self) -> "Array":
        """Return each entry where positive, else 0."""
        positive = self.data > 0
        return Array(self.data * positive, ((self, lambda dy: dy * positive),), "relu")

    def logsumexp(self) -> "Array":
        """Return log(sum exp) of every row, kept as a column; its gradient is the softmax."""
        top = self.data.max(axis=-1, keepdims=True)
        exp = np.exp(self.data - top)
        total = exp.sum(axis=-1, keepdims=True)
        return Array(np.log(total) + top, ((self, lambda dy: dy * exp / total),), "logsumexp")


Operand = Union[Array, np.ndarray, int, float]  # noqa: UP007 - Array is not defined before


def _as_array(given: Operand) -> Array:
    """Return plain numbers as an array without inputs."""
    return given if isinstance(given, Array) else Array(given)


def _unbroadcast(array: Array) -> Pull:
    """Return the pull of an input that was stretched: sum over what it was stretched along."""
    shape = array.data.shape

    def pull(dy):
        dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))
        stretched = tuple(i for i, size in enumerate(shape) if size == 1 and dy.shape[i] > 1)
        return dy.sum(axis=stretched, keepdims=True) if stretched else dy

    return pull
