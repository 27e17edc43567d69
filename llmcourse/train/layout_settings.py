"""Where a run is: in one process, on several ranks, on a mesh, or on torch's own engine."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from llmcourse.base.arguments import require_fields
from llmcourse.base.settings import Settings, idle
from llmcourse.parallel import mesh as meshes
from llmcourse.parallel.mesh.names import Pipeline, parse

Parallel = Literal["ddp", "zero1", "zero2", "zero3", "fsdp"]
"""What ranks share: a copy each, or shards of moments, of gradients, of weights; torch's fsdp
shards what our zero3 shards."""


@dataclass(frozen=True, kw_only=True)
class OneProcess(Settings):
    """A run by itself, on any device."""

    refused: ClassVar = {"parallel": "has no effect on one rank: raise ranks"}
    num_ranks: ClassVar[int] = 1
    parallel: ClassVar[Parallel] = "ddp"

    engine: Literal["own"] = "own"
    """Who spreads the run over ranks: the course, or torch, under torchrun and on any machines."""
    device: str = "cpu"
    """cpu, cuda, mps, or auto for the first accelerator."""
    accumulate: int = 1
    """Micro-batches, one after the other, whose gradients add up to that of a rank's sequences: the
    same step in less memory."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "accumulate", least=1)


@dataclass(frozen=True, kw_only=True)
class SeveralRanks(Settings):
    """Processes of one machine that share every batch."""

    needs: ClassVar = "several ranks"
    refused: ClassVar = {"device": "is for one process: several ranks run on the cpu"}
    device: ClassVar[str] = "cpu"

    engine: Literal["own"] = "own"
    ranks: int = idle(1)
    """Processes that share every batch; they run on the CPU."""
    parallel: Literal["ddp", "zero1", "zero2", "zero3"] = "ddp"
    """A copy on each rank (ddp), or shards of moments, gradients, weights (zero1 to 3, fsdp); on a
    mesh, ddp or zero1 along dp."""
    accumulate: int = 1

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        """Whether there are several."""
        return flat["ranks"] != 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "accumulate", "ranks", least=1)

    @property
    def num_ranks(self) -> int:
        """Processes that the run takes."""
        return self.ranks


@dataclass(frozen=True, kw_only=True)
class MeshRanks(Settings):
    """Processes of one machine that split the model, too."""

    needs: ClassVar = "a mesh, such as mesh = dp=2,pp=2"
    refused: ClassVar = {
        "device": "is for a run without a mesh: the ranks of a mesh run on the cpu",
        "ranks": "stands beside a mesh, which says how many there are: leave out ranks",
        "accumulate": "has no effect: a mesh takes its micro-batches from micro_batches",
    }
    accumulate: ClassVar[int] = 1
    device: ClassVar[str] = "cpu"

    engine: Literal["own"] = "own"
    mesh: str = idle("")
    """Ranks by axis, such as dp=2,tp=2,pp=2, that split the model too; axes dp, pp, cp, ep, tp."""
    parallel: Literal["ddp", "zero1"] = "ddp"
    micro_batches: int = 0
    """Parts of a rank's share of the batch, one after the other; 0 takes the fewest that give every
    stage of a mesh work."""
    pipeline: Pipeline = "1f1b"
    """Order of the micro-batches in the stages of a mesh with pp."""
    chunks: int = 1
    """Stages on each rank of a mesh, for pipeline = interleaved."""
    sequence_parallel: bool = False
    """Whether the tp ranks of a mesh share the tokens between the matrices, too."""
    replicate_kv: bool = False
    """Whether the tp ranks of a mesh may hold copies of the same key/value head."""

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        """Whether there is a mesh."""
        return bool(flat["mesh"])

    def __post_init__(self) -> None:
        """Check the numbers, and that there is something to share out."""
        super().__post_init__()
        require_fields(self, "micro_batches", least=0)
        if self.parallel == "zero1" and self.split().dp == 1:
            raise ValueError("parallel = zero1 has no effect with dp = 1: raise dp")

    @property
    def num_ranks(self) -> int:
        """Processes that the run takes."""
        return math.prod(parse(self.mesh).values())

    def split(self, batch_size: int | None = None) -> "meshes.Split":
        """Return how the mesh splits the model; of a batch, into which micro-batches, too."""
        names = ("pipeline", "chunks", "sequence_parallel", "replicate_kv")
        sizes: dict[str, Any] = parse(self.mesh) | {name: getattr(self, name) for name in names}
        split = meshes.Split(**sizes)
        legal = split.legal_micro_batches(batch_size) if batch_size else []
        return replace(split, micro_batches=self.micro_batches or min(legal, default=1))


@dataclass(frozen=True, kw_only=True)
class TorchRanks(Settings):
    """Processes that torchrun starts, on any machines."""

    needs: ClassVar = "engine = torch"
    refused: ClassVar = {
        "mesh": "is for engine = own: leave out mesh or engine",
        "save_in_shards": "has no effect: engine = torch saves in shards anyway",
    }

    engine: Literal["torch"] = "torch"
    ranks: int = 1
    parallel: Literal["ddp", "fsdp"] = "ddp"
    device: str = "cpu"
    accumulate: int = 1

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        """Whether the engine is torch's."""
        return flat["engine"] == "torch"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "accumulate", "ranks", least=1)

    @property
    def num_ranks(self) -> int:
        """Processes that the run takes."""
        return self.ranks
