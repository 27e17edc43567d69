"""Attention: rotary positions, masks, three equal forms, their backward passes, latent attention.

Taught in: chapters/11_attention.ipynb, chapters/13_norm_rope_silu.ipynb, chapters/17_targets_and_masks.ipynb, chapters/19_llama_backward.ipynb, chapters/36_long_context.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.model.attention.backward import (
        AttentionSaved,
        attention_backward,
        attention_forward,
        sum_over_group,
    )
    from llmcourse.model.attention.dense import (
        attention,
        attention_sdpa,
        attention_weights,
        repeat_kv,
    )
    from llmcourse.model.attention.flash import (
        FlashAttention,
        FlashSaved,
        attention_flash,
        flash_backward,
        flash_forward,
    )
    from llmcourse.model.attention.masks import causal_mask, document_mask, sliding_window_mask
    from llmcourse.model.attention.rope_scaling import LLAMA_3_1, RopeScaling
    from llmcourse.model.attention.rotary import (
        halves_from_adjacent,
        rope_adjacent,
        rope_adjacent_backward,
        rope_frequencies,
        rope_halves,
        rope_rotations,
    )
    from llmcourse.model.attention.tiled import (
        OnlineSoftmax,
        attention_tiled,
        online_softmax_add,
        online_softmax_start,
        tiled_with_logsumexp,
    )

lazy(__name__)
