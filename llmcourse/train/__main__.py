"""The command line:  llmcourse train --preset stories --steps 300 --out runs/a.

Every field of `TrainConfig` is a flag, made from the dataclass by jsonargparse.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings

from llmcourse.base.command_line import fail, run_command, shorten_help
from llmcourse.data import read_prepared
from llmcourse.data.mixture import shares_of
from llmcourse.data.ramp import ramp_of
from llmcourse.model import ModelConfig
from llmcourse.model.attention import RopeScaling
from llmcourse.parallel.world import RankError
from llmcourse.train.config import NO_MESH, PRESETS, SFT, TrainConfig
from llmcourse.train.export.huggingface import obstacle
from llmcourse.train.fine_tuning import settings_of_start
from llmcourse.train.lock import locked
from llmcourse.train.loop import FitResult, fit, in_new_folder, resume, start
from llmcourse.train.phases import TrainingDivergedError
from llmcourse.train.ranks import RanksResult, fit_on_ranks, moved, resume_on_ranks
from llmcourse.train.run import Run
from llmcourse.train.saved import BEST, check_memory, require_run, saved_config
from llmcourse.train.signals import (
    EVERY,
    Asked,
    EndedEarlyError,
    GoneError,
    interruptible,
    under_torchrun,
)

PROGRAM = "llmcourse train"

LAYOUT = ("ranks", "parallel", "accumulate", *NO_MESH)
"""Settings that say where a run is, and so may change when it is resumed."""

HERE = ("steps", "data", "accumulate")
"""Settings that may change in a run that goes on in one process."""

MAY_CHANGE = {"--resume", "--steps", "--engine", "--data", *(f"--{name}" for name in LAYOUT)}
"""Flags that a resumed run takes."""

USUAL = {
    *("help", "preset", "out", "resume", "corpus", "data", "steps", "batch_size"),
    *("learning_rate", "seed", "device", "ranks", "mesh"),
    "start",
}
"""What --help explains; --help all explains every setting."""

_NO_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory")
"""What torch says when it gets none."""

# The text under each field of the dataclass is the help of its flag.
set_parsing_settings(docstring_parse_attribute_docstrings=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong.

    A run that is warned by SIGTERM or SIGUSR1 saves and returns 75, `GO_ON`.
    """
    try:
        with interruptible(Asked(listens=False), EVERY) as asked:
            return _train(sys.argv[1:] if arguments is None else list(arguments), asked)
    except (EndedEarlyError, GoneError) as ended:
        fail(PROGRAM, str(ended))
        return ended.status
    except (ValueError, TrainingDivergedError, ImportError, ArgumentError, OSError) as error:
        return fail(PROGRAM, error)
    except RankError as error:
        return fail(PROGRAM, f"rank {error.rank}: {error.cause}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            said = "this machine has not enough memory: take a smaller model, batch or context"
            return fail(PROGRAM, said)
        raise
    except KeyboardInterrupt:
        said = "interrupted before the step was complete; what was saved before stands"
        return fail(PROGRAM, said)


def _train(arguments: list[str], asked: Asked) -> int:
    """Start or resume a run, train it, and say what came out."""
    preset, stage = _first_of(arguments)
    parser = _parser(preset, stage)
    shorten_help(parser, arguments, USUAL)
    options = parser.parse_args(arguments)
    idle = sorted(_given(arguments) - MAY_CHANGE)
    if options.resume and idle:
        raise ValueError(f"a resumed run keeps its settings: leave out {', '.join(idle)}")
    if not options.resume or under_torchrun():  # of torchrun's ranks the first locks
        return _train_on(_engine(options, arguments), options, arguments, asked)
    folder = Path(options.resume)
    require_run(folder)
    with locked(folder):  # before anything is read: another process may be writing it
        return _train_on(_engine(options, arguments), options, arguments, asked)


def _train_on(engine: str, options: Namespace, arguments: list[str], asked: Asked) -> int:
    """Train on an engine; the course's own takes one process, or several."""
    if engine == "torch":
        return _train_on_torch(options, arguments, asked)
    if _in_processes(options, arguments):
        return _train_on_ranks(options, arguments, asked)
    if options.resume:
        run = resume(Path(options.resume), **_changes(options, arguments, HERE))
        return _fitted(run, asked)
    config, folder = _config(options, arguments), Path(options.out)
    with in_new_folder(folder):
        return _fitted(start(config, folder), asked)


def _fitted(run: Run, asked: Asked) -> int:
    """Train, and say what came out."""
    print(_resolved(run), flush=True)
    result = fit(run, show=print, interrupted=asked)
    print(_closing(run.folder, run.steps_done, result))
    return asked.status if result.interrupted else 0


def _in_processes(options: Namespace, arguments: list[str]) -> bool:
    """Whether the flags, or the run that is resumed, ask for ranks of their own."""
    if not options.resume:
        return options.ranks > 1 or bool(options.mesh)
    layout = moved(**_changes(options, arguments, LAYOUT))
    config, _ = saved_config(Path(options.resume), steps=None, **layout, engine="own")
    return config.num_ranks > 1 or bool(config.mesh)


def _engine(options: Namespace, arguments: list[str]) -> str:
    """Return the engine that the flags, or the run that is resumed, ask for."""
    if not options.resume or "--engine" in _given(arguments):
        return options.engine
    return saved_config(Path(options.resume), steps=None)[0].engine


def _train_on_torch(options: Namespace, arguments: list[str], asked: Asked) -> int:
    """Be one of torchrun's processes; the first speaks for all."""
    from llmcourse.train import torch_engine  # noqa: PLC0415  takes as long as torch to import

    if "--ranks" in _given(arguments):
        raise ValueError(
            "with --engine torch leave out --ranks: torchrun --nproc_per_node 2 -m llmcourse.train "
            "... starts two"
        )
    if options.resume:
        if of_mesh := sorted(_given(arguments) & {f"--{name}" for name in NO_MESH}):
            raise ValueError(
                f"{', '.join(of_mesh)} would have no effect on torch's engine: add --engine own, "
                "or leave it out"
            )
        folder = Path(options.resume)
        changes = NO_MESH | _changes(options, arguments, (*HERE, "parallel"))
        changes |= {"ranks": torch_engine.num_processes()}
        config, _ = saved_config(folder, **changes, engine="torch")
    else:
        config = _config(options, arguments, ranks=torch_engine.num_processes())
        folder = Path(options.out)
    speaks = torch_engine.is_first()
    if speaks:
        print(_settings(config, f"run {folder} on {config.ranks} ranks of torch's"), flush=True)
    result = torch_engine.fit_under_torchrun(config, folder, show=print, asked=asked)
    if speaks:
        print(_closing(folder, result.run.steps_done, result))
    return asked.status if result.interrupted else 0


def _changes(options: Namespace, arguments: list[str], names: Iterable[str]) -> dict[str, Any]:
    """Return what the flags change in a run that is resumed; None where they do not."""
    given = _given(arguments)
    changes = {name: options[name] if f"--{name}" in given else None for name in names}
    if changes.get("data"):
        changes["data"] = str(Path(changes["data"]).resolve())
    return changes


def _train_on_ranks(options: Namespace, arguments: list[str], asked: Asked) -> int:
    """The same in several processes: start or resume, train, say what came out."""
    if options.resume:
        changes = _changes(options, arguments, ("steps", "data", *LAYOUT))
        result = resume_on_ranks(Path(options.resume), **changes, show=print, asked=asked)
    else:
        config = _config(options, arguments)
        where = f"run {options.out} on {config.num_ranks} ranks"
        print(_settings(config, where), flush=True)
        with in_new_folder(Path(options.out)):
            result = fit_on_ranks(config, Path(options.out), show=print, asked=asked)
    print(_closing(options.resume or options.out, result.steps_done, result))
    return asked.status if result.interrupted else 0


def _first_of(arguments: list[str]) -> tuple[str, str]:
    """Find --preset and --stage before the other flags are read, since they set their defaults."""
    first = argparse.ArgumentParser(prog=PROGRAM, add_help=False, exit_on_error=False)
    first.add_argument("--preset", default="stories")
    first.add_argument("--stage", default="pretrain")
    known, _ = first.parse_known_args(arguments)
    if known.preset not in PRESETS:
        raise ValueError(f"unknown preset {known.preset!r}: choose from {', '.join(PRESETS)}")
    return known.preset, known.stage


def _parser(preset: str, stage: str = "pretrain") -> ArgumentParser:
    """Return the parser whose defaults are those of a preset, and of a stage."""
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        usage="%(prog)s (--out | --resume) FOLDER [option value ...]",
        description="Train a small Llama on this machine.",
    )
    parser.add_argument("--preset", default=preset, help=f"one of: {', '.join(PRESETS)}")
    parser.add_argument("--out", help="new folder of the run")
    parser.add_argument(
        "--resume",
        help="folder of a run to continue; --steps, --engine, --ranks, --mesh and what else says "
        "where it runs may change, and --data says where its prepared text lies now",
    )
    parser.add_class_arguments(TrainConfig)
    parser.set_defaults(asdict(PRESETS[preset]()) | (SFT if stage == "sft" else {}))
    return parser


