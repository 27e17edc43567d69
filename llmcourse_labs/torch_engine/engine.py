"""The same run on torch's own engine: DDP, FSDP2 and Distributed Checkpoint, under torchrun.

Ours is there to be read, on one machine; torch's goes to as many machines as there are.  Settings,
data, order of batches, loop and checkpoints are the same, so a run may change from one to the other
at any checkpoint.

Source: https://docs.pytorch.org/docs/stable/elastic/run.html for what torchrun tells its processes.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from llmcourse import checkpoint as checkpoints
from llmcourse.base import runtime
from llmcourse.base.command_line import STOP
from llmcourse.base.lock import locked
from llmcourse.checkpoint.state import checked
from llmcourse.parallel.world.errors import is_consequence
from llmcourse.parallel.world.worker import LOOPBACK
from llmcourse.train.config import TrainConfig
from llmcourse.train.loop import FitResult, begin_run, fit_in_locked
from llmcourse.train.prepare import prepare, verify
from llmcourse.train.run import Run, new_run, restored, with_steps
from llmcourse.train.saved import as_value_error, begun_with, require_same_run, require_step
from llmcourse.train.signals import GoneError, StopRequest, interruptible
from llmcourse_labs.torch_engine import dcp
from llmcourse_labs.torch_engine.layout import TorchLayout, TorchSharded

TIMEOUT = timedelta(minutes=5)
"""How long a rank waits for others before it fails, and torchrun starts all of them again."""
LEASE_S = 120.0
"""How long a run on several machines waits for the lock of its folder: more than a lease of NFS."""
log = logging.getLogger(__name__)


def fit_under_torchrun(
    config: TrainConfig,
    folder: str | Path,
    *,
    show: Callable[[str], None] | None = None,
    asked: StopRequest | None = None,
) -> FitResult:
    """Be one of torchrun's processes: start the run in `folder`, or go on with it, and train.

    After a failure torchrun starts the same command again, on this or another number of processes:
    the run goes on from its newest intact checkpoint, whichever engine and layout has written it.

    Args:
        config: of the run; `ranks` is torchrun's business and is replaced.
        folder: of the run, which every machine sees.
        show: prints validations and samples on the first rank.
        asked: hears the signals that end the run early; None listens to Ctrl-C.

    All ranks save and end when one of them is asked to, or the file `STOP` appears in the folder.
    torchrun sends SIGTERM also when a rank has died.  Then there is nothing to save: the ranks
    cannot agree any more.

    Raises:
        ValueError: if the folder holds a run of other settings.
        GoneError: if a signal came and another rank did not answer any more.
    """
    folder = Path(folder)
    config = config.replace(ranks=num_processes(), engine="torch")
    runtime.set_up(num_threads=config.num_threads, seed=config.seed)
    stop = folder / STOP
    # A machine that is gone may hold the lock of the attempt before for a while.
    wait_s = LEASE_S if _on_several_machines() else 0.0
    with contextlib.ExitStack() as stack:
        is_asked = stack.enter_context(interruptible(asked))
        stack.enter_context(_process_group(config))
        first = dist.get_rank() == 0
        _first_alone(lambda: stack.enter_context(locked(folder, wait_s=wait_s)), first)
        _first_alone(lambda: _prepared(config, folder), first)
        config = with_steps(config, prepare(config, folder / "data"))
        run = _at_newest(config, folder)
        try:
            result = fit_in_locked(
                run,
                show=show if first else None,
                interrupted=lambda: is_asked() or (first and stop.exists()),
            )
        except RuntimeError as error:
            if is_asked.by is None or not is_consequence(str(error)):
                raise
            raise GoneError(is_asked.by) from error
        if first:
            stop.unlink(missing_ok=True)
        return result


def num_processes() -> int:
    """Return how many processes torchrun has started on all machines; 1 without torchrun."""
    return dist.get_world_size() if dist.is_initialized() else int(os.getenv("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the first of torchrun's processes, which speaks and writes for all."""
    return os.getenv("RANK", "0") == "0"


