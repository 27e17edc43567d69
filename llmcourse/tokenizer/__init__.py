"""Byte-level BPE: training, encoding, decoding, and GPT-2's file format.

Taught in: chapters/05_tokens.ipynb
"""

from llmcourse.tokenizer.encoding import Tokenizer, byte_characters
from llmcourse.tokenizer.patterns import GPT2
from llmcourse.tokenizer.training import count_words, train_bpe, train_bpe_naive

__all__ = [
    "GPT2",
    "Tokenizer",
    "byte_characters",
    "count_words",
    "train_bpe",
    "train_bpe_naive",
]
