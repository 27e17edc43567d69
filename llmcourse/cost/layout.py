"""Bytes that one rank sends in one training step of a whole layout, axis by axis.

A layout has five axes, dp, pp, cp, ep and tp, as `llmcourse.parallel.mesh` orders them.  What a
rank sends along one of them depends on all others: they decide which parameters and tokens it has.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from llmcourse.cost.held import Held, held, place_of, sizes_of
from llmcourse.cost.messages import all_reduce_bytes
from llmcourse.cost.traffic import (
    Bytes,
    copied_heads_bytes,
    data_parallel_bytes,
    partial_gains,
    pipeline_bytes,
    tensor_parallel_bytes,
)
from llmcourse.cost.traffic_of_tokens import context_parallel_bytes, expert_parallel_bytes
from llmcourse.model import ModelConfig, llama3_405b


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


@dataclass(frozen=True, kw_only=True)
class Step:
    """One training step of a layout, as one rank sees it; `traffic` counts what it sends."""

    config: ModelConfig
    """Of the whole model."""
    mesh: Mapping[str, int]
    """Sizes of the axes dp, pp, cp, ep and tp; one that is missing has the size 1."""
    batch_size: int
    """Sequences, over all ranks; a multiple of dp x ep x micro_batches."""
    context_length: int
    """Tokens of a sequence."""
    micro_batches: int = 1
    """Parts of a rank's share of the batch."""
    chunks: int = 1
    """Stages of the pipeline on each rank."""
    sequence_parallel: bool = False
    """Whether tp cuts the residual stream along time."""
    zero_stage: int = 0
    """Of data parallelism, see `data_parallel_bytes`."""
    precision: Precision = FP32
    """Bytes of numbers."""
    place: Mapping[str, int] | None = None
    """Of the rank; the first one along axes that are missing."""
    rows: tuple[int, int] | None = None
    """That it sends to, and receives from, experts on other ranks, in all layers and micro-batches;
    None is a router that uses all experts equally."""

    def __post_init__(self) -> None:
        """Reject numbers that do not divide."""
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches must be 1 or more, got {self.micro_batches}")
        shares = self.sizes["dp"] * self.sizes["ep"] * self.micro_batches
        parts = self.sizes["cp"] * (self.sizes["tp"] if self.sequence_parallel else 1)
        for name, given, by in (
            ("batch_size", self.batch_size, shares),
            ("context_length", self.context_length, parts),
        ):
            if given < 1 or given % by:
                raise ValueError(f"{name} must be a multiple of {by}, got {given}")
        self._check_slices()
        if self.rows is not None and min(self.rows) < 0:
            raise ValueError(f"rows must be two numbers of 0 or more, got {self.rows}")

    def _check_slices(self) -> None:
        """Reject a model that tp or ep cannot cut evenly."""
        tp, ep, config = self.sizes["tp"], self.sizes["ep"], self.config
        if ep > 1 and (not config.num_experts or config.num_experts % ep):
            raise ValueError(f"ep must divide num_experts = {config.num_experts}, got {ep}")
        if tp > 1 and config.num_experts:
            raise ValueError(f"tp must be 1 for a model with experts, got {tp}")
        for name in ("num_heads", "hidden", "vocab_size"):
            if getattr(config, name) % tp:
                raise ValueError(f"tp must divide {name} = {getattr(config, name)}, got {tp}")
        if config.num_kv_heads % tp and tp % config.num_kv_heads:
            raise ValueError(
                f"tp must divide num_kv_heads = {config.num_kv_heads}, or be a multiple of it, "
                f"got {tp}"
            )

    @property
    def sizes(self) -> dict[str, int]:
        """Of all five axes."""
        return sizes_of(self.mesh)

    @property
    def at(self) -> dict[str, int]:
        """Where the rank stands on them."""
        return place_of(self.mesh, self.place)

    @property
    def held(self) -> Held:
        """What the rank has of the model."""
        return held(self.config, self.mesh, place=self.place, chunks=self.chunks)

    @property
    def local(self) -> ModelConfig:
        """A model of this rank's layers."""
        return replace(self.config, num_layers=self.held.layers)

    @property
    def rows_of_micro_batch(self) -> int:
        """Sequences of one micro-batch."""
        return self.batch_size // (self.sizes["dp"] * self.sizes["ep"] * self.micro_batches)

    @property
    def length(self) -> int:
        """Tokens of a sequence on this rank."""
        return self.context_length // self.sizes["cp"]

    def traffic(self) -> dict[str, Bytes]:
        """Return the bytes that the rank sends, by axis and by what is sent."""
        return {
            "dp": self._data(),
            "pp": self._pipeline(),
            "cp": self._context(),
            "ep": self._experts() if self.config.num_experts else {},
            "tp": self._tensors() if self.sizes["tp"] > 1 else {},
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
        return data_parallel_bytes(
            self.held.numbers + marks,
            self.sizes["dp"],
            zero_stage=self.zero_stage,
            gradient_bytes=self.precision.gradient,
            parameter_bytes=self.precision.parameter,
            index=self.at["dp"],
        )

    def _pipeline(self) -> Bytes:
        """With sequence parallelism a rank sends its stretch of time alone."""
        tp, width = self.sizes["tp"], self.config.width
        tokens = self.rows_of_micro_batch * self.length // (tp if self.sequence_parallel else 1)
        table = self.config.vocab_size // tp * width * self.config.tied_head
        return pipeline_bytes(
            self.sizes["pp"],
            index=self.at["pp"],
            message_bytes=tokens * width * self.precision.activation,
            num_micro_batches=self.micro_batches,
            num_chunks=self.chunks,
            tied_bytes=table * self.precision.gradient,
        )

    def _context(self) -> Bytes:
        """The keys and values are those of this rank's heads."""
        heads = max(1, self.config.num_kv_heads // self.sizes["tp"])
        return context_parallel_bytes(
            replace(self.local, num_heads=heads, num_kv_heads=heads),
            self.sizes["cp"],
            batch_size=self.rows_of_micro_batch * self.micro_batches,
            length=self.context_length,
            num_parameters=self.held.numbers + self.held.tensors,
            **self._common("cp"),
        )

    def _experts(self) -> Bytes:
        """Counts travel once for each micro-batch."""
        mine, (sent, received) = self.held, self.rows or (None, None)
        found = expert_parallel_bytes(
            self.local,
            self.sizes["ep"],
            num_tokens=self.rows_of_micro_batch * self.micro_batches * self.length,
            num_parameters=mine.numbers + mine.tensors - mine.expert_numbers - mine.expert_tensors,
            sent_rows=sent,
            received_rows=received,
            **self._common("ep"),
        )
        return {**found, "counts": self.micro_batches * found["counts"]}

    def _tensors(self) -> Bytes:
        """Embedding, head and loss are on the first and on the last stage."""
        mine, common = self.held, self._common("tp")
        whole = tensor_parallel_bytes(
            self.local,
            self.sizes["tp"],
            batch_size=self.rows_of_micro_batch,
            length=self.length,
            sequence_parallel=self.sequence_parallel,
            **common,
        )
        here = {"embedding": self.at["pp"] == 0, "blocks": True, "head": mine.head}
        here["loss"] = mine.head
        found = {name: self.micro_batches * whole[name] * here[name] for name in here}
        gains = partial_gains(
            self.local, sequence_parallel=self.sequence_parallel, final_norm=mine.head
        )
        numbers = {"row_bytes": common["gradient_bytes"], "index": common["index"]}
        copied = copied_heads_bytes(self.local, self.sizes["tp"], **numbers)
        found["gradients"] = all_reduce_bytes(gains, self.sizes["tp"], **numbers) + copied
        return found


def layout_bytes(
    config: ModelConfig,
    mesh: Mapping[str, int],
    *,
    batch_size: int,
    context_length: int | None = None,
    **settings: Any,
) -> dict[str, int | float]:
    """Return the bytes that one rank sends in one step along every axis.

    Args:
        config: of the whole model.
        mesh: sizes of the axes dp, pp, cp, ep and tp; one that is missing has the size 1.
        batch_size: sequences of a step, over all ranks.
        context_length: tokens of a sequence; None takes the configuration's.
        settings: other fields of `Step`.

    Raises:
        ValueError: if the numbers do not divide, or one is out of range.
    """
    length = config.context_length if context_length is None else context_length
    step = Step(config=config, mesh=mesh, batch_size=batch_size, context_length=length, **settings)
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
            mesh={"dp": dp, "pp": 16, "cp": cp, "ep": 1, "tp": 8},
            batch_size=batch,
            context_length=length,
            micro_batches=batch // dp,
            sequence_parallel=True,
            zero_stage=1,
            precision=LLAMA_3,
            place={"pp": 8},
        )
        for name, (dp, cp, batch, length) in rows.items()
    }
