"""A Llama: configuration and presets, the decoder, sampling, ablations.

Taught in: chapters/02_step_by_hand.ipynb, chapters/10_blueprint.ipynb, chapters/11_attention.ipynb, chapters/12_feed_forward.ipynb, chapters/13_norm_rope_silu.ipynb, chapters/14_mixture_of_experts.ipynb, chapters/16_cross_entropy.ipynb, chapters/19_llama_backward.ipynb, chapters/28_stability.ipynb, chapters/36_long_context.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.model.ablation import PARTS, Part, without
    from llmcourse.model.config import (
        PRESETS,
        ModelConfig,
        llama3_8b,
        llama3_70b,
        llama3_405b,
        mixtral_8x7b,
        stories,
        tiny,
        tiny_moe,
    )
    from llmcourse.model.decoder import (
        Attention,
        Block,
        Dropout,
        FeedForward,
        HoldsRotations,
        KVCache,
        RMSNorm,
        Transformer,
        auxiliary_loss,
    )
    from llmcourse.model.ops import linear_backward
    from llmcourse.model.sampling import generate, next_token_probabilities
    from llmcourse.model.shapes import whole_shapes

lazy(__name__)
