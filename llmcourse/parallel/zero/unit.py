"""A unit of stage 3: a module whose parameters are gathered together, and when that happens.

Gathered before the module's forward pass, freed after it; gathered again when backward comes to
what the module returned, and freed when backward has left it.

Taught in: chapters/24_zero.ipynb
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, register_multi_grad_hook

from llmcourse.parallel.zero.row import FlatRow


class Backward:
    """What the units of a model share about the backward passes that are going on."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.sync = True
        """Whether gradients are reduced; else they are left whole, to be added up."""
        self._passes: set[int] = set()

    def running(self) -> bool:
        """Whether this is called from inside a backward pass."""
        return torch._C._current_graph_task_id() != -1  # as torch.utils.checkpoint does

    def enter(self) -> None:
        """Note the backward pass that is running, and see to its end."""
        number = torch._C._current_graph_task_id()
        if number not in self._passes:
            self._passes.add(number)
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._leave, number))

    def forget(self) -> None:
        """Forget the passes that were broken off by an error."""
        self._passes.clear()

    def _leave(self, number: int) -> None:
        """Leave nothing gathered, and no gradient that was kept by an earlier pass."""
        self._passes.discard(number)
        if self._passes:
            return  # a backward pass inside another one
        for unit in self.units:
            unit.reset()
            for row in unit.rows if self.sync else ():
                if row.row.grad is not None:
                    row.reduce()


class Unit:
    """Gathers the rows of a module when it is called, and again when backward comes to it.

    Args:
        module: whose calls to watch.
        rows: its parameters, those of units inside left out.
        dtype: to which the floating-point numbers that it is given are cast; None leaves them.
        nested: whether there are units inside.
        backward: shared by all units of a model.
    """

    def __init__(
        self,
        module: nn.Module,
        rows: Sequence[FlatRow],
        *,
        dtype: torch.dtype | None,
        nested: bool,
        backward: Backward,
    ) -> None:
        self.rows = list(rows)
        self._dtype, self._nested, self._backward = dtype, nested, backward
        self._holds = 0
        """Calls that have not returned, and other reasons to keep all rows."""
        self._calls: set[object] = set()
        """Calls that backward has entered and not left."""
        self._waiting: set[FlatRow] = set()
        """Rows whose gradient is not complete."""
        self._late = False
        """Whether frozen rows are needed, perhaps, until the end of the backward pass."""
        backward.units.append(self)
        for row in self.rows:
            if row.trained:
                row.row.register_post_accumulate_grad_hook(partial(self._complete, row))
        module.register_forward_pre_hook(self._before_forward, with_kwargs=True)
        module.register_forward_hook(self._after_forward, with_kwargs=True, always_call=True)

    def hold(self) -> None:
        """Gather all rows, and keep them until `let_go`."""
        self._holds += 1
        for row in self.rows:
            row.gather()

    def let_go(self) -> None:
        """Take one `hold` back."""
        self._holds -= 1
        self._release()

    def reset(self) -> None:
        """Forget a backward pass that is over, or was broken off."""
        self._calls.clear()
        self._waiting.clear()
        self._late = False
        self._release()

    def _before_forward(self, _: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        if not self._holds and not self._backward.running():
            self._backward.forget()
            self.reset()  # what an error left behind would be out of date
        self.hold()
        if self._dtype is None:
            return None
        return _cast(args, self._dtype), _cast(kwargs, self._dtype)

    def _after_forward(self, _: nn.Module, args: tuple, kwargs: dict, out: Any) -> None:
        self.let_go()
        if not torch.is_grad_enabled():
            return
        call = object()
        given = [x for x in tensors_in((args, kwargs)) if x.requires_grad]
        if any(x.is_leaf for x in given):
            given = []  # hooks on leaves do not work in every kind of backward pass
        for node in _nodes_behind(tensors_in(out, strict=True), given):
            node.register_prehook(partial(self._before_backward, call, bool(given)))
        if given:
            register_multi_grad_hook(given, partial(self._after_backward, call))

    def _before_backward(self, call: object, has_end: bool, _: Sequence[Tensor | None]) -> None:
        """Backward has come to something that the module returned."""
        self._backward.enter()
        if has_end:
            self._calls.add(call)
        self._waiting.update(row for row in self.rows if row.trained)
        self._late = self._late or self._nested or not has_end
        for row in self.rows:
            row.gather()

    def _after_backward(self, call: object, _: Sequence[Tensor | None]) -> None:
        """Backward has found the gradients of all that the module was given."""
        self._calls.discard(call)
        self._release()

    def _complete(self, row: FlatRow, _: Tensor) -> None:
        """Backward has found the gradient of a row."""
        self._waiting.discard(row)
        if self._backward.sync:
            row.reduce()
        self._release()

    def _release(self) -> None:
        """Free the rows that nothing is going to read.

        What reads a trained row in backward also finds a part of its gradient.  A frozen one has no
        gradient that could be complete, so it waits for the gradients of all else.
        """
        if self._holds:
            return
        frozen_stay = self._waiting or self._calls or self._late
        for row in self.rows:
            if row not in self._waiting if row.trained else not frozen_stay:
                row.free()


def _nodes_behind(returned: Iterable[Tensor], given: Sequence[Tensor]) -> set[Node]:
    """Return the steps of backward that come first, of those that made what a module returned.

    When a view is changed in place later on, its own step is replaced; that of its base is not.
    """
    not_made = {id(x) for x in given} | {id(x._base) for x in given}
    nodes = set()
    for x in returned:
        nodes.add(x.grad_fn)
        if x._base is not None and id(x._base) not in not_made:
            nodes.add(x._base.grad_fn)
    return nodes - {None}


def tensors_in(x: Any, *, strict: bool = False) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, dicts and dataclasses.

    Args:
        x: to look through.
        strict: whether to refuse what may hide a tensor.

    Raises:
        TypeError: if `strict`, and there is an object of another kind.
    """
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, Mapping):
        yield from tensors_in(list(x.values()), strict=strict)
    elif isinstance(x, list | tuple):
        for each in x:
            yield from tensors_in(each, strict=strict)
    elif is_dataclass(x) and not isinstance(x, type):
        yield from tensors_in([getattr(x, field.name) for field in fields(x)], strict=strict)
    elif strict and not isinstance(x, bool | int | float | complex | str | bytes | None):
        raise TypeError(
            f"a unit returned a {type(x).__name__}, which may hide tensors from backward: return "
            "tensors, or tuples, lists, dicts or dataclasses of them"
        )


def _cast(x: Any, dtype: torch.dtype) -> Any:
    """Return nested tuples, lists and dicts with the floating-point tensors in them cast."""
    if isinstance(x, Tensor):
        return x.to(dtype) if x.is_floating_point() else x
    if isinstance(x, dict):
        return {key: _cast(value, dtype) for key, value in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_cast(each, dtype) for each in x))
    return type(x)(_cast(each, dtype) for each in x) if type(x) in (list, tuple) else x
