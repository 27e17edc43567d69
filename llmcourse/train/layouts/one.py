"""One process that holds everything: what every other layout has to be equal to.

Shape suffixes:  B batch, T time, V vocabulary.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim import Optimizer

from llmcourse import checkpoint as checkpoints
from llmcourse import loss as losses
from llmcourse.checkpoint import flat, folder, shards, store
from llmcourse.checkpoint.shards import ShardRange
from llmcourse.model import Transformer, auxiliary_loss
from llmcourse.model.attention import document_mask
from llmcourse.model.moe import Routing
from llmcourse.optim import clip_by_global_norm
from llmcourse.parallel.legal import chunk_sizes
from llmcourse.train.config import TrainConfig


class Batch(NamedTuple):
    """Token ids, and the ids that follow them."""

    inputs_BT: Int[Tensor, "B T"]
    targets_BT: Int[Tensor, "B T"]
    documents_BT: Int[Tensor, "B T"] | None = None
    """Of packed rows: the document of every token."""
    positions_BT: Int[Tensor, "B T"] | None = None
    """Of packed rows: the place of every token in its document."""
    known_targets: int | None = None
    """Targets that count, where whoever made the batch knew; a device need not be asked then."""

    @property
    def num_targets(self) -> int:
        """Targets that count."""
        if self.known_targets is not None:
            return self.known_targets
        return int((self.targets_BT != losses.IGNORE_INDEX).sum())

    def micro_batches(self, number: int) -> list["Batch"]:
        """Return the rows in so many parts of equal size, in their order."""
        tensors = (self.inputs_BT, self.targets_BT, self.documents_BT, self.positions_BT)
        chunks = [[None] * number if x is None else x.chunk(number) for x in tensors]
        return [Batch(*parts) for parts in zip(*chunks, strict=True)]


class Prediction(NamedTuple):
    """What a forward pass gives."""

    logits_BTV: Float[Tensor, "B T V"]
    routings: list[Routing]
    """Where a mixture's layers sent the tokens; empty for a dense model."""


class Losses(NamedTuple):
    """How wrong the predictions are, and what is minimised."""

    nats: Float[Tensor, ""]
    """Nats per token."""
    total: Float[Tensor, ""]
    """The same, and for a mixture its balance loss: what backward differentiates."""


class CheckpointShard(NamedTuple):
    """What one rank writes of a checkpoint in shards."""

    pieces: dict[str, ShardRange]
    """Of weights and moments, by the names of `checkpoint.flat`."""
    shapes: dict[str, tuple[int, ...]]
    """Of all of them, whole."""
    rest: dict[str, Any]
    """What is no tensor of the model or the optimizer; the same on all ranks."""


