"""A widget to design a learning rate over a run, with the batch underneath."""

from typing import Any

import traitlets

from llmcourse.optim import LLAMA3_405B_BATCHES
from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget

SHAPES = ("cosine", "wsd", "cosine_anneal", "llama3_405b")
PUBLISHED: dict[str, Any] = {
    "shape": "cosine_anneal",
    "peak": 8e-5,
    "final": 8e-7,
    "warmup_steps": 8_000,
    "num_steps": 1_200_000,
    "decay_steps": 0,
    "anneal_steps": 3,
}
"""Llama 3.1 405B: Grattafiori et al. 2024, section 3.4, https://arxiv.org/abs/2407.21783."""
TOTAL_TOKENS = 15_600_000_000_000
"""That the 405B was trained on: the same report, section 3.4."""
MOST_STEPS = 2_000_000


class ScheduleDesigner(Widget):
    """A learning rate over the steps of a run, the batch below it, and a mark to read both.

    Args:
        shape: "cosine", "wsd", "cosine_anneal" or "llama3_405b", the published one, which has its
            own numbers and batches.
        state: peak, final, num_steps, warmup_steps, decay_steps (wsd), anneal_steps
            (cosine_anneal), batch_tokens (per step), ramp (the 405B's batches instead), step
            (of the mark), view ("whole", "start" or "end"), log_rate.

    Raises:
        ValueError: if there is no such shape.
    """

    script = "schedule_designer.js"
    alt = (
        "The learning rate over the steps of a run: up during warm-up, then down along half a "
        "cosine, or flat and then straight down.  Below it the batch, which for Llama 3.1 405B "
        "doubles twice.  A mark on both reads the rate, and the tokens seen so far."
    )

    shape = Choice(SHAPES)
    peak = Limited(1e-3, low=1e-6, high=1, step=1e-9, label="peak rate")
    final = Limited(1e-4, low=0, high=1, step=1e-9, label="final rate")
    num_steps = Whole(2_000, low=1, high=MOST_STEPS, step=1, label="steps")
    warmup_steps = Whole(100, low=0, high=MOST_STEPS, step=1, label="warm-up, steps")
    decay_steps = Whole(400, low=0, high=MOST_STEPS, step=1, label="decay, steps")
    anneal_steps = Whole(200, low=0, high=MOST_STEPS, step=1, label="anneal, steps")
    batch_tokens = Whole(16_384, low=1, high=2**26, step=1, label="tokens per step")
    ramp = traitlets.Bool(False).tag(sync=True)
    step = Whole(1_000, low=0, high=2 * MOST_STEPS, step=1, label="at step")
    view = Choice(("whole", "start", "end"))
    log_rate = traitlets.Bool(False).tag(sync=True)
    kept = traitlets.Dict().tag(sync=True)
    """Settings of a second curve, drawn dashed; empty for none."""
    published = traitlets.Dict(PUBLISHED).tag(sync=True)
    stages = traitlets.List().tag(sync=True)
    total_tokens = traitlets.Int(TOTAL_TOKENS).tag(sync=True)

    def __init__(self, shape: str = "cosine", **state: Any) -> None:
        stages = [[s.from_tokens, s.batch_tokens, s.sequence_length] for s in LLAMA3_405B_BATCHES]
        super().__init__(shape=shape, stages=stages, **state)

    @traitlets.observe("step", *PUBLISHED)
    def _fit(self, _: Any) -> None:
        """Clamp what the other numbers do not let be, as the page does."""
        shown = PUBLISHED if self.shape == "llama3_405b" else self.state()
        anneal = shown["anneal_steps"] if shown["shape"] == "cosine_anneal" else 0
        self._cap("step", shown["num_steps"] + anneal)
        if self.shape != "llama3_405b":
            self._cap("final", self.peak)
            self._cap("warmup_steps", self.num_steps)
        if self.shape == "wsd":
            self._cap("decay_steps", self.num_steps - self.warmup_steps)

    def _cap(self, name: str, high: int | float) -> None:
        if getattr(self, name) > high:
            label = self.traits()[name].label
            self.note = f"{label}: at most {high:g} now; {high:g} is used."
            setattr(self, name, high)
