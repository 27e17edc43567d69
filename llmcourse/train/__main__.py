"""The command line:  python -m llmcourse.train --preset stories --steps 300 --out runs/a.

Every field of `TrainConfig` is a flag, made from the dataclass by jsonargparse.

Taught in: chapters/01_whole_run.ipynb
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings

from llmcourse.cost import FP32_TRAINING, num_parameters
from llmcourse.model import ModelConfig
from llmcourse.train.config import PRESETS, TrainConfig
from llmcourse.train.loop import FitResult, fit, resume, start
from llmcourse.train.phases import Run, TrainingDivergedError

PROGRAM = "python -m llmcourse.train"

# The text under each field of the dataclass is the help of its flag.
set_parsing_settings(docstring_parse_attribute_docstrings=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    try:
        return _train(sys.argv[1:] if arguments is None else list(arguments))
    except (ValueError, TrainingDivergedError, ImportError) as error:
        return _fail(str(error))
    except ArgumentError as error:
        return _fail(error.message or str(error))
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename or 'while writing the run'}")
    except KeyboardInterrupt:
        return _fail("interrupted before the step was complete; the last checkpoint stands")


def _fail(message: str) -> int:
    """Print one line to standard error."""
    print(f"{PROGRAM}: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _train(arguments: list[str]) -> int:
    """Start or resume a run, train it, and say what came out."""
    parser = _parser(_preset_of(arguments))
    options = parser.parse_args(arguments)
    run = _resumed(options, arguments) if options.resume else _started(options)
    print(_resolved(run), flush=True)
    result = fit(run, show=print)
    print(_closing_lines(result))
    return 0


def _preset_of(arguments: list[str]) -> str:
    """Find --preset before the other flags are read, since it sets their defaults."""
    first = argparse.ArgumentParser(prog=PROGRAM, add_help=False, exit_on_error=False)
    first.add_argument("--preset", default="stories")
    known, _ = first.parse_known_args(arguments)
    if known.preset not in PRESETS:
        raise ValueError(f"unknown preset {known.preset!r}: choose from {', '.join(PRESETS)}")
    return known.preset


def _parser(preset: str) -> ArgumentParser:
    """Return the parser whose defaults are those of a preset."""
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        description="Train a small Llama on this machine.",
    )
    parser.add_argument("--preset", default=preset, help=f"one of: {', '.join(PRESETS)}")
    parser.add_argument("--out", help="new folder of the run")
    parser.add_argument("--resume", help="folder of a run to continue; takes --steps alone")
    parser.add_class_arguments(TrainConfig)
    parser.set_defaults(asdict(PRESETS[preset]()))
    return parser


def _started(options: Namespace) -> Run:
    """Start a new run from the flags."""
    if not options.out:
        raise ValueError("--out is missing: name a new folder, such as --out runs/a")
    settings = {name: options[name] for name in TrainConfig.__dataclass_fields__}
    config = TrainConfig(**settings | {"model": ModelConfig(**vars(options.model))})
    _check_memory(config, options.preset)
    return start(config, Path(options.out))


def _resumed(options: Namespace, arguments: list[str]) -> Run:
    """Continue a run; refuse flags that would have no effect."""
    given = {a.split("=")[0] for a in arguments if a.startswith("--")}
    idle = sorted(given - {"--resume", "--steps"})
    if idle:
        raise ValueError(f"a resumed run keeps its settings: leave out {', '.join(idle)}")
    return resume(Path(options.resume), steps=options.steps if "--steps" in given else None)


def _check_memory(config: TrainConfig, preset: str) -> None:
    """Refuse a model whose training state cannot fit, instead of dying while it is built."""
    needed = num_parameters(config.model) * FP32_TRAINING.total
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise ValueError(
            f"preset {preset}: {num_parameters(config.model):,} parameters need "
            f"{needed / 1e9:,.0f} GB for weights, gradients and moments; "
            f"this machine has {present / 1e9:,.0f} GB"
        )


def _resolved(run: Run) -> str:
    """Return every setting of the run, a line each, and what it amounts to."""
    flat = asdict(run.config)
    lines = [f"  model.{name}: {value}" for name, value in flat.pop("model").items()]
    lines += [f"  {name}: {value}" for name, value in flat.items()]
    count = sum(p.numel() for p in run.model.parameters())
    tokens, available = run.tokens_per_step * run.config.steps, len(run.prepared.training)
    return "\n".join(
        [
            f"run {run.folder}, {run.steps_done} of {run.config.steps} steps done",
            *lines,
            f"{count:,} parameters; {tokens:,} tokens to see; {available:,} to train on",
        ]
    )


def _closing_lines(result: FitResult) -> str:
    """Return what a reader wants to know at the end."""
    run = result.run
    if result.interrupted:
        return (
            f"interrupted after step {run.steps_done}; saved. "
            f"Continue with: {PROGRAM} --resume {run.folder}"
        )
    last = result.validations.get(run.steps_done)
    found = f"validation {last.bits_per_byte:.4f} bits per byte; " if last else ""
    return f"done: {found}checkpoints and metrics.jsonl are in {run.folder}"


if __name__ == "__main__":
    sys.exit(main())
