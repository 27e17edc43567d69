"""A decoder that reads and writes a cache in pages, for many rows in one forward pass.

The new tokens of all rows stand one after the other in a single sequence, (1, N), whatever row
they belong to: a whole prompt, a piece of one, or the one token that a row has just drawn.  All
matrices are multiplied once for all of them.  Only attention goes row by row: its keys and values
are collected from the pages of the row, in order, so a row sees what it would see alone.

Shape suffixes:  B batch of 1, T = N new tokens of all rows, R of them with logits, H heads, G
key/value heads, K head size, D width, V vocabulary, P pages, C slots of a page.

Source:
    Yu et al. 2022 (Orca), selective batching, https://www.usenix.org/conference/osdi22/presentation/yu
"""

import copy
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from llmcourse.model.attention import attention_sdpa
from llmcourse.model.decoder import Block, KVCache, Transformer


class Span(NamedTuple):
    """The new tokens of one row in one pass."""

    ids: list[int]
    start: int
    """Position of the first of them; the keys and values of all before it are in the pages."""
    pages: list[int]
    """Of the row, with slots for the new tokens, too."""
    num_logits: int
    """How many of the last new tokens need logits; 0 while more of the prompt is to come."""


class PagedCache(KVCache):
    """Keys and values of one layer: slot i of page p is [p, i]."""

    def __init__(self, num_pages: int, page_size: int, num_kv_heads: int, like: Tensor) -> None:
        shape = (num_pages, page_size, num_kv_heads, like.shape[-1])
        self.keys_PCGK, self.values_PCGK = like.new_empty(shape), like.new_empty(shape)
        self.length = 0
        self.slots_T = torch.empty(0, dtype=torch.long)
        """Where the tokens of this pass go, counted through all pages."""

    def append(
        self, k_BTGK: Float[Tensor, "B T G K"], v_BTGK: Float[Tensor, "B T G K"]
    ) -> tuple[Float[Tensor, "P C G K"], Float[Tensor, "P C G K"]]:
        """Store the keys and values of the new tokens; return all pages."""
        self.keys_PCGK.flatten(0, 1)[self.slots_T] = k_BTGK[0]
        self.values_PCGK.flatten(0, 1)[self.slots_T] = v_BTGK[0]
        return self.keys_PCGK, self.values_PCGK


class PagedDecoder:
    """Runs a decoder over pages; the decoder itself stays as it is, and shares its weights.

    Args:
        decoder: in evaluation mode, on any device.
        num_pages: of the cache.
        page_size: tokens in a page.
    """

    def __init__(self, decoder: Transformer, num_pages: int, page_size: int) -> None:
        # What deepcopy believes to have copied already, it takes as it is: all weights.
        weights = {id(w): w for w in (*decoder.parameters(), *decoder.buffers())}
        self.decoder = copy.deepcopy(decoder, weights)
        self.decoder.attend_with(self._attend)
        config, self.page_size = decoder.config, page_size
        like = decoder.embedding.new_empty(config.head_size)
        self.layers = [
            PagedCache(num_pages, page_size, config.num_kv_heads, like) for _ in decoder.blocks
        ]
        self._rows: list[tuple[int, int, Tensor]] = []
        """Of this pass: new tokens, tokens so far, and the pages that hold them."""

    @torch.no_grad()
    def logits(self, spans: Sequence[Span]) -> tuple[Float[Tensor, "_ V"], ...]:
        """Compute the new tokens of all rows; return the logits that each row asked for."""
        decoder, device = self.decoder, self.decoder.embedding.device
        ids_BT = torch.tensor([[token for span in spans for token in span.ids]], device=device)
        positions: list[Tensor] = []
        slots: list[Tensor] = []
        wanted: list[int] = []
        num_before, self._rows = 0, []
        for span in spans:
            num_new, end = len(span.ids), span.start + len(span.ids)
            at_T = torch.arange(span.start, end, device=device)
            pages_P = torch.tensor(span.pages, device=device)
            positions.append(at_T)
            slots.append(pages_P[at_T // self.page_size] * self.page_size + at_T % self.page_size)
            self._rows.append((num_new, end, pages_P[: -(-end // self.page_size)]))
            num_before += num_new
            wanted += range(num_before - span.num_logits, num_before)
        slots_T = torch.cat(slots)
        x_BTD = decoder.look_up(ids_BT, decoder.embedding)
        rotations_BTJ2 = decoder.rotations_TJ2[torch.cat(positions)].unsqueeze(0)
        for block, layer in zip(cast("Iterable[Block]", decoder.blocks), self.layers, strict=True):
            layer.slots_T = slots_T
            x_BTD = block(x_BTD, rotations_BTJ2, cache=layer)
        x_BRD = x_BTD[:, wanted]  # the head is a large matrix: not for every token of a prompt
        logits_RV = decoder.project(decoder.norm(x_BRD), decoder.head_weight)[0]
        return logits_RV.split([span.num_logits for span in spans])

    def _attend(
        self,
        q_BTHK: Float[Tensor, "B T H K"],
        k_PCGK: Float[Tensor, "P C G K"],
        v_PCGK: Float[Tensor, "P C G K"],
        *,
        mask: Bool[Tensor, "T S"] | None = None,
    ) -> Float[Tensor, "B T H K"]:
        """Let the queries of every row attend to the pages of that row."""
        parts, start = [], 0
        for num_new, end, pages_P in self._rows:
            k_BSGK, v_BSGK = (x[pages_P].flatten(0, 1)[None, :end] for x in (k_PCGK, v_PCGK))
            parts.append(attention_sdpa(q_BTHK[:, start : start + num_new], k_BSGK, v_BSGK))
            start += num_new
        return torch.cat(parts, dim=1)
