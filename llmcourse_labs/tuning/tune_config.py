"""The settings of a fine-tuning run: those of every run, and where it begins."""

from dataclasses import dataclass, field
from typing import Literal

from llmcourse.base.arguments import require_fields
from llmcourse.data.settings import Text
from llmcourse.optim.schedules import Cosine, WarmupStableDecay
from llmcourse.train.config import TrainConfig, Watching


@dataclass(frozen=True, kw_only=True)
class Conversations(Text):
    """What a model is fine-tuned on."""

    corpus: Literal["tasks", "file"] = "tasks"
    """Where the conversations come from: the course's tasks, or a file of one's own."""
    conversations: str = ""
    """A .jsonl file for a model of others, a conversation a line: {"messages": [{"role": "user",
    "content": ...}, ...]}."""
    order: Literal["packed"] = "packed"
    """Whole conversations, packed into rows, none of which sees another's tokens."""
    examples: int = 3_000
    """Conversations to train on."""
    replay: float = 0.0
    """Share of the training tokens that is text of the run it starts from, so that less of it is
    forgotten."""
    learn_all: bool = False
    """Whether the loss counts every token, and not those of answers alone."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "examples", least=1)
        require_fields(self, "replay", least=0, below=1)
        if (self.corpus == "file") != bool(self.conversations):
            raise ValueError(
                f"corpus = {self.corpus!r} and conversations = {self.conversations!r} do not fit: "
                "a file has a name, and tasks have none"
            )


@dataclass(frozen=True, kw_only=True)
class TuneConfig(TrainConfig):
    """Settings of a run that goes on with another one's weights."""

    stage: Literal["sft"] = "sft"  # type: ignore[assignment]  # other values than pretrain's
    """Supervised fine-tuning: learn to answer, from conversations."""
    start: str
    """Folder of the run to fine-tune; or a model of others, whose template is then given."""
    template: str = ""
    """Of a model of others: how it writes conversations, in Jinja."""
    template_tokens: str = ""
    """Tokens that the template calls by name, as a JSON object."""
    text: Conversations = field(default_factory=Conversations)  # type: ignore[assignment]  # as stage
    lora_rank: int = 0
    """Rank of the thin matrices that are learnt beside every matrix of a block, which itself stays;
    0 learns all weights."""
    quantised_base: bool = False
    """Whether matrices beside thin ones stay in the blocks of a .gguf file (QLoRA)."""
    steps: int = 300
    """Optimizer steps."""
    batch_size: int = 12
    """Rows per step."""
    schedule: WarmupStableDecay | Cosine = field(
        default_factory=lambda: Cosine(learning_rate=2e-3, warmup_steps=20)
    )
    watching: Watching = field(default_factory=lambda: Watching(validate_every=50, sample_every=0))

    def __post_init__(self) -> None:
        """Reject settings that cannot run, or that would have no effect."""
        super().__post_init__()
        if not self.start:
            raise ValueError("stage = sft needs start: the folder of the run to fine-tune")
        require_fields(self, "lora_rank", least=0)
        if bool(self.template) != (self.text.corpus == "file"):
            raise ValueError(
                "a model of others (--model) learns from conversations of your own (--data "
                "FILE.jsonl), and a run (--start) from the course's tasks"
            )
        if self.quantised_base and not (self.template and self.lora_rank):
            raise ValueError(
                "quantised_base = True learns beside the blocks of a .gguf file: give --model, "
                "such as smollm2, and --lora_rank"
            )
        if self.template and self.text.replay:
            raise ValueError("replay has no effect on a model of others: its text is not here")
        if self.layout.num_ranks > 1:
            raise ValueError(f"stage = sft runs in one process, got {self.layout.num_ranks} ranks")
