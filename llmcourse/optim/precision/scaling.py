"""Scales that bring numbers into a narrow format's range: of the loss, of tensors, of blocks."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.optim.precision.formats import FloatFormat
from llmcourse.optim.precision.rounding import decode, encode


class LossScaler:
    """Multiply the loss, so that small gradients survive fp16; find the factor by trying.

    A step whose gradients are not all finite is left out and the scale is multiplied by `backoff`;
    after `growth_interval` good steps in a row it is multiplied by `growth`.

    Use, in each step::

        scaler.scale(loss).backward()
        if scaler.unscale(parameters):      # True when all gradients are finite
            optimizer.step()
        scaler.update()

    Args:
        scale: to begin with, positive.
        growth: above 1.
        backoff: between 0 and 1.
        growth_interval: good steps before the scale grows, 1 or more.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Micikevicius et al. 2018, section 3.2, https://arxiv.org/abs/1710.03740; decisions as
        torch.amp.GradScaler takes them.
    """

    def __init__(
        self,
        scale: int | float = 65_536.0,
        *,
        growth: int | float = 2.0,
        backoff: int | float = 0.5,
        growth_interval: int = 2_000,
    ) -> None:
        require("scale", scale, above=0, below=math.inf)
        require("growth", growth, above=1)
        require("backoff", backoff, above=0, below=1)
        require("growth_interval", growth_interval, least=1)
        self.value = float(scale)
        self.growth, self.backoff = growth, backoff
        self.growth_interval = growth_interval
        self.good_steps = 0
        self._finite: bool | None = None

    def scale(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Return the loss times the scale."""
        return loss * self.value

    @torch.no_grad()
    def unscale(self, parameters: Iterable[Tensor]) -> bool:
        """Divide all gradients by the scale; return whether all of them are finite.

        Raises:
            RuntimeError: if it is called twice without an `update` between.
        """
        if self._finite is not None:
            raise RuntimeError("unscale was called twice in one step: call update after each step")
        gradients = [p.grad for p in parameters if p.grad is not None]
        self._finite = all(bool(g.isfinite().all()) for g in gradients)
        for g in gradients:
            g.mul_(1 / self.value)
        return self._finite

    def update(self) -> None:
        """Choose the scale of the next step.

        Raises:
            RuntimeError: if `unscale` was not called since the last update.
        """
        if self._finite is None:
            raise RuntimeError("call unscale before update: it finds out whether the step is good")
        if not self._finite:
            self.value, self.good_steps = self.value * self.backoff, 0
        else:
            self.good_steps += 1
            if self.good_steps == self.growth_interval:
                grown = self.value * self.growth
                if grown <= torch.finfo(torch.float32).max:  # since it meets a float32 loss
                    self.value = grown
                self.good_steps = 0
        self._finite = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"scale": self.value, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.value, self.good_steps = float(state["scale"]), int(state["good_steps"])


class Scaled(NamedTuple):
    """A tensor in a narrow format, and the factor of each block of its last axis."""

    codes: Int[Tensor, "*shape"]
    scales: Float[Tensor, "*blocks"]
    """One per block; a single one, without axes, for the whole tensor."""
    fmt: FloatFormat

    def numbers(self) -> Float[Tensor, "*shape"]:
        """Return the float32 numbers that it stands for."""
        values = decode(self.codes, self.fmt)
        if self.scales.ndim == 0:
            return values * self.scales
        size = values.shape[-1] // self.scales.shape[-1]
        return values * self.scales.repeat_interleave(size, dim=-1)


def quantize(
    x: Float[Tensor, "*shape"],
    fmt: FloatFormat,
    *,
    block: int | None = None,
    power_of_two: bool = False,
) -> Scaled:
    """Divide by a scale, so that the largest entry becomes the largest number, and round::

        scale = max |x| / largest;   codes = encode(x / scale)

    Args:
        x: float32 numbers, finite.
        fmt: the format.
        block: entries of the last axis that share a scale; None: the whole tensor shares one.
        power_of_two: the next power of two above, which costs no rounding error of its own.

    Raises:
        ValueError: if a block does not divide the last axis, or an entry is not finite.

    Source:
        Micikevicius et al. 2022, section 3.1, https://arxiv.org/abs/2209.05433 (tensor);
        DeepSeek-AI 2024, section 3.3.2, https://arxiv.org/abs/2412.19437 (blocks of 128);
        Rouhani et al. 2023, https://arxiv.org/abs/2310.10537 (blocks of 32, powers of two)
    """
    if not x.isfinite().all():
        raise ValueError("an entry is not finite: a scale taken from it would ruin the others")
    if block is not None and (block < 1 or x.ndim == 0 or x.shape[-1] % block):
        raise ValueError(f"block must divide the last axis of {tuple(x.shape)}, got {block}")
    parts = x if block is None else x.unflatten(-1, (-1, block))
    largest = parts.abs().amax() if block is None else parts.abs().amax(-1)
    scales = largest / fmt.largest
    if power_of_two:
        scales = torch.exp2(torch.log2(scales).ceil())
    # All zeros have the scale 0: the least normal number keeps the division finite.
    scales = scales.clamp(min=torch.finfo(x.dtype).tiny)
    shares = parts / (scales if block is None else scales.unsqueeze(-1))
    return Scaled(encode(shares.reshape(x.shape), fmt), scales, fmt)
