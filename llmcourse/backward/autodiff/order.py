"""The order in which a backward pass may visit a graph."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Node = TypeVar("Node")


def topological_order(root: Node, parents: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """Return every node that `root` depends on, each after all of its own parents; `root` is last.

    Backward runs through the list from its end: when a node's turn comes, everything that uses it
    has already added its share to the node's gradient.

    A depth-first walk with a stack of its own, since a long chain would exceed Python's limit of
    nested calls.

    Args:
        root: where the walk starts, such as a loss.
        parents: returns the nodes that a node was computed from.

    Source:
        Cormen et al., Introduction to Algorithms, section "Topological sort".
    """
    order: list[Node] = []
    seen = {id(root)}
    stack = [(root, iter(parents(root)))]
    while stack:
        node, untried = stack[-1]
        parent = next((p for p in untried if id(p) not in seen), None)
        if parent is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(id(parent))
            stack.append((parent, iter(parents(parent))))
    return order
