"""What one rank of a mesh holds of a model, and its part of a step.

Each kind of parallelism changes one thing, and none knows of the others: tensor parallelism the
matrices, expert parallelism the experts, context parallelism the form of attention, the pipeline
which layers there are.

Shape suffixes:  B batch, T time, t time of this rank's tokens, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from llmcourse import loss as losses
from llmcourse.model import Transformer, auxiliary_loss
from llmcourse.parallel import (
    context_parallel,
    expert_parallel,
    pipeline,
    tensor_parallel,
)
from llmcourse.parallel.data_parallel import sum_gradients
from llmcourse.parallel.mesh.split import Split
from llmcourse.parallel.mesh.whole import cut_of, whole_shapes
from llmcourse.parallel.pipeline import MicroBatch, PipelineRun, Stage
from llmcourse.parallel.world import Rank


class LocalModel(nn.Module):
    """This rank's part of a model; its parameters keep the names that they have in the whole.

    Args:
        model: whole, and the same on every rank; it is taken apart.
        rank: with the axes of `Split.sizes`.
        split: how the model is split; `Split.check` has passed.
    """

    def __init__(self, model: Transformer, rank: Rank, split: Split) -> None:
        super().__init__()
        self.config, self.split, self.rank = model.config, split, rank
        if split.tp > 1:
            tensor_parallel.shard(
                model,
                rank.axis("tp"),
                sequence_parallel=split.sequence_parallel,
                replicate_kv=split.replicate_kv,
            )
        if split.ep > 1:
            expert_parallel.shard_experts(model, rank.axis("ep"))
        if split.cp > 1:
            model.attend_with(context_parallel.ring_attention(rank.axis("cp")))
        stages = pipeline.cut(model, split.pp, rank.place["pp"], split.chunks)
        self.stages = nn.ModuleList(stages)
        self.schedule = pipeline.schedule_of(
            split.pipeline, split.pp, split.micro_batches, split.chunks
        )
        self.last_run: PipelineRun | None = None
        """Time stamps and losses of the last step."""

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield every parameter that this rank holds, by its name in the whole model."""
        seen = set()
        for stage in self.stages:
            for name, p in stage.named_parameters():
                if id(p) not in seen:  # a tied embedding, when one rank has both ends
                    seen.add(id(p))
                    yield name, p

    def forward_and_backward(
        self,
        inputs_BT: Int[Tensor, "B T"],
        targets_BT: Int[Tensor, "B T"],
        *,
        num_tokens: int | float,
        autocast: torch.dtype | None = None,
        apart: Mapping[str, Tensor] | None = None,
    ) -> float:
        """Add the gradients of this rank's share of a batch to those of its parameters.

        Args:
            inputs_BT: token ids, the same on all ranks that differ along pp, cp and tp alone.
            targets_BT: the token after each.
            num_tokens: tokens that count in the whole batch, over all ranks.
            autocast: dtype in which the stages compute, such as torch.bfloat16; None is as given.
            apart: of packed rows the mask and positions_BT of their documents, without cp.

        Returns:
            The sum of the losses of this rank's tokens over `num_tokens`, in nats.
        """
        run = pipeline.run_schedule(
            self.schedule,
            list(self.stages),
            self.rank.axis("pp"),
            self._micro_batches(inputs_BT, targets_BT, apart or {}),
            lambda logits_BTV, batch: self._loss(logits_BTV, batch.targets, num_tokens),
            extra_loss_of=self._balance,
            shape_of=self._message_shape,
            autocast=autocast,
        )
        self.last_run = run
        return run.losses.sum().item()

    @torch.no_grad()
    def sync(self, axes: Iterable[str] = ("cp", "ep", "dp")) -> None:
        """Sum every gradient over the ranks that have a part of it.

        Args:
            axes: along which ranks have other tokens; leave one out if somebody else sums there.
        """
        tp, pp = self.rank.axis("tp"), self.rank.axis("pp")
        if tp.size > 1:
            tensor_parallel.sync(self, tp)
        pipeline.sync_tied(list(self.stages), pp)
        for name in axes:
            axis = self.rank.axis(name)
            # An expert has got the rows of all ranks along ep, and their gradients with them.
            summed = [p for n, p in self.named_parameters() if not (name == "ep" and self._cut(n))]
            sum_gradients(summed, axis)
        for p in self.parameters():
            if p.grad is None:  # an expert without a row
                p.grad = torch.zeros_like(p)

    def owned_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that this rank counts, so that over tp, ep and pp each counts once.

        The sum of squares of their gradients over all these ranks is that of the whole model.
        """
        stages = cast(Iterable[Stage], self.stages)  # nn.ModuleList hides what it holds
        copied = {id(s.embedding) for s in stages if "embedding" in s.copied}
        counted = [p for p in self.parameters() if id(p) not in copied]
        if self.split.tp > 1:
            once = {id(p) for p in tensor_parallel.owned_parameters(self, self.rank.axis("tp"))}
            return [p for p in counted if id(p) in once]
        if self.split.ep > 1 and self.rank.place["ep"] > 0:
            cut = {id(p) for name, p in self.named_parameters() if self._cut(name)}
            return [p for p in counted if id(p) in cut]
        return counted

    def _cut(self, name: str) -> bool:
        """Whether other ranks along tp or ep have other entries of a parameter."""
        shape = whole_shapes(self.config)[name]
        return cut_of(name, shape, self.config, self.split, self.rank.place) is not None

    def _micro_batches(
        self,
        inputs_BT: Int[Tensor, "B T"],
        targets_BT: Int[Tensor, "B T"],
        apart: Mapping[str, Tensor],
    ) -> list[MicroBatch]:
        """Cut a batch into micro-batches, and of each sequence take this rank's tokens."""
        index, size, settings = self.rank.place["cp"], self.split.cp, dict[str, Any]()
        if size > 1:
            positions_t = context_parallel.positions(inputs_BT.shape[1], index, size)
            inputs_BT, targets_BT = inputs_BT[:, positions_t], targets_BT[:, positions_t]
        rows = len(inputs_BT) // self.split.micro_batches
        if self.split.sequence_parallel:
            settings["num_tokens"] = inputs_BT.shape[1]
        if size > 1:
            settings["positions_BT"] = positions_t.expand(rows, -1)
        cut = {name: of_all.split(rows) for name, of_all in apart.items()}
        parts = zip(inputs_BT.split(rows), targets_BT.split(rows), strict=True)
        return [
            MicroBatch(
                inputs,
                targets,
                {**settings, **{name: each[i] for name, each in cut.items()}, "routings": []},
            )
            for i, (inputs, targets) in enumerate(parts)
        ]

    def _message_shape(self, batch: MicroBatch) -> tuple[int, ...]:
        """Return the shape of the activations that one stage sends to the next."""
        num_rows, length = batch.inputs.shape
        share = self.split.tp if self.split.sequence_parallel else 1
        return num_rows, length // share, self.config.width

    def _loss(
        self, logits_BtV: Float[Tensor, "B t V"], targets_Bt: Int[Tensor, "B t"], num_tokens: float
    ) -> Float[Tensor, ""]:
        """Return the losses of a micro-batch's tokens, divided by those of the whole batch."""
        if self.split.tp > 1:
            axis = self.rank.axis("tp")
            return tensor_parallel.cross_entropy(
                logits_BtV, targets_Bt, axis, num_tokens=num_tokens
            )
        return losses.cross_entropy(logits_BtV, targets_Bt, num_tokens=num_tokens)

    def _balance(self, _: nn.Module, batch: MicroBatch) -> Tensor | None:
        """Return a stage's share of the balance loss, as the mean over all shares of the batch.

        Every share is balanced by itself: a mean of products is not the product of means, so this
        is not to the last digit the balance loss of the whole batch.
        """
        assert batch.settings is not None  # from `_micro_batches`
        routings = batch.settings["routings"]
        value = auxiliary_loss(routings, self.config)
        routings.clear()  # the rank's next stage begins anew
        shares = self.split.batch_shares * self.split.cp * self.split.micro_batches
        return None if value is None else value / shares
