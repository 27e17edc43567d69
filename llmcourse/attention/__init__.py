"""Attention: rotary positions, masks, three equal forms, and their backward passes.

Taught in: chapters/11_attention.ipynb, chapters/13_norm_rope_silu.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.attention.backward import (
        AttentionSaved,
        attention_backward,
        attention_forward,
        sum_over_group,
    )
    from llmcourse.attention.dense import attention, attention_sdpa, attention_weights, repeat_kv
    from llmcourse.attention.flash import (
        FlashAttention,
        FlashSaved,
        attention_flash,
        flash_backward,
        flash_forward,
    )
    from llmcourse.attention.masks import causal_mask, document_mask, sliding_window_mask
    from llmcourse.attention.rotary import (
        halves_from_adjacent,
        rope_adjacent,
        rope_adjacent_backward,
        rope_halves,
        rope_rotations,
    )
    from llmcourse.attention.tiled import (
        OnlineSoftmax,
        attention_tiled,
        online_softmax_add,
        online_softmax_start,
    )

__all__ = [
    "AttentionSaved",
    "FlashAttention",
    "FlashSaved",
    "OnlineSoftmax",
    "attention",
    "attention_backward",
    "attention_flash",
    "attention_forward",
    "attention_sdpa",
    "attention_tiled",
    "attention_weights",
    "causal_mask",
    "document_mask",
    "flash_backward",
    "flash_forward",
    "halves_from_adjacent",
    "online_softmax_add",
    "online_softmax_start",
    "repeat_kv",
    "rope_adjacent",
    "rope_adjacent_backward",
    "rope_halves",
    "rope_rotations",
    "sliding_window_mask",
    "sum_over_group",
]

lazy(__name__)
