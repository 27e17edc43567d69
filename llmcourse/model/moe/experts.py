"""The experts: as many SwiGLU networks as there are, each for its own rows.

Shape suffixes:  R routed rows sorted by expert, r the rows of one expert, D width, F hidden width
of one expert, E experts.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from llmcourse.base.pairs import differentiable, matmul_nt
from llmcourse.model.initial import initialise
from llmcourse.model.ops import SiluGateSaved, silu_gate_backward, silu_gate_forward, swiglu


class GroupedSaved(NamedTuple):
    """What `grouped_swiglu_backward` needs: the inputs, and both projections up."""

    rows_RD: Float[Tensor, "R D"]
    w_gate_EFD: Float[Tensor, "E F D"]
    w_up_EFD: Float[Tensor, "E F D"]
    w_down_EDF: Float[Tensor, "E D F"]
    counts_E: Int[Tensor, " E"]
    gate_RF: Float[Tensor, "R F"]
    up_RF: Float[Tensor, "R F"]


def grouped_swiglu_forward(
    rows_RD: Float[Tensor, "R D"],
    w_gate_EFD: Float[Tensor, "E F D"],
    w_up_EFD: Float[Tensor, "E F D"],
    w_down_EDF: Float[Tensor, "E D F"],
    counts_E: Int[Tensor, " E"],
) -> tuple[Float[Tensor, "R D"], GroupedSaved]:
    """Let every expert transform its rows:  y_r = W_down_e (silu(W_gate_e x_r) * W_up_e x_r).

    The first counts_E[0] rows are those of expert 0, and so on; an expert may have none.  What
    stands between the gate and w_down is not saved: backward makes it again from gate and up.

    Raises:
        ValueError: if the counts do not add up to the rows, or one is negative.
    """
    counts = _checked(counts_E, rows_RD)
    gate_RF = grouped_product(rows_RD, w_gate_EFD, counts)
    up_RF = grouped_product(rows_RD, w_up_EFD, counts)
    hidden_RF, _ = silu_gate_forward(gate_RF, up_RF)
    saved = GroupedSaved(rows_RD, w_gate_EFD, w_up_EFD, w_down_EDF, counts_E, gate_RF, up_RF)
    return grouped_product(hidden_RF, w_down_EDF, counts), saved


def grouped_swiglu_backward(
    dy_RD: Float[Tensor, "R D"], saved: GroupedSaved
) -> tuple[
    Float[Tensor, "R D"],
    Float[Tensor, "E F D"],
    Float[Tensor, "E F D"],
    Float[Tensor, "E D F"],
]:
    """Gradients of `grouped_swiglu_forward` for the rows and for the three matrices.

    For each expert as for `ops.linear_backward` and `ops.silu_gate_backward`.  The matrices of an
    expert without rows get 0.
    """
    rows_RD, w_gate_EFD, w_up_EFD, w_down_EDF, counts_E, gate_RF, up_RF = saved
    counts = counts_E.tolist()
    hidden_RF, _ = silu_gate_forward(gate_RF, up_RF)
    dw_down_EDF = grouped_outer(dy_RD, hidden_RF, counts)
    dhidden_RF = grouped_product(dy_RD, w_down_EDF.mT, counts)
    dgate_RF, dup_RF = silu_gate_backward(dhidden_RF, SiluGateSaved(gate_RF, up_RF))
    drows_RD = grouped_product(dgate_RF, w_gate_EFD.mT, counts)
    drows_RD += grouped_product(dup_RF, w_up_EFD.mT, counts)
    dw_gate_EFD = grouped_outer(dgate_RF, rows_RD, counts)
    return drows_RD, dw_gate_EFD, grouped_outer(dup_RF, rows_RD, counts), dw_down_EDF


grouped_swiglu = differentiable(grouped_swiglu_forward, grouped_swiglu_backward, autocast="lower")


def _checked(counts_E: Int[Tensor, " E"], rows_RD: Float[Tensor, "R D"]) -> list[int]:
    """Return the counts as plain numbers."""
    counts = counts_E.tolist()
    if sum(counts) != len(rows_RD) or min(counts) < 0:
        raise ValueError(
            f"counts_E must be 0 or greater and add up to the {len(rows_RD)} rows, got {counts}"
        )
    return counts


def grouped_product(
    x_RD: Float[Tensor, "R D"], w_EFD: Float[Tensor, "E F D"], counts: list[int]
) -> Float[Tensor, "R F"]:
    """Multiply the rows of each expert by its matrix:  y_r = W_e x_r."""
    y_RF = x_RD.new_empty(len(x_RD), w_EFD.shape[1])
    for y_rF, x_rD, w_FD in zip(y_RF.split(counts), x_RD.split(counts), w_EFD, strict=True):
        if len(x_rD):
            y_rF.copy_(matmul_nt(x_rD, w_FD))
    return y_RF


def grouped_outer(
    dy_RF: Float[Tensor, "R F"], x_RD: Float[Tensor, "R D"], counts: list[int]
) -> Float[Tensor, "E F D"]:
    """Return the gradient of each expert's matrix:  dW_e = sum over its rows of dy_r x_r^T."""
    dw_EFD = dy_RF.new_zeros(len(counts), dy_RF.shape[1], x_RD.shape[1])
    for dw_FD, dy_rF, x_rD in zip(dw_EFD, dy_RF.split(counts), x_RD.split(counts), strict=True):
        if len(x_rD):
            dw_FD.copy_(matmul_nt(dy_rF.T, x_rD.T))
    return dw_EFD


class Experts(nn.Module):
    """E SwiGLU networks of the same shape.

    Args:
        num_experts: E.
        width: D.
        hidden: F, of one expert.
        generator: of the first weights; None leaves them uninitialised, for loading.
    """

    def __init__(
        self, num_experts: int, width: int, hidden: int, *, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.w_gate = nn.Parameter(torch.empty(num_experts, hidden, width))
        self.w_up = nn.Parameter(torch.empty(num_experts, hidden, width))
        self.w_down = nn.Parameter(torch.empty(num_experts, width, hidden))
        if generator is not None:
            initialise(self, generator)

    def forward(
        self, rows_RD: Float[Tensor, "R D"], counts_E: Int[Tensor, " E"]
    ) -> Float[Tensor, "R D"]:
        """Transform every row by the expert that it belongs to; see `grouped_swiglu_forward`."""
        return grouped_swiglu(rows_RD, self.w_gate, self.w_up, self.w_down, counts_E)


class SharedExperts(nn.Module):
    """Experts that every token goes to, with weight 1: together one wide SwiGLU network.

    Args:
        num_shared: experts.
        width: D.
        hidden: F, of one expert.
        generator: of the first weights; None leaves them uninitialised, for loading.

    Source:
        DeepSeek-AI 2024 (DeepSeek-V3), equation 12, https://arxiv.org/abs/2412.19437
    """

    def __init__(
        self, num_shared: int, width: int, hidden: int, *, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.w_gate = nn.Parameter(torch.empty(num_shared * hidden, width))
        self.w_up = nn.Parameter(torch.empty(num_shared * hidden, width))
        self.w_down = nn.Parameter(torch.empty(width, num_shared * hidden))
        if generator is not None:
            initialise(self, generator)

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Transform every token."""
        return swiglu(x_ND, self.w_gate, self.w_up, self.w_down)
