"""How every parameter of a Transformer is cut, and whose gradients are summed, as tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import torch
from jaxtyping import Shaped
from torch import Tensor

from llmcourse.model import ModelConfig

PartialGradient = Literal["never", "where time is cut", "always", "where copied"]
"""When a rank's gradient is a part of a sum over ranks that hold the same entries."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one kind of parameter is spread over the ranks."""

    dim: int | None
    """What is cut: 0 rows (outputs), 1 columns (inputs), None nothing: every rank has all of it."""
    partial: PartialGradient
    """When its gradient has to be summed."""


VOCABULARY = Style(dim=0, partial="never")
"""Every rank has some vocabulary entries."""
OUTPUTS = Style(dim=0, partial="never")
"""Column parallel: every rank computes some outputs (heads, hidden units)."""
KV_OUTPUTS = Style(dim=0, partial="where copied")
"""Column parallel too; but a head may be on several ranks, each with queries of its own."""
INPUTS = Style(dim=1, partial="never")
"""Row parallel: every rank reads some inputs, and has a part of the sum."""
OF_TOKENS = Style(dim=None, partial="where time is cut")
"""On every rank, and used for every token that the rank has."""
OF_HEADS = Style(dim=None, partial="always")
"""On every rank, and used for the heads that the rank has."""

TABLE: tuple[tuple[str, Style], ...] = (
    ("embedding", VOCABULARY),
    ("head", VOCABULARY),
    ("blocks.*.attention.w_q", OUTPUTS),
    ("blocks.*.attention.w_k", KV_OUTPUTS),
    ("blocks.*.attention.w_v", KV_OUTPUTS),
    ("blocks.*.attention.w_o", INPUTS),
    ("blocks.*.attention.[qk]_norm.gain", OF_HEADS),
    ("blocks.*.feed_forward.w_gate", OUTPUTS),
    ("blocks.*.feed_forward.w_up", OUTPUTS),
    ("blocks.*.feed_forward.w_down", INPUTS),
    ("blocks.*.*_norm.gain", OF_TOKENS),
    ("norm.gain", OF_TOKENS),
)
"""Patterns of names, the first that fits decides.

Every cut layer begins with OUTPUTS and ends with INPUTS: what one leaves on a rank, the other one
needs there, so that nothing is communicated between them.
"""


def style_of(name: str) -> Style:
    """Return how a parameter is cut.

    Raises:
        ValueError: if the table has no pattern for it.
    """
    for pattern, style in TABLE:
        if fnmatchcase(name, pattern):
            return style
    raise ValueError(f"no pattern of TABLE fits the parameter {name!r}: add a line that says how")


def copies(config: ModelConfig, size: int) -> int:
    """Return how many ranks hold each key/value head: 1 where there is one for every rank."""
    return max(1, size // config.num_kv_heads)


def slice_of(
    name: str,
    shape: Sequence[int],
    config: ModelConfig,
    index: int,
    size: int,
    *,
    replicate_kv: bool = False,
) -> tuple[int, int, int] | None:
    """Return the part of a parameter that a rank holds: (dim, start, stop); None is all of it.

    Args:
        name: as in `named_parameters` of a Transformer.
        shape: of the whole parameter.
        config: of the model.
        index: of the rank along its axis.
        size: ranks along the axis.
        replicate_kv: whether several ranks may hold the same key/value head.

    Raises:
        ValueError: if the parameter is unknown, does not divide, or there is no such rank.
    """
    if not 0 <= index < size:
        raise ValueError(f"index must be from 0 to {size - 1}, got {index}")
    style = style_of(name)
    if style.dim is None:
        return None
    copied = style is KV_OUTPUTS and replicate_kv
    each = copies(config, size) if copied else 1
    length = shape[style.dim]
    if length * each % size:
        raise ValueError(f"{name} of shape {tuple(shape)} does not divide among {size} ranks")
    part = length * each // size
    return style.dim, index // each * part, (index // each + 1) * part


def join(
    name: str,
    parts: Sequence[Shaped[Tensor, "..."]],
    config: ModelConfig,
    *,
    replicate_kv: bool = False,
) -> Shaped[Tensor, "..."]:
    """Put a parameter, its gradient or a state of it together from the parts of all ranks.

    The inverse of `slice_of`, a new tensor; of copies, the first is taken.
    """
    style = style_of(name)
    if style.dim is None:
        return parts[0].clone()
    each = copies(config, len(parts)) if style is KV_OUTPUTS and replicate_kv else 1
    return torch.cat(list(parts[::each]), dim=style.dim)


def summed_over(
    name: str, config: ModelConfig, size: int, *, sequence_parallel: bool, replicate_kv: bool
) -> Literal["axis", "copies"] | None:
    """Return over which ranks the gradient of a parameter has to be summed after backward.

    "axis" is all ranks, "copies" those that hold the same key/value heads, and None says that the
    gradient is complete.
    """
    partial = style_of(name).partial
    if size > 1 and (partial == "always" or (partial == "where time is cut" and sequence_parallel)):
        return "axis"
    copied = replicate_kv and copies(config, size) > 1
    return "copies" if partial == "where copied" and copied else None
