"""One decoder for many requests: a step computes what every row needs next, in one pass.

In use::

    engine = Engine(decoder, num_pages=64)
    number = engine.submit(Request([3, 1, 4], max_new_tokens=8))
    while not engine.is_idle:
        for event in engine.step():
            print(event.number, event.ids, event.finish)

Continuous batching: rows join and leave between any two steps.  Requests are served in the order
of their arrival, so the rows that run are always the oldest ones:

* In a step every row that writes computes one token, and prompts share what is left of
  `tokens_per_step`: a long prompt is read in pieces, while the others go on writing.
* A request begins to run as soon as there are pages for all of its tokens so far.  Pages that hold
  its first tokens already are shared, even those that are filled in the same step.
* A row that needs one more page when none is left takes those of the youngest row.  That one waits
  again, computes its tokens once more later, and goes on drawing where it was.

Source:
    Yu et al. 2022 (Orca), https://www.usenix.org/conference/osdi22/presentation/yu;
    Agrawal et al. 2024 (Sarathi-Serve), pieces of prompts, https://arxiv.org/abs/2403.02310
"""

from collections import deque
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.model.decoder import Transformer
from llmcourse_labs.real.serve.draft import Draft, Guess, OwnDraft, checked, guessed
from llmcourse_labs.real.serve.paged import PagedDecoder, Span
from llmcourse_labs.real.serve.pages import PagePool, page_names
from llmcourse_labs.real.serve.request import Counts, Event, Request


@dataclass(eq=False)
class _Row:
    """A request, and how far it is."""

    number: int
    request: Request
    generator: torch.Generator
    ids: list[int]
    """Of the prompt, and what was drawn since."""
    length: int = 0
    """How many of them have their keys and values in the pages."""
    pages: list[int] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    """Of the pages that are full."""
    num_new: int = 0
    """How many of `ids` are computed in this step."""
    guesses: list[Guess] = field(default_factory=list)
    """Of what follows them, computed in this step, too."""

    @property
    def is_read(self) -> bool:
        """Whether this step computes all that is left, so that a new token is drawn after it."""
        return self.length + self.num_new == len(self.ids)

    @property
    def num_left(self) -> int:
        """Tokens that may still be drawn."""
        return len(self.request.prompt_ids) + self.request.max_new_tokens - len(self.ids)

    def span(self) -> Span:
        """Return what this step computes."""
        end, guessed_ids = self.length + self.num_new, [guess.token for guess in self.guesses]
        ids = self.ids[self.length : end] + guessed_ids
        return Span(ids, self.length, self.pages, int(self.is_read) + len(guessed_ids))


