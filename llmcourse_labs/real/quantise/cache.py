"""A cache of keys and values in few bits, for measuring what that costs.

The newest tokens stay exact.  As soon as a block of tokens is complete and others come after it,
its keys and values are rounded, once: so what a token sees does not depend on tokens after it.

* "channel": the tokens of a block share the scale of each channel.  Some channels of keys are
  larger than all others in every token; they have scales of their own so.
* "token": neighbouring channels of one token share a scale.

Shape suffixes:  B batch, T new tokens, S cached tokens, G key/value heads, K head size.

Source:
    Liu et al. 2024 (KIVI): keys per channel, values per token, https://arxiv.org/abs/2402.02750
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from llmcourse.model.decoder import KVCache, Transformer
from llmcourse_labs.real.quantise.grid import Grid, nearest

Along = Literal["channel", "token"]
"""What has a scale of its own."""


class RoundedCache(KVCache):
    """A `KVCache` whose complete blocks of tokens are on a grid; see `rounded_cache`."""

    def __init__(self, empty: KVCache, grid: Grid, keys: Along, values: Along) -> None:
        self.keys_BSGK, self.values_BSGK, self.length = empty.keys_BSGK, empty.values_BSGK, 0
        self.grid, self.keys, self.values = grid, keys, values
        self.num_rounded = 0
        """Tokens, from the first on."""

    def append(
        self, k_BTGK: Float[Tensor, "B T G K"], v_BTGK: Float[Tensor, "B T G K"]
    ) -> tuple[Float[Tensor, "B S G K"], Float[Tensor, "B S G K"]]:
        """Round the blocks that are complete; then do as `KVCache.append`."""
        first, end = self.num_rounded, self.length - self.length % (self.grid.block or 1)
        if end > first:
            for kept, along in ((self.keys_BSGK, self.keys), (self.values_BSGK, self.values)):
                kept[:, first:end] = rounded_tokens(kept[:, first:end], self.grid, along)
            self.num_rounded = end
        return super().append(k_BTGK, v_BTGK)


def rounded_cache(
    decoder: Transformer,
    batch_size: int,
    grid: Grid,
    *,
    keys: Along = "channel",
    values: Along = "token",
    num_positions: int | None = None,
) -> list[KVCache]:
    """Return one empty cache per layer, as `Transformer.new_cache`, that rounds what it holds.

    Nothing is rounded in the call that brings it: give a text in pieces of a block or shorter, to
    let every token read a rounded past.

    Args:
        decoder: whose keys and values are held.
        batch_size: rows.
        grid: its block is that of tokens, and of channels of a head.
        keys: what of the keys has scales of its own.
        values: what of the values has.
        num_positions: room; None is the context.

    Raises:
        ValueError: if the grid has no block, or one that does not divide a head of the decoder
            where channels share a scale.
    """
    if grid.block is None:
        raise ValueError("block must be a number of tokens, got None: a cache has no last token")
    if "token" in (keys, values):
        grid.block_of(decoder.config.head_size)
    empty = decoder.new_cache(batch_size, num_positions)
    return [RoundedCache(each, grid, keys, values) for each in empty]


def rounded_tokens(
    x_BSGK: Float[Tensor, "B S G K"], grid: Grid, along: Along
) -> Float[Tensor, "B S G K"]:
    """Return keys or values on a grid, each channel or each token with scales of its own."""
    x = x_BSGK.permute(0, 2, 3, 1) if along == "channel" else x_BSGK  # what shares a scale is last
    on_grid = nearest(x.flatten(0, -2), grid).weights().view(x.shape)
    return on_grid.permute(0, 3, 1, 2) if along == "channel" else on_grid
