"""Lion: the sign of a momentum, which is all that it remembers."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from llmcourse.base.arguments import require, require_each
from llmcourse.optim.adamw import PerTensor


class Lion(PerTensor):
    """Every entry takes a step of the same length, in the direction of a momentum::

        u = sign(b1 m + (1 - b1) g)
        w = w - lr (u + decay w)
        m = b2 m + (1 - b2) g              after u has been taken: b1 looks, b2 remembers

    Every entry moves by the whole learning rate, which those of AdamW seldom do: the rate is 3 to
    10 times smaller here, and the decay as much larger.

    Args:
        params: tensors or groups; a group may carry its own lr and weight_decay.
        lr: learning rate, positive.
        betas: (b1, b2), each in [0, 1).
        weight_decay: share of a weight that is removed per step and unit of lr, 0 or greater.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Chen et al. 2023, algorithm 2, https://arxiv.org/abs/2302.06675
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: int | float = 1e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: int | float = 0.1,
    ) -> None:
        require("lr", lr, above=0)
        require_each({"betas[0]": betas[0], "betas[1]": betas[1]}, least=0, below=1)
        require("weight_decay", weight_decay, least=0)
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2), lr = self.state[w], group["betas"], group["lr"]
        if not state:
            state["mean"] = torch.zeros_like(w)
        mean = state["mean"]
        w.mul_(1 - lr * group["weight_decay"])
        w.add_(torch.lerp(mean, g, 1 - beta1).sign_(), alpha=-lr)
        mean.lerp_(g, 1 - beta2)
