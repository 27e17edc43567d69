"""Applying merges to one word: the readable loop, and the one for long words.

Both do the same: of all neighbouring pairs that have a merge take the one that was learnt first,
of equal ones the leftmost, join it, and look again.
"""

import heapq
from itertools import pairwise
from typing import NamedTuple

_LONG_WORD = 100
"""Tokens from which on `merge_long_word` is the faster one (measured: about 100)."""


class MergeRules(NamedTuple):
    """The merges by ids."""

    rank_of: dict[tuple[int, int], int]
    """Place of a pair in the list of merges; the smallest applies first."""
    made: list[int]
    """Id that the merge of each rank makes."""


def apply_merges(ids: list[int], rules: MergeRules) -> list[int]:
    """Return what is left of a word's byte ids after all merges, by the faster of the two ways."""
    return merge_word(ids, rules) if len(ids) < _LONG_WORD else merge_long_word(ids, rules)


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
