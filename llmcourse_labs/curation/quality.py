"""A filter that has learnt: logistic regression on hashed words and pairs of words::

    p(good | text) = sigmoid(w . x + b),   x_j = share of the text's runs that fall into bucket j
    loss = mean of -log p(label | text) + decay / 2 |w|^2

Source: Brown et al. 2020, "Language models are few-shot learners", appendix A, which filters with
such a classifier; Weinberger et al. 2009, "Feature hashing for large scale multitask learning".

Shape suffixes:  N texts, J buckets.
"""

import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import regex
from jaxtyping import Bool, Float

from llmcourse.base.arguments import require
from llmcourse.base.files import write_atomically
from llmcourse_labs.curation.step import Dropped

NUM_BUCKETS = 1 << 14

MOST_WORDS = 5_000
"""Of a text that are looked at."""

_NUM_STEPS, _RATE = 300, 2.0

_WORD = regex.compile(r"\w+|[^\w\s]")


def features(text: str, *, num_buckets: int = NUM_BUCKETS) -> dict[int, float]:
    """Return the buckets of a text's words and pairs of words, each with its share.

    A share is scaled by the root of the number of runs, so that the length of x does not depend
    much on that of the text.
    """
    words = [m[0] for _, m in zip(range(MOST_WORDS), _WORD.finditer(text.lower()), strict=False)]
    runs = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
    hashed = (zlib.crc32(run.encode("utf8", "surrogatepass")) % num_buckets for run in runs)
    scale = max(1, len(runs)) ** 0.5
    return {bucket: count / scale for bucket, count in Counter(hashed).items()}


def _matrix(texts: Sequence[str]) -> Float[np.ndarray, "N J"]:
    x_NJ = np.zeros((len(texts), NUM_BUCKETS))
    for row, text in enumerate(texts):
        for bucket, share in features(text).items():
            x_NJ[row, bucket] = share
    return x_NJ


def _sigmoid(z: Any) -> Any:
    return 0.5 * (1 + np.tanh(z / 2))  # never overflows


@dataclass(frozen=True)
class Quality:
    """A trained classifier."""

    weights: Float[np.ndarray, " J"]
    bias: float

    @classmethod
    def train(cls, good: Sequence[str], bad: Sequence[str], *, decay: float = 1e-3) -> "Quality":
        """Learn from labelled texts by gradient descent; both sides weigh the same.

        Args:
            good: texts that are wanted.
            bad: texts that are not.
            decay: of the weights, 0 or greater.

        Raises:
            ValueError: if a side has no text, or decay is negative.
        """
        require("decay", decay, least=0)
        if not good or not bad:
            raise ValueError(f"texts of both kinds are needed, got {len(good)} and {len(bad)}")
        x_NJ = _matrix([*good, *bad])
        label_N = np.repeat([1.0, 0.0], [len(good), len(bad)])
        weight_N = np.repeat([0.5 / len(good), 0.5 / len(bad)], [len(good), len(bad)])
        w_J, b = np.zeros(NUM_BUCKETS), 0.0
        for _ in range(_NUM_STEPS):
            error_N = (_sigmoid(x_NJ @ w_J + b) - label_N) * weight_N  # p - y, as in any softmax
            w_J -= _RATE * (error_N @ x_NJ + decay * w_J)
            b -= _RATE * error_N.sum()
        return cls(w_J, float(b))

    def score(self, text: str) -> float:
        """Return the probability that a text is good; it is not calibrated."""
        z = self.bias + sum(share * self.weights[j] for j, share in features(text).items())
        return float(_sigmoid(float(z)))

    def save(self, path: str | Path) -> None:
        """Write the weights to a file, atomically."""
        with write_atomically(path) as file:
            np.savez_compressed(file, weights=self.weights, bias=self.bias)

    @classmethod
    def load(cls, path: str | Path) -> "Quality":
        """Read what `save` wrote.

        Raises:
            ValueError: if the file is something else.
            OSError: if it cannot be read.
        """
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                found = cls(file["weights"], float(file["bias"]))
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is no saved classifier: {error}") from error
        if found.weights.shape != (NUM_BUCKETS,):
            raise ValueError(f"{path} has weights of shape {found.weights.shape}")
        return found


def threshold_for(
    scores: Sequence[float], is_good: Sequence[bool] | Bool[np.ndarray, " N"], *, purity: float
) -> float:
    """Return the lowest score such that of the texts from it on the wanted share is good.

    Args:
        scores: of labelled texts.
        is_good: their labels.
        purity: share of good texts among the kept ones, above 0, at most 1.

    Raises:
        ValueError: if no threshold reaches it, or the lists differ in length.
    """
    require("purity", purity, above=0, most=1)
    if len(scores) != len(is_good) or not len(scores):
        raise ValueError(f"got {len(scores)} scores and {len(is_good)} labels")
    best = None
    ordered = sorted(zip(scores, is_good, strict=True), reverse=True)
    good = 0
    for count, (score, label) in enumerate(ordered, 1):
        good += bool(label)
        is_last_of_its_score = count == len(ordered) or ordered[count][0] < score
        if is_last_of_its_score and good / count >= purity:
            best = score
    if best is None:
        raise ValueError(f"no threshold leaves texts of which {purity:.0%} are good")
    return best


@dataclass(frozen=True, kw_only=True)
class KeepQuality:
    """Drop what the classifier finds bad (a step of a funnel)."""

    classifier: Quality
    least: float = 0.5
    """Probability of being good that a text must have."""

    def __call__(self, text: str) -> str | Dropped:
        """Return the text, or that its score is too low."""
        score = self.classifier.score(text)
        if score < self.least:
            return Dropped("low quality", f"score {score:.2f}, at least {self.least:.2f}")
        return text