class Engine:
    """Serves requests with one decoder; it belongs to one thread, which calls `step` in a loop.

    Args:
        decoder: in evaluation mode; its weights must not change, since pages are kept.
        num_pages: of the cache, which is allocated at once.
        page_size: tokens in a page.
        max_rows: that run together.
        tokens_per_step: most new tokens in one pass, max_rows or more.
        draft: guesses tokens with what no row needs in a step; None for no guesses.

    Raises:
        ValueError: if a number is outside its range, the decoder is in training mode, or the draft
            has another vocabulary.
    """

    def __init__(
        self,
        decoder: Transformer,
        *,
        num_pages: int,
        page_size: int = 16,
        max_rows: int = 16,
        tokens_per_step: int = 128,
        draft: Draft | None = None,
    ) -> None:
        if decoder.training:
            raise ValueError(
                "the decoder is in training mode, in which it drops activations and experts drop "
                "the tokens of full batches: call decoder.eval() first"
            )
        size = decoder.config.vocab_size
        if isinstance(draft, OwnDraft) and (own := draft.decoder.config.vocab_size) != size:
            raise ValueError(
                f"the draft has a vocabulary of {own}, and the decoder of {size}: give a draft of "
                "the same tokenizer, or PromptLookup"
            )
        require("max_rows", max_rows, least=1)
        require("tokens_per_step", tokens_per_step, least=max_rows)
        self.config, self._device = decoder.config, decoder.embedding.device
        self.max_rows, self.tokens_per_step = max_rows, tokens_per_step
        self._draft = draft
        self._pool = PagePool(num_pages, page_size)
        self._paged = PagedDecoder(decoder, num_pages, page_size)
        self._waiting: deque[_Row] = deque()
        self._running: list[_Row] = []
        self._events: list[Event] = []
        self._counts = Counts()
        self._num_submitted = 0

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing."""
        return not (self._running or self._waiting or self._events)

    @property
    def counts(self) -> Counts:
        """What was done so far, and what is held now."""
        pool = self._pool
        return replace(
            self._counts,
            running=len(self._running),
            waiting=len(self._waiting),
            pages_used=pool.num_pages - pool.num_empty - pool.num_kept,
            pages_kept=pool.num_kept,
            pages_free=pool.num_empty,
        )

    def submit(self, request: Request) -> int:
        """Let a request wait for its turn; return its number.

        Raises:
            ValueError: if an id is outside the vocabulary, or prompt and new tokens together are
                longer than the context or than all pages.
        """
        ids, pool = list(request.prompt_ids), self._pool
        if not 0 <= min(ids) <= max(ids) < self.config.vocab_size:
            raise ValueError(
                f"ids must be from 0 to {self.config.vocab_size - 1}, got {min(ids)} to {max(ids)}"
            )
        total, context = len(ids) + request.max_new_tokens, self.config.context_length
        told = f"{len(ids)} tokens of prompt and {request.max_new_tokens} new ones"
        if total > context:
            raise ValueError(
                f"{told} do not fit into the context of {context}, which does not slide here: ask "
                "for fewer"
            )
        if (num_pages := pool.pages_for(total)) > pool.num_pages:
            raise ValueError(
                f"{told} need {num_pages} pages, and there are {pool.num_pages}: ask for fewer, or "
                "give the engine more"
            )
        number, self._num_submitted = self._num_submitted, self._num_submitted + 1
        generator = torch.Generator(self._device).manual_seed(request.seed)
        self._waiting.append(_Row(number, request, generator, ids))
        return number

    def cancel(self, number: int) -> None:
        """End a request; the next step tells so.  One that has ended already stays as it ended."""
        for rows in (self._running, self._waiting):
            for row in [each for each in rows if each.number == number]:
                rows.remove(row)
                self._give_back(row)
                self._events.append(Event(number, [], "cancelled"))

    def step(self) -> list[Event]:
        """Compute what every row needs next; return what that brought, and what was cancelled.

        An engine in which this raised, such as out of memory, is not to be used any more.
        """
        events, self._events = self._events, []
        self._plan()
        if not (rows := list(self._running)):
            return events
        self._counts.steps += 1
        logits = self._paged.logits([row.span() for row in rows])
        for row, logits_TV in zip(rows, logits, strict=True):
            if row.is_read:
                events.append(self._write(row, logits_TV))
            else:
                row.length += row.num_new
        return events

    def _plan(self) -> None:
        """Choose which rows run, and what each computes in this step, the oldest first.

        No row begins before all older ones have read their prompts, so all but the last one need
        one token each.
        """
        budget, num_planned = self.tokens_per_step, 0
        while num_planned < len(self._running) or (budget and self._admit()):
            row = self._running[num_planned]
            if not self._has_pages(row):
                break  # it was the youngest
            row.num_new, row.guesses = min(budget, len(row.ids) - row.length), []
            if row.num_new > 1 or row.length < len(row.request.prompt_ids):
                self._counts.prompt_tokens += row.num_new
            self._name_full(row)
            budget -= row.num_new
            num_planned += 1
        if self._draft is not None:
            for row in self._running:
                self._guess(row, self._draft, budget)
                budget -= len(row.guesses)

    def _guess(self, row: _Row, draft: Draft, most: int) -> None:
        """Let the draft continue a row, as far as there are pages that no row needs."""
        ids = list(row.ids)
        for _ in range(min(most, draft.num_tokens, row.num_left - 1) if row.is_read else 0):
            if len(row.pages) < self._pool.pages_for(len(ids) + 1):
                if (page := self._pool.take()) is None:
                    return
                row.pages.append(page)
            if (proposal := draft.propose(row.number, ids, row.request)) is None:
                return
            row.guesses.append(guessed(proposal, row.generator))
            ids.append(row.guesses[-1].token)

    def _admit(self) -> bool:
        """Let the oldest request that waits run, if there is a row and pages for it."""
        if not self._waiting or len(self._running) == self.max_rows:
            return False
        row, pool = self._waiting[0], self._pool
        # The last token is computed in any case: its logits are wanted.
        names = page_names(row.ids[:-1], pool.page_size)
        shared = pool.find(names)
        num_missing = pool.pages_for(len(row.ids)) - len(shared)
        if num_missing > pool.num_empty + pool.num_kept:
            pool.release(shared)
            return False
        row.pages, row.names = shared, names[: len(shared)]
        row.length = len(shared) * pool.page_size
        self._counts.shared_tokens += row.length
        self._running.append(self._waiting.popleft())
        return True

    def _has_pages(self, row: _Row) -> bool:
        """Give a row pages for all of its tokens; False if it had to give its own up."""
        while len(row.pages) < self._pool.pages_for(len(row.ids)):
            if (page := self._pool.take()) is not None:
                row.pages.append(page)
                continue
            youngest = self._running.pop()
            self._give_back(youngest)
            self._waiting.appendleft(youngest)
            self._counts.preemptions += 1
            if youngest is row:
                return False
        return True

    def _name_full(self, row: _Row) -> None:
        """Let the pages of a row be found that are full after this pass.

        A layer stores the keys and values of all new tokens before any row attends, so a younger
        row may read in this pass already what an older one stores.
        """
        num_named, ids = len(row.names), row.ids[: row.length + row.num_new]
        row.names = page_names(ids, self._pool.page_size, row.names)
        for page, name in zip(row.pages[num_named:], row.names[num_named:], strict=False):
            self._pool.name(page, name)

    def _give_back(self, row: _Row) -> None:
        """Let go of all pages of a row."""
        if self._draft is not None:
            self._draft.forget(row.number)
        self._pool.release(row.pages)
        row.pages, row.names, row.length = [], [], 0

    def _write(self, row: _Row, logits_TV: Float[Tensor, "T V"]) -> Event:
        """Add what the model writes to a row, up to the first id that stops it; end it if done."""
        stops, pool = row.request.stop_ids, self._pool
        ids = checked(logits_TV, row.guesses, row.request, row.generator)
        self._counts.drafted += len(row.guesses)
        self._counts.accepted += len(ids) - 1
        ids = ids[: next((i + 1 for i, token in enumerate(ids) if token in stops), None)]
        self._counts.new_tokens += len(ids)
        row.ids += ids
        row.length = len(row.ids) - 1
        num_pages = pool.pages_for(len(row.ids))
        pool.release(row.pages[num_pages:])  # of guesses that were wrong
        del row.pages[num_pages:]
        if ids[-1] not in stops and row.num_left:
            return Event(row.number, ids, None)
        self._running.remove(row)
        self._give_back(row)
        return Event(row.number, ids, "stop" if ids[-1] in stops else "length")
