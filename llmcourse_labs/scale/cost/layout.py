"""Bytes that one rank holds of a model, and sends in one training step, for a whole layout.

A layout has five axes, dp, pp, cp, ep and tp, see `llmcourse.parallel.mesh`.  What a rank sends
along one of them depends on all others: they decide which parameters and tokens it has.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from llmcourse.model import ModelConfig, llama3_405b
from llmcourse.parallel import expert_parallel
from llmcourse.parallel.mesh import Split, cut_of, layers_of, names_of, whole_shapes
from llmcourse_labs.scale import arithmetic
from llmcourse_labs.scale.cost.traffic import (
    Bytes,
    context_parallel_bytes,
    expert_parallel_bytes,
    pipeline_bytes,
    tensor_parallel_bytes,
)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Bytes of a number, by what it is."""

    activation: int = 4
    """As it is sent; sums of losses and of gradients of keys are float32 in any case."""
    gradient: int = 4
    parameter: int = 4
    """As ZeRO gathers it."""


FP32 = Precision()
"""Everything in float32, as our ranks send it."""

LLAMA_3 = Precision(activation=2, gradient=4, parameter=2)
"""bf16, and gradients that are summed in float32 (arXiv 2407.21783, section 3.3.2)."""


class RankParameters(NamedTuple):
    """What a rank has of a model."""

    layers: int
    numbers: int
    """Parameters."""
    tensors: int
    """Parameter tensors."""
    expert_numbers: int
    """Parameters of experts."""
    expert_tensors: int


def rank_parameters(
    config: ModelConfig, split: Split, *, place: Mapping[str, int] | None = None
) -> RankParameters:
    """Count what a rank holds of a model: its layers, slices and experts.

    Args:
        config: of the whole model.
        split: how it is split.
        place: of the rank; the first one along axes that are missing.

    Raises:
        ValueError: if a place is outside its axis, or there are more stages than layers.
    """
    at = _place(split, place)
    shapes = whole_shapes(config)
    numbers, of_experts = {}, []
    for name in names_of(config, split, at):
        shape = list(shapes[name])
        if part := cut_of(name, shapes[name], config, split, at):
            dim, start, stop = part
            shape[dim] = stop - start
        numbers[name] = math.prod(shape)
        if expert_parallel.slice_of(name, shape, 0, 1):
            of_experts.append(name)
    return RankParameters(
        layers=len(layers_of(config, split, at)),
        numbers=sum(numbers.values()),
        tensors=len(numbers),
        expert_numbers=sum(numbers[name] for name in of_experts),
        expert_tensors=len(of_experts),
    )


