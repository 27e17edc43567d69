"""Near copies without comparing all pairs: shingles, MinHash signatures, bands::

    J(A, B) = |A and B| / |A or B|            how similar two sets of shingles are (Jaccard)
    P(min of h over A = min of h over B) = J  for a hash function h drawn at random
    P(candidates) = 1 - (1 - J^r)^b           for b bands of r minima each

A signature is the minima under K hash functions, and the share of them in which two signatures
agree estimates J without bias and with variance J (1 - J) / K.

Shape suffixes:  N words, S shingles, K hash functions, b bands, r rows (minima of a band).
"""

import functools
import hashlib
import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt32, UInt64

from llmcourse.base.arguments import require, require_fields

_WORD = re.compile(r"\w{1,64}")
"""A longer word counts as several, so that the hashes of words can be remembered."""

_BASE = np.uint64(0x9E3779B97F4A7C15)
"""Of polynomials modulo 2^64: 2^64 over the golden ratio, odd."""

_BLOCK = 256
"""Shingles that are hashed in one go: their hashes, 4 K bytes each, stay in the cache."""

_EMPTY = np.uint32(0xFFFFFFFF)
"""The minimum over no shingles."""


def shingles(text: str, n: int = 5) -> set[tuple[str, ...]]:
    """Return the runs of n words in a row, in lower case and without punctuation.

    A text of fewer words is one run, and a text without words has none.

    Args:
        text: any.
        n: words of a run, 1 or more.

    Source:
        Broder 1997, "On the resemblance and containment of documents".
    """
    require("n", n, least=1)
    words = _WORD.findall(text.lower())
    n = min(n, len(words))
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)} if words else set()


def jaccard(text_a: str, text_b: str, n: int = 5) -> float:
    """Return the Jaccard similarity of the shingles of two texts; 1 where neither has a word.

    It is exact::

        J(A, B) = |A and B| / |A or B|
    """
    a, b = shingles(text_a, n), shingles(text_b, n)
    return len(a & b) / len(a | b) if a or b else 1.0


def shingle_hashes(text: str, n: int = 5) -> UInt32[np.ndarray, " S"]:
    """Return 32 random bits for each run of n words; equal runs have equal bits.

        hash(w_1 .. w_n) = the upper half of mix(w_1 B^(n-1) + w_2 B^(n-2) + .. + w_n mod 2^64)

    where a word stands for 64 bits of its BLAKE2b digest.  They are the same on every machine.
    Two different runs share their bits with probability 2^-32: two texts of a million words each
    that share nothing are expected to agree in 233 of 2 million runs.

    Args:
        text: any.
        n: words of a run, 1 or more.

    Returns:
        As many as there are runs, repeated ones included.
    """
    require("n", n, least=1)
    words = _WORD.findall(text.lower())
    values_N = np.fromiter(map(_word_hash, words), np.uint64, len(words))
    n = min(n, len(words))
    sums_S = np.zeros(len(words) - n + 1 if words else 0, np.uint64)
    for first in range(n):
        sums_S = sums_S * _BASE + values_N[first : first + len(sums_S)]
    return (_mixed(sums_S) >> np.uint64(32)).astype(np.uint32)


