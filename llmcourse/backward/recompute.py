"""Activation checkpointing: forget what the forward pass saved, and compute it again in backward.

Autograd keeps, for every operation, the tensors that its backward pass needs.  `recompute` keeps
the inputs of a whole function in their place, and runs the function a second time when backward
asks for the first of those tensors.  Memory falls, work rises, and every gradient stays the same to
the last bit.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from llmcourse.loss import cross_entropy

Policy = Literal["block", "attention", "cheap"]
"""What is computed again: whole blocks; the attention of each block alone; or what costs no matrix
product, the outputs of the norms and the gated hidden units."""

_counting: list[Callable[[Tensor], Any]] = []
"""Of `saved_bytes`: told of what `_Cheap` keeps, whose hooks come before its own."""


def recompute(
    fn: Callable[..., Any], *args: Any, generators: Sequence[torch.Generator] = (), **settings: Any
) -> Any:
    """Return ``fn(*args, **settings)``, keeping for its backward pass the arguments alone.

    The second run happens as the first did: with the same random numbers of torch's global
    generator (on the CPU) and of `generators`, which afterwards go on where they were, and under
    the same autocast.

    Args:
        fn: a function of tensors; its result depends on the arguments, the parameters that it
            closes over and the generators alone.
        args: passed on; tensors among them are kept.
        generators: generators that fn draws from, besides the global one.
        settings: passed on by name.

    Raises:
        RuntimeError: in backward, if an argument was changed in place since, or the second run
            does not save tensors of the same shapes as the first.

    Source:
        Chen et al. 2016, https://arxiv.org/abs/1604.06174
    """
    as_before = _circumstances(args, generators)
    versions = [_version(x) for x in args]
    first: list[torch.Size] = []  # of the tensors that the first run would have kept
    again: list[Tensor] = []

    def note(x: Tensor) -> int:
        first.append(x.shape)
        return len(first) - 1

    def fetch(index: int) -> Tensor:
        if not again:
            if versions != [_version(x) for x in args]:
                raise RuntimeError("an argument was changed in place after recompute kept it")
            with as_before():
                again.extend(_saved_by(fn, args, settings))
        if first != [x.shape for x in again]:
            raise RuntimeError(
                f"the first run saved {len(first)} tensors, the second {len(again)}, or of other "
                "shapes: the function depends on more than its arguments, parameters and generators"
            )
        return again[index]

    with saved_tensors_hooks(note, fetch):
        return fn(*args, **settings)


def _saved_by(fn: Callable[..., Any], args: tuple, settings: dict[str, Any]) -> list[Tensor]:
    """Run fn once more on its own, and return the tensors that autograd saves on the way."""
    saved: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        saved.append(x.detach())
        return x.detach()

    # Detached, so that the second run is no part of the graph that backward is walking through.
    args = tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in args
    )
    with torch.enable_grad(), saved_tensors_hooks(keep, lambda x: x):
        fn(*args, **settings)
    return saved


def _version(x: Any) -> int:
    """Return how often a tensor was changed in place, 0 for anything else."""
    return x._version if isinstance(x, Tensor) else 0


def _circumstances(
    args: tuple, generators: Sequence[torch.Generator]
) -> Callable[[], contextlib.AbstractContextManager]:
    """Note the generators and autocast as they are; return a context that brings them back."""
    states = _states(generators)
    device = next((x.device.type for x in args if isinstance(x, Tensor)), "cpu")
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    @contextlib.contextmanager
    def as_before() -> Iterator[None]:
        now = _states(generators)
        _set(states, generators)
        try:
            with torch.autocast(device, dtype, enabled=enabled):
                yield
        finally:
            _set(now, generators)

    return as_before


def _states(generators: Sequence[torch.Generator]) -> list[Tensor]:
    """Return the state of torch's global generator, and of the others."""
    return [torch.get_rng_state(), *(each.get_state() for each in generators)]


def _set(states: list[Tensor], generators: Sequence[torch.Generator]) -> None:
    torch.set_rng_state(states[0])
    for each, state in zip(generators, states[1:], strict=True):
        each.set_state(state)


@contextlib.contextmanager
def recomputed(model: nn.Module, policy: Policy) -> Iterator[nn.Module]:
    """Let a decoder compute part of its forward pass again, while the context lasts.

    Args:
        model: a `Transformer`, or another module with `blocks` that have an `attention`.
        policy: "block" keeps the input of each block alone; "attention" saves all but what
            attention does inside; "cheap" keeps the inputs of norms and of the gate's product, and
            makes their outputs again (under autocast, which copies these, nothing is saved).

    Raises:
        ValueError: if there is no such policy, or it is "cheap" and a block has experts.
    """
    if policy not in get_args(Policy):
        raise ValueError(f"policy must be one of {', '.join(get_args(Policy))}, got {policy!r}")
    blocks = list(model.get_submodule("blocks").children())
    if policy == "cheap":
        with contextlib.ExitStack() as stack:
            for block in blocks:
                stack.enter_context(_cheaply(block))
            yield model
        return
    parts = [block if policy == "block" else block.get_submodule("attention") for block in blocks]
    for part in parts:
        dropout = getattr(part, "dropout", None)
        drawn_from = () if dropout is None else (dropout.generator,)
        part.forward = partial(recompute, part.forward, generators=drawn_from)
    try:
        yield model
    finally:
        for part in parts:
            del part.forward  # the class's own again


