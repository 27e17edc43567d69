"""Which collective is due between two products with cut matrices, and what it sends.

A tensor lies on the ranks in one of four ways.  whole: every rank has all of it.  rows, columns:
every rank has its share of these.  partial: every rank has a tensor of the full size, and their sum
is meant.  The rows of x, of the hidden units and of y are tokens.
"""

from typing import Literal, NamedTuple, get_args

from llmcourse_labs.scale import arithmetic

Placement = Literal["whole", "rows", "columns", "partial"]
Cut = Literal["whole", "rows", "columns"]
Ends = Literal["whole", "rows"]
Network = Literal["single", "linear", "mlp"]

NETWORKS: tuple[Network, ...] = get_args(Network)
"""y = x A; y = (x A) B; y = σ(x A) B with a function σ of each entry."""

CUTS: tuple[Cut, ...] = get_args(Cut)

SLICE = "slice"
"""What turns a whole tensor into a share of it: every rank keeps its part, and nothing is sent."""


class Move(NamedTuple):
    """What happens to one tensor between the product that makes it and the one that uses it."""

    tensor: str
    """x, h, y in the forward pass; dy, dB, dh, dA, dx in the backward pass."""
    have: Placement
    need: Placement
    due: str
    """The collective, "slice", or "" if nothing is to be done."""


def collective_due(have: Placement, need: Placement) -> str:
    """Return the collective that turns one placement into another.

    It is "slice" where a rank drops what it does not need, and "" where nothing is to be done.

    Raises:
        ValueError: if a partial sum is asked for, which nothing that is complete turns into.
    """
    if have == need:
        return ""
    if need == "partial":
        raise ValueError(f"need must be whole, rows or columns where have is {have!r}")
    if have == "partial":
        return "all-reduce" if need == "whole" else "reduce-scatter"
    if have == "whole":
        return SLICE
    return "all-gather" if need == "whole" else "all-to-all"


def split_moves(network: Network, cut_a: Cut, cut_b: Cut, ends: Ends) -> list[Move]:
    """Return what has to be sent in a forward and a backward pass over cut matrices.

    A product with a matrix cut by columns reads a whole input and makes columns.  With one cut by
    rows it reads columns, and makes partial sums.  With a whole matrix every row stays by itself.

    Args:
        network: "single", "linear" or "mlp"; see NETWORKS.
        cut_a: how A is cut.
        cut_b: how B is cut; without effect in "single".
        ends: how x arrives, and how y, and the gradient of x, have to leave.

    Returns:
        The tensors in the order of time, forward x, h, y, backward dy, dB, dh, dA, dx; those with
        h and B only where there is a B.
    """
    x = _read("x", ends, cut_a, ends)
    made = _made(x.need, cut_a)
    if network == "single":
        y = _move("y", made, ends)
        return [x, y, *_backward(("y", "A", "x"), y, cut_a, x)]
    h = _read("h", made, cut_b, ends, may_stay=network == "linear")
    y = _move("y", _made(h.need, cut_b), ends)
    return [
        *(x, h, y),
        *_backward(("y", "B", "h"), y, cut_b, h),
        *_backward(("", "A", "x"), h, cut_a, x),
    ]


def _move(tensor: str, have: Placement, need: Placement) -> Move:
    return Move(tensor, have, need, collective_due(have, need))


def _read(tensor: str, have: Placement, cut: Cut, ends: Ends, *, may_stay: bool = False) -> Move:
    """Return how a product has to find its input; partial sums may stay if all is linear."""
    if cut != "whole":
        return _move(tensor, have, "whole" if cut == "columns" else "columns")
    stays = have in ("whole", "rows") or (have == "partial" and may_stay)
    return _move(tensor, have, have if stays else ends)


def _made(read: Placement, cut: Cut) -> Placement:
    """Return how the result of a product lies."""
    made: dict[Cut, Placement] = {"columns": "columns", "rows": "partial", "whole": read}
    return made[cut]


def _backward(names: tuple[str, str, str], out: Move, cut: Cut, read: Move) -> list[Move]:
    """Return the moves of the gradients of a product's output, if it has a name, weights and input.

    They follow from the forward moves of the output and of the input, and the cut of the matrix.
    """
    output, matrix, given = names
    moves = []
    if output:
        moves.append(_move(f"d{output}", out.need, _of_gradient(out.have)))
    is_sum = cut == "whole" and read.need != "whole"  # every rank has other rows, or summands
    moves.append(_move(f"d{matrix}", "partial" if is_sum else cut, cut))
    made: Placement = _of_gradient(read.need)
    if cut != "whole":
        made = "partial" if cut == "columns" else "columns"
    moves.append(_move(f"d{given}", made, _of_gradient(read.have)))
    return moves


def _of_gradient(layout: Placement) -> Placement:
    """Return how the gradient of a tensor lies: each summand has the gradient of the whole sum."""
    return "whole" if layout == "partial" else layout


def move_bytes(move: Move, shape: tuple[int, int], num_ranks: int, number_bytes: int = 2) -> float:
    """Return what a rank sends in a move, on average over the ranks.

    (n-1)/n of the tensor for an all-gather or a reduce-scatter, twice that for an all-reduce, and a
    share of n of it for an all-to-all, in which a rank has only its own share to begin with.

    Args:
        move: from `split_moves`.
        shape: of the whole tensor.
        num_ranks: 1 or more.
        number_bytes: of one number, 2 for bf16.
    """
    if move.due in ("", SLICE):
        return 0.0
    name = {"all-reduce": "all_reduce_ring"}.get(move.due, move.due.replace("-", "_"))
    num_bytes = shape[0] * shape[1] * number_bytes
    share = num_ranks if move.due == "all-to-all" else 1
    return arithmetic.sent_bytes(name, num_bytes, num_ranks) / share
