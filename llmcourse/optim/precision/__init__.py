"""Numbers of few bits: formats, rounding, scales, master weights, and what autocast leaves alone.

Taught in: chapters/27_mixed_precision.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.optim.precision.formats import (
        BF16,
        E2M1,
        E4M3,
        E5M2,
        FORMATS,
        FP16,
        FP32,
        FloatFormat,
    )
    from llmcourse.optim.precision.policy import POLICY, autocast_dtype
    from llmcourse.optim.precision.rounding import bits_of, decode, encode, round_to
    from llmcourse.optim.precision.scaling import LossScaler, Scaled, quantize

lazy(__name__)
