"""A widget about matrices on several ranks: cut by rows or columns, see which collective is due."""

from typing import get_args

from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale.arithmetic.moves import (
    CUTS,
    NETWORKS,
    Ends,
    Move,
    move_bytes,
    split_moves,
)


class MatrixSplitter(Widget):
    """Which part of every tensor each rank holds, and what has to be sent, for any cut.

    Args:
        state: network ("single", "linear", "mlp"), cut_a and cut_b ("whole", "rows", "columns"),
            ends ("whole" or "rows", how x arrives and y leaves; rows are tokens), ranks (2 to 4),
            tokens, width and hidden (sizes; numbers of 2 bytes).
    """

    script = "matrix_splitter.js"
    alt = (
        "The product x A B = y with every part in the colour of the rank that has it; the cuts of "
        "A and B are dragged.  Below, a row of boxes for each rank with the part that it holds "
        "filled, and between them numbered bars for the collectives that are due.  With A cut by "
        "columns and B by rows it is one all-reduce forward and one backward."
    )

    network = Choice(NETWORKS, default="mlp")
    cut_a = Choice(CUTS, default="columns")
    cut_b = Choice(CUTS, default="columns")
    ends = Choice(get_args(Ends), default="whole")
    ranks = Whole(2, low=2, high=4, step=1, label="ranks")
    tokens = Whole(8_192, low=1, high=131_072, step=1, label="tokens")
    width = Whole(4_096, low=1, high=65_536, step=1, label="width of x and y")
    hidden = Whole(14_336, low=1, high=262_144, step=1, label="hidden units")

    def shape_of(self, tensor: str) -> tuple[int, int]:
        """Return the shape of a whole tensor, or of the one that a gradient belongs to."""
        middle = self.width if self.network == "single" else self.hidden
        return {
            "x": (self.tokens, self.width),
            "A": (self.width, middle),
            "h": (self.tokens, self.hidden),
            "B": (self.hidden, self.width),
            "y": (self.tokens, self.width),
        }[tensor.removeprefix("d")]

    def moves(self) -> list[Move]:
        """Return the moves that the page shows."""
        return split_moves(self.network, self.cut_a, self.cut_b, self.ends)

    def sent_bytes(self) -> dict[str, float]:
        """Return what a rank sends for every tensor, as the page shows it."""
        return {m.tensor: move_bytes(m, self.shape_of(m.tensor), self.ranks) for m in self.moves()}
