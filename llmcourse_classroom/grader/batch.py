"""A folder of submissions: each is graded once, a few at a time, also after an interruption."""

import argparse
import contextlib
import hashlib
import json
import logging
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from llmcourse.base import files, progress
from llmcourse.base.command_line import AGAIN, ended
from llmcourse_classroom.exercises.exercise import ExerciseError
from llmcourse_classroom.grader import alone, reader, report, session, submission
from llmcourse_classroom.grader.submission import Exam
from llmcourse_labs.sandbox import sandbox

PROGRAM = "llmcourse grade"

FORMAT = 1
MOST_NAME_BYTES = 200
NOBODYS = {"__MACOSX", "Thumbs.db", "desktop.ini"}
"""What unpackers and file managers leave."""
NO_SUBMISSION = {".csv", ".db", ".ini", ".log"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """Everything that grading a folder needs."""

    exam: Exam
    folder: Path
    out: Path
    isolation: sandbox.Isolation
    limits: sandbox.Limits
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be 1 or more, not {self.jobs}")
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder} is no folder: name the one with the submissions")


def submissions(folder: Path, topic: str) -> dict[str, Path]:
    """Return the submitted files by the name of who submitted.

    FOLDER/name.ipynb; or FOLDER/name/TOPIC.ipynb or FOLDER/name/TOPIC/TOPIC.ipynb, as nbgrader has
    it; or what else in these folders has the topic's questions, or its name; or none there.
    """
    found: dict[str, Path] = {}
    left: list[str] = []
    for path in sorted(p for p in folder.iterdir() if not p.name.startswith(".")):
        if path.name in NOBODYS or path.suffix.lower() in NO_SUBMISSION:
            left.append(_as_text(path.name))
            continue
        if path.is_symlink() or not path.is_dir():
            _add(found, path.stem if path.suffix == ".ipynb" else path.name, path)
            continue
        inside = [*_notebooks(path), *_notebooks(path / topic)]
        inside.sort(key=lambda notebook: _unlikeness(notebook, topic))
        _add(found, path.name, inside[0] if inside else path / f"{topic}.ipynb")
    if left:
        log.warning("not taken for submissions in %s: %s", folder, ", ".join(left))
    return found


def _notebooks(folder: Path) -> list[Path]:
    """Return the notebooks of a folder that is no link; none if it cannot be read."""
    with contextlib.suppress(OSError):  # whoever reads the file says it
        if not folder.is_symlink():
            return [p for p in folder.glob("*.ipynb") if not p.name.startswith(".")]
    return []


def _unlikeness(notebook: Path, topic: str) -> tuple[bool, bool, bool, str]:
    """Return what puts the notebook of a topic first: its questions, then its name."""
    cells: list[reader.Cell] = []
    with contextlib.suppress(ExerciseError):
        cells = reader.cells_of(notebook)
    asks = any(cell.grade_id.startswith(f"{topic[:2]}-") for cell in cells)
    return not asks, notebook.stem != topic, not notebook.stem.startswith(topic), notebook.name


def _add(found: dict[str, Path], name: str, path: Path) -> None:
    """Add a submission under a name that a file can have, and that no other one has."""
    name = _as_text(name)
    if len(name.encode()) > MOST_NAME_BYTES:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: MOST_NAME_BYTES // 4]}... {digest}"
    plain_name, count = name, 2
    while name.lower() in {other.lower() for other in found}:
        name, count = f"{plain_name} ({count})", count + 1
    found[name] = path


def _as_text(name: str) -> str:
    """Return a file's name as one line of text, also one that is none."""
    return submission.clean(os.fsencode(name).decode("utf8", "backslashreplace")).replace("\n", " ")


def _key_of(path: Path, batch: Batch) -> str:
    """Return what a report belongs to: the submission, what grades it, and the limits."""
    sha = hashlib.sha256(f"{FORMAT} {batch.exam.fingerprint} {batch.limits}".encode())
    sha.update(batch.isolation.kind.encode())
    try:
        size = path.stat().st_size if path.is_file() else None
        readable = size is not None and size <= reader.MOST_FILE_BYTES
        content = path.read_bytes() if readable else str(size).encode()
    except OSError as error:
        content = str(error).encode()
    sha.update(content)
    return sha.hexdigest()


def _has_reports(out: Path) -> bool:
    """Say whether all that is in a folder was written by an earlier call."""
    page = out / report.PAGE
    has_page = page.is_file() and b"llmcourse grade" in page.read_bytes()
    for path in out.iterdir():
        if path.name in (report.TABLE, report.PAGE) or path.name.startswith("."):
            continue
        try:
            is_report = json.loads(path.read_bytes())["format"] == FORMAT
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            is_report = False
        if not is_report and not (path.suffix == ".json" and has_page):
            return False
    return has_page or any(out.glob("*.json"))


def _finished(path: Path, key: str) -> dict[str, Any] | None:
    """Return the report in a file if it is whole and belongs to a key."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads(path.read_bytes())
        return found if found["key"] == key else None
    return None


def _cores(jobs: int) -> list[tuple[int, ...]]:
    """Return the cores for each of some submissions at a time, so that none takes another's."""
    every = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if jobs == 1 or not every:
        return [()] * jobs
    return [tuple(every[job % len(every) :: jobs]) for job in range(jobs)]