class Layout:
    """One process that holds everything.

    Args:
        config: of the run.
        model: whole.
        optimizer: of the whole model, with its moments where a run goes on.
    """

    index, size = 0, 1
    """Of this rank, and how many there are."""
    share, num_shares = 0, 1
    """Which part of every batch this rank learns from, and how many parts there are."""
    model: nn.Module
    """What this rank runs: the whole model, a replica, shards of it, or some of its layers."""
    optimizer: torch.optim.Optimizer
    """Of what this rank updates."""

    def __init__(
        self, config: TrainConfig, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.config, self.model, self.optimizer = config, model, optimizer

    @property
    def is_first(self) -> bool:
        """Whether this rank writes what the run leaves behind."""
        return self.index == 0

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    # phases 2 to 6

    @property
    def joins_phases(self) -> bool:
        """Whether phases 2 to 4 cannot be told apart, and `forward_backward` does all of them."""
        return self.config.layout.accumulate > 1

    def forward(self, batch: Batch) -> Prediction:
        """Predict every next token."""
        routings: list[Routing] = []
        narrow = self.config.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=narrow):
            logits_BTV = self.model(batch.inputs_BT, routings=routings, **document_inputs(batch))
            return Prediction(logits_BTV, routings)

    def loss(self, prediction: Prediction, batch: Batch) -> Losses:
        """Measure how wrong the predictions are, in nats per token, and what is to be minimised."""
        return self._losses(prediction, batch, self._num_targets(batch))

    def forward_backward(self, batch: Batch) -> Losses:
        """Do phases 2 to 4 of one micro-batch after the other, and return the loss of the batch.

        Their gradients add up; the activations of one are gone before those of the next come.
        """
        *before, last = batch.micro_batches(self.config.layout.accumulate)
        num_tokens = self._num_targets(batch)
        nats: Tensor | float = 0.0
        for part in before:
            with self.gradients_kept_back():
                value = self._losses(self.forward(part), part, num_tokens)
                self.backward(value)
            nats += value.nats.detach()
        value = self._losses(self.forward(last), last, num_tokens)
        self.backward(value)  # with the last one, what was kept back is sent
        return Losses(value.nats + nats, value.total)

    def _num_targets(self, batch: Batch) -> float:
        """Return the targets that count in the whole batch, of all ranks, for each rank.

        The one normaliser: the ranks' mean of the sums that it divides is the mean over all tokens,
        however unevenly these are spread over ranks and micro-batches.
        """
        return self.mean(float(batch.num_targets))

    def _losses(self, prediction: Prediction, batch: Batch, num_tokens: float) -> Losses:
        """Return what a micro-batch adds to the loss of the batch."""
        logits_BTV, targets_BT = prediction.logits_BTV, batch.targets_BT
        nats = losses.cross_entropy(logits_BTV, targets_BT, num_tokens=num_tokens)
        balance = auxiliary_loss(prediction.routings, self.config.model)
        if balance is None:
            return Losses(nats, nats)
        return Losses(nats, nats + balance / self.config.layout.accumulate)

    def gradients_kept_back(self) -> contextlib.AbstractContextManager[None]:
        """Let gradients add up on this rank for a while, where backward would send them."""
        return contextlib.nullcontext()

    def backward(self, value: Losses) -> None:
        """Leave the gradient with the parameters."""
        value.total.backward()

    def sync(self) -> None:
        """Agree with the other ranks on one gradient; one process has nobody to agree with."""

    def clip(self) -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        return clip_by_global_norm(self.model.parameters(), self.config.clip_norm)

    # what ranks tell each other

    def broadcast_from_first(self, number: int) -> int:
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

    # phase 7, and what looks at the model

    @contextlib.contextmanager
    def full_model(self) -> Iterator[nn.Module]:
        """Give the model with all its weights, to be read and run."""
        yield self.model

    def states(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of model and optimizer as one process would save them."""
        return self.model.state_dict(), self.optimizer.state_dict()

    def part(self) -> CheckpointShard:
        """Return what this rank writes of a checkpoint in shards."""
        return even_shard(*self.states(), index=self.index, size=self.size)

    def save(
        self, target: Path, facts: dict[str, Any], saver: checkpoints.BackgroundSaver
    ) -> Path | None:
        """Write a checkpoint; return its path on the first rank.

        Args:
            target: folder of checkpoints.
            facts: what it holds besides weights and moments, as `checkpoint.save` takes it.
            saver: writes while training goes on, if the settings ask for it; the path is then that
                of a file which is not complete yet.
        """
        if self.config.saving.save_in_shards:
            return self._save_part(target, facts, saver)
        model, optimizer = self.states()
        if not self.is_first:
            return None
        parts = {"model": model, "optimizer": optimizer, **facts}
        keep = self.config.saving.keep_checkpoints
        if not self.config.saving.save_in_background:
            return checkpoints.save(target, keep_last=keep, **parts)
        saver.save(target, keep_last=keep, **parts)
        return checkpoints.checkpoint_path(target, facts["step"])

    def _save_part(
        self, target: Path, facts: dict[str, Any], saver: checkpoints.BackgroundSaver
    ) -> Path | None:
        """Write this rank's part of a checkpoint; ranks but the first return None."""
        step, background = facts["step"], self.config.saving.save_in_background
        number = self.broadcast_from_first(folder.next_try(target, step) if self.is_first else 0)
        path = folder.parts_path(target, step, number, "shards")
        part = self.part()
        content = store.content_of_run(**facts, **part.rest)
        if background:
            content = checkpoints.copied(content)
        # A piece is copied in any case before it is written; here before anybody may change it.
        pieces = {
            name: ShardRange(first, values.to("cpu", copy=background))
            for name, (first, values) in part.pieces.items()
        }

        def write() -> Path:
            shards.write_parts(
                path, pieces, part.shapes, content, rank=self.index, num_ranks=self.size
            )
            if self.is_first:
                folder.prune(path, step, self.config.saving.keep_checkpoints)
            return path

        if background:
            saver.start(write)
        else:
            write()
        return path if self.is_first else None


def document_inputs(batch: Batch) -> dict[str, Tensor]:
    """Return what tells a model which tokens of a row belong together; nothing for plain rows."""
    if batch.documents_BT is None:
        return {}
    assert batch.positions_BT is not None  # which come together
    return {"mask": document_mask(batch.documents_BT), "positions_BT": batch.positions_BT}


def even_shard(
    model: dict[str, Any], optimizer: dict[str, Any] | None, *, index: int, size: int
) -> CheckpointShard:
    """Return a rank's share of states that every rank holds whole: a chunk of every tensor."""
    tensors, rest = flat.take_apart(model, optimizer)
    pieces = {}
    for name, tensor in tensors.items():
        sizes = chunk_sizes(tensor.numel(), size)
        first = sum(sizes[:index])
        pieces[name] = ShardRange(first, tensor.detach().flatten()[first : first + sizes[index]])
    return CheckpointShard(pieces, {name: tuple(t.shape) for name, t in tensors.items()}, rest)


MakeLayout = Callable[[TrainConfig, Transformer, Optimizer], Layout]
"""Makes a layout of a model and its optimizer, which are whole and the same on every rank."""
