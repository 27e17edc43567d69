"""The command line:  llmcourse train --preset stories --steps 300 --out runs/a.

Every field of `TrainConfig` is a flag, made from the dataclass by jsonargparse.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from llmcourse.base.command_line import run_command, shorten_help
from llmcourse.base.lock import locked
from llmcourse.base.plugins import plugin
from llmcourse.base.settings import settings_of
from llmcourse.data import read_prepared
from llmcourse.data.mixture import shares_of
from llmcourse.data.ramp import ramp_of
from llmcourse.model import ModelConfig
from llmcourse.model.attention import RopeScaling
from llmcourse.train.command import (
    HERE,
    add_flags,
    changed_settings,
    closing_text,
    flags_in,
    refuse_idle,
    settings_text,
    status_of,
    train_to_the_end,
)
from llmcourse.train.config import LAYOUT, MESH, PRESETS, TrainConfig
from llmcourse.train.layout_settings import MeshRanks, SeveralRanks
from llmcourse.train.loop import in_new_folder, resume, start
from llmcourse.train.saved import check_memory, require_run, saved_config
from llmcourse.train.signals import StopRequest, under_torchrun

PROGRAM = "llmcourse train"

MAY_CHANGE = {"--resume", "--steps", "--data", *(f"--{name}" for name in LAYOUT)}
"""Flags that a resumed run takes."""

USUAL = {
    *("help", "preset", "out", "resume", "corpus", "data", "steps", "batch_size"),
    *("learning_rate", "seed", "device", "ranks", "mesh"),
}
"""What --help explains; --help all explains every setting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong.

    A run that is warned by SIGTERM or SIGUSR1 saves and returns 75, `GO_ON`.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    return status_of(PROGRAM, lambda asked: _train(words, asked))


def _train(arguments: list[str], asked: StopRequest) -> int:
    """Start or resume a run, train it, and say what came out."""
    parser = _parser(_preset_of(arguments))
    shorten_help(parser, arguments, USUAL)
    options = parser.parse_args(arguments)
    if options.resume:
        refuse_idle(arguments, MAY_CHANGE)
    if not options.resume or under_torchrun():  # of torchrun's ranks the first locks
        return _train_on(_engine(options, arguments), options, arguments, asked)
    folder = Path(options.resume)
    require_run(folder)
    with locked(folder):  # before anything is read: another process may be writing it
        return _train_on(_engine(options, arguments), options, arguments, asked)


def _train_on(engine: str, options: Namespace, arguments: list[str], asked: StopRequest) -> int:
    """Train on an engine; the course's own takes one process, or several."""
    if engine == "torch":
        return _train_on_torch(options, arguments, asked)
    if _in_processes(options, arguments):
        return _train_on_ranks(options, arguments, asked)
    if options.resume:
        run = resume(Path(options.resume), **changed_settings(options, arguments, HERE))
        return train_to_the_end(run, asked)
    config, folder = _config(options, arguments), Path(options.out)
    with in_new_folder(folder):
        return train_to_the_end(start(config, folder), asked)


def _in_processes(options: Namespace, arguments: list[str]) -> bool:
    """Whether the flags, or the run that is resumed, ask for ranks of their own."""
    if not options.resume:
        return options.ranks > 1 or bool(options.mesh)
    layout = changed_settings(options, arguments, LAYOUT)
    config, _ = saved_config(Path(options.resume), **layout | {"engine": "own"})
    return isinstance(config.layout, SeveralRanks | MeshRanks)


def _engine(options: Namespace, arguments: list[str]) -> str:
    """Return the engine that the flags, or the run that is resumed, ask for."""
    if not options.resume or "--engine" in flags_in(arguments):
        return options.engine
    return saved_config(Path(options.resume))[0].layout.engine


