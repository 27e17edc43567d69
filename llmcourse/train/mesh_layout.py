"""A run on a mesh: every rank has a part of the model, and of the batch.

Taught in: chapters/15_splitting_the_model.ipynb
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from llmcourse.model import Transformer
from llmcourse.optim import AdamW, decay_groups
from llmcourse.parallel import collectives, mesh
from llmcourse.parallel.world import Rank
from llmcourse.parallel.zero import ZeroOptimizer
from llmcourse.train.layout import InMicroBatches, share_batches

if TYPE_CHECKING:
    from llmcourse.train.phases import Batch, Run

WEIGHT = "weight"
"""Under this name a weight stands among its moments."""


class OnMesh(InMicroBatches):
    """This rank's part of a run that is split over the axes of a mesh.

    Args:
        run: built, or restored, the same on every rank; it becomes this rank's part.
        rank: with the axes of the run's mesh.
    """

    def __init__(self, run: "Run", rank: Rank) -> None:
        self.rank, self.split, self.config = rank, run.config.split, run.config.model
        self.index, self.size = rank.index, rank.size
        place = rank.place
        share_batches(run, place["dp"] * self.split.ep + place["ep"], self.split.batch_shares)
        self._whole_names = _grouped_names(run.model)
        states = _by_name(run.optimizer.state_dict()["state"], self._whole_names)
        self.model = mesh.Part(run.model, rank, self.split)
        self._names = _grouped_names(self.model)
        run.model, run.layout = self.model, self
        run.optimizer = self._new_optimizer(run)
        held = list(itertools.chain(*self._names))
        self._load(run, mesh.cut(states, held, self.config, self.split, place))
        run.all_reduce = lambda _: self._sync(run)

    def forward_and_backward(self, run: "Run", batch: "Batch") -> float:
        """Run the batch forward and backward, micro-batch by micro-batch.

        Returns:
            This rank's share of the loss in nats per token, of which `mean` makes the loss.
        """
        return self.model.forward_and_backward(
            batch.inputs_BT,
            batch.targets_BT,
            num_tokens=run.config.batch_size * self.config.context_length,
            autocast=torch.bfloat16 if run.config.precision == "bf16" else None,
        )

    def clip(self, run: "Run") -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        counted = {id(p) for p in self.model.counted_once()}
        held = self._gradients(run)
        squares = sum(
            torch.linalg.vector_norm(g).double().square().item()
            for p, g in held
            if id(p) in counted
        )
        axes = ("tp", "ep", "pp", "dp") if _is_sharded(run) else ("tp", "ep", "pp")
        norm = math.sqrt(self._sum_over(float(squares), axes))
        if norm > run.config.clip_norm:
            for _, gradient in held:
                gradient.mul_(run.config.clip_norm / norm)
        return norm

    @contextlib.contextmanager
    def whole_model(self, run: "Run") -> Iterator[nn.Module]:
        """Give the model with all its weights, to be read and run."""
        model = Transformer(self.config)
        model.load_state_dict(self._weights_of(self._joined({})))
        yield model

    def states(self, run: "Run") -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        optimizer = run.optimizer
        mine = optimizer.full_state_dict() if _is_sharded(run) else optimizer.state_dict()
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

    def _sync(self, run: "Run") -> None:
        """Phase 5: sum every gradient over the ranks that have a part of it."""
        sharded = _is_sharded(run)
        self.model.sync(("cp", "ep") if sharded else ("cp", "ep", "dp"))
        if sharded:
            run.optimizer.sync()

    def _new_optimizer(self, run: "Run") -> AdamW | ZeroOptimizer:
        config = run.config
        groups = decay_groups(self.model, weight_decay=config.weight_decay)
        settings = {"lr": config.learning_rate, "betas": (config.beta1, config.beta2)}
        if config.parallel == "ddp":
            return AdamW(groups, **settings)
        axis = self.rank.axis("dp")
        return ZeroOptimizer(groups, AdamW, axis, stage=1, average=False, **settings)

    def _load(self, run: "Run", states: dict[str, dict[str, Any]]) -> None:
        """Give the optimizer this rank's part of the moments, if there are any yet."""
        names = itertools.chain(*self._names)
        state = {
            "state": {number: states[name] for number, name in enumerate(names) if states[name]},
            "param_groups": _numbered_groups(run.optimizer.param_groups, self._names),
        }
        if state["state"] and _is_sharded(run):
            run.optimizer.load_full_state_dict(state)
        elif state["state"]:
            run.optimizer.load_state_dict(state)

    def _gradients(self, run: "Run") -> list[tuple[Tensor, Tensor]]:
        """Return this rank's parameters, each with what it has of the gradient."""
        held = dict(self.model.named_parameters())
        if not _is_sharded(run):
            return [(p, p.grad) for p in held.values()]
        names = list(itertools.chain(*self._names))
        shards = run.optimizer.shards_with_gradients()
        return [(held[names[number]], shard.grad) for number, shard in shards.items()]

    def _joined(self, moments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return weights and moments of the whole model."""
        mine = {
            name: {**moments.get(name, {}), WEIGHT: p.detach()}
            for name, p in self.model.named_parameters()
        }
        return mesh.join(mine, self.rank, self.config, self.split)

    @staticmethod
    def _weights_of(whole: dict[str, dict[str, Any]]) -> dict[str, Tensor]:
        """Take the weights out of the states."""
        return {name: state.pop(WEIGHT) for name, state in whole.items()}


def _is_sharded(run: "Run") -> bool:
    """Whether the moments are shared along dp."""
    return isinstance(run.optimizer, ZeroOptimizer)


def _grouped_names(model: nn.Module) -> list[list[str]]:
    """Return the names of the parameters in the groups that an optimizer gets."""
    names = {id(p): name for name, p in model.named_parameters()}
    groups = decay_groups(model, weight_decay=0.0)
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
