"""A run in several processes: the same loop on every rank, one of which writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from llmcourse.base import runtime
from llmcourse.base.command_line import STOP
from llmcourse.base.lock import locked
from llmcourse.parallel import world
from llmcourse.train.config import TrainConfig
from llmcourse.train.layout_settings import MeshRanks
from llmcourse.train.layouts import layout_on
from llmcourse.train.loop import begin_run, fit_in_locked
from llmcourse.train.prepare import prepare, verify
from llmcourse.train.run import new_run, restored
from llmcourse.train.saved import saved_config
from llmcourse.train.signals import StopRequest, interruptible
from llmcourse.train.validation import Validation


class RanksResult(NamedTuple):
    """What a run on several ranks leaves behind, besides its folder."""

    steps_done: int
    interrupted: bool
    losses: list[float]
    validations: dict[int, Validation]
    num_messages: list[int]
    """Collectives called, by rank."""
    best: tuple[int, float] | None
    """With patience, the step with the lowest validation loss, and that loss."""


def fit_on_ranks(
    config: TrainConfig,
    folder: str | Path,
    *,
    show: Callable[[str], None] | None = None,
    timeout_s: int | float = 60.0,
    asked: StopRequest | None = None,
) -> RanksResult:
    """Start a run on the processes of its layout in `folder`; train to the end or Ctrl-C.

    Args:
        config: of the run.
        folder: a new one.
        show: prints validations and samples.
        timeout_s: how long a rank may keep others waiting.
        asked: hears the signals that end the run early; None listens to Ctrl-C.

    Raises:
        ValueError: if the folder already holds a run.
        RankError: if a rank fails.
    """
    folder = Path(folder)
    config, _ = begin_run(config, folder)  # once, before anybody reads it
    return _run(config, folder, resumed=False, show=show, timeout_s=timeout_s, asked=asked)


def resume_on_ranks(
    folder: str | Path,
    *,
    steps: int | None = None,
    show: Callable[[str], None] | None = None,
    timeout_s: int | float = 60.0,
    asked: StopRequest | None = None,
    **layout: Any,
) -> RanksResult:
    """Continue a run of any layout from its newest intact checkpoint, in this one.

    Args:
        folder: where the run was started.
        steps: a new total; None keeps the old one.
        show: prints validations and samples.
        timeout_s: how long a rank may keep others waiting.
        asked: hears the signals that end the run early; None listens to Ctrl-C.
        layout: settings that say where the run goes on, such as ranks, parallel, or mesh and
            micro_batches; see `TrainConfig.moved`.  None keeps what there was.

    Raises:
        ValueError: if there is no run, no intact checkpoint, or the settings do not fit.
        RankError: if a rank fails.
    """
    folder = Path(folder)
    config, _ = saved_config(folder, steps=steps, **layout, engine="own")
    verify(prepare(config, folder / "data"))
    return _run(config, folder, resumed=True, show=show, timeout_s=timeout_s, asked=asked)


def _run(
    config: TrainConfig,
    folder: Path,
    *,
    resumed: bool,
    show: Callable[[str], None] | None,
    timeout_s: int | float,
    asked: StopRequest | None,
) -> RanksResult:
    """Train on ranks; the first signal asks them to save and end."""
    stop = folder / STOP
    asked = asked or StopRequest(listens=True)
    with locked(folder), interruptible(asked):
        stop.unlink(missing_ok=True)
        asked.on_press, asked.listens = stop.touch, True
        results = world.run(
            _fit_one,
            config.layout.num_ranks,
            config,
            folder,
            resumed,
            show,
            mesh=config.layout.split().sizes if isinstance(config.layout, MeshRanks) else None,
            timeout_s=timeout_s,
        )
        stop.unlink(missing_ok=True)
    return results[0]._replace(num_messages=[each.num_messages[0] for each in results])


def _fit_one(
    rank: world.Rank,
    config: TrainConfig,
    folder: Path,
    resumed: bool,
    show: Callable[[str], None] | None,
) -> RanksResult:
    """Be one rank of the run."""
    runtime.set_up(num_threads=config.num_threads, seed=config.seed)
    layout = layout_on(rank, config)
    if resumed:
        run = restored(folder, config, layout=layout)
    else:
        run = new_run(config, folder, prepare(config, folder / "data"), layout=layout)
    if not run.layout.is_first:
        show = None
    result = fit_in_locked(run, show=show, interrupted=(folder / STOP).exists)
    losses = [report.loss for report in result.reports]
    return RanksResult(
        run.steps_done,
        result.interrupted,
        losses,
        result.validations,
        [len(rank.messages)],
        result.best,
    )
