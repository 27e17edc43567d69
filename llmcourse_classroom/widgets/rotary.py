"""A widget about rotary positions."""

from typing import Any

from llmcourse_classroom.state import Limited, Whole
from llmcourse_classroom.widget import Widget

LONGEST = 131_072
"""Positions of the longest row: the context of Llama 3.1."""

LARGEST_HEAD = 128


class RotaryClocks(Widget):
    """One clock for each channel pair, with a hand for the query's position and one for the key's.

    The hand of pair j turns by w_j = theta^(-2j / head_size) radians from one position to the next.
    Play moves query and key together: the hands turn, the angles between them stay.

    Args:
        head_size: channels of a head, even, 2 to 128; sixteen clocks are shown at a time.
        theta: the base, 10 to 10,000,000: 10,000 in the paper, 500,000 in Llama 3.
        length: tokens of the row, 2 to 131,072; the positions go from 0 to length - 1.
        state: `query`, `key` and `first_pair`, the first clock shown.

    Raises:
        ValueError: if the head size is not even.

    Source:
        Su et al. 2021, section 3.2, https://arxiv.org/abs/2104.09864
    """

    script = "rotary_clocks.js"
    alt = (
        "Clocks, one for each pair of channels, from fast to slow, each with a hand for the query "
        "and one for the key.  Moved together, the hands turn and the angles between them stay: "
        "the score of two tokens depends on their distance alone."
    )

    query = Whole(12, low=0, high=LONGEST - 1, step=1, label="query position")
    key = Whole(4, low=0, high=LONGEST - 1, step=1, label="key position")
    theta = Limited(10_000, low=10, high=10_000_000, step=10, label="base theta")
    length = Whole(64, low=2, high=LONGEST, step=1, label="length")
    head_size = Whole(16, low=2, high=LARGEST_HEAD, step=2, label="head size")
    first_pair = Whole(0, low=0, high=LARGEST_HEAD // 2, step=1, label="first pair shown")

    def __init__(
        self, head_size: int = 16, theta: int | float = 10_000, length: int = 64, **state: Any
    ) -> None:
        if head_size % 2:
            raise ValueError(f"head_size must be even, for pairs of channels, not {head_size}")
        super().__init__(head_size=head_size, theta=theta, length=length, **state)
