"""A run on a mesh: every rank has a part of the model, and of the batch."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from llmcourse.model import Transformer
from llmcourse.parallel import collectives, mesh
from llmcourse.parallel.world import Rank
from llmcourse.parallel.zero import ZeroOptimizer
from llmcourse.train.config import TrainConfig
from llmcourse.train.layout_settings import MeshRanks
from llmcourse.train.layouts.one import Batch, Layout, Losses, document_inputs

WEIGHT = "weight"
"""The name of a weight in the states that a mesh cuts and joins, beside those of its moments."""


class OnMesh(Layout):
    """This rank's part of a run that is split over the axes of a mesh.

    Args:
        config: of the run.
        model: whole, and the same on every rank; it is taken apart.
        optimizer: of the whole model.
        rank: with the axes of the run's mesh.
    """

    model: mesh.LocalModel
    summed: tuple[str, ...] = ("cp", "ep", "dp")
    """The axes along which the model's part sums gradients."""
    sharing_norm: tuple[str, ...] = ("tp", "ep", "pp")
    """The axes whose ranks have different parts of the gradient."""

    def __init__(
        self, config: TrainConfig, model: Transformer, optimizer: Optimizer, *, rank: Rank
    ) -> None:
        assert isinstance(config.layout, MeshRanks)
        self.rank, self.split = rank, config.layout.split(config.batch_size)
        self.index, self.size = rank.index, rank.size
        self.share = rank.place["dp"] * self.split.ep + rank.place["ep"]
        self.num_shares = self.split.batch_shares
        # Moments go by the names of their parameters, which a part of the model shares with it.
        self._whole_names = _grouped_names(model, config.optimizer.groups(model))
        moments = _by_name(optimizer.state_dict()["state"], self._whole_names)
        part = mesh.LocalModel(model, rank, self.split)
        groups = config.optimizer.groups(part)
        self._names = _grouped_names(part, groups)
        super().__init__(config, part, self._optimizer_of(groups, config))
        held = list(itertools.chain(*self._names))
        self._load(mesh.cut(moments, held, config.model, self.split, rank.place))

    joins_phases = True
    """In a pipeline forward, loss and backward of the micro-batches alternate."""

    def forward_backward(self, batch: Batch) -> Losses:
        """Do phases 2 to 4, micro-batch by micro-batch, in the order of the schedule.

        What is returned is this rank's share of the loss, of which `mean` makes the loss.
        """
        nats = self.model.forward_and_backward(
            batch.inputs_BT,
            batch.targets_BT,
            # Of packed rows, tokens that end a document ask for nothing: they are counted.
            num_tokens=self.config.batch_size * self.config.model.context_length
            if batch.documents_BT is None
            else self._num_targets(batch),
            autocast=torch.bfloat16 if self.config.precision == "bf16" else None,
            apart=document_inputs(batch),
        )
        value = torch.tensor(nats, dtype=torch.float64)
        return Losses(value, value)

    def sync(self) -> None:
        """Sum every gradient over the ranks that have a part of it."""
        self.model.sync(self.summed)

    def clip(self) -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        counted = {id(p) for p in self.model.owned_parameters()}
        gradients = self._gradients()
        squares = sum(
            torch.linalg.vector_norm(g).double().square().item()
            for p, g in gradients
            if id(p) in counted
        )
        norm = math.sqrt(self._sum_over(float(squares), self.sharing_norm))
        if norm > self.config.clip_norm:
            for _, gradient in gradients:
                gradient.mul_(self.config.clip_norm / norm)
        return norm

    @contextlib.contextmanager
    def full_model(self) -> Iterator[nn.Module]:
        """Give the model with all its weights, to be read and run."""
        model = Transformer(self.config.model)
        model.load_state_dict(self._weights_of(self._joined({})))
        yield model

    def states(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        mine = self._optimizer_state()
        whole = self._joined(_by_name(mine["state"], self._names))
        weights = self._weights_of(whole)
        by_number = {
            number: whole[name]
            for number, name in enumerate(itertools.chain(*self._whole_names))
            if whole[name]
        }
        groups = _numbered_groups(mine["param_groups"], self._whole_names)
        return weights, {"state": by_number, "param_groups": groups}

    def mean(self, value: float) -> float:
        """Return the loss of the whole batch: the sum of what ranks with tokens of their own have.

        Every rank's loss is divided by the tokens of the whole batch already.
        """
        return self._sum_over(value, ("dp", "ep", "cp"))

    def _sum(self, value: float) -> float:
        return self._sum_over(value, mesh.AXES)

    def _sum_over(self, value: float, axes: Iterable[str]) -> float:
        total = torch.tensor([value], dtype=torch.float64)
        for name in axes:
            if self.rank.axis(name).size > 1:
                collectives.all_reduce_ordered(total, self.rank.axis(name))
        return total.item()

    def _load(self, moments: dict[str, dict[str, Any]]) -> None:
        """Give the optimizer this rank's part of the moments, if there are any yet."""
        names = itertools.chain(*self._names)
        state = {number: moments[name] for number, name in enumerate(names) if moments[name]}
        groups = _numbered_groups(self.optimizer.param_groups, self._names)
        if state:
            self._load_optimizer({"state": state, "param_groups": groups})

    def _joined(self, moments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return weights and moments of the whole model."""
        mine = {
            name: {**moments.get(name, {}), WEIGHT: p.detach()}
            for name, p in self.model.named_parameters()
        }
        return mesh.join(mine, self.rank, self.config.model, self.split)

    @staticmethod
    def _weights_of(whole: dict[str, dict[str, Any]]) -> dict[str, Tensor]:
        """Take the weights out of the states."""
        return {name: state.pop(WEIGHT) for name, state in whole.items()}

    # what sharing the moments along dp changes

    def _optimizer_of(
        self, groups: list[dict[str, Any]], config: TrainConfig
    ) -> torch.optim.Optimizer:
        return config.optimizer.kind(groups, **config.optimizer_arguments)

    def _gradients(self) -> list[tuple[Tensor, Tensor]]:
        """Return this rank's parameters, each with what it has of the gradient."""
        return [(p, p.grad) for _, p in self.model.named_parameters() if p.grad is not None]

    def _optimizer_state(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)


class OnMeshWithZero(OnMesh):
    """The same with ZeRO's stage 1: ranks that differ along dp alone share the moments out."""

    optimizer: ZeroOptimizer
    summed = ("cp", "ep")
    sharing_norm = ("tp", "ep", "pp", "dp")

    def sync(self) -> None:
        """Sum every gradient over the ranks that have a part of it; along dp, by shards."""
        super().sync()
        self.optimizer.sync()

    def _optimizer_of(self, groups: list[dict[str, Any]], config: TrainConfig) -> ZeroOptimizer:
        axis = self.rank.axis("dp")
        return ZeroOptimizer(
            groups,
            config.optimizer.kind,
            axis,
            stage=1,
            average=False,
            **config.optimizer_arguments,
        )

    def _gradients(self) -> list[tuple[Tensor, Tensor]]:
        held = dict(self.model.named_parameters())
        names = list(itertools.chain(*self._names))
        shards = self.optimizer.shards_with_gradients()
        return [(held[names[n]], s.grad) for n, s in shards.items() if s.grad is not None]

    def _optimizer_state(self) -> dict[str, Any]:
        return self.optimizer.full_state_dict()

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        self.optimizer.load_full_state_dict(state)


def _grouped_names(model: nn.Module, groups: list[dict[str, Any]]) -> list[list[str]]:
    """Return the names of the parameters in the groups that an optimizer gets."""
    names = {id(p): name for name, p in model.named_parameters()}
    return [[names[id(p)] for p in group["params"]] for group in groups]


def _by_name(states: dict[int, dict[str, Any]], names: list[list[str]]) -> dict[str, Any]:
    """Return an optimizer's states by the names of parameters, not by their numbers."""
    flat = list(itertools.chain(*names))
    return {flat[number]: dict(state) for number, state in states.items()}


def _numbered_groups(groups: list[dict[str, Any]], names: list[list[str]]) -> list[dict[str, Any]]:
    """Return groups whose parameters are numbered through, in the order of the names."""
    count = itertools.count()
    return [
        {**group, "params": [next(count) for _ in each]}
        for group, each in zip(groups, names, strict=True)
    ]
