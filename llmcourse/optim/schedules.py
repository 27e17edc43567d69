"""The learning rate and the batch as functions of the step."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from llmcourse.base.arguments import require, require_each, require_fields
from llmcourse.base.settings import Settings
from llmcourse.base.stages import stage_at


def warmup_cosine(
    step: int, *, peak: int | float, num_steps: int, warmup_steps: int, final: int | float = 0.0
) -> int | float:
    """Return the learning rate of a step: linear up to `peak`, then half a cosine down to `final`.

    In formulas::

        step < warmup:  peak (step + 1) / warmup
        after:          final + (peak - final) (1 + cos(pi progress)) / 2,
                        progress = (step - warmup) / (num_steps - warmup), at most 1

    Warm-up has three customs.  This one has the rate peak / warmup at step 0, the peak at step
    warmup - 1, and again at step warmup, where the cosine begins.  CS336, Hugging Face and earlier
    nanoGPTs take peak step / warmup: nothing moves at step 0, and the peak comes at step warmup.
    The present nanoGPT takes peak (step + 1) / (warmup + 1): all steps move, and the peak comes at
    step warmup.

    Args:
        step: from 0; the first step already moves.
        peak: largest learning rate.
        num_steps: length of the whole schedule.
        warmup_steps: from 0 to num_steps.
        final: learning rate at and after num_steps.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Loshchilov and Hutter 2017, equation 5, https://arxiv.org/abs/1608.03983
    """
    _check_schedule(step, peak, num_steps, warmup_steps, final)
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, num_steps - warmup_steps))
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


def warmup_stable_decay(
    step: int,
    *,
    peak: int | float,
    num_steps: int,
    warmup_steps: int,
    decay_steps: int,
    final: int | float = 0.0,
) -> int | float:
    """Return the learning rate of a step: up, flat at `peak`, then straight down to `final`.

    The flat part may be prolonged without deciding the end in advance (WSD).

    Raises:
        ValueError: if a setting is outside its range, or warm-up and decay overlap.

    Source:
        Hu et al. 2024 (MiniCPM), section 4, https://arxiv.org/abs/2404.06395
    """
    _check_schedule(step, peak, num_steps, warmup_steps, final)
    if decay_steps < 0 or warmup_steps + decay_steps > num_steps:
        raise ValueError(
            f"decay_steps must be from 0 to num_steps - warmup_steps = "
            f"{num_steps - warmup_steps}, got {decay_steps}"
        )
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    steps_left = num_steps - step
    if steps_left <= 0:
        return final
    # While more steps are left than the decay takes, the minimum is 1: the flat part.
    return final + (peak - final) * min(1, steps_left / max(1, decay_steps))


def warmup_cosine_anneal(
    step: int,
    *,
    peak: int | float,
    num_steps: int,
    warmup_steps: int,
    final: int | float,
    anneal_steps: int,
) -> int | float:
    """Return the learning rate of a step: `warmup_cosine`, then straight from `final` to 0.

    `anneal_steps`, 0 or more, is the length of the straight end, which follows the num_steps of
    warm-up and cosine; the other arguments and the errors are those of `warmup_cosine`.

    Source:
        Grattafiori et al. 2024, section 3.4, https://arxiv.org/abs/2407.21783
    """
    require("anneal_steps", anneal_steps, least=0)
    cosine = warmup_cosine(
        step, peak=peak, num_steps=num_steps, warmup_steps=warmup_steps, final=final
    )
    if step < num_steps:
        return cosine
    return final * max(0.0, 1 - (step - num_steps) / anneal_steps) if anneal_steps else 0.0


def llama3_405b_rate(step: int) -> int | float:
    """Return the published learning rate of Llama 3 405B at a step, counted from 0.

    8e-5 after 8,000 steps of warm-up, half a cosine to 8e-7 at step 1,200,000, and linearly to 0
    over the last 40 M tokens as printed, which are three steps of 16 M.

    Source:
        Grattafiori et al. 2024, section 3.4, https://arxiv.org/abs/2407.21783
    """
    return warmup_cosine_anneal(
        step, peak=8e-5, num_steps=1_200_000, warmup_steps=8_000, final=8e-7, anneal_steps=3
    )


@dataclass(frozen=True, kw_only=True)
class Schedule(Settings):
    """What all schedules of the learning rate have in common."""

    learning_rate: float = 6e-3
    """Largest learning rate of the schedule."""
    warmup_steps: int = 40
    """Steps of linear warm-up."""
    final_share: float = 0.05
    """Final learning rate as a share of the largest."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "learning_rate", above=0)
        require_fields(self, "warmup_steps", least=0)
        require_fields(self, "final_share", least=0, most=1)

    @property
    def _common(self) -> dict[str, Any]:
        final = self.learning_rate * self.final_share
        return {"peak": self.learning_rate, "warmup_steps": self.warmup_steps, "final": final}


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay(Schedule):
    """Warm-up, flat, then straight down."""

    needs: ClassVar = "schedule = wsd"

    schedule: Literal["wsd"] = "wsd"
    decay_steps: int = 0
    """Steps of the final decay; for the wsd schedule only."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "decay_steps", least=0)

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        """Whether the schedule is this one by its name."""
        return flat["schedule"] == "wsd"

    def rate(self, step: int, num_steps: int) -> int | float:
        """Return the learning rate of a step, counted from 0, of so many."""
        more = {"decay_steps": self.decay_steps, **self._common}
        return warmup_stable_decay(step, num_steps=num_steps, **more)


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Warm-up, then half a cosine."""

    decay_steps: ClassVar[int] = 0
    refused: ClassVar = {"decay_steps": "has no effect with the cosine schedule: leave it at 0"}

    schedule: Literal["cosine"] = "cosine"
    """Warm-up then half a cosine, or warm-up, flat, then linear decay."""

    def rate(self, step: int, num_steps: int) -> int | float:
        """Return the learning rate of a step, counted from 0, of so many."""
        return warmup_cosine(step, num_steps=num_steps, **self._common)


