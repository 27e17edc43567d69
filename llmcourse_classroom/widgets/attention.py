"""A widget about attention: which position reads which, in every head of a small model."""

from collections.abc import Sequence
from typing import Any

import traitlets
from jaxtyping import Shaped
from torch import Tensor

from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget, as_json

MOST_TOKENS = 20
MOST_LAYERS = 4
MOST_HEADS = 8
LARGEST = 1_000_000
"""Every query and key is smaller."""

MOST_CHARACTERS = 92_000
"""Of all numbers, written out: compressed about 37 kB, of 60 that a widget may have."""

FINE_CHARACTERS = 60_000
"""Up to here the numbers keep three decimals, beyond only two."""


class AttentionMap(Widget):
    """What every position of a text reads in every head: the page computes softmax(q k / sqrt(K)).

    The queries and keys travel rounded to 3 decimals, or to 2 where there are many.

    Args:
        tokens: the text of the T tokens, 2 to 20.
        queries: (L, T, H, K), rotated, as from `study.queries_and_keys` without the batch; at most
            4 layers and 8 heads.
        keys: (L, T, G, K); query head h reads key head h // (H / G).

    Raises:
        ValueError: if the shapes do not fit, are too large for a page, or a number is not finite or
            is huge.
    """

    script = "attention_map.js"
    alt = (
        "A square of cells for a head of attention: the row of a token shows by the colour of its "
        "cells which tokens it reads. Heads in one frame read the same keys and values."
    )

    tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    query_numbers = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)
    """T x H x K whole numbers for every layer: the queries x 10^decimals, rounded."""
    key_numbers = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)
    decimals = traitlets.Int().tag(sync=True)
    num_heads = traitlets.Int().tag(sync=True)
    num_kv_heads = traitlets.Int().tag(sync=True)
    head_size = traitlets.Int().tag(sync=True)
    layer = Whole(1, low=1, high=MOST_LAYERS, step=1, label="layer")
    """Counted from 1, as on the pages; heads and positions are counted from 0."""
    head = Whole(0, low=0, high=MOST_HEADS - 1, step=1, label="head")
    row = Whole(0, low=0, high=MOST_TOKENS - 1, step=1, label="position that reads")
    shown = Choice(("query", "scores", "shares", "values"), default="values")
    """How far the chosen row is: its query only, scores, shares, or values that they brought."""
    mask = Choice(("causal", "window", "none"))
    window = Whole(4, low=1, high=MOST_TOKENS, step=1, label="window")
    scaled = traitlets.Bool(True).tag(sync=True)

    def __init__(self, tokens: Sequence[str], queries: Tensor, keys: Tensor, **state: Any) -> None:
        _check(tokens, queries, keys)
        decimals = _decimals(queries, keys)
        super().__init__(
            tokens=list(tokens),
            query_numbers=_whole(queries, decimals),
            key_numbers=_whole(keys, decimals),
            decimals=decimals,
            num_heads=queries.shape[2],
            num_kv_heads=keys.shape[2],
            head_size=queries.shape[3],
            bounds={
                "layer": len(queries),
                "head": queries.shape[2] - 1,
                "row": len(tokens) - 1,
                "window": len(tokens),
            },
            **({"row": len(tokens) - 1, "window": min(4, len(tokens))} | state),
        )


def _check(tokens: Sequence[str], queries: Tensor, keys: Tensor) -> None:
    length = len(tokens)
    if queries.ndim != 4 or keys.ndim != 4:
        raise ValueError(
            f"queries and keys must be (layers, tokens, heads, head size), not "
            f"{tuple(queries.shape)} and {tuple(keys.shape)}: take one text of the batch"
        )
    # L, H and K are those of the queries, G of the keys, T of the tokens: all has to agree.
    layers, _, heads, size = queries.shape
    kv_heads = keys.shape[2]
    expected = (layers, length, kv_heads, size)
    if queries.shape[1] != length or keys.shape != expected:
        raise ValueError(
            f"for {length} tokens queries {tuple(queries.shape)} and keys {tuple(keys.shape)} do "
            f"not fit: give (L, {length}, H, K) and (L, {length}, G, K)"
        )
    # What fits on a page.
    if not 2 <= length <= MOST_TOKENS:
        raise ValueError(f"give 2 to {MOST_TOKENS} tokens, not {length}")
    if not 1 <= layers <= MOST_LAYERS:
        raise ValueError(f"give 1 to {MOST_LAYERS} layers, not {layers}: queries[:{MOST_LAYERS}]")
    if not 1 <= heads <= MOST_HEADS or kv_heads < 1 or heads % kv_heads:
        raise ValueError(
            f"give at most {MOST_HEADS} query heads, a multiple of the key heads, not {heads} "
            f"and {kv_heads}"
        )
    # Said so that NaN, which compares as false, is refused, too.
    if size < 1 or not all((x.abs() < LARGEST).all() for x in (queries, keys)):
        raise ValueError(
            f"queries and keys must be finite, below {LARGEST:,} in size, with a head size of at "
            "least 1"
        )


def _whole(x_LTHK: Shaped[Tensor, "L T H K"], decimals: int) -> list[list[int]]:
    """Return every layer as whole numbers of units of 10^-decimals."""
    return (x_LTHK.detach().double() * 10**decimals).round().long().flatten(1).tolist()


def _decimals(queries: Tensor, keys: Tensor) -> int:
    for decimals, most in ((3, FINE_CHARACTERS), (2, MOST_CHARACTERS)):
        size = len(as_json([_whole(queries, decimals), _whole(keys, decimals)]))
        if size <= most:
            return decimals
    raise ValueError(
        f"{queries.numel() + keys.numel():,} numbers are too many for a page of 60 kB: give fewer "
        "tokens or layers"
    )
