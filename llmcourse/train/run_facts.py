"""What can be said about a run: read from its settings, its shards, its metrics, its checkpoint.

Taught in: chapters/30_checkpoints.ipynb
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llmcourse.checkpoint import Checkpoint
from llmcourse.data import TokenShards
from llmcourse.tokenizer import Tokenizer
from llmcourse.train.config import TrainConfig

CHUNK_TOKENS = 1 << 20
"""Tokens that are counted at a time."""


class RecordedValidation(NamedTuple):
    """A validation, as metrics.jsonl has it."""

    step: int
    nats_per_token: float
    bits_per_byte: float


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A run at the step of one checkpoint, in figures."""

    config: TrainConfig
    """Settings of the run."""
    step: int
    """Steps done."""
    num_parameters: int
    """A tied head counted once."""
    training_tokens: int
    """In the corpus; how many were seen is `tokens_seen`."""
    training_bytes: int
    """The same text in UTF-8, separators between documents included."""
    training_loss: float | None
    """Nats per token of the last step's batch, before its update, if it was recorded."""
    validation: RecordedValidation | None
    """The newest up to `step`, if one was recorded."""
    code: dict[str, str]
    """Version and source hash of the package that saved the checkpoint."""

    @property
    def tokens_seen(self) -> int:
        """Tokens that the steps learnt from."""
        return self.step * self.config.batch_size * self.config.model.context_length


def run_facts(
    folder: Path, config: TrainConfig, saved: Checkpoint, tokenizer: Tokenizer
) -> RunFacts:
    """Collect the figures of a run.

    Args:
        folder: of the run.
        config: its settings.
        saved: one of its checkpoints.
        tokenizer: that of the run.

    Raises:
        ValueError: if the shards are missing, damaged, or of another tokenizer.
    """
    shards = TokenShards(folder / "data" / "training", tokenizer_fingerprint=tokenizer.fingerprint)
    rows = [row for row in _rows(folder / "metrics.jsonl") if row["step"] <= saved.step]
    validated = [
        RecordedValidation(row["step"], row["validation_loss"], row["validation_bits_per_byte"])
        for row in rows
        if "validation_loss" in row
    ]
    return RunFacts(
        config=config,
        step=saved.step,
        num_parameters=sum(weight.numel() for weight in saved.model.values()),
        training_tokens=len(shards),
        training_bytes=_num_bytes(shards, tokenizer),
        training_loss=rows[-1]["loss"] if rows and rows[-1]["step"] == saved.step else None,
        validation=validated[-1] if validated else None,
        code=saved.code,
    )


def _num_bytes(shards: TokenShards, tokenizer: Tokenizer) -> int:
    """Return the length of the text in UTF-8, without decoding it."""
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for start in range(0, len(shards), CHUNK_TOKENS):
        counts += np.bincount(shards[start : start + CHUNK_TOKENS], minlength=len(counts))
    return int(counts @ [len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read metrics, up to a line that a crash cut short."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
