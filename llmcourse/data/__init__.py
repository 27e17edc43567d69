"""Tokens on disk, and how a run reads them: shards, batches, prefetch, packing, mixtures.

Taught in: chapters/09_data_loading.ipynb, chapters/17_targets_and_masks.ipynb, chapters/41_preferences.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.data.mixture import MixtureStage, interleave, per_mille
    from llmcourse.data.order import Batches, permuted, prefetch, random_starts
    from llmcourse.data.packed_order import PackedBatches
    from llmcourse.data.packing import (
        PackedRows,
        Packing,
        Span,
        best_fit,
        concatenate_and_cut,
        one_per_row,
        pack,
        packed_rows,
    )
    from llmcourse.data.prepared import PreparedText, read_prepared
    from llmcourse.data.ramp import RampedBatches, RampStage, ramp_of
    from llmcourse.data.raw_tokens import read_raw_tokens
    from llmcourse.data.settings import Corpus, MixedText, OneSource, OwnText, RawFiles, Text
    from llmcourse.data.shard_file import LAYOUT, read_header
    from llmcourse.data.shards import ShardWriter, TokenShards, write_shards


lazy(__name__)
