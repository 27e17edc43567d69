"""The command:  llmcourse train --preset stories --out runs/a, also as python -m llmcourse train.

A command's module is loaded when it is asked for: `llmcourse --help` needs no torch.
"""

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from llmcourse.base.command_line import fail, run_command


class Command(NamedTuple):
    """A module with a `main`, what it does in a few words, and arguments to begin with."""

    module: str
    does: str
    example: str


COMMANDS = {
    "train": Command(
        "llmcourse.train.__main__",
        "train a small Llama, or go on with a run",
        "--preset stories --steps 300 --out runs/a",
    ),
    "sample": Command(
        "llmcourse.train.sampling",
        "let a trained run write",
        "--run runs/a --prompt 'Once upon a time'",
    ),
    "chat": Command(
        "llmcourse.posttrain.chat",
        "talk to a fine-tuned run",
        "--run runs/chat",
    ),
    "prepare": Command(
        "llmcourse.data.prepare",
        "make a tokenizer and shards of text of your own",
        "texts/ more.jsonl.gz --out data/",
    ),
    "curate": Command(
        "llmcourse.data.curation.curate",
        "make clean documents of web pages or of text of your own",
        "pages/ --out curated/",
    ),
    "evaluate": Command(
        "llmcourse.evaluate.command",
        "let a run answer questions, with intervals",
        "--run runs/a --suite stories",
    ),
    "capstone": Command(
        "llmcourse.capstone.__main__",
        "run the whole machine, from a crawl to a report",
        "--config capstone.toml --out runs/capstone",
    ),
    "report": Command(
        "llmcourse.evaluate.report",
        "write one page of a run, each number with where it came from",
        "--run runs/a --out reports/a",
    ),
    "export": Command(
        "llmcourse.train.export.folder",
        "write a run as a folder for Hugging Face's transformers",
        "--run runs/a --to exported/a",
    ),
    "launch": Command(
        "llmcourse.scale.launch.__main__",
        "write a job for a cluster",
        "slurm --run_folder /shared/runs/a --nodes 2 --out job.sbatch",
    ),
    "grade": Command(
        "llmcourse.course.grader.batch",
        "grade a folder of submissions",
        "exercises/05_tokens.ipynb submissions/ --out report/ --jobs 2",
    ),
    "own": Command(
        "llmcourse.course.own.__main__",
        "make a Llama of your own of your answers, train it, grade it",
        "assemble --borrow",
    ),
    "progress": Command(
        "llmcourse.course.exercises.progress",
        "show how far your exercises are, or take that elsewhere",
        "export mine.json",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its status, or 2 after one line if there is no such command."""
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        return run_command(lambda: _run(words), is_result=words[:1] in (["sample"], ["chat"]))
    except KeyboardInterrupt:  # perhaps while torch is imported, which takes a second
        return 130


def _run(words: list[str]) -> int:
    """Do what the words say; return a status."""
    if not words or words[0] in ("-h", "--help"):
        print(_overview(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    name, *rest = words
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        instead = f"did you mean {near[0]}?" if near else f"choose from {', '.join(COMMANDS)}"
        return fail("llmcourse", f"there is no command {name!r}: {instead}")
    command = COMMANDS[name]
    if {"-h", "--help"} & set(rest):
        print(f"example: llmcourse {name} {command.example}\n")
    return importlib.import_module(command.module).main(rest)


def _overview() -> str:
    """Return the commands, one a line."""
    lines = [f"  {name:10}{command.does}" for name, command in COMMANDS.items()]
    head = f"example: llmcourse train {COMMANDS['train'].example}"
    return "\n".join([head, "", "commands:", *lines, "", "llmcourse train --help says more."])


if __name__ == "__main__":
    sys.exit(main())
