"""Where a run's weights, gradients and moments are: in one process, copied, in shards, on a mesh.

A layout is made before the run, of a model and an optimizer that are whole, and owns what differs
from layout to layout: how a batch is learnt from, how gradients are synchronised and clipped, and
what is saved.  Whatever the layout, a run's checkpoint is that of one process: it may go on in any
other.

Taught in: chapters/15_splitting_the_model.ipynb, chapters/23_data_parallel.ipynb, chapters/24_zero.ipynb, chapters/30_checkpoints.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from collections.abc import Callable
from functools import partial

from llmcourse.model import Transformer
from llmcourse.optim import AdamW
from llmcourse.parallel.world import Rank
from llmcourse.train.config import TrainConfig
from llmcourse.train.layouts.data import DataParallel
from llmcourse.train.layouts.mesh import OnMesh, OnMeshWithZero
from llmcourse.train.layouts.one import Batch, Layout, Losses, Prediction
from llmcourse.train.layouts.zero import ShardedModel, ShardedOptimizer

MakeLayout = Callable[[TrainConfig, Transformer, AdamW], Layout]
"""Makes a layout of a model and its optimizer, which are whole and the same on every rank."""


def layout_on(rank: Rank, config: TrainConfig) -> MakeLayout:
    """Return what makes this rank's part of a run on several ranks."""
    if config.mesh:
        return partial(OnMesh if config.parallel == "ddp" else OnMeshWithZero, rank=rank)
    kinds = {"ddp": DataParallel, "zero3": ShardedModel}
    return partial(kinds.get(config.parallel, ShardedOptimizer), axis=rank.axis("dp"))


__all__ = [
    "Batch",
    "DataParallel",
    "Layout",
    "Losses",
    "MakeLayout",
    "OnMesh",
    "OnMeshWithZero",
    "Prediction",
    "ShardedModel",
    "ShardedOptimizer",
    "layout_on",
]
