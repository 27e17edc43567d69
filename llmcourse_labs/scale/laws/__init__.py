"""Laws that small runs give and large ones follow: of the mixture, of size, data and compute.

Taught in: chapters/07_mixture.ipynb, chapters/33_epochs.ipynb, chapters/34_scaling_laws.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.laws.grid import Grid, Run, columns, read_grid, recorded_grid
    from llmcourse_labs.scale.laws.isoflop import (
        LLAMA3_BUDGET_FLOP,
        LLAMA3_FIGURE,
        LLAMA3_PRINTED,
        PowerLaw,
        Valley,
        power_law,
        valley,
    )
    from llmcourse_labs.scale.laws.kaplan import KAPLAN_PUBLISHED, KaplanLaw
    from llmcourse_labs.scale.laws.mixing import MixingLaw
    from llmcourse_labs.scale.laws.parametric import (
        CHINCHILLA_PRINTED,
        CHINCHILLA_REPLICATED,
        CHINCHILLA_TEX,
        Interval,
        Optimum,
        ParametricLaw,
        interval,
        intervals,
    )
    from llmcourse_labs.scale.laws.repetition import effective_tokens

lazy(__name__)
