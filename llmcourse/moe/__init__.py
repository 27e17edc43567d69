"""Mixture of experts: router, rows, experts, balance, the layer, and its counts.

Taught in: chapters/14_mixture_of_experts.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.moe.balance import (
        BalanceSaved,
        balance_loss,
        balance_loss_backward,
        balance_loss_forward,
        update_bias,
    )
    from llmcourse.moe.counts import (
        Counts,
        DeepSeekShape,
        deepseek_parameters,
        latent_attention_parameters,
        mixture_parameters,
        total_of,
    )
    from llmcourse.moe.experts import (
        Experts,
        GroupedSaved,
        SharedExperts,
        grouped_swiglu,
        grouped_swiglu_backward,
        grouped_swiglu_forward,
    )
    from llmcourse.moe.layer import MixtureOfExperts, Router
    from llmcourse.moe.routing import (
        Routing,
        Scoring,
        chosen_weights,
        chosen_weights_backward,
        chosen_weights_forward,
        route,
        sigmoid_backward,
        sigmoid_forward,
        softmax_backward,
        softmax_forward,
        top_experts,
    )
    from llmcourse.moe.rows import (
        DROPPED,
        Plan,
        capacity,
        combine,
        combine_backward,
        combine_forward,
        count_choices,
        dispatch,
        take,
        take_backward,
        take_forward,
    )

__all__ = [
    "DROPPED",
    "BalanceSaved",
    "Counts",
    "DeepSeekShape",
    "Experts",
    "GroupedSaved",
    "MixtureOfExperts",
    "Plan",
    "Router",
    "Routing",
    "Scoring",
    "SharedExperts",
    "balance_loss",
    "balance_loss_backward",
    "balance_loss_forward",
    "capacity",
    "chosen_weights",
    "chosen_weights_backward",
    "chosen_weights_forward",
    "combine",
    "combine_backward",
    "combine_forward",
    "count_choices",
    "deepseek_parameters",
    "dispatch",
    "grouped_swiglu",
    "grouped_swiglu_backward",
    "grouped_swiglu_forward",
    "latent_attention_parameters",
    "mixture_parameters",
    "route",
    "sigmoid_backward",
    "sigmoid_forward",
    "softmax_backward",
    "softmax_forward",
    "take",
    "take_backward",
    "take_forward",
    "top_experts",
    "total_of",
    "update_bias",
]

lazy(__name__)
