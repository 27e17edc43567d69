"""Conversations as tokens, with the role that wrote each token.

A turn is the special token of its role, its text, and the token that ends it::

    <|user|>What is two and two?<|end|><|assistant|>Four.<|end|>
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from llmcourse.data.tokenizer import Tokenizer

_ROLES = ("system", "user", "assistant")
"""Who can speak."""

END_OF_TURN = "<|end|>"
"""Ends every turn: the token with which a model hands over."""

CHAT_TOKENS = (*(f"<|{role}|>" for role in _ROLES), END_OF_TURN)
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
    missing = [token for token in CHAT_TOKENS if token not in tokenizer.special_tokens]
    if missing:
        raise ValueError(f"the tokenizer lacks {missing}; train it with the special CHAT_TOKENS")
    if not turns:
        raise ValueError("a conversation has at least one turn, got none")
    ids: list[int] = []
    roles: list[str] = []
    for role, text in turns:
        if role not in _ROLES:
            raise ValueError(f"role must be one of {', '.join(_ROLES)}, got {role!r}")
        said = [*tokenizer.encode(text, allow_special=False), tokenizer.special_tokens[END_OF_TURN]]
        ids += [tokenizer.special_tokens[f"<|{role}|>"], *said]
        roles += ["template", *[role] * len(said)]
    return ChatTokens(torch.tensor(ids, dtype=torch.int64), roles)
