"""The loop around the step: validation, samples, progress, metrics, interruption, resuming."""

import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from llmcourse.base import files, progress, runtime
from llmcourse.base.lock import locked
from llmcourse.train.config import TrainConfig
from llmcourse.train.early_stopping import EarlyStopping
from llmcourse.train.phases import StepReport, step
from llmcourse.train.prepare import COMPLETE, Prepared, prepare, verify
from llmcourse.train.run import Run, new_run, restored, save, with_steps
from llmcourse.train.saved import CONFIG, saved_config
from llmcourse.train.signals import interruptible
from llmcourse.train.validation import Validation, sample, validate

METRICS = "metrics.jsonl"

log = logging.getLogger(__name__)


@dataclass
class FitResult:
    """What a run leaves behind."""

    run: Run
    interrupted: bool = False
    reports: list[StepReport] = field(default_factory=list)
    validations: dict[int, Validation] = field(default_factory=dict)
    samples: dict[int, str] = field(default_factory=dict)
    best: tuple[int, float] | None = None
    """With patience, the step with the lowest validation loss, and that loss."""


def start(config: TrainConfig, folder: str | Path) -> Run:
    """Prepare the data and build a new run in `folder`, without taking a step.

    Raises:
        ValueError: if the folder already holds a run, or something else.
    """
    runtime.device(config.layout.device)  # before anything is written
    runtime.set_up(num_threads=config.num_threads, seed=config.seed)
    with in_new_folder(Path(folder)):
        config, prepared = begin_run(config, Path(folder))
        return new_run(config, Path(folder), prepared)


def begin_run(config: TrainConfig, folder: Path) -> tuple[TrainConfig, Prepared]:
    """Prepare the data of a new run and write its settings, epochs as steps, into its folder.

    Raises:
        ValueError: if the folder already holds a run.
    """
    with in_new_folder(folder):
        prepared = prepare(config, folder / "data")
        verify(prepared)
        config = with_steps(config, prepared)
        with files.write_atomically(folder / CONFIG) as file:
            file.write(json.dumps(config.flat(), indent=2).encode())
    return config, prepared


@contextlib.contextmanager
def in_new_folder(folder: Path) -> Iterator[None]:
    """Hold the folder of a run that begins; remove what was made if it fails before its first step.

    So the corrected command finds no run.  What an earlier call has left is kept.

    Raises:
        ValueError: if the folder holds a run, or something else, or is another process's.
    """
    path = folder / CONFIG
    _refuse_another_run(path)
    files.refuse_others(folder, _is_ours)
    was_there = folder.exists()
    with locked(folder):
        _refuse_another_run(path)  # which may have come in between
        is_empty = {each.name for each in _visible(folder)} == {files.LOCK}
        try:
            yield
        except Exception:
            metrics = folder / METRICS
            if is_empty and not (metrics.exists() and metrics.stat().st_size):
                _empty(folder, remove=not was_there)
            raise


def _is_ours(folder: Path) -> bool:
    """Say whether an earlier call has begun a run in a folder, or prepared the data of one."""
    return (folder / files.LOCK).exists() or (folder / "data" / COMPLETE).exists()


