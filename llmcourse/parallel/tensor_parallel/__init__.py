"""Tensor parallelism: every rank has a slice of each matrix, and all ranks work on each token.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.tensor_parallel.layers import (
        vocabulary_parallel_embedding,
        vocabulary_parallel_linear,
    )
    from llmcourse.parallel.tensor_parallel.loss import cross_entropy, token_losses
    from llmcourse.parallel.tensor_parallel.nodes import (
        all_reduce_max,
        f,
        g,
        gather_time,
        scatter_time,
    )
    from llmcourse.parallel.tensor_parallel.shape import check_shape
    from llmcourse.parallel.tensor_parallel.sharding import owned_parameters, shard, sync
    from llmcourse.parallel.tensor_parallel.table import (
        TABLE,
        Style,
        join,
        slice_of,
        style_of,
        summed_over,
    )

lazy(__name__)
