"""The order in which a backward pass may visit a graph."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable

Node = TypeVar("Node", bound="_HasInputs")


@runtime_checkable
class _HasInputs(Protocol):
    @property
    def inputs(self: Node) -> Iterable[tuple[Node, Any]]:
        """Pairs of a node and what leads back to it."""


def topological_order(result: Node) -> list[Node]:
    """List what a result was computed from, each node after all of its inputs; the result is last.

    Backward runs through the list from its end: when a node's turn comes, everything that uses it
    has already added its share to the node's gradient.

    A depth-first walk with a stack of its own, since a long chain would exceed Python's limit of
    nested calls.

    Args:
        result: where the walk starts, such as a loss.  Every node has `inputs`, pairs of a node
            and what leads back to it.

    Source:
        Cormen et al., Introduction to Algorithms, section "Topological sort".
    """
    order = []
    seen = {id(result)}
    stack = [(result, iter(result.inputs))]
    while stack:
        node, untried = stack[-1]
        x = next((x for x, _ in untried if id(x) not in seen), None)
        if x is None:  # all of its inputs are listed
            order.append(node)
            stack.pop()
        else:
            seen.add(id(x))
            stack.append((x, iter(x.inputs)))
    return order
