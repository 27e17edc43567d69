"""Text of your own that the command  llmcourse prepare  has made into tokens."""

import json
from pathlib import Path
from typing import NamedTuple

from llmcourse.base.resumable import UNFINISHED

PROGRAM = "llmcourse prepare"

PREPARED = "prepared.json"
"""Written last: what the tokens were made from, and their fingerprints."""

SPLITS = ("training", "validation")


class Split(NamedTuple):
    """What is in one of the two splits."""

    documents: int
    num_bytes: int
    """Of text, in UTF-8."""
    tokens: int
    """With one separator a document."""
    fingerprint: str
    """Of the shards."""


class PreparedText(NamedTuple):
    """A folder that the command has written."""

    folder: Path
    tokenizer: str
    """Fingerprint of the tokenizer."""
    vocab_size: int
    training: Split
    validation: Split


def read_prepared(folder: str | Path) -> PreparedText:
    """Return what a folder holds that the command has written.

    Raises:
        ValueError: if it is no such folder, or not complete.
    """
    folder = Path(folder)
    if not (folder / PREPARED).is_file():
        what = "is not complete" if (folder / UNFINISHED).exists() else "holds no prepared text"
        raise ValueError(f"{folder} {what}: make it with {PROGRAM} FILES --out {folder}")
    try:
        record = json.loads((folder / PREPARED).read_bytes())
        splits = [Split(**record[name]) for name in SPLITS]
        return PreparedText(folder, record["tokenizer"], record["vocab_size"], *splits)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder / PREPARED} is damaged: {error}") from error
