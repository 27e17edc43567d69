"""Mixture of experts: router, rows, experts, balance, the layer, and its counts.

Taught in: chapters/14_mixture_of_experts.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.model.moe.balance import (
        BalanceSaved,
        balance_loss,
        balance_loss_backward,
        balance_loss_forward,
        update_bias,
    )
    from llmcourse.model.moe.experts import (
        Experts,
        GroupedSaved,
        SharedExperts,
        grouped_swiglu,
        grouped_swiglu_backward,
        grouped_swiglu_forward,
    )
    from llmcourse.model.moe.layer import MixtureOfExperts, Router
    from llmcourse.model.moe.routing import (
        Routing,
        Scoring,
        chosen_weights,
        chosen_weights_backward,
        chosen_weights_forward,
        route,
        softmax_backward,
        softmax_forward,
        top_experts,
    )
    from llmcourse.model.moe.rows import (
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

lazy(__name__)
