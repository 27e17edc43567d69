"""The funnel on files of one's own.

    llmcourse curate pages/ more.jsonl.gz --out curated/

Documents go through the steps of `funnel` twice: once each by itself, with a few bytes of every one
kept that tell copies, and once again when it is known which are copies.  In between they lie in
chunks under --out, each written whole: a call that was cut short goes on with the chunk that is
missing.  What is written follows from the files and the settings alone, however many processes.
"""

import argparse
import hashlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from llmcourse.base import progress
from llmcourse.base.arguments import require
from llmcourse.base.command_line import AGAIN, ended, run_command, shorten_help
from llmcourse.base.resumable import MADE_FROM, Resumable, read_record
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.dedup import RepeatedLines
from llmcourse_labs.curation.documents import as_separator
from llmcourse_labs.curation.encode import num_cores
from llmcourse_labs.curation.funnel import (
    QUALITY,
    STEPS,
    TEST_ITEMS,
    Funnel,
)
from llmcourse_labs.curation.language import KeepLanguage, default_model
from llmcourse_labs.curation.passes import (
    CHUNK,
    Read,
    Remembered,
    chunks,
    find_copies,
    first_pass,
    is_written,
    read_counts,
    read_documents,
    read_remembered,
    record_of,
    require_some,
    second_pass,
    write_documents,
    write_first,
)
from llmcourse_labs.curation.quality import KeepQuality, Quality
from llmcourse_labs.curation.report import write_page
from llmcourse_labs.curation.sources import (
    Source,
    digest_of,
    find_sources,
)
from llmcourse_labs.curation.step import StepStats
from llmcourse_labs.curation.unpack import require_columns

PROGRAM = "llmcourse curate"

REPORT = "report.json"

USUAL = {
    *("help", "files", "out", "language", "test_items", "quality", "without", "processes"),
    *("executor",),
}
"""What --help explains; --help all explains every setting."""


def curate(
    inputs: Sequence[str | Path],
    out: str | Path,
    funnel: Funnel,
    *,
    field: str = "text",
    separator: str = END_OF_TEXT,
    processes: int = 1,
) -> dict[str, Any]:
    """Put documents of files through a funnel; go on where an earlier call was cut short.

    A line or a row that is no document, bytes that are no UTF-8, a document beyond `LONGEST` and
    what comes behind damage in a file are dropped and counted.

    Memory does not grow with the texts: of each document that reaches the search for copies it
    holds 16 bytes, 8 for each band and 8 for each line, and at the end, when copies are looked for,
    about four times as much.

    Args:
        inputs: text, JSON Lines, Parquet and web pages, or folders of them, see `find_sources`.
        out: a new or empty folder, or one in which the same call was cut short.
        funnel: the steps.
        field: name of the text in JSON Lines and Parquet.
        separator: what stands between the documents of a .txt.
        processes: that work; they change nothing but the time it takes.

    Returns:
        What report.json holds.

    Raises:
        ValueError: if a file or setting cannot be used, no document can be read, or the folder
            holds something else.
        OSError: if a file cannot be written; what was written is taken up by the next call.
    """
    require("processes", processes, least=1)
    sources, folder = _begun(inputs, Path(out), funnel, field, separator)
    out = folder.folder
    with folder.alone() as done:
        if done is not None:
            return done
        folder.save()
        with _Pool(funnel, processes) as pool:
            try:
                read = chunks(sources, field, separator)
                first, remembered = _first_pass(out, read, pool, sources)
                require_some(first)
            except ValueError:  # the same call would fail again, and another one is refused
                shutil.rmtree(out / "chunks", ignore_errors=True)
                folder.unfinished.unlink()
                raise
            reasons, lines = find_copies(funnel, remembered)
            second = _second_pass(out, reasons, lines, pool)
        record = record_of([*first, *second], funnel)
        write_page(out, record | {MADE_FROM: folder.made_from})
        folder.finish(record)
        shutil.rmtree(out / "chunks", ignore_errors=True)
        return read_record(folder.record)[0]


def _begun(
    inputs: Sequence[str | Path], out: Path, funnel: Funnel, field: str, separator: str
) -> tuple[list[Source], Resumable]:
    """Return the files to read, and the folder of what is made of them."""
    if not separator:
        raise ValueError("the separator is empty: name what stands between two documents")
    sources = find_sources(inputs, leave_out=out, pages=True)
    require_columns(sources, field)
    made_from = {
        "files": digest_of(sources, named=True),
        "field": field,
        "separator": separator,
        "steps": _described(funnel),
    }
    return sources, Resumable(out, made_from, record=REPORT, verb="curated")


# --- the passes


