"""Ranks for the tests of this folder: one pool of each size for all of them, clean every time."""

import contextlib
import gc
import inspect
import operator
import os
import random
import shutil
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d

from llmcourse import checkpoint, train
from llmcourse.parallel import world

TIMEOUT_S = 120
"""How long a rank may keep others waiting.  Tests that wait for this have a pool of their own."""


class Pools:
    """One pool for each number of ranks, started when it is first asked for, whatever the mesh."""

    def __init__(self) -> None:
        self._made: dict[int, world.Pool] = {}

    def __call__(self, num_ranks: int, mesh: Mapping[str, int] | None = None) -> "Ranks":
        """Return ranks laid out on a mesh, which is one axis "dp" if it is not given."""
        if num_ranks not in self._made:
            self._made[num_ranks] = world.Pool(num_ranks, timeout_s=TIMEOUT_S)
        return Ranks(self._made[num_ranks], dict(mesh or {"dp": num_ranks}))

    def close(self) -> None:
        for pool in self._made.values():
            pool.close()


class Ranks:
    """Processes of the session, on a mesh for one test.

    After a program that fails they are ended, and the next one gets new ones: see `world.Pool`.
    """

    def __init__(self, pool: world.Pool, mesh: dict[str, int]) -> None:
        self.pool, self.mesh = pool, mesh

    def run(self, fn: Callable[..., Any], *args, mutant: Any = None, **settings) -> world.Results:
        """Let every rank call ``fn(rank, *args, **settings)`` as if its process had just begun.

        With a mutant, one of ``MUTANTS`` of the function's module is in force while it runs, unless
        the function takes its name.
        """
        if "mutant" in inspect.signature(fn).parameters:
            settings, mutant = settings | {"mutant": mutant}, None
        return self.pool.run(_clean_run, fn, self.mesh, args, settings, mutant=mutant)


def _clean_run(rank: world.Rank, fn, mesh, args, settings, *, mutant) -> Any:
    """Forget what earlier programs have left behind, and run one on a mesh of its own."""
    _leave_groups()
    State.of_this_process().restore()
    stack_dump = rank.world._whereabouts
    stack_dump.write(f"in {getattr(fn, '__name__', 'its function')}")
    here = world.Rank(rank.index, mesh, messages=rank.messages, stack_dump=stack_dump)
    broken = sys.modules[fn.__module__].MUTANTS[mutant]() if mutant else contextlib.nullcontext()
    with broken:
        return fn(here, *args, **settings)


