"""Bytes that a rank sends in one collective, as pure functions of sizes.

A tensor of `length` rows of `row_bytes` each is cut into n chunks of whole rows, the first
`length mod n` of them one longer, as `llmcourse.parallel.collectives` cuts them.  A row is a single
number where a tensor is cut anywhere.

Taught in: chapters/15_splitting_the_model.ipynb
"""


def reduce_scatter_bytes(
    length: int, num_ranks: int, *, row_bytes: int = 1, index: int | None = None
) -> int | float:
    """Return what a rank sends in a reduce-scatter:  (n-1)/n L, all chunks but its own.

    Args:
        length: rows of the whole tensor, 0 or more.
        num_ranks: n, 1 or more.
        row_bytes: bytes of a row, 1 or more.
        index: of the rank, for its own count; None for the mean over the ranks.

    Returns:
        Bytes, a whole number for one rank.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
    """
    return _all_but_one(length, num_ranks, row_bytes, index, 0)


def all_gather_bytes(
    length: int, num_ranks: int, *, row_bytes: int = 1, index: int | None = None
) -> int | float:
    """Return what a rank sends in an all-gather:  (n-1)/n L, all chunks but the next rank's.

    Arguments and errors as in `reduce_scatter_bytes`; `length` is that of the result.

    Source:
        Thakur, Rabenseifner and Gropp 2005, https://doi.org/10.1177/1094342005051521
    """
    return _all_but_one(length, num_ranks, row_bytes, index, 1)


def all_reduce_bytes(
    length: int, num_ranks: int, *, row_bytes: int = 1, index: int | None = None
) -> int | float:
    """Return what a rank sends in an all-reduce:  2 (n-1)/n L, a reduce-scatter and an all-gather.

    Arguments and errors as in `reduce_scatter_bytes`.

    Source:
        Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
    """
    return _all_but_one(length, num_ranks, row_bytes, index, 0) + _all_but_one(
        length, num_ranks, row_bytes, index, 1
    )


def all_to_all_bytes(counts: list[int], index: int, *, row_bytes: int = 1) -> int:
    """Return what a rank sends in an all-to-all of uneven chunks: all but what is for itself.

    Args:
        counts: rows that it has for every rank, 0 or more each.
        index: of the rank.
        row_bytes: bytes of a row, 1 or more.

    Raises:
        ValueError: if a number is out of range.
    """
    _check(min(counts, default=0), len(counts), row_bytes, index)
    return (sum(counts) - counts[index]) * row_bytes


def chunk_length(length: int, num_ranks: int, index: int) -> int:
    """Return how many of `length` rows are in the chunk of a rank.

    Raises:
        ValueError: if a number is out of range.
    """
    _check(length, num_ranks, 1, index)
    return length // num_ranks + (index < length % num_ranks)


def _all_but_one(
    length: int, num_ranks: int, row_bytes: int, index: int | None, step: int
) -> int | float:
    """Count all chunks but that of the rank `step` places on; or the mean over the ranks."""
    _check(length, num_ranks, row_bytes, index)
    if index is None:
        return (num_ranks - 1) * length * row_bytes / num_ranks
    return (length - chunk_length(length, num_ranks, (index + step) % num_ranks)) * row_bytes


def _check(length: int, num_ranks: int, row_bytes: int, index: int | None) -> None:
    if length < 0 or num_ranks < 1 or row_bytes < 1:
        raise ValueError(
            "counts of rows must be >= 0, num_ranks and row_bytes >= 1, got "
            f"{length}, {num_ranks} and {row_bytes}"
        )
    if index is not None and not 0 <= index < num_ranks:
        raise ValueError(f"index must be 0 to {num_ranks - 1}, got {index}")
