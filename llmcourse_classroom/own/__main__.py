"""Your own Llama:  llmcourse own assemble, train, grade."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from llmcourse.base.command_line import fail, run_command
from llmcourse_classroom.exercises.result import State
from llmcourse_classroom.own import assemble, grade

MARKS = {State.PASS: "+", State.NOT_YET: "-", State.NOT_ANSWERED: "."}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llmcourse own", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser(
        "assemble", help="put your answers together into one file"
    ).add_argument
    add("--exercises", type=Path, default=Path("exercises"), help="your notebooks (%(default)s)")
    add("--out", type=Path, default=Path(assemble.MY_LLAMA), help="the file (%(default)s)")
    add("--borrow", action="store_true", help="let the course stand in for what is missing")
    for name, does in (("train", "train it, or go on"), ("grade", "say what is right and wrong")):
        add = commands.add_parser(name, help=does).add_argument
        add("file", type=Path, nargs="?", default=Path(assemble.MY_LLAMA), help="(%(default)s)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Assemble, train or grade; return 0, 1 if the grade is not full, 2 after an error."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "assemble":
            return _assemble(options)
        if options.command == "train":
            if not options.file.exists():
                raise ValueError(f"there is no {options.file}: make it with llmcourse own assemble")
            return subprocess.run([sys.executable, str(options.file)], check=False).returncode
        return _grade(options.file)
    except (ValueError, OSError) as error:
        if isinstance(error, assemble.NotPossibleError):  # more than one line
            print(f"llmcourse own: {error}", file=sys.stderr)
            return 2
        return fail("llmcourse own", error)
    except KeyboardInterrupt:
        return 130


def _assemble(options: argparse.Namespace) -> int:
    if not options.exercises.is_dir():
        raise ValueError(f"there is no folder {options.exercises}: name yours with --exercises")
    whose = assemble.assemble(options.exercises, options.out, borrow=options.borrow)
    of = {piece.number: piece for piece in assemble.pieces(assemble.template())}
    for number, who in whose.items():
        print(f"{number:6}{', '.join(of[number].names):26}{who}")
    print(f"wrote {options.out}; train it with: llmcourse own train {options.out}")
    return 0


def _grade(path: Path) -> int:
    right = True
    for line in grade.grade(path):
        print(f"{MARKS[line.state]} {line.meaning}", flush=True)
        right &= line.state is State.PASS
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(run_command(main))
