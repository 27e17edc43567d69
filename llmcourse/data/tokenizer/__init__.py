"""Byte-level BPE: training, encoding, decoding, and GPT-2's file format.

Taught in: chapters/05_tokens.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.data.tokenizer.encoding import Tokenizer
    from llmcourse.data.tokenizer.files import byte_characters
    from llmcourse.data.tokenizer.merging import (
        MergePasses,
        MergeRules,
        in_order,
        merge_long_word,
        merge_word,
    )
    from llmcourse.data.tokenizer.patterns import GPT2, LLAMA3, Cutter, read_text
    from llmcourse.data.tokenizer.training import count_words, train_bpe, train_bpe_naive

lazy(__name__)
