"""GPTQ: the columns of a matrix are rounded one by one; those that are left make up for it.

A layer should answer to its inputs as before: not the square of  W - Q  is made small, but that of
W X - Q X.  Of one row w it is  (w - q) H (w - q)^T / 2  with::

    H = 2 X X^T + c mean(diag(2 X X^T)) I        (c the damping, without which H may be singular)

When column j is rounded, the best that the columns F after it can do is::

    e = (w_j - q_j) / P_jj,        w_F  <-  w_F - e P_jF

where P is the inverse of H without the columns that are done, another one for each j.  All of them
stand in one matrix: with  H^-1 = U^T U,  U upper triangular, row j of P is  U_jj U_j,  so that::

    e = (w_j - q_j) / U_jj,        w_F  <-  w_F - e U_jF

Shape suffixes:  F rows (outputs), D columns (inputs), B columns of a block, N blocks of a row.

Source:
    Frantar et al. 2022, https://arxiv.org/abs/2210.17323; the code of its authors, with the same
    factor, damping and lazy update, is https://github.com/IST-DASLab/gptq
"""

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse_labs.real.quantise.grid import Grid, Rounded, kept

DAMPING = 0.01
"""Of the mean of the Hessian's diagonal, as in its authors' code."""


def inverse_factor(
    hessian_DD: Float[Tensor, "D D"], damping: float = DAMPING
) -> Float[Tensor, "D D"]:
    """Return U, upper triangular, with  U^T U  the inverse of the damped Hessian.

    Args:
        hessian_DD: 2 X X^T, or any multiple of it: Q does not change with it.
        damping: share of the mean of its diagonal that is added to the diagonal, above 0.

    Raises:
        ValueError: if damping is not above 0, or the Hessian is 0 or not finite.
    """
    require("damping", damping, above=0)
    mean = float(hessian_DD.diagonal().mean())
    require("the mean square of the layer's inputs", mean, above=0, below=float("inf"))
    damped_DD = hessian_DD.double()
    damped_DD = damped_DD + damping * mean * torch.eye(len(damped_DD), dtype=torch.float64)
    inverse_DD = torch.cholesky_inverse(torch.linalg.cholesky(damped_DD))
    return torch.linalg.cholesky(inverse_DD, upper=True).to(hessian_DD.dtype)


def gptq(
    w_FD: Float[Tensor, "F D"],
    hessian_DD: Float[Tensor, "D D"],
    grid: Grid,
    damping: float = DAMPING,
) -> Rounded:
    """Round a matrix for the inputs of its layer; see the module.

    The scales of a block are fitted when its turn comes, to weights that have made up for errors of
    the blocks before.  Columns beyond a block get its errors all at once, which is faster.

    Args:
        w_FD: the matrix.
        hessian_DD: sum over the layer's inputs x of  2 x x^T.
        grid: its codes.
        damping: see `inverse_factor`.

    Raises:
        ValueError: as `grid.nearest` and `inverse_factor`.
    """
    w_FD, u_DD = w_FD.clone(), inverse_factor(hessian_DD, damping)
    block = grid.block_of(w_FD.shape[1])
    codes_FD, scales, minima = torch.empty_like(w_FD), [], []
    for start in range(0, w_FD.shape[1], block):
        end = start + block
        d_F1, m_F1 = grid.fit(w_FD[:, start:end])
        kept_d_F1, kept_m_F1 = d_F1.half().to(w_FD.dtype), m_F1.half().to(w_FD.dtype)
        errors_FB = torch.empty_like(w_FD[:, start:end])
        for j in range(start, end):
            w_F1 = w_FD[:, j : j + 1]
            q_F1 = grid.codes(w_F1, d_F1, m_F1)
            error_F1 = (w_F1 - (kept_d_F1 * q_F1 + kept_m_F1)) / u_DD[j, j]
            w_FD[:, j:end] -= error_F1 * u_DD[j, j:end]
            codes_FD[:, j : j + 1], errors_FB[:, j - start : j - start + 1] = q_F1, error_F1
        w_FD[:, end:] -= errors_FB @ u_DD[start:end, end:]
        scales.append(d_F1)
        minima.append(m_F1)
    return kept(grid, codes_FD, torch.cat(scales, 1), torch.cat(minima, 1))