def _config(options: Namespace, arguments: list[str], **replaced: Any) -> TrainConfig:
    """Return the settings of a new run, some of them replaced; of data, the vocabulary is its."""
    given = _given(arguments)
    if not options.out:
        raise ValueError("--out is missing: name a new folder, such as --out runs/a")
    settings = {name: options[name] for name in TrainConfig.__dataclass_fields__} | replaced
    shape = dict(vars(options.model))
    if {"--steps", "--epochs"} <= given:
        raise ValueError("--epochs and --steps both say how long to train: leave out one")
    if options.stage == "sft":
        return _config_of_sft(options, given, settings)
    if options.batch_ramp and "--batch_size" not in given:
        settings["batch_size"] = ramp_of(options.batch_ramp)[0].batch_size
    if options.data:
        settings["data"] = str(Path(options.data).resolve())
        if "--corpus" not in given:
            settings["corpus"] = "prepared"
        if "--model.vocab_size" not in given:
            names = shares_of(options.mix) if options.mix else ("",)
            shape["vocab_size"] = read_prepared(Path(options.data, next(iter(names)))).vocab_size
    if shape["rope_scaling"] is not None:
        shape["rope_scaling"] = RopeScaling(**vars(shape["rope_scaling"]))
    config = TrainConfig(**settings | {"model": ModelConfig(**shape)})
    check_memory(config, f"preset {options.preset}")
    return config


