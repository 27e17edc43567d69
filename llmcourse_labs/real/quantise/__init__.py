"""Weights and caches in a few bits: rounded to nearest or by GPTQ, packed, multiplied, written.

Taught in: chapters/47_few_bits.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.real.quantise.cache import RoundedCache, rounded_cache, rounded_tokens
    from llmcourse_labs.real.quantise.decoder import (
        READ_BY,
        RoundedDecoder,
        inputs_of,
        round_decoder,
    )
    from llmcourse_labs.real.quantise.gptq import gptq, inverse_factor
    from llmcourse_labs.real.quantise.grid import Grid, Rounded, nearest
    from llmcourse_labs.real.quantise.merge import MergeLoss, merge_loss
    from llmcourse_labs.real.quantise.packed import pack

lazy(__name__)
