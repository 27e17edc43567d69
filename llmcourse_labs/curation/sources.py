"""Files to read: those named, those in folders, and in one line what of a folder is not read."""

import hashlib
import logging
import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from gzip import BadGzipFile
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)

PACKED = (".gz", ".zst")
"""Endings of a compressed file, behind the one that says what is in it."""

KINDS = {
    ".txt": "text",
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".parquet": "table",
    ".html": "page",
    ".htm": "page",
    ".warc": "crawl",
    ".wet": "crawl",
}
"""How a file is read, by its ending.  `.json` is read as lines where it is compressed, as C4 is."""


class DamagedFileError(ValueError):
    """A file ends too early, or is not what its name says: what was read of it may be right."""


class Source(NamedTuple):
    """A file to read, and what tells it from a later version of it."""

    path: Path
    num_bytes: int
    modified_ns: int


def digest_of(sources: Iterable[Source], *, named: bool = False) -> str:
    """Return what tells these files from others, and from later versions of them.

    Args:
        sources: in their order.
        named: as they were given, because their names stand in what is made of them.
    """
    digest = hashlib.sha256()
    for path, *version in sources:
        where = path if named else path.resolve()
        digest.update(repr((str(where), *version)).encode(errors="surrogateescape"))
    return digest.hexdigest()


def kind_of(path: Path) -> str | None:
    """Return how a file is read, by its name; None if it is not."""
    name = Path(path.name.lower())
    if is_packed := name.suffix in PACKED:
        name = Path(name.stem)
    kind = "lines" if is_packed and name.suffix == ".json" else KINDS.get(name.suffix)
    return None if is_packed and kind == "table" else kind


def _known(*, pages: bool) -> str:
    of_the_web = ", .html, .htm, .warc, .wet" if pages else ""
    return (
        f"known are .txt, .jsonl, .parquet, .ndjson{of_the_web}; all but "
        ".parquet also with .gz or .zst, and with one of these .json, too"
    )


def find_sources(
    files: Iterable[str | Path], *, leave_out: Path | None = None, pages: bool = False
) -> list[Source]:
    """Return the files to read: those named, and in folders, at any depth, those of known kinds.

    What is in a folder is read in the order of the paths.  Not read are hidden files, other kinds,
    folders that are linked, and of a file with two names the second; a line in the log counts them.

    Args:
        files: files and folders, in the order in which they are read.
        leave_out: a folder whose files are not read where another folder holds it.
        pages: whether HTML is read.

    Raises:
        ValueError: if there is no such file, it is no regular one or of no known kind, it is named
            twice, a folder holds none, or reading it takes a package that is not installed.
    """
    # By the real path, so that a file with two names is read once.
    found: dict[Path, Source] = {}
    left: Counter[str] = Counter()
    for name in map(Path, files):
        if not name.is_dir():
            # What the caller has named must be readable.
            source = _source(name)
            if kind_of(name) is None:
                raise ValueError(f"{name} is of no kind that can be read: {_known(pages=pages)}")
            if (why := _unread(name, pages=pages)) is not None:
                raise ValueError(f"{name} {why}")
            if found.setdefault(_real(name), source) is not source:
                raise ValueError(f"{name} is named twice: name every file once")
            continue
        # What merely lies in a folder need not be: it is counted, and told of in one line.
        is_empty = True
        for path in sorted(_inside(name, leave_out and leave_out.resolve(), left)):
            if (why := _unread(path, pages=pages)) is not None:
                left[why] += 1
                continue
            is_empty = False
            if found.setdefault(_real(path), source := _source(path)) is not source:
                left["is another name of one that is read"] += 1
        if is_empty:
            told = f"; {_told(left)}" if left else ""
            raise ValueError(f"{name} holds no file to read: {_known(pages=pages)}{told}")
    # Now, and not when the first such file is reached.
    for source in found.values():
        _require_reader(source.path)
    if left:
        log.warning("not read: %s", _told(left))
    return list(found.values())


def _told(left: Counter[str]) -> str:
    return ", ".join(f"{count} that {why}" for why, count in sorted(left.items()))


def _unread(path: Path, *, pages: bool) -> str | None:
    """Return why a file is not read, as the end of a sentence; None if it is."""
    kind = kind_of(path)
    if kind in ("page", "crawl") and not pages:
        what = "a web page" if kind == "page" else "a file of a crawl"
        return f"is {what}, of which llmcourse curate takes the text"
    return None if kind else f"is of the kind {path.suffix or 'without an ending'}"


def _inside(folder: Path, leave_out: Path | None, left: Counter[str]) -> Iterator[Path]:
    """Yield the files in a folder and in those below it; count what is passed over."""

    def stop(error: OSError) -> None:
        raise ValueError(f"{error.filename} cannot be read: {error.strerror}") from error

    for where, folders, names in os.walk(folder, onerror=stop):
        here = Path(where)
        if leave_out is not None and here.resolve() == leave_out:
            folders.clear()
            continue
        below = []
        for name in folders:
            if name.startswith("."):
                left["is hidden"] += 1
            elif (here / name).is_symlink():
                left["is a link to a folder"] += 1
            else:
                below.append(name)
        folders[:] = below
        left["is hidden"] += sum(name.startswith(".") for name in names)
        left += Counter()  # without those that are 0
        yield from (here / name for name in names if not name.startswith("."))


def _real(path: Path) -> Path:
    """Return where a file is, behind all links."""
    with reading(path):
        return path.resolve()


def _source(path: Path) -> Source:
    """Return a regular file with its size, and when it was changed."""
    with reading(path):
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path} is no regular file: what comes out of it may have no end")
    return Source(path, found.st_size, found.st_mtime_ns)


def _require_reader(path: Path) -> None:
    """Raise ValueError if the package that reads a file is missing."""
    with reading(path):
        if path.suffix.lower() == ".zst":
            import zstandard  # noqa: F401, PLC0415 - an extra
        elif path.suffix.lower() == ".parquet":
            import pyarrow.parquet  # noqa: F401, PLC0415 - an extra
        if kind_of(path) == "crawl":
            import fastwarc.warc  # noqa: F401, PLC0415 - an extra


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in one line what is wrong with a file, whoever finds out."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").split(".")[0]
        raise ValueError(
            f"{path} is read with {package}, which is not installed: "
            'pip install "llmcourse[prepare]"'
        ) from error
    except (EOFError, BadGzipFile, zlib.error) as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    except (OSError, RuntimeError) as error:  # of links in a circle, by the version of Python
        raise ValueError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
