"""Descent along the gradient, plain, with momentum, and with a step size for each weight."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.optim.adamw import PerTensor


class SGD(PerTensor):
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
        self, params: Iterable[Any], lr: int | float, *, momentum: int | float = 0.0
    ) -> None:
        require("lr", lr, above=0)
        require("momentum", momentum, least=0, below=1)
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Update one tensor."""
        if group["momentum"]:
            state = self.state[w]
            if "velocity" not in state:
                state["velocity"] = torch.zeros_like(w)
            g = state["velocity"].mul_(group["momentum"]).add_(g)
        w.add_(g, alpha=-group["lr"])


class RMSProp(PerTensor):
    """Divide the gradient by the root of its running mean square, each weight by its own::

        v = a v + (1 - a) g^2;   w = w - lr g / (sqrt(v) + eps)

    Args:
        params: tensors or groups.
        lr: learning rate, positive.
        alpha: memory of the mean square, in [0, 1).
        eps: added to sqrt(v), positive.

    Raises:
        ValueError: if a setting is outside its range.

    Source:
        Tieleman and Hinton 2012, lecture 6.5 of Neural Networks for Machine Learning.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: int | float,
        *,
        alpha: int | float = 0.99,
        eps: float = 1e-8,
    ) -> None:
        require("lr", lr, above=0)
        require("alpha", alpha, least=0, below=1)
        require("eps", eps, above=0)
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps})

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Update one tensor."""
        state = self.state[w]
        if not state:
            state["mean_square"] = torch.zeros_like(w)
        v = state["mean_square"].mul_(group["alpha"]).addcmul_(g, g, value=1 - group["alpha"])
        w.addcdiv_(g, v.sqrt().add_(group["eps"]), value=-group["lr"])