@dataclass(frozen=True, kw_only=True)
class BatchStage:
    """A global batch, and from where on it holds."""

    from_tokens: int
    """Tokens that were trained on before."""
    batch_tokens: int
    """Tokens per step."""
    sequence_length: int
    """Tokens per sequence."""


LLAMA3_405B_BATCHES = (
    BatchStage(from_tokens=0, batch_tokens=2**22, sequence_length=4_096),
    BatchStage(from_tokens=252_000_000, batch_tokens=2**23, sequence_length=8_192),
    BatchStage(from_tokens=2_870_000_000_000, batch_tokens=2**24, sequence_length=8_192),
)
"""4 M, 8 M and 16 M tokens, as printed in section 3.4.1 of https://arxiv.org/abs/2407.21783."""


def batch_at(
    tokens: int | float, stages: tuple[BatchStage, ...] = LLAMA3_405B_BATCHES
) -> BatchStage:
    """Return the stage that holds after so many tokens.

    Raises:
        ValueError: if tokens is negative or no stage begins at or before it.
    """
    ordered = sorted(stages, key=lambda stage: stage.from_tokens)
    return ordered[stage_at([stage.from_tokens for stage in ordered], tokens)]


def num_steps_for(tokens: int | float, stages: tuple[BatchStage, ...] = LLAMA3_405B_BATCHES) -> int:
    """Return how many steps train on so many tokens; a step that begins in a stage is whole.

    Raises:
        ValueError: if tokens is negative or no stage begins at 0.
    """
    require("tokens", tokens, least=0)
    ordered = sorted(stages, key=lambda stage: stage.from_tokens)
    ends = [stage.from_tokens for stage in ordered[1:]] + [math.inf]
    seen = steps = 0
    batch_at(0, stages)
    for stage, end in zip(ordered, ends, strict=True):
        missing = max(0, min(tokens, end) - seen)
        more = -int(-missing // stage.batch_tokens)
        steps, seen = steps + more, seen + more * stage.batch_tokens
    return steps


def rate_for_batch(
    rate: int | float,
    *,
    batch: int | float,
    new_batch: int | float,
    rule: Literal["linear", "sqrt"],
) -> float:
    """Scale a learning rate to another batch:  rate * k  or  rate * sqrt(k),  k = new / old.

    Linear keeps the mean movement per example of SGD.  The root keeps the spread that the noise of
    the gradient gives to the weights, and is the usual rule for Adam, whose step does not grow when
    the gradient does.

    Args:
        rate: the learning rate that is right for `batch`.
        batch: examples or tokens per step, positive.
        new_batch: the same unit, positive.
        rule: "linear" or "sqrt".

    Raises:
        ValueError: if a number is not positive or there is no such rule.

    Source:
        Goyal et al. 2017, https://arxiv.org/abs/1706.02677 (linear);
        Malladi et al. 2022, https://arxiv.org/abs/2205.10287 (root, for Adam)
    """
    require_each({"rate": rate, "batch": batch, "new_batch": new_batch}, above=0)
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"rule must be linear or sqrt, got {rule!r}")
    factor = new_batch / batch
    return rate * (factor if rule == "linear" else math.sqrt(factor))


def _check_schedule(
    step: int, peak: int | float, num_steps: int, warmup_steps: int, final: int | float
) -> None:
    """Raise ValueError for a schedule that cannot be followed."""
    if not (step >= 0 and final >= 0 and peak > 0 and num_steps > 0):
        require_each({"step": step, "final": final}, least=0)
        require_each({"peak": peak, "num_steps": num_steps}, above=0)
    if not 0 <= warmup_steps <= num_steps:
        raise ValueError(f"warmup_steps must be from 0 to {num_steps}, got {warmup_steps}")