def _place(split: Split, place: Mapping[str, int] | None) -> dict[str, int]:
    """Return where a rank stands on all axes."""
    given = dict(place or {})
    for name, index in given.items():
        if not 0 <= index < split.sizes.get(name, 0):
            raise ValueError(f"place must be inside the mesh {split.sizes}, got {name} = {index}")
    return {name: given.get(name, 0) for name in split.sizes}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One training step of a layout, as one rank sees it; `traffic` counts what it sends."""

    config: ModelConfig
    """Of the whole model."""
    split: Split
    """How it is split."""
    batch_size: int
    """Sequences, over all ranks; a multiple of dp x ep x micro_batches."""
    context_length: int
    """Tokens of a sequence."""
    zero_stage: int = 0
    """Of data parallelism, see `parallel.zero.traffic_bytes`."""
    precision: Precision = FP32
    """Bytes of numbers."""
    gather_again: bool = False
    """Whether tp gathers a layer's input once more in backward, see `tensor_parallel_bytes`."""
    place: Mapping[str, int] | None = None
    """Of the rank; the first one along axes that are missing."""
    rows: tuple[int, int] | None = None
    """That it sends to, and receives from, experts on other ranks, in all layers and micro-batches;
    None is a router that uses all experts equally."""

    def __post_init__(self) -> None:
        """Reject what cannot be split so.

        Fewer micro-batches than stages, which `Split.check` refuses, are a step as well: Llama 3
        trained with 8 of them on 16 stages.
        """
        self.split.check_model(replace(self.config, context_length=self.context_length))
        shares = self.split.batch_shares * self.split.micro_batches
        if self.batch_size < 1 or self.batch_size % shares:
            raise ValueError(f"batch_size must be a multiple of {shares}, got {self.batch_size}")
        if self.rows is not None and min(self.rows) < 0:
            raise ValueError(f"rows must be two numbers of 0 or more, got {self.rows}")

    @cached_property
    def at(self) -> dict[str, int]:
        """Where the rank stands on all five axes."""
        return _place(self.split, self.place)

    @cached_property
    def held(self) -> RankParameters:
        """What the rank has of the model."""
        return rank_parameters(self.config, self.split, place=self.place)

    @property
    def local(self) -> ModelConfig:
        """A model of this rank's layers."""
        return replace(self.config, num_layers=self.held.layers)

    @property
    def sequences(self) -> int:
        """Of which the rank has all tokens, or its part of them, in one micro-batch."""
        return self.batch_size // (self.split.batch_shares * self.split.micro_batches)

    @property
    def length(self) -> int:
        """Tokens of a sequence on this rank."""
        return self.context_length // self.split.cp

    def traffic(self) -> dict[str, Bytes]:
        """Return the bytes that the rank sends, by axis and by what is sent."""
        return {
            "dp": self._data(),
            "pp": self._pipeline(),
            "cp": self._context(),
            "ep": self._experts() if self.config.num_experts else {},
            "tp": self._tensors(),
        }

    def _common(self, axis: str) -> dict[str, Any]:
        return {
            "number_bytes": self.precision.activation,
            "gradient_bytes": self.precision.gradient,
            "index": self.at[axis],
        }

    def _data(self) -> Bytes:
        """Marks of tensors travel beside gradients that are summed whole."""
        marks = 0 if self.zero_stage else self.held.tensors
        sent = arithmetic.traffic_bytes(
            self.held.numbers + marks,
            self.split.dp,
            self.zero_stage,
            gradient_bytes=self.precision.gradient,
            parameter_bytes=self.precision.parameter,
            index=self.at["dp"],
        )
        return {"gradients and parameters": sent}

    def _pipeline(self) -> Bytes:
        """With sequence parallelism a rank sends its stretch of time alone."""
        split, width = self.split, self.config.width
        tokens = self.sequences * self.length // (split.tp if split.sequence_parallel else 1)
        table = self.config.vocab_size // split.tp * width * self.config.tied_head
        return pipeline_bytes(
            split.pp,
            index=self.at["pp"],
            message_bytes=tokens * width * self.precision.activation,
            num_micro_batches=split.micro_batches,
            num_chunks=split.chunks,
            tied_bytes=table * self.precision.gradient,
        )

    def _context(self) -> Bytes:
        """The keys and values are those of this rank's heads."""
        heads = max(1, self.config.num_kv_heads // self.split.tp)
        return context_parallel_bytes(
            replace(self.local, num_heads=heads, num_kv_heads=heads),
            self.split.cp,
            batch_size=self.sequences * self.split.micro_batches,
            length=self.context_length,
            num_parameters=self.held.numbers + self.held.tensors,
            **self._common("cp"),
        )

    def _experts(self) -> Bytes:
        """Counts travel once for each micro-batch."""
        mine, (sent, received) = self.held, self.rows or (None, None)
        found = expert_parallel_bytes(
            self.local,
            self.split.ep,
            num_tokens=self.sequences * self.split.micro_batches * self.length,
            num_parameters=mine.numbers + mine.tensors - mine.expert_numbers - mine.expert_tensors,
            sent_rows=sent,
            received_rows=received,
            **self._common("ep"),
        )
        return {**found, "counts": self.split.micro_batches * found["counts"]}

    def _tensors(self) -> Bytes:
        """Gradients travel once for all micro-batches."""
        found = tensor_parallel_bytes(
            self.local,
            self.split.tp,
            batch_size=self.sequences,
            length=self.length,
            sequence_parallel=self.split.sequence_parallel,
            gather_again=self.gather_again,
            is_first=self.at["pp"] == 0,
            is_last=self.at["pp"] == self.split.pp - 1,
            **self._common("tp"),
        )
        once = found.pop("gradients")
        return {k: self.split.micro_batches * sent for k, sent in found.items()} | {
            "gradients": once
        }


def layout_bytes(
    config: ModelConfig,
    split: Split,
    *,
    batch_size: int,
    context_length: int | None = None,
    **settings: Any,
) -> dict[str, int | float]:
    """Return the bytes that one rank sends in one step along every axis.

    Args:
        config: of the whole model.
        split: how it is split.
        batch_size: sequences of a step, over all ranks.
        context_length: tokens of a sequence; None takes the configuration's.
        settings: other fields of `Step`.

    Raises:
        ValueError: if the numbers do not divide, or one is out of range.
    """
    length = config.context_length if context_length is None else context_length
    step = Step(
        config=config, split=split, batch_size=batch_size, context_length=length, **settings
    )
    return {name: sum(parts.values()) for name, parts in step.traffic().items()}


def llama_405b_steps() -> dict[str, Step]:
    """Return the steps of Llama 3.1 405B on 8,192 and 16,384 GPUs, as one of its ranks sees them.

    Of the paper: axes, batch and length, and bf16 with gradients summed in float32.  Parameters are
    sharded over dp and gathered once a step.  Ours are the rest: one sequence is a micro-batch, one
    chunk a stage, tp also cuts the residual stream, the ring stands for the paper's all-gather of
    keys and values, cp sums gradients before dp does, and the rank is that of stage 8 of 16.

    Source:
        Dubey et al. 2024, section 3.3.2 and table 4 (dp of the last row as in its later version),
        and section 3.4.1 for the batch of 4 M tokens, https://arxiv.org/abs/2407.21783
    """
    rows = {
        "4 M tokens of 4,096, 16,384 GPUs": (128, 1, 1024, 4_096),
        "16 M tokens of 8,192, 8,192 GPUs": (64, 1, 2048, 8_192),
        "16 M tokens of 8,192, 16,384 GPUs": (128, 1, 2048, 8_192),
        "16 M tokens of 131,072, 16,384 GPUs": (8, 16, 128, 131_072),
    }
    return {
        name: Step(
            config=replace(llama3_405b(), context_length=length),
            split=Split(
                dp=dp, pp=16, cp=cp, tp=8, micro_batches=batch // dp, sequence_parallel=True
            ),
            batch_size=batch,
            context_length=length,
            zero_stage=1,
            precision=LLAMA_3,
            place={"pp": 8},
        )
        for name, (dp, cp, batch, length) in rows.items()
    }
