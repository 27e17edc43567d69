"""Data parallelism: every rank holds everything, and learns from its share of each batch."""

import contextlib

import torch
from torch import nn
from torch.optim import Optimizer

from llmcourse.model import Transformer
from llmcourse.parallel import collectives
from llmcourse.parallel.data_parallel import BucketedDDP
from llmcourse.parallel.world import Axis
from llmcourse.train.config import TrainConfig
from llmcourse.train.layouts.one import Layout


class AlongAxis(Layout):
    """A layout over the ranks of one axis, each with its share of every batch.

    Args:
        config: of the run.
        model: whole, and the same on every rank.
        optimizer: of the whole model.
        axis: the ranks.
    """

    def __init__(
        self, config: TrainConfig, model: nn.Module, optimizer: Optimizer, *, axis: Axis
    ) -> None:
        super().__init__(config, model, optimizer)
        self.axis, self.index, self.size = axis, axis.index, axis.size
        self.share, self.num_shares = axis.index, axis.size

    def _sum(self, value: float) -> float:
        return collectives.all_reduce_ordered(torch.tensor([value]).double(), self.axis).item()


class DataParallel(AlongAxis):
    """Copies of model and optimizer; gradients are averaged while backward goes on."""

    def __init__(
        self, config: TrainConfig, model: Transformer, optimizer: Optimizer, *, axis: Axis
    ) -> None:
        super().__init__(config, model, optimizer, axis=axis)
        self.replica = BucketedDDP(model, axis)

    def gradients_kept_back(self) -> contextlib.AbstractContextManager[None]:
        """Send no bucket before the last micro-batch."""
        return self.replica.no_sync()

    def sync(self) -> None:
        """Wait until every bucket of gradients is averaged."""
        self.replica.sync()
