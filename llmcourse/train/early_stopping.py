"""Ending a run when its validation loss has stopped falling, and keeping the best weights."""

import json
import math
from pathlib import Path

from llmcourse.checkpoint import remove_later
from llmcourse.train.run import Run, save
from llmcourse.train.saved import BEST


class EarlyStopping:
    """Watches the validations of a run that has `patience`; of any other it does nothing.

    What it knows is in metrics.jsonl, so that a run that goes on waits for no validation twice.

    Args:
        run: about to train.
    """

    def __init__(self, run: Run) -> None:
        self.patience = run.config.watching.patience
        self.best_step, self.best_loss = 0, math.inf
        """The step with the lowest validation loss, and that loss."""
        self.waited = 0
        """Validations since then."""
        if not self.patience:
            return
        for step, loss in _validations(run.folder / "metrics.jsonl", run.steps_done):
            self._count(step, loss)
        if run.layout.is_first:  # what a run has found that was taken back
            remove_later(run.folder / BEST, run.steps_done)

    @property
    def is_over(self) -> bool:
        """Whether the run has waited long enough."""
        return 0 < self.patience <= self.waited

    def note(self, run: Run, loss: float) -> None:
        """Take in a validation, on every rank; save the weights if they are the best."""
        if not self.patience:
            return
        # Ranks must agree, and their losses may differ in the last bit.
        is_better = run.layout.broadcast_from_first(int(loss < self.best_loss))
        self._count(run.steps_done, loss if is_better else math.inf)
        if is_better:
            save(run, into=BEST)

    def _count(self, step: int, loss: float) -> None:
        if loss < self.best_loss:
            self.best_step, self.best_loss, self.waited = step, loss, 0
        else:
            self.waited += 1


def _validations(path: Path, last: int) -> list[tuple[int, float]]:
    """Return the steps of a run that were validated, up to one, with their losses."""
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            row = json.loads(line)
            step, loss = row["step"], row["validation_loss"]
        except (ValueError, TypeError, KeyError, RecursionError):  # cut short, or no validation
            continue
        if type(step) is int and 1 <= step <= last and isinstance(loss, float):
            found.append((step, loss))
    return found
