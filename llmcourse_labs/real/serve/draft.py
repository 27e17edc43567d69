"""Guesses of the next tokens, which one pass checks all at once, and which change no distribution.

A draft proposes token after token.  The model reads them together and keeps those up to the first
that it would not have written:

* A guess without probabilities: the model draws from its own p as ever, and the guess was right if
  it is what was drawn.  So a request writes the same tokens with such a draft and without it.
* A guess drawn from q is kept with probability min(1, p(x) / q(x)); else the token is drawn from
  max(0, p - q), scaled.  Together both ways bring every x with probability p(x), whatever q is:
  min(p, q) + (1 - sum min(p, q)) max(0, p - q) / sum max(0, p - q) = p.

Shape suffixes:  T guesses and the place after them, V vocabulary.

Source:
    Leviathan et al. 2023, https://arxiv.org/abs/2211.17192
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.model.decoder import KVCache, Transformer
from llmcourse_labs.real.serve.request import Request


class Guess(NamedTuple):
    """A proposed token, and the distribution that it was drawn from, or None."""

    token: int
    q_V: Float[Tensor, " V"] | None


class Draft(ABC):
    """What proposes tokens to an engine.

    Args:
        num_tokens: most guesses for a row in one step, 1 or more.
    """

    def __init__(self, num_tokens: int) -> None:
        require("num_tokens", num_tokens, least=1)
        self.num_tokens = num_tokens

    @abstractmethod
    def propose(
        self, number: int, ids: list[int], request: Request
    ) -> int | Float[Tensor, " V"] | None:
        """Return what may follow the ids of a row: a token, probabilities, or None for no guess."""

    def forget(self, number: int) -> None:  # noqa: B027 - most keep nothing
        """Let go of what is kept for a row."""


class PromptLookup(Draft):
    """Proposes what followed the last tokens when they stood in the text before.

    Args:
        longest: run of last tokens that is looked for, then shorter ones; 1 or more.
        num_tokens: see `Draft`.
    """

    def __init__(self, longest: int = 3, num_tokens: int = 8) -> None:
        super().__init__(num_tokens)
        require("longest", longest, least=1)
        self.longest = longest

    def propose(self, number: int, ids: list[int], request: Request) -> int | None:
        """Return the token after the latest of the longest runs that are found again."""
        for length in range(min(self.longest, len(ids) - 1), 0, -1):
            last = ids[-length:]
            for end in range(len(ids) - 1, length - 1, -1):
                if ids[end - 1] == last[-1] and ids[end - length : end] == last:
                    return ids[end]
        return None


class OwnDraft(Draft):
    """Proposes what a smaller decoder would write, with the request's own temperature.

    It reads one row at a time, each with a cache of its own, and a new prompt at once.

    Args:
        decoder: of the same vocabulary, in evaluation mode.
        num_tokens: see `Draft`.
    """

    def __init__(self, decoder: Transformer, num_tokens: int = 4) -> None:
        super().__init__(num_tokens)
        self.decoder = decoder
        self._rows: dict[int, tuple[list[int], list[KVCache]]] = {}

    @torch.no_grad()
    def propose(
        self, number: int, ids: list[int], request: Request
    ) -> int | Float[Tensor, " V"] | None:
        """Return the likeliest token or the distribution; None beyond the decoder's context."""
        context = self.decoder.config.context_length
        if len(ids) > context:
            return None
        if number not in self._rows:
            room = min(context, len(request.prompt_ids) + request.max_new_tokens)
            self._rows[number] = [], self.decoder.new_cache(1, room)
        seen, cache = self._rows[number]
        pairs = zip(seen, ids[:-1], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        for layer in cache:  # what was read of guesses that were wrong is written over
            layer.length = same
        new_T = torch.tensor(ids[same:], device=self.decoder.embedding.device)
        logits_V = self.decoder(new_T[None], cache=cache, last_only=True)[0, -1]
        seen[:] = ids
        return (
            int(logits_V.argmax()) if request.temperature == 0 else request.probabilities(logits_V)
        )

    def forget(self, number: int) -> None:
        """Let go of a row's cache."""
        self._rows.pop(number, None)


def guessed(proposal: int | Float[Tensor, " V"], generator: torch.Generator) -> Guess:
    """Return the guess of a proposal; it is drawn here, so it cannot but come from q."""
    if isinstance(proposal, int):
        return Guess(proposal, None)
    q_V = proposal / proposal.sum()
    return Guess(int(torch.multinomial(q_V, 1, generator=generator)), q_V)


def checked(
    logits_TV: Float[Tensor, "T V"],
    guesses: Sequence[Guess],
    request: Request,
    generator: torch.Generator,
) -> list[int]:
    """Return the guesses that are kept, and the token that the model writes after them.

    Args:
        logits_TV: at the place of every guess, and after the last.
        guesses: in order; there may be none.
        request: whose temperature, top_k and top_p give p.
        generator: of its draws.
    """
    ids: list[int] = []
    for logits_V, (token, q_V) in zip(logits_TV, guesses, strict=False):
        if q_V is None:
            ids.append(request.draw(logits_V, generator))
            if ids[-1] != token:
                return ids
            continue
        p_V = request.probabilities(logits_V)
        chance = torch.rand((), generator=generator, device=generator.device)
        if chance * q_V[token] >= p_V[token]:
            rest_V = (p_V - q_V).clamp(min=0)
            rest_V = rest_V if rest_V.any() else p_V  # p = q, but for the last bits
            return [*ids, int(torch.multinomial(rest_V, 1, generator=generator))]
        ids.append(token)
    return [*ids, request.draw(logits_TV[-1], generator)]
