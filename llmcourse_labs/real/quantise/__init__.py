"""Weights and caches in a few bits: rounded to nearest or by GPTQ, packed, multiplied, written."""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.real.quantise.decoder import RoundedDecoder, round_decoder
    from llmcourse_labs.real.quantise.gptq import gptq, inverse_factor
    from llmcourse_labs.real.quantise.grid import Grid, Rounded, nearest

lazy(__name__)
