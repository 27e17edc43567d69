"""A widget about tests of models: how far a score may be off, and who wins."""

from typing import Any

from llmcourse_classroom.state import Limited, Whole
from llmcourse_classroom.widget import Widget


class IntervalLab(Widget):
    """Two models of known quality on a test of so many items, and on forty such tests.

    Args:
        state: items (10 to 5,000), first and second (the models' true shares of right answers, in
            %), alike (the share of the items on which both have the same luck, in %), seed.
    """

    script = "interval_lab.js"
    alt = (
        "Above, the shares of right answers that two models have in one test, each a dot with a "
        "bar for its interval.  Below, the difference of the two in forty tests, a dot each.  With "
        "few items the dots lie on both sides of zero, so that the worse model often wins."
    )

    items = Whole(100, low=10, high=5_000, step=1, label="items of the test")
    first = Limited(64, low=0, high=100, step=1, label="model A, true share in %")
    second = Limited(60, low=0, high=100, step=1, label="model B, true share in %")
    alike = Limited(0, low=0, high=100, step=1, label="items of equal luck, in %")
    seed = Whole(0, low=0, high=999, step=1, label="seed")

    def __init__(self, **state: Any) -> None:
        super().__init__(**state)
