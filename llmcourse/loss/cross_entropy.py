"""Cross-entropy: what the model is asked to minimise.

All losses are in nats per token unless a name says otherwise.  A loss is a sum over tokens divided
by one normaliser; when a batch is cut into micro-batches or spread over ranks, every part must use
the same, global, normaliser, or short parts weigh too much.

Shape suffixes:  B batch, T time (tokens), D width, V vocabulary, N rows (all tokens of a batch).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.base.pairs import differentiable, upcast

IGNORE_INDEX = -100
"""The target id that marks a position as not predicted (torch's and Hugging Face's convention)."""


def logsumexp_naive(logits_V: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """Return log(sum over v of exp(logit_v)) as the formula says it: overflows in float32 at 89."""
    return logits_V.exp().sum(-1).log()


def logsumexp(logits_V: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """Return log(sum over v of exp(logit_v)) without overflow.

    log sum exp(z) = m + log sum exp(z - m),  m = max z: the largest term of the sum is then 1.
    Of logits in bf16 or fp16 the sum is made in float32, and returned so.
    """
    wide_V = upcast(logits_V)
    max_N1 = wide_V.amax(-1, keepdim=True)
    return (wide_V - max_N1).exp().sum(-1).log() + max_N1.squeeze(-1)


class LogSumExpPart(NamedTuple):
    """What one slice of the vocabulary knows of log-sum-exp: its maximum, and the sum below it."""

    max_N: Float[Tensor, "*N"]
    sum_N: Float[Tensor, "*N"]  # sum of exp(logit - max) over the slice


def logsumexp_part(logits_v: Float[Tensor, "*N v"]) -> LogSumExpPart:
    """Return what a slice of the vocabulary contributes, at least in float32."""
    wide_v = upcast(logits_v)
    max_N = wide_v.amax(-1)
    return LogSumExpPart(max_N, (wide_v - max_N.unsqueeze(-1)).exp().sum(-1))


def merge_parts(one: LogSumExpPart, other: LogSumExpPart) -> LogSumExpPart:
    """Join two slices: rescale both sums to the larger maximum and add them.

    Associative and commutative up to rounding, so slices may live in different loops (chunks) or in
    different processes (vocabulary-parallel loss).
    """
    max_N = torch.maximum(one.max_N, other.max_N)
    sum_N = one.sum_N * (one.max_N - max_N).exp() + other.sum_N * (other.max_N - max_N).exp()
    return LogSumExpPart(max_N, sum_N)


class CrossEntropySaved(NamedTuple):
    """What `token_losses_backward` needs: the probabilities and the targets (-1 where masked)."""

    probabilities_NV: Float[Tensor, "N V"]
    targets_N: Int[Tensor, " N"]
    counted_N: Bool[Tensor, " N"]


def token_losses_forward(
    logits_NV: Float[Tensor, "N V"], targets_N: Int[Tensor, " N"], counted_N: Bool[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], CrossEntropySaved]:
    """Return -log softmax(logits)[target] of every row, 0 where the row is not counted."""
    max_N1 = logits_NV.amax(-1, keepdim=True)
    exp_NV = (logits_NV - max_N1).exp_()
    sum_N1 = exp_NV.sum(-1, keepdim=True)
    safe_N1 = targets_N.where(counted_N, 0).unsqueeze(-1)
    target_logit_N = (logits_NV.gather(-1, safe_N1) - max_N1).squeeze(-1)
    losses_N = sum_N1.squeeze(-1).log() - target_logit_N
    saved = CrossEntropySaved(exp_NV.div_(sum_N1), safe_N1.squeeze(-1), counted_N)
    return losses_N.where(counted_N, 0.0), saved


def token_losses_backward(
    dlosses_N: Float[Tensor, " N"], saved: CrossEntropySaved
) -> tuple[Float[Tensor, "N V"]]:
    """Gradient of `token_losses_forward`:  dlogits = (p - onehot(target)) * dloss.

    The whole backward pass of the loss is one subtraction: predicted minus wanted.
    """
    p_NV, targets_N, counted_N = saved
    scale_N1 = dlosses_N.where(counted_N, 0.0).unsqueeze(-1)
    dlogits_NV = p_NV * scale_N1
    dlogits_NV.scatter_add_(-1, targets_N.unsqueeze(-1), -scale_N1)
    return (dlogits_NV,)


_token_losses = differentiable(token_losses_forward, token_losses_backward)


def token_losses(
    logits_BTV: Float[Tensor, "*B V"],
    targets_BT: Int[Tensor, "*B"],
    *,
    mask_BT: Bool[Tensor, "*B"] | None = None,
    ignore_index: int = IGNORE_INDEX,
) -> Float[Tensor, "*B"]:
    """Return the loss of every token, in nats, 0 where it does not count.

    Logits in bf16 or fp16 are widened: the losses are float32.

    Args:
        logits_BTV: unnormalised log-probabilities of the next token.
        targets_BT: the tokens that came, ids in [0, V), or `ignore_index`.
        mask_BT: True where the token counts; None counts all that are not ignored.
        ignore_index: the target id that means "do not count".

    Raises:
        ValueError: if a counted target is outside the vocabulary.
    """
    counted_BT = counted_tokens(targets_BT, mask_BT=mask_BT, ignore_index=ignore_index)
    vocab_size = logits_BTV.shape[-1]
    logits_NV = upcast(logits_BTV).reshape(-1, vocab_size)
    try:
        losses_N = _token_losses(logits_NV, targets_BT.reshape(-1), counted_BT.reshape(-1))
    except (IndexError, RuntimeError):  # torch looks anyway, and waits for no device to do so
        outside_BT = counted_BT & ((targets_BT < 0) | (targets_BT >= vocab_size))
        if not outside_BT.any():
            raise
        raise ValueError(
            f"target {int(targets_BT[outside_BT][0])} is outside the vocabulary [0, {vocab_size}); "
            f"mark positions that do not count with {ignore_index} or with the mask"
        ) from None
    return losses_N.view(targets_BT.shape)


def counted_tokens(
    targets_BT: Int[Tensor, "*B"],
    *,
    mask_BT: Bool[Tensor, "*B"] | None = None,
    ignore_index: int = IGNORE_INDEX,
) -> Bool[Tensor, "*B"]:
    """Return which positions count towards the loss: not ignored, and True in the mask."""
    counted_BT = targets_BT != ignore_index
    return counted_BT if mask_BT is None else counted_BT & mask_BT


def cross_entropy(
    logits_BTV: Float[Tensor, "*B V"],
    targets_BT: Int[Tensor, "*B"],
    *,
    mask_BT: Bool[Tensor, "*B"] | None = None,
    ignore_index: int = IGNORE_INDEX,
    num_tokens: int | float | None = None,
) -> Float[Tensor, ""]:
    """Return the cross-entropy in nats per token.

    loss = (1 / num_tokens) * sum over counted tokens of -log softmax(logits)[target]

    num_tokens is the one global normaliser: the number of counted tokens of the whole batch, over
    all micro-batches and ranks.  None means that this call holds the whole batch.  The other
    arguments are those of `token_losses`.

    Raises:
        ValueError: if a target is outside the vocabulary, if no token counts and no normaliser is
            given, or if the normaliser is not positive.
    """
    if num_tokens is None:
        counted_BT = counted_tokens(targets_BT, mask_BT=mask_BT, ignore_index=ignore_index)
        num_tokens = int(counted_BT.sum())
        if num_tokens == 0:
            raise ValueError("no token counts: every target is ignored or masked")
    if num_tokens <= 0:
        raise ValueError(f"num_tokens must be positive, got {num_tokens}")
    losses_BT = token_losses(logits_BTV, targets_BT, mask_BT=mask_BT, ignore_index=ignore_index)
    return losses_BT.sum() / num_tokens