def _grade_one(
    name: str, path: Path, batch: Batch, number: int, free: SimpleQueue[tuple[int, ...]]
) -> dict[str, Any]:
    """Grade one submission and write its report; a fault of the grader's costs one report alone."""
    head = {"format": FORMAT, "submission": name, "file": _as_text(path.name)}
    head |= {"exercise": batch.exam.topic, "seed": batch.exam.seed}
    private = (batch.folder, batch.out, Path(batch.exam.tests.__file__).parent)
    cores = free.get()
    try:
        place = sandbox.Place(batch.isolation, batch.limits, private, number, cores=cores)
        body = alone.grade(path, batch.exam, place)
        # What may be due to the state of this machine is tried again in the next run.
        body["key"] = "" if body.pop("died", False) else _key_of(path, batch)
    except Exception as error:  # one bad submission must not end the batch
        last = str(error)
        if not isinstance(error, alone.DiedError):
            last = traceback.format_exception(error)[-1].strip()
        body = {"score": 0.0, "points": batch.exam.points, "questions": [], "seconds": 0.0}
        body |= {"problems": [f"the grader failed, look at it yourself: {last}"], "printed": ""}
        body |= {"key": ""}  # tried again in the next run
    finally:
        free.put(cores)
    whole = {**head, **body, "isolation": asdict(batch.isolation)}
    with files.write_atomically(batch.out / f"{name}.json") as file:
        file.write(json.dumps(whole, indent=1, sort_keys=True).encode())
    return whole


def run(batch: Batch) -> list[dict[str, Any]]:
    """Grade a folder; return all reports, in the order of the names.

    A submission that has a report from the same tests, seed and limits is not graded again.
    """
    files.refuse_others(batch.out, _has_reports)
    batch.out.mkdir(parents=True, exist_ok=True)
    found = submissions(batch.folder, batch.exam.topic)
    kept = {n: _finished(batch.out / f"{n}.json", _key_of(p, batch)) for n, p in found.items()}
    reports = {name: old for name, old in kept.items() if old is not None}
    todo = [name for name in found if name not in reports]
    # Threads: the work is in processes of each submission's own.
    pool = ThreadPoolExecutor(max_workers=batch.jobs)
    free: SimpleQueue[tuple[int, ...]] = SimpleQueue()
    for cores in _cores(batch.jobs):
        free.put(cores)
    graded = [pool.submit(_grade_one, n, found[n], batch, k, free) for k, n in enumerate(todo)]
    try:
        with progress.bar(
            total=len(found), initial=len(reports), unit="submission", desc=batch.exam.topic
        ) as bar:
            for future in as_completed(graded):
                reports[future.result()["submission"]] = future.result()
                bar.update()
    finally:
        pool.shutdown(cancel_futures=True)
    in_order = [reports[name] for name in found]
    report.write(batch.out, batch.exam, in_order, batch.isolation)
    return in_order


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        usage="%(prog)s notebook folder --out OUT [option value ...]",
        description="Grade a folder of submissions of one exercise notebook.",
    )
    add = made.add_argument
    add("notebook", type=Path, help="the exercises, such as exercises/05_tokens.ipynb")
    add("folder", type=Path, help="the submissions: NAME.ipynb or NAME/05_tokens.ipynb")
    add("--out", type=Path, required=True, help="folder for the reports")
    add("--jobs", type=int, default=1, help="submissions at a time (1)")
    add("--hidden", type=Path, help="folder of the hidden tests (hidden, beside it)")
    add("--seed", type=int, default=0, help="of the hidden tests' inputs (0)")
    told = "functions of the package that no cell may call (none)"
    add("--forbid", nargs="+", default=[], metavar="NAME", help=told)
    told = "fail unless namespaces can be had, or do without them (auto: the best there is)"
    add("--isolation", choices=("auto", "namespaces", "limits"), default="auto", help=told)
    add = made.add_argument_group("limits of a submission").add_argument
    for field in fields(sandbox.Limits):
        name, told = f"--{field.name.replace('_', '-')}", f"({field.default:g})"
        add(name, type=field.type, default=field.default, metavar="N", help=told)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Grade a folder; return an exit code."""
    options = _parser().parse_args(arguments)
    # Reports that are written stay, and are not made again.
    return ended(PROGRAM, lambda: _grade(options), again=AGAIN)


def _grade(options: argparse.Namespace) -> None:
    """Grade a folder, and say what came out."""
    notebook, folder, out = (p.resolve() for p in (options.notebook, options.folder, options.out))
    hidden = (options.hidden or notebook.parent / "hidden").resolve()
    torch.set_num_threads(1)
    # Processes that a submission leaves behind are ended with this block.
    with alone.adopted_orphans():
        # One flag for each field.
        limits = sandbox.Limits(
            **{f.name: getattr(options, f.name) for f in fields(sandbox.Limits)}
        )
        # All that can be wrong with the command shows before the first submission runs.
        exam = submission.exam(notebook, hidden, seed=options.seed, forbidden=options.forbid)
        isolation = sandbox.detect(
            [folder, out, hidden], worker=session.WORKER, wanted=options.isolation
        )
        batch = Batch(exam, folder, out, isolation, limits, options.jobs)
        for sentence in isolation.missing:
            print(f"not enforced: {sentence}", file=sys.stderr)
        scores = sorted(graded["score"] for graded in run(batch))
    median = f", median {scores[len(scores) // 2]:g} of {exam.points:g} points" if scores else ""
    where = os.path.relpath(out / report.PAGE)
    print(f"{len(scores) or 'no'} submissions{median}; see {where}")
