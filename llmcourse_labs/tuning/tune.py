"""The command:  llmcourse tune --stage sft --start runs/a --out runs/chat.

Every field of `TuneConfig` that has to do with one process is a flag.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from llmcourse.base.command_line import run_command, shorten_help
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
from llmcourse.train.saved import check_memory, require_run
from llmcourse.train.signals import StopRequest
from llmcourse_labs.tuning.fine_tuning import settings_of_start
from llmcourse_labs.tuning.tune_config import TuneConfig

PROGRAM = "llmcourse tune"

ELSEWHERE = {"model", "without", "batch_ramp", "save_in_shards", "corpus", "order"}
SKIPPED = ELSEWHERE.union(LAYOUT) - {"accumulate"}
"""Settings that follow from the run it starts from, or that a run in one process does not have."""

USUAL = {
    *("help", "stage", "start", "data", "out", "resume", "steps", "batch_size", "learning_rate"),
    *("examples", "replay", "lora_rank", "seed", "device"),
}
"""What --help explains; --help all explains every setting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong.

    A run that is warned by SIGTERM or SIGUSR1 saves and returns 75, `GO_ON`.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    return status_of(PROGRAM, lambda asked: _tune(words, asked))


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
    if not options.start:
        raise ValueError("--start is missing: name the folder of the run to fine-tune")
    names = settings_of(TuneConfig).keys() - SKIPPED
    settings = {name: options[name] for name in names}
    config = TuneConfig.of(**settings | settings_of_start(options.start))
    check_memory(config, f"the run in {options.start}")
    return config


def _parser() -> ArgumentParser:
    """Return the parser."""
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        usage="%(prog)s (--start FOLDER --out | --resume) FOLDER [option value ...]",
        description="Go on with the weights of a run: teach it to answer.",
    )
    parser.add_argument("--out", help="new folder of the run")
    parser.add_argument("--resume", help="folder of a run to continue; --steps may change")
    parser.add_argument(
        "--data", choices=["tasks"], default="tasks", help="what the conversations are about"
    )
    add_flags(parser, TuneConfig, SKIPPED)
    parser.set_defaults({"start": ""})
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
