"""Every kind of parallelism at once: a mesh of ranks, and what each of them holds and does.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.mesh.names import AXES, Pipeline, parse
    from llmcourse.parallel.mesh.part import LocalModel
    from llmcourse.parallel.mesh.split import Split
    from llmcourse.parallel.mesh.whole import (
        Cut,
        cut,
        cut_of,
        join,
        layers_of,
        names_of,
        whole_shapes,
    )

lazy(__name__)
