"""Exercises from the command line.

    python -m llmcourse.grading grade exercises/05_tokens.ipynb submissions/ --out report/ --jobs 2
    python -m llmcourse.grading progress [export FILE | import FILE | summary FILE]

Taught in: chapters/00_how_to_use.ipynb
"""

import argparse
import dataclasses
import importlib
import os
import sys
from pathlib import Path

import torch

from llmcourse.grading import batch, sandbox, submission

USAGE, STOPPED = 2, 130


def parser() -> argparse.ArgumentParser:
    """Return the parser of `grade`."""
    made = argparse.ArgumentParser(
        prog="python -m llmcourse.grading grade",
        description="Grade a folder of submissions of one exercise notebook.",
    )
    made.add_argument(
        "notebook", type=Path, help="the exercises, such as exercises/05_tokens.ipynb"
    )
    made.add_argument(
        "folder", type=Path, help="the submissions: NAME.ipynb or NAME/05_tokens.ipynb"
    )
    made.add_argument("--out", type=Path, required=True, help="folder for the reports")
    made.add_argument("--jobs", type=int, default=1, help="submissions at a time (1)")
    made.add_argument("--hidden", type=Path, help="folder of the hidden tests (hidden, beside it)")
    made.add_argument("--seed", type=int, default=0, help="of the hidden tests' inputs (0)")
    made.add_argument(
        "--isolation", choices=("auto", "namespaces", "limits"), default="auto",
        help="fail unless namespaces can be had, or do without them (auto: the best there is)",
    )  # fmt: skip
    for field in dataclasses.fields(sandbox.Limits):
        name = f"--{field.name.replace('_', '-')}"
        made.add_argument(name, type=field.type, default=field.default, help=f"({field.default:g})")
    return made


def grade(arguments: list[str]) -> int:
    """Grade a folder; return an exit code."""
    options = vars(parser().parse_args(arguments))
    notebook, folder, out = (options[name].resolve() for name in ("notebook", "folder", "out"))
    hidden = (options["hidden"] or notebook.parent / "hidden").resolve()
    limits = {f.name: options[f.name] for f in dataclasses.fields(sandbox.Limits)}
    torch.set_num_threads(1)
    batch.adopt_orphans()
    try:
        exam = submission.exam(notebook, hidden, seed=options["seed"])
        private = [folder, out, hidden]
        isolation = sandbox.detect(private, wanted=options["isolation"])
        work = batch.Batch(exam, folder, out, isolation, sandbox.Limits(**limits), options["jobs"])
        for sentence in isolation.missing:
            print(f"not enforced: {sentence}", file=sys.stderr)
        reports = batch.run(work)
    except (ValueError, OSError) as error:
        print(f"grade: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\ngrade: stopped; the same command goes on from here", file=sys.stderr)
        return STOPPED
    finally:
        batch.end_orphans()
    print(f"{batch.total(reports)}; see {os.path.relpath(out / 'index.html')}")
    return 0


def progress(arguments: list[str]) -> int:
    """Show, export, import or sum up a learner's progress; return an exit code."""
    return importlib.import_module("llmcourse.grading.progress").main(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    commands = {"grade": grade, "progress": progress}
    if not words or words[0] not in commands:
        print(__doc__.split("\n\nTaught in")[0], file=sys.stderr)
        return 0 if words and words[0] in ("-h", "--help") else USAGE
    return commands[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main())
