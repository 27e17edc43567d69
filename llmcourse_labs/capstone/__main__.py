"""The command:  llmcourse capstone --config capstone.toml --out runs/capstone."""

import sys
from argparse import HelpFormatter
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser

from llmcourse.base.command_line import AGAIN, ended, run_command
from llmcourse.base.files import write_atomically
from llmcourse.parallel.world import RankError
from llmcourse.train.phases import TrainingDivergedError
from llmcourse_labs.capstone.config import SIZES, CapstoneConfig, shipped
from llmcourse_labs.capstone.run import hashes, run_capstone

PROGRAM = "llmcourse capstone"

CONFIG = "capstone.toml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _run(arguments), again=AGAIN, told=(TrainingDivergedError,))


def _run(arguments: Sequence[str] | None) -> None:
    """Run the whole machine, and say the hashes of what it made."""
    options = _parser().parse_args(arguments)
    path = options.config or CONFIG
    if not options.config and not Path(CONFIG).exists():
        with write_atomically(CONFIG) as file:
            file.write(shipped(SIZES[0]).encode())
        print(f"{CONFIG} was not there: it has the small size now, to read and to change")
    config = CapstoneConfig.read(path)
    print(f"{path}, into {options.out}:", flush=True)
    try:
        run_capstone(
            config, options.out, show=lambda line: print(line, flush=True), until=options.until
        )
    except RankError as error:  # without the traceback of the rank
        raise ValueError(f"rank {error.rank}: {error.cause}; {AGAIN}") from error
    print("\n".join(f"{digest[:16]}  {name}" for name, digest in hashes(options.out).items()))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Run the whole machine: crawl, funnel, mixture, tokens, training on four "
        "processes with a crash, SFT, DPO, exam, report. A call that was cut short goes on.",
    )
    told = f"settings: a file, or {' or '.join(SIZES)} ({CONFIG}, written if missing)"
    parser.add_argument("--config", metavar="FILE", help=told)
    told = "folder of everything that is made (%(default)s)"
    parser.add_argument("--out", default="runs/capstone", metavar="FOLDER", help=told)
    parser.add_argument("--until", default="", metavar="STAGE", help="stop after this stage")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