def _train_on_torch(options: Namespace, arguments: list[str], asked: StopRequest) -> int:
    """Be one of torchrun's processes; the first speaks for all."""
    torch_engine = plugin("engines", "torch")
    if "--ranks" in flags_in(arguments):
        raise ValueError(
            "with --engine torch leave out --ranks: torchrun --nproc_per_node 2 -m llmcourse.train "
            "... starts two"
        )
    if options.resume:
        if of_mesh := sorted(flags_in(arguments) & {f"--{name}" for name in MESH}):
            raise ValueError(
                f"{', '.join(of_mesh)} would have no effect on torch's engine: add --engine own, "
                "or leave it out"
            )
        folder = Path(options.resume)
        changed = changed_settings(options, arguments, (*HERE, "parallel"))
        changed |= {"ranks": torch_engine.num_processes(), "engine": "torch"}
        config, _ = saved_config(folder, **changed)
    else:
        config = _config(options, arguments, ranks=torch_engine.num_processes())
        folder = Path(options.out)
    speaks = torch_engine.is_first()
    if speaks:
        print(
            settings_text(config, f"run {folder} on {config.layout.num_ranks} ranks of torch's"),
            flush=True,
        )
    result = torch_engine.fit_under_torchrun(config, folder, show=print, asked=asked)
    if speaks:
        print(closing_text(folder, result.run.steps_done, result))
    return asked.status if result.interrupted else 0


def _train_on_ranks(options: Namespace, arguments: list[str], asked: StopRequest) -> int:
    """The same in several processes: start or resume, train, say what came out."""
    from llmcourse.train.ranks import fit_on_ranks, resume_on_ranks  # noqa: PLC0415 - seldom needed

    if options.resume:
        changed = changed_settings(options, arguments, ("steps", "data", *LAYOUT))
        del changed["engine"]  # the course's own, since we are here
        result = resume_on_ranks(Path(options.resume), **changed, show=print, asked=asked)
    else:
        config = _config(options, arguments)
        where = f"run {options.out} on {config.layout.num_ranks} ranks"
        print(settings_text(config, where), flush=True)
        with in_new_folder(Path(options.out)):
            result = fit_on_ranks(config, Path(options.out), show=print, asked=asked)
    print(closing_text(options.resume or options.out, result.steps_done, result))
    return asked.status if result.interrupted else 0


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
    add_flags(parser, TrainConfig, {"stage"})
    defaults = PRESETS[preset]().flat()
    parser.set_defaults({name: value for name, value in defaults.items() if name != "stage"})
    return parser


def _config(options: Namespace, arguments: list[str], **replaced: Any) -> TrainConfig:
    """Return the settings of a new run, some of them replaced; of data, the vocabulary is its."""
    said = flags_in(arguments)
    if not options.out:
        raise ValueError("--out is missing: name a new folder, such as --out runs/a")
    names = {flag.removeprefix("--") for flag in said} & settings_of(TrainConfig).keys()
    settings = {name: options[name] for name in names} | replaced
    shape = dict(vars(options.model))
    if {"--steps", "--epochs"} <= said:
        raise ValueError("--epochs and --steps both say how long to train: leave out one")
    if options.batch_ramp and "--batch_size" not in said:
        settings["batch_size"] = ramp_of(options.batch_ramp)[0].batch_size
    if options.data:
        settings["data"] = str(Path(options.data).resolve())
        if "--corpus" not in said:
            settings["corpus"] = "prepared"
        if "--model.vocab_size" not in said:
            first = next(iter(shares_of(options.mix))) if options.mix else ""
            shape["vocab_size"] = read_prepared(Path(options.data, first)).vocab_size
    if shape["rope_scaling"] is not None:
        shape["rope_scaling"] = RopeScaling(**vars(shape["rope_scaling"]))
    preset = PRESETS[options.preset]()
    config = preset.replace(**settings | {"model": ModelConfig(**shape)})
    check_memory(config, f"preset {options.preset}")
    return config


if __name__ == "__main__":
    sys.exit(run_command(main))
