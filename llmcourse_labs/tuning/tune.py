"""The command:  llmcourse tune --stage sft --start runs/a --out runs/chat.

Every field of `TuneConfig` that has to do with one process is a flag.  `--stage dpo` and
`--stage grpo`, for models of others, are `tuning.dpo` and `tuning.grpo`.
"""

import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from llmcourse.base.command_line import ended, run_command, shorten_help
from llmcourse.base.lock import locked
from llmcourse.base.settings import settings_of
from llmcourse.train.command import (
    HERE,
    add_flags,
    changed_settings,
    refuse_idle,
    status_of,
    train_to_the_end,
)
from llmcourse.train.config import LAYOUT
from llmcourse.train.loop import in_new_folder, resume, start
from llmcourse.train.phases import TrainingDivergedError
from llmcourse.train.saved import check_memory, require_run
from llmcourse.train.signals import StopRequest
from llmcourse_labs.tuning import dpo, grpo
from llmcourse_labs.tuning.conversations import settings_of_model
from llmcourse_labs.tuning.fine_tuning import settings_of_start
from llmcourse_labs.tuning.tune_config import TuneConfig

PROGRAM = "llmcourse tune"
TASKS = "tasks"
"""What `--data` is without a file: the course's own."""

ELSEWHERE = {"model", "without", "batch_ramp", "save_in_shards", "corpus", "order"}
ELSEWHERE |= {"template", "template_tokens", "conversations"}
SKIPPED = ELSEWHERE.union(LAYOUT) - {"accumulate"}
"""Settings that follow from the run it starts from, or that a run in one process does not have."""

USUAL = {
    *(
        "help",
        "stage",
        "start",
        "model",
        "data",
        "out",
        "resume",
        "steps",
        "batch_size",
        "learning_rate",
    ),
    *("examples", "replay", "lora_rank", "quantised_base", "seed", "device"),
}
"""What --help explains; --help all explains every setting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong.

    A run that is warned by SIGTERM or SIGUSR1 saves and returns 75, `GO_ON`.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    for name, stage in (("dpo", dpo.tune), ("grpo", grpo.tune)):
        if f"--stage={name}" in words or ("--stage", name) in itertools.pairwise(words):
            run = partial(_of_others, name, stage, words)
            return ended(PROGRAM, run, told=(TrainingDivergedError,))
    return status_of(PROGRAM, lambda asked: _tune(words, asked))


def _of_others(name: str, stage: Callable[[Sequence[str]], None], words: Sequence[str]) -> None:
    """Run a stage that begins with a model of others."""
    if any(word.partition("=")[0] in ("--start", "--resume") for word in words):
        raise ValueError(
            f"--stage {name} begins with a model of others: give --model, such as smollm2"
        )
    stage(words)


def _tune(arguments: list[str], asked: StopRequest) -> int:
    """Start or resume a run, train it, and say what came out."""
    parser = _parser()
    shorten_help(parser, arguments, USUAL)
    options = parser.parse_args(arguments)
    if options.resume:
        refuse_idle(arguments, {"--resume", "--steps", "--accumulate"})
        folder = Path(options.resume)
        require_run(folder)
        with locked(folder):
            changed = changed_settings(
                options, arguments, [name for name in HERE if name != "data"]
            )
            return train_to_the_end(resume(folder, **changed), asked)
    config, folder = _config(options), Path(options.out)
    with in_new_folder(folder):
        return train_to_the_end(start(config, folder), asked)


def _config(options: Namespace) -> TuneConfig:
    """Return the settings of a new run, whose model is that of the run it starts from."""
    if not options.out:
        raise ValueError("--out is missing: name a new folder, such as --out runs/chat")
    if bool(options.start) == bool(options.model):
        raise ValueError("give --start, the folder of a run, or --model, such as smollm2")
    if options.model and options.data == TASKS:
        raise ValueError("a model of others learns from your conversations: --data FILE.jsonl")
    if options.start and options.data != TASKS:
        raise ValueError("a run learns from the course's tasks: --data FILE.jsonl needs --model")
    names = settings_of(TuneConfig).keys() - SKIPPED
    settings = {name: options[name] for name in names}
    if options.model:
        settings |= settings_of_model(options.model, options.data)
    else:
        settings |= settings_of_start(options.start)
    config = TuneConfig.of(**settings)
    check_memory(config, f"the run from {options.start or options.model}")
    return config


def _parser() -> ArgumentParser:
    """Return the parser."""
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        usage="%(prog)s ((--start | --model) WHAT --out | --resume) FOLDER [option value ...]",
        description="Teach a run, or a model of others, to answer; see --stage dpo, grpo --help.",
    )
    parser.add_argument("--out", help="new folder of the run")
    parser.add_argument("--resume", help="folder of a run to continue; --steps may change")
    told = "a model of others in place of a run: smollm2, a .gguf file, a folder"
    parser.add_argument("--model", help=told)
    told = "what it learns from: tasks, or of a model of others a .jsonl file of conversations"
    parser.add_argument("--data", default=TASKS, metavar="FILE", help=told)
    add_flags(parser, TuneConfig, SKIPPED)
    parser.set_defaults({"start": ""})
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