def _leave_groups() -> None:
    """Destroy the groups of earlier meshes: each has threads that wake a hundred times a second."""
    for group in list(distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


class State:
    """What a program finds and might change, as it is in a new process."""

    _first: "State | None" = None

    @classmethod
    def of_this_process(cls) -> "State":
        if cls._first is None:
            cls._first = cls()
        return cls._first

    def __init__(self) -> None:
        self.environment, self.folder = dict(os.environ), os.getcwd()  # noqa: PTH109
        self.attributes: dict[Any, dict[str, Any]] = {}
        self.num_modules, self.owners = 0, []
        gc.freeze()  # so that collections look at nothing but what programs have left

    def restore(self) -> None:
        """Take back seeds, torch's settings, the environment, and patches of the package."""
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.set_autocast_enabled("cpu", False)
        torch.set_deterministic_debug_mode("default")
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        os.chdir(self.folder)
        self._restore_package()
        gc.collect()  # what nobody holds may have threads and hooks

    def _restore_package(self) -> None:
        """Put back every attribute of modules and classes that somebody replaced."""
        if len(sys.modules) != self.num_modules:
            self.num_modules, self.owners = len(sys.modules), _owners()
        for owner in self.owners:
            now = vars(owner)
            before = self.attributes.setdefault(owner, dict(now))  # as imported, perhaps since
            if len(now) == len(before) and all(map(operator.is_, now.values(), before.values())):
                continue
            for name, value in before.items():
                if now.get(name, self) is not value:
                    setattr(owner, name, value)
            for name in now.keys() - before.keys():
                if not (name.startswith("__") or isinstance(now[name], types.ModuleType)):
                    delattr(owner, name)


def _owners() -> list[Any]:
    modules = [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "llmcourse"]
    return modules + [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def axis(size: int = 1, name: str = "dp") -> world.Axis:
    """Return an axis as its first rank sees it, in this process: with one rank, nothing is sent."""
    return world.Axis(name, tuple(range(size)), 0, group=None, messages=[])


def patched(*targets: Any, **values: Any) -> Callable[[], contextlib.AbstractContextManager]:
    """Return what puts other values into attributes of each target while it lasts, when called."""

    @contextlib.contextmanager
    def patches():
        with contextlib.ExitStack() as stack:
            for target in targets:
                stack.enter_context(mock.patch.multiple(target, **values))
            yield

    return patches


def equal(ours: Any, theirs: Any) -> bool:
    """Whether two trees of arrays, tensors and numbers are bitwise equal."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(equal(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    if isinstance(theirs, Tensor | np.ndarray):
        a, b = np.asarray(ours), np.asarray(theirs)
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return ours == theirs


def error(ours: Any, theirs: Any) -> float:
    """Return the largest difference, relative to the largest entry of the reference."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    largest = np.abs(theirs).max(initial=0)
    assert largest > 0, "the reference is 0 everywhere"
    return float(np.abs(ours - theirs).max() / largest)


def losses_of(result: Any) -> list[float]:
    return [report.loss for report in result.reports]


def saved_in(folder: Path) -> Any:
    return checkpoint.load(checkpoint.latest(folder / "checkpoints"))


def assert_close_states(saved: Any, reference: Any) -> None:
    """Weights and moments by the same names and numbers, equal up to AdamW's small roots."""
    assert list(saved.model) == list(reference.model)
    for name, x in reference.model.items():
        torch.testing.assert_close(saved.model[name], x, rtol=0, atol=2e-3 * x.abs().max())
    groups, expected = saved.optimizer["param_groups"], reference.optimizer["param_groups"]
    assert [g["params"] for g in groups] == [g["params"] for g in expected]
    for number, state in reference.optimizer["state"].items():
        mine = saved.optimizer["state"][number]
        assert mine["step"] == state["step"]
        for name, x in state.items():
            if isinstance(x, torch.Tensor) and x.ndim:
                torch.testing.assert_close(mine[name], x, rtol=0, atol=2e-3 * x.abs().max())


def assert_runs_as(alone: Any, result: Any, folder: Path) -> None:
    steps = len(alone.reports)
    assert result.steps_done == steps
    np.testing.assert_allclose(result.losses, losses_of(alone), rtol=1e-5)
    assert min(result.num_messages) > 0
    last, expected = (each.validations[steps].nats_per_token for each in (result, alone))
    np.testing.assert_allclose(last, expected, rtol=1e-5)
    saved, reference = saved_in(folder), saved_in(alone.run.folder)
    assert_close_states(saved, reference)
    assert saved.data == reference.data
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == steps  # one rank writes for all


def assert_resumes_bit_for_bit(uninterrupted: Any, whole: Path, folder: Path) -> None:
    """Go on in a copy of a run on ranks, from half of it, and assert that nothing is different."""
    assert train.resume_on_ranks(halfway(whole, folder)).losses == uninterrupted.losses[3:]
    assert equal(saved_in(folder).model, saved_in(whole).model)


def halfway(folder: Path, copy: Path) -> Path:
    """Copy a finished run, and take its last checkpoint away, be it a file or a folder of parts."""
    shutil.copytree(folder, copy)
    last = checkpoint.latest(copy / "checkpoints")
    shutil.rmtree(last) if last.is_dir() else last.unlink()
    return copy


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}