def _first_pass(
    out: Path, read: Iterable[list[Read]], pool: "_Pool", sources: Sequence[Source]
) -> tuple[list[StepStats], list[Remembered]]:
    """Write every chunk that is not there yet; return what was counted and what is remembered."""
    tallies: list[StepStats] = []
    remembered: list[Remembered] = []
    total = sum(source.num_bytes for source in sources)
    todo = (
        (number, None if is_written(out / "chunks" / f"{number:06d}") else chunk)
        for number, chunk in enumerate(read)
    )
    with progress.bar(total=total, unit="B", unit_scale=True, desc="first pass") as bar:
        for (number, _), found in pool.map(_first, todo):
            stem = out / "chunks" / f"{number:06d}"
            if found is not None:
                write_first(stem, found)
            remembered.append(read_remembered(stem))
            tallies += read_counts(stem)
            bar.update(min(total - bar.n, CHUNK))
    return tallies, remembered


def _second_pass(
    out: Path, reasons: list[list[str]], lines: RepeatedLines, pool: "_Pool"
) -> list[StepStats]:
    """Write the documents of every chunk that are left."""
    tallies: list[StepStats] = []
    todo = ((out / "chunks" / f"{number:06d}", here, lines) for number, here in enumerate(reasons))
    with progress.bar(total=len(reasons), unit="chunk", desc="second pass") as bar:
        for number, (_, (documents, counted)) in enumerate(pool.map(_second, todo)):
            write_documents(out / "documents" / f"{number:06d}.jsonl", documents)
            tallies += counted
            bar.update()
    return tallies


# --- processes

_funnel: Funnel
"""Of this process, if it is one that works for another."""


def _begin(funnel: Funnel) -> None:
    """Make a process ready to work; it ends when the one that writes does, however that ends."""
    global _funnel  # noqa: PLW0603 - a process of a pool has no other place
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    _funnel = funnel


def _first(funnel: Funnel | None, item: tuple[int, list[Read] | None]) -> Any:
    """Do the first pass of a chunk, unless it has been done."""
    return None if item[1] is None else first_pass(funnel or _funnel, item[1])


def _second(funnel: Funnel | None, item: tuple[Path, list[str], RepeatedLines]) -> Any:
    """Do the second pass of a chunk."""
    stem, reasons, lines = item
    return second_pass(funnel or _funnel, read_documents(stem), reasons, lines)


class _Pool:
    """Processes that each hold the funnel; with one it is this process."""

    def __init__(self, funnel: Funnel, processes: int) -> None:
        self.funnel, self.ahead = funnel, 2 * processes
        self.pool = None
        if processes > 1:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])
            self.pool = ProcessPoolExecutor(processes, context, _begin, (funnel,))

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[..., Any], items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield every item with what becomes of it, in order; a few are taken ahead."""
        if self.pool is None:
            yield from ((item, work(self.funnel, item)) for item in items)
            return
        under_way: deque[tuple[Any, Future]] = deque()
        for each in items:
            under_way.append((each, self.pool.submit(work, None, each)))
            if len(under_way) > self.ahead:
                item, future = under_way.popleft()
                yield item, future.result()
        yield from ((item, future.result()) for item, future in under_way)


def _described(funnel: Funnel) -> dict[str, Any]:
    """Return the settings of a funnel as plain data; of trained parts a hash."""
    language: Any = funnel.language  # of these kinds in `funnel_of`
    quality: Any = funnel.quality
    test_items: Any = funnel.test_items
    items = test_items.test_items if test_items else []
    return {
        "language": language.language,
        "similarity": funnel.similarity,
        "most_documents": funnel.most_documents,
        "without": sorted(funnel.without),
        "test_items": hashlib.sha256("\n".join(items).encode()).hexdigest() if items else None,
        "quality": quality and hashlib.sha256(quality.classifier.weights.tobytes()).hexdigest(),
        "least_quality": quality and quality.least,
    }


# --- the command


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _curate(arguments), again=AGAIN)


def _curate(arguments: list[str] | None) -> None:
    """Put the documents through the funnel, and say what is left."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    shorten_help(parser, words, USUAL)
    options = parser.parse_args(words)
    settings = {"field": options.field, "separator": as_separator(options.separator)}
    record: dict[str, Any] | None
    if options.executor is None:
        for name in ("tasks", "partition", "time", "submit"):
            if value := getattr(options, name):
                raise ValueError(f"--{name} {value} has no effect without --executor: give both")
        funnel = funnel_of(options)
        processes = num_cores() if options.processes is None else options.processes
        record = curate(options.files, options.out, funnel, processes=processes, **settings)
    else:
        record = _on_executor(options, words, settings)
    if record is not None:
        print(_summary(Path(options.out), record))


