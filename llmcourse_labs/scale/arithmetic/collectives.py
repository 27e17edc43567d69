"""What collectives cost: bytes that a rank sends, and seconds in the alpha-beta model.

With n ranks and L bytes:

======================================  ==================  =====================  ==================  =====
collective                              sent by a rank      most by one rank       messages in a row   each
======================================  ==================  =====================  ==================  =====
broadcast, reduce                       (n-1)/n L, mean     ceil(log2 n) L, or L   ceil(log2 n)        L
reduce_scatter, all_gather, all_to_all  (n-1)/n L           (n-1)/n L              n - 1               L/n
all_reduce_naive                        2 (n-1)/n L, mean   (n-1) L                2 (n-1)             L
all_reduce_tree                         2 (n-1)/n L, mean   ceil(log2 n) L         2 ceil(log2 n)      L
all_reduce_ring, all_reduce_ordered     2 (n-1)/n L         2 (n-1)/n L            2 (n-1)             L/n
======================================  ==================  =====================  ==================  =====
"""  # noqa: E501 - a table

from collections.abc import Callable

from llmcourse.base.arguments import require
from llmcourse.parallel.collectives.trees import tree_links
from llmcourse.parallel.legal import chunk_sizes


def sent_bytes(
    name: str,
    num_bytes: int,
    num_ranks: int,
    *,
    index: int | None = None,
    element_bytes: int = 1,
) -> float | int:
    """Return the bytes that a rank sends in a collective.

    On average over the ranks 2 (n-1)/n L for every all-reduce, half of that for the others: what
    differs is how evenly.  The mean holds for chunks of unequal size too, since each of them makes
    the same number of steps.

    Args:
        name: of the function, which is also the name in the log of messages.
        num_bytes: of the whole tensor, that is, of all chunks together.
        num_ranks: along the axis, 1 or more.
        index: of a rank along the axis, for its own figure; None for the mean of all ranks.  In a
            broadcast and a reduce it counts from the root.
        element_bytes: of what is not cut (one entry, or one row of a tensor with more dims); it
            matters where chunks are uneven.

    Returns:
        Bytes, exactly.  An all_to_all counts chunks cut by `chunk_sizes`.

    Raises:
        ValueError: if there is no such collective, a number is out of range, or the bytes are not
            a whole number of elements.

    Source:
        Patarasuk and Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002, also for the
        proof that no all-reduce of large tensors sends less than 2 (n-1)/n L.
    """
    _check(name, num_bytes, num_ranks)
    if element_bytes < 1 or num_bytes % element_bytes:
        raise ValueError(f"{num_bytes} bytes are not made of elements of {element_bytes} bytes")
    if index is None:
        times = 2 if name.startswith("all_reduce") else 1
        return times * (num_ranks - 1) * num_bytes / num_ranks
    if not 0 <= index < num_ranks:
        raise ValueError(f"index must be 0 to {num_ranks - 1}, got {index}")
    sizes = [k * element_bytes for k in chunk_sizes(num_bytes // element_bytes, num_ranks)]
    return SENT[name](sizes, index)


def seconds(
    name: str,
    num_bytes: int,
    num_ranks: int,
    *,
    latency_s: float | int,
    bytes_per_s: float | int,
) -> float:
    """Return the time of a collective in the alpha-beta model.

    A message of M bytes takes alpha + M / beta.  The ring makes 2 (n-1) messages in a row of L/n
    bytes each, the tree 2 ceil(log2 n) of L bytes:

    T_ring = 2 (n-1) (alpha + L / (n beta)),  T_tree = 2 ceil(log2 n) (alpha + L / beta)

    so that the tree is faster for small tensors on many ranks.  Additions are left out.

    Args:
        name: as in `sent_bytes`.
        num_bytes: L, of the whole tensor.
        num_ranks: n, along the axis.
        latency_s: alpha, seconds before the first byte of a message arrives, 0 or more.
        bytes_per_s: beta, of the link out of every rank, above 0.

    Raises:
        ValueError: if there is no such collective or a number is out of range.

    Source:
        Thakur, Rabenseifner and Gropp 2005 (cost model),
        https://doi.org/10.1177/1094342005051521
    """
    _check(name, num_bytes, num_ranks)
    require("latency_s", latency_s, least=0)
    require("bytes_per_s", bytes_per_s, above=0)
    one_way = (num_ranks - 1).bit_length() if name in WHOLE_BY_TREE else num_ranks - 1
    messages = 2 * one_way if name.startswith("all_reduce") else one_way
    parts = 1 if name in (*WHOLE_BY_TREE, "all_reduce_naive") else num_ranks
    return messages * (latency_s + num_bytes / parts / bytes_per_s)


def _broadcast(sizes: list[int], index: int) -> int:
    """Count the whole for every child in the tree."""
    _, children = tree_links(index, len(sizes))
    return len(children) * sum(sizes)


def _reduce(sizes: list[int], index: int) -> int:
    """Count the whole once, for the parent in the tree."""
    return 0 if index == 0 else sum(sizes)


def _all_but_own(sizes: list[int], index: int) -> int:
    return sum(sizes) - sizes[index]


def _all_but_next(sizes: list[int], index: int) -> int:
    return sum(sizes) - sizes[(index + 1) % len(sizes)]


def _naive(sizes: list[int], index: int) -> int:
    return sum(sizes) * (len(sizes) - 1 if index == 0 else 1)


def _tree(sizes: list[int], index: int) -> int:
    return _reduce(sizes, index) + _broadcast(sizes, index)


def _scatter_and_gather(sizes: list[int], index: int) -> int:
    return _all_but_own(sizes, index) + _all_but_next(sizes, index)


SENT: dict[str, Callable[[list[int], int], int]] = {
    "broadcast": _broadcast,
    "reduce": _reduce,
    "reduce_scatter": _all_but_own,
    "all_gather": _all_but_next,
    "all_to_all": _all_but_own,
    "all_reduce_naive": _naive,
    "all_reduce_tree": _tree,
    "all_reduce_ring": _scatter_and_gather,
    "all_reduce_ordered": _scatter_and_gather,
}
"""Bytes that rank `index` sends, from the sizes of the chunks in bytes."""

WHOLE_BY_TREE = ("broadcast", "reduce", "all_reduce_tree")


def _check(name: str, num_bytes: int, num_ranks: int) -> None:
    if name not in SENT:
        raise ValueError(f"name must be one of {', '.join(SENT)}, got {name!r}")
    require("num_bytes", num_bytes, least=0)
    require("num_ranks", num_ranks, least=1)
