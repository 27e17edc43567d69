"""Training BPE: the textbook loop, and the same result much faster.

Both start from single bytes and, until the vocabulary is full, join the pair of neighbouring
tokens that occurs most often.  Of pairs that occur equally often, the one whose two byte strings
are lexicographically greater wins; no two pairs are equal, so the result is unique.

No token is made twice, as "ab" + "c" and as "a" + "bc": all places that end as one token have gone
through the same merges, because no merge crossed their borders and each was applied everywhere.
"""

import heapq
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

from llmcourse.base import progress
from llmcourse.data.tokenizer.encoding import Merge, Tokenizer
from llmcourse.data.tokenizer.patterns import GPT2, Cutter, checked_special_tokens, read_text, utf8

_MAX_TOKENS = 0x110000
"""Different characters of a Python string: training writes every token as one of them."""


def train_bpe(
    text_or_iterable: str | Path | Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str = GPT2,
) -> Tokenizer:
    """Learn a byte-level BPE vocabulary.

    Every different word is kept once, with its count, and only words that hold the pair just
    joined are looked at again.

    Args:
        text_or_iterable: the text; or an iterable of its parts, which count as one text, so end
            every document with a special token; or the `Path` of a UTF-8 file of any size.
        vocab_size: 256 bytes + one token per merge + special tokens.  If the text runs out of
            pairs, the vocabulary stays smaller.
        special_tokens: strings that get an id of their own, after the merges; text is cut there.
        pattern: how text is cut into words; see `Cutter`.

    Returns:
        The tokenizer.

    Raises:
        ValueError: if the vocabulary is too small or too large, a special token is empty or named
            twice, the pattern is broken, the text is not Unicode text, or a string looks like the
            name of a file.
        TypeError: if `special_tokens` is one string, or a part of the text is not a string.
        OSError: if the file cannot be read.

    Source:
        Sennrich et al. 2016, algorithm 1, https://arxiv.org/abs/1508.07909; on bytes: Radford et
        al. 2019, section 2.2.
    """
    num_merges = _num_merges(vocab_size, special_tokens)
    counts = count_words(text_or_iterable, special_tokens, pattern)
    merges = _learn(counts, num_merges)
    return Tokenizer.from_merges(merges, special_tokens=special_tokens, pattern=pattern)


def train_bpe_naive(
    text: str | Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str = GPT2,
) -> Tokenizer:
    """Learn the same vocabulary the textbook way: recount every pair of the text for each merge.

    Args and errors as in `train_bpe`; the text is one string, or its parts.
    """
    num_merges = _num_merges(vocab_size, special_tokens)
    _refuse_file_name(text)
    words = [
        [bytes([byte]) for byte in utf8(word)]
        for word in Cutter(pattern, special_tokens).words("".join(text))
        if word not in special_tokens
    ]
    merges: list[Merge] = []
    while len(merges) < num_merges:
        counts = Counter(chain.from_iterable(map(pairwise, words)))
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        words = [_joined(word, best) for word in words]
        merges.append(best)
    return Tokenizer.from_merges(merges, special_tokens=special_tokens, pattern=pattern)


def _joined(word: list[bytes], pair: Merge) -> list[bytes]:
    """Replace every occurrence of a pair, from the left."""
    first, second = pair
    out: list[bytes] = []
    i = 0
    while i < len(word):
        if word[i] == first and i + 1 < len(word) and word[i + 1] == second:
            out.append(first + second)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def _num_merges(vocab_size: int, special_tokens: Sequence[str]) -> int:
    """Return how many tokens besides bytes and special ones fit into the vocabulary."""
    least = 256 + len(checked_special_tokens(special_tokens))
    if not least <= vocab_size <= _MAX_TOKENS:
        raise ValueError(
            f"vocab_size must be from {least} (256 bytes and {least - 256} special tokens) to "
            f"{_MAX_TOKENS}, got {vocab_size}"
        )
    return vocab_size - least


def count_words(
    text_or_iterable: str | Path | Iterable[str],
    special_tokens: Sequence[str] = (),
    pattern: str = GPT2,
) -> Counter[str]:
    """Count how often each word occurs, special tokens left out.

    Memory grows with the number of different words only.  Args and errors as in `train_bpe`.
    """
    counts: Counter[str] = Counter()
    cutter = Cutter(pattern, special_tokens)
    for words in cutter.stream(_with_progress(text_or_iterable)):
        counts.update(words)
    for token in special_tokens:
        counts.pop(token, None)
    return counts


def _with_progress(source: str | Path | Iterable[str]) -> Iterator[str]:
    """Yield the parts of a text, counting them on a bar if that takes longer than a second."""
    total = None
    if isinstance(source, Path):
        total, source = source.stat().st_size, read_text(source)
    elif isinstance(source, str):
        _refuse_file_name(source)
        source = [source]
    with progress.bar(
        total=total, unit="B", unit_scale=True, desc="words", delay=1, leave=False
    ) as bar:
        for part in source:
            yield part
            bar.update(len(part))


