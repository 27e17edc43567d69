"""Where a run's weights, gradients and moments are: in one process, copied, in shards, on a mesh.

A layout is made before the run, of a model and an optimizer that are whole, and owns what differs
from layout to layout: how a batch is learnt from, how gradients are synchronised and clipped, and
what is saved.  Whatever the layout, a run's checkpoint is that of one process: it may go on in any
other.

Taught in: chapters/23_data_parallel.ipynb, chapters/32_batch_size.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.train.layouts.choice import layout_on
    from llmcourse.train.layouts.data import AlongAxis, DataParallel
    from llmcourse.train.layouts.mesh import OnMesh, OnMeshWithZero
    from llmcourse.train.layouts.one import Batch, Layout, Losses, MakeLayout, Prediction
    from llmcourse.train.layouts.zero import ShardedModel, ShardedOptimizer

lazy(__name__)
