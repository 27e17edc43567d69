"""Files of token ids and nothing else, such as nanoGPT's train.bin and val.bin.

They have no header: who reads one has to know how many bytes an id has, and of which vocabulary it
is.  Shards, which `write_shards` makes of the ids, say both, and name the tokenizer.

Source: https://github.com/karpathy/nanoGPT/blob/master/data/openwebtext/prepare.py
"""

from pathlib import Path

import numpy as np
from jaxtyping import Integer

from llmcourse.base.arguments import require
from llmcourse.data.shard_file import DTYPES

RAW_DTYPES = {dtype.name: dtype for dtype in DTYPES.values()}
"""Of an id, by the name that numpy has for it; little-endian."""


def read_raw_tokens(
    path: str | Path, *, vocab_size: int, dtype: str = "uint16"
) -> Integer[np.ndarray, " N"]:
    """Return the ids of a raw file, mapped and not loaded, after a look at every one of them.

    Args:
        path: the file.
        vocab_size: ids are from 0 to vocab_size - 1; nanoGPT pads GPT-2's 50,257 to 50,304.
        dtype: "uint16" as in nanoGPT, or "uint32".

    Raises:
        ValueError: if the file has no whole number of ids, an id is outside the vocabulary, the
            dtype is too narrow for it, or the bytes look like those of a wider dtype or a .npy.
        OSError: if the file cannot be read.
    """
    require("vocab_size", vocab_size, least=1)
    if dtype not in RAW_DTYPES:
        raise ValueError(f"dtype must be {' or '.join(RAW_DTYPES)}, got {dtype!r}")
    path, kind = Path(path), RAW_DTYPES[dtype]
    if vocab_size - 1 > np.iinfo(kind).max:
        raise ValueError(
            f"{path}: {dtype} holds ids up to {np.iinfo(kind).max:,} and the vocabulary has "
            f"{vocab_size:,}: larger ones have been wrapped round; write the file with uint32"
        )
    num_bytes = path.stat().st_size
    if num_bytes == 0 or num_bytes % kind.itemsize:
        raise ValueError(
            f"{path} has {num_bytes} bytes, no whole number of {dtype} ids: say another dtype, or "
            "make the file again"
        )
    ids = np.memmap(path, kind, "r")
    _require_width(path, ids, vocab_size)
    if (largest := int(ids.max())) >= vocab_size:
        place = int(ids.argmax())
        raise ValueError(
            f"{path}: token {place} has the id {largest}; a vocabulary of {vocab_size} has ids "
            f"from 0 to {vocab_size - 1}: say the vocabulary and the dtype that it was made with"
        )
    return np.asarray(ids)


def _require_width(path: Path, ids: Integer[np.ndarray, " N"], vocab_size: int) -> None:
    """Raise ValueError if the bytes look like a .npy, or like ids of 4 or 8 bytes read as fewer.

    Of a wider id the upper part comes as an id of its own, one that no larger vocabulary has, and
    nearly always 0: in text, no two tokens take turns like this.
    """
    if ids[:4].tobytes()[:6] == b"\x93NUMPY":
        raise ValueError(
            f"{path} begins with the header of a .npy file: write ids alone, with array.tofile"
        )
    width = ids.dtype.itemsize
    for wider in (2 * width, 4 * width):
        if wider > 8 or ids.nbytes % wider or len(ids) < 8:
            continue
        first, *upper = ids.reshape(-1, wider // width).T
        largest = [int(part.max()) for part in upper]
        most = (vocab_size - 1) >> (8 * width)
        if largest[0] <= most and not any(largest[1:]) and first.any():
            raise ValueError(
                f"{path}: every second id is {most} or less, as when ids of {wider} bytes are read "
                f"as {ids.dtype.name}: say the dtype it was written with, uint16 or uint32"
            )
