"""The gradients of matrices, left for later: the second half of a zero-bubble backward pass."""

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.pairs import matmul_nt
from llmcourse.model import ops
from llmcourse.model.ops import LinearSaved


class WeightQueue:
    """What one backward pass has left for later, see `deferred_weight_grads`."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Tensor, LinearSaved]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, dy_BTF: Float[Tensor, "*B F"], saved: LinearSaved) -> bool:
        """Keep what the gradient of a matrix is made of; return whether that can be done.

        It can for a parameter, and for a parameter that autocast has rounded.
        """
        parameter = _parameter_of(saved.w_FD)
        if parameter is not None:
            self._waiting.append((parameter, dy_BTF, saved))
        return parameter is not None

    @torch.no_grad()
    def run(self) -> None:
        """Compute what was left, add it to the `.grad` of the parameters, and forget it.

        The sums are made in the order of an ordinary backward pass: a parameter that was used
        several times first adds its uses up.
        """
        waiting, self._waiting = self._waiting, []
        uses_left: dict[int, int] = {}
        for parameter, *_ in waiting:
            uses_left[id(parameter)] = uses_left.get(id(parameter), 0) + 1
        totals: dict[int, Tensor] = {}
        for parameter, dy_BTF, saved in waiting:
            dw_FD, key = _weight_gradient(dy_BTF, saved).to(parameter.dtype), id(parameter)
            totals[key] = totals[key] + dw_FD if key in totals else dw_FD
            uses_left[key] -= 1
            if not uses_left[key]:
                torch.autograd.backward(parameter, totals.pop(key))  # hooks run, as they would


@contextlib.contextmanager
def deferred_weight_grads() -> Iterator[WeightQueue]:
    """Let the backward pass of `ops.linear` compute the gradient of its input alone.

    Inside, ``loss.backward()`` fills the queue; ``queue.run()``, some time later, does the other
    half of the work.  Together they add to every `.grad` what one backward pass adds, bit for bit.
    Norms' gains, the embedding, and matrices that were computed from a parameter (other than by
    autocast) get their gradients at once, as do those inside `recompute`.

    Raises:
        RuntimeError: inside another `deferred_weight_grads`: a queue holds one backward pass.
    """
    if ops.defer_weight_grad:
        raise RuntimeError(
            "deferred_weight_grads() inside deferred_weight_grads(): leave the first one before"
        )
    queue = WeightQueue()
    ops.defer_weight_grad.append(queue.put)
    try:
        yield queue
    finally:
        ops.defer_weight_grad.clear()


def _weight_gradient(dy_BTF: Float[Tensor, "*B F"], saved: LinearSaved) -> Float[Tensor, "F D"]:
    x_ND = saved.x_BTD.reshape(-1, saved.x_BTD.shape[-1])
    return matmul_nt(dy_BTF.reshape(-1, dy_BTF.shape[-1]).T, x_ND.T)


def _parameter_of(w_FD: Float[Tensor, "F D"]) -> Tensor | None:
    """Return the parameter that a weight is, or is rounded from; None if it is neither."""
    if not w_FD.requires_grad:
        return None
    if w_FD.grad_fn is None:  # a leaf
        # Under hooks for saved tensors this is another object than the parameter; the node of the
        # graph that adds to its `.grad` knows the one that it belongs to.
        node = torch.autograd.graph.get_gradient_edge(w_FD).node
        return cast(Any, node).variable  # torch hides the attribute
    if w_FD.grad_fn.name() != "ToCopyBackward0":
        return None
    return getattr(w_FD.grad_fn.next_functions[0][0], "variable", None)
