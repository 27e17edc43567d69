"""What a reward has to say about every token: advantages, the clipped objective, KL estimators.

Everything here is arithmetic on log-probabilities and rewards that somebody else has computed.  The
policy pi writes answers y to a prompt, each gets a reward r, and

    gradient of E[r]  =  E[ A(y) times the gradient of log pi(y) ],

where the advantage A is the reward minus anything that does not depend on what was drawn.

Shape suffixes:  B batch (answers), T time (tokens), P prompts, G answers of one prompt (a group),
D width.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from llmcourse.base.arguments import require, require_each

ROUNDING = 1e-6
"""Rewards that differ by less, compared with the largest of their group, are equal."""


class GroupAdvantages(NamedTuple):
    """How much better than its group each answer is."""

    values_PG: Float[Tensor, "P G"]
    """0 for all answers of a group whose rewards are equal but for rounding."""
    num_equal: int
    """Groups whose rewards are all equal: nothing is learnt from them."""


def group_advantages(
    rewards_PG: Float[Tensor, "P G"], *, divide: bool = True, correction: int = 0
) -> GroupAdvantages:
    """Compare every answer with the others to its prompt.

    Formula::

        A = (r - mean of the group) / standard deviation of the group      (GRPO)
        A =  r - mean of the group                                         (divide=False)

    If a share p of the answers is right (1 or 0), the division weights the prompt's gradient by
    1 / sqrt(p (1 - p)): hard and easy prompts get more weight than the expected reward gives them.
    Without it, the mean holds the answer's own reward, which makes A smaller by (G - 1) / G on
    average and changes no direction.

    Args:
        rewards_PG: finite; at least two answers to each prompt.
        divide: by the standard deviation.
        correction: 0 for the deviation of the group as it is, over G; 1 for that over G - 1, as
            `torch.std` has it, and so `trl` and `verl`.

    Raises:
        ValueError: if a group has a single answer, or a reward is not finite.

    Source:
        Shao et al. 2024, section 4.1, https://arxiv.org/abs/2402.03300; without the division: Liu
        et al. 2025, section 3.2, https://arxiv.org/abs/2503.20783
    """
    require("answers of a group", rewards_PG.shape[1], least=2)
    require("correction", correction, least=0, most=1)
    if not rewards_PG.isfinite().all():
        raise ValueError(
            f"rewards must be finite, got {rewards_PG.tolist()}: no mean can be taken of them"
        )
    equal_P1 = is_equal(rewards_PG)
    # A rounding, of the mean or of the rewards, would be blown up by the division.
    values_PG = (rewards_PG - rewards_PG.mean(1, keepdim=True)).masked_fill(equal_P1, 0.0)
    if divide:
        spread_P1 = rewards_PG.std(1, keepdim=True, correction=correction).masked_fill(
            equal_P1, 1.0
        )
        values_PG = values_PG / spread_P1
    return GroupAdvantages(values_PG, int(equal_P1.sum()))


def num_equal_groups(rewards_PG: Float[Tensor, "P G"]) -> int:
    """Return the number of groups whose rewards are all equal."""
    return int(is_equal(rewards_PG).sum())


def is_equal(rewards_PG: Float[Tensor, "P G"]) -> Bool[Tensor, "P 1"]:
    """Say of every group whether its rewards are all equal, up to a millionth of the largest."""
    spread_P1 = rewards_PG.amax(1, keepdim=True) - rewards_PG.amin(1, keepdim=True)
    return spread_P1 <= ROUNDING * rewards_PG.abs().amax(1, keepdim=True)


def mean_over_answers(
    values_BT: Float[Tensor, "B T"], is_answer_BT: Bool[Tensor, "B T"], *, tokens: int | None = None
) -> Float[Tensor, ""]:
    """Return the mean over answers of what their tokens sum to, divided by a number of tokens.

    Divided by its own length (GRPO), a long answer counts as much as a short one, so each of its
    tokens counts less: a wrong answer is punished less for every token that it is longer.  Divided
    by one number for all ("Dr. GRPO"), and with advantages that are not divided by their spread,
    the gradient is that of the expected reward, up to a factor.

    Args:
        values_BT: of every token.
        is_answer_BT: which count; at least one in each row.
        tokens: divides the sum of every answer, 1 or more; None takes its own length.

    Raises:
        ValueError: if an answer has no token, or `tokens` is below 1.

    Source:
        Liu et al. 2025, section 3, https://arxiv.org/abs/2503.20783
    """
    require_each({"tokens": tokens}, least=1)
    lengths_B = is_answer_BT.sum(1)
    require("the shortest answer in tokens", int(lengths_B.min()), least=1)
    sums_B = values_BT.where(is_answer_BT, 0.0).sum(1)
    return (sums_B / (lengths_B if tokens is None else tokens)).mean()


def mean_over_tokens(
    values_BT: Float[Tensor, "B T"], is_answer_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the sum over all tokens of all answers, divided by their number.

    Every token counts alike, in a long answer, too, so a wrong answer is blamed for each of its
    tokens.  The divisor changes from batch to batch: one long answer makes all tokens count less.

    Args:
        values_BT: of every token.
        is_answer_BT: which count; at least one.

    Raises:
        ValueError: if there is no token.

    Source:
        Yu et al. 2025 (DAPO), https://arxiv.org/abs/2503.14476, whose formula divides within each
        group; over the whole batch, as here, in `trl` and `verl`
    """
    tokens = int(is_answer_BT.sum())
    require("the tokens of all answers", tokens, least=1)
    return values_BT.where(is_answer_BT, 0.0).sum() / tokens


