"""What is asked of the engine, what a step brings, and how a token is drawn.

Shape suffixes:  V vocabulary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.model.sampling import check_sampling, next_token_probabilities


@dataclass(frozen=True)
class Request:
    """A text to be continued; each sampling argument is that of `generate`."""

    prompt_ids: Sequence[int]
    """At least one."""
    max_new_tokens: int
    """1 or more; prompt and new tokens together fit into the context."""
    stop_ids: Collection[int] = ()
    """Each of them ends the text, and belongs to it."""
    temperature: float = 0.0
    """0 takes the likeliest token."""
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    """Of the draws, which are this request's own: what else is served does not change them, unless
    an `OwnDraft` draws from the same generator; their distribution stays in any case."""

    def __post_init__(self) -> None:
        """Reject what no model can do."""
        if not len(self.prompt_ids):
            raise ValueError("the prompt is empty: give at least one token, such as the separator")
        require("max_new_tokens", self.max_new_tokens, least=1)
        check_sampling(self.temperature, self.top_k, self.top_p)
        require("seed", self.seed, least=0, below=2**63)

    def probabilities(self, logits_V: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
        """Return the distribution that this request draws a token from."""
        return next_token_probabilities(
            logits_V, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p
        )

    def draw(self, logits_V: Float[Tensor, " V"], generator: torch.Generator) -> int:
        """Draw the next token, as `generate` does."""
        if self.temperature == 0:
            return int(logits_V.argmax())
        return int(torch.multinomial(self.probabilities(logits_V), 1, generator=generator))


@dataclass(frozen=True)
class Event:
    """What one step brought one request."""

    number: int
    """Of the request."""
    ids: list[int]
    """New tokens, a stop id included; several at once where guesses were right."""
    finish: Literal["stop", "length", "cancelled"] | None
    """Why nothing follows; None if more is to come."""


@dataclass
class Counts:
    """What an engine has done so far, and what it holds now."""

    steps: int = 0
    """Forward passes."""
    prompt_tokens: int = 0
    """Computed of prompts; what a row recomputes after it had to wait counts again."""
    shared_tokens: int = 0
    """Found in pages of other rows, or of earlier ones, and not computed."""
    new_tokens: int = 0
    preemptions: int = 0
    """Times that a row gave its pages up and waited again."""
    drafted: int = 0
    """Tokens that a draft proposed."""
    accepted: int = 0
    """Of those, the ones that the model wrote."""
    running: int = 0
    """Rows, now."""
    waiting: int = 0
    pages_used: int = 0
    """By running rows, now; used, kept and free pages are all."""
    pages_kept: int = 0
    """Full pages that nobody uses and that may be found again."""
    pages_free: int = 0
    """In which nothing stands."""
