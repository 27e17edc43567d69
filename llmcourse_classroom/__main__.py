"""Exercises from the command line.

    llmcourse grade exercises/05_tokens.ipynb submissions/ --out report/ --jobs 2
    llmcourse progress [export FILE | import FILE | summary FILE]

Both say more with --help.
"""

import importlib
import sys

from llmcourse.base.command_line import run_command

COMMANDS = {
    "grade": "llmcourse_classroom.grader.batch",
    "progress": "llmcourse_classroom.exercises.progress",
}
"""Loaded when it is asked for: progress needs nothing of what grading a class needs."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in COMMANDS:
        return importlib.import_module(COMMANDS[words[0]]).main(words[1:])
    print(__doc__.strip(), file=sys.stderr)
    return 0 if words and words[0] in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(run_command(main))
