"""From files of one's own to a tokenizer and shards that a run trains on.

    llmcourse prepare texts/ --out data/

The folder holds a tokenizer, the shards of both splits, and, written last, `prepared.json`.  One
process reads and writes in the order of the files; any number of them encodes.  What is written
follows from the files and the settings alone.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jsonargparse import ArgumentParser

from llmcourse.base import progress
from llmcourse.base.arguments import require
from llmcourse.base.command_line import AGAIN, ended, run_command
from llmcourse.base.resumable import UNFINISHED, Resumable, read_record
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.prepared import (
    PREPARED,
    PROGRAM,
    SPLITS,
    PreparedText,
    Split,
    read_prepared,
)
from llmcourse.data.shards import ShardWriter, TokenShards
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse_labs.curation.documents import as_separator, documents_of
from llmcourse_labs.curation.encode import Reader, Task, encode_in_order, num_cores
from llmcourse_labs.curation.sources import Source, digest_of, find_sources
from llmcourse_labs.curation.unpack import PIECE

TOKENIZER_BYTES = 10_000_000
"""Most text that a tokenizer is trained on: more changes few merges."""


def prepare_text(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    vocab_size: int = 2_048,
    tokenizer: str | Path | None = None,
    field: str = "text",
    separator: str = END_OF_TEXT,
    validation: float = 0.05,
    seed: int = 0,
    processes: int = 1,
    shard_tokens: int = 2**24,
) -> PreparedText:
    """Make a tokenizer and shards of documents; go on where an earlier call was cut short.

    A hash of its first million characters decides whether a document is held out for validation, so
    that copies of it are on the same side.  Of a few documents at least one is.

    Memory does not grow with the size of the text, but with its longest line of JSON Lines and the
    row groups of Parquet.

    Args:
        inputs: text, JSON Lines and Parquet, or folders of them, see `find_sources`.
        out: a new or empty folder, or one in which the same call was cut short.
        vocab_size: of the tokenizer that is trained, on at most `TOKENIZER_BYTES` from all files.
        tokenizer: folder of one that is there already, which has `END_OF_TEXT`.
        field: name of the text in JSON Lines and Parquet.
        separator: what stands between the documents of a .txt.
        validation: share of the documents that is held out, above 0 and below 1.
        seed: of the choice of these documents.
        processes: that encode; they change nothing but the time it takes.
        shard_tokens: tokens in every shard but the last.

    Returns:
        What is in the folder now.

    Raises:
        ValueError: if a file or a setting cannot be used, or the folder holds something else;
            nothing is left behind.
        OSError: if a file cannot be written; what was written is taken up by the next call.
    """
    require("validation", validation, above=0, below=1)
    require("seed", seed, least=0)
    require("processes", processes, least=1)
    if not separator:
        raise ValueError("the separator is empty: name what stands between two documents")
    out = Path(out)
    # Left out is the output, which may lie within a folder of the input.
    sources = find_sources(inputs, leave_out=out)
    given = None if tokenizer is None else _given(tokenizer)
    # All that the result depends on, and so not `processes`: only an equal call may go on.
    made_from = {
        "files": digest_of(sources),
        "vocab_size": vocab_size if given is None else given.vocab_size,
        "tokenizer": given and given.fingerprint,
        "field": field,
        "separator": separator,
        "validation": validation,
        "seed": seed,
        "shard_tokens": shard_tokens,
    }
    folder = Resumable(out, made_from, record=PREPARED, verb="prepared")
    with folder.alone() as done:
        if done is not None:
            return read_prepared(out)
        try:
            work = _Work(sources, folder)
            work.begin(given)
            work.encode(processes)
            return work.finish()
        except ValueError:
            # Of a call that cannot succeed nothing stays; any other end leaves the work as it is.
            _clear(out)
            raise


def _given(folder: str | Path) -> Tokenizer:
    """Return a tokenizer that was trained before."""
    tokenizer = Tokenizer.load(folder)
    if END_OF_TEXT not in tokenizer.special_tokens:
        raise ValueError(f"the tokenizer in {folder} has no {END_OF_TEXT}, which ends a document")
    return tokenizer


def _clear(out: Path) -> None:
    """Remove what was written."""
    for name in (*SPLITS, "tokenizer"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / UNFINISHED).unlink(missing_ok=True)


class _Work:
    """The way from the files to the folder, as far as it is done."""

    def __init__(self, sources: list[Source], folder: Resumable) -> None:
        self.sources, self.folder = sources, folder
        self.out, self.made_from = folder.folder, folder.made_from
        self.place = (0, 0)
        self.documents, self.num_bytes, self.tokens = [0, 0], [0, 0], [0, 0]
        self.reader: Reader  # from `begin` on
        self.writers: list[ShardWriter] = []

    def begin(self, tokenizer: Tokenizer | None) -> None:
        """Make the tokenizer, or find how far an earlier call has come."""
        for left_behind in self.out.rglob(".*.tmp"):  # by a call that was killed while it wrote
            left_behind.unlink()
        path = self.folder.unfinished
        state, waiting = read_record(path) if path.exists() else ({}, b"")
        settings = {name: self.made_from[name] for name in ("field", "separator", "seed")}
        if "limit" not in state:
            self.folder.save()
            reader = Reader(**settings, limit=int(self.made_from["validation"] * 2**64))
            self.reader = self._with_both_sides(reader)
            tokenizer = tokenizer or self._trained()
            tokenizer.save(self.out / "tokenizer")
        else:
            self.reader = Reader(**settings, limit=state["limit"])
            tokenizer = Tokenizer.load(self.out / "tokenizer")
            self.place = tuple(state["place"])
            self.documents, self.num_bytes = state["documents"], state["num_bytes"]
            self.tokens = state["tokens"]
        ids = np.frombuffer(waiting, tokenizer.dtype)
        sizes = state.get("waiting", [0, 0])
        self.writers = [
            ShardWriter(
                self.out / name,
                tokenizer_fingerprint=tokenizer.fingerprint,
                vocab_size=tokenizer.vocab_size,
                shard_tokens=self.made_from["shard_tokens"],
                num_shards=num_shards,
                waiting=part,
            )
            for name, num_shards, part in zip(
                SPLITS, state.get("shards", [0, 0]), np.split(ids, sizes[:1]), strict=True
            )
        ]
        self._save()

    def _with_both_sides(self, reader: Reader) -> Reader:
        """Return the reader, changed if it would leave a split without a document."""
        least, most = 2**64, -1
        for source in self.sources:
            for piece, _ in reader.pieces(source):
                if not piece.begins:
                    continue
                for text in documents_of(piece, field=reader.field):
                    number = reader.hash(text)
                    least, most = min(least, number), max(most, number)
                    if least < reader.limit <= most:
                        return reader
        if most < 0:
            raise ValueError("there is no text in these files")
        if least == most:
            raise ValueError(
                "these files hold one document, and validation takes another: name what stands "
                r"between documents, such as --separator '\n\n' for an empty line"
            )
        return reader._replace(limit=least + 1 if least >= reader.limit else most)

    def _trained(self) -> Tokenizer:
        """Return a tokenizer for the text that is trained on."""
        wanted = self.made_from["vocab_size"]
        tokenizer = train_bpe(self._sample(), wanted, [END_OF_TEXT])
        if tokenizer.vocab_size != wanted:
            raise ValueError(
                f"this text has pairs for a vocabulary of {tokenizer.vocab_size} only: lower "
                f"--vocab from {wanted}, or take more text"
            )
        return tokenizer

    def _sample(self) -> Iterator[str]:
        """Yield text to train the tokenizer on: of every file its share, from the beginning."""
        total = sum(source.num_bytes for source in self.sources)
        behind = taken = 0
        for source in self.sources:
            behind += source.num_bytes
            most = TOKENIZER_BYTES * behind / total
            documents = (
                text
                for piece, side in self.reader.pieces(source)
                for text, held_out in self.reader.documents(piece, side)
                if not held_out
            )
            while taken < most and (text := next(documents, None)) is not None:
                yield text
                yield END_OF_TEXT
                taken += len(text)

    def encode(self, processes: int) -> None:
        """Encode what is left, and write it, shard by shard."""
        total = sum(source.num_bytes for source in self.sources)
        with progress.bar(total=total, unit="B", unit_scale=True, desc="encoding") as bar:
            folder, tasks = self.out / "tokenizer", self._tasks()
            for task, encoded in encode_in_order(tasks, folder, self.reader, processes=processes):
                num_shards = sum(len(writer.paths) for writer in self.writers)
                for split, writer in enumerate(self.writers):
                    writer.append(encoded.ids[split])
                    self.documents[split] += encoded.documents[split]
                    self.num_bytes[split] += encoded.num_bytes[split]
                    self.tokens[split] += len(encoded.ids[split])
                self.place = task.place
                if sum(len(writer.paths) for writer in self.writers) > num_shards:
                    self._save()
                bar.update(task.num_bytes - bar.n)

    def _tasks(self) -> Iterator[Task]:
        """Yield what is left to do, about a piece at a time, with what is small put together."""
        first, skipped = self.place
        behind = sum(source.num_bytes for source in self.sources[:first])
        pieces, size = [], 0
        for number, source in enumerate(self.sources[first:], first):
            for count, (piece, side) in enumerate(self.reader.pieces(source), 1):
                if number == first and count <= skipped:
                    continue
                pieces.append((piece, side))
                some = piece.content
                size += len(some) if isinstance(some, bytes) else sum(map(len, filter(None, some)))
                if size >= PIECE // 2:
                    yield Task(pieces, (number, count), behind + piece.num_bytes)
                    pieces, size = [], 0
            behind += source.num_bytes
        yield Task(pieces, (len(self.sources), 0), behind)

    def _save(self) -> None:
        """Write how far the work is."""
        state = {
            "limit": self.reader.limit,
            "place": self.place,
            "documents": self.documents,
            "num_bytes": self.num_bytes,
            "tokens": self.tokens,
            "shards": [len(writer.paths) for writer in self.writers],
            "waiting": [len(writer.waiting) for writer in self.writers],
        }
        self.folder.save(state, *(writer.waiting.data for writer in self.writers))

    def finish(self) -> PreparedText:
        """Write the last shards, and that everything is there."""
        for writer in self.writers:
            writer.close()
        shards = [TokenShards(self.out / name) for name in SPLITS]
        tokenizer = Tokenizer.load(self.out / "tokenizer")
        record = {"tokenizer": tokenizer.fingerprint, "vocab_size": tokenizer.vocab_size}
        for split, name in enumerate(SPLITS):
            record[name] = Split(
                documents=self.documents[split],
                num_bytes=self.num_bytes[split],
                tokens=self.tokens[split],
                fingerprint=shards[split].fingerprint,
            )._asdict()
        self.folder.finish(record)
        return read_prepared(self.out)


# --- the command


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _prepare(arguments), again=AGAIN)


def _prepare(arguments: list[str] | None) -> None:
    """Make the tokenizer and the shards, and say what there is."""
    options = _parser().parse_args(arguments)
    if options.tokenizer is not None and options.vocab is not None:
        raise ValueError("--vocab has no effect with --tokenizer: leave one of them out")
    prepared = prepare_text(
        options.files,
        options.out,
        tokenizer=options.tokenizer,
        # Not given: the function knows its own default.
        **{} if options.vocab is None else {"vocab_size": options.vocab},
        field=options.field,
        separator=as_separator(options.separator),
        validation=options.validation,
        seed=options.seed,
        processes=options.processes or num_cores(),
    )
    print(_summary(prepared))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        usage=f"{PROGRAM} texts/ more.jsonl.gz --out data/",
        description="Make a tokenizer and token shards of your own text, for train --data FOLDER. "
        "A call that was cut short goes on where it was.",
    )
    add = parser.add_argument
    kinds = ".txt, .jsonl, .ndjson, also with .gz or .zst; .parquet; folders of them"
    add("files", nargs="+", help=kinds)
    add("--out", required=True, help="new folder for the tokenizer and the shards")
    add("--vocab", type=int, help="size of the vocabulary to train (2048)")
    add("--tokenizer", help="folder of a tokenizer to use instead of a new one")
    add("--field", default="text", help="name of the text in .jsonl and .parquet")
    add("--separator", default=END_OF_TEXT, help=r"what stands between documents of a .txt; \n, \t")
    add("--validation", type=float, default=0.05, help="share of the documents that is held out")
    add("--seed", type=int, default=0, help="of the choice of these documents")
    add("--processes", type=int, help="that encode (one for each core)")
    return parser


def _summary(prepared: PreparedText) -> str:
    """Return what was made, and what to do with it."""
    lines = [f"{prepared.folder}: a tokenizer of {prepared.vocab_size:,}, and"]
    for name in SPLITS:
        split: Split = getattr(prepared, name)
        lines.append(
            f"  {name}: {split.documents:,} documents, {split.num_bytes / 1e6:,.1f} MB, "
            f"{split.tokens:,} tokens"
        )
    lines.append(f"Train on it with: llmcourse train --data {prepared.folder} --out runs/mine")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_command(main))
