"""The command:  llmcourse train --preset stories --out runs/a, also as python -m llmcourse train.

A command's module is loaded when it is asked for: `llmcourse --help` needs no torch.
"""

import difflib
import importlib
import sys
from collections.abc import Sequence

from llmcourse.base.command_line import Command, fail, run_command
from llmcourse.base.plugins import names, plugin

OWN = {
    "train": Command(
        "llmcourse.train.__main__",
        "train a small Llama, or go on with a run",
        "--preset stories --steps 300 --out runs/a",
    ),
    "sample": Command(
        "llmcourse.train.sampling",
        "let a run, or a model of others, write",
        "--run runs/a --prompt 'Once upon a time'",
        is_result=True,
    ),
}
"""The commands of this package; other packages bring theirs as entry points."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its status, or 2 after one line if there is no such command."""
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        command = _command(words[0]) if words else None
        is_result = command is not None and command.is_result
        return run_command(lambda: _run(words, command), is_result=is_result)
    except KeyboardInterrupt:  # perhaps while torch is imported, which takes a second
        return 130


def commands() -> dict[str, Command]:
    """Return every command that is installed, by its name."""
    return OWN | {name: plugin("commands", name) for name in names("commands")}


def _command(name: str) -> Command | None:
    """Return a command, or None if there is none of that name."""
    if name not in OWN and name in names("commands"):
        return plugin("commands", name)
    return OWN.get(name)


def _run(words: list[str], command: Command | None) -> int:
    """Do what the words say; return a status."""
    if not words or words[0] in ("-h", "--help"):
        print(_overview(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    name, *rest = words
    if command is None:
        there = commands()
        near = difflib.get_close_matches(name, there, n=1)
        instead = f"did you mean {near[0]}?" if near else f"choose from {', '.join(there)}"
        return fail("llmcourse", f"there is no command {name!r}: {instead}")
    if {"-h", "--help"} & set(rest):
        print(f"example: llmcourse {name} {command.example}\n")
    return importlib.import_module(command.module).main(rest)


def _overview() -> str:
    """Return the commands, one a line."""
    lines = [f"  {name:10}{command.does}" for name, command in commands().items()]
    head = f"example: llmcourse train {OWN['train'].example}"
    return "\n".join([head, "", "commands:", *lines, "", "llmcourse train --help says more."])


if __name__ == "__main__":
    sys.exit(main())
