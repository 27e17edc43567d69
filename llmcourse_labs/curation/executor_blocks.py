"""The passes of the funnel as blocks of `datatrove`, each a part of the files a task.

A block reads and writes files alone: what goes from one to the next lies under the output folder,
named by the number of the file it comes from and of the chunk in it, so that the order of the
names is that of the documents.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.pipeline.base import PipelineStep

from llmcourse.base.files import write_atomically
from llmcourse.base.resumable import MADE_FROM, Resumable
from llmcourse_labs.curation import passes
from llmcourse_labs.curation.dedup import RepeatedLines
from llmcourse_labs.curation.funnel import Funnel
from llmcourse_labs.curation.report import write_page
from llmcourse_labs.curation.sources import Source
from llmcourse_labs.curation.step import StepStats

FIRST, REASONS, COUNTS, LINES_FILE = "first", "reasons", "counts", "lines.npy"
"""What lies between the blocks, in the folder of the work."""


class Held:
    """What a block works with, which the executor's description of it does not spell out.

    The description is JSON; of a funnel it would hold all that a classifier has learnt.
    """

    def __init__(self, sources: list[tuple[Source, str]], funnel: Funnel) -> None:
        self.sources, self.funnel = sources, funnel

    def __str__(self) -> str:
        return f"a funnel for {len(self.sources)} files"


class Block(PipelineStep):
    """A pass over this task's files; nothing goes on through the pipeline.

    Args:
        sources: all files, of which a task takes every N-th, each with the name of its documents.
        work: folder for what lies between.
        out: folder of the result.
        funnel: the steps.
    """

    type = "Curate"

    def __init__(
        self, sources: list[tuple[Source, str]], work: Path, out: Path, funnel: Funnel
    ) -> None:
        super().__init__()
        self.work, self.out = work, out
        self.held = Held(sources, funnel)

    def stems(self, rank: int, world_size: int) -> list[str]:
        """Return the chunks of a task's files that the first pass has written."""
        found = sorted(path.stem for path in (self.work / FIRST).glob("*.jsonl"))
        return [stem for stem in found if int(stem.split("-")[0]) % world_size == rank]

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Do the task."""
        with self.track_time():
            self.do(rank, world_size)
        yield from data or ()

    def do(self, rank: int, world_size: int) -> None:
        """Do the part of a task."""
        raise NotImplementedError


class FirstPass(Block):
    """Read the files, put their documents through the judges, remember what tells copies."""

    name = "first pass"

    def __init__(self, *settings: Any, field: str, separator: str) -> None:
        super().__init__(*settings)
        self.field, self.separator = field, separator

    def do(self, rank: int, world_size: int) -> None:
        """Write every chunk of this task's files."""
        for number in range(rank, len(self.held.sources), world_size):
            source, name = self.held.sources[number]
            read = passes.chunks([source], self.field, self.separator, name=name)
            for count, chunk in enumerate(read):
                found = passes.first_pass(self.held.funnel, chunk)
                passes.write_first(self.work / FIRST / f"{number:06d}-{count:06d}", found)


class FindCopies(Block):
    """From what all tasks remember: which documents and which lines are copies; one task."""

    name = "find copies"

    def do(self, rank: int, world_size: int) -> None:
        """Write of each chunk why its documents go, and for all of them the lines that go."""
        stems = self.stems(0, 1)
        passes.require_some([t for s in stems for t in passes.read_counts(self.work / FIRST / s)])
        remembered = [passes.read_remembered(self.work / FIRST / stem) for stem in stems]
        reasons, lines = passes.find_copies(self.held.funnel, remembered)
        with write_atomically(self.work / LINES_FILE) as file:
            np.save(file, lines.lines)
        for stem, here in zip(stems, reasons, strict=True):
            passes.write_lines(self.work / REASONS / f"{stem}.json", [here])


class SecondPass(Block):
    """Leave copies out, put the rest through the judges after them, write what is left."""

    name = "second pass"

    def do(self, rank: int, world_size: int) -> None:
        """Write what is left of this task's chunks, and what was counted."""
        most = self.held.funnel.most_documents
        lines = RepeatedLines(lines=np.load(self.work / LINES_FILE), most=most)
        for stem in self.stems(rank, world_size):
            documents = passes.read_documents(self.work / FIRST / stem)
            reasons = json.loads((self.work / REASONS / f"{stem}.json").read_bytes())
            left, counted = passes.second_pass(self.held.funnel, documents, reasons, lines)
            passes.write_documents(self.out / "documents" / f"{stem}.jsonl", left)
            counts = [tally.as_dict() for tally in counted]
            passes.write_lines(self.work / COUNTS / f"{stem}.json", [counts])


class Report(Block):
    """Add what all tasks have counted, and write the report, last of all; one task."""

    name = "report"

    def __init__(self, *settings: Any, folder: Resumable) -> None:
        super().__init__(*settings)
        self.folder = folder

    def do(self, rank: int, world_size: int) -> None:
        """Write the report."""
        stems, folder = self.stems(0, 1), self.folder
        counted = [t for stem in stems for t in passes.read_counts(self.work / FIRST / stem)]
        for stem in stems:
            later = json.loads((self.work / COUNTS / f"{stem}.json").read_bytes())
            counted += map(StepStats.from_dict, later)
        record = passes.record_of(counted, self.held.funnel)
        write_page(self.out, record | {MADE_FROM: folder.made_from})
        folder.finish(record)
