"""Conversations of one's own, as a model of others writes them: a .jsonl file to learn from.

Every line is a JSON object, as most tools write it::

    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}

Which tokens are answers is told from the ids alone, as of our own conversations: an answer begins
behind the template's generation prompt, and ends with its end of a turn.  For every conversation
that is compared with the template's own spans.

Shape suffixes:  B batch, T time (tokens), S tokens of a generation prompt.
"""

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from llmcourse.data import write_shards
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.train.config import TrainConfig
from llmcourse_labs.real.opening import INSTALLED, open_model
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning.chat_format import begins_of, spans
from llmcourse_labs.tuning.tune_config import TuneConfig

Message = Mapping[str, Any]

SHORTEST_ROW = 256
"""Tokens of a row that a model of others learns from, at least: its context may be thousands."""

HELD_OUT = 10
"""Of so many conversations of one's own, one is kept to validate on."""


def read_conversations(path: str | Path) -> list[list[Message]]:
    """Return the conversations of a .jsonl file, each with an answer.

    Raises:
        ValueError: naming the first line that holds no conversation, or the file if it has none.
        OSError: if it cannot be read.
    """
    path, found = Path(path), []
    for number, _, messages in _lines(path):
        if not any(message["role"] == "assistant" for message in messages):
            raise ValueError(f"{path}, line {number} has nothing to learn: no assistant speaks")
        found.append(messages)
    if not found:
        raise ValueError(f"{path} holds no conversation")
    return found


class Preferred(NamedTuple):
    """Two answers to a conversation, of which the first was preferred."""

    messages: list[Message]
    chosen: str
    rejected: str


