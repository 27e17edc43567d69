"""What comes after pretraining, and training on what a model wrote.

Taught in: chapters/08_synthetic_data.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.posttrain.self_training import (
        Generation,
        Verified,
        generations,
        is_grammatical,
        rare_tokens,
        tail_loss,
        verify_and_keep,
        write_documents,
    )

lazy(__name__)
