"""Looking at a run from outside: its loss on text that no step has seen, and what it writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from llmcourse import loss as losses
from llmcourse.data import TokenShards
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.packed_order import PackedBatches
from llmcourse.model import Transformer, generate
from llmcourse.model.attention import document_mask
from llmcourse.train.prepare import KEPT
from llmcourse.train.run import Run, end_id
from llmcourse.train.stage import stage_of


@dataclass(frozen=True)
class Validation:
    """Loss on text that no step has seen."""

    nats_per_token: float
    bits_per_byte: float | None
    """None where nobody knows how many bytes a token stands for."""
    num_tokens: int
    by_source: dict[str, float] = field(default_factory=dict)
    """Of a mixture, nats per token of each source."""


@torch.no_grad()
def validate(run: Run) -> Validation:
    """Measure the loss on the held-out text, window by window from its start.

    Windows do not overlap and are not shuffled, so every validation reads the same tokens.  Of a
    mixture, each source is measured on an equal part of `validation_tokens`, and the loss is their
    mean, weighted by the shares with which the run begins, so that it means the same all along:

        loss = sum over sources of share * loss of the source

    Bits per byte are the bits of a token of that mixture over its bytes.  A run on packed documents
    is measured on packed documents: it has learnt to see no other.  A fine-tuning run is measured
    on the answers of held-out tasks, and by_source has the loss on text of the run it started from.
    """
    sources = run.prepared.sources
    most_tokens = max(1, run.config.watching.validation_tokens // len(sources))
    with run.layout.full_model() as model, evaluating(model):
        found = {
            name: _measured(run, model, source.validation, most_tokens)
            for name, source in sources.items()
        }
    num_tokens = sum(each.num_tokens for each in found.values())
    (shares, *_) = [stage.shares for stage in run.config.text.stages] or [{"": 1.0}]
    nats = sum(share * found[name].nats / found[name].num_tokens for name, share in shares.items())
    bits = None
    if run.prepared.bytes_per_id is not None:
        bytes_of_a_token = sum(
            share * found[name].num_bytes / found[name].num_tokens for name, share in shares.items()
        )
        if bytes_of_a_token:
            bits = losses.bits_per_byte(nats / bytes_of_a_token, num_tokens=1, num_bytes=1)
    by_source = {name: each.nats / each.num_tokens for name, each in found.items() if name}
    if run.prepared.kept is not None:
        with run.layout.full_model() as model, evaluating(model):
            kept = _measured(run, model, run.prepared.kept, most_tokens)
        by_source[KEPT] = kept.nats / kept.num_tokens
    return Validation(nats, bits, num_tokens, by_source)


class _Measured(NamedTuple):
    nats: float
    num_tokens: int
    num_bytes: int


def _measured(run: Run, model: nn.Module, shards: TokenShards, most_tokens: int) -> _Measured:
    """Return the loss of a model on the first tokens of some shards, as a sum."""
    nats, num_tokens, num_bytes = 0.0, 0, 0
    read = _packed(run, shards, most_tokens) if run.config.text.order == "packed" else None
    context = run.config.model.context_length
    for inputs_BT, targets_BT, apart in read or _windows(shards, context, most_tokens):
        there = {name: part.to(run.device) for name, part in apart.items()}
        logits_BTV = model(inputs_BT.to(run.device), **there)
        nats += float(losses.token_losses(logits_BTV, targets_BT.to(run.device)).double().sum())
        targets = targets_BT[targets_BT != losses.IGNORE_INDEX].numpy()
        num_tokens += targets.size
        if run.prepared.bytes_per_id is not None:
            num_bytes += int(run.prepared.bytes_per_id[targets].sum())
    return _Measured(nats, num_tokens, num_bytes)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Let a model see every token: in training mode, experts drop those they have no room for."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


_Read = tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]
"""Inputs, targets, and what else a model is told."""


def _windows(shards: TokenShards, context: int, most_tokens: int) -> Iterator[_Read]:
    """Yield windows of context + 1 tokens, 16 at a time, then the shorter rest alone."""
    usable = min(len(shards) - 1, most_tokens)
    if usable < 1:
        raise ValueError(f"{len(shards)} validation tokens are too few: raise corpus_bytes")
    starts = list(range(0, usable - context + 1, context))
    for first in range(0, len(starts), 16):
        rows = [
            torch.from_numpy(shards[s : s + context + 1].astype("int64"))
            for s in starts[first : first + 16]
        ]
        window = torch.stack(rows)
        yield window[:, :-1], window[:, 1:], {}
    rest = len(starts) * context
    if rest < usable:
        window = torch.from_numpy(shards[rest : usable + 1].astype("int64")).unsqueeze(0)
        yield window[:, :-1], window[:, 1:], {}


def _packed(run: Run, shards: TokenShards, most_tokens: int) -> Iterator[_Read]:
    """Yield packed rows, 16 at a time, up to a number of tokens but at least one row."""
    context = run.config.model.context_length
    packed = PackedBatches(shards, 1, context, end_id=end_id(run.prepared))
    count = min(packed.num_windows, max(1, most_tokens // context))
    for first in range(0, count, 16):
        ids, documents, positions = packed.rows(np.arange(first, min(first + 16, count)))
        told = run.config, run.prepared.tokenizer
        judged = stage_of(run.config).answers(*told, ids, documents)
        targets = losses.shifted_targets(ids, documents_BT=documents, learned_BT=judged)
        yield ids, targets, {"mask": document_mask(documents), "positions_BT": positions}


def sample(run: Run, prompt: str = "", *, temperature: float = 0.8) -> str:
    """Let the model write: from the separator on, or from a prompt.

    Where tokens have no tokenizer, or it has no separator, the first held-out token stands for it;
    without a tokenizer the ids themselves are returned.
    """
    tokenizer = run.prepared.tokenizer
    end = None if tokenizer is None else tokenizer.special_tokens.get(END_OF_TEXT)
    if tokenizer is None and prompt:
        raise ValueError("a prompt needs a tokenizer, and the tokens of this run came without one")
    if tokenizer is None or end is None:
        ids = [run.prepared.validation[0], *(tokenizer.encode(prompt) if tokenizer else [])]
    else:
        ids = tokenizer.encode(END_OF_TEXT + prompt)
    prompt_BT = torch.tensor([ids], device=run.device)
    with run.layout.full_model() as model, evaluating(model):
        assert isinstance(model, Transformer)
        written_BT = generate(
            model,
            prompt_BT,
            max_new_tokens=run.config.watching.sample_tokens,
            generator=run.sample_generator,
            temperature=temperature,
            stop_id=end,
        )
    assert isinstance(written_BT, torch.Tensor)  # of one prompt
    if tokenizer is None:
        return " ".join(map(str, written_BT[0].tolist()))
    return tokenizer.decode_known(written_BT[0, 1:]).removesuffix(END_OF_TEXT).strip()
