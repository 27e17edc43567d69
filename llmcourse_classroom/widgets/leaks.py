"""A widget about copies of a test in the training text, and who notices them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Named
from llmcourse_classroom.widget import Widget

MOST_ROWS, MOST_SEEDS, MOST_ITEMS, LONGEST_NAME = 8, 5, 1_000, 9
SHARES = ("min_k_hits", "min_k_false")
BY_LENGTH = ("overlap_leaked", "overlap_fresh", "clean_right", "clean_items")
KEYS = ("name", "losses", "leaked", "fresh", "canary_p", "order_p", *SHARES, *BY_LENGTH)


class LeakBoard(Widget):
    """A test of which half leaks into the training text: its score, the clean loss, four detectors.

    Args:
        rows: 2 to 8, each a dict of name (how many copies, at most 9 characters: "16", "64
            retold"), and for each of up to 5 seeds: losses (on clean text, nats per token), leaked
            and fresh (right answers of each half), canary_p and order_p (p-values), min_k_hits and
            min_k_false (shares of the halves that are flagged), and, each a list with a number for
            each of `lengths`: overlap_leaked and overlap_fresh (the same shares), clean_right and
            clean_items (right answers and questions of both halves that are not flagged).
        half: questions in each half.
        options: answers to choose from.
        lengths: runs of words that the overlap was counted with.
        state: copies (the name of the row that is shown), words (one of the lengths, as text),
            level (a p-value up to it is an alarm).

    Raises:
        ValueError: if a row lacks something, or its parts do not belong together.
    """

    script = "leak_board.js"
    alt = (
        "Scores against copies of half a test in the training text.  The score on the half that "
        "leaks rises with its copies, that on the other half stays at chance, and the loss on "
        "clean text hardly changes.  Told in other words, the leak raises the score as well, and "
        "no detector notices it."
    )

    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    half = traitlets.Int().tag(sync=True)
    options = traitlets.Int().tag(sync=True)
    lengths = traitlets.List(traitlets.Unicode()).tag(sync=True)
    copies = Named().tag(sync=True)
    words = Named().tag(sync=True)
    level = Limited(0.05, low=0.001, high=0.5, step=0.001, label="level")

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        half: int,
        options: int,
        lengths: Sequence[int],
        **state: Any,
    ) -> None:
        if not 1 <= half <= MOST_ITEMS or not 2 <= options <= MOST_ITEMS:
            raise ValueError(
                f"half is 1 to {MOST_ITEMS}, options 2 to {MOST_ITEMS}; not {half}, {options}"
            )
        names = [str(int(n)) for n in lengths]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"give lengths of runs, each once, not {list(lengths)}")
        kept = [_checked(row, half, len(names)) for row in rows]
        copies = [row["name"] for row in kept]
        if not 2 <= len(set(copies)) == len(copies) <= MOST_ROWS:
            raise ValueError(f"give 2 to {MOST_ROWS} rows, each with its own name, not {copies}")
        super().__init__(
            rows=kept,
            half=half,
            options=options,
            lengths=names,
            bounds={"words": names, "copies": copies},
            **({"words": names[-1], "copies": copies[0]} | state),
        )


def _checked(row: Mapping[str, Any], half: int, num_lengths: int) -> dict[str, Any]:
    """Return a row as the page takes it."""
    if missing := [key for key in KEYS if key not in row]:
        raise ValueError(f"a row has no {missing}; it needs {list(KEYS)}")
    copies, num_seeds = str(row["name"]), len(row["losses"])
    if not 1 <= len(copies) <= LONGEST_NAME:
        raise ValueError(f"names have 1 to {LONGEST_NAME} characters, unlike {copies!r}")
    if not 1 <= num_seeds <= MOST_SEEDS or any(len(row[key]) != num_seeds for key in KEYS[1:]):
        raise ValueError(f"{copies} copies: give everything for the same 1 to {MOST_SEEDS} seeds")
    if not all(math.isfinite(x) and x > 0 for x in row["losses"]):
        raise ValueError(f"{copies} copies: losses are above 0, not {list(row['losses'])}")
    if not all(0 <= k <= half for key in ("leaked", "fresh") for k in row[key]):
        raise ValueError(f"{copies} copies: right answers are 0 to {half}")
    by_length = {key: [list(one) for one in row[key]] for key in BY_LENGTH}
    if any(len(one) != num_lengths for each in by_length.values() for one in each):
        raise ValueError(f"{copies} copies: give {list(BY_LENGTH)} for each of the lengths")
    right, items = ([n for one in by_length[key] for n in one] for key in BY_LENGTH[2:])
    if not all(0 <= k <= n <= 2 * half for k, n in zip(right, items, strict=True)):
        raise ValueError(f"{copies} copies: clean_right is at most clean_items, these {2 * half}")
    shares = [x for key in BY_LENGTH[:2] for one in by_length[key] for x in one]
    shares += [x for key in ("canary_p", "order_p", *SHARES) for x in row[key]]
    if not all(0 <= x <= 1 for x in shares):
        raise ValueError(f"{copies} copies: shares and p-values are 0 to 1")
    return {key: row[key] for key in KEYS} | {"name": copies}
