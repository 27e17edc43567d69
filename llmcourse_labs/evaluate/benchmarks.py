"""Benchmarks: questions with choices, how likely a model finds each, and the loss of whole texts.

A model that only goes on with texts cannot be asked to choose.  So each choice is put behind the
prompt, and the one that the model finds likeliest counts as its answer::

    plain           log p(choice | prompt)
    per token       log p(choice | prompt) / tokens of the choice
    per byte        log p(choice | prompt) / bytes of the choice
    unconditional   log p(choice | prompt) - log p(choice | nothing)

Longer choices have lower probabilities, since each token costs; the second and the third take that
into account in two ways.  The fourth asks how much likelier the prompt makes a choice (pointwise
mutual information), so that a choice that is likely anywhere has no advantage.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from llmcourse.base.arguments import require_fields
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.loss import bits_per_byte, perplexity, shifted_targets, token_losses
from llmcourse.model import Transformer
from llmcourse_labs.tuning.likelihood import answer_rows

HOW = ("plain", "per token", "per byte", "unconditional")
"""The ways to choose."""

BATCH = 64
"""Rows that a model reads side by side."""


@dataclass(frozen=True, kw_only=True)
class ChoiceItem:
    """A question with choices, one of which is right."""

    skill: str
    """What the item asks for."""
    prompt: str
    """What the model reads; "" if nothing."""
    choices: tuple[str, ...]
    """What may follow, each with the space before it; two or more, all different."""
    right: int
    """The place of the right choice."""
    cluster: str = ""
    """What the item has in common with others, such as the story it was cut from."""

    def __post_init__(self):
        where = f"the item {self.prompt[-40:]!r}"
        if len(self.choices) < 2 or not all(self.choices):
            raise ValueError(f"{where} needs 2 or more choices that say something: {self.choices}")
        if len(set(self.choices)) < len(self.choices):
            raise ValueError(f"{where} has the same choice twice: {self.choices}")
        if not 0 <= self.right < len(self.choices):
            raise ValueError(
                f"{where} has no right answer: right must be 0 to {len(self.choices) - 1}, got "
                f"{self.right}"
            )


@dataclass(frozen=True, kw_only=True)
class ChoiceScores:
    """How likely a model finds each choice of an item."""

    log_probs: tuple[float, ...]
    """log p(choice | prompt), in nats."""
    alone: tuple[float, ...]
    """log p(choice | nothing)."""
    num_tokens: tuple[int, ...]
    """Tokens of each choice."""
    num_bytes: tuple[int, ...]
    """Bytes of each choice."""

    def by(self, how: str) -> tuple[float, ...]:
        """Return the score of each choice in one of the ways of `HOW`.

        Raises:
            ValueError: if there is no such way.
        """
        if how not in HOW:
            raise ValueError(f"how must be one of {', '.join(HOW)}, got {how!r}")
        if how == "unconditional":
            return tuple(p - q for p, q in zip(self.log_probs, self.alone, strict=True))
        ones = (1,) * len(self.log_probs)
        sizes = {"plain": ones, "per token": self.num_tokens, "per byte": self.num_bytes}[how]
        return tuple(p / size for p, size in zip(self.log_probs, sizes, strict=True))


def choice_scores(
    model: Transformer,
    tokenizer: Tokenizer,
    items: Sequence[ChoiceItem],
    *,
    begin_ids: Sequence[int] = (),
) -> list[ChoiceScores]:
    """Return how likely a model finds the choices of each item.

    Prompts begin with the separator of documents where the tokenizer has one: as in training, a
    text begins after it.  "Nothing" is the separator alone.  Of a prompt that does not fit into the
    context beside a choice, the last tokens are read.

    Args:
        model: in evaluation mode.
        tokenizer: of the same run.
        items: at least one.
        begin_ids: what a text of a model of others begins with, in place of the separator.

    Raises:
        ValueError: if there is no item, a choice does not fit into the context of the model or
            begins within a token, or the tokenizer is that of another model.
    """
    if not items:
        raise ValueError("there is no item: a suite needs at least one")
    _require_tokenizer_of(model, tokenizer)
    start = list(begin_ids) or _start(tokenizer)
    # Prompt and choice are encoded as one text, in which no token may reach over the border.
    told: list[_Pair] = []
    for item in items:
        prompt = [*start, *tokenizer.encode(item.prompt)]
        for choice in item.choices:
            whole = [*start, *tokenizer.encode(item.prompt + choice)]
            if whole[: len(prompt)] != prompt:
                raise ValueError(
                    f"the choice {choice!r} begins within a token of the prompt "
                    f"{item.prompt[-40:]!r}: put the space before it into the choice"
                )
            told.append(_Pair(prompt, whole[len(prompt) :]))
    # Each different choice is read alone once, however many items have it.
    choices = dict.fromkeys(choice for item in items for choice in item.choices)
    # Something must come before the first token: id 0 where there is no separator.
    bare = start or [0]
    log_probs = _log_probs(model, told)
    of_alone = _log_probs(model, [_Pair(bare, tokenizer.encode(choice)) for choice in choices])
    alone = dict(zip(choices, of_alone, strict=True))
    # One row for each choice of all items: cut into items again.
    found, place = [], 0
    for item in items:
        end = place + len(item.choices)
        found.append(
            ChoiceScores(
                log_probs=tuple(log_probs[place:end]),
                alone=tuple(alone[choice] for choice in item.choices),
                num_tokens=tuple(len(pair.answer) for pair in told[place:end]),
                num_bytes=tuple(len(choice.encode()) for choice in item.choices),
            )
        )
        place = end
    return found


def chosen(scores: Sequence[ChoiceScores], how: str) -> list[int]:
    """Return the place of the choice with the highest score; of equal ones the first."""
    values = [each.by(how) for each in scores]
    return [row.index(max(row)) for row in values]


def are_right(items: Sequence[ChoiceItem], scores: Sequence[ChoiceScores], how: str) -> list[bool]:
    """Say of each item whether its right choice has the highest score.

    Raises:
        ValueError: if the numbers of items and scores differ, or there is no such way.
    """
    if len(items) != len(scores):
        raise ValueError(f"give the scores of {len(items)} items, got {len(scores)}")
    return [item.right == k for item, k in zip(items, chosen(scores, how), strict=True)]


@dataclass(frozen=True, kw_only=True)
class TextLoss:
    """What a model pays for a text."""

    nats: float
    """-log p of the whole text."""
    num_tokens: int
    """Tokens, of the model's own tokenizer."""
    num_bytes: int
    """Bytes, which are the same for all models."""

    def __post_init__(self):
        require_fields(self, "num_tokens", "num_bytes", least=1)

    def __add__(self, other: "TextLoss") -> "TextLoss":
        return TextLoss(
            nats=self.nats + other.nats,
            num_tokens=self.num_tokens + other.num_tokens,
            num_bytes=self.num_bytes + other.num_bytes,
        )

    @property
    def perplexity(self) -> float:
        """e^(nats per token): only models of the same tokenizer can be compared by it."""
        return perplexity(self.nats / self.num_tokens)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte: models of any tokenizer can be compared by it."""
        return bits_per_byte(self.nats, num_tokens=1, num_bytes=self.num_bytes)


def text_loss(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    begin_ids: Sequence[int] = (),
) -> list[TextLoss]:
    """Return what a model pays for each text, a document that begins after the separator.

    Each token is predicted once.  A text that is longer than the context is read in windows that
    overlap by half, so that beyond the first window half a context or more is seen before a token.
    A text without the separator (no such token) is measured from its second token on.

    Args:
        model: in evaluation mode.
        tokenizer: of the same run.
        texts: at least one.
        begin_ids: as in `choice_scores`.

    Raises:
        ValueError: if there is no text, one is empty, or the tokenizer is that of another model.
    """
    if not texts or not all(texts):
        raise ValueError("give one or more texts, none of them empty")
    _require_tokenizer_of(model, tokenizer)
    start, context = list(begin_ids) or _start(tokenizer), model.config.context_length
    pairs, owners, sizes = [], [], []
    for number, text in enumerate(texts):
        ids = tokenizer.encode(text)
        known = 0 if start else 1
        if len(ids) <= known:
            raise ValueError(f"{text!r} is a single token, and nothing comes before it")
        unseen = sum(len(tokenizer.token_bytes(i)) for i in ids[:known])
        sizes.append((len(ids) - known, len(text.encode()) - unseen))
        row = [*start, *ids]
        done = given = max(1, len(start))
        while done < len(row):
            first = 0 if done == given else done - context // 2
            end = min(len(row), first + context + 1)  # the last one is asked for, not read
            pairs.append(_Pair(row[first:done], row[done:end]))
            owners.append(number)
            done = end
    nats = [0.0] * len(texts)
    for owner, log_prob in zip(owners, _log_probs(model, pairs), strict=True):
        nats[owner] -= log_prob
    return [
        TextLoss(nats=paid, num_tokens=tokens, num_bytes=num_bytes)
        for paid, (tokens, num_bytes) in zip(nats, sizes, strict=True)
    ]


# --- parts


class _Pair(NamedTuple):
    """What is read, and what is asked."""

    prompt: list[int]
    answer: list[int]


def _start(tokenizer: Tokenizer) -> list[int]:
    """Return what a document begins after."""
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    return [] if end is None else [end]


def _require_tokenizer_of(model: Transformer, tokenizer: Tokenizer) -> None:
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} ids and the model "
            f"{model.config.vocab_size}: it is the tokenizer of another model"
        )


@torch.no_grad()
def _log_probs(model: Transformer, pairs: Sequence[_Pair]) -> list[float]:
    """Return log p of each answer; rows of about the same length are read side by side."""
    most = model.config.context_length
    rows_of = []
    for prompt, answer in pairs:
        if not prompt:
            raise ValueError(
                f"a prompt is empty and the tokenizer has no {END_OF_TEXT}: nothing is read before "
                "the first token; give a prompt"
            )
        if len(answer) > most:
            raise ValueError(
                f"a choice of {len(answer)} tokens does not fit into the context of {most}"
            )
        # The last token is asked for and not read, so one more than the context fits.
        rows_of.append(_Pair(prompt[-(most + 1 - len(answer)) :], answer))
    pairs = rows_of
    order = sorted(range(len(pairs)), key=lambda n: len(pairs[n].prompt) + len(pairs[n].answer))
    found = [math.nan] * len(pairs)
    for first in range(0, len(order), BATCH):
        places = order[first : first + BATCH]
        rows = answer_rows([pairs[n].prompt for n in places], [pairs[n].answer for n in places])
        targets_BT = shifted_targets(rows.ids_BT, learned_BT=rows.is_answer_BT)[:, :-1]
        losses_BT = token_losses(model(rows.ids_BT[:, :-1]), targets_BT)
        for n, value in zip(places, losses_BT.sum(1).double().tolist(), strict=True):
            found[n] = -value
    if any(map(math.isnan, found)):
        raise ValueError("log-probabilities of the model are NaN: its weights have diverged")
    return found
