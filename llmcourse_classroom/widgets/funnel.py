"""A widget about a funnel: what its thresholds let through, on pages whose labels are known."""

from collections.abc import Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Whole
from llmcourse_classroom.widget import Widget

COLUMNS = ("words", "english", "similarity", "quality", "wanted")
"""What is known of a page."""


class FunnelBoard(Widget):
    """Pages that go through four steps with a threshold each.

    Args:
        rows: for each page, in the order of the crawl, its number of words, the probability that
            it is English, its greatest similarity to an earlier page, its quality, both from 0 to
            1, and whether it is wanted.
        state: words, english, similarity, quality: the thresholds.

    Raises:
        ValueError: if there is no page, or a row is something else.
    """

    script = "funnel_board.js"
    alt = (
        "Five bars: the pages of a crawl that hold prose, and those left after the steps for "
        "English, length, copies and quality. Each bar is shorter than the one above, and a larger "
        "part of it is filled: pages that are wanted."
    )

    rows = traitlets.List().tag(sync=True)
    english = Limited(0.5, low=0, high=1, step=0.01, label="least probability of English")
    words = Whole(50, low=0, high=300, step=1, label="least number of words")
    similarity = Limited(0.7, low=0.1, high=1.05, step=0.05, label="a copy from this similarity on")
    quality = Limited(0.5, low=0, high=1, step=0.01, label="least quality")

    def __init__(self, rows: Sequence[Sequence[int | float]], **state: Any) -> None:
        if not rows:
            raise ValueError("there are no pages to show")
        plain = []
        for row in rows:
            if len(row) != len(COLUMNS) or not all(0 <= share <= 1 for share in row[1:]):
                raise ValueError(f"a row is {', '.join(COLUMNS)}, shares from 0 to 1; got {row!r}")
            plain.append([int(row[0]), *(round(float(x), 3) for x in row[1:4]), int(row[4])])
        super().__init__(rows=plain, **state)
