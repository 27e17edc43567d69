"""Numbers of few bits: formats, rounding, scales, master weights, and what autocast leaves alone.

Taught in: chapters/27_mixed_precision.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.precision.formats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, FloatFormat
    from llmcourse.precision.master import MasterWeights
    from llmcourse.precision.policy import POLICY, autocast_dtype
    from llmcourse.precision.rounding import bits_of, decode, encode, round_to
    from llmcourse.precision.scaling import LossScaler, Scaled, quantize

__all__ = [
    "BF16",
    "E4M3",
    "E5M2",
    "FORMATS",
    "FP16",
    "FP32",
    "POLICY",
    "FloatFormat",
    "LossScaler",
    "MasterWeights",
    "Scaled",
    "autocast_dtype",
    "bits_of",
    "decode",
    "encode",
    "quantize",
    "round_to",
]

lazy(__name__)
