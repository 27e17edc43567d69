"""Tokens on disk, and the order in which a run reads them: shards, batches, prefetch, packing.

Taught in: chapters/09_data_loading.ipynb
"""

from llmcourse.data.order import Batches, permuted, prefetch
from llmcourse.data.packing import (
    Packing,
    Piece,
    concatenate_and_cut,
    one_per_row,
    pack,
    padding_efficiency,
)
from llmcourse.data.shards import TokenShards, write_shards

__all__ = [
    "Batches",
    "Packing",
    "Piece",
    "TokenShards",
    "concatenate_and_cut",
    "one_per_row",
    "pack",
    "padding_efficiency",
    "permuted",
    "prefetch",
    "write_shards",
]
