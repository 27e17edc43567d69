"""The settings of a fine-tuning run: those of every run, and where it begins."""

from dataclasses import dataclass
from typing import Literal

from llmcourse.base.arguments import require_fields
from llmcourse.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class TuneConfig(TrainConfig):
    """Settings of a run that goes on with another one's weights."""

    stage: Literal["sft"] = "sft"
    """Supervised fine-tuning: learn to answer, from conversations."""
    start: str
    """Folder of the run to fine-tune."""
    corpus: Literal["tasks"] = "tasks"
    """What the conversations are about."""
    order: Literal["packed"] = "packed"
    """Whole conversations, packed into rows, none of which sees another's tokens."""
    examples: int = 3_000
    """Conversations to train on."""
    replay: float = 0.0
    """Share of the training tokens that is text of the run it starts from, so that less of it is
    forgotten."""
    lora_rank: int = 0
    """Rank of the thin matrices that are learnt beside every matrix of a block, which itself stays;
    0 learns all weights."""
    learn_all: bool = False
    """Whether the loss counts every token, and not those of answers alone."""
    steps: int = 300
    """Optimizer steps."""
    batch_size: int = 12
    """Rows per step."""
    learning_rate: float = 2e-3
    """Largest learning rate of the schedule."""
    warmup_steps: int = 20
    """Steps of linear warm-up."""
    validate_every: int = 50
    """Steps between validations; 0 validates at the end only."""
    sample_every: int = 0
    """Steps between samples; 0 samples at the end only."""

    def __post_init__(self) -> None:
        """Reject settings that cannot run, or that would have no effect."""
        super().__post_init__()
        if not self.start:
            raise ValueError("stage = sft needs start: the folder of the run to fine-tune")
        if self.corpus != "tasks" or self.order != "packed":
            raise ValueError(
                f"stage = sft learns from corpus = tasks in order = packed, got {self.corpus} and "
                f"{self.order}"
            )
        require_fields(self, "examples", least=1)
        require_fields(self, "lora_rank", least=0)
        require_fields(self, "replay", least=0, below=1)
        if self.num_ranks > 1:
            raise ValueError(f"stage = sft runs in one process, got {self.num_ranks} ranks")
