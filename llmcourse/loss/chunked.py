"""Cross-entropy of a wide vocabulary, a chunk at a time in both directions.

Shape suffixes:  N rows (all tokens of a batch), D width, V vocabulary, v one chunk of it.
"""

import functools
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.loss.cross_entropy import counted_tokens, logsumexp_part, merge_parts


@torch.no_grad()
def cross_entropy_chunked(
    x_ND: Float[Tensor, "N D"],
    w_VD: Float[Tensor, "V D"],
    targets_N: Int[Tensor, " N"],
    *,
    num_chunks: int,
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of logits = x w^T without ever holding all logits.

    The forward pass alone; see `chunked_forward`.

    Raises:
        ValueError: if `num_chunks` is not between 1 and the vocabulary size.
    """
    return chunked_forward(x_ND, w_VD, targets_N, num_chunks=num_chunks)[0]


class ChunkedSaved(NamedTuple):
    """What `chunked_backward` needs: inputs, and one log-sum-exp for each row."""

    x_ND: Float[Tensor, "N D"]
    w_VD: Float[Tensor, "V D"]
    targets_N: Int[Tensor, " N"]
    counted_N: Bool[Tensor, " N"]
    logsumexp_N: Float[Tensor, " N"]
    num_chunks: int
    num_tokens: int | float


def chunked_forward(
    x_ND: Float[Tensor, "N D"],
    w_VD: Float[Tensor, "V D"],
    targets_N: Int[Tensor, " N"],
    *,
    num_chunks: int,
    num_tokens: int | float | None = None,
) -> tuple[Float[Tensor, ""], ChunkedSaved]:
    """Return the cross-entropy of logits = x w^T, a chunk of the vocabulary at a time.

    All logits are never held: memory for them falls by the factor `num_chunks`.

    Args:
        x_ND: what the head reads.
        w_VD: the head.
        targets_N: the tokens that came, `IGNORE_INDEX` where none is asked for.
        num_chunks: parts of the vocabulary, 1 to V.
        num_tokens: the one global normaliser; None means that this call holds the whole batch.

    Raises:
        ValueError: if `num_chunks` is outside its range, or no token counts.
    """
    if not 1 <= num_chunks <= len(w_VD):
        raise ValueError(f"num_chunks must be from 1 to {len(w_VD)}, got {num_chunks}")
    counted_N = counted_tokens(targets_N)
    num_tokens = int(counted_N.sum()) if num_tokens is None else num_tokens
    if num_tokens <= 0:
        raise ValueError(f"num_tokens must be positive, got {num_tokens}: every target is ignored")
    parts = [logsumexp_part(x_ND @ w_vD.T) for w_vD in w_VD.chunk(num_chunks)]
    total = functools.reduce(merge_parts, parts)
    logsumexp_N = total.max_N + total.sum_N.log()
    target_logits_N = (x_ND * w_VD[targets_N.where(counted_N, 0)]).sum(-1)
    losses_N = (logsumexp_N - target_logits_N).where(counted_N, 0.0)
    saved = ChunkedSaved(x_ND, w_VD, targets_N, counted_N, logsumexp_N, num_chunks, num_tokens)
    return losses_N.sum() / num_tokens, saved


def chunked_backward(
    dloss: Float[Tensor, ""], saved: ChunkedSaved
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "V D"]]:
    """Gradients of `chunked_forward` for what the head reads, and for the head.

    Each chunk of probabilities is computed anew from the log-sum-exp: p = exp(x w^T - lse).  Then
    dlogits = (p - onehot(target)) dloss / num_tokens,  dx += dlogits w,  dw = dlogits^T x.
    """
    x_ND, w_VD = saved.x_ND, saved.w_VD
    scale_N1 = (dloss / saved.num_tokens * saved.counted_N).unsqueeze(-1).to(x_ND.dtype)
    dx_ND, dw_chunks, first = torch.zeros_like(x_ND), [], 0
    for w_vD in w_VD.chunk(saved.num_chunks):
        dlogits_Nv = (x_ND @ w_vD.T - saved.logsumexp_N.unsqueeze(-1)).exp() * scale_N1
        here_N = saved.targets_N - first
        inside_N = saved.counted_N & (here_N >= 0) & (here_N < len(w_vD))
        rows = inside_N.nonzero().squeeze(-1)
        dlogits_Nv[rows, here_N[rows]] -= scale_N1[rows, 0]
        dx_ND += dlogits_Nv @ w_vD
        dw_chunks.append(dlogits_Nv.T @ x_ND)
        first += len(w_vD)
    return dx_ND, torch.cat(dw_chunks)
