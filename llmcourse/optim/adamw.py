"""Adam and AdamW, which parameters decay, and one limit for the length of all gradients."""

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from llmcourse.base.arguments import require, require_each
from llmcourse.base.pairs import at_least_float32


class LightOptimizer(torch.optim.Optimizer):
    """An optimizer whose book-keeping does not import torch's compiler.

    torch wraps these four methods, so that its compiler leaves them alone, and the first call of
    any of them imports the compiler: a second of a processor or more, in every process that trains.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class PerTensor(LightOptimizer):
    """An optimizer that updates every tensor by itself, in `_update`."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step with the gradients that are there, or that `closure` makes first.

        Returns:
            What `closure` returns, the loss by custom; None without one.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    self._update(w, w.grad, group)
        return loss

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Update one tensor with its gradient."""
        raise NotImplementedError


class AdamW(PerTensor):
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
        lr: int | float,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: int | float = 0.1,
    ) -> None:
        require("lr", lr, above=0)
        require_each({"betas[0]": betas[0], "betas[1]": betas[1]}, least=0, below=1)
        require("eps", eps, above=0)
        require("weight_decay", weight_decay, least=0)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

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
    undoes.  Arguments and errors as in `AdamW`.

    Source:
        Kingma and Ba 2015, algorithm 1, https://arxiv.org/abs/1412.6980
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: int | float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: int | float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay, **settings)

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Add the decay to the gradient, then update without it."""
        if group["weight_decay"]:
            g = g.add(w, alpha=group["weight_decay"])
        super()._update(w, g, {**group, "weight_decay": 0.0})


def decay_groups(model: nn.Module, *, weight_decay: int | float) -> list[dict[str, Any]]:
    """Split the parameters in two groups: matrices decay, gains and embeddings do not.

    Decay pulls towards zero.  A gain of a norm belongs near 1, and an embedding row that is seen
    rarely would be pulled to zero between its uses, so neither decays here.  A tied embedding is
    also the output head; it counts as an embedding.  (nanoGPT decays embeddings; the Llama papers
    do not say.)  A parameter that is frozen is in neither.

    Returns:
        Two groups for an optimizer, empty ones left out.
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # LoRA learns beside it
            continue
        is_matrix = parameter.ndim >= 2 and "embedding" not in name
        (decayed if is_matrix else free).append(parameter)
    groups = ((decayed, weight_decay), (free, 0.0))
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


@torch.no_grad()
def clip_by_global_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: int | float,
    *,
    sum_over_shards: Callable[[Tensor], Tensor] = lambda total: total,
) -> float:
    """Scale all gradients so that their joint norm is at most `max_norm`; return the norm before.

    norm = sqrt(sum over all gradients of g^2);  g = g * min(1, max_norm / norm)

    Squares of gradients in bf16 or fp16 are added in float32, those that are too large for it in
    float64.

    Args:
        parameters: tensors whose `.grad` is clipped in place, or a single one; those without one
            are passed over.
        max_norm: largest allowed norm, positive.
        sum_over_shards: adds the sum of squares over the ranks that hold other shards.

    Raises:
        ValueError: if max_norm is not positive.

    Source:
        Pascanu et al. 2013, algorithm 1, https://arxiv.org/abs/1211.5063
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, got {max_norm}")
    if isinstance(parameters, Tensor):  # its rows are no parameters: they have no `.grad`
        parameters = [parameters]
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    norms_P = torch.stack(
        [torch.linalg.vector_norm(g, dtype=at_least_float32(g.dtype)) for g in gradients]
    )
    norm = float(sum_over_shards(norms_P.square().sum()).sqrt())
    if math.isinf(norm):  # perhaps of the squares alone; all ranks see it
        norms_P = torch.stack([torch.linalg.vector_norm(g.cpu().double()) for g in gradients])
        norm = float(sum_over_shards(norms_P.square().sum()).sqrt())
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm
