"""What a step is asked for, and what the simulator says of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from llmcourse.base.arguments import require_fields
from llmcourse.model import ModelConfig
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale.cost.layout import LLAMA_3, Precision
from llmcourse_labs.scale.cost.model import MENU, Recomputed, training_flop_per_token
from llmcourse_labs.scale.simulator.cluster import Cluster

Scores = Literal["kept", "again", "fused"]
"""What becomes of a head's T x S scores: kept for backward, computed again, or never written."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained in a step, and how."""

    config: ModelConfig
    """The whole model."""
    split: Split
    """How it is split, its micro-batches and its pipeline."""
    batch_size: int
    """Sequences of a step, over all ranks."""
    recompute: Recomputed = "nothing"
    """What a layer computes again in backward."""
    scores: Scores = "fused"
    """What becomes of the scores of attention."""
    side_by_side: bool = False
    """Whether attention and feed-forward read one norm and write one sum, as PaLM's do."""
    overlap: bool = True
    """Whether messages of dp travel behind a micro-batch, and those of pp behind computation."""
    zero_stage: int = 1
    """Of data parallelism, see `parallel.zero.traffic_bytes`."""
    shards: int | None = None
    """Ranks that share out what stage 3 shards; None is all of dp and cp.  Where there are more of
    those, gradients of equal shards are summed as well (HSDP)."""
    precision: Precision = LLAMA_3
    """Bytes of numbers."""

    def __post_init__(self) -> None:
        """Reject what cannot be split so."""
        split, config = self.split, self.config
        split.check_model(config)
        if self.recompute not in MENU:
            raise ValueError(f"recompute must be one of {', '.join(MENU)}, got {self.recompute!r}")
        if self.scores not in get_args(Scores):
            raise ValueError(
                f"scores must be one of {', '.join(get_args(Scores))}, got {self.scores!r}"
            )
        require_fields(self, "batch_size", least=1)
        if self.shards is not None:
            size = split.dp * split.cp
            if self.zero_stage != 3 or split.pp > 1 or size % self.shards:
                raise ValueError(
                    f"shards must divide dp x cp = {size}, at stage 3 and without a pipeline, got "
                    f"{self.shards}"
                )
        shares = split.batch_shares * split.micro_batches
        if self.batch_size % shares:
            raise ValueError(
                f"batch_size must be a multiple of dp x ep x micro_batches = {shares}, "
                f"got {self.batch_size}"
            )

    @property
    def sequences(self) -> int:
        """Of a micro-batch, on this rank."""
        return self.batch_size // (self.split.batch_shares * self.split.micro_batches)

    @property
    def length(self) -> int:
        """Tokens of a sequence on this rank."""
        return self.config.context_length // self.split.cp

    @property
    def num_tokens(self) -> int:
        """Of a step."""
        return self.batch_size * self.config.context_length


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step as the simulator sees it, from a rank of the slowest stage."""

    job: Job
    cluster: Cluster
    seconds_by_part: dict[str, float]
    """Products, attention, memory (operations that its bandwidth bounds), recomputation, head;
    messages that nothing hides, by axis (tp, cp, ep, pp, dp); bubble; optimizer."""
    bytes_by_part: dict[str, int | float]
    """Of memory: weights, gradients, optimizer state, activations."""
    sent_bytes: dict[str, int | float] = field(repr=False)
    """By axis, hidden or not, without what recomputation sends again; copies are gradients of equal
    shards (HSDP)."""

    @property
    def seconds(self) -> float:
        """Of the step."""
        return sum(self.seconds_by_part.values())

    @property
    def memory_bytes(self) -> int | float:
        """Of a GPU."""
        return sum(self.bytes_by_part.values())

    @property
    def fits(self) -> bool:
        """Whether 5 % of the memory are left, for what is not counted."""
        return self.memory_bytes <= 0.95 * self.cluster.hardware.memory_bytes

    @property
    def tokens_per_s(self) -> float:
        """Of the whole cluster."""
        return self.job.num_tokens / self.seconds

    @property
    def flop_per_s(self) -> float:
        """Of a GPU, counting what the model needs, and pairs that the mask removes left out."""
        flop = training_flop_per_token(self.job.config) * self.job.num_tokens
        return flop / self.seconds / self.job.split.num_ranks

    @property
    def shares(self) -> Iterator[tuple[str, float]]:
        """Yield the parts as shares of the time, the largest first."""
        for part, seconds in sorted(self.seconds_by_part.items(), key=lambda each: -each[1]):
            if seconds:
                yield part, seconds / self.seconds

    @property
    def mfu(self) -> float:
        """Return the share of the peak that the model's own FLOPs make up."""
        return self.flop_per_s / self.cluster.hardware.dense_bf16_flop_per_s
