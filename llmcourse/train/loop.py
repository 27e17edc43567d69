"""The loop around the step: validation, samples, progress, metrics, interruption, resuming."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from llmcourse import checkpoint as checkpoints
from llmcourse.base import files, progress, runtime
from llmcourse.model import ModelConfig
from llmcourse.train.config import ONE_RANK, TrainConfig
from llmcourse.train.phases import StepReport, step
from llmcourse.train.prepare import Prepared, prepare
from llmcourse.train.run import Run, new_run, restored, save
from llmcourse.train.settings import own_settings
from llmcourse.train.validation import Validation, sample, validate


@dataclass
class FitResult:
    """What a run leaves behind."""

    run: Run
    interrupted: bool = False
    reports: list[StepReport] = field(default_factory=list)
    validations: dict[int, Validation] = field(default_factory=dict)
    samples: dict[int, str] = field(default_factory=dict)


def start(config: TrainConfig, folder: str | Path) -> Run:
    """Prepare the data and build a new run in `folder`, without taking a step.

    Raises:
        ValueError: if the folder already holds a run.
    """
    runtime.device(config.device)  # before anything is written
    runtime.set_up(num_threads=config.num_threads, seed=config.seed)
    return new_run(config, Path(folder), begin_run(config, Path(folder)))


def begin_run(config: TrainConfig, folder: Path) -> Prepared:
    """Prepare the data of a new run and write its settings into its folder.

    Raises:
        ValueError: if the folder already holds a run.
    """
    path = folder / "config.json"
    if path.exists():
        raise ValueError(
            f"{folder} already holds a run: choose another folder, or continue it with resume"
        )
    prepared = prepare(config, folder / "data")
    with files.write_atomically(path) as file:
        file.write(json.dumps(asdict(config), indent=2).encode())
    return prepared


def resume(folder: str | Path, *, steps: int | None = None) -> Run:
    """Rebuild a run from its newest intact checkpoint.

    Args:
        folder: where the run was started.
        steps: a new total; None keeps the old one.  The schedule follows the total, so a run that
            was prolonged is not the run that had that length from the start.

    Raises:
        ValueError: if there is no run, no intact checkpoint, or one of another configuration.
    """
    folder = Path(folder)
    config, _ = saved_config(folder, steps=steps, **ONE_RANK)
    runtime.set_up(num_threads=config.num_threads, seed=config.seed)
    return restored(folder, config)


def saved_config(folder: Path, **changes: Any) -> tuple[TrainConfig, checkpoints.Checkpoint]:
    """Return the settings of a run, changed where asked, and its newest intact checkpoint.

    Raises:
        ValueError: if there is no intact checkpoint, or it is of another run, or past the steps
            that are asked for.
    """
    newest = checkpoints.latest(folder / "checkpoints")
    if newest is None:
        raise ValueError(
            f"{folder} holds no intact checkpoint to resume from: start the run in another folder"
        )
    saved = checkpoints.load(newest)
    settings = own_settings(saved.config, folder)
    settings |= {name: value for name, value in changes.items() if value is not None}
    config = TrainConfig(**{**settings, "model": ModelConfig(**settings["model"])})
    if saved.step > config.steps:
        raise ValueError(
            f"steps must be at least the {saved.step} already done, got {config.steps}"
        )
    return config, saved


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
    """
    result = FitResult(run)
    writes = run.layout.is_first
    metrics = Metrics(run.folder / "metrics.jsonl" if writes else None, keep_steps=run.steps_done)
    bar = progress.bar(
        total=run.config.steps,
        initial=run.steps_done,
        unit="step",
        desc="training",
        **{} if writes else {"disable": True},
    )
    observer = _Observer(result, metrics, bar, show)
    asked = interruptible() if interrupted is None else nullcontext(interrupted)
    with asked as should_end, metrics, bar, run.saver, run.watched_by(observer):
        while run.steps_done < run.config.steps:
            if run.layout.any(should_end()):
                break
            observer.started = time.perf_counter()
            report = step(run)
            result.reports.append(report)
            bar.update()
            if on_step is not None:
                on_step(run, report)
        result.interrupted = run.steps_done < run.config.steps
        if result.interrupted:
            save(run)
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
    ) -> None:
        self.result, self.metrics, self.bar = result, metrics, bar
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
        if _is_time(done, config.validate_every, config.steps):
            validation = self.result.validations[done] = validate(run)
            nats, bits = validation.nats_per_token, validation.bits_per_byte
            found = {"validation_loss": nats, "validation_bits_per_byte": bits}
            self.show(
                f"step {done}: validation {nats:.4f} nats per token, {bits:.4f} bits per byte"
            )
        if _is_time(done, config.sample_every, config.steps):
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
    """

    def __init__(self, path: Path | None, *, keep_steps: int) -> None:
        self.path = path
        if path is None:
            return
        kept = []
        if path.exists():
            lines = path.read_text().splitlines(keepends=True)
            kept = [line for line in lines if _step_of(line) <= keep_steps]
        with files.write_atomically(path) as file:
            file.write("".join(kept).encode())

    def __enter__(self) -> "Metrics":
        self.file = (self.path or Path(os.devnull)).open("a")
        return self

    def __exit__(self, *_error: object) -> None:
        self.file.close()

    def write(self, row: dict[str, Any]) -> None:
        """Append one line, at once."""
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()


def _step_of(line: str) -> int | float:
    """Return the step of a metrics line; a line cut short by a crash counts as later than all."""
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError):
        return float("inf")


@contextmanager
def interruptible(
    on_press: Callable[[], None] = lambda: None,
) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question that the loop asks between two steps.

    An exception in the middle of a step would leave half of the weights updated.  A second Ctrl-C
    interrupts at once.
    """
    pressed = threading.Event()

    def on_interrupt(_signal: int, _frame: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        on_press()

    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
