"""A widget that goes on with the reader's own text, as far as its model has been trained."""

from collections.abc import Sequence
from typing import Any

import traitlets

from llmcourse import train
from llmcourse_classroom.state import Limited
from llmcourse_classroom.widgets.live import LiveRun


class LivePrompt(LiveRun):
    """A reader trains a Llama in the page, types a beginning, and the model writes on.

    The probabilities of the next token are shown at a temperature.  At a loss near ln V they are
    all alike; going back to an earlier step shows what the model of that step would have written.

    Args:
        config: shape of the model and settings of the run.
        merges: of the tokenizer, see `LiveRun`.
        floor: the entropy of the stories in these tokens, in nats per token.
        state: prompt, temperature, step.

    Raises:
        ValueError: as `LiveRun`.
    """

    script = "live_prompt.js"
    alt = (
        "A small Llama that you train in your own browser. It writes on after a beginning of your "
        "own, and shows how probable it takes each next token to be, at a temperature that you set."
    )

    prompt = traitlets.Unicode("Once there was").tag(sync=True)
    temperature = Limited(0.8, low=0.1, high=3.0, step=0.05, label="temperature")

    def __init__(
        self,
        config: train.TrainConfig,
        merges: Sequence[tuple[bytes, bytes]],
        *,
        floor: float,
        **state: Any,
    ) -> None:
        super().__init__(config, merges, floor=floor, show=(), **state)
