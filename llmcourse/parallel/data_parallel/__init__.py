"""Data parallelism: every rank has the whole model, and its own part of the batch.

All ranks start from rank 0's weights.  Each finds the gradient of its own part; `sync` replaces it
by the mean over the ranks,

    g = (g_0 + g_1 + ... + g_{n-1}) / n,

which is the gradient of the whole batch where the parts are equally large.  The same step of the
same optimizer then keeps the weights equal, without sending any of them again.  `NaiveDDP` says
this in a few lines; `BucketedDDP` sends few large messages, while backward is still running.

A parameter without a gradient on some ranks (a branch not taken) counts as zero there.  Whether any
rank has a gradient travels beside the gradients, so that all agree on it.

Taught in: chapters/23_data_parallel.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.data_parallel.bucketed import BucketedDDP
    from llmcourse.parallel.data_parallel.buckets import cut_buckets, sum_gradients
    from llmcourse.parallel.data_parallel.replica import NaiveDDP, Replica, broadcast_tensors

lazy(__name__)
