"""Cross-entropy of logits of which every rank has some vocabulary entries.

The logits are the largest activations of a step, and they stay where they are: three numbers per
token travel, its largest logit, its sum of exponentials and the logit of its target.

Shape suffixes:  B batch, T time, N rows (all tokens of a batch), v this rank's vocabulary entries.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.base.pairs import differentiable, upcast
from llmcourse.loss import IGNORE_INDEX, counted_tokens
from llmcourse.parallel.tensor_parallel.layers import own_rows
from llmcourse.parallel.tensor_parallel.nodes import all_reduce_max, reduce_from_tp
from llmcourse.parallel.world import Axis


class VocabularyParallelSaved(NamedTuple):
    """What the backward pass needs: this rank's probabilities, and the targets among them."""

    probabilities_Nv: Float[Tensor, "N v"]
    rows_N: Int[Tensor, " N"]
    mine_N: Bool[Tensor, " N"]
    counted_N: Bool[Tensor, " N"]


def token_losses_forward(
    logits_Nv: Float[Tensor, "N v"],
    targets_N: Int[Tensor, " N"],
    counted_N: Bool[Tensor, " N"],
    axis: Axis,
) -> tuple[Float[Tensor, " N"], VocabularyParallelSaved]:
    """Return log(sum of exp(logit - m)) - (target's logit - m) of every row, 0 where not counted.

    m is the largest logit over all ranks.  The sum is a sum over all ranks, and so is the target's
    logit: all ranks but one add 0 to it.
    """
    max_N = all_reduce_max(logits_Nv.amax(-1), axis)
    shifted_Nv = logits_Nv - max_N.unsqueeze(-1)
    rows_N, mine_N = own_rows(targets_N, logits_Nv.shape[-1], axis)
    target_N = shifted_Nv.gather(-1, rows_N.unsqueeze(-1)).squeeze(-1).where(mine_N, 0.0)
    exp_Nv = shifted_Nv.exp_()
    both_2N = torch.stack([exp_Nv.sum(-1), target_N])
    sum_N, target_N = reduce_from_tp(both_2N, axis, "all_reduce_sum_and_target")
    losses_N = (sum_N.log() - target_N).where(counted_N, 0.0)
    probabilities_Nv = exp_Nv.div_(sum_N.unsqueeze(-1))
    return losses_N, VocabularyParallelSaved(probabilities_Nv, rows_N, mine_N, counted_N)


def token_losses_backward(
    dlosses_N: Float[Tensor, " N"], saved: VocabularyParallelSaved
) -> tuple[Float[Tensor, "N v"]]:
    """Gradient of `token_losses_forward`:  dlogits = (p - onehot(target)) * dloss.

    Nothing is communicated: a rank has its own probabilities, and knows which targets are its own.
    """
    p_Nv, rows_N, mine_N, counted_N = saved
    scale_N = dlosses_N.where(counted_N, 0.0)
    dlogits_Nv = p_Nv * scale_N.unsqueeze(-1)
    at_target_N1 = -scale_N.where(mine_N, 0.0).unsqueeze(-1)
    return (dlogits_Nv.scatter_add_(-1, rows_N.unsqueeze(-1), at_target_N1),)


_token_losses = differentiable(token_losses_forward, token_losses_backward)


def token_losses(
    logits_BTv: Float[Tensor, "*B v"], targets_BT: Int[Tensor, "*B"], axis: Axis
) -> Float[Tensor, "*B"]:
    """Return the loss of every token, in nats, on every rank; 0 where the target is ignored.

    Logits in bf16 or fp16 are widened: the losses are float32.

    Args:
        logits_BTv: this rank's entries of the vocabulary, which follow those of the rank before.
        targets_BT: the tokens that came, ids in the whole vocabulary, or IGNORE_INDEX; the same on
            every rank.
        axis: the ranks.

    Raises:
        ValueError: if a counted target is outside the vocabulary.

    Source:
        Shoeybi et al. 2019, section 3 (output embedding), https://arxiv.org/abs/1909.08053
    """
    counted_BT = counted_tokens(targets_BT)
    vocab_size = logits_BTv.shape[-1] * axis.size
    outside_BT = counted_BT & ((targets_BT < 0) | (targets_BT >= vocab_size))
    if outside_BT.any():
        raise ValueError(
            f"target {int(targets_BT[outside_BT][0])} is outside the vocabulary [0, {vocab_size}); "
            f"mark positions that do not count with {IGNORE_INDEX}"
        )
    logits_Nv = upcast(logits_BTv).reshape(-1, logits_BTv.shape[-1])
    losses_N = _token_losses(logits_Nv, targets_BT.reshape(-1), counted_BT.reshape(-1), axis)
    return losses_N.view(targets_BT.shape)


def cross_entropy(
    logits_BTv: Float[Tensor, "*B v"],
    targets_BT: Int[Tensor, "*B"],
    axis: Axis,
    *,
    num_tokens: int | float | None = None,
) -> Float[Tensor, ""]:
    """Return the cross-entropy in nats per token, the same on every rank.

    Args:
        logits_BTv: this rank's entries of the vocabulary.
        targets_BT: see `token_losses`.
        axis: the ranks.
        num_tokens: the one normaliser: the number of counted tokens of the whole batch, over all
            micro-batches and data-parallel ranks; None means that this call holds the whole batch.

    Raises:
        ValueError: if a target is outside the vocabulary, or the normaliser is not positive.
    """
    if num_tokens is None:
        num_tokens = int(counted_tokens(targets_BT).sum())
    require("num_tokens", num_tokens, above=0)
    return token_losses(logits_BTv, targets_BT, axis).sum() / num_tokens