def clipped_objective(
    new_BT: Float[Tensor, "*B"],
    old_BT: Float[Tensor, "*B"],
    advantages_BT: Float[Tensor, "*B"],
    *,
    clip: int | float,
    clip_high: int | float | None = None,
) -> Float[Tensor, "*B"]:
    """Return PPO's objective of every token, to be made large.

    Formula::

        ratio = exp(log pi_new - log pi_old)
        min(ratio A,  clamp(ratio, 1 - clip, 1 + clip_high) A)

    At ratio 1 its gradient is A times that of log pi: plain policy gradient.  A token whose ratio
    has left the range in the direction that A asked for has no gradient any more.  With equal
    clips a rare token may gain less than a frequent one, 1.2 times its probability at most; a
    higher one above ("clip-higher") lets rare tokens grow, and entropy last.

    Args:
        new_BT: log-probabilities of the policy that learns.
        old_BT: of the policy that drew the tokens; no gradient goes there.
        advantages_BT: of every token.
        clip: above 0.
        clip_high: the same above 1; None is `clip`.

    Raises:
        ValueError: if a clip is not above 0.

    Source:
        Schulman et al. 2017, equation 7, https://arxiv.org/abs/1707.06347; two clips: Yu et al.
        2025 (DAPO), https://arxiv.org/abs/2503.14476
    """
    clip_high = clip if clip_high is None else clip_high
    require_each({"clip": clip, "clip_high": clip_high}, above=0)
    log_ratio_BT = (new_BT - old_BT.detach()).where(advantages_BT != 0, 0.0)
    # Beyond the range a ratio has no part in the minimum, but one of inf would in its gradient.
    unused_from = math.log1p(clip_high) + 1
    log_ratio_BT = log_ratio_BT.where(advantages_BT < 0, log_ratio_BT.clamp(max=unused_from))
    ratio_BT = log_ratio_BT.exp()
    held_BT = ratio_BT.clamp(1 - clip, 1 + clip_high)
    return torch.minimum(ratio_BT * advantages_BT, held_BT * advantages_BT)


def gae(
    rewards_BT: Float[Tensor, "B T"],
    values_BT: Float[Tensor, "B T"],
    is_answer_BT: Bool[Tensor, "B T"],
    *,
    gamma: int | float = 1.0,
    decay: int | float = 0.95,
) -> Float[Tensor, "B T"]:
    """Return the generalised advantage of every token of an answer; 0 elsewhere.

    Formula::

        delta(t) = r(t) + gamma V(t + 1) - V(t)
        A(t)     = delta(t) + gamma decay A(t + 1)

    After the last token of an answer both V and A are 0.  With decay 0 the value head is believed
    after one step; with decay 1 it only sets the level, and A is what came minus V.

    Args:
        rewards_BT: what each token earned, most often 0 but for the last of an answer.
        values_BT: what is still expected where the token is chosen.
        is_answer_BT: the tokens of the answers, side by side in each row.
        gamma: discount of what comes a token later, 0 to 1.
        decay: the lambda of the source, 0 to 1.

    Raises:
        ValueError: if gamma or decay is outside its range.

    Source:
        Schulman et al. 2016, equation 16, https://arxiv.org/abs/1506.02438
    """
    require_each({"gamma": gamma, "decay": decay}, least=0, most=1)
    values_BT = values_BT.where(is_answer_BT, 0.0)
    advantages_BT = torch.zeros_like(values_BT)
    next_value_B = next_advantage_B = torch.zeros_like(values_BT[:, 0])
    for t in reversed(range(values_BT.shape[1])):
        delta_B = rewards_BT[:, t] + gamma * next_value_B - values_BT[:, t]
        here_B = delta_B + gamma * decay * next_advantage_B
        advantages_BT[:, t] = here_B.where(is_answer_BT[:, t], 0.0)
        next_value_B, next_advantage_B = values_BT[:, t], advantages_BT[:, t]
    return advantages_BT


class ValueHead(nn.Module):
    """Says from a hidden state what reward is still to be expected; 0 before it has learnt.

    Args:
        width: channels of the hidden state.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w_D = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, hidden_BTD: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
        """Return one number for every hidden state."""
        return hidden_BTD @ self.w_D + self.bias


def k1(policy_BT: Float[Tensor, "*B"], reference_BT: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return log pi - log ref of tokens drawn from pi: its mean is KL(pi || ref); may be negative.

    Summed over an answer and put into its reward, where it has no gradient, the policy gradient is
    that of KL(pi || ref).  As a term of a loss its gradient has mean 0.

    Source:
        Schulman 2020, "Approximating KL divergence", http://joschu.net/blog/kl-approx.html, for the
        values of `k1`, `k2` and `k3`; for the gradients Tang and Munos 2025,
        https://arxiv.org/abs/2506.09477
    """
    return policy_BT - reference_BT


def k2(policy_BT: Float[Tensor, "*B"], reference_BT: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return half the square of `k1`: never negative; its mean is near the KL where that is small.

    Its mean is another divergence.  As a term of a loss, of whole answers, the mean of its gradient
    is that of KL(pi || ref); summed over tokens it lacks what a token does for those after it.
    """
    return (policy_BT - reference_BT).square() / 2


def k3(policy_BT: Float[Tensor, "*B"], reference_BT: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return ref / pi - 1 - log(ref / pi): never negative, and its mean is the KL.

    Where pi is far from ref, the ratio may be huge, and the variance larger than that of `k1`.  As
    a term of a loss the mean of its gradient is that of KL(ref || pi), the other direction; in the
    reward it is the gradient of KL(pi || ref) less that of KL(ref || pi).
    """
    log_ratio_BT = reference_BT - policy_BT
    return log_ratio_BT.expm1() - log_ratio_BT
