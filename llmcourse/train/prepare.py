"""From a corpus to token shards on disk: what happens once, before the first step."""

import itertools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llmcourse.base.resumable import read_record, write_record
from llmcourse.base.settings import held
from llmcourse.data import TokenShards, corpus, read_prepared, read_raw_tokens, write_shards
from llmcourse.data.prepared import SPLITS, PreparedText
from llmcourse.data.settings import Corpus, OwnText, RawFiles
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse.train.config import TrainConfig
from llmcourse.train.stage import PRETRAIN, stage_of

VALIDATION_SHARE = 0.05
"""Share of the bytes that is held out, where the corpus has no split of its own."""

TOKENIZER_BYTES = 3_000_000
"""Most text that the tokenizer is trained on: more changes few merges and costs seconds."""


MOST_HASHED_BYTES = 16 * 2**30
"""Most tokens, in bytes, that a run compares with their hashes each time it begins or goes on."""

KEPT = "kept"
"""The folder of tokens, if a stage has any, in which one sees what a run forgets."""

NO_TOKENIZER = "ids without a tokenizer"
"""What stands for the fingerprint of a tokenizer that nobody has given."""

RAW_FILES = {"training": "train.bin", "validation": "val.bin"}

COMPLETE = "complete"
"""A file that is written last; it says what the others were made from."""


log = logging.getLogger(__name__)


class Source(NamedTuple):
    """The tokens of one source."""

    training: TokenShards
    validation: TokenShards


@dataclass(frozen=True)
class Prepared:
    """What a run reads: tokenizer, training and validation tokens, and bytes per token."""

    tokenizer: Tokenizer | None
    """None where the tokens came without one."""
    sources: dict[str, Source]
    """By name; a run without a mixture has one, without a name."""
    bytes_per_id: np.ndarray | None
    """Length in bytes of every token of the vocabulary, for bits per byte."""
    kept: TokenShards | None = None
    """Held-out text of the run that this one starts from, to see what is forgotten."""

    @property
    def training(self) -> TokenShards:
        """What a run with one source trains on."""
        (source,) = self.sources.values()
        return source.training

    @property
    def validation(self) -> TokenShards:
        """What a run with one source is validated on."""
        (source,) = self.sources.values()
        return source.validation


def texts(config: TrainConfig) -> tuple[list[str], list[str]]:
    """Return the documents to train on and those to validate on.

    Stories are generated from two seeds; the addresses are split in time, the later ones held out;
    of Python's sources the last files in the order of their paths are held out.

    Raises:
        ValueError: if it is too small to leave something to train and to validate on, or comes as
            tokens.
    """
    text = config.text
    if not isinstance(text, Corpus):
        raise ValueError(f"corpus = {text.corpus} comes as tokens, not as documents")
    held_out_bytes = int(text.corpus_bytes * VALIDATION_SHARE)
    if text.corpus == "stories":
        # Seeds 2s and 2s + 1, so that no run validates on what another seed trains on.
        training = [corpus.stories(text.corpus_bytes - held_out_bytes, 2 * config.seed)]
        validation = [corpus.stories(held_out_bytes, 2 * config.seed + 1)]
        return training, validation
    if text.corpus == "sotu":
        parts = ([address.text for address in part] for part in corpus.sotu_split())
        sizes = (text.corpus_bytes - held_out_bytes, held_out_bytes)
        training, validation = map(_at_most, parts, sizes)
        return training, validation
    files = _at_most([file.text for file in corpus.python_source()], text.corpus_bytes)
    num_held_out = max(1, int(len(files) * VALIDATION_SHARE))
    if len(files) <= num_held_out:
        raise ValueError(f"corpus_bytes = {text.corpus_bytes} leaves no file to train on")
    return files[:-num_held_out], files[-num_held_out:]


def _at_most(documents: list[str], num_bytes: int) -> list[str]:
    """Return the first documents that fit into a number of bytes, but at least one."""
    kept: list[str] = []
    used = 0
    for document in documents:
        used += len(document.encode())
        if kept and used > num_bytes:
            break
        kept.append(document)
    return kept


