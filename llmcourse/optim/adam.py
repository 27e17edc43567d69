"""Adam and AdamW: a step whose size does not follow the size of the gradient.

Taught in: chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb, chapters/25_optimizers.ipynb
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from llmcourse.arguments import require


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
        require("lr", lr, above=0)
        require("betas[0]", betas[0], least=0, below=1)
        require("betas[1]", betas[1], least=0, below=1)
        require("eps", eps, above=0)
        require("weight_decay", weight_decay, least=0)
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


class Adam(AdamW):
    """Adam, whose weight decay is part of the gradient (L2)::

        g = g + decay w, then as AdamW without decay

    A weight with a large mean square is then pulled less to zero: that is the coupling which AdamW
    undoes.

    Args:
        params: tensors or groups.
        lr: learning rate, positive.
        betas: (b1, b2), each in [0, 1).
        eps: added to sqrt(vhat), positive.
        weight_decay: strength of the pull to zero, 0 or greater.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Kingma and Ba 2015, algorithm 1, https://arxiv.org/abs/1412.6980
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: int | float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: int | float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Add the decay to the gradient, then update without it."""
        if group["weight_decay"]:
            g = g.add(w, alpha=group["weight_decay"])
        super()._update(w, g, {**group, "weight_decay": 0.0})
