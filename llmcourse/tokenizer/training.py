"""Training BPE: the textbook loop, and the same result a thousand times faster.

Both start from single bytes and, until the vocabulary is full, join the pair of neighbouring
tokens that occurs most often.  Of pairs that occur equally often, the one whose two byte strings
are lexicographically greater wins; no two pairs are equal, so the result is unique.

Taught in: chapters/05_tokens.ipynb
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from tqdm import tqdm

from llmcourse.tokenizer.encoding import Tokenizer
from llmcourse.tokenizer.patterns import GPT2, Cutter

CHUNK_CHARACTERS = 1 << 20
"""How much of a file is read at a time."""

Pair = tuple[int, int]


def train_bpe(
    text_or_iterable: str | Path | Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str = GPT2,
) -> Tokenizer:
    """Learn a byte-level BPE vocabulary.

    Words are counted once, and only words that hold the pair just joined are looked at again.

    Args:
        text_or_iterable: the text, an iterable of its parts in order, or the path of a UTF-8 file
            of any size.
        vocab_size: 256 bytes + tokens made by merges + special tokens.  If the text runs out of
            pairs, the vocabulary stays smaller.
        special_tokens: strings that get an id of their own, after the merges; text is cut there.
        pattern: how text is cut into words.

    Raises:
        ValueError: if the vocabulary is too small, a special token is empty or named twice, or the
            pattern is broken.

    Source:
        Sennrich et al. 2016, algorithm 1, https://arxiv.org/abs/1508.07909; on bytes: GPT-2.
    """
    num_new = _num_new_tokens(vocab_size, special_tokens)
    counts = count_words(_chunks(text_or_iterable), pattern, special_tokens)
    merges = _merge_all(counts, num_new)
    return Tokenizer.from_merges(merges, special_tokens=special_tokens, pattern=pattern)


def train_bpe_naive(
    text: str, vocab_size: int, special_tokens: Sequence[str] = (), pattern: str = GPT2
) -> Tokenizer:
    """Learn the same vocabulary the textbook way: recount every pair of the text for each merge."""
    num_new = _num_new_tokens(vocab_size, special_tokens)
    words = [
        [bytes([b]) for b in word.encode()]
        for cut in Cutter(pattern, special_tokens).cut(text)
        for word in cut.words
    ]
    merges: list[tuple[bytes, bytes]] = []
    made: set[bytes] = set()  # two merges may make the same token: "a" + "bc" and "ab" + "c"
    while len(made) < num_new:
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        words = [_joined(word, best) for word in words]
        merges.append(best)
        made.add(best[0] + best[1])
    return Tokenizer.from_merges(merges, special_tokens=special_tokens, pattern=pattern)


def _joined(word: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    """Replace every occurrence of a pair, from the left."""
    out: list[bytes] = []
    i = 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def _num_new_tokens(vocab_size: int, special_tokens: Sequence[str]) -> int:
    """Return how many tokens besides bytes and special ones fit into the vocabulary."""
    least = 256 + len(special_tokens)
    if vocab_size < least:
        raise ValueError(
            f"vocab_size must be at least {least} (256 bytes and {len(special_tokens)} special "
            f"tokens), got {vocab_size}"
        )
    return vocab_size - least


def _chunks(source: str | Path | Iterable[str]) -> Iterator[str]:
    """Yield the text in parts: the string, the parts of an iterable, or blocks of a file."""
    if isinstance(source, str):
        yield source
    elif isinstance(source, Path):
        with source.open(encoding="utf8", newline="") as file:
            while block := file.read(CHUNK_CHARACTERS):
                yield block
    else:
        yield from source


def count_words(chunks: Iterable[str], pattern: str, special_tokens: Sequence[str]) -> Counter[str]:
    """Count how often each word occurs; memory grows with the number of different words only."""
    counts: Counter[str] = Counter()
    for cut in Cutter(pattern, special_tokens).cut_stream(chunks):
        counts.update(cut.words)
    return counts


class _Words:
    """Every different word as a list of token ids, with the index that makes merging cheap."""

    def __init__(self, counts: Counter[str]) -> None:
        self.ids = [list(word.encode()) for word in counts]
        self.counts = list(counts.values())
        self.pair_counts: dict[Pair, int] = defaultdict(int)
        self.words_with: dict[Pair, set[int]] = defaultdict(set)
        for number, ids in enumerate(self.ids):
            for pair in pairwise(ids):
                self.pair_counts[pair] += self.counts[number]
                self.words_with[pair].add(number)

    def merge(self, pair: Pair, new: int) -> set[Pair]:
        """Join a pair wherever it occurs; return the pairs whose counts changed."""
        changed: set[Pair] = set()
        for number in self.words_with.pop(pair):
            changed |= self._merge_word(number, pair, new)
        del self.pair_counts[pair]
        changed.discard(pair)
        return changed

    def _merge_word(self, number: int, pair: Pair, new: int) -> set[Pair]:
        """Join a pair in one word, and take its old pairs out of the counts, its new ones in."""
        ids, count = self.ids[number], self.counts[number]
        first, second = pair
        out: list[int] = []
        i, last = 0, len(ids) - 1
        while i <= last:
            if i < last and ids[i] == first and ids[i + 1] == second:
                out.append(new)
                i += 2
            else:
                out.append(ids[i])
                i += 1
        if len(out) == len(ids):  # the index may name a word that lost the pair to another merge
            return set()
        before, after = list(pairwise(ids)), list(pairwise(out))
        for old in before:
            self.pair_counts[old] -= count
        for fresh in after:
            self.pair_counts[fresh] += count
            self.words_with[fresh].add(number)
        self.ids[number] = out
        return set(before) | set(after)


def _merge_all(counts: Counter[str], num_new: int) -> list[tuple[bytes, bytes]]:
    """Return the merges in order, until `num_new` tokens are made.

    The heap may hold outdated counts; an entry is believed only if its count is still the count.
    """
    words = _Words(counts)
    spelled = [bytes([b]) for b in range(256)]
    order = [_reversed_order(token) for token in spelled]
    id_of = {token: i for i, token in enumerate(spelled)}

    def entry(pair: Pair) -> tuple[int, str, str, Pair]:
        return -words.pair_counts[pair], order[pair[0]], order[pair[1]], pair

    heap = [entry(pair) for pair in words.pair_counts]
    heapq.heapify(heap)
    merges: list[tuple[bytes, bytes]] = []
    progress = tqdm(total=num_new, unit="token", desc="BPE", delay=2, disable=None, leave=False)
    while heap and len(spelled) < 256 + num_new:
        negative, _, _, pair = heapq.heappop(heap)
        if negative == 0 or -negative != words.pair_counts.get(pair, 0):
            continue
        token = spelled[pair[0]] + spelled[pair[1]]
        if token not in id_of:  # another merge may have made it already
            id_of[token] = len(spelled)
            spelled.append(token)
            order.append(_reversed_order(token))
            progress.update()
        merges.append((spelled[pair[0]], spelled[pair[1]]))
        for changed in words.merge(pair, id_of[token]):
            heapq.heappush(heap, entry(changed))
    progress.close()
    return merges


def _reversed_order(token: bytes) -> str:
    """Return a string that sorts the other way round than the bytes, for a heap that pops minima.

    Every byte is turned into 255 - byte; the end mark is greater than all of them, so that the
    longer of two strings with a common beginning, the greater as bytes, comes first.
    """
    return "".join(chr(255 - b) for b in token) + chr(256)
