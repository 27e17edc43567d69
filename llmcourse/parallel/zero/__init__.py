"""ZeRO: data parallelism in which no rank keeps what another one keeps already.

Stage 1 shards the optimizer state, stage 2 gradients as well, stage 3 parameters too.

Taught in: chapters/24_zero.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.zero.flat_layout import FlatLayout
    from llmcourse.parallel.zero.optimizer import ZeroOptimizer
    from llmcourse.parallel.zero.sharded import FullyShardedModel

lazy(__name__)
