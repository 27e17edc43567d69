"""Applying merges to one word: the readable loop, and two ways for long words.

All do the same: of all neighbouring pairs that have a merge take the one that was learnt first,
of equal ones the leftmost, join it, and look again.
"""

import heapq
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

LONG_WORD = 100
"""Tokens from which on `merge_long_word` is faster than `merge_word` (measured: about 100)."""

VERY_LONG_WORD = 20_000
"""Tokens from which on `MergePasses` is the fastest (measured: 2,000 to 30,000)."""

_NO_TOKEN = np.int32(-1)
"""Marks the ends of a word, and places whose token was joined to the one before."""


class MergeRules(NamedTuple):
    """The merges by ids."""

    rank_of: dict[tuple[int, int], int]
    """Place of a pair in the list of merges; the smallest applies first."""
    made: list[int]
    """Id that the merge of each rank makes."""


def merge_word(ids: list[int], rules: MergeRules) -> list[int]:
    """Merge a word of n tokens in O(n^2): search all ranks for the smallest, n times.

    Args:
        ids: the word, one id per byte; it is changed.
        rules: the merges.

    Returns:
        The ids after all merges.
    """
    rank_of, made = rules
    never = len(made)  # greater than every rank
    ranks = [rank_of.get(pair, never) for pair in pairwise(ids)]
    while ranks:
        best = min(ranks)
        if best == never:
            break
        i = ranks.index(best)
        ids[i : i + 2] = [made[best]]
        del ranks[i]
        if i > 0:
            ranks[i - 1] = rank_of.get((ids[i - 1], ids[i]), never)
        if i < len(ranks):
            ranks[i] = rank_of.get((ids[i], ids[i + 1]), never)
    return ids


def merge_long_word(ids: list[int], rules: MergeRules) -> list[int]:
    """Merge a word of n tokens in O(n log n): a heap of ranks, and links between neighbours.

    The heap is never searched: an entry whose pair has changed since is recognised, because the
    rank it carries is not the rank of the pair that stands there now, and skipped.

    Args:
        ids: the word, one id per byte; it is changed.
        rules: the merges.

    Returns:
        The ids after all merges.
    """
    rank_of, made = rules
    end = len(ids)
    right = list(range(1, end + 1))  # place of the next token that is left
    left = list(range(-1, end - 1))
    gone = -1  # no id: marks places whose token was joined to the one before

    def rank_at(i: int) -> int | None:
        return rank_of.get((ids[i], ids[right[i]])) if i >= 0 and right[i] < end else None

    heap = [(rank, i) for i in range(end) if (rank := rank_at(i)) is not None]
    heapq.heapify(heap)
    while heap:
        rank, i = heapq.heappop(heap)
        if rank_at(i) != rank:
            continue
        j = right[i]
        ids[i], ids[j] = made[rank], gone
        right[i] = right[j]
        if right[i] < end:
            left[right[i]] = i
        for place in (left[i], i):
            if (new_rank := rank_at(place)) is not None:
                heapq.heappush(heap, (new_rank, place))
    return [token for token in ids if token != gone]


def in_order(rules: MergeRules) -> bool:
    """Whether each merge comes after all that make one of its tokens, as training orders them."""
    last_made = {token: rank for rank, token in enumerate(rules.made)}
    return all(last_made.get(t, -1) < rank for pair, rank in rules.rank_of.items() for t in pair)


class MergePasses:
    """Merges very long words: one pass over arrays for each rank, at all of its places at once.

    The rules must be `in_order`.  Then joining a pair brings about pairs of greater ranks only, so
    that no place of a rank depends on what becomes of another, unless the two overlap.

    Args:
        rules: the merges.
    """

    def __init__(self, rules: MergeRules) -> None:
        self._made = rules.made
        self._pair_of = {rank: pair for pair, rank in rules.rank_of.items()}
        pairs = np.fromiter(chain.from_iterable(rules.rank_of), np.int64).reshape(-1, 2)
        keys = _keys(*pairs.T)
        order = np.argsort(keys)
        # One key more, which no pair has: the search below never runs past the end.
        self._keys = np.append(keys[order], np.iinfo(np.int64).max)
        self._ranks = np.fromiter(rules.rank_of.values(), np.int64)[order]

    def merge(self, ids: Int32[np.ndarray, " num_bytes"]) -> Int32[np.ndarray, " num_tokens"]:
        """Merge a word of n tokens in O(n log n), plus a fixed time for each rank that occurs.

        Args:
            ids: the word, one id per byte, fewer than 2^31; it is not changed.

        Returns:
            The ids after all merges.
        """
        # Links as in `merge_long_word`.  The place that is added stands at both ends: -1 is its
        # index, too.
        ids = np.append(ids, _NO_TOKEN)
        right = np.arange(1, len(ids) + 1, dtype=np.int32)
        left = np.arange(-1, len(ids) - 1, dtype=np.int32)
        waiting = _Waiting()
        waiting.add(*self._ranked(np.arange(len(ids) - 1), _keys(ids[:-1], ids[1:])))
        while waiting:
            rank, at = waiting.take()
            first, second = self._pair_of[rank]
            at = at[(ids[at] == first) & (ids[right[at]] == second)]  # others have changed since
            if first == second:
                at = _every_second(at, right)
            gone, made = right[at], self._made[rank]
            ids[at], ids[gone] = made, _NO_TOKEN
            right[at] = after = right[gone]
            left[after] = at
            before = left[at]
            keys = _keys(ids[before], made), _keys(made, ids[after])
            waiting.add(*self._ranked(np.concatenate((before, at)), np.concatenate(keys)))
        return ids[ids != _NO_TOKEN]

    def _ranked(self, places: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those places whose pair has a rank, and the ranks."""
        nearest = np.searchsorted(self._keys, keys)
        known = self._keys[nearest] == keys
        return places[known], self._ranks[nearest[known]]


def _keys(first: np.ndarray | int, second: np.ndarray | int) -> np.ndarray:
    """Return one number for each pair; it is negative where a token is missing."""
    return np.left_shift(first, 32, dtype=np.int64) | second


class _Waiting(dict[int, list[np.ndarray]]):
    """Places whose pair has a rank, by rank."""

    def __init__(self) -> None:
        self._heap: list[int] = []

    def add(self, places: np.ndarray, ranks: np.ndarray) -> None:
        """Put some places to those of their ranks."""
        if not len(places):
            return
        # Sorted as one number each, which is much faster than sorting one by the other.
        both = np.sort(ranks << 32 | places)
        ranks, places = both >> 32, both.astype(np.int32)
        borders = (np.flatnonzero(ranks[1:] != ranks[:-1]) + 1).tolist()
        for start, end in pairwise([0, *borders, len(ranks)]):
            rank = int(ranks[start])
            if rank not in self:
                self[rank] = []
                heapq.heappush(self._heap, rank)
            self[rank].append(places[start:end])

    def take(self) -> tuple[int, np.ndarray]:
        """Return the smallest rank and its places, which wait no longer."""
        rank = heapq.heappop(self._heap)
        return rank, np.concatenate(self.pop(rank))


def _every_second(at: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the places in order, without those whose pair overlaps a pair that is joined."""
    at = np.sort(at)
    at = at[np.diff(at, prepend=-1) > 0]  # each once
    starts = np.flatnonzero(np.append(-1, right[at[:-1]]) != at)  # of runs such as aaaaa
    number_in_run = np.arange(len(at)) - np.repeat(starts, np.diff(starts, append=len(at)))
    return at[number_in_run & 1 == 0]
