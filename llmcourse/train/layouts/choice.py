"""Which layout a run on several ranks has."""

from functools import partial

from llmcourse.parallel.world import Rank
from llmcourse.train.config import TrainConfig
from llmcourse.train.layout_settings import MeshRanks
from llmcourse.train.layouts.data import DataParallel
from llmcourse.train.layouts.mesh import OnMesh, OnMeshWithZero
from llmcourse.train.layouts.one import MakeLayout
from llmcourse.train.layouts.zero import ShardedModel, ShardedOptimizer


def layout_on(rank: Rank, config: TrainConfig) -> MakeLayout:
    """Return what makes this rank's part of a run on several ranks."""
    if isinstance(config.layout, MeshRanks):
        return partial(OnMesh if config.layout.parallel == "ddp" else OnMeshWithZero, rank=rank)
    kinds = {"ddp": DataParallel, "zero3": ShardedModel}
    return partial(kinds.get(config.layout.parallel, ShardedOptimizer), axis=rank.axis("dp"))
