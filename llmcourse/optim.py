"""Optimizers, gradient clipping and learning-rate schedules, written to be read.

An optimizer here is a `torch.optim.Optimizer`, so that it can stand wherever torch's own does.

Taught in: chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb, chapters/25_optimizers.ipynb, chapters/26_learning_rate.ipynb
"""  # noqa: E501 - one line, which tests and pages read

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class SGD(torch.optim.Optimizer):
    """Stochastic gradient descent, with momentum if asked for::

        v = momentum * v + g;   w = w - lr * v          (v = g when momentum is 0)

    Args:
        params: tensors or groups.
        lr: learning rate, positive.
        momentum: share of the last step that is kept, in [0, 1).

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Sutskever et al. 2013 in torch's form: the first v is g.
    """

    def __init__(
        self, params: Iterable[Any], *, lr: int | float, momentum: int | float = 0.0
    ) -> None:
        _check("lr", lr, above=0)
        _check("momentum", momentum, least=0, below=1)
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the gradients that are there."""
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                v = w.grad
                if group["momentum"]:
                    state = self.state[w]
                    if "velocity" not in state:
                        state["velocity"] = torch.zeros_like(w)
                    v = state["velocity"].mul_(group["momentum"]).add_(w.grad)
                w.add_(v, alpha=-group["lr"])


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay::

        m = b1 m + (1 - b1) g          running mean of the gradient
        v = b2 v + (1 - b2) g^2        running mean of its square
        w = w - lr decay w - lr mhat / (sqrt(vhat) + eps)
        mhat = m / (1 - b1^t),  vhat = v / (1 - b2^t)    corrected for starting at zero

    Args:
        params: tensors or groups; a group may carry its own lr and weight_decay.
        lr: learning rate, positive.
        betas: (b1, b2), each in [0, 1).
        eps: added to sqrt(vhat), positive.
        weight_decay: share of a weight that is removed per step and unit of lr, 0 or greater.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Loshchilov and Hutter 2019, algorithm 2, https://arxiv.org/abs/1711.05101
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: int | float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: int | float = 0.1,
    ) -> None:
        _check("lr", lr, above=0)
        _check("betas[0]", betas[0], least=0, below=1)
        _check("betas[1]", betas[1], least=0, below=1)
        _check("eps", eps, above=0)
        _check("weight_decay", weight_decay, least=0)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the gradients that are there."""
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    self._update(w, w.grad, group)

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Update one tensor; the two corrections are folded into scalars to save passes."""
        state = self.state[w]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(w)
            state["mean_square"] = torch.zeros_like(w)
        state["step"] += 1
        (beta1, beta2), lr = group["betas"], group["lr"]
        mean, mean_square = state["mean"], state["mean_square"]
        w.mul_(1 - lr * group["weight_decay"])
        mean.lerp_(g, 1 - beta1)
        mean_square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        correction1 = 1 - beta1 ** state["step"]
        correction2 = 1 - beta2 ** state["step"]
        denominator = mean_square.sqrt().mul_(1 / math.sqrt(correction2)).add_(group["eps"])
        w.addcdiv_(mean, denominator, value=-lr / correction1)


def decay_groups(model: nn.Module, *, weight_decay: int | float) -> list[dict[str, Any]]:
    """Split the parameters in two groups: matrices decay, gains and embeddings do not.

    Decay pulls towards zero.  A gain of a norm belongs near 1, and an embedding row that is seen
    rarely would be pulled to zero between its uses, so neither decays here.  A tied embedding is
    also the output head; it counts as an embedding.  (nanoGPT decays embeddings; the Llama papers
    do not say.)

    Returns:
        Two groups for an optimizer, empty ones left out.
    """
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim >= 2 and "embedding" not in name
        (decayed if is_matrix else free).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


@torch.no_grad()
def clip_by_global_norm(
    parameters: Iterable[Tensor],
    max_norm: int | float,
    *,
    sum_over_shards: Callable[[Tensor], Tensor] = lambda total: total,
) -> float:
    """Scale all gradients so that their joint norm is at most `max_norm`; return the norm before.

    norm = sqrt(sum over all gradients of g^2);  g = g * min(1, max_norm / norm)

    Args:
        parameters: tensors whose `.grad` is clipped in place; those without one are passed over.
        max_norm: largest allowed norm, positive.
        sum_over_shards: adds the sum of squares over the ranks that hold other shards.

    Raises:
        ValueError: if max_norm is not positive.

    Source:
        Pascanu et al. 2013, algorithm 1, https://arxiv.org/abs/1211.5063
    """
    _check("max_norm", max_norm, above=0)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    squares = torch.stack([torch.linalg.vector_norm(g).square() for g in gradients]).sum()
    norm = float(sum_over_shards(squares).sqrt())
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm


def warmup_cosine(
    step: int, *, peak: int | float, num_steps: int, warmup_steps: int, final: int | float = 0.0
) -> int | float:
    """Return the learning rate of a step: linear up to `peak`, then half a cosine down to `final`.

    In formulas::

        step < warmup:  peak (step + 1) / warmup
        after:          final + (peak - final) (1 + cos(pi progress)) / 2,
                        progress = (step - warmup) / (num_steps - warmup), at most 1

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
    if steps_left >= decay_steps:
        return peak if steps_left > 0 else final
    return final + (peak - final) * max(0, steps_left) / decay_steps


def _check_schedule(
    step: int, peak: int | float, num_steps: int, warmup_steps: int, final: int | float
) -> None:
    """Raise ValueError for a schedule that cannot be followed."""
    _check("step", step, least=0)
    _check("peak", peak, above=0)
    _check("num_steps", num_steps, above=0)
    _check("final", final, least=0)
    if not 0 <= warmup_steps <= num_steps:
        raise ValueError(f"warmup_steps must be from 0 to {num_steps}, got {warmup_steps}")


def _check(
    name: str,
    value: int | float,
    *,
    least: int | float | None = None,
    above: int | float | None = None,
    below: int | float | None = None,
) -> None:
    """Raise ValueError, naming the setting and the rule, if the value breaks it."""
    if least is not None and not value >= least:
        raise ValueError(f"{name} must be {least} or greater, got {value}")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be above {above}, got {value}")
    if below is not None and not value < below:
        raise ValueError(f"{name} must be below {below}, got {value}")
