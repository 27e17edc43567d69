"""A widget about a mixture of experts: which tokens go where, and which find an expert full."""

from typing import Any

import torch
import traitlets

from llmcourse.base import runtime
from llmcourse.model import moe
from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget

SENTENCE = (
    "the cat sat on the mat and the dog ran to the old red barn . she saw him and he went home ."
)
WORDS = tuple(SENTENCE.split())
"""The tokens of the board, in their order."""

MOST_EXPERTS = 8
TASTE_SEED = 2_027
"""A draw in which the experts are liked about equally."""


def tastes() -> list[list[float]]:
    """Return how much every token likes every expert: made up, alike for equal words.

    A word has its own likes from -1.5 to 1.5, and each place in the sentence adds up to 0.2 either
    way.  Rounded to hundredths.
    """
    generator = runtime.generator(TASTE_SEED)

    def draw(spread: float) -> torch.Tensor:
        uniform_E = torch.rand(MOST_EXPERTS, generator=generator, dtype=torch.float64)
        return spread * (2 * uniform_E - 1)

    of_word: dict[str, torch.Tensor] = {}
    rows = []
    for word in WORDS:
        if word not in of_word:
            of_word[word] = draw(1.5)
        rows.append([round(like, 2) for like in (of_word[word] + draw(0.2)).tolist()])
    return rows


class RouterBoard(Widget):
    """Tokens fly to their experts; those beyond an expert's capacity are dropped.

    Args:
        state: experts (2 to 8), experts_per_token (1 to 4), skew (0: each token follows its own
            likes; 1: all like the same experts), capacity_factor (0: no limit), scoring ("softmax"
            or "sigmoid"), biases (one number for each of 8 experts, used with sigmoid), token (the
            one in words, counted from 1), sent (how many tokens have left).
    """

    script = "router_board.js"
    alt = (
        "Twenty-four tokens above, eight experts below.  Each token goes to the experts that its "
        "router scores highest, here two.  With a skewed router most tokens want the same experts; "
        "with a capacity the late ones are dropped, while places in other experts stay empty."
    )

    words = traitlets.List(traitlets.Unicode()).tag(sync=True)
    tastes = traitlets.List(traitlets.List(traitlets.Float())).tag(sync=True)
    experts = Whole(8, low=2, high=MOST_EXPERTS, step=1, label="experts E")
    experts_per_token = Whole(2, low=1, high=4, step=1, label="experts per token k")
    skew = Limited(0, low=0, high=1, step=0.01, label="skew of the router")
    capacity_factor = Limited(0, low=0, high=8, step=0.05, label="capacity factor")
    scoring = Choice(("softmax", "sigmoid"))
    biases = traitlets.List(traitlets.Float()).tag(sync=True)
    token = Whole(1, low=1, high=len(WORDS), step=1, label="token in words")
    sent = Whole(len(WORDS), low=0, high=len(WORDS), step=1, label="tokens sent")

    def __init__(self, **state: Any) -> None:
        biases = [float(bias) for bias in state.pop("biases", [0.0] * MOST_EXPERTS)]
        super().__init__(words=list(WORDS), tastes=tastes(), biases=biases, **state)

    @traitlets.validate("biases")
    def _one_for_each(self, proposal: dict[str, Any]) -> list[float]:
        if len(proposal["value"]) != MOST_EXPERTS:
            raise traitlets.TraitError(
                f"biases must be {MOST_EXPERTS} numbers, got {len(proposal['value'])}"
            )
        return proposal["value"]

    def routing(self) -> moe.Routing:
        """Return where every token goes by `moe.route`, as the page shows it."""
        likes_NE = torch.tensor(self.tastes, dtype=torch.float64)[:, : self.experts]
        order_E = (self.experts - 1) / 2 - torch.arange(self.experts, dtype=torch.float64)
        bias_E = torch.tensor(self.biases, dtype=torch.float64)[: self.experts]
        return moe.route(
            likes_NE + 3 * self.skew * order_E,
            torch.eye(self.experts, dtype=torch.float64),
            experts_per_token=min(self.experts_per_token, self.experts),
            scoring=self.scoring,
            bias_E=bias_E if self.scoring == "sigmoid" else None,
        )

    def plan(self) -> moe.Plan:
        """Return which choice is which row of which expert by `moe.dispatch`."""
        return moe.dispatch(
            self.routing().experts_NK, self.experts, capacity_factor=self.capacity_factor
        )
