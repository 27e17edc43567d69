"""The loop around the step: validation, samples, progress, metrics, interruption, resuming.

Taught in: chapters/01_whole_run.ipynb
"""

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
from llmcourse import runtime
from llmcourse.model import ModelConfig
from llmcourse.train.config import ONE_RANK, TrainConfig
from llmcourse.train.phases import Run, StepReport, new_run, save, step
from llmcourse.train.prepare import prepare
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
    folder = Path(folder)
    refuse_used(folder)
    runtime.device(config.device)  # before anything is written
    runtime.set_up(num_threads=config.num_threads, seed=config.seed)
    prepared = prepare(config, folder / "data")
    run = new_run(config, folder, prepared)
    with runtime.write_atomically(folder / "config.json") as file:
        file.write(json.dumps(asdict(config), indent=2).encode())
    return run


def refuse_used(folder: Path) -> None:
    """Raise ValueError if the folder already holds a run."""
    if (folder / "config.json").exists():
        raise ValueError(
            f"{folder} already holds a run: choose another folder, or continue it with resume"
        )


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
        ValueError: if there is no intact checkpoint, or it is past the steps that are asked for.
    """
    newest = checkpoints.latest(folder / "checkpoints")
    if newest is None:
        raise ValueError(
            f"{folder} holds no intact checkpoint to resume from: start the run in another folder"
        )
    saved = checkpoints.load(newest)
    settings = dict(saved.config)
    settings |= {name: value for name, value in changes.items() if value is not None}
    config = TrainConfig(**{**settings, "model": ModelConfig(**settings["model"])})
    if saved.step > config.steps:
        raise ValueError(
            f"steps must be at least the {saved.step} already done, got {config.steps}"
        )
    return config, saved


def restored(folder: Path, config: TrainConfig) -> Run:
    """Rebuild a run in one process from its newest intact checkpoint."""
    saved = checkpoints.load(checkpoints.latest(folder / "checkpoints"))
    run = new_run(config, folder, prepare(config, folder / "data"))
    checkpoints.restore(
        saved,
        model=run.model,
        optimizer=run.optimizer,
        data=run.batches,
        generators={"sample": run.sample_generator},
    )
    run.steps_done = saved.step
    return run


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
    progress = runtime.progress(
        total=run.config.steps,
        initial=run.steps_done,
        unit="step",
        desc="training",
        **{} if writes else {"disable": True},
    )
    asked = interruptible() if interrupted is None else nullcontext(interrupted)
    with asked as should_end, metrics, progress, run.saver:
        while run.steps_done < run.config.steps:
            if run.layout.any(should_end()):
                break
            report = step(run, look=_looking(run, result, metrics, progress, show))
            result.reports.append(report)
            progress.update()
            if on_step is not None:
                on_step(run, report)
        result.interrupted = run.steps_done < run.config.steps
        if result.interrupted:
            save(run)
    return result


def _looking(
    run: Run,
    result: FitResult,
    metrics: "Metrics",
    progress: tqdm,
    show: Callable[[str], None] | None,
) -> Callable[[StepReport], None]:
    """Return what looks at a step that begins now, and notes what it sees."""
    started = time.perf_counter()

    def look(report: StepReport) -> None:
        rate = round(run.tokens_per_step / (time.perf_counter() - started))
        row = report._asdict() | {"tokens_per_s": rate}
        _look(run, result, row, progress.write if show is None else show, quiet=show is None)
        metrics.write(row)
        progress.set_postfix(loss=f"{report.loss:.3f}", tok_s=rate)

    return look


def _look(
    run: Run, result: FitResult, row: dict[str, Any], show: Callable[[str], None], *, quiet: bool
) -> None:
    """Validate and sample when it is time to; add what was found to the metrics row."""
    config, done = run.config, run.steps_done
    if _is_time(done, config.validate_every, config.steps):
        validation = validate(run)
        result.validations[done] = validation
        row["validation_loss"] = validation.nats_per_token
        row["validation_bits_per_byte"] = validation.bits_per_byte
        if not quiet:
            show(
                f"step {done}: validation {validation.nats_per_token:.4f} nats per token, "
                f"{validation.bits_per_byte:.4f} bits per byte"
            )
    if _is_time(done, config.sample_every, config.steps):
        result.samples[done] = sample(run)
        if not quiet:
            show(f"step {done}: sample\n{result.samples[done]}\n")


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
        with runtime.write_atomically(path) as file:
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
