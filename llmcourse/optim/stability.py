"""Seeing that a run goes wrong, finding where, going back, and holding attention scores in place.

Shape suffixes:  H query heads, G key/value heads, K head size, D width.
"""

import math
import statistics
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from llmcourse.base.arguments import require

Verdict = Literal["fine", "spike", "not finite"]
"""What a detector says of a number."""


class SpikeDetector:
    """Tell a spike from the usual scatter, by the median of the last values::

        spike if  value > median + factor * spread,   spread = 1.4826 median |value - median|

    A median does not follow one wild value, as a mean would.  The constant makes the spread equal
    to the standard deviation of a normal distribution.  Spikes do not enter the window, so that a
    long one is not taken for usual.

    Args:
        window: values that are remembered, 3 or more.
        factor: how many spreads are too much, positive.
        least_rise: a rise below this is no spike, however calm the window was; 0 or more.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Leys et al. 2013 for the spread, https://doi.org/10.1016/j.jesp.2013.03.013
    """

    def __init__(
        self, *, window: int = 50, factor: int | float = 8.0, least_rise: int | float = 0.1
    ) -> None:
        require("window", window, least=3)
        require("factor", factor, above=0)
        require("least_rise", least_rise, least=0)
        self.factor, self.least_rise = factor, least_rise
        self.values: deque[float] = deque(maxlen=window)

    @property
    def limit(self) -> float:
        """The value above which there is a spike; infinity until the window is full."""
        if len(self.values) != self.values.maxlen:
            return math.inf
        median = statistics.median(self.values)
        spread = 1.4826 * statistics.median(abs(v - median) for v in self.values)
        return median + max(self.factor * spread, self.least_rise)

    def look(self, value: float) -> Verdict:
        """Judge a value by those before it, and remember it unless it is a spike."""
        if not math.isfinite(value):
            return "not finite"
        if value > self.limit:
            return "spike"
        self.values.append(value)
        return "fine"


class BadNumber(NamedTuple):
    """Where a number that is not finite, or too large, was seen first."""

    where: str
    """Name of the module or parameter; "" is the model itself."""
    what: Literal["weight", "output", "gradient of the output", "gradient of the weight"]
    share: float
    """Share of the entries that are bad."""


@dataclass
class Watch:
    """What `first_bad` saw, in the order in which it happened."""

    seen: list[BadNumber] = field(default_factory=list)

    @property
    def first(self) -> BadNumber | None:
        """The first bad number, where the fault is; None if all were good."""
        return self.seen[0] if self.seen else None


@contextmanager
def first_bad(model: nn.Module, *, largest: int | float = math.inf) -> Iterator[Watch]:
    """Watch a forward and a backward pass for the first number that is bad.

    A NaN spreads: one bad weight makes a bad output of its layer, then of every later layer, then a
    bad loss and bad gradients everywhere.  Only the first one says where to look.  In order:
    weights before the pass, outputs of modules as they are computed (inner before outer), gradients
    as backward reaches them.

    Use::

        with first_bad(model) as watch:
            loss_of(model).backward()
        print(watch.first)

    Args:
        model: any module.
        largest: absolute values above it count as bad, too.

    Raises:
        ValueError: if `largest` is not positive.
    """
    require("largest", largest, above=0)
    watch = Watch()

    def look(where: str, what: Any, x: Tensor) -> None:
        if x.is_floating_point() and x.numel():
            # NaN fails the comparison, infinity may pass it: `largest` is infinite by default.
            share = float((~(x.detach().abs() <= largest) | ~x.detach().isfinite()).float().mean())
            if share:
                watch.seen.append(BadNumber(where, what, share))

    def after_forward(_module: nn.Module, _inputs: Any, output: Any, *, name: str) -> None:
        if isinstance(output, Tensor):
            look(name, "output", output)
            if output.requires_grad:
                output.register_hook(partial(look, name, "gradient of the output"))

    # Weights are looked at now, all else when it is computed: `seen` is in the order of time.
    handles = []
    for name, parameter in model.named_parameters():
        look(name, "weight", parameter)
        if parameter.requires_grad:
            see = partial(look, name, "gradient of the weight")
            handles.append(parameter.register_hook(see))
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(partial(after_forward, name=name)))
    try:
        yield watch
    finally:
        # Also after an error: a hook that stays would watch every later pass.
        for handle in handles:
            handle.remove()


def soft_cap(x: Float[Tensor, "*any"], cap: int | float) -> Float[Tensor, "*any"]:
    """Bend numbers so that none exceeds a cap:  cap * tanh(x / cap).

    Small numbers stay nearly as they are.  For large ones the slope goes to 0: their gradient is
    lost, and the numbers before the cap may still grow.

    Args:
        x: attention scores, or logits of the vocabulary.
        cap: the limit, above 0; in the units of x.

    Raises:
        ValueError: if the cap is not positive.

    Source:
        Gemma Team 2024 (Gemma 2), section 2, https://arxiv.org/abs/2408.00118: 50 for scores, 30
        for logits.
    """
    require("cap", cap, above=0)
    return cap * torch.tanh(x / cap)


@torch.no_grad()
def qk_clip(
    w_q: Float[Tensor, "HK D"],
    w_k: Float[Tensor, "GK D"],
    largest_H: Float[Tensor, " H"],
    tau: int | float,
) -> None:
    """Scale down the query and key matrices, in place, of the heads whose scores exceed tau.

    After the optimizer's step, for each head with largest score s > tau::

        W_q <- sqrt(tau / s) W_q,  W_k <- sqrt(tau / s) W_k

    so that its largest score on the same tokens is tau.  Other heads stay as they are.  Where
    several query heads share a key head, W_k stays, and W_q is scaled by tau / s.

    Args:
        w_q: one row for each channel of each query head, head after head.
        w_k: the same for key heads.
        largest_H: the largest score of each head, from `model.largest_scores`.
        tau: the score from which on a head is scaled, above 0.

    Raises:
        ValueError: if tau is not positive, or the heads do not divide the rows.

    Source:
        Kimi Team 2025 (Kimi K2), section 2.1, https://arxiv.org/abs/2507.20534
    """
    require("tau", tau, above=0)
    num_heads = len(largest_H)
    if num_heads == 0 or len(w_q) % num_heads or len(w_q) % len(w_k):
        raise ValueError(
            f"{num_heads} heads do not divide {len(w_q)} rows of queries and {len(w_k)} of keys"
        )
    # tau / s for the heads above tau, and 1 for all others.
    factor_H = tau / largest_H.clamp(min=tau)
    # Its root for q and for k, unless other heads read the same k: then all of it for q.
    is_shared = len(w_k) < len(w_q)
    factor_H11 = (factor_H if is_shared else factor_H.sqrt())[:, None, None]
    w_q.unflatten(0, (num_heads, -1)).mul_(factor_H11)
    if not is_shared:
        w_k.unflatten(0, (num_heads, -1)).mul_(factor_H11)
