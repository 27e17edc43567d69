"""Weights that stay in the blocks of their file while something is learnt beside them (QLoRA).

A product  y = x W^T  makes W of the blocks.  Its gradient  dx = dy W  asks for W again, and until
then autograd would hold it: in the end all matrices of a model, in float32.  Here it holds how W is
made, and W is made anew.  So a step needs the blocks and one matrix at a time; the price is that
each of them is unpacked twice.

Nothing is learnt of the blocks themselves, so no gradient has to pass through codes.

Shape suffixes:  F rows, D columns, N blocks of a row, B bytes of a block.

Source:
    Dettmers et al. 2023, section 3, https://arxiv.org/abs/2305.14314 (there with NF4 codes)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils import parametrize

from llmcourse.model.decoder import Transformer
from llmcourse_labs.real.gguf_blocks import KINDS, dequantised
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_names import gguf_names, reordered

_KIND_OF = {kind.num_bytes: name for name, kind in KINDS.items() if kind.num_weights > 1}
"""Kinds of blocks by the bytes of one, in which they all differ."""


class InBlocks(nn.Module):
    """Makes a matrix of its blocks; what `torch.nn.utils.parametrize` calls when it is read."""

    def __init__(self, blocks_FNB: UInt8[Tensor, "F N B"]) -> None:
        super().__init__()
        self._blocks: tuple[Tensor, ...] = (blocks_FNB,)

    def right_inverse(self, w_FD: Tensor) -> tuple[Tensor, ...]:
        """Return what is kept in place of the matrix, once."""
        kept, self._blocks = self._blocks, ()
        return kept

    def forward(self, blocks_FNB: UInt8[Tensor, "F N B"]) -> Float[Tensor, "F D"]:
        """Return the matrix, which backward can make anew."""
        return noted(matrix_of(blocks_FNB), partial(matrix_of, blocks_FNB))


def matrix_of(blocks_FNB: UInt8[Tensor, "F N B"]) -> Float[Tensor, "F D"]:
    """Return the matrix of blocks, in float32."""
    weights_NW = dequantised(blocks_FNB.flatten(0, 1), _KIND_OF[blocks_FNB.shape[-1]])
    return weights_NW.view(len(blocks_FNB), -1)


def noted(w_FD: Float[Tensor, "F D"], make: Callable[[], Tensor]) -> Float[Tensor, "F D"]:
    """Return a matrix with a note of how it is made; see `keep_in_blocks`."""
    vars(w_FD)["make"] = make
    return w_FD


def make_of(tensor: Tensor) -> Callable[[], Tensor] | None:
    """Return how a matrix is made, None of a tensor without a note."""
    return vars(tensor).get("make")


def keep_in_blocks(decoder: Transformer, file: GgufFile) -> None:
    """Freeze a decoder, and give it the weights of a file, matrices in their blocks.

    It computes the bits that the matrices would give; backward makes anew those that it needs.  A
    matrix that it had goes before the next one comes, so the file's are never whole beside them.

    Args:
        decoder: of the file's shape, whatever its weights; changed in place.
        file: in which at least one matrix is in blocks.

    Raises:
        ValueError: if none is.
    """
    names, config = gguf_names(decoder.config), decoder.config
    in_blocks = {n for n, t in names.items() if KINDS[file.tensors[t].kind].num_weights > 1}
    if not in_blocks:
        raise ValueError(f"{file.path} holds no matrix in blocks of few bits: nothing would be won")
    decoder.requires_grad_(False)
    for ours, theirs in names.items():
        place, _, last = ours.rpartition(".")
        owner = decoder.get_submodule(place)
        if ours not in in_blocks:
            weight = reordered(ours, file.read(theirs), config, to_file=False)
            owner.get_parameter(last).copy_(weight)
            continue
        blocks_FNB = reordered(ours, file.read_blocks(theirs), config, to_file=False)
        weight = owner.get_parameter(last).detach()
        delattr(owner, last)
        owner.register_buffer(last, weight)  # bytes are no parameters
        parametrize.register_parametrization(owner, last, InBlocks(blocks_FNB))
    hooks = made_anew()
    decoder.register_forward_pre_hook(lambda *_: hooks.__enter__())
    decoder.register_forward_hook(lambda *_: hooks.__exit__(), always_call=True)


def made_anew() -> saved_tensors_hooks:
    """Return a context in which autograd keeps the notes of matrices in their place."""
    return saved_tensors_hooks(_note_or_tensor, _tensor_of)


def _note_or_tensor(saved: Tensor) -> Any:
    """Return what autograd keeps of a tensor until backward."""
    return make_of(saved) or saved.detach()  # detached, or its node would hold itself


@torch.no_grad()
def _tensor_of(kept: Any) -> Tensor:
    """Return the tensor."""
    return kept if isinstance(kept, Tensor) else kept()
