"""Tokens on disk, and how a run reads them: shards, batches, prefetch, packing, conversations.

Taught in: chapters/09_data_loading.ipynb, chapters/17_targets_and_masks.ipynb, chapters/36_long_context.ipynb, chapters/40_sft.ipynb, chapters/41_preferences.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.data.chat import (
        CHAT_TOKENS,
        ChatTokens,
        Turn,
        answer_mask,
        chat_tokens,
        with_chat_tokens,
    )
    from llmcourse.data.needles import NeedleRows, needle_rows, needle_tests
    from llmcourse.data.order import Batches, permuted, prefetch, random_starts
    from llmcourse.data.packed_order import PackedBatches
    from llmcourse.data.packing import (
        PackedRows,
        Packing,
        Piece,
        best_fit,
        concatenate_and_cut,
        one_per_row,
        pack,
        packed_rows,
    )
    from llmcourse.data.preferences import (
        RIGHT_STYLES,
        STYLES,
        Pair,
        Style,
        mixed_answers,
        preference_pairs,
        preferred,
        styled,
        utility,
        wrong_answers,
    )
    from llmcourse.data.prepare import PreparedText, prepare_text, read_prepared
    from llmcourse.data.ramp import Bite, RampedBatches, ramp_of
    from llmcourse.data.raw_tokens import read_raw_tokens
    from llmcourse.data.shards import ShardWriter, TokenShards, write_shards
    from llmcourse.data.tasks import Task, check, in_format, make_tasks, part_of

lazy(__name__)
