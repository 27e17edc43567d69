"""Collectives from send and receive alone, for sums, along one axis of the mesh.

A tensor of N rows is cut into n chunks, one per rank (`chunk_sizes`).  Every function takes the
axis second, and every rank of the axis has to call it with the same shape and dtype, else a
`world.MismatchError` says who called what.  Sums are made in the dtype of the tensor, so sums of
bfloat16 lose digits with every rank: widen first if that matters.

Taught in: chapters/22_collectives.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.collectives.chunks import (
        all_gather,
        all_to_all,
        reduce_scatter,
    )
    from llmcourse.parallel.collectives.sums import (
        ALGORITHMS,
        all_reduce,
        all_reduce_naive,
        all_reduce_ordered,
        all_reduce_ring,
        all_reduce_tree,
    )
    from llmcourse.parallel.collectives.trees import broadcast, reduce
    from llmcourse.parallel.legal import chunk_sizes

lazy(__name__)
