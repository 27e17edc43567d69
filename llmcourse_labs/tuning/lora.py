"""LoRA: a matrix stays as it is, and a product of two thin ones is learnt beside it.

    y = x W^T + (alpha / r) (x A^T) B^T,     A: r x in, drawn;  B: out x r, zero at the start

At the start nothing is added, so the model is the one that it was.  Merged, W + (alpha / r) B A is
a matrix like the one before, and costs nothing in use.

Here a layer reads the merged matrix, made anew in each forward pass: no layer has to know of it.
What is saved is the gradient and the two moments of every weight that stays, 12 bytes each, and
the product that makes a gradient of a whole matrix, dW = dy^T x.  What `linear` would multiply for
it is left to the thin matrices:

    dB = (alpha / r) dy^T (x A^T),     dA = (alpha / r) (dy B)^T x.

New tokens have rows of the embedding that nothing was learnt in, and all of them alike: those rows
are learnt, too, or a model with LoRA could not tell the end of an answer from its beginning.

Shape suffixes:  F outputs, D inputs, R rank, V vocabulary, N rows that are learnt, T tokens.

Source:
    Hu et al. 2021, section 4, https://arxiv.org/abs/2106.09685
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parametrize

from llmcourse.base.arguments import require
from llmcourse.base.pairs import outside_autocast, refuse_second_derivatives
from llmcourse.model.decoder import Transformer
from llmcourse.model.moe import MixtureOfExperts
from llmcourse.model.ops import LinearSaved
from llmcourse_labs.real.peft_adapter import Thin
from llmcourse_labs.real.quantise.frozen import make_of, matrix_of, noted

ALPHA = 16
"""Numerator of the scale: with it fixed, ranks share a learning rate."""

MATRICES = {"attention": ("w_q", "w_k", "w_v", "w_o"), "feed_forward": ("w_gate", "w_up", "w_down")}
"""What gets thin matrices, by the part of a block."""

_PART = "parametrizations."
"""Of a name in the state of a model with LoRA."""


class LowRank(nn.Module):
    """Adds (alpha / r) B A to a matrix; see the module.

    Args:
        num_outputs: rows of the matrix.
        num_inputs: its columns.
        rank: of the product, 1 or more.
        generator: of A, from N(0, 1 / num_inputs).
    """

    def __init__(
        self, num_outputs: int, num_inputs: int, rank: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        drawn_RD = torch.randn(rank, num_inputs, generator=generator) / num_inputs**0.5
        self.a = nn.Parameter(drawn_RD)
        self.b = nn.Parameter(torch.zeros(num_outputs, rank))

    def forward(self, w_FD: Float[Tensor, "F D"]) -> Float[Tensor, "F D"]:
        """Return the merged matrix."""
        a_RD, b_FR, make = self.a, self.b, make_of(w_FD)
        whole_FD = low_rank_merged(w_FD, a_RD, b_FR)
        if make is None:
            return whole_FD
        return noted(whole_FD, lambda: low_rank_merged(make(), a_RD, b_FR))  # of blocks


class NewRows(nn.Module):
    """Puts rows that are learnt in place of some rows of a matrix that is not."""

    numbers_N: Int[Tensor, " N"]

    def __init__(self, w_VD: Float[Tensor, "V D"], numbers: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("numbers_N", torch.tensor(numbers))
        self.rows_ND = nn.Parameter(w_VD.detach()[self.numbers_N].clone())

    def forward(self, w_VD: Float[Tensor, "V D"]) -> Float[Tensor, "V D"]:
        """Return the matrix with the rows in it."""
        return w_VD.index_copy(0, self.numbers_N, self.rows_ND)


class _Merged(torch.autograd.Function):
    """The merged matrix; a product by `linear` leaves dy and x here, any other use gives dW."""

    @staticmethod
    def forward(ctx: Any, w_FD: Tensor, a_RD: Tensor, b_FR: Tensor) -> Tensor:
        ctx.save_for_backward(a_RD, b_FR)
        ctx.set_materialize_grads(False)  # dW is None where all of it was left
        ctx.left = []
        if not ctx.needs_input_grad[0]:
            ctx.leave_weight_grad = _leave_weight_grad
        with outside_autocast(w_FD):
            return torch.addmm(w_FD.to(a_RD.dtype), b_FR, a_RD, alpha=ALPHA / len(a_RD))

    @staticmethod
    def backward(ctx: Any, dw_FD: Tensor | None) -> tuple[Tensor | None, Tensor, Tensor]:
        refuse_second_derivatives()
        a_RD, b_FR = ctx.saved_tensors
        da_RD, db_FR = torch.zeros_like(a_RD), torch.zeros_like(b_FR)
        if dw_FD is not None:
            da_RD, db_FR = b_FR.T @ dw_FD, dw_FD @ a_RD.T
        while ctx.left:
            dy_TF, x_TD = (each.flatten(0, -2) for each in ctx.left.pop())
            da_RD.addmm_((dy_TF @ b_FR).T, x_TD)
            db_FR.addmm_(dy_TF.T, x_TD @ a_RD.T)
        scale = ALPHA / len(a_RD)
        return dw_FD, da_RD.mul_(scale), db_FR.mul_(scale)


def _leave_weight_grad(dy_BTF: Tensor, saved: LinearSaved) -> bool:
    """Keep what the gradients of thin matrices are made of, if they are asked for; see `ops`."""
    node: Any = saved.w_FD.grad_fn
    if torch._C._will_engine_execute_node(node):
        node.left.append((dy_BTF, saved.x_BTD))
    return True


def low_rank_merged(
    w_FD: Float[Tensor, "F D"], a_RD: Float[Tensor, "R D"], b_FR: Float[Tensor, "F R"]
) -> Float[Tensor, "F D"]:
    """Return W + (alpha / r) B A."""
    return _Merged.apply(w_FD, a_RD, b_FR)


def add_low_rank(
    model: Transformer, rank: int, *, generator: torch.Generator, new_ids: Sequence[int] = ()
) -> None:
    """Freeze a model, and give every matrix of its blocks thin ones that are learnt.

    Args:
        model: changed in place; a dense one.
        rank: of the products, 1 or more, and at most the smaller side of every matrix.
        generator: of the first A.
        new_ids: tokens whose rows of embedding and head are learnt, too.

    Raises:
        ValueError: if the rank is outside its range, or the model is a mixture of experts.
    """
    require("lora_rank", rank, least=1)
    model.requires_grad_(False)
    for block in model.blocks:
        if isinstance(block.feed_forward, MixtureOfExperts):
            raise ValueError("LoRA is for dense models, and this one has experts: leave it out")
        for part, names in MATRICES.items():
            for name in names:
                owner = getattr(block, part)
                weight = getattr(owner, name, None)
                if weight is None:  # of a model without the part
                    continue
                require(f"lora_rank for {part}.{name}", rank, most=min(weight.shape))
                outputs, inputs = weight.shape
                thin = LowRank(outputs, inputs, rank, generator=generator).to(weight.device)
                parametrize.register_parametrization(owner, name, thin)
    if new_ids:
        for name in ("embedding",) if model.config.tied_head else ("embedding", "head"):
            rows = NewRows(getattr(model, name), new_ids).to(model.embedding.device)
            parametrize.register_parametrization(model, name, rows)


def add_adapter(model: Transformer, adapter: Mapping[str, Thin]) -> None:
    """Freeze a model, and put thin matrices beside its own that were learnt elsewhere.

    Another scale than ours goes into B.

    Args:
        model: changed in place.
        adapter: of this model, from `real.peft_adapter.read_adapter`.
    """
    model.requires_grad_(False)
    for name, (a_RD, b_FR, alpha) in adapter.items():
        place, _, last = name.rpartition(".")
        owner = model.get_submodule(place)
        weight: Tensor = getattr(owner, last)
        sizes = len(b_FR), a_RD.shape[1], len(a_RD)
        thin = LowRank(*sizes, generator=torch.Generator()).to(weight)
        with torch.no_grad():
            thin.a.copy_(a_RD)
            thin.b.copy_(b_FR * (alpha / ALPHA))
        parametrize.register_parametrization(owner, last, thin)


def adapter_of(state: Mapping[str, Tensor]) -> dict[str, Thin]:
    """Return the thin matrices in the state of a model with LoRA, by the names of the matrices.

    Raises:
        ValueError: if it has none, or rows of new tokens beside them.
    """
    if any(name.endswith(".rows_ND") for name in state):
        raise ValueError("this LoRA learnt rows of new tokens, too, which an adapter cannot hold")
    found = {}
    for name, a_RD in state.items():
        if _PART in name and name.endswith(".a"):
            whole = name.replace(_PART, "").rsplit(".", 2)[0]
            found[whole] = Thin(a_RD, state[name[:-1] + "b"], ALPHA)
    if not found:
        raise ValueError("there are no thin matrices: this run has learnt all weights")
    return found


def merged(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a plain model from that of one with LoRA; a plain one as it is.

    What a strange checkpoint holds in place of a weight is left to whoever loads the state.
    """
    plain = {name: weight for name, weight in state.items() if _PART not in name}
    for name, weight in state.items():
        place, _, last = name.rpartition(".")
        if _PART not in name or last not in ("original", "original0"):
            continue
        in_blocks = last == "original0"
        whole, learnt = (matrix_of(weight), "1") if in_blocks else (weight, "0")
        if f"{place}.{learnt}.a" in state:
            pair = (state[f"{place}.{learnt}.{side}"] for side in "ab")
            whole = low_rank_merged(whole, *pair)
        elif not in_blocks:
            rows = (state[f"{place}.0.{part}"] for part in ("numbers_N", "rows_ND"))
            whole = whole.index_copy(0, *rows)
        plain[place.replace(_PART, "")] = whole
    return plain
