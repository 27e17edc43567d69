"""An engine that differentiates: on single numbers, to be understood, then on arrays, to be used.

Taught in: chapters/18_backpropagation.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.autodiff.array import Array
    from llmcourse.autodiff.order import topological_order
    from llmcourse.autodiff.scalar import Value

__all__ = ["Array", "Value", "topological_order"]

lazy(__name__)
