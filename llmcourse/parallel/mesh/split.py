"""How a model and its batch are split over a mesh of ranks, and which splits are legal.

Five axes, the outermost first: dp, pp, cp, ep, tp.  Ranks that talk the most stand next to each
other, as in Llama 3, where the innermost axis never leaves a machine.
"""

import math
from dataclasses import dataclass
from typing import get_args

from llmcourse.base.arguments import require_fields
from llmcourse.model import ModelConfig
from llmcourse.parallel import context_parallel, expert_parallel, tensor_parallel
from llmcourse.parallel.legal import divisors, multiples, nearest
from llmcourse.parallel.mesh.names import AXES, Pipeline
from llmcourse.parallel.pipeline import stages_of


@dataclass(frozen=True, kw_only=True)
class Split:
    """How many ranks each axis has, and how they share the work."""

    dp: int = 1
    """Copies of the model, each with its share of the batch."""
    pp: int = 1
    """Stages, each with some of the layers."""
    cp: int = 1
    """Parts of every sequence."""
    ep: int = 1
    """Ranks that share the experts of a mixture; each has its share of the batch, too."""
    tp: int = 1
    """Slices of every matrix."""
    micro_batches: int = 1
    """Parts of a rank's share of the batch, run one after the other."""
    pipeline: Pipeline = "1f1b"
    """The schedule of the stages."""
    chunks: int = 1
    """Stages on each rank, for the interleaved schedule."""
    sequence_parallel: bool = False
    """Whether tp ranks also share the tokens between the matrices."""
    replicate_kv: bool = False
    """Whether tp ranks may hold copies of the same key/value head."""

    def __post_init__(self) -> None:
        """Reject numbers below 1, and settings that would have no effect."""
        require_fields(self, *AXES, "micro_batches", "chunks", least=1)
        if self.pipeline not in get_args(Pipeline):
            raise ValueError(
                f"pipeline must be one of {', '.join(get_args(Pipeline))}, got {self.pipeline!r}"
            )
        if self.tp == 1 and (self.sequence_parallel or self.replicate_kv):
            raise ValueError(
                "sequence_parallel and replicate_kv have no effect with tp = 1: raise tp"
            )
        if self.pp == 1 and self.pipeline != "1f1b":
            raise ValueError(f"pipeline = {self.pipeline} has no effect with pp = 1: raise pp")
        if (self.chunks > 1) != (self.pipeline == "interleaved"):
            raise ValueError(
                f"chunks = {self.chunks} with pipeline = {self.pipeline}: interleaved wants 2 "
                "chunks or more, every other schedule 1"
            )

    @property
    def sizes(self) -> dict[str, int]:
        """The mesh, as `world.Pool` takes it."""
        return {name: getattr(self, name) for name in AXES}

    @property
    def num_ranks(self) -> int:
        """How many processes it takes."""
        return math.prod(self.sizes.values())

    @property
    def batch_shares(self) -> int:
        """Into how many parts the sequences of a batch are divided among ranks."""
        return self.dp * self.ep

    def legal_micro_batches(self, batch_size: int) -> list[int]:
        """Return the numbers of micro-batches that a batch allows, the least first.

        They divide a rank's share of the batch, and give work to every stage of `pp`.
        """
        stages = self.pp
        legal = [n for n in divisors(batch_size // self.batch_shares) if n >= stages]
        return [n for n in legal if self.pipeline != "interleaved" or n % stages == 0]

    def check(self, config: ModelConfig, batch_size: int) -> None:
        """Refuse a split that this model, or this batch, does not allow.

        Nothing is started or built: the rules are about numbers alone.

        Args:
            config: the shape of the model.
            batch_size: sequences per step, over all ranks.

        Raises:
            ValueError: with the rule, and the legal values nearest to the one given.
        """
        self.check_model(config)
        self._check_batch(batch_size)

    def check_model(self, config: ModelConfig) -> None:
        """Refuse a split that this model does not allow, whatever the batch; as `check` does."""
        self._check_matrices(config)
        if self.ep > 1:
            expert_parallel.check_experts(config.num_experts, self.ep)
        self._check_context(config)
        stages_of(config.num_layers, self.pp, self.chunks)

    def _check_matrices(self, config: ModelConfig) -> None:
        if self.tp == 1:
            return
        if config.num_experts:
            raise ValueError(
                f"tp must be 1 for a model with experts, got {self.tp}: cut the experts with ep"
            )
        tensor_parallel.check_shape(
            config,
            self.tp,
            sequence_parallel=self.sequence_parallel,
            replicate_kv=self.replicate_kv,
        )
        if self.replicate_kv and config.num_kv_heads % self.tp == 0:
            raise ValueError(
                f"replicate_kv has no effect: tp = {self.tp} divides the {config.num_kv_heads} "
                "key/value heads; leave it out"
            )

    def _check_context(self, config: ModelConfig) -> None:
        length = config.context_length
        if self.cp > 1:
            context_parallel.check_length(length, self.cp, "zigzag")
        if self.sequence_parallel and (length // self.cp) % self.tp:
            raise ValueError(
                f"with sequence_parallel tp must divide the {length // self.cp} tokens of a rank's "
                f"part of a sequence, got {self.tp}; "
                f"nearest: {nearest(self.tp, divisors(length // self.cp))}"
            )

    def _check_batch(self, batch_size: int) -> None:
        shares, m, p = self.batch_shares, self.micro_batches, self.pp
        if batch_size % shares:
            raise ValueError(
                f"batch_size must be a multiple of dp x ep = {shares}, got {batch_size}; "
                f"nearest: {nearest(batch_size, multiples(shares, batch_size))}"
            )
        legal = self.legal_micro_batches(batch_size)
        rule = f"divide a rank's share of {batch_size // shares} sequences"
        if p > 1:
            rule += f" and be at least the {p} stages of pp"
        if self.pipeline == "interleaved":
            rule += f", a multiple of {p}"
        if not legal:
            sizes = nearest(batch_size, multiples(shares * p, batch_size))
            raise ValueError(
                f"micro_batches must {rule}, which no number does: change batch_size = "
                f"{batch_size}; nearest: {sizes}"
            )
        if m not in legal:
            raise ValueError(f"micro_batches must {rule}, got {m}; nearest: {nearest(m, legal)}")
