"""The loss: cross-entropy, what it is asked of which tokens, and the units it is reported in.

Taught in: chapters/02_step_by_hand.ipynb, chapters/16_cross_entropy.ipynb, chapters/17_targets_and_masks.ipynb, chapters/19_llama_backward.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.loss.chunked import (
        ChunkedSaved,
        chunked_backward,
        chunked_forward,
        cross_entropy_chunked,
    )
    from llmcourse.loss.cross_entropy import (
        IGNORE_INDEX,
        CrossEntropySaved,
        LogSumExpPart,
        counted_tokens,
        cross_entropy,
        logsumexp,
        logsumexp_naive,
        logsumexp_part,
        merge_parts,
        token_losses,
        token_losses_backward,
        token_losses_forward,
    )
    from llmcourse.loss.targets import (
        count_targets,
        mask_from_roles,
        multi_token_loss,
        shifted_targets,
        z_loss,
    )
    from llmcourse.loss.units import bits_per_byte, perplexity

lazy(__name__)
