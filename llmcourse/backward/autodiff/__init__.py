"""An engine that differentiates: on single numbers, to be understood, then on arrays, to be used.

Taught in: chapters/18_backpropagation.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.backward.autodiff.array import Array
    from llmcourse.backward.autodiff.order import topological_order
    from llmcourse.backward.autodiff.scalar import Value

lazy(__name__)
