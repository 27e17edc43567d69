"""A folder of submissions: grade each once, a few at a time, and go on where a run was broken off.

Taught in: chapters/00_how_to_use.ipynb
"""

import contextlib
import ctypes
import hashlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from llmcourse import runtime
from llmcourse.grading import reader, report, sandbox, submission
from llmcourse.grading.submission import Exam

FORMAT = 1
MOST_NAME_BYTES = 200
_PR_SET_CHILD_SUBREAPER = 36


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

    FOLDER/name.ipynb, or FOLDER/name/TOPIC.ipynb, or another notebook in FOLDER/name.  A folder
    in which there is no notebook counts as a submission without one.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if not path.is_dir() or path.is_symlink():
            _add(found, path.stem if path.suffix == ".ipynb" else path.name, path)
            continue
        inside = sorted(p for p in path.glob("*.ipynb") if not p.name.startswith("."))
        named = [p for p in inside if p.stem == topic]
        _add(found, path.name, (named or inside or [path / f"{topic}.ipynb"])[0])
    return found


def _add(found: dict[str, Path], name: str, path: Path) -> None:
    """Add a submission under a name that a file can have, and that no other one has."""
    name = as_text(name)
    if len(name.encode()) > MOST_NAME_BYTES:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: MOST_NAME_BYTES // 4]}... {digest}"
    plain_name, count = name, 2
    while name.lower() in {other.lower() for other in found}:
        name, count = f"{plain_name} ({count})", count + 1
    found[name] = path


def key_of(path: Path, batch: Batch) -> str:
    """Return what a report belongs to: the submission, what grades it, and the limits."""
    sha = hashlib.sha256(f"{FORMAT} {batch.exam.fingerprint} {batch.limits}".encode())
    sha.update(batch.isolation.kind.encode())
    if path.is_file() and path.stat().st_size <= reader.MOST_FILE_BYTES:
        sha.update(path.read_bytes())
    else:
        sha.update(str(path.stat().st_size if path.is_file() else None).encode())
    return sha.hexdigest()


def finished(path: Path, key: str) -> dict[str, Any] | None:
    """Return the report in a file if it is whole and belongs to a key."""
    try:
        found = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("key") == key else None


def grade_one(name: str, path: Path, batch: Batch, number: int) -> dict[str, Any]:
    """Grade one submission and write its report; a fault of the grader's costs one report alone."""
    head = {"format": FORMAT, "submission": name, "file": as_text(path.name)}
    head |= {"exercise": batch.exam.topic, "seed": batch.exam.seed}
    try:
        place = sandbox.Place(batch.isolation, batch.limits, private(batch), number)
        body = {"key": key_of(path, batch), **submission.grade(path, batch.exam, place)}
    except Exception as error:  # one bad submission must not end the batch
        last = traceback.format_exception(error)[-1].strip()
        body = {"score": 0.0, "points": batch.exam.points, "questions": [], "seconds": 0.0}
        body |= {"problems": [f"the grader failed, look at it yourself: {last}"], "printed": ""}
        body["key"] = ""  # tried again in the next run
    whole = {**head, **body, "isolation": asdict(batch.isolation)}
    with runtime.write_atomically(batch.out / f"{name}.json") as file:
        file.write(json.dumps(whole, indent=1, sort_keys=True).encode())
    return whole


def as_text(name: str) -> str:
    """Return a file's name as one line of text, also one that is none."""
    return submission.clean(os.fsencode(name).decode("utf8", "backslashreplace")).replace("\n", " ")


def private(batch: Batch) -> tuple[Path, ...]:
    """Return the folders that a submission must not see."""
    hidden = Path(batch.exam.tests.__file__).parent
    return (batch.folder.resolve(), batch.out.resolve(), hidden.resolve())


def run(batch: Batch) -> list[dict[str, Any]]:
    """Grade a folder; return all reports, in the order of the names.

    A submission that has a report from the same tests, seed and limits is not graded again.
    """
    _make_folder(batch.out)
    found = submissions(batch.folder, batch.exam.topic)
    reports = {
        name: old
        for name, path in found.items()
        if (old := finished(batch.out / f"{name}.json", key_of(path, batch))) is not None
    }
    todo = {name: path for name, path in found.items() if name not in reports}
    with runtime.progress(
        total=len(found), initial=len(reports), unit="submission", desc=batch.exam.topic
    ) as bar:
        for graded in _in_parallel(todo, batch):
            reports[graded["submission"]] = graded
            bar.update()
    in_order = [reports[name] for name in found]
    report.write(batch.out, batch.exam, in_order, batch.isolation)
    return in_order


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error.strerror}): name another one") from None


def _in_parallel(todo: dict[str, Path], batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield reports as they are made."""
    # Threads: the work is in the learners' processes, and these end with the thread that began
    # them, however that comes about.
    pool = ThreadPoolExecutor(max_workers=batch.jobs)
    waiting = [
        pool.submit(grade_one, name, path, batch, number)
        for number, (name, path) in enumerate(todo.items())
    ]
    try:
        for future in as_completed(waiting):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent has ended, so that they can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End what this process still is the parent of, after a batch."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()


def total(reports: Sequence[dict[str, Any]]) -> str:
    """Return one line about a batch."""
    scores = sorted(report["score"] for report in reports)
    if not scores:
        return "no submissions"
    middle = scores[len(scores) // 2]
    return f"{len(scores)} submissions, median {middle:g} of {reports[0]['points']:g} points"