def _joined(documents: list[str]) -> list[str]:
    """End every document with the separator, where it does not end so already."""
    end = corpus.END_OF_TEXT
    return [d if d.endswith(end) else d + end for d in documents]


def prepare(config: TrainConfig, folder: Path) -> Prepared:
    """Make, or find, the tokenizer and the shards of a run in `folder`.

    Everything is written atomically, so a folder that was cut short is completed the next time.

    Raises:
        ValueError: if the text is too uniform for the vocabulary of the model, or the folder holds
            the tokens of another text or vocabulary.
    """
    if not (folder / COMPLETE).exists():
        _write(config, folder)
    _check_provenance(config, folder)
    tokenizer = bytes_per_id = None
    fingerprint = NO_TOKENIZER
    tokens = Path(config.text.data) if isinstance(config.text, OwnText) else folder
    folders = {name: tokens / name for name in config.text.source_names} or {"": tokens}
    if config.text.corpus != "bin" or (folder / "tokenizer").exists():
        tokenizer = Tokenizer.load(folder / "tokenizer")
        fingerprint = tokenizer.fingerprint
        lengths = tokenizer.token_lengths
        bytes_per_id = np.zeros(max(config.model.vocab_size, len(lengths)), dtype=np.int64)
        bytes_per_id[: len(lengths)] = lengths  # a vocabulary may be padded
    sources = {
        name: Source(
            *(TokenShards(where / part, tokenizer_fingerprint=fingerprint) for part in SPLITS)
        )
        for name, where in folders.items()
    }
    for part in itertools.chain(*sources.values()):
        if part.vocab_size != config.model.vocab_size:
            raise ValueError(
                f"{part.folder} has tokens of a vocabulary of {part.vocab_size}, and the model has "
                f"{config.model.vocab_size}: choose another folder, or remove this one"
            )
    kept = None
    if (folder / KEPT).exists():
        kept = TokenShards(folder / KEPT, tokenizer_fingerprint=fingerprint)
    return Prepared(tokenizer, sources, bytes_per_id, kept)


def verify(prepared: Prepared) -> None:
    """Read the tokens of a run once and compare them with their hashes, before its first step.

    That takes about a second for a gigabyte.  Beyond `MOST_HASHED_BYTES` it would hold up every
    start of a run on many machines, and is left out, with a word in the log.

    Raises:
        ValueError: naming the first shard whose tokens have changed.
    """
    for shards in itertools.chain(*prepared.sources.values()):
        if shards.num_bytes > MOST_HASHED_BYTES:
            log.warning(
                "%s: %.0f GB of tokens are not compared with their hashes; TokenShards(%r).verify()"
                " does it",
                *(shards.folder, shards.num_bytes / 1e9, str(shards.folder)),
            )
        else:
            shards.verify()


def _write(config: TrainConfig, folder: Path) -> None:
    """Train the tokenizer, then write both splits as shards."""
    if config.stage != PRETRAIN:
        stage_of(config).write_tokens(config, folder)
        _complete(config, folder)
        return
    if isinstance(config.text, RawFiles):
        _write_raw(config, config.text, folder)
        return
    if isinstance(config.text, OwnText):  # its shards are read where they are
        where = _read_prepared(config.text)[0].folder
        Tokenizer.load(where / "tokenizer").save(folder / "tokenizer")
        _complete(config, folder)
        return
    training, validation = (_joined(part) for part in texts(config))
    tokenizer = train_bpe(
        _at_most(training, TOKENIZER_BYTES), config.model.vocab_size, [corpus.END_OF_TEXT]
    )
    if tokenizer.vocab_size != config.model.vocab_size:
        raise ValueError(
            f"this text has pairs for a vocabulary of {tokenizer.vocab_size} only: "
            f"lower model.vocab_size = {config.model.vocab_size}, or raise corpus_bytes"
        )
    tokenizer.save(folder / "tokenizer")
    for name, documents in (("training", training), ("validation", validation)):
        write_shards(
            tokenizer.encode_iterable_to_arrays(documents),
            folder / name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            vocab_size=tokenizer.vocab_size,
        )
    _complete(config, folder)


