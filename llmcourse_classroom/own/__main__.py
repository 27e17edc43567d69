"""Your own Llama:  llmcourse own assemble, train, grade."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from llmcourse.base.command_line import ended, run_command
from llmcourse_classroom.exercises.result import State
from llmcourse_classroom.own import assemble, grade

MARKS = {State.PASS: "+", State.NOT_YET: "-", State.NOT_ANSWERED: "."}

PROGRAM = "llmcourse own"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
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
    return ended(PROGRAM, lambda: _done(options))


def _done(options: argparse.Namespace) -> int:
    """Do what was asked for; return a status."""
    if options.command == "assemble":
        try:
            return _assemble(options)
        except assemble.NotPossibleError as error:  # more than one line
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            return 2
    if options.command == "grade":
        return _grade(options.file)
    if not options.file.exists():
        raise ValueError(f"there is no {options.file}: make it with llmcourse own assemble")
    return subprocess.run([sys.executable, str(options.file)], check=False).returncode


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