def _on_executor(
    options: argparse.Namespace, words: Sequence[str], settings: dict[str, str]
) -> dict[str, Any] | None:
    """Let datatrove run the passes; return the report, None where a cluster makes it later."""
    try:
        from llmcourse_labs.curation import executors  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ValueError(
            f'--executor needs {error.name}: pip install "llmcourse[datatrove]"'
        ) from error
    funnel = funnel_of(options)
    sources, folder = _begun(options.files, Path(options.out), funnel, **settings)
    cores = num_cores() if options.executor == "local" else len(sources)  # a cluster's are many
    workers = cores if options.processes is None else options.processes
    tasks = min(len(sources), cores) if options.tasks is None else options.tasks
    work = executors.work_on(sources, folder, funnel, tasks=tasks, workers=workers, **settings)
    limits = {"partition": options.partition or "", "time": options.time or ""}
    if options.executor == "local" and (options.submit or options.time or options.partition):
        raise ValueError("--submit, --time and --partition are for a cluster: leave them out")
    with folder.alone() as done:
        if done is not None:
            return done
        if options.executor == "local":
            folder.save()
            try:
                executors.run_here(work)
            except ValueError:  # the same call would fail again, and another one is refused
                shutil.rmtree(folder.folder / executors.WORK, ignore_errors=True)
                folder.unfinished.unlink()
                raise
            return read_record(folder.record)[0]
        between = folder.folder / executors.WORK
        was_there = between.exists()
        made = executors.executors(work, options.executor, **limits)
        try:
            if not options.submit:
                print(executors.job_of(made, words))
                return None
            executors.require_cluster(options.executor)
        finally:
            if not was_there:  # datatrove makes the folders of its logs
                shutil.rmtree(between, ignore_errors=True)
        folder.save()
        executors.submit(made)
    print(f"submitted; the report will be {folder.record}")
    return None


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        usage=f"{PROGRAM} pages/ more.jsonl.gz --out curated/",
        description="Put documents or web pages through a funnel: main text, language, rules, "
        "copies, repeated lines, quality, test items, personal data. The folder then has a report "
        "and what is left, for llmcourse prepare. A call that was cut short goes on where it was.",
    )
    add = parser.add_argument
    kinds = ".txt, .jsonl, .html, .warc, .wet, also with .gz or .zst; .parquet; folders of them"
    add("files", nargs="+", help=kinds)
    add("--out", required=True, help="new folder for the report and the documents")
    add_steps(parser)
    add("--field", default="text", help="name of the text in .jsonl and .parquet")
    add("--separator", default=END_OF_TEXT, help=r"what stands between documents of a .txt; \n, \t")
    add("--processes", type=int, help="that work at a time (all cores; of a cluster all tasks)")
    add(
        "--executor",
        choices=("local", "slurm", "ray"),
        help="datatrove's, for many machines",
    )
    add("--tasks", type=int, help="with it: parts of the files (one for each core; a file each)")
    add("--partition", help="of Slurm's cluster")
    add("--time", help="limit of a task on Slurm's cluster (24:00:00)")
    add("--submit", action="store_true", help="give the job to the cluster, and do not print it")
    return parser


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a funnel."""
    add = parser.add_argument
    add("--language", default="en", help="of the documents to keep: en, de or es")
    add("--similarity", type=float, default=0.6, help="of near copies, half of which are found")
    add("--test_items", help="file with questions that no document may hold, one a line")
    add("--quality", help="file of a classifier that Quality.save has written")
    add("--least_quality", type=float, default=0.5, help="its least probability")
    add("--without", nargs="*", default=[], help=f"steps to leave out: {', '.join(STEPS)}")


def funnel_of(options: argparse.Namespace) -> Funnel:
    """Return the funnel that the options describe.

    Raises:
        ValueError: if one is outside its range, has no effect, or names a file of no use.
    """
    funnel = Funnel(
        language=KeepLanguage(model=default_model(), language=options.language),
        similarity=options.similarity,
        without=tuple(options.without),
    )
    require("similarity", options.similarity, above=0, below=1)
    if options.quality is not None:
        least = options.least_quality
        require("least_quality", least, least=0, most=1)
        quality = KeepQuality(classifier=Quality.load(options.quality), least=least)
        funnel = replace(funnel, quality=quality)
    elif options.least_quality != 0.5:
        raise ValueError("--least_quality has no effect without --quality: leave it out")
    if options.test_items is not None:
        lines = Path(options.test_items).read_text(encoding="utf8", errors="replace").split("\n")
        items = [line for line in lines if any(map(str.isalnum, line))]
        if not items:
            raise ValueError(f"{options.test_items} holds no test item: one a line")
        funnel = replace(funnel, test_items=Decontaminate(items))
    return funnel


def _summary(out: Path, record: dict[str, Any]) -> str:
    """Return what was left after each step, and what to do with it."""
    tallies = [StepStats.from_dict(each) for each in record["tallies"]]
    lines = [f"{out}: {record['left']:,} of {record['documents']:,} documents are left"]
    lines += [f"  {tally.name:16} {tally.taken - tally.kept:8,} dropped" for tally in tallies]
    for name in record["left_out"]:
        needs = f": give --{name.replace(' ', '_')}" if name in (QUALITY, TEST_ITEMS) else ""
        lines.append(f"  {name:16}  left out{needs}")
    lines.append(f"See {out / 'report.html'}.  Go on with: llmcourse prepare {out / 'documents'}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_command(main))
