"""Weights in a narrow format with float32 copies that an optimizer updates."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class MasterWeights:
    """An optimizer on float32 copies of bf16 or fp16 weights.

    A step of 1e-3 of a weight is less than half the distance to the next bf16 number (2^-9 of it),
    so that `w + step` rounds back to w: alone, the weight would stand still.  The copy moves, and
    the weight is its rounding::

        master = master + step(gradient in float32);   w = round(master)

    Args:
        params: tensors, or groups with settings of their own.
        optimizer_class: makes the optimizer of the copies, from groups and settings.
        settings: of the optimizer.

    Source:
        Micikevicius et al. 2018, section 3.1, https://arxiv.org/abs/1710.03740
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[torch.optim.Optimizer],
        **settings: Any,
    ) -> None:
        params = list(params)
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
        self._pairs: list[tuple[Tensor, Tensor]] = []
        copies = [{**g, "params": [self._copy(w) for w in g["params"]]} for g in groups]
        self.optimizer = optimizer_class(copies, **settings)

    def _copy(self, w: Tensor) -> Tensor:
        """Return the float32 copy of a weight, and remember the pair."""
        copy = torch.nn.Parameter(w.detach().float().clone(), requires_grad=w.requires_grad)
        self._pairs.append((w, copy))
        return copy

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups of the copies, for schedules."""
        return self.optimizer.param_groups

    @property
    def masters(self) -> list[Tensor]:
        """The float32 copies, in the order of the weights."""
        return [copy for _, copy in self._pairs]

    @torch.no_grad()
    def step(self) -> None:
        """Widen the gradients, update the copies, round them into the weights."""
        for w, copy in self._pairs:
            copy.grad = None if w.grad is None else w.grad.float()
        self.optimizer.step()
        for w, copy in self._pairs:
            w.copy_(copy)
            copy.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with 0."""
        for w, _ in self._pairs:
            if set_to_none:
                w.grad = None
            elif w.grad is not None:
                w.grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return the copies and the state of their optimizer: the weights follow from them."""
        return {
            "masters": [copy.detach() for copy in self.masters],
            "optimizer": self.optimizer.state_dict(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the weights become its rounding.

        Raises:
            ValueError: if it is the state of other weights.
        """
        given = [tuple(copy.shape) for copy in state["masters"]]
        own = [tuple(copy.shape) for copy in self.masters]
        if given != own:
            raise ValueError(f"the state is of weights with shapes {given}, these have {own}")
        for (w, copy), saved in zip(self._pairs, state["masters"], strict=True):
            copy.copy_(saved)
            w.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
