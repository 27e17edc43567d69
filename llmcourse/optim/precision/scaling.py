"""Scales that bring numbers into a narrow format's range: of the loss, of tensors, of blocks."""

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.optim.precision.formats import E4M3, FloatFormat
from llmcourse.optim.precision.rounding import decode, encode, round_to


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


Scales = Literal["float32", "power of two", "e4m3"]
"""In which format the scale of a block is kept."""


class Scaled(NamedTuple):
    """A tensor in a narrow format, and the scale of each of its blocks."""

    codes: Int[Tensor, "*shape"]
    scales: Float[Tensor, "*blocks"]
    """One per block, in the order of the blocks; a single one, without axes, for all."""
    fmt: FloatFormat

    def numbers(self) -> Float[Tensor, "*shape"]:
        """Return the float32 numbers that it stands for."""
        return decode(self.codes, self.fmt) * _spread(self.scales, self.codes.shape)


def quantize(
    x: Float[Tensor, "*shape"],
    fmt: FloatFormat,
    *,
    block: int | tuple[int, int] | None = None,
    scales: Scales = "float32",
) -> Scaled:
    """Divide by a scale, so that the largest entry becomes the largest number, and round::

        scale = max |x| / largest;   codes = encode(x / scale)

    The scale itself is kept in few bits where `scales` says so: as the next power of two above
    (8 bits of exponent, e8m0: MXFP8, MXFP4), or rounded to e4m3 in parts of a float32 scale of the
    whole tensor, which makes the largest of them 448 (NVFP4)::

        scale = 2^ceil(log2(max |x| / largest))
        scale = t e4m3(max |x| / (largest t)),   t = (max |x| of the tensor) / (448 largest)

    Args:
        x: float32 numbers, finite.
        fmt: the format.
        block: entries of the last axis that share a scale, or (rows, columns) of the last two
            axes; None: the whole tensor shares one.
        scales: the format of the scales.

    Raises:
        ValueError: if a block does not divide the axes, or an entry is not finite.

    Source:
        Micikevicius et al. 2022, section 3.1, https://arxiv.org/abs/2209.05433 (tensor);
        DeepSeek-AI 2024, section 3.3.2, https://arxiv.org/abs/2412.19437 (128; 128 x 128);
        Rouhani et al. 2023, https://arxiv.org/abs/2310.10537 (32, powers of two), rounded up as
        Mishra et al. 2025, https://arxiv.org/abs/2506.08027, recommend;
        NVIDIA 2025, https://arxiv.org/abs/2509.25149 (16, e4m3)
    """
    if not x.isfinite().all():
        raise ValueError("an entry is not finite: a scale taken from it would ruin the others")
    largest = _largest(x, block) / fmt.largest
    # All zeros have the scale 0: the least normal number keeps the division finite.
    factors = largest.clamp(min=torch.finfo(x.dtype).tiny)
    if scales == "power of two":
        mantissa, exponent = torch.frexp(factors)  # mantissa from 0.5, below 1
        exponent = exponent - (mantissa == 0.5).int()
        factors = (exponent + 127 << 23).view(torch.float32)
    elif scales == "e4m3":
        whole = (largest.amax() / E4M3.largest).clamp(min=torch.finfo(x.dtype).tiny)
        factors = whole * round_to(largest / whole, E4M3)
    spread = _spread(factors, x.shape)
    shares = torch.where(spread > 0, x / spread, 0.0)  # a scale that e4m3 rounds to 0
    return Scaled(encode(shares, fmt), factors, fmt)


def _largest(
    x: Float[Tensor, "*shape"], block: int | tuple[int, int] | None
) -> Float[Tensor, "*blocks"]:
    """Return the largest size of an entry in each block, or in all of x."""
    if block is None:
        return x.abs().amax()
    sizes = (block,) if isinstance(block, int) else block
    own = x.shape[-len(sizes) :]
    if x.ndim < len(sizes) or any(b < 1 or n % b for n, b in zip(own, sizes, strict=True)):
        axes = "last axis" if len(sizes) == 1 else "last axes"
        raise ValueError(f"block must divide the {axes} of {tuple(x.shape)}, got {block}")
    found = x.abs()
    for axis, b in zip(range(-len(sizes), 0), sizes, strict=True):
        found = found.unflatten(axis, (-1, b)).amax(axis)
    return found


def _spread(scales: Float[Tensor, "*blocks"], shape: torch.Size) -> Float[Tensor, "*shape"]:
    """Return a scale for each entry."""
    for axis in range(scales.ndim):
        scales = scales.repeat_interleave(shape[axis] // scales.shape[axis], dim=axis)
    return scales
