"""Distillation: a student learns from all probabilities of a teacher, not from one token.

With temperature T both are softened,  p = softmax(z_teacher / T),  q = softmax(z_student / T), and

    loss = T^2 KL(p || q) = T^2 sum over v of p_v (log p_v - log q_v)

    dloss / dz_student = T (q - p)

A temperature of T makes the difference q - p smaller by about T, and the derivative of z / T makes
it smaller by T once more.  T^2 undoes both, so that the gradient keeps its size when T changes, and
soft and hard targets can be mixed.  For T to infinity it is (z_student - z_teacher) / V, each
centred around its mean: the student copies logits.

Source: Hinton, Vinyals and Dean 2015, "Distilling the knowledge in a neural network", section 2.

Shape suffixes:  B batch, T time (tokens), V vocabulary, N rows (all tokens of a batch).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.base.pairs import differentiable, upcast
from llmcourse.loss.cross_entropy import IGNORE_INDEX, counted_tokens, cross_entropy


class SoftLossesSaved(NamedTuple):
    """What `soft_losses_backward` needs."""

    slope_NV: Float[Tensor, "N V"]
    """T times the student's minus the teacher's probabilities, 0 in rows that do not count."""


def soft_losses_forward(
    student_NV: Float[Tensor, "N V"],
    teacher_NV: Float[Tensor, "N V"],
    counted_N: Bool[Tensor, " N"],
    temperature: float,
) -> tuple[Float[Tensor, " N"], SoftLossesSaved]:
    """Return T^2 KL(teacher || student) of every row, 0 where the row is not counted."""
    log_q_NV = (student_NV / temperature).log_softmax(-1)
    log_p_NV = (teacher_NV / temperature).log_softmax(-1)
    p_NV = log_p_NV.exp()
    # Where the teacher excludes a token, p is 0 and its logarithm is not finite: it adds nothing.
    terms_NV = torch.where(p_NV > 0, p_NV * (log_p_NV - log_q_NV), 0.0)
    losses_N = temperature**2 * terms_NV.sum(-1)
    slope_NV = (temperature * (log_q_NV.exp() - p_NV)).where(counted_N[:, None], 0.0)
    return losses_N.where(counted_N, 0.0), SoftLossesSaved(slope_NV)


def soft_losses_backward(
    dlosses_N: Float[Tensor, " N"], saved: SoftLossesSaved
) -> tuple[Float[Tensor, "N V"]]:
    """Gradient of `soft_losses_forward`:  dstudent = T (q - p) dloss; the teacher gets none."""
    return (saved.slope_NV * dlosses_N[:, None],)


_soft_losses = differentiable(soft_losses_forward, soft_losses_backward)


def distillation(
    student_BTV: Float[Tensor, "*B V"],
    teacher_BTV: Float[Tensor, "*B V"],
    targets_BT: Int[Tensor, "*B"],
    *,
    temperature: int | float = 1.0,
    hard_share: int | float = 0.0,
    mask_BT: Bool[Tensor, "*B"] | None = None,
    ignore_index: int = IGNORE_INDEX,
    num_tokens: int | float | None = None,
) -> Float[Tensor, ""]:
    """Return the loss of a student that learns from a teacher, in nats per token.

    loss = (1 - a) T^2 KL(teacher_T || student_T) + a cross_entropy(student, targets)

    both as sums over the counted tokens divided by one normaliser.  The gradient flows into the
    student alone.

    Args:
        student_BTV: logits of the student.
        teacher_BTV: logits of the teacher, of the same vocabulary.
        targets_BT: the tokens that came, or `ignore_index`, which leaves a position out.
        temperature: T, above 0; 1 compares the probabilities as they are.
        hard_share: a, from 0 (soft targets alone) to 1 (hard ones alone).
        mask_BT: True where the token counts; None counts all that are not ignored.
        ignore_index: the target id that means "do not count".
        num_tokens: the one global normaliser, as in `cross_entropy`; None counts this call's.

    Raises:
        ValueError: if a setting is outside its range, the two have other shapes, no token counts,
            or a target is outside the vocabulary.
    """
    require("temperature", temperature, above=0)
    require("hard_share", hard_share, least=0, most=1)
    if student_BTV.shape != teacher_BTV.shape:
        raise ValueError(
            f"the teacher's logits have the shape {tuple(teacher_BTV.shape)}, the student's "
            f"{tuple(student_BTV.shape)}: distillation needs one vocabulary and the same tokens"
        )
    # One number divides both terms, or `hard_share` would not be the share that it says.
    counted_BT = counted_tokens(targets_BT, mask_BT=mask_BT, ignore_index=ignore_index)
    if num_tokens is None:
        num_tokens = int(counted_BT.sum())
        if num_tokens == 0:
            raise ValueError("no token counts: every target is ignored or masked")
    hard = cross_entropy(
        student_BTV,
        targets_BT,
        mask_BT=mask_BT,
        ignore_index=ignore_index,
        num_tokens=num_tokens,
    )
    # One row for each token; the teacher is data, through which no gradient goes.
    rows = (-1, student_BTV.shape[-1])
    losses_N = _soft_losses(
        upcast(student_BTV).reshape(rows),
        upcast(teacher_BTV).detach().reshape(rows),
        counted_BT.reshape(-1),
        float(temperature),
    )
    return (1 - hard_share) * losses_N.sum() / num_tokens + hard_share * hard
