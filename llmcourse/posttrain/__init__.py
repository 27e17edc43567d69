"""What comes after pretraining: learning to answer, and training on what a model wrote.

Taught in: chapters/08_synthetic_data.ipynb, chapters/40_sft.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.posttrain.conversation import Conversation, load_for_chat
    from llmcourse.posttrain.likelihood import (
        AnswerRows,
        answer_log_probs,
        answer_rows,
        token_log_probs,
    )
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
    from llmcourse.posttrain.sft import Score, answers, judge, prompt_ids, score, sft_config

lazy(__name__)