def _config_of_sft(options: Namespace, given: set[str], settings: dict[str, Any]) -> TrainConfig:
    """Return the settings of a fine-tuning run: the model is that of the run it starts from."""
    if not options.start:
        raise ValueError("--stage sft needs --start: the folder of the run to fine-tune")
    idle = sorted(flag for flag in given if flag.startswith(("--model", "--preset", "--without")))
    if idle:
        raise ValueError(f"the model is that of {options.start}: leave out {', '.join(idle)}")
    if options.data not in ("", "tasks"):
        raise ValueError(f"--stage sft learns from --data tasks, got {options.data!r}")
    settings |= settings_of_start(options.start) | {"data": ""}
    config = TrainConfig(**settings)
    check_memory(config, f"the run in {options.start}")
    return config


def _given(arguments: list[str]) -> set[str]:
    """Return the flags that stand on the command line."""
    return {a.split("=")[0] for a in arguments if a.startswith("--")}


def _resolved(run: Run) -> str:
    """Return every setting of the run, a line each, and what it amounts to."""
    count = sum(p.numel() for p in run.model.parameters())
    tokens = run.config.num_tokens
    available = sum(len(source.training) for source in run.prepared.sources.values())
    head = f"run {run.folder}, {run.steps_done} of {run.config.steps} steps done"
    tail = f"{count:,} parameters; {tokens:,} tokens to see; {available:,} to train on"
    if run.config.mix:
        epochs = run.batches.epochs(run.config.steps).items()
        tail += "\nepochs: " + ", ".join(f"{name} {times:.2f}" for name, times in epochs)
    return f"{_settings(run.config, head)}\n{tail}"


def _settings(config: TrainConfig, head: str) -> str:
    """Return a line, and every setting below it."""
    flat = asdict(config)
    lines = [f"  model.{name}: {value}" for name, value in flat.pop("model").items()]
    lines += [f"  {name}: {value}" for name, value in flat.items()]
    if (reason := obstacle(config)) is not None:
        lines.append(f"this run will not be exportable: {reason}")
    return "\n".join([head, *lines])


def _closing(folder: str | Path, steps_done: int, result: FitResult | RanksResult) -> str:
    """Return what a reader wants to know at the end."""
    if result.interrupted:
        way_on = f"Continue with: {PROGRAM} --resume {folder}"
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


if __name__ == "__main__":
    sys.exit(run_command(main))
