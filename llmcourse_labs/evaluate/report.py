"""A run in one page and one JSON, every number read or computed, each with where it came from.

    llmcourse report --run runs/a --out reports/a

What is not there is said not to be measured; what contradicts itself is an error.  Two reports of
equal runs are equal to the byte but for their last section, which holds dates and speeds.
"""

import contextlib
import datetime
import json
import math
from argparse import HelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from jsonargparse import ArgumentParser

from llmcourse import __version__
from llmcourse.base.command_line import ended
from llmcourse.base.files import refuse_others, write_atomically
from llmcourse_labs.evaluate import report_sections as of
from llmcourse_labs.evaluate.report_ability import benchmarks_section, contamination_section
from llmcourse_labs.evaluate.report_page import page
from llmcourse_labs.evaluate.report_run import METRICS, ReportedRun, facts, read_run

PROGRAM = "llmcourse report"

Section = Mapping[str, Any]
"""A part of a report, see `report`."""

TITLES = {
    "run": "The run",
    "data": "Data",
    "funnel": "Funnel of the documents",
    "mixture": "Mixture",
    "shape": "Shape and parameters",
    "compute": "Computation",
    "losses": "Losses",
    "before": "Stages before",
    "benchmarks": "Benchmarks",
    "contamination": "Contamination",
    "seeds": "Seeds",
    "versions": "Versions and machine",
    "hashes": "Hashes",
    "settings": "Settings",
    "times": "Dates and speeds",
}
"""The sections in their order; those that a caller adds come before the benchmarks."""

_PARTS = ("title", "facts", "tables", "curves", "notes", "missing")
_TABLE = {"caption", "columns", "rows"}
_CURVES = {"x", "y", "lines"}


def report(
    run_folder: str | Path,
    out: str | Path,
    *,
    stages: Mapping[str, Section] | None = None,
    curated: str | Path | None = None,
) -> dict[str, Any]:
    """Write report.html and report.json of a finished run, and return what the JSON holds.

    A section is plain data, and every part of it may be left out::

        {
            "title": "Preferences",
            "facts": {"pairs": {"value": 400, "from": "dpo/pairs.jsonl"}},
            "tables": [{"caption": "Steps", "columns": ["step", "kept"],
                        "rows": [["rules", 950]], "from": "curated/report.json"}],
            "curves": [{"x": "step", "y": "loss of DPO", "from": "dpo/metrics.jsonl",
                        "lines": {"training": [[1, 0.69], [2, 0.61]]}}],
            "notes": ["One sentence."],
            "missing": "why nothing was measured",
        }

    A value is a number, a string or a bool; a fact may have "low" and "high", its interval.  "from"
    is a file, relative to whatever is reported, or the function that computed the value.

    Args:
        run_folder: of the run, beside whose checkpoints its evaluations lie.
        out: a folder for the two files.
        stages: sections by name.  One of a name in `TITLES` is put together with the report's own:
            a fact that both have must be equal, and what was missing is not any more.  Others,
            such as "sft" and "dpo", need a title and come before the benchmarks, in their order.
        curated: the folder of `llmcourse curate` whose documents the data was made of; None looks
            above the folder of prepared text.

    Raises:
        ValueError: if there is no run or an unfinished one, something is damaged, an evaluation is
            of other weights, another tokenizer or was changed, documents are not those of the data,
            or a section has another form.
        OSError: if a file cannot be read or written.
    """
    run = read_run(Path(run_folder))
    # The report's own sections; `_together` puts in what the caller gives.
    sections = {
        "run": of.run_section(run),
        "data": of.data_section(run),
        "funnel": of.funnel_section(run, None if curated is None else Path(curated)),
        "mixture": of.mixture_section(run),
        "shape": of.shape_section(run),
        "compute": of.compute_section(run),
        "losses": of.losses_section(run),
        "before": of.before_section(run),
        "benchmarks": benchmarks_section(run.evaluations, run.folder.name),
        "contamination": contamination_section(run),
        "seeds": of.seeds_section(run),
        "versions": of.versions_section(run),
        "hashes": of.hashes_section(run),
        "settings": of.settings_section(run),
        # The last, and the only one in which reports of equal runs differ.
        "times": _times(run),
    }
    record = {
        "title": f"Report of the run {run.folder.name}",
        "lead": _lead(run),
        "version": __version__,
        "sections": _together(sections, stages or {}),
    }
    # The page is made from what JSON can hold, so that both say the same.
    record = _plain(record)
    # Both texts are made before one is written: a fault leaves the old files.
    for name, text in (
        ("report.html", page(record)),
        ("report.json", f"{json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)}\n"),
    ):
        with write_atomically(Path(out) / name) as file:
            file.write(text.encode("utf8", "replace"))
    return record


