"""Byte-level BPE: training, encoding, decoding, and GPT-2's file format.

Taught in: chapters/05_tokens.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.tokenizer.encoding import Tokenizer
    from llmcourse.tokenizer.files import byte_characters
    from llmcourse.tokenizer.merging import MergeRules, merge_long_word, merge_word
    from llmcourse.tokenizer.patterns import GPT2, LLAMA3, Cutter, read_text
    from llmcourse.tokenizer.training import count_words, train_bpe, train_bpe_naive

__all__ = [
    "GPT2",
    "LLAMA3",
    "Cutter",
    "MergeRules",
    "Tokenizer",
    "byte_characters",
    "count_words",
    "merge_long_word",
    "merge_word",
    "read_text",
    "train_bpe",
    "train_bpe_naive",
]

lazy(__name__)
