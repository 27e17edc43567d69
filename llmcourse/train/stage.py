"""What a stage of training does in its own way.

Pre-training is the first stage.  Others come in by entry points (`base.plugins`): fine-tuning has
other tokens, begins with the weights of another run, and learns from answers alone.  The loop, the
step and the checkpoints are the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor

from llmcourse.base.plugins import plugin
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.config import TrainConfig

PRETRAIN = "pretrain"


class TrainingStage:
    """Pre-training, whose tokens `prepare` writes; another stage says what it does otherwise."""

    config: type[TrainConfig] = TrainConfig
    """Its settings."""

    def write_tokens(self, config: TrainConfig, folder: Path) -> None:
        """Write the tokenizer and the tokens of a run, to train on and to validate."""
        raise NotImplementedError

    def provenance(self, config: TrainConfig) -> dict[str, Any]:
        """Return the settings that decide which tokens there are."""
        raise NotImplementedError

    def begin(
        self, config: TrainConfig, model: Transformer, tokenizer: Tokenizer | None, *, anew: bool
    ) -> None:
        """Change a model before its optimizer is made.

        Args:
            config: of the run.
            model: with random weights.
            tokenizer: of the run.
            anew: whether no checkpoint's weights will follow.
        """

    def answers(
        self, config: TrainConfig, tokenizer: Tokenizer | None, ids_BT: Int[Tensor, "B T"],
        documents_BT: Int[Tensor, "B T"],
    ) -> Bool[Tensor, "B T"] | None:  # fmt: skip
        """Return which tokens of packed rows are what the run is judged by; None is all."""
        return None

    def learned(
        self, config: TrainConfig, tokenizer: Tokenizer | None, ids_BT: Int[Tensor, "B T"],
        documents_BT: Int[Tensor, "B T"],
    ) -> Bool[Tensor, "B T"] | None:  # fmt: skip
        """Return which tokens of packed rows the loss counts; None is all."""
        return self.answers(config, tokenizer, ids_BT, documents_BT)

    def whole(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of a checkpoint under the names of a `Transformer`."""
        return dict(state)


def stage_of(settings: TrainConfig | Mapping[str, Any]) -> TrainingStage:
    """Return the stage of settings, or of what a file holds of them.

    Raises:
        ValueError: if nothing installed offers it.
    """
    name = settings.get("stage") if isinstance(settings, Mapping) else settings.stage
    return TrainingStage() if name in (None, PRETRAIN) else plugin("stages", str(name))()
