"""When a run is saved, and how."""

from dataclasses import dataclass

from llmcourse.base.arguments import require_fields
from llmcourse.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Saving(Settings):
    """Of a run's checkpoints."""

    checkpoint_every: int = 200
    """Steps between checkpoints; 0 saves at the end only."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints stay on disk."""
    save_in_shards: bool = False
    """A checkpoint in parts that all ranks write at the same time, instead of one file."""
    save_in_background: bool = False
    """Copy the state and go on training while the copy is written."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "checkpoint_every", least=0)
        require_fields(self, "keep_checkpoints", least=1)
