"""ZeRO: what data parallelism keeps on every rank is shared out."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer

from llmcourse.checkpoint.flat import moment_name
from llmcourse.model import Transformer
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero import FullyShardedModel, ZeroOptimizer
from llmcourse.parallel.zero.states import Pieces
from llmcourse.train.config import TrainConfig
from llmcourse.train.layouts.data import AlongAxis
from llmcourse.train.layouts.one import CheckpointShard, even_shard


class ShardedOptimizer(AlongAxis):
    """ZeRO's stages 1 and 2: every rank keeps the moments, and then the gradient, of its shard."""

    optimizer: ZeroOptimizer

    def __init__(
        self, config: TrainConfig, model: Transformer, optimizer: Optimizer, *, axis: Axis
    ) -> None:
        stage = int(config.layout.parallel.removeprefix("zero"))
        groups = config.optimizer.groups(model)
        sharded = ZeroOptimizer(
            groups, config.optimizer.kind, axis, stage=stage, **config.optimizer_arguments
        )
        sharded.load_full_state_dict(optimizer.state_dict())
        super().__init__(config, model, sharded, axis=axis)

    def sync(self) -> None:
        """Leave every rank the averaged gradient of its shard."""
        self.optimizer.sync()

    def clip(self) -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        return self.optimizer.clip_grad_norm(self.config.clip_norm)

    def states(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        return self.model.state_dict(), self.optimizer.full_state_dict()

    def part(self) -> CheckpointShard:
        """Return what this rank writes of a checkpoint in shards."""
        weights = even_shard(self.model.state_dict(), None, index=self.index, size=self.size)
        return _with_moments(weights, *self.optimizer.state_pieces())


class ShardedModel(AlongAxis):
    """ZeRO's stage 3: every rank keeps its shard of everything; a block is whole while it runs.

    Gradients are averaged in backward, block by block, so nothing is left to synchronise.
    """

    model: FullyShardedModel

    def __init__(
        self, config: TrainConfig, model: Transformer, optimizer: Optimizer, *, axis: Axis
    ) -> None:
        # The groups are made while matrices still look like matrices.
        groups = config.optimizer.groups(model)
        sharded = FullyShardedModel(model, axis, units=list(model.blocks))
        of_shards = config.optimizer.kind(groups, **config.optimizer_arguments)
        sharded.load_full_optimizer_state(of_shards, optimizer.state_dict())
        super().__init__(config, sharded, of_shards, axis=axis)

    def clip(self) -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        return self.model.clip_grad_norm(self.config.clip_norm)

    @contextlib.contextmanager
    def full_model(self) -> Iterator[nn.Module]:
        """Give the model with all its weights, to be read and run."""
        with self.model.gathered() as model:
            yield model

    def states(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        return self.model.full_state_dict(), self.model.full_optimizer_state(self.optimizer)

    def part(self) -> CheckpointShard:
        """Return what this rank writes of a checkpoint in shards."""
        pieces, shapes = self.model.weight_pieces()
        weights = CheckpointShard(
            {f"model.{name}": piece for name, piece in pieces.items()},
            {f"model.{name}": tuple(shape) for name, shape in shapes.items()},
            {"model": {}},
        )
        return _with_moments(weights, *self.model.optimizer_pieces(self.optimizer))


def _with_moments(
    weights: CheckpointShard, moments: Pieces, groups: list[dict[str, Any]]
) -> CheckpointShard:
    """Add a rank's pieces of an optimizer's state to those of the weights."""
    pieces = {moment_name(*name): piece for name, piece in moments.mine.items()}
    shapes = {moment_name(*name): tuple(shape) for name, shape in moments.shapes.items()}
    rest = {"optimizer": {"state": moments.rest, "param_groups": groups}}
    return CheckpointShard(weights.pieces | pieces, weights.shapes | shapes, weights.rest | rest)
