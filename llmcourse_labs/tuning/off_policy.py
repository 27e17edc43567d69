"""Who drew the tokens is not quite who learns from them: two repairs of the ratio.

    pi_new / pi_sampler  =  pi_new / pi_old  *  pi_old / pi_sampler

The first factor is that of the updates since the rollout.  The second one is there even before the
first update if another program draws than the one that learns: other kernels, fewer bits, or
weights that are a few steps old.

Shape suffixes:  B batch (answers), T time (tokens).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.base.arguments import require


def answer_log_ratios(
    new_BT: Float[Tensor, "B T"], old_BT: Float[Tensor, "B T"], is_answer_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return ln of one ratio for a whole answer, at each of its tokens; 0 elsewhere.

    Formula::

        ln s(y) = (1 / |y|) * sum over t of (log pi_new(y_t) - log pi_old(y_t))

    `clipped_objective(ln s, 0, A, clip=...)` with the mean over answers is GSPO's objective: an
    answer is clipped as a whole or not at all.  s is the geometric mean of the ratios of the
    tokens, so it stays near 1, and its clip is far smaller, 3e-4 below and 4e-4 above in the paper.

    Args:
        new_BT: log-probabilities of the policy that learns.
        old_BT: of the policy that drew the tokens; no gradient goes there.
        is_answer_BT: which tokens count; at least one in each row.

    Raises:
        ValueError: if an answer has no token.

    Source:
        Zheng et al. 2025 (GSPO), https://arxiv.org/abs/2507.18071
    """
    lengths_B1 = is_answer_BT.sum(1, keepdim=True)
    require("the shortest answer in tokens", int(lengths_B1.min()), least=1)
    moved_BT = (new_BT - old_BT.detach()).where(is_answer_BT, 0.0)
    return (moved_BT.sum(1, keepdim=True) / lengths_B1).where(is_answer_BT, 0.0)


@torch.no_grad()
def truncated_weights(
    learner_BT: Float[Tensor, "*B"], sampler_BT: Float[Tensor, "*B"], *, cap: int | float = 2.0
) -> Float[Tensor, "*B"]:
    """Return what the objective of every token is multiplied by if another program drew it.

    Formula::

        w = min(pi_learner / pi_sampler, cap)

    Both with the same weights, before the update; no gradient goes through w.  Without a cap, the
    mean over what the sampler draws is that over what the learner would draw.  A token that the
    sampler finds very unlikely may get a huge weight, so there is a cap, which leaves some bias and
    bounds the variance.

    Args:
        learner_BT: log-probabilities of the tokens, by the program that learns.
        sampler_BT: of the same tokens, by the program that drew them.
        cap: above 0; 2 in `trl`.

    Raises:
        ValueError: if `cap` is not above 0.

    Source:
        Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
        https://fengyao.notion.site/off-policy-rl
    """
    require("cap", cap, above=0)
    return (learner_BT - sampler_BT).exp().clamp(max=cap)
