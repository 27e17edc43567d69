"""The mixture of experts: what stands in a block where a dense model has its feed-forward network.

    route -> dispatch -> take -> experts -> combine

Shape suffixes:  B batch, T time, N tokens, D width, E experts.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from llmcourse.base.arguments import require
from llmcourse.model.config import check_chosen
from llmcourse.model.initial import initialise
from llmcourse.model.moe.experts import Experts, SharedExperts
from llmcourse.model.moe.routing import SCORINGS, Routing, Scoring, route
from llmcourse.model.moe.rows import combine, dispatch, take


class Router(nn.Module):
    """Chooses the experts of every token.

    Args:
        num_experts: E.
        width: D.
        experts_per_token: k.
        scoring: "softmax" as Mixtral, or "sigmoid" as DeepSeek-V3, with a bias that only chooses:
            the buffer `bias_E`, 0 at the start, for `update_bias`.
        generator: of the first weights; None leaves them uninitialised, for loading.
    """

    bias_E: Float[Tensor, " E"] | None

    def __init__(
        self,
        num_experts: int,
        width: int,
        experts_per_token: int,
        scoring: Scoring = "softmax",
        *,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.experts_per_token, self.scoring = experts_per_token, scoring
        self.w_router = nn.Parameter(torch.empty(num_experts, width))
        bias_E = torch.zeros(num_experts) if scoring == "sigmoid" else None
        self.register_buffer("bias_E", bias_E)
        if generator is not None:
            initialise(self, generator)

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Routing:
        """Return where every token goes."""
        return route(
            x_ND,
            self.w_router,
            experts_per_token=self.experts_per_token,
            scoring=self.scoring,
            bias_E=self.bias_E,
        )


class MixtureOfExperts(nn.Module):
    """Many feed-forward networks, of which each token uses k.

    In training mode an expert takes no more rows than its capacity; in eval mode none is dropped.

    Args:
        width: D.
        hidden: F, of one expert.
        num_experts: E.
        experts_per_token: k, from 1 to E.
        num_shared: experts that every token uses besides; 0 for none.
        scoring: see `route`.
        capacity_factor: see `capacity`; 0 is no limit.
        generator: of the first weights; None leaves them uninitialised, for loading.

    Raises:
        ValueError: if a number is outside its range.
    """

    def __init__(
        self,
        *,
        width: int,
        hidden: int,
        num_experts: int,
        experts_per_token: int,
        num_shared: int = 0,
        scoring: Scoring = "softmax",
        capacity_factor: int | float = 0.0,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        check_chosen(experts_per_token, num_experts)
        require("num_shared", num_shared, least=0, below=float("inf"))
        require("capacity_factor", capacity_factor, least=0, below=float("inf"))
        if scoring not in SCORINGS:
            raise ValueError(f"scoring must be one of {', '.join(SCORINGS)}, got {scoring!r}")
        self.num_experts, self.capacity_factor = num_experts, capacity_factor
        self.router = Router(num_experts, width, experts_per_token, scoring, generator=None)
        self.experts = Experts(num_experts, width, hidden, generator=None)
        self.shared = (
            SharedExperts(num_shared, width, hidden, generator=None) if num_shared else None
        )
        if generator is not None:
            initialise(self, generator)

    def forward(
        self, x_BTD: Float[Tensor, "*B D"], *, routings: list[Routing] | None = None
    ) -> Float[Tensor, "*B D"]:
        """Transform every token by the experts that its router chooses.

        Args:
            x_BTD: activations.
            routings: the router's choices are appended here, with their graph: for the balance
                loss, and to be looked at.
        """
        x_ND = x_BTD.reshape(-1, x_BTD.shape[-1])
        routing = self.router(x_ND)
        if routings is not None:
            routings.append(routing)
        factor = self.capacity_factor if self.training else 0.0
        plan = dispatch(routing.experts_NK, self.num_experts, capacity_factor=factor)
        rows_RD = self.experts(take(x_ND, plan), plan.counts_E)
        y_ND = combine(rows_RD, plan, routing.weights_NK)
        if self.shared is not None:
            y_ND = y_ND + self.shared(x_ND)
        return y_ND.view(x_BTD.shape)
