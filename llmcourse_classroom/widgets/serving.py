"""A widget about serving: requests that share a model's steps and its memory."""

from typing import Any

import traitlets

from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget

PROMPTS = (10, 13, 9, 12, 11, 14, 9, 10, 13, 11, 9, 12, 10, 14, 9, 11)
ANSWERS = (3, 18, 6, 2, 10, 4, 16, 3, 7, 2, 12, 5, 9, 2, 6, 3)
ARRIVALS = (0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
RESERVED = 32
"""Cells of a reservation: each request gets by with 30."""
BEGINNING = 8
"""Tokens with which all prompts begin, if they do."""
MAX_ROWS = 6


class ServingBoard(Widget):
    """Requests arrive, get a row of the batch and cells of the memory, and leave.

    Args:
        state: batching ("static" or "continuous"), memory ("reserved" or "paged"), pool (cells),
            page_size (a string, as "4"), shared (all prompts begin alike), step (steps done).
    """

    script = "serving_board.js"
    alt = (
        "Six rows of a batch over the steps of a model, with the requests that compute in them; "
        "below, the cells of the memory.  With static batching and reserved memory three requests "
        "have a row; two of them have ended and their rows stand idle until the longest answer "
        "ends, and more than half of the reserved cells are empty.  Thirteen others wait."
    )

    requests = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)
    """[prompt, answer, arrival] of each."""
    max_rows = traitlets.Int(MAX_ROWS).tag(sync=True)
    reserved = traitlets.Int(RESERVED).tag(sync=True)
    beginning = traitlets.Int(BEGINNING).tag(sync=True)
    batching = Choice(("static", "continuous"))
    memory = Choice(("reserved", "paged"))
    pool = Whole(96, low=64, high=160, step=32, label="cells of memory")
    page_size = Choice(("2", "4", "8", "16"), default="4")
    shared = traitlets.Bool(False).tag(sync=True)
    step = Whole(14, low=0, high=100, step=1, label="step")

    def __init__(self, **state: Any) -> None:
        requests = [list(one) for one in zip(PROMPTS, ANSWERS, ARRIVALS, strict=True)]
        super().__init__(requests=requests, **state)