_ENDINGS = (".txt", ".text", ".md", ".json", ".jsonl", ".csv", ".tsv", ".gz", ".zst", ".parquet")
_LONGEST_FILE_NAME = 4096
"""Characters of the longest path that Linux takes."""


def _refuse_file_name(text: str | Iterable[str]) -> None:
    """Raise ValueError if a text is the name of a file, whose letters nobody wants to learn."""
    if not isinstance(text, str) or len(text) > _LONGEST_FILE_NAME:
        return
    is_word = not any(map(str.isspace, text))
    has_ending = is_word and (text.lower().endswith(_ENDINGS) or os.sep in text)
    if has_ending or os.path.isfile(text):  # noqa: PTH113  (a Path raises if a name is too long)
        raise ValueError(
            f"a string is the text itself, and {text!r} looks like the name of a file: give "
            f"Path({text!r}), or its read_text(), to learn from the file, or [{text!r}] to learn "
            "from these characters"
        )


class _Words:
    """Every different word, with the index that makes merging cheap.

    A token is one character, byte b being the character of number b, and a word is a string of
    them, so that Python's own `split` and `join` merge a pair, from the left.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.words = [utf8(word).decode("latin-1") for word in counts]
        self.counts = list(counts.values())
        self.pair_counts: dict[str, int] = defaultdict(int)
        self.words_with: dict[str, set[int]] = defaultdict(set)
        for number, word in enumerate(self.words):
            for first, second in pairwise(word):
                self.pair_counts[first + second] += self.counts[number]
                self.words_with[first + second].add(number)

    def merge(self, pair: str, new: str) -> set[str]:
        """Join a pair wherever it occurs; return the pairs that came into being."""
        fresh: set[str] = set()
        for number in self.words_with.pop(pair):
            parts = self.words[number].split(pair)
            if len(parts) > 1:  # else the word lost the pair to another merge
                self.words[number] = new.join(parts)
                self._recount(number, parts, pair, new, fresh)
        del self.pair_counts[pair]
        return fresh

    def _recount(self, number: int, parts: list[str], pair: str, new: str, fresh: set[str]) -> None:
        """Take the pairs beside the joined ones out of the counts, and their successors in.

        `parts` is what stands before, between and after the joined pairs.
        """
        count = self.counts[number]
        # Walk over the borders between a joined pair and what follows or precedes it.
        replaced = []
        for place, part in enumerate(parts):
            after_pair, before_pair = place > 0, place < len(parts) - 1
            if not part:
                if after_pair and before_pair:  # two joined pairs touch
                    replaced.append((pair[1] + pair[0], new + new))
                continue
            if after_pair:
                replaced.append((pair[1] + part[0], new + part[0]))
            if before_pair:
                replaced.append((part[-1] + pair[0], part[-1] + new))
        for old, successor in replaced:
            self.pair_counts[old] -= count
            self.pair_counts[successor] += count
            self.words_with[successor].add(number)
            fresh.add(successor)


def _learn(counts: Counter[str], num_merges: int) -> list[Merge]:
    """Return the merges in order, fewer than `num_merges` if no pair is left.

    The heap may hold counts that are too high by now, never too low: counts of a pair only fall
    once the merge that brought it into being is done.  So an outdated entry is corrected when it
    comes to the top, and not before.
    """
    words = _Words(counts)
    spelled = [bytes([byte]) for byte in range(256)]
    order = [_reversed_order(token) for token in spelled]

    def entry(pair: str) -> tuple[int, str, str, str]:
        return -words.pair_counts[pair], order[ord(pair[0])], order[ord(pair[1])], pair

    heap = [entry(pair) for pair in words.pair_counts]
    heapq.heapify(heap)
    merges: list[Merge] = []
    with progress.bar(total=num_merges, unit="merge", desc="BPE", delay=1, leave=False) as bar:
        while heap and len(merges) < num_merges:
            negative, _, _, pair = heapq.heappop(heap)
            if -negative != words.pair_counts[pair]:
                if words.pair_counts[pair] > 0:
                    heapq.heappush(heap, entry(pair))
                continue
            first, second = (spelled[ord(token)] for token in pair)
            merges.append((first, second))
            fresh = words.merge(pair, chr(len(spelled)))
            spelled.append(first + second)
            order.append(_reversed_order(first + second))
            for new_pair in fresh:
                heapq.heappush(heap, entry(new_pair))
            bar.update()
    return merges


def _reversed_order(token: bytes) -> str:
    """Return a string that sorts the other way round than the bytes, for a heap that pops minima.

    Every byte is turned into 255 - byte; the end mark is greater than all of them, so that the
    longer of two strings with a common beginning, the greater as bytes, comes first.
    """
    return "".join(chr(255 - byte) for byte in token) + chr(256)
