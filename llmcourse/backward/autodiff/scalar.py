"""Automatic differentiation of single numbers: every operation remembers its local slopes.

A `Value` made from others holds, for each of them, how fast it changes with that one.  `backward`
multiplies these slopes along all paths from the result and adds up the paths: the chain rule.
"""

import math
from typing import Union

from llmcourse.backward.autodiff.order import topological_order

Number = int | float


class Value:
    """A number that knows what it was computed from.

    Args:
        data: the number.
        inputs: the values it was computed from, each with d(this) / d(that).
        name: what to call it in a drawing, such as "w" or "+".
    """

    def __init__(
        self, data: Number, inputs: "tuple[tuple[Value, float], ...]" = (), name: str = ""
    ) -> None:
        self.data = float(data)
        self.inputs = inputs  # pairs (x, slope): the slope is d(this) / dx
        self.name = name
        self.grad = 0.0  # d(result) / d(this), once result.backward() was called

    def __repr__(self) -> str:
        return f"Value({self.data:.6g}, grad={self.grad:.6g})"

    def backward(self) -> None:
        """Add d(this) / d(value) to the gradient of every value that this one depends on.

        Gradients add up over calls, as they add up over the paths of one call; `zero_grad` starts
        anew.  What one call contributes is kept apart, so that a second call does not count the
        first again.
        """
        order = topological_order(self)
        arrived = {id(value): 0.0 for value in order}
        arrived[id(self)] = 1.0
        for value in reversed(order):
            value.grad += arrived[id(value)]
            for x, slope in value.inputs:
                arrived[id(x)] += slope * arrived[id(value)]

    def zero_grad(self) -> None:
        """Set the gradient of this value, and of all that it depends on, back to 0."""
        for value in topological_order(self):
            value.grad = 0.0

    def __add__(self, other: "Operand") -> "Value":
        other = _as_value(other)
        return Value(self.data + other.data, ((self, 1.0), (other, 1.0)), "+")

    def __mul__(self, other: "Operand") -> "Value":
        other = _as_value(other)
        return Value(self.data * other.data, ((self, other.data), (other, self.data)), "×")

    def __pow__(self, n: Number) -> "Value":
        slope = n * self.data ** (n - 1) if n else 0.0
        return Value(self.data**n, ((self, slope),), f"^{n:g}")

    def exp(self) -> "Value":
        """Return e^this, which is its own slope."""
        result = math.exp(self.data)
        return Value(result, ((self, result),), "exp")

    def log(self) -> "Value":
        """Return the natural logarithm; its slope is 1 / this.

        Raises:
            ValueError: if the number is not positive.
        """
        if self.data <= 0:
            raise ValueError(f"log needs a positive number, got {self.data}")
        return Value(math.log(self.data), ((self, 1 / self.data),), "log")

    def tanh(self) -> "Value":
        """Return the hyperbolic tangent; its slope is 1 - tanh^2."""
        result = math.tanh(self.data)
        return Value(result, ((self, 1 - result**2),), "tanh")

    def relu(self) -> "Value":
        """Return this where positive, else 0; the slope at 0 is 0, as in torch."""
        positive = self.data > 0
        return Value(self.data if positive else 0.0, ((self, float(positive)),), "relu")

    # Everything else is made of these.
    __radd__, __rmul__ = __add__, __mul__  # 2 + x and 2 * x ask the number first, then x

    def __neg__(self) -> "Value":
        return self * -1.0

    def __sub__(self, other: "Operand") -> "Value":
        return self + -_as_value(other)

    def __rsub__(self, other: Number) -> "Value":
        return -self + other

    def __truediv__(self, other: "Operand") -> "Value":
        return self * _as_value(other) ** -1

    def __rtruediv__(self, other: Number) -> "Value":
        return self**-1 * other


Operand = Union[Value, int, float]  # noqa: UP007 - Value | int is not defined before Value is


def _as_value(number: Operand) -> Value:
    """Return a plain number as a value without inputs."""
    return number if isinstance(number, Value) else Value(number)
