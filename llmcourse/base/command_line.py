"""How the course's commands fail: in one line."""

import sys
from argparse import ArgumentError


def fail(program: str, problem: Exception | str) -> int:
    """Say in one line on standard error what is wrong with a command, and return its status, 2."""
    said = str(problem)
    if isinstance(problem, ArgumentError):
        said = problem.message or said
    elif isinstance(problem, OSError):
        said = f"{problem.strerror or said}: {problem.filename or 'while writing'}"
    print(f"{program}: {' '.join(said.split())}", file=sys.stderr)
    return 2
