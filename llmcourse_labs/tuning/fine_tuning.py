"""Where a fine-tuning run begins: the weights and the tokenizer of another run, and conversations.

    llmcourse tune --stage sft --start runs/a --data tasks --out runs/chat
    llmcourse tune --model smollm2 --data mine.jsonl --lora_rank 8 --out runs/mine
    llmcourse tune --model smollm2 --data a.jsonl --lora_rank 8 --quantised_base true --out runs/q

Two phases differ from pretraining: phase 1 loads conversations, with text of the first run in
between if replay asks for it, and phase 3 counts the tokens of answers alone.  This module makes
what they need, the stage `sft` of `train.stage`; the loop, the step and the checkpoints are those
of every run.

A tokenizer without chat tokens gets them, and the model a row of the embedding for each.  A new row
is the mean of the others: then the new token is at first about as likely as a token on average,
while a random row may win every softmax.

Source: Hewitt 2021, "Initializing new word embeddings for pretrained language models",
https://nlp.stanford.edu/~johnhew/vocab-expansion.html

Shape suffixes:  V vocabulary, D width.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.base.settings import held
from llmcourse.data import TokenShards, write_shards
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.order import permuted
from llmcourse.data.packed_order import Documents
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.config import TrainConfig
from llmcourse.train.prepare import KEPT, prepare
from llmcourse.train.saved import as_value_error, config_and_checkpoint
from llmcourse.train.stage import TrainingStage
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.opening import find_model, open_model
from llmcourse_labs.real.quantise.frozen import keep_in_blocks
from llmcourse_labs.tuning.chat_format import (
    CHAT_TOKENS,
    answer_mask,
    chat_tokens,
    with_chat_tokens,
)
from llmcourse_labs.tuning.conversations import (
    answers_of,
    file_hash,
    template_of,
    write_own_conversations,
)
from llmcourse_labs.tuning.lora import add_low_rank, merged
from llmcourse_labs.tuning.tasks import Task, make_tasks
from llmcourse_labs.tuning.tune_config import TuneConfig

HELD_OUT_TASKS = 500
"""Tasks that a run is validated on, in wordings that it does not train on."""

MOST_KEPT = 200_000
"""Tokens of them."""


class Started(NamedTuple):
    """The tokens of the run that a fine-tuning run starts from."""

    tokenizer: Tokenizer
    training: TokenShards
    validation: TokenShards


def settings_of_start(start: str | Path) -> dict[str, Any]:
    """Return the settings of a fine-tuning run that follow from the run it starts from.

    They are `start`, as an absolute path, `without`, and `model`, whose vocabulary has grown by the
    chat tokens that were missing.

    Args:
        start: folder of a run with a checkpoint and a tokenizer.

    Raises:
        ValueError: if it is none.
    """
    folder = Path(start).resolve()
    config, _ = config_and_checkpoint(folder)
    tokenizer = with_chat_tokens(_tokenizer_of(folder))
    vocab_size = max(config.model.vocab_size, tokenizer.vocab_size)
    model = replace(config.model, vocab_size=vocab_size)
    return {"start": str(folder), "without": config.without, "model": model}


def _tokenizer_of(start: Path) -> Tokenizer:
    if not (start / "data" / "tokenizer").exists():
        raise ValueError(f"the tokens of {start} came without a tokenizer: it cannot learn to talk")
    return Tokenizer.load(start / "data" / "tokenizer")


def _started(config: TuneConfig) -> Started:
    """Return the tokens of the run that a fine-tuning run starts from."""
    start, folder = config_and_checkpoint(Path(config.start))[0], Path(config.start)
    if start.text.stages:
        raise ValueError(f"{folder} has learnt from a mixture: start from a run with one source")
    found = prepare(start, folder / "data")
    if found.tokenizer is None or END_OF_TEXT not in found.tokenizer.special_tokens:
        raise ValueError(f"the tokens of {folder} have no tokenizer, or none with {END_OF_TEXT}")
    return Started(found.tokenizer, found.training, found.validation)


def write_conversations(config: TuneConfig, folder: Path) -> None:
    """Write the tokenizer and the tokens of a fine-tuning run: to train on, to validate, kept.

    Raises:
        ValueError: if a conversation is longer than the context, or there is too little to replay.
    """
    if config.template:
        write_own_conversations(config, folder)
        return
    started = _started(config)
    tokenizer = with_chat_tokens(started.tokenizer)
    if tokenizer.vocab_size > config.model.vocab_size:
        raise ValueError(
            f"model.vocab_size must be {tokenizer.vocab_size} or more, with the chat tokens, got "
            f"{config.model.vocab_size}: take settings_of_start(start)"
        )
    tokenizer.save(folder / "tokenizer")
    training = make_tasks(config.text.examples, seed=config.seed)
    talk = list(_conversations(training, tokenizer, config.model.context_length))
    num_tokens = sum(map(len, talk))
    replayed = _replayed(config, started, num_tokens) if config.text.replay else []
    held_out = make_tasks(HELD_OUT_TASKS, seed=config.seed, held_out=True)
    parts = {
        "training": itertools.chain(talk, replayed),
        "validation": _conversations(held_out, tokenizer, config.model.context_length),
        KEPT: [started.validation[: min(MOST_KEPT, len(started.validation))]],
    }
    for name, arrays in parts.items():
        write_shards(
            (np.asarray(ids, tokenizer.dtype) for ids in arrays),
            folder / name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            vocab_size=config.model.vocab_size,
        )


def _conversations(
    tasks: list[Task], tokenizer: Tokenizer, context_length: int
) -> Iterator[np.ndarray]:
    """Yield the ids of every task as a document."""
    end = tokenizer.special_tokens[END_OF_TEXT]
    for task in tasks:
        ids = np.append(chat_tokens(task.turns, tokenizer).ids_T.numpy(), end)
        if len(ids) > context_length:
            raise ValueError(
                f"a conversation of {len(ids)} tokens does not fit into the context of "
                f"{context_length}: {task.prompt!r}; start from a run with a longer context"
            )
        yield ids


def _replayed(config: TuneConfig, started: Started, num_tokens: int) -> list[np.ndarray]:
    """Return documents of the first run that make up the share `replay` of all tokens."""
    wanted = math.ceil(num_tokens * config.text.replay / (1 - config.text.replay))
    documents = Documents(started.training, started.tokenizer.special_tokens[END_OF_TEXT])
    order = permuted(np.arange(len(documents)), len(documents), seed=config.seed)
    chosen, found = [], 0
    for number in order:
        if found >= wanted:
            break
        chosen.append(np.asarray(documents[int(number)]))
        found += len(chosen[-1])
    if found < wanted:
        raise ValueError(
            f"replay = {config.text.replay} asks for {wanted:,} tokens of {config.start}, which "
            f"has {found:,}: lower replay or examples"
        )
    return chosen


def first_model(config: TuneConfig, model: Transformer) -> None:
    """Give a model the weights of the run that it starts from, with rows for the new tokens.

    Raises:
        ValueError: if that run has no checkpoint, or weights of another shape.
    """
    if config.template:
        with as_value_error(Path(config.start)):
            model.load_state_dict(open_model(config.start).decoder.state_dict())
        return
    start = Path(config.start)
    begun, saved = config_and_checkpoint(start)
    old = _tokenizer_of(start)
    known = [i for i in range(begun.model.vocab_size) if i in old.vocab]
    new = [i for token, i in with_chat_tokens(old).special_tokens.items() if token in CHAT_TOKENS]
    new = [i for i in new if i not in old.vocab]
    with as_value_error(start):
        state = merged(saved.model)
        for name in ("embedding", "head"):
            if name in state:
                rows = with_new_rows(state[name], config.model.vocab_size, known=known, new=new)
                state[name] = rows
        model.load_state_dict(state)


def with_new_rows(
    w_VD: Float[Tensor, "old D"], vocab_size: int, *, known: list[int], new: list[int]
) -> Float[Tensor, "V D"]:
    """Return a matrix with a row for every token, new tokens' rows the mean of the known ones'.

    Args:
        w_VD: a row for each token of a smaller vocabulary.
        vocab_size: rows to have.
        known: ids that something was learnt of.
        new: ids that are new; rows beyond both stand for no token, and are means, too.
    """
    mean_D = w_VD[known].mean(0)
    rows_VD = torch.cat([w_VD, mean_D.expand(vocab_size - len(w_VD), -1)])
    rows_VD[new] = mean_D
    return rows_VD


def adapt(config: TuneConfig, model: Transformer, tokenizer: Tokenizer) -> None:
    """Let a model learn by thin matrices alone, and the rows of the chat tokens."""
    new = () if config.template else CHAT_TOKENS
    ids = [tokenizer.special_tokens[token] for token in new]
    generator = torch.Generator().manual_seed(config.seed + 3)
    add_low_rank(model, config.lora_rank, generator=generator, new_ids=ids)


class FineTuning(TrainingStage):
    """Supervised fine-tuning."""

    config = TuneConfig

    def write_tokens(self, config: TrainConfig, folder: Path) -> None:
        """Write the conversations, and text of the run that this one starts from."""
        assert isinstance(config, TuneConfig)
        write_conversations(config, folder)

    def provenance(self, config: TrainConfig) -> dict[str, Any]:
        """Return the settings that decide which tokens there are."""
        names = ("corpus", "seed", "examples", "replay")
        assert isinstance(config, TuneConfig)
        settings = held(config)
        made = {name: settings[name] for name in names}
        if config.template:
            made |= {"file": file_hash(config.text.conversations), "template": config.template}
        return made | {"vocab": config.model.vocab_size}

    def begin(
        self, config: TrainConfig, model: Transformer, tokenizer: Tokenizer | None, *, anew: bool
    ) -> None:
        """Take the weights of the run that this one starts from, and thin matrices if asked for."""
        assert isinstance(config, TuneConfig)
        if config.quantised_base:
            path = find_model(config.start)
            if path.is_dir():
                raise ValueError(
                    f"quantised_base = True needs the blocks of a .gguf file, and {path} is a "
                    "folder: leave it out, or write a file with llmcourse quantise"
                )
            keep_in_blocks(model, GgufFile(path))
        elif anew:
            first_model(config, model)
        if config.lora_rank:
            assert tokenizer is not None
            adapt(config, model, tokenizer)

    def answers(
        self, config: TrainConfig, tokenizer: Tokenizer | None, ids_BT: Int[Tensor, "B T"],
        documents_BT: Int[Tensor, "B T"],
    ) -> Bool[Tensor, "B T"] | None:  # fmt: skip
        """Return which tokens an assistant says, its end of turn included."""
        assert tokenizer is not None
        if (template := template_of(config)) is not None:
            return answers_of(ids_BT, template, tokenizer, documents_BT=documents_BT)
        return answer_mask(ids_BT, tokenizer.special_tokens, documents_BT=documents_BT)

    def learned(
        self, config: TrainConfig, tokenizer: Tokenizer | None, ids_BT: Int[Tensor, "B T"],
        documents_BT: Int[Tensor, "B T"],
    ) -> Bool[Tensor, "B T"] | None:  # fmt: skip
        """Return the same, or None where every token counts."""
        assert isinstance(config, TuneConfig)
        return (
            None if config.text.learn_all else self.answers(config, tokenizer, ids_BT, documents_BT)
        )

    def whole(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights with the thin matrices added."""
        return merged(state)
