"""One shard file: its layout, writing it, and reading and checking its header.

A shard is a header of 104 bytes and the token ids, all little-endian::

    offset  bytes  what
         0      8  magic, the ASCII letters LLMSHARD
         8      4  version of this layout, 1
        12      4  bytes per token: 2 (uint16) or 4 (uint32)
        16      4  number of this shard, from 0
        20      4  1 if it is the last one, else 0
        24      8  vocabulary size
        32      8  number of tokens in this shard
        40     32  SHA-256 of the tokenizer's fingerprint
        72     32  SHA-256 of the tokens' bytes
       104         the tokens

The last shard says that it is the last, so a folder whose writing was cut short is noticed.
"""

import hashlib
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from llmcourse.base import files
from llmcourse.base.arguments import require

MAGIC = b"LLMSHARD"
VERSION = 1
LAYOUT = struct.Struct("<8sIIIIQQ32s32s")
DTYPES: dict[int, np.dtype] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
"""Type of a token id, by bytes per token."""


class Header(NamedTuple):
    """What a shard says about itself; the fields stand in the order of the file."""

    magic: bytes
    version: int
    bytes_per_token: int
    number: int
    is_last: int
    vocab_size: int
    num_tokens: int
    tokenizer_sha256: bytes
    tokens_sha256: bytes


def shard_path(folder: str | Path, number: int) -> Path:
    """Return the path of a shard: folder/shard_00000.bin and so on."""
    return Path(folder) / f"shard_{number:05d}.bin"


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the smallest type that holds every id: uint16 up to 65,536 ids, else uint32.

    Raises:
        ValueError: if the vocabulary is empty or has more than 2^32 ids.
    """
    require("vocab_size", vocab_size, least=1, most=2**32)
    return DTYPES[2] if vocab_size <= 2**16 else DTYPES[4]


def write_shard(
    path: Path,
    ids: np.ndarray,
    *,
    number: int,
    is_last: bool,
    vocab_size: int,
    tokenizer_fingerprint: str,
) -> None:
    """Write one shard, atomically.

    Args:
        path: the file.
        ids: the tokens, of one of the `DTYPES`.
        number: of this shard, from 0.
        is_last: whether the corpus ends here.
        vocab_size: number of ids that the tokenizer has.
        tokenizer_fingerprint: names the tokenizer.

    Raises:
        OSError: if the file cannot be written.
    """
    header = Header(
        magic=MAGIC,
        version=VERSION,
        bytes_per_token=ids.itemsize,
        number=number,
        is_last=int(is_last),
        vocab_size=vocab_size,
        num_tokens=len(ids),
        tokenizer_sha256=hashlib.sha256(tokenizer_fingerprint.encode()).digest(),
        tokens_sha256=hashlib.sha256(ids.data).digest(),
    )
    with files.write_atomically(path) as file:
        file.write(LAYOUT.pack(*header))
        file.write(ids.data)


def read_header(path: Path) -> Header:
    """Read the header of a shard, and check it against the size of the file.

    Raises:
        ValueError: if the file is no shard, of another version, or shorter or longer than it says.
    """
    with path.open("rb") as file:
        raw = file.read(LAYOUT.size)
    if len(raw) < LAYOUT.size or not raw.startswith(MAGIC):
        raise ValueError(f"{path} is no token shard: it does not start with a shard's header")
    header = Header(*LAYOUT.unpack(raw))
    if header.version != VERSION:
        raise ValueError(f"{path} has layout version {header.version}; this code reads {VERSION}")
    if header.bytes_per_token not in DTYPES or header.num_tokens < 1 or header.is_last > 1:
        raise ValueError(f"{path} has a damaged header: {header.bytes_per_token} bytes per token")
    expected = LAYOUT.size + header.num_tokens * header.bytes_per_token
    actual = path.stat().st_size
    if actual != expected:
        raise ValueError(
            f"{path} has {actual} bytes and its header promises {expected}: it was cut short or "
            "added to; write the shards again"
        )
    return header


def check_together(paths: list[Path], headers: list[Header]) -> None:
    """Check that shards, in the order of their names, are the whole of one corpus.

    Raises:
        ValueError: naming the first shard that is missing or belongs to something else.
    """
    for number, (path, header) in enumerate(zip(paths, headers, strict=True)):
        expected = shard_path(path.parent, number)
        if path.name != expected.name:
            raise ValueError(f"{expected} is missing: the next shard there is {path.name}")
        for name in ("bytes_per_token", "vocab_size", "tokenizer_sha256"):
            if getattr(header, name) != getattr(headers[0], name):
                raise ValueError(f"{path} differs from {paths[0].name} in its {name}")
        if header.number != number:
            raise ValueError(f"{path} says it is shard {header.number}: it was renamed")
        if header.is_last != (number == len(paths) - 1):
            where = "shards after it" if header.is_last else "no shard after it"
            raise ValueError(
                f"{path.parent} is incomplete: {path.name} is "
                f"{'' if header.is_last else 'not '}marked as the last and there is {where}; "
                "write the shards again"
            )
