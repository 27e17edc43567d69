"""What each position is asked to predict, and which positions are asked at all.

A target that is `IGNORE_INDEX` is not asked.  A loss is the sum over the asked positions of the
whole batch, divided by their number: the one normaliser, over all micro-batches and ranks.

Shape suffixes:  B batch, T time (tokens), V vocabulary.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.loss.cross_entropy import IGNORE_INDEX, counted_tokens, cross_entropy, logsumexp


def shifted_targets(
    ids_BT: Int[Tensor, "*B T"],
    *,
    documents_BT: Int[Tensor, "*B T"] | None = None,
    learned_BT: Bool[Tensor, "*B T"] | None = None,
    ahead: int = 1,
) -> Int[Tensor, "*B T"]:
    """Return the token that each position is asked for: the one that comes after it.

    targets[t] = ids[t + ahead], or IGNORE_INDEX where there is none to learn: at the last
    positions, where that token belongs to another document or is padding, and where it is not
    learned.

    Args:
        ids_BT: the tokens that the model reads.
        documents_BT: the document of each token, below 0 for padding; None is one document a row.
        learned_BT: True for the tokens that the model should learn to write, such as an answer;
            None is all.  It marks tokens, and so acts earlier, where they are asked.
        ahead: how many tokens later the one asked for comes, see `multi_token_loss`.

    Raises:
        ValueError: if `ahead` is below 1.
    """
    if ahead < 1:
        raise ValueError(f"ahead must be 1 or greater, got {ahead}")
    targets_BT = torch.full_like(ids_BT, IGNORE_INDEX)
    targets_BT[..., :-ahead] = ids_BT[..., ahead:]
    if documents_BT is not None:
        continues = documents_BT[..., ahead:] == documents_BT[..., :-ahead]
        real = documents_BT[..., ahead:] >= 0
        targets_BT[..., :-ahead].masked_fill_(~(continues & real), IGNORE_INDEX)
    if learned_BT is not None:
        targets_BT[..., :-ahead].masked_fill_(~learned_BT[..., ahead:], IGNORE_INDEX)
    return targets_BT


def mask_from_roles(
    roles: Sequence[str], *, learned: Collection[str] = ("assistant",)
) -> Bool[Tensor, " T"]:
    """Return which tokens the model should learn to write, from who wrote each.

    Args:
        roles: of every token, such as "user", "assistant", "template".
        learned: the roles whose tokens are learned.

    Raises:
        ValueError: if no token has a learned role, since nothing could be learned then.
    """
    mask_T = torch.tensor([role in learned for role in roles], dtype=torch.bool)
    if not mask_T.any():
        raise ValueError(
            f"no token is learned: the roles are {sorted(set(roles))}, learned are {list(learned)}"
        )
    return mask_T


def count_targets(
    targets: Iterable[Int[Tensor, "..."]],
    *,
    sum_over_ranks: Callable[[Tensor], object] | None = None,
) -> int:
    """Return the number of asked positions of a whole step: the one normaliser of its loss.

    Args:
        targets: of every micro-batch of this rank.
        sum_over_ranks: adds a tensor over all ranks in place, as `torch.distributed.all_reduce`
            does; None where there is one rank.

    Raises:
        ValueError: if no position is asked on any rank.
    """
    counts = [(each != IGNORE_INDEX).sum() for each in targets]
    total = torch.stack(counts).sum() if counts else torch.tensor(0)
    if sum_over_ranks is not None:
        sum_over_ranks(total)
    if total == 0:
        raise ValueError("no token counts: every target of the step is ignored")
    return int(total)


def multi_token_loss(
    logits_by_depth: Sequence[Float[Tensor, "*B T V"]],
    ids_BT: Int[Tensor, "*B T"],
    *,
    weight: float,
    documents_BT: Int[Tensor, "*B T"] | None = None,
    learned_BT: Bool[Tensor, "*B T"] | None = None,
    num_tokens: int | float | None = None,
) -> Float[Tensor, ""]:
    """Return the loss of a model that is asked for several tokens at every position.

    loss = L_1 + weight / D * (L_2 + ... + L_(D + 1)),  L_k that of the k-th token ahead

    All L_k have the same divisor, so each asked token of a depth weighs the same, and a depth that
    is asked less often, since documents end, counts less.

    Args:
        logits_by_depth: D + 1 of them, those of the next token first.
        ids_BT: the tokens that the model reads.
        weight: of the mean over the D further depths (lambda), above 0; with D, all depths count
            alike.
        documents_BT: see `shifted_targets`.
        learned_BT: see `shifted_targets`.
        num_tokens: the one global normaliser, see `cross_entropy`: the positions of the whole batch
            that are asked for their next token; None means that this call holds all of it.

    Raises:
        ValueError: if there is no further depth, the weight is not positive, or no token counts.

    Source:
        DeepSeek-AI 2024 (DeepSeek-V3), equations 24 and 25, https://arxiv.org/abs/2412.19437; all
        depths alike: Gloeckle et al. 2024, section 2, https://arxiv.org/abs/2404.19737
    """
    if len(logits_by_depth) < 2:
        raise ValueError("there are no logits beyond the next token: use cross_entropy")
    if weight <= 0:
        raise ValueError(f"weight must be above 0, got {weight}; use cross_entropy for 0")
    targets = [
        shifted_targets(ids_BT, documents_BT=documents_BT, learned_BT=learned_BT, ahead=k)
        for k in range(1, len(logits_by_depth) + 1)
    ]
    if num_tokens is None:
        num_tokens = count_targets(targets[:1])
    next_one, *further = (
        cross_entropy(logits_BTV, targets_BT, num_tokens=num_tokens)
        for logits_BTV, targets_BT in zip(logits_by_depth, targets, strict=True)
    )
    return next_one + weight * sum(further) / len(further)


def z_loss(
    logits_BTV: Float[Tensor, "*B V"],
    targets_BT: Int[Tensor, "*B"],
    *,
    coefficient: float = 1e-4,
    num_tokens: int | float | None = None,
) -> Float[Tensor, ""]:
    """Return the penalty that keeps the softmax's normaliser near 1.

    z_loss = coefficient / num_tokens * sum over asked positions of (log Z)^2,  Z = sum exp(logits).

    Cross-entropy is blind to a number added to all logits of a position; this is not, and pulls
    log Z to 0.  Its gradient for a logit is 2 coefficient log Z p / num_tokens.

    Args:
        logits_BTV: unnormalised log-probabilities.
        targets_BT: `IGNORE_INDEX` where a position does not count.
        coefficient: weight of the penalty, above 0.
        num_tokens: the one global normaliser, see `cross_entropy`; None means that this call holds
            the whole batch.

    Raises:
        ValueError: if the coefficient is not positive, or no token counts.

    Source:
        Chowdhery et al. 2022 (PaLM), section 5, https://arxiv.org/abs/2204.02311
    """
    if coefficient <= 0:
        raise ValueError(f"coefficient must be above 0, got {coefficient}; leave z_loss out for 0")
    if num_tokens is None:
        num_tokens = count_targets([targets_BT])
    if num_tokens <= 0:
        raise ValueError(f"num_tokens must be positive, got {num_tokens}")
    squares_BT = logsumexp(logits_BTV).square()
    return coefficient * squares_BT.where(counted_tokens(targets_BT), 0.0).sum() / num_tokens