def _visible(folder: Path) -> list[Path]:
    """Return what is in a folder; hidden files are not ours, or left by a write that was cut."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _empty(folder: Path, *, remove: bool) -> None:
    """Remove what is in a folder, and the folder itself if that is asked for."""
    for path in _visible(folder):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if remove:
        shutil.rmtree(folder)


def _refuse_another_run(path: Path) -> None:
    """Raise ValueError if the folder of a new run holds one."""
    if path.exists():
        raise ValueError(
            f"{path.parent} already holds a run: choose another folder, or continue it with resume"
        )


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    data: str | None = None,
    accumulate: int | None = None,
) -> Run:
    """Rebuild a run from its newest intact checkpoint, or from its start if it has none yet.

    Args:
        folder: where the run was started.
        steps: a new total; None keeps the old one.  The schedule follows the total, so a run that
            was prolonged is not the run that had that length from the start.
        data: where the prepared text lies now; None if it has not moved.
        accumulate: micro-batches of a step from now on; None keeps them.

    Raises:
        ValueError: if there is no run, no intact checkpoint, or one of another configuration; if
            its tokens have changed, or this machine cannot hold it.
    """
    folder = Path(folder)
    changes = {"steps": steps, "data": data, "accumulate": accumulate}
    config, _ = saved_config(folder, **changes, ranks=1, engine="own")
    runtime.device(config.layout.device)
    runtime.set_up(num_threads=config.num_threads, seed=config.seed)
    verify(prepare(config, folder / "data"))
    return restored(folder, config)


def fit(
    run: Run,
    *,
    on_step: Callable[[Run, StepReport], None] | None = None,
    show: Callable[[str], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> FitResult:
    """Train to the end, or until Ctrl-C; the checkpoint of the last step is on disk either way.

    Args:
        run: from `start` or `resume`.
        on_step: called after every step.
        show: prints validations and samples; None keeps them for the result alone.
        interrupted: asked between two steps whether to end early; None listens to Ctrl-C.

    Raises:
        ValueError: if another process trains in the folder of the run.
    """
    # Ranks share the lock of whoever has started them.
    with locked(run.folder) if run.layout.size == 1 else nullcontext():
        return fit_in_locked(run, on_step=on_step, show=show, interrupted=interrupted)


def fit_in_locked(
    run: Run,
    *,
    on_step: Callable[[Run, StepReport], None] | None = None,
    show: Callable[[str], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> FitResult:
    """Train, as `fit` says, in a folder whose lock the caller, or its parent, has."""
    result, stopping = FitResult(run), EarlyStopping(run)
    # Of several ranks one writes the metrics and shows the bar.
    writes = run.layout.is_first
    metrics = Metrics(run.folder / METRICS if writes else None, keep_steps=run.steps_done)
    bar = progress.bar(
        total=run.config.steps,
        initial=run.steps_done,
        unit="step",
        desc="training",
        **{} if writes else {"disable": True},
    )
    # Called within the step, before its checkpoint: what was saved was validated, too.
    observer = _Observer(result, metrics, bar, show, stopping)
    asked = interruptible() if interrupted is None else nullcontext(interrupted)
    with asked as should_end, metrics, bar, run.saver, run.watched_by(observer):
        while run.steps_done < run.config.steps:
            # One rank alone may have been asked: all have to end after the same step.
            if stopping.is_over or run.layout.any(should_end()):
                break
            observer.started = time.perf_counter()
            report = step(run)
            result.reports.append(report)
            bar.update()
            if on_step is not None:
                on_step(run, report)
        result.interrupted = run.steps_done < run.config.steps and not stopping.is_over
        if run.steps_done < run.config.steps:
            # The last step of a run saves by itself; a run that ends earlier is saved here.
            save(run)
    if stopping.patience:
        result.best = stopping.best_step, stopping.best_loss
    return result


class _Observer:
    """Validates, samples and writes metrics when the weights have changed, before the checkpoint.

    So all of it is part of the step that a resumed run does not repeat.
    """

    def __init__(
        self,
        result: FitResult,
        metrics: "Metrics",
        bar: tqdm,
        show: Callable[[str], None] | None,
        stopping: EarlyStopping,
    ) -> None:
        self.result, self.metrics, self.bar, self.stopping = result, metrics, bar, stopping
        self.show = show or (lambda _: None)
        self.started = time.perf_counter()
        """When the step began."""

    def __call__(self, phase: str, report: Any) -> None:
        if phase != "optimizer":
            return
        run = self.result.run
        rate = round(run.tokens_per_step / (time.perf_counter() - self.started))
        row = report._asdict() | {"tokens_per_s": rate} | self._measured(run)
        self.metrics.write(row)
        self.bar.set_postfix(loss=f"{report.loss:.3f}", tok_s=rate)

    def _measured(self, run: Run) -> dict[str, float]:
        """Validate and sample when it is time to; return what goes into the metrics."""
        config, done, found = run.config, run.steps_done, {}
        if _is_time(done, config.watching.validate_every, config.steps):
            validation = self.result.validations[done] = validate(run)
            nats, bits = validation.nats_per_token, validation.bits_per_byte
            found, said = {"validation_loss": nats}, f"{nats:.4f} nats per token"
            if bits is not None:
                found["validation_bits_per_byte"] = bits
                said += f", {bits:.4f} bits per byte"
            for name, loss in validation.by_source.items():
                found[f"validation_loss_{name}"] = loss
                said += f", {name} {loss:.4f}"
            self.show(f"step {done}: validation {said}")
            self.stopping.note(run, nats)
        if _is_time(done, config.watching.sample_every, config.steps):
            self.result.samples[done] = sample(run)
            self.show(f"step {done}: sample\n{self.result.samples[done]}\n")
        return found


def _is_time(done: int, every: int, total: int) -> bool:
    """Whether something that happens `every` so many steps, and at the end, happens now."""
    return done == total or (every > 0 and done % every == 0)


class Metrics:
    """One JSON object per step in a file that a resumed run continues.

    Args:
        path: the file; None writes nothing.
        keep_steps: lines of later steps are dropped: the run went back before them.

    Lines that no run has written are put aside, into metrics.odd.jsonl, with a word in the log.
    What cannot be written, as on a full disk, is tried again with the next line: a step is not lost
    for its metrics.

    Raises:
        OSError: at the end, if lines are still not written.
    """

    def __init__(self, path: Path | None, *, keep_steps: int) -> None:
        self.path = path
        if path is None:
            return
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        half = lines.pop()  # what a crash has cut short, or nothing
        steps = [(_step_of(line), line) for line in [*lines, *([half] if _step_of(half) else [])]]
        odd = [line for step, line in steps if step is None and line.strip()]
        if odd:
            aside = path.with_name("metrics.odd.jsonl")
            with aside.open("ab") as file:
                file.write(b"\n".join([*odd, b""]))
            log.warning(
                "%s: %d lines are no metrics of a step; they are in %s now", path, len(odd), aside
            )
        kept = [line for step, line in steps if step is not None and step <= keep_steps]
        with files.write_atomically(path) as file:
            file.write(b"\n".join([*kept, b""]) if kept else b"")

    def __enter__(self) -> "Metrics":
        self.file = (self.path or Path(os.devnull)).open("ab", buffering=0)
        self.waiting = b""
        return self

    def __exit__(self, kind: type | None, *_error: object) -> None:
        with self.file, nullcontext() if kind is None else contextlib.suppress(OSError):
            self._write_waiting()

    def write(self, row: dict[str, Any]) -> None:
        """Append one line, at once if that is possible."""
        is_first = not self.waiting
        self.waiting += json.dumps(row).encode() + b"\n"
        try:
            self._write_waiting()
        except OSError as error:
            if is_first:
                log.warning("%s cannot be written and waits: %s", self.path, error.strerror)

    def _write_waiting(self) -> None:
        while self.waiting:
            self.waiting = self.waiting[self.file.write(self.waiting) :]


def _step_of(line: bytes) -> int | None:
    """Return the step of a metrics line; None if it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, no text, numbers or nests without end
        return None
    step = row.get("step") if isinstance(row, dict) else None
    return step if type(step) is int and step >= 1 else None