@functools.lru_cache(maxsize=1 << 16)
def _word_hash(word: str) -> int:
    """Return 64 bits of a word."""
    digest = hashlib.blake2b(word.encode("utf8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _mixed(x: np.ndarray) -> np.ndarray:
    """Mix 64 bits, modulo 2^64, so that sums of words are no longer sums.

    Source:
        Steele, Lea and Flood 2014, figure 17 (SplitMix), with the constants of variant 13 of
        David Stafford.
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, kw_only=True)
class MinHash:
    """From a text to its signature.

        signature_k = min over the shingles s of (a_k hash(s) + b_k mod 2^32),    a_k odd

    An odd a_k makes of 32 bits other 32 bits one to one, so a hash function adds no collisions to
    those of `shingle_hashes`, and 32-bit numbers take half the time and memory of 64-bit ones.
    The hashes are random already, so that each shingle has the same chance to be the least; what
    the a_k and b_k have to do is to give every function another order.

    Source:
        Broder 1997, "On the resemblance and containment of documents"; on linear functions:
        Bohman, Cooper and Frieze 2000, "Min-wise independent linear permutations".
    """

    num_hashes: int = 128
    """Minima of a signature (K), 4 bytes each."""
    n: int = 5
    """Words of a shingle."""
    seed: int = 0
    """Of the hash functions; signatures of different seeds do not compare."""

    def __post_init__(self) -> None:
        require_fields(self, "num_hashes", "n", least=1)
        require_fields(self, "seed", least=0)

    @property
    def bytes_per_document(self) -> int:
        """What a signature takes."""
        return 4 * self.num_hashes

    def __call__(self, text: str) -> UInt32[np.ndarray, " K"]:
        """Return the signature of a text."""
        return self.of_hashes(shingle_hashes(text, self.n))

    def of_hashes(self, hashes_S: UInt32[np.ndarray, " S"]) -> UInt32[np.ndarray, " K"]:
        """Return the signature of a set that is given by 32 random bits of each element."""
        factors_K, summands_K = _functions(self.num_hashes, self.seed)
        signature_K = np.full(self.num_hashes, _EMPTY)
        for first in range(0, len(hashes_S), _BLOCK):
            values_SK = hashes_S[first : first + _BLOCK, None] * factors_K
            values_SK += summands_K
            np.minimum(signature_K, values_SK.min(axis=0), out=signature_K)
        return signature_K


@functools.lru_cache(maxsize=16)
def _functions(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors, all odd, and the summands of hash functions."""
    digest = hashlib.shake_128(f"{seed} minhash".encode()).digest(8 * count)
    pairs = np.frombuffer(digest, dtype="<u4").astype(np.uint32).reshape(count, 2)
    return pairs[:, 0] | np.uint32(1), pairs[:, 1].copy()


def estimate(a_K: UInt32[np.ndarray, " K"], b_K: UInt32[np.ndarray, " K"]) -> float:
    """Return the share of minima in which two signatures of the same `MinHash` agree.

    E = J,    Var = J (1 - J) / K
    """
    return float(np.mean(a_K == b_K))


def candidate_probability(similarity: float, bands: int, rows: int) -> float:
    """Return how probable it is that two texts agree in all rows of at least one band.

        P = 1 - (1 - s^r)^b

    Args:
        similarity: of the two texts (s), 0 to 1.
        bands: how many (b), 1 or more.
        rows: minima of a band (r), 1 or more.

    Source:
        Leskovec, Rajaraman and Ullman 2014, "Mining of massive datasets", section 3.4.2.
    """
    require("similarity", similarity, least=0, most=1)
    require("bands", bands, least=1)
    require("rows", rows, least=1)
    return 1 - (1 - similarity**rows) ** bands


def bands_for(similarity: float, num_hashes: int) -> tuple[int, int]:
    """Return the bands and rows that find half of the pairs of this similarity.

    With r rows there is room for b = floor(K / r) bands.  It takes the r whose curve passes 1/2
    nearest to the similarity:

        s = (1 - (1/2)^(1/b))^(1/r)    where the curve passes 1/2

    Args:
        similarity: where the curve is to rise, above 0 and below 1.
        num_hashes: minima of a signature (K), 1 or more.
    """
    require("similarity", similarity, above=0, below=1)
    require("num_hashes", num_hashes, least=1)
    fits = [(num_hashes // rows, rows) for rows in range(num_hashes, 0, -1)]
    return min(fits, key=lambda fit: abs((1 - 0.5 ** (1 / fit[0])) ** (1 / fit[1]) - similarity))


def band_keys(
    signature_K: UInt32[np.ndarray, " K"], bands: int, rows: int
) -> UInt64[np.ndarray, " b"]:
    """Return 64 bits for each band; two texts are candidates if a band has the same in both.

    Args:
        signature_K: of a text.
        bands: how many (b), 1 or more.
        rows: minima of a band (r), 1 or more; the minima after the first b r are not used.

    Raises:
        ValueError: if the signature has fewer minima than b r.
    """
    require("bands", bands, least=1)
    require("rows", rows, least=1)
    require("bands * rows", bands * rows, most=len(signature_K))
    keys_b = np.zeros(bands, np.uint64)
    for minima_b in signature_K[: bands * rows].reshape(bands, rows).T:
        keys_b = keys_b * _BASE + minima_b
    return keys_b
