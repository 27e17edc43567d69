"""What the commands of the package share.

Taught in: chapters/01_whole_run.ipynb
"""

import sys
from argparse import ArgumentError


def fail(program: str, problem: Exception | str) -> int:
    """Say in one line on standard error what is wrong, and return the status 2."""
    said = str(problem)
    if isinstance(problem, ArgumentError):
        said = problem.message or said
    elif isinstance(problem, OSError):
        said = f"{problem.strerror or said}: {problem.filename or 'while writing'}"
    print(f"{program}: {' '.join(said.split())}", file=sys.stderr)
    return 2
