"""Blocks of `datatrove`: reading and writing, a judge, and copies in three steps."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep

from llmcourse.base.files import write_atomically
from llmcourse_labs.curation.dedup import LineCounts, RepeatedLines, exact_key, line_hashes
from llmcourse_labs.curation.funnel import EXACT, LINES, NEAR, Funnel
from llmcourse_labs.curation.minhash import band_keys
from llmcourse_labs.curation.step import Dropped, Filter

Documents = Iterator[Document]

LINES_FILE = "lines.npy"


class Unspelled:
    """A judge or a funnel that the executor's description of its blocks does not spell out.

    The description is JSON; of a dataclass it would hold all that a classifier has learnt.
    """

    def __init__(self, held: Any) -> None:
        self.held = held

    def __str__(self) -> str:
        return getattr(self.held, "__name__", type(self.held).__name__)


class Read(PipelineStep):
    """Every N-th file of JSON Lines, in the order of the paths; its lines carry their place.

    What is not JSON with an id and a text is left out and counted.  Bytes that are not UTF-8
    become U+FFFD.
    """

    type, name = "Reader", "JSON Lines"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Documents | None, rank: int = 0, world_size: int = 1) -> Documents:
        """Yield the documents of this task."""
        files = sorted([*self.folder.rglob("*.jsonl"), *self.folder.rglob("*.jsonl.gz")])
        for number in range(rank, len(files), world_size):
            opened = gzip.open if files[number].suffix == ".gz" else open
            with opened(files[number], "rb") as file:
                for place, line in enumerate(file):
                    if document := _document(line, (number, place)):
                        yield document
                    elif not line.isspace():
                        self.stat_update("no document")


def _document(line: bytes, place: tuple[int, int]) -> Document | None:
    """Return what a line holds, or None if it is no document."""
    try:
        record = json.loads(line.decode("utf8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not (isinstance(record, dict) and isinstance(record.get("text"), str) and "id" in record):
        return None
    return Document(text=record["text"], id=str(record["id"]), metadata={"place": place})


class Write(PipelineStep):
    """Write the documents of a task to a file of its own, whole or not at all."""

    type, name = "Writer", "JSON Lines"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Documents:
        """Write them, and yield them too."""
        with (
            write_atomically(self.folder / f"{rank:05d}.jsonl.gz") as file,
            gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed,
        ):
            for document in data:
                line = json.dumps({"id": document.id, "text": document.text}) + "\n"
                packed.write(line.encode())
                yield document


class Judged(PipelineStep):
    """A judge; what it drops is counted by reason."""

    type = "Filter"

    def __init__(self, name: str, judge: Filter) -> None:
        self.name = name
        super().__init__()
        self.judge = Unspelled(judge)

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Documents:
        """Yield the documents that go on."""
        for document in data:
            with self.track_time():
                outcome = self.judge.held(document.text)
            if isinstance(outcome, Dropped):
                self.stat_update("dropped", f"dropped_{outcome.reason}")
            else:
                self.stat_update("forwarded")
                document.text = outcome
                yield document


class Remember(PipelineStep):
    """Keep of each document what tells copies: its place, key, bands and lines."""

    type, name = "Copies", "remember"

    def __init__(self, folder: Path, funnel: Funnel) -> None:
        super().__init__()
        self.folder = folder
        self.funnel = Unspelled(funnel)

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Documents:
        """Yield the documents as they are; write what is kept at the end."""
        near = self.funnel.held.near_duplicates()
        places, keys, bands_of, lines = [], [], [], [np.empty(0, np.uint64)]
        for document in data:
            with self.track_time():
                keys.append(exact_key(document.text))
                signature = self.funnel.held.signature(document.text)
                bands_of.append(band_keys(signature, near.bands, near.rows))
                lines.append(line_hashes(document.text))
                places.append((*document.metadata["place"], len(lines[-1])))
            yield document
        with write_atomically(self.folder / f"{rank:05d}.npz") as file:
            np.savez(
                file,
                places=np.array(places, np.int64).reshape(-1, 3),
                keys=np.frombuffer(b"".join(keys), "V16"),
                bands=np.array(bands_of, np.uint64).reshape(-1, near.bands),
                lines=np.concatenate(lines),
            )


class FindCopies(PipelineStep):
    """From what all tasks have kept: which of their documents are copies, and which lines go."""

    type, name = "Copies", "find"

    def __init__(self, remembered: Path, folder: Path, funnel: Funnel) -> None:
        super().__init__()
        self.remembered = remembered
        self.folder = folder
        self.funnel = Unspelled(funnel)

    def run(self, data: Documents | None, rank: int = 0, world_size: int = 1) -> Documents:
        """Write for each task why its documents go, and for all of them the lines that go."""
        tasks = [dict(np.load(path)) for path in sorted(self.remembered.glob("*.npz"))]
        places = np.concatenate([task["places"] for task in tasks])
        keys = np.concatenate([task["keys"] for task in tasks]).tolist()
        bands = np.concatenate([task["bands"] for task in tasks])
        reasons = np.full(len(places), "", dtype="U12")
        near, seen = self.funnel.held.near_duplicates(), set()
        for number in np.lexsort((places[:, 1], places[:, 0])).tolist():  # the stream's order
            if EXACT not in self.funnel.held.without and keys[number] in seen:
                reasons[number] = EXACT
            else:
                near.add_keys(str(number), bands[number])
                seen.add(keys[number])
        if NEAR not in self.funnel.held.without:
            reasons[[int(number) for number in near.dropped()]] = NEAR

        counts = LineCounts()
        hashes = np.split(np.concatenate([task["lines"] for task in tasks]), places[:, 2].cumsum())
        for hashes_of_one, reason in zip(hashes, reasons, strict=False):  # the last is empty
            if not reason:
                counts.add_hashes(hashes_of_one)
        _save(self.folder / LINES_FILE, counts.repeated(self.funnel.held.most_documents).lines)
        ends = np.cumsum([len(task["places"]) for task in tasks])
        for task, here in enumerate(np.split(reasons, ends)[:-1]):
            _save(self.folder / f"{task:05d}.npy", here)
        yield from ()


def _save(path: Path, values: np.ndarray) -> None:
    with write_atomically(path) as file:
        np.save(file, values)


class DropCopies(PipelineStep):
    """Leave out what `FindCopies` has named."""

    type, name = "Copies", "drop"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Documents:
        """Yield the documents that stay."""
        reasons = np.load(self.folder / f"{rank:05d}.npy").tolist()
        for document, reason in zip(data, reasons, strict=True):
            if reason:
                self.stat_update("dropped", f"dropped_{reason}")
            else:
                self.stat_update("forwarded")
                yield document


class DropLines(Judged):
    """The judge of repeated lines, with the lines that `FindCopies` has named."""

    def __init__(self, folder: Path, most: int) -> None:
        super().__init__(LINES, str)
        self.folder = folder
        self.most = most

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Documents:
        """Yield the documents that go on."""
        self.judge.held = RepeatedLines(lines=np.load(self.folder / LINES_FILE), most=self.most)
        yield from super().run(data, rank, world_size)
