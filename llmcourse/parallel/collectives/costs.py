"""What collectives cost: bytes that a rank sends, and seconds in the alpha-beta model.

Taught in: chapters/22_collectives.ipynb
"""

from collections.abc import Callable

from llmcourse.parallel.collectives.chunks import chunk_sizes
from llmcourse.parallel.collectives.trees import tree_links


def sent_bytes(
    name: str,
    num_bytes: int,
    num_ranks: int,
    *,
    index: int | None = None,
    element_bytes: int = 1,
    root: int = 0,
) -> float | int:
    """Return the bytes that a rank sends in a collective.

    With L bytes and n ranks, on average over the ranks: (n-1)/n L for broadcast, reduce,
    reduce_scatter, all_gather and all_to_all; 2 (n-1)/n L for every all_reduce.  What differs is
    how evenly: rank 0 of all_reduce_naive sends (n-1) L, every rank of a ring 2 (n-1)/n L.

    Args:
        name: of the function, which is also the name in the log of messages.
        num_bytes: of the whole tensor, that is, of all chunks together.
        num_ranks: along the axis.
        index: of a rank along the axis, for its own figure; None for the mean of all ranks.
        element_bytes: of what is cut into chunks (one entry, or one row of a tensor with more
            dims); it matters where chunks are uneven.
        root: `source` of a broadcast, `to` of a reduce.

    Returns:
        Bytes: exact for one rank, whatever the length; the mean is exact too.

    Raises:
        ValueError: if there is no such collective, a number is out of range, or the bytes are not
            a whole number of elements.
    """
    if name not in SENT:
        raise ValueError(f"name must be one of {', '.join(SENT)}, got {name!r}")
    if num_bytes < 0 or num_ranks < 1 or element_bytes < 1 or num_bytes % element_bytes:
        raise ValueError(
            f"num_bytes must be a multiple >= 0 of element_bytes >= 1, and num_ranks >= 1, got "
            f"{num_bytes}, {element_bytes} and {num_ranks}"
        )
    if index is None:
        total = SENT_MEAN * (num_ranks - 1) * num_bytes
        return (2 if name.startswith("all_reduce") else 1) * total / num_ranks
    if not 0 <= index < num_ranks or not 0 <= root < num_ranks:
        raise ValueError(f"index and root must be 0 to {num_ranks - 1}, got {index} and {root}")
    sizes = [k * element_bytes for k in chunk_sizes(num_bytes // element_bytes, num_ranks)]
    return SENT[name](sizes, index, root)


SENT_MEAN = 1


def _broadcast(sizes: list[int], index: int, root: int) -> int:
    """Send the whole to every child in the tree."""
    _, children = tree_links((index - root) % len(sizes), len(sizes))
    return len(children) * sum(sizes)


def _reduce(sizes: list[int], index: int, root: int) -> int:
    """Send the whole to the parent in the tree."""
    return 0 if index == root else sum(sizes)


def _all_but_own(sizes: list[int], index: int, _root: int) -> int:
    return sum(sizes) - sizes[index]


def _all_but_next(sizes: list[int], index: int, _root: int) -> int:
    return sum(sizes) - sizes[(index + 1) % len(sizes)]


def _all_reduce_naive(sizes: list[int], index: int, _root: int) -> int:
    return sum(sizes) * ((len(sizes) - 1) if index == 0 else 1)


def _all_reduce_tree(sizes: list[int], index: int, _root: int) -> int:
    return _reduce(sizes, index, 0) + _broadcast(sizes, index, 0)


def _two_phases(sizes: list[int], index: int, _root: int) -> int:
    return _all_but_own(sizes, index, 0) + _all_but_next(sizes, index, 0)


SENT: dict[str, Callable[[list[int], int, int], int]] = {
    "broadcast": _broadcast,
    "reduce": _reduce,
    "reduce_scatter": _all_but_own,
    "all_gather": _all_but_next,
    "all_to_all": _all_but_own,
    "all_reduce_naive": _all_reduce_naive,
    "all_reduce_tree": _all_reduce_tree,
    "all_reduce_ring": _two_phases,
    "all_reduce_ordered": _two_phases,
}
"""Bytes that rank `index` sends, from the sizes of the chunks in bytes."""


def seconds(
    name: str, num_bytes: int, num_ranks: int, *, latency_s: float, bytes_per_s: float
) -> float:
    """Return the time of a collective in the alpha-beta model: a message takes alpha + L / beta.

    Raises:
        ValueError: if there is no such collective or a number is out of range.
    """
    sent_bytes(name, num_bytes, num_ranks)  # the same rules
    if latency_s < 0 or bytes_per_s <= 0:
        raise ValueError(
            f"latency_s must be >= 0 and bytes_per_s > 0, got {latency_s} and {bytes_per_s}"
        )
    rounds = (num_ranks - 1).bit_length()
    whole, part = (latency_s + k * num_bytes / bytes_per_s for k in (1, 1 / num_ranks))
    return {
        "broadcast": rounds * whole,
        "reduce": rounds * whole,
        "reduce_scatter": (num_ranks - 1) * part,
        "all_gather": (num_ranks - 1) * part,
        "all_to_all": (num_ranks - 1) * part,
        "all_reduce_naive": 2 * (num_ranks - 1) * whole,
        "all_reduce_tree": 2 * rounds * whole,
        "all_reduce_ring": 2 * (num_ranks - 1) * part,
        "all_reduce_ordered": 2 * (num_ranks - 1) * part,
    }[name]
