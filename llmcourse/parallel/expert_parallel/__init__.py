"""Expert parallelism: every rank keeps some of the experts, and rows travel to those they chose.

A layer sends rows twice in forward, to the experts and back, and gradients twice in backward, the
same ways reversed.  What a rank sends depends on the router: counts differ from step to step.

Every rank of the axis has tokens of its own.  Weights that all ranks hold (router, attention,
norms) are copies, as in data parallelism, and their gradients have to be averaged over the axis;
an expert's gradient is complete on the rank that owns it, since all rows came there.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.expert_parallel.exchange import all_to_all
    from llmcourse.parallel.expert_parallel.experts import ParallelExperts
    from llmcourse.parallel.expert_parallel.shard import (
        check_experts,
        owned_parameters,
        shard_experts,
        slice_of,
        sync_gradients,
    )

lazy(__name__)