@contextlib.contextmanager
def _process_group(config: TrainConfig) -> Iterator[None]:
    """Meet the other processes, if that is not done: over NCCL for GPUs, over gloo for CPUs."""
    if dist.is_initialized():
        yield
        return
    local = int(os.getenv("LOCAL_RANK", "0"))
    if runtime.device(config.layout.device).type == "cuda":
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    else:
        backend = "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT, **_meeting_place())
    try:
        yield
    finally:
        # The group's thread may still want Python's lock, to drop the tensors of what it did last;
        # whoever drops the group holds the lock, and would wait for that thread without end.
        time.sleep(0.05)
        dist.destroy_process_group()


def _meeting_place() -> dict[str, Any]:
    """Return where the processes meet, for `init_process_group`.

    torchrun keeps one store for all its attempts, in which the addresses of ended processes stay
    behind: a new one that reads them waits for ever.  On one machine the names of each attempt are
    kept apart.  Several machines do not agree on the number of the attempt.
    """
    if "MASTER_ADDR" not in os.environ:  # not under torchrun
        return {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    shares = os.getenv("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if _on_several_machines():
        if shares and os.getenv("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
            raise ValueError(
                "restarts on several machines need a new store each time: set "
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun on every machine"
            )
        return {}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    store, rank, size = next(dist.rendezvous("env://"))
    attempt = dist.PrefixStore(f"attempt_{os.getenv('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    return {"store": attempt, "rank": rank, "world_size": size}


def _on_several_machines() -> bool:
    return os.getenv("LOCAL_WORLD_SIZE") != os.getenv("WORLD_SIZE")


def _first_alone(work: Callable[[], object], first: bool) -> None:
    """Let the first rank do something that the others need; an error of it is raised by all."""
    error: Exception | None = None
    if first:
        try:
            work()
        except (ValueError, OSError) as raised:
            error = raised
    told = [error]
    dist.broadcast_object_list(told)
    if told[0] is not None:
        raise told[0]


def _prepared(config: TrainConfig, folder: Path) -> None:
    """Begin the folder of a run, or see that it holds this one."""
    begun = begun_with(folder)
    if begun is None:
        begin_run(config, folder)
        return
    require_same_run(begun, config.replace(epochs=0.0).flat(), folder)  # saved as steps
    verify(prepare(config, folder / "data"))


def _at_newest(config: TrainConfig, folder: Path) -> Run:
    """Build the run where its newest intact checkpoint stands, or at its beginning."""
    told = [checkpoints.latest(folder / "checkpoints") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(told)
    newest = told[0]
    layout = TorchSharded if config.layout.parallel == "fsdp" else TorchLayout
    if newest is not None and newest.suffix != ".dcp":  # of the course's own engine
        return restored(folder, config, layout=layout)
    run = new_run(config, folder, prepare(config, folder / "data"), layout=layout)
    if newest is not None:
        assert isinstance(run.layout, TorchLayout)  # as `layout` makes it
        _read_into(run, run.layout, newest)
    return run


def _read_into(run: Run, layout: TorchLayout, path: Path) -> None:
    """Fill a run that is spread out: every rank reads what it keeps."""
    index = dcp.read_index(path)
    saved = checked(index["content"])
    data, optimizer = saved.data or {}, saved.optimizer or {}  # without them there are no keys
    with as_value_error(path):
        require_step(saved.step, data["step"])
        require_same_run(saved.config, run.config.flat(), path)
    tensors = layout.tensors(fill=True)
    ours, theirs = {n: list(t.shape) for n, t in tensors.items()}, index["shapes"]
    if ours != theirs:
        wrong = min(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
        raise ValueError(
            f"{path}: {wrong} has shape {theirs.get(wrong)} there and {ours.get(wrong)} here"
        )
    if saved.step > run.config.steps:
        raise ValueError(
            f"steps must be at least the {saved.step} already done, got {run.config.steps}"
        )
    dcp.read_into(path, tensors)
    with as_value_error(path):
        layout.set_counts(optimizer["state"])
        run.batches.load_state_dict(data)
        for name, generator in run.generators.items():
            generator.set_state(saved.generators[name])
        runtime.restore_global_rng_state(saved.global_rng)
    run.steps_done = saved.step
    log.info("going on after step %d from %s", run.steps_done, path.name)
