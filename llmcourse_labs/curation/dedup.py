"""Copies: whole documents that are the same, documents that are nearly so, and repeated lines.

Each takes a first pass over all documents, which keeps a few bytes of each, and a second one that
knows what to drop.  Of copies the first in the order of the stream stays.  Which documents are
copies of each other does not depend on that order.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt32, UInt64

from llmcourse.base.arguments import require
from llmcourse_labs.curation.minhash import band_keys
from llmcourse_labs.curation.step import Dropped

_PENDING = 1 << 23
"""Bytes of lines that wait to be counted, or a quarter of those that have been, if it is more."""


def exact_key(text: str) -> bytes:
    """Return 16 bytes that are equal for texts that differ in nothing but white space.

    Of a billion different texts two have the same key with a probability of 1.5e-21.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(" ".join(text.split()).encode("utf8", "surrogatepass"))
    return digest.digest()


class UnionFind:
    """Which of the numbers 0, 1, 2 ... belong together; the least of each cluster speaks for it.

    Each number points at itself or at a lower one of its cluster, and `find` lets every second one
    on its way point further ahead.  A union or a find takes O(log n) steps on average.

    Args:
        count: numbers, 0 or more; each is a cluster of its own.

    Source:
        Tarjan and van Leeuwen 1984, "Worst-case analysis of set union algorithms": path halving.
    """

    def __init__(self, count: int) -> None:
        require("count", count, least=0)
        self._parents = list(range(count))

    def find(self, number: int) -> int:
        """Return the least number of this one's cluster."""
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def union(self, a: int, b: int) -> None:
        """Join the clusters of two numbers."""
        a, b = self.find(a), self.find(b)
        self._parents[max(a, b)] = min(a, b)


class NearDuplicates:
    """Documents that share a band of their signatures, directly or through others.

    It holds 8 bytes a band of each document, beside the document's name, and no texts: 12 bands
    take 96 bytes.  Candidates are not compared any further, because a comparison with one document
    of a cluster would depend on the order and one with all of them takes quadratic time.
    What share of the pairs of a similarity is found says `candidate_probability`.

    Args:
        bands: of a signature, 1 or more; `bands_for` gives both.
        rows: minima of a band, 1 or more.

    Source:
        Leskovec, Rajaraman and Ullman 2014, "Mining of massive datasets", section 3.4; as used
        on a crawl: Penedo et al. 2024, "The FineWeb datasets".
    """

    def __init__(self, bands: int, rows: int) -> None:
        require("bands", bands, least=1)
        require("rows", rows, least=1)
        self.bands = bands
        self.rows = rows
        self._ids: list[str] = []
        self._keys = bytearray()

    @property
    def bytes_per_document(self) -> int:
        """What it holds of each document, without the name."""
        return 8 * self.bands

    def add(self, id: str, signature_K: UInt32[np.ndarray, " K"]) -> None:
        """Take in the next document of the stream.

        Raises:
            ValueError: if the signature has fewer minima than bands * rows.
        """
        self.add_keys(id, band_keys(signature_K, self.bands, self.rows))

    def add_keys(self, id: str, keys_b: UInt64[np.ndarray, " b"]) -> None:
        """Take in the next document by its `band_keys`, which another process may have found."""
        if len(keys_b) != self.bands:
            raise ValueError(f"{id} has {len(keys_b)} bands, not {self.bands}: take one setting")
        self._ids.append(id)
        self._keys += keys_b.tobytes()

    def dropped(self) -> dict[str, str]:
        """Return the name of each document to drop, in the stream's order, and of what it copies.

        The second is the first document of its cluster, which stays.
        """
        firsts = self._firsts()
        return {
            self._ids[number]: self._ids[first]
            for number, first in enumerate(firsts)
            if first != number
        }

    def _firsts(self) -> list[int]:
        """Return for each document the number of the first of its cluster."""
        clusters = UnionFind(len(self._ids))
        for keys_D in np.frombuffer(self._keys, np.uint64).reshape(-1, self.bands).T:
            # A stable order: documents of equal keys are neighbours, in the order of the stream.
            order = np.argsort(keys_D, kind="stable")
            same = np.flatnonzero(keys_D[order[1:]] == keys_D[order[:-1]])
            for a, b in zip(order[same].tolist(), order[same + 1].tolist(), strict=True):
                clusters.union(a, b)
        return [clusters.find(number) for number in range(len(self._ids))]


def line_hashes(text: str) -> UInt64[np.ndarray, " L"]:
    """Return 64 bits for each different line of a text, sorted; empty lines have none.

    Lines that differ in case, or in white space at their ends, are the same.
    """
    lines = {line for raw in text.split("\n") if (line := raw.strip().lower())}
    return np.sort(np.fromiter(map(_line_hash, lines), np.uint64, len(lines)))


def _line_hash(line: str) -> int:
    digest = hashlib.blake2b(line.encode("utf8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


class LineCounts:
    """The first pass over lines: in how many documents does each occur?

    It holds 16 bytes for each different line, and a few times that while it counts those that
    have waited.
    """

    bytes_per_line = 16

    def __init__(self) -> None:
        self._lines = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._pending = bytearray()

    def add(self, text: str) -> None:
        """Count the lines of a document, each once."""
        self.add_hashes(line_hashes(text))

    def add_hashes(self, hashes: UInt64[np.ndarray, " L"]) -> None:
        """Count the lines of a document by their `line_hashes`, from another process perhaps."""
        self._pending += hashes.tobytes()
        if len(self._pending) >= max(_PENDING, self._lines.nbytes // 4):
            self._count()

    def _count(self) -> None:
        """Count the lines that wait."""
        pending = np.frombuffer(self._pending, np.uint64)
        before = np.concatenate([self._counts, np.ones(len(pending), np.int64)])
        lines = np.concatenate([self._lines, pending])
        self._lines, places = np.unique(lines, return_inverse=True)
        self._counts = np.zeros(len(self._lines), np.int64)
        np.add.at(self._counts, places, before)
        self._pending = bytearray()

    def repeated(self, most: int) -> "RepeatedLines":
        """Return the judge that removes lines of more than `most` documents, 1 or more."""
        require("most", most, least=1)
        self._count()
        return RepeatedLines(lines=self._lines[self._counts > most], most=most)


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedLines:
    """The second pass over lines, a judge: it removes those that too many documents have.

    Menus, notices and footers that the extraction has left occur on many pages; sentences do not.

    Source:
        Wenzek et al. 2020, "CCNet", which normalises and hashes lines too, and removes all but the
        first of each; here lines may occur in `most` documents, and beyond that all go.
    """

    lines: UInt64[np.ndarray, " L"]
    """Hashes of the lines to remove, sorted."""
    most: int
    """Documents in which a line may occur."""

    def __call__(self, text: str) -> str | Dropped:
        """Return the text without these lines, or `Dropped` if nothing else was in it."""
        found = line_hashes(text)
        first = np.searchsorted(self.lines, found)
        repeated = set(found[np.searchsorted(self.lines, found, side="right") > first].tolist())
        if not repeated:
            return text
        kept = [
            line
            for line in text.split("\n")
            if not (plain := line.strip().lower()) or _line_hash(plain) not in repeated
        ]
        if len(repeated) == len(found):
            detail = f"{len(found)} different lines, each in more than {self.most} documents"
            return Dropped("repeated lines only", detail)
        return "\n".join(kept)