def _lead(run: ReportedRun) -> str:
    """Return the sentence above the page."""
    stage = {"pretrain": "pretraining", "sft": "fine-tuning"}[run.config.stage]
    return (
        f"A run of {stage}, {run.steps_done:,} steps. All that follows was read from its folder or "
        "computed from what is there. Where nobody has measured something, the page says so."
    )


def _times(run: ReportedRun) -> Section:
    """Return what differs from one making of the same run to the next."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    told = facts("the clock, in UTC", {"this report was written": now})
    if rates := [row["tokens_per_s"] for row in run.metrics if row.get("tokens_per_s")]:
        told |= facts(METRICS, {"tokens a second, median over the steps": median(rates)})
    return {"facts": told, "notes": ["All other sections of two equal runs are equal."]}


# --- sections of a caller


def _together(own: Mapping[str, Section], stages: Mapping[str, Section]) -> dict[str, Any]:
    """Return all sections in their order, each whole."""
    made: dict[str, Any] = {}
    for name, section in own.items():
        if name == "benchmarks":
            others = {n: s for n, s in stages.items() if n not in TITLES}
            made |= {n: _whole(n, {}, s) for n, s in others.items()}
        made[name] = _whole(name, section, stages.get(name, {}))
    return made


def _whole(name: str, own: Section, given: Section) -> dict[str, Any]:
    """Put together what the report has of a section and what was given."""
    _check(name, given)
    title = given.get("title", TITLES.get(name))
    if title is None:
        raise ValueError(f"the section {name!r} needs a title")
    facts = dict(own.get("facts", {}))
    for what, new in given.get("facts", {}).items():
        if what in facts and facts[what]["value"] != new["value"]:
            raise ValueError(
                f"the section {name!r} has {what!r} = {new['value']!r}, and "
                f"{facts[what]['from']} says {facts[what]['value']!r}: leave it out, or find out "
                "which is right"
            )
        facts.setdefault(what, new)
    lists = {p: [*own.get(p, []), *given.get(p, [])] for p in ("tables", "curves", "notes")}
    whole: dict[str, Any] = {"title": title, "facts": facts, **lists}
    if not facts and not lists["tables"] and not lists["curves"]:
        whole["missing"] = given.get("missing") or own.get("missing")
        if not whole["missing"]:
            raise ValueError(f"the section {name!r} is empty: say what is missing, and why")
    return whole


def _check(name: str, section: Section) -> None:
    """Raise ValueError unless a section has the form that `report` describes."""
    if strange := sorted(set(section) - set(_PARTS)):
        raise ValueError(
            f"the section {name!r} has {strange[0]!r}: its parts are {', '.join(_PARTS)}"
        )
    told = {f"fact {what!r}": each for what, each in section.get("facts", {}).items()}
    for part, needs in (("tables", _TABLE), ("curves", _CURVES)):
        for number, each in enumerate(section.get(part, [])):
            told[f"{part}[{number}]"] = each
            if missing := sorted(needs - set(each)):
                raise ValueError(f"{part}[{number}] of the section {name!r} lacks {missing[0]!r}")
    for what, each in told.items():
        if not each.get("from"):
            raise ValueError(f"the {what} of the section {name!r} must say where it is from")
        if Path(each["from"]).is_absolute():
            raise ValueError(
                f"the {what} of the section {name!r} is from {each['from']}: give a path that "
                "means something on another machine"
            )
    for what, each in section.get("facts", {}).items():
        if not isinstance(each.get("value"), int | float | str):
            raise ValueError(
                f"the fact {what!r} of the section {name!r} must be a number, a string or a bool, "
                f"got {each.get('value')!r}"
            )


def _plain(value: Any) -> Any:
    """Return the same as JSON has it: lists, and words for numbers that are none."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# --- the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _report(arguments))


def _report(arguments: Sequence[str] | None) -> None:
    options = _parser().parse_args(arguments)
    out = Path(options.out or Path(options.run) / "report")
    refuse_others(out, lambda folder: bool(_read_sections(folder / "report.json")))
    record = report(options.run, out, curated=options.curated)
    for section in record["sections"].values():
        if "missing" in section:
            print(f"{section['title']}: not measured: {section['missing']}")
    print(f"written to {out / 'report.html'} and {out / 'report.json'}")


def _read_sections(path: Path) -> dict[str, Any]:
    """Return the sections of a report; none if a file is no report."""
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
        return dict(json.loads(path.read_bytes())["sections"])
    return {}


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Write one page and one JSON of a run, each number with where it came from.",
    )
    parser.add_argument("--run", required=True, help="folder of the run")
    told = "folder for report.html and report.json (RUN/report)"
    parser.add_argument("--out", metavar="FOLDER", help=told)
    told = "folder of llmcourse curate that the data was prepared from (the one above the data)"
    parser.add_argument("--curated", metavar="FOLDER", help=told)
    return parser