def _write_raw(config: TrainConfig, text: RawFiles, folder: Path) -> None:
    """Write the ids of raw files as shards, which have a header and a hash."""
    source, vocab_size, fingerprint = Path(text.bin_folder), config.model.vocab_size, NO_TOKENIZER
    raw = {
        name: read_raw_tokens(source / file, vocab_size=vocab_size, dtype=text.bin_dtype)
        for name, file in RAW_FILES.items()
    }
    if (source / "tokenizer").exists():
        tokenizer = Tokenizer.load(source / "tokenizer")
        if tokenizer.vocab_size > vocab_size:
            raise ValueError(
                f"{source / 'tokenizer'} has {tokenizer.vocab_size} ids: model.vocab_size must be "
                f"as many or more, got {vocab_size}"
            )
        tokenizer.save(folder / "tokenizer")
        fingerprint = tokenizer.fingerprint
    for name, ids in raw.items():
        write_shards(ids, folder / name, tokenizer_fingerprint=fingerprint, vocab_size=vocab_size)
    _complete(config, folder)


def _complete(config: TrainConfig, folder: Path) -> None:
    """Write, last of all, what the tokens were made from."""
    write_record(folder / COMPLETE, _provenance(config))


def _provenance(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that decide which tokens there are; of prepared text, what it is."""
    if isinstance(config.text, OwnText):
        found = _read_prepared(config.text)
        made = [{name: getattr(each, name)._asdict() for name in SPLITS} for each in found]
        what = {"corpus": config.text.corpus, "tokenizer": found[0].tokenizer}
        if not config.text.stages:
            return what | made[0]
        return what | {"sources": dict(zip(config.text.source_names, made, strict=True))}
    if config.stage != PRETRAIN:
        return stage_of(config).provenance(config)
    names = ["corpus", *(["seed"] if config.text.corpus == "stories" else [])]
    names += ["bin_folder", "bin_dtype"] if config.text.corpus == "bin" else ["corpus_bytes"]
    settings = held(config)
    return {name: settings[name] for name in names} | {"vocab": config.model.vocab_size}


def _read_prepared(text: OwnText) -> list[PreparedText]:
    """Return what the folder of prepared text holds, or each of those of a mixture.

    Raises:
        ValueError: if one is missing or not complete, or they have several tokenizers.
    """
    if not text.stages:
        return [read_prepared(text.data)]
    for name in text.source_names:
        if not (Path(text.data) / name).is_dir():
            there = sorted(path.name for path in Path(text.data).glob("*/")) or ["no folder"]
            raise ValueError(
                f"{text.data} has no source {name!r}: there is {', '.join(there)}; mix and "
                "anneal name folders in data"
            )
    found = [read_prepared(Path(text.data) / name) for name in text.source_names]
    for each in found[1:]:
        if each.tokenizer != found[0].tokenizer:
            raise ValueError(
                f"{each.folder} has another tokenizer than {found[0].folder}: prepare it again "
                f"with --tokenizer {found[0].folder / 'tokenizer'}"
            )
    return found


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return what the tokens of a run were made from; nothing for one of an earlier version.

    Raises:
        ValueError: if that cannot be read.
    """
    path = folder / COMPLETE
    return read_record(path)[0] if path.stat().st_size else {}


def _check_provenance(config: TrainConfig, folder: Path) -> None:
    """Raise ValueError if the tokens in a folder were made from other settings."""
    saved, wanted = read_provenance(folder), _provenance(config)
    if not saved or saved == wanted:  # a folder of an earlier version says nothing
        return
    if isinstance(config.text, OwnText) and saved.get("corpus") == config.text.corpus:
        raise ValueError(
            f"{config.text.data} holds other tokens than the run in {folder.parent} was begun "
            "with: give it these with --data, or begin another run"
        )
    raise ValueError(
        f"{folder} holds tokens made from {saved}, not from {wanted}: choose another folder, "
        "or remove this one"
    )
