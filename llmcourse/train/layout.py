"""Where a run's weights, gradients and moments are: on one rank, copied, or in shards.

Whatever the layout, a run's checkpoint is that of one process: it may go on in any other layout.

Taught in: chapters/23_data_parallel.ipynb, chapters/24_zero.ipynb
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from llmcourse.checkpoint.flat import moment_name
from llmcourse.data import Batches
from llmcourse.optim import AdamW, clip_by_global_norm, decay_groups
from llmcourse.parallel import collectives
from llmcourse.parallel.data_parallel import BucketedDDP
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero import FullyShardedModel, ZeroOptimizer
from llmcourse.parallel.zero.states import Pieces
from llmcourse.train import saving
from llmcourse.train.config import Parallel

if TYPE_CHECKING:
    from llmcourse.train.phases import Batch, Run


class Layout:
    """One process that holds everything: what every other layout has to be equal to."""

    index, size = 0, 1
    """Of this rank, and how many there are."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes what the run leaves behind."""
        return self.index == 0

    def clip(self, run: "Run") -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        return clip_by_global_norm(run.model.parameters(), run.config.clip_norm)

    @contextlib.contextmanager
    def whole_model(self, run: "Run") -> Iterator[nn.Module]:
        """Give the model with all its weights, to be read and run."""
        yield run.model

    def states(self, run: "Run") -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        return run.model.state_dict(), run.optimizer.state_dict()

    def part(self, run: "Run") -> saving.Part:
        """Return what this rank writes of a checkpoint in shards."""
        return saving.even_part(*self.states(run), index=self.index, size=self.size)

    def save(self, run: "Run") -> Path | None:
        """Write a checkpoint; return its path on the first rank."""
        sharded = run.config.save_in_shards
        return saving.save_in_shards(run) if sharded else saving.save_whole(run)

    def told_by_first(self, number: int) -> int:
        """Return the first rank's number on every rank."""
        return int(self._sum(float(number if self.is_first else 0)))

    def mean(self, value: float) -> float:
        """Return the mean of a number over the ranks."""
        return self._sum(value) / self.size

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set on any rank, the same answer on all of them."""
        return self._sum(float(flag)) > 0

    def _sum(self, value: float) -> float:
        """Return the sum of a number over the ranks."""
        return value


class InMicroBatches(Layout):
    """A layout in which forward, loss and backward alternate, micro-batch by micro-batch."""

    def forward_and_backward(self, run: "Run", batch: "Batch") -> float:
        """Phases 2 to 4: leave this rank's gradient with its parameters; return its loss."""
        raise NotImplementedError


class DataParallel(Layout):
    """Every rank holds everything, and learns from its share of each batch."""

    def __init__(self, run: "Run", axis: Axis) -> None:
        self.axis, self.index, self.size = axis, axis.index, axis.size
        share_batches(run, axis.index, axis.size)
        run.layout = self
        self._share_out(run)

    def _sum(self, value: float) -> float:
        return collectives.all_reduce_ordered(torch.tensor([value]).double(), self.axis).item()

    def _share_out(self, run: "Run") -> None:
        """Put this layout's model, optimizer and synchronisation in place of those of one rank."""
        replica = BucketedDDP(run.model, self.axis)
        run.all_reduce = lambda _: replica.sync()


class ShardedOptimizer(DataParallel):
    """ZeRO's stages 1 and 2: every rank keeps the moments, and then the gradient, of its shard."""

    def __init__(self, run: "Run", axis: Axis, *, stage: int) -> None:
        self.stage = stage
        super().__init__(run, axis)

    def clip(self, run: "Run") -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        return run.optimizer.clip_grad_norm(run.config.clip_norm)

    def states(self, run: "Run") -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        return run.model.state_dict(), run.optimizer.full_state_dict()

    def part(self, run: "Run") -> saving.Part:
        """Return what this rank writes of a checkpoint in shards."""
        weights = saving.even_part(run.model.state_dict(), None, index=self.index, size=self.size)
        return _with_moments(weights, *run.optimizer.state_pieces())

    def _share_out(self, run: "Run") -> None:
        whole = run.optimizer
        groups = decay_groups(run.model, weight_decay=run.config.weight_decay)
        run.optimizer = ZeroOptimizer(
            groups, AdamW, self.axis, stage=self.stage, lr=whole.defaults["lr"], betas=_betas(run)
        )
        run.optimizer.load_full_state_dict(whole.state_dict())
        run.all_reduce = lambda _: run.optimizer.sync()


class ShardedModel(DataParallel):
    """ZeRO's stage 3: every rank keeps its shard of everything; a block is whole while it runs."""

    def clip(self, run: "Run") -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        return run.model.clip_grad_norm(run.config.clip_norm)

    @contextlib.contextmanager
    def whole_model(self, run: "Run") -> Iterator[nn.Module]:
        """Give the model with all its weights, to be read and run."""
        with run.model.gathered() as model:
            yield model

    def states(self, run: "Run") -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        return run.model.full_state_dict(), run.model.full_optimizer_state(run.optimizer)

    def part(self, run: "Run") -> saving.Part:
        """Return what this rank writes of a checkpoint in shards."""
        pieces, shapes = run.model.weight_pieces()
        weights = saving.Part(
            {f"model.{name}": piece for name, piece in pieces.items()},
            {f"model.{name}": tuple(shape) for name, shape in shapes.items()},
            {"model": {}},
        )
        return _with_moments(weights, *run.model.optimizer_pieces(run.optimizer))

    def _share_out(self, run: "Run") -> None:
        whole = run.optimizer.state_dict()
        # The groups are made while matrices still look like matrices.
        groups = decay_groups(run.model, weight_decay=run.config.weight_decay)
        run.model = FullyShardedModel(run.model, self.axis, units=list(run.model.blocks))
        run.optimizer = AdamW(groups, lr=run.config.learning_rate, betas=_betas(run))
        run.model.load_full_optimizer_state(run.optimizer, whole)
        run.all_reduce = lambda _: None  # backward has done it


def share_batches(run: "Run", index: int, size: int) -> None:
    """Let a run read a rank's share of every batch, from where it stands."""
    state = run.batches.state_dict()
    run.batches = Batches(
        run.prepared.training,
        batch_size=run.config.batch_size // size,
        context_length=run.config.model.context_length,
        rank=index,
        world_size=size,
        seed=run.config.seed,
    )
    run.batches.load_state_dict(state)


def spread(run: "Run", axis: Axis, parallel: Parallel) -> None:
    """Turn a run of one process into this rank's part of a run on all ranks of an axis.

    Args:
        run: built, or restored, the same on every rank.
        axis: the ranks.
        parallel: what they share.
    """
    if parallel == "ddp":
        DataParallel(run, axis)
    elif parallel == "zero3":
        ShardedModel(run, axis)
    else:
        ShardedOptimizer(run, axis, stage=int(parallel[-1]))


def _with_moments(
    weights: saving.Part, moments: Pieces, groups: list[dict[str, Any]]
) -> saving.Part:
    """Add a rank's pieces of an optimizer's state to those of the weights."""
    pieces = {moment_name(*name): piece for name, piece in moments.mine.items()}
    shapes = {moment_name(*name): tuple(shape) for name, shape in moments.shapes.items()}
    rest = {"optimizer": {"state": moments.rest, "param_groups": groups}}
    return saving.Part(weights.pieces | pieces, weights.shapes | shapes, weights.rest | rest)


def _betas(run: "Run") -> tuple[float, float]:
    return run.config.beta1, run.config.beta2
