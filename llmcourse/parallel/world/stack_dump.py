"""A small shared file in which each rank notes what it is doing: it outlives the rank."""

import mmap
from pathlib import Path

SLOT = 256


class StackDump:
    """One line of text per rank, in a file that all processes of a run have mapped.

    Writing is a copy into memory; it stays there when the process is killed.
    """

    def __init__(self, path: Path, num_ranks: int, rank: int | None = None) -> None:
        if not path.exists():
            path.write_bytes(bytes(SLOT * num_ranks))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SLOT * num_ranks)
        self._rank = rank

    def write(self, text: str) -> None:
        """Note what this rank is doing."""
        assert self._rank is not None  # the parent, which is no rank, only reads
        line = text.encode()[:SLOT].ljust(SLOT, b"\0")
        self._memory[self._rank * SLOT : (self._rank + 1) * SLOT] = line

    def read(self, rank: int) -> str:
        """Return what a rank noted last."""
        line = self._memory[rank * SLOT : (rank + 1) * SLOT]
        return line.rstrip(b"\0").decode(errors="replace").strip()


def stacks_file(folder: Path, rank: int) -> Path:
    """Return the file into which a rank writes its stack when it is asked to."""
    return folder / f"stack-{rank}.txt"
