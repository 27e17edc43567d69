"""Which optimizer a run has, and how its learning rate goes."""

from dataclasses import dataclass

from llmcourse.base.arguments import require_fields
from llmcourse.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class AdamWSettings(Settings):
    """Of `AdamW`."""

    weight_decay: float = 0.1
    """AdamW's decay, on matrices only."""
    beta1: float = 0.9
    """AdamW's memory of the gradient."""
    beta2: float = 0.95
    """AdamW's memory of its square."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "weight_decay", least=0)
        require_fields(self, "beta1", "beta2", least=0, below=1)