@contextlib.contextmanager
def _cheaply(block: nn.Module) -> Iterator[None]:
    """Let a block make the outputs of its norms, and its gated hidden units, again in backward."""
    network = block.get_submodule("feed_forward")
    if not hasattr(network, "gated"):
        raise ValueError("policy cheap is for blocks with one feed-forward network, not experts")
    whole, norms = block.forward, ("attention_norm", "feed_forward_norm")
    parts = [*((block.get_submodule(norm), "forward") for norm in norms), (network, "gated")]

    def forward(*args: Any, **settings: Any) -> Any:
        cheap = _Cheap()
        for part, name in parts:
            setattr(part, name, cheap.noting(getattr(type(part), name).__get__(part)))
        try:
            with saved_tensors_hooks(cheap.pack, cheap.unpack):
                return whole(*args, **settings)
        finally:
            for part, name in parts:
                delattr(part, name)

    block.forward = forward
    try:
        yield
    finally:
        del block.forward


class _Cheap:
    """What one run of a block makes by cheap functions, and how to make it again."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[weakref.ref, Callable[[], Tensor]]] = {}
        # By how it is made: how often it is wanted, the tensor, how often it was handed out.
        self.again: dict[Callable, list] = {}

    def noting(self, fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return fn, which from now on notes its results and what they were made of."""

        def noted(*args: Tensor) -> Tensor:
            result = fn(*args)
            memory, inputs = result.untyped_storage(), [x.detach() for x in args]
            self.made[id(memory)] = (weakref.ref(memory), partial(fn, *inputs))
            return result

        return noted

    def pack(self, x: Tensor) -> Any:
        """Keep a tensor, or in place of a cheap one how to make it."""
        memory = x.untyped_storage()
        alive, make = self.made.get(id(memory), (lambda: None, None))
        if make is not None and alive() is memory:  # else another tensor has taken its place
            self.again.setdefault(make, [0, None, 0])[0] += 1
            return make, x.shape
        for count in _counting:
            count(x)
        return x

    def unpack(self, packed: Any) -> Tensor:
        """Return the tensor; the first who asks for a cheap one makes it for all."""
        if isinstance(packed, Tensor):
            return packed
        make, shape = packed
        wanted = self.again[make]
        if wanted[1] is None:
            with torch.no_grad():
                wanted[1] = make()
        result, wanted[2] = wanted[1].view(shape), wanted[2] + 1
        if wanted[2] == wanted[0]:  # all have it; a second backward pass begins anew
            wanted[1:] = None, 0
        return result


def saved_bytes(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, int]:
    """Return the bytes that autograd keeps from forward to backward, by module.

    Each stretch of memory counts once, for the module that saved it first.  Parameters and buffers
    are not counted: they are there anyway.

    Args:
        model: a `Transformer`.
        batch: token ids, and the token that each position is asked for.

    Returns:
        Bytes by the names of `named_modules`, "" for what the model itself saves, and "loss".
    """
    there = {_memory(x) for x in (*model.parameters(), *model.buffers())}
    inside = ["loss"]  # names of the modules that are running, the innermost last
    found: dict[str, int] = {}
    kept: list[Tensor] = []

    def count(x: Tensor) -> Tensor:
        if _memory(x) not in there:
            there.add(_memory(x))
            found[inside[-1]] = found.get(inside[-1], 0) + x.untyped_storage().nbytes()
            kept.append(x)  # or its memory would be given to another tensor
        return x

    def leave(*_: Any) -> None:
        inside.pop()

    def enter(module: nn.Module, given: tuple, *, name: str) -> None:
        inside.append(name)
        if isinstance(vars(module).get("forward"), partial):  # by `recomputed`: keeps its input
            for x in given:
                count(x)

    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(partial(enter, name=name)).remove)
            stack.callback(module.register_forward_hook(leave).remove)
        _counting.append(count)
        stack.callback(_counting.pop)
        with saved_tensors_hooks(count, lambda x: x):
            cross_entropy(model(batch[0]), batch[1])
    return found


def _memory(x: Tensor) -> int:
    """Return where a tensor's memory begins."""
    return x.untyped_storage().data_ptr()
