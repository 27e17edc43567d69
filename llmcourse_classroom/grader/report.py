"""The reports of a batch: one table for a spreadsheet, one page for people."""

import csv
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from llmcourse.base import files
from llmcourse_classroom.grader.submission import Exam
from llmcourse_labs.sandbox.sandbox import Isolation

TABLE, PAGE = "scores.csv", "index.html"


def write(
    folder: Path, exam: Exam, reports: Sequence[dict[str, Any]], isolation: Isolation
) -> None:
    """Write scores.csv and index.html into a folder."""
    written = {TABLE: _table(exam, reports), PAGE: _page(exam, reports, isolation)}
    for name, text in written.items():
        with files.write_atomically(folder / name) as file:
            file.write(text.encode())


def _table(exam: Exam, reports: Sequence[dict[str, Any]]) -> str:
    """Return the scores as CSV: a row for a submission, a column for a question."""
    numbers = [question.number for question in exam.questions]
    writer = csv.writer(text := io.StringIO(), lineterminator="\n")
    writer.writerow(["submission", "score", "points", *numbers, "problems"])
    for report in reports:
        scores = {q["question"]: f"{q['score']:g}" for q in report["questions"]}
        row = [report["submission"], f"{report['score']:g}", f"{report['points']:g}"]
        row += [scores.get(number, "0") for number in numbers]
        writer.writerow([harmless(cell) for cell in [*row, "; ".join(report["problems"])]])
    return text.getvalue()


def harmless(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.lstrip()[:1] in ("=", "+", "-", "@") else cell


def _page(exam: Exam, reports: Sequence[dict[str, Any]], isolation: Isolation) -> str:
    """Return one page of HTML about a batch; all that comes from submissions is escaped."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    text = resources.files("llmcourse_classroom.grader").joinpath("report.html.jinja")
    template = environment.from_string(text.read_text(encoding="utf8"))
    means = [
        sum(q["score"] for r in reports for q in r["questions"] if q["question"] == question.number)
        / (question.points * max(1, len(reports)))
        for question in exam.questions
    ]
    return template.render(exam=exam, reports=reports, isolation=isolation, means=means)
