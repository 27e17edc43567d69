"""Conversations as tokens, with the role that wrote each token.

A turn is the special token of its role, its text, and the token that ends it::

    <|user|>What is two and two?<|end|><|assistant|>Four.<|end|>

Shape suffixes:  B batch, T time (tokens).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from llmcourse.data.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")
"""Who can speak."""

END_OF_TURN = "<|end|>"
"""Ends every turn: the token with which a model hands over."""

CHAT_TOKENS = (*(f"<|{role}|>" for role in ROLES), END_OF_TURN)
"""The special tokens that a tokenizer needs for conversations."""


class Turn(NamedTuple):
    """What one side said."""

    role: str
    text: str


class ChatTokens(NamedTuple):
    """A conversation as the model reads it."""

    ids_T: Int64[Tensor, " T"]
    roles: list[str]
    """Of every token: who wrote it, or "template" for the tokens that name the next speaker."""


def chat_tokens(turns: Sequence[Turn], tokenizer: Tokenizer) -> ChatTokens:
    """Return the tokens of a conversation.

    The texts are encoded without special tokens: a user who types ``<|assistant|>`` has typed
    thirteen characters, not opened a turn.  The end of a turn counts as written by its speaker,
    since whoever speaks has to stop.

    Args:
        turns: who said what, in order; at least one.
        tokenizer: with the four `CHAT_TOKENS` among its special tokens.

    Raises:
        ValueError: if there is no turn, a role is unknown, or the tokenizer lacks a special token.
    """
    require_chat_tokens(tokenizer.special_tokens)
    if not turns:
        raise ValueError("a conversation has at least one turn, got none")
    ids: list[int] = []
    roles: list[str] = []
    for role, text in turns:
        if role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
        said = [*tokenizer.encode(text, allow_special=False), tokenizer.special_tokens[END_OF_TURN]]
        ids += [tokenizer.special_tokens[f"<|{role}|>"], *said]
        roles += ["template", *[role] * len(said)]
    return ChatTokens(torch.tensor(ids, dtype=torch.int64), roles)


def require_chat_tokens(special_tokens: Mapping[str, int]) -> None:
    """Raise ValueError unless a tokenizer's special tokens hold those of conversations."""
    missing = [token for token in CHAT_TOKENS if token not in special_tokens]
    if missing:
        raise ValueError(
            f"the tokenizer lacks {missing}: fine-tune its run with llmcourse tune --stage sft, "
            "take with_chat_tokens(tokenizer), or train it with the special CHAT_TOKENS"
        )


def with_chat_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer with the four `CHAT_TOKENS`; those it lacks come after its last id."""
    specials = dict(tokenizer.special_tokens)
    for token in CHAT_TOKENS:
        if token not in specials:
            specials[token] = max(tokenizer.vocab_size, *(i + 1 for i in specials.values()), 0)
    known = set(specials.values())
    plain = {i: piece for i, piece in tokenizer.vocab.items() if i not in known}
    return Tokenizer(plain, tokenizer.merges, specials, tokenizer.pattern, tokenizer.quirks)


def answer_mask(
    ids_BT: Int[Tensor, "*B T"],
    special_tokens: Mapping[str, int],
    *,
    documents_BT: Int[Tensor, "*B T"] | None = None,
) -> Bool[Tensor, "*B T"]:
    """Return which tokens a model should learn to write, from the ids alone.

    Of a conversation these are the tokens after ``<|assistant|>``, up to and including its end.  A
    document that does not begin with a role is plain text, and all of it is learned.

    Args:
        ids_BT: tokens of rows.
        special_tokens: of the tokenizer, string to id.
        documents_BT: the document of each token; None is one a row.

    Raises:
        ValueError: if the tokenizer lacks a chat token.
    """
    require_chat_tokens(special_tokens)
    roles = torch.tensor([special_tokens[f"<|{role}|>"] for role in ROLES], device=ids_BT.device)
    is_role_BT = torch.isin(ids_BT, roles)
    begins_BT = begins_of(ids_BT, documents_BT)
    opens_BT = (ids_BT == special_tokens["<|assistant|>"]) | (begins_BT & ~is_role_BT)
    decides_BT = is_role_BT | begins_BT | (ids_BT == special_tokens[END_OF_TURN])
    learned_BT = spans(opens_BT, decides_BT) & ~is_role_BT
    return torch.where(begins_BT, ~is_role_BT, learned_BT)


def begins_of(
    ids_BT: Int[Tensor, "*B T"], documents_BT: Int[Tensor, "*B T"] | None
) -> Bool[Tensor, "*B T"]:
    """Return which tokens begin a row, or a document of it."""
    begins_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    begins_BT[..., 0] = True
    if documents_BT is not None:
        begins_BT[..., 1:] = documents_BT[..., 1:] != documents_BT[..., :-1]
    return begins_BT


def spans(opens_BT: Bool[Tensor, "*B T"], decides_BT: Bool[Tensor, "*B T"]) -> Bool[Tensor, "*B T"]:
    """Return which tokens stand in an open span: of those before each that decide, the last opens.

    Args:
        opens_BT: tokens behind which a span begins.
        decides_BT: these, and the tokens with which one ends.
    """
    # Of every token, the last one before it that decides; where none is, the token begins a row.
    places_BT = torch.arange(opens_BT.shape[-1], device=opens_BT.device).expand_as(opens_BT)
    last_BT = places_BT.where(decides_BT, 0).cummax(-1).values.roll(1, -1)
    return opens_BT.gather(-1, last_BT)
