"""What to do about a spike of the loss: go back, and leave out the batches before it."""

import copy
from collections import deque
from typing import Any

import torch
from torch import nn

from llmcourse.base.arguments import require


class SkipAndRewind:
    """Go back to a state from before a spike, and go on with other data.

    The order of the data is not turned back: what came just before the spike is skipped.  Spikes
    come from the meeting of certain batches with a certain state of the weights; the same batches
    are harmless later.  Nor is a detector turned back, which may have remembered losses of spoilt
    steps: keep its `values` with the step, and put them back.

    Args:
        model: its parameters and buffers are kept.
        optimizer: its state is kept.
        every: steps between two snapshots, 1 or more.

    Raises:
        ValueError: if `every` is below 1.

    Source:
        Chowdhery et al. 2022, section 5.1, https://arxiv.org/abs/2204.02311
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, *, every: int = 20
    ) -> None:
        require("every", every, least=1)
        self.model, self.optimizer, self.every = model, optimizer, every
        self._snapshots: deque[tuple[int, Any, Any]] = deque(maxlen=2)
        self.rewinds: list[tuple[int, int]] = []
        """Pairs (step of the spike, step that was returned to)."""

    def before(self, step: int) -> None:
        """Keep the state before a step, if it is time to; the last two are kept."""
        if step % self.every == 0:
            state = (self.model.state_dict(), self.optimizer.state_dict())
            self._snapshots.append((step, *copy.deepcopy(state)))

    def rewind(self, step: int) -> int:
        """Bring back the older snapshot; return its step.

        The newer one may already hold what leads to the spike.

        Raises:
            ValueError: if there is no snapshot.
        """
        if not self._snapshots:
            raise ValueError("there is no snapshot to go back to: call before(step) in each step")
        kept_step, model, optimizer = self._snapshots[0]
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(copy.deepcopy(optimizer))
        self._snapshots = deque([self._snapshots[0]], maxlen=2)
        self.rewinds.append((step, kept_step))
        return kept_step