def read_pairs(path: str | Path) -> list[Preferred]:
    """Return the pairs of a .jsonl file: {"messages": [...], "chosen": ..., "rejected": ...}.

    Raises:
        ValueError: naming the first line that holds no pair, or the file if it has none.
        OSError: if it cannot be read.
    """
    path, found = Path(path), []
    for number, content, messages in _lines(path):
        sides: list[Any] = [content.get(side) for side in ("chosen", "rejected")]
        if not all(isinstance(s, str) and s.strip() for s in sides) or sides[0] == sides[1]:
            raise ValueError(
                f"{path}, line {number} holds no pair: write chosen and rejected, two texts that "
                "differ, beside messages"
            )
        if not messages or messages[-1]["role"] != "user":
            raise ValueError(f"{path}, line {number}: the last message must be the user's")
        found.append(Preferred(messages, *sides))
    if not found:
        raise ValueError(f"{path} holds no pair")
    return found


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any], list[Message]]]:
    """Yield the number of every line of a file, the object on it, and its messages."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
        messages = content.get("messages") if isinstance(content, Mapping) else None
        if not isinstance(messages, list) or not all(map(_is_message, messages)):
            raise ValueError(
                f'{path}, line {number} holds no conversation: write {{"messages": [...]}}, each '
                "message with a role and a content, both texts"
            )
        yield number, content, messages


def _is_message(message: Any) -> bool:
    """Whether something has a role and a content."""
    return isinstance(message, Mapping) and all(
        isinstance(message.get(name), str) for name in ("role", "content")
    )


def file_hash(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def conversation_ids(
    messages: list[Message], template: Template, tokenizer: Tokenizer, *, end_id: int
) -> list[int]:
    """Return a conversation as a document to learn from.

    Args:
        messages: from `read_conversations`.
        template: of the model.
        tokenizer: of the model.
        end_id: of the token that ends documents.

    Raises:
        ValueError: if the template refuses the conversation, or its answers cannot be told from the
            ids.
    """
    ids, learned = template.learned(messages, tokenizer)
    ids, learned = [*ids, end_id], [*learned, False]
    told = answers_of(torch.tensor([ids]), template, tokenizer)[0].tolist()
    if told != learned:
        raise ValueError(
            "the model's chat template hides which tokens of this conversation are answers: "
            f"{messages[0]['content'][:60]!r}"
        )
    return ids


def answers_of(
    ids_BT: Int[Tensor, "B T"],
    template: Template,
    tokenizer: Tokenizer,
    *,
    documents_BT: Int[Tensor, "B T"] | None = None,
) -> Bool[Tensor, "B T"]:
    """Return which tokens an assistant says, its end of turn included, from the ids alone.

    Args:
        ids_BT: tokens of rows.
        template: of the model.
        tokenizer: of the model.
        documents_BT: the document of each token; None is one a row.
    """
    opening, stops = _borders(template.source, tuple(template.tokens.items()), tokenizer)
    opening_S = torch.tensor(opening, device=ids_BT.device)
    opens_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    if ids_BT.shape[1] >= len(opening):  # the last token of a generation prompt
        same_BT = (ids_BT.unfold(1, len(opening), 1) == opening_S).all(-1)
        opens_BT[:, len(opening) - 1 :] = same_BT
    begins_BT = begins_of(ids_BT, documents_BT)
    ends_BT = torch.isin(ids_BT, torch.tensor(stops, device=ids_BT.device))
    return spans(opens_BT, opens_BT | ends_BT | begins_BT) & ~begins_BT


@functools.lru_cache(maxsize=4)
def _borders(
    source: str, tokens: tuple[tuple[str, str], ...], tokenizer: Tokenizer
) -> tuple[list[int], list[int]]:
    """Return the ids of the generation prompt, and those that end an answer."""
    template, said = Template(source, tokens=dict(tokens)), [{"role": "user", "content": "a"}]
    before = template.ids(said, tokenizer)
    whole = template.ids(said, tokenizer, add_generation_prompt=True)
    opening = whole[len(before) :]
    if whole[: len(before)] != before or not set(opening) & set(tokenizer.special_tokens.values()):
        raise ValueError(
            "the model's chat template opens answers with no special token: what a user says could "
            "be taken for an answer"
        )
    return opening, sorted(template.stop_ids(tokenizer))


# --- a run on them


def settings_of_model(what: str, conversations: str | Path) -> dict[str, Any]:
    """Return the settings of a fine-tuning run that follow from a model of others and a file.

    The context is that of the longest conversation, so that rows are no longer than they must be.

    Args:
        what: as `real.opening.open_model` takes it.
        conversations: a .jsonl file, see `read_conversations`.

    Raises:
        ValueError: if the model cannot be opened or was not taught to talk, or the file holds no
            conversations.
        OSError: if a file cannot be read.
    """
    path = Path(conversations).resolve()
    talk = read_conversations(path)
    opened = open_model(what)
    if opened.template is None:
        raise ValueError(f"{what} has no template for conversations: it was not taught to talk")
    template = opened.template
    longest = max(len(template.ids(messages, opened.tokenizer)) for messages in talk) + 1
    context = max(SHORTEST_ROW, 64 * math.ceil(longest / 64))
    if context > opened.decoder.config.context_length:
        raise ValueError(
            f"{path} has a conversation of {longest:,} tokens, and {what} reads at most "
            f"{opened.decoder.config.context_length:,}"
        )
    return {
        "start": what if what in INSTALLED else str(Path(what).resolve()),
        "without": "nothing",
        "model": replace(opened.decoder.config, context_length=context),
        "template": template.source,
        "template_tokens": json.dumps(template.tokens),
        "corpus": "file",
        "conversations": str(path),
    }


def template_of(config: TrainConfig) -> Template | None:
    """Return the template that a run writes conversations with; None is the form of our own."""
    if not isinstance(config, TuneConfig) or not config.template:
        return None
    return Template(config.template, tokens=json.loads(config.template_tokens))


def write_own_conversations(config: TuneConfig, folder: Path) -> None:
    """Write the tokenizer of a model of others, and the tokens of conversations of one's own.

    Raises:
        ValueError: if there is one conversation alone, or the template cannot write one.
    """
    tokenizer, template = open_model(config.start).tokenizer, template_of(config)
    assert template is not None
    end_id = tokenizer.special_tokens.get(END_OF_TEXT, min(template.stop_ids(tokenizer)))
    talk = read_conversations(config.text.conversations)
    if len(talk) < 2:
        raise ValueError(
            f"{config.text.conversations} holds one conversation: write two or more, one of which "
            "is kept to validate on"
        )
    tokenizer.save(folder / "tokenizer")
    documents = [conversation_ids(m, template, tokenizer, end_id=end_id) for m in talk]
    held_out = documents[HELD_OUT - 1 :: HELD_OUT] or documents[-1:]
    training = [ids for ids in documents if not any(ids is other for other in held_out)]
    for name, part in (("training", training), ("validation", held_out)):
        write_shards(
            (np.asarray(ids, tokenizer.dtype) for ids in part),
            folder / name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            vocab_size=config.model.vocab_size,
        )
