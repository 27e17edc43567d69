"""Laws that small runs give and large ones follow: what a mixture of sources does to the loss.

Taught in: chapters/07_mixture.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.scale.laws.mixing import MixingLaw

lazy(__name__)
