"""What commands that train have in common: signals, statuses, and what is printed."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jsonargparse import ArgumentParser, Namespace, set_parsing_settings

from llmcourse.base.command_line import ended, fail
from llmcourse.base.settings import Settings, held, settings_of
from llmcourse.data.mixture import MixedBatches
from llmcourse.model.huggingface import obstacle
from llmcourse.parallel.world.errors import RankError
from llmcourse.train.config import TrainConfig
from llmcourse.train.loop import fit
from llmcourse.train.phases import TrainingDivergedError
from llmcourse.train.run import Run
from llmcourse.train.saved import BEST
from llmcourse.train.signals import EVERY, EndedEarlyError, GoneError, StopRequest, interruptible
from llmcourse.train.validation import Validation

HERE = ("steps", "data", "accumulate")
"""Settings that may change in a run that goes on in one process."""

_NO_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory")
"""What torch says when it gets none."""

# The text under each field of the dataclass is the help of its flag.
set_parsing_settings(docstring_parse_attribute_docstrings=True)


@runtime_checkable
class Outcome(Protocol):
    """How a run has ended: `loop.FitResult`, or `ranks.RanksResult`."""

    @property
    def interrupted(self) -> bool: ...  # noqa: D102
    @property
    def validations(self) -> dict[int, Validation]: ...  # noqa: D102
    @property
    def best(self) -> tuple[int, float] | None: ...  # noqa: D102


def status_of(program: str, work: Callable[[StopRequest], int]) -> int:
    """Return the status of a command that trains, as `ended` does.

    A run that is warned by SIGTERM or SIGUSR1 saves and returns 75, `GO_ON`.

    Args:
        program: as which the command speaks, such as "llmcourse train".
        work: trains, and hears the signals that end it early.
    """

    def listening() -> int:
        try:
            with interruptible(StopRequest(listens=False), EVERY) as asked:
                return work(asked)
        except (EndedEarlyError, GoneError) as early:
            fail(program, str(early))
            return early.status
        except RankError as error:
            raise ValueError(f"rank {error.rank}: {error.cause}") from error
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
                said = "this machine has not enough memory: take a smaller model, batch or context"
                raise ValueError(said) from error
            raise

    told = (TrainingDivergedError, ImportError)
    return ended(program, listening, again="a run goes on from what was saved", told=told)


def add_flags(parser: ArgumentParser, kind: type[Settings], skipped: Collection[str] = ()) -> None:
    """Give a parser a flag for each setting of a kind."""
    for name, setting in settings_of(kind).items():
        if name in skipped:
            continue
        if is_dataclass(setting.hint):
            parser.add_class_arguments(setting.hint, name)
        else:
            default = "" if setting.default is MISSING else setting.default
            parser.add_argument(f"--{name}", type=setting.hint, default=default, help=setting.help)


def refuse_idle(arguments: list[str], may_change: set[str]) -> None:
    """Raise ValueError for flags that a resumed run does not take."""
    if idle := sorted(flags_in(arguments) - may_change):
        raise ValueError(f"a resumed run keeps its settings: leave out {', '.join(idle)}")


def train_to_the_end(run: Run, asked: StopRequest) -> int:
    """Train, and say what came out."""
    print(_resolved(run), flush=True)
    result = fit(run, show=print, interrupted=asked)
    print(closing_text(run.folder, run.steps_done, result))
    return asked.status if result.interrupted else 0


def changed_settings(
    options: Namespace, arguments: list[str], names: Iterable[str]
) -> dict[str, Any]:
    """Return what the flags change in a run that is resumed; None where they do not."""
    said = flags_in(arguments)
    changed = {name: options[name] if f"--{name}" in said else None for name in names}
    if data := changed.get("data"):
        changed["data"] = str(Path(data).resolve())
    return changed


def flags_in(arguments: list[str]) -> set[str]:
    """Return the flags that stand on the command line."""
    return {a.split("=")[0] for a in arguments if a.startswith("--")}


def _resolved(run: Run) -> str:
    """Return every setting of the run, a line each, and what it amounts to."""
    count = sum(p.numel() for p in run.model.parameters())
    tokens = run.config.num_tokens
    available = sum(len(source.training) for source in run.prepared.sources.values())
    head = f"run {run.folder}, {run.steps_done} of {run.config.steps} steps done"
    tail = f"{count:,} parameters; {tokens:,} tokens to see; {available:,} to train on"
    if isinstance(run.batches, MixedBatches):
        epochs = run.batches.epochs(run.config.steps).items()
        tail += "\nepochs: " + ", ".join(f"{name} {times:.2f}" for name, times in epochs)
    return f"{settings_text(run.config, head)}\n{tail}"


def settings_text(config: TrainConfig, head: str) -> str:
    """Return a line, and every setting below it."""
    settings = held(config)
    lines = [f"  model.{name}: {value}" for name, value in vars(settings.pop("model")).items()]
    lines += [f"  {name}: {value}" for name, value in settings.items()]
    if (reason := obstacle(config.model, config.without)) is not None:
        lines.append(f"this run will not be exportable: {reason}")
    return "\n".join([head, *lines])


def closing_text(folder: str | Path, steps_done: int, result: Outcome) -> str:
    """Return what a reader wants to know at the end."""
    if result.interrupted:
        way_on = f"Continue with: llmcourse train --resume {folder}"
        return f"interrupted after step {steps_done}; saved. {way_on}"
    if result.best is not None:
        step, loss = result.best
        return (
            f"done after step {steps_done}: the lowest validation loss, {loss:.4f}, is of step "
            f"{step}; that checkpoint is in {folder}/{BEST}, the last one in {folder}/checkpoints"
        )
    last = result.validations.get(steps_done)
    found = ""
    if last and last.bits_per_byte is not None:
        found = f"validation {last.bits_per_byte:.4f} bits per byte; "
    return f"done: {found}checkpoints and metrics.jsonl are in {folder}"
