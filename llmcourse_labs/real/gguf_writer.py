"""A model of ours as a GGUF file, which llama.cpp and its relatives read.

What a file of llama.cpp's converter has is written, and nothing else: the shape, the tokenizer, the
template, and the tensors under llama.cpp's names.  Vectors and routers stay in F32; in a file of
blocks, rows that are no multiple of 32 weights are in F16, as llama.cpp's converter has them.  In
one of Q4_1 the embedding and the head are in Q8_0.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import itertools
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from llmcourse.base.files import write_atomically
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.data.tokenizer.files import spell
from llmcourse.model.config import ModelConfig
from llmcourse_labs.real.gguf_blocks import KINDS, PIECE, quantise_q4_1, quantise_q8_0
from llmcourse_labs.real.gguf_file import ALIGNMENT, LIST, NUMBERS, TEXT, TensorInfo
from llmcourse_labs.real.gguf_names import gguf_names, reordered
from llmcourse_labs.real.gguf_shape import ROPE_FREQS, llama3_divisors, metadata_of
from llmcourse_labs.real.gguf_tokenizer import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    pattern_name,
)
from llmcourse_labs.real.tokenizer_parts import shown_ids

WRITTEN_KINDS = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 7}
"""Of the matrices in a file that is written: what llama.cpp calls such a file."""

_NARROW = {"F16": Tensor.half, "Q4_1": quantise_q4_1, "Q8_0": quantise_q8_0}
_OF_SCALES = {"Q4_1": 4, "Q8_0": 2}
"""Bytes at the beginning of a block that are numbers of float16."""

_UINT32, _INT32, _FLOAT32, _BOOL = 4, 5, 6, 7
"""Types of values that are written."""


def write_gguf(
    path: str | Path,
    state: Mapping[str, Tensor],
    config: ModelConfig,
    tokenizer: Tokenizer,
    *,
    template: str | None = None,
    token_ids: Mapping[str, int] | None = None,
    add_bos: bool = False,
    kind: str = "F32",
    blocks: Mapping[str, UInt8[Tensor, "F B"]] | None = None,
) -> None:
    """Write a model into one file, whole or not at all.

    Numbers of the shape, such as rope_theta, are rounded to float32; what is of training alone
    (balance_weight, capacity_factor) is left out.

    Args:
        path: of the file; one that is there is replaced.
        state: parameters under our names.
        config: the shape.
        tokenizer: of the model; ids that it lacks are filled up as unused.
        template: of conversations, in Jinja; None of a model that was not taught to talk.
        token_ids: by role, which id has it: bos, eos, eot, unknown, padding.
        add_bos: whether a text begins with the token of the role bos.
        kind: of the matrices, one of `WRITTEN_KINDS`.
        blocks: matrices that were rounded before, under our names: the bytes of each row in the
            kind; they are written in place of those in `state`.

    Raises:
        ValueError: if llama.cpp has no such model, tokenizer or kind, the parameters are not those
            of the shape, or a weight is not finite, or too large for the kind.
        OSError: if the file cannot be written.
    """
    if kind not in WRITTEN_KINDS:
        raise ValueError(f"kind must be one of {', '.join(WRITTEN_KINDS)}, got {kind!r}")
    names = gguf_names(config)
    if state.keys() != names.keys():
        odd = min(state.keys() ^ names.keys())
        raise ValueError(f"the parameters are not those of the shape: {odd!r}")
    metadata = {
        **metadata_of(config),
        **_tokenizer_of(tokenizer, config.vocab_size, token_ids or {}),
        "tokenizer.ggml.add_bos_token": add_bos,
        **({} if template is None else {"tokenizer.chat_template": template}),
        "general.name": Path(path).stem,
        "general.alignment": ALIGNMENT,
        "general.file_type": WRITTEN_KINDS[kind],
        "general.quantization_version": 2,
    }
    tensors = {theirs: (ours, state[ours]) for ours, theirs in names.items()}
    scaling = config.rope_scaling
    if scaling is not None and scaling.kind == "llama3":
        divisors_J = llama3_divisors(scaling, config.head_size, config.rope_theta)
        tensors[ROPE_FREQS] = ("", divisors_J)
    infos = _infos({name: w for name, (_, w) in tensors.items()}, kind)
    with write_atomically(path) as file:
        file.write(_header(metadata, infos))
        for name, (ours, weight) in tensors.items():
            file.write(bytes(-file.tell() % ALIGNMENT))
            if blocks is not None and ours in blocks:
                rows = reordered(ours, blocks[ours], config, to_file=True)
                file.write(rows.contiguous().numpy().data)
                continue
            its, whole = infos[name].kind, weight.detach().cpu().float()
            rows = reordered(ours, whole, config, to_file=True)
            for piece in rows.reshape(-1, KINDS[its].num_weights).split(PIECE):
                file.write(_packed(piece, its, name).numpy().data)


def _tokenizer_of(
    tokenizer: Tokenizer, vocab_size: int, token_ids: Mapping[str, int]
) -> dict[str, Any]:
    """Return the metadata of a tokenizer, with one token for each row of the embedding."""
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} ids, the embedding {vocab_size} rows"
        )
    names = {i: token for token, i in tokenizer.special_tokens.items()}
    tokens, types = [], []
    for i in range(vocab_size):
        if i in names:
            tokens.append(names[i])
            types.append(USER_DEFINED if i in shown_ids(tokenizer) else CONTROL)
        elif i in tokenizer.vocab:
            tokens.append(spell(tokenizer.vocab[i]))
            types.append(NORMAL)
        else:
            tokens.append(f"[PAD{i}]")
            types.append(UNUSED)
    if len(set(tokens)) < vocab_size:
        raise ValueError("a special token is spelled like another token: a GGUF file has one of it")
    if odd := [role for role, i in token_ids.items() if not 0 <= i < vocab_size]:
        raise ValueError(f"the id of {odd[0]} must be from 0 to {vocab_size - 1}")
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pattern_name(tokenizer),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [f"{spell(a)} {spell(b)}" for a, b in tokenizer.merges],
        **{f"tokenizer.ggml.{role}_token_id": i for role, i in token_ids.items()},
    }


def _infos(tensors: Mapping[str, Tensor], kind: str) -> dict[str, TensorInfo]:
    """Return what stands in the file of each tensor, with offsets within the data."""
    infos: dict[str, TensorInfo] = {}
    end = 0
    for name, weight in tensors.items():
        shape, its = tuple(weight.shape), kind
        if len(shape) == 1 or "ffn_gate_inp" in name:
            its = "F32"
        elif kind == "Q4_1" and name in ("token_embd.weight", "output.weight"):
            its = "Q8_0"
        if shape[-1] % KINDS[its].num_weights:
            its = "F16"
        num_bytes = weight.numel() // KINDS[its].num_weights * KINDS[its].num_bytes
        infos[name] = TensorInfo(shape, its, end, num_bytes)
        end += num_bytes + -num_bytes % ALIGNMENT
    return infos


def _packed(weights_NW: Tensor, kind: str, name: str) -> Tensor:
    """Return float32 weights in the kind of a file."""
    if not weights_NW.isfinite().all():
        raise ValueError(f"{name} has weights that are not finite: a model with them says nothing")
    if kind == "F32":
        return weights_NW.contiguous()
    narrow = _NARROW[kind](weights_NW)
    scales = narrow if kind == "F16" else narrow[:, : _OF_SCALES[kind]].view(torch.float16)
    if not scales.isfinite().all():
        raise ValueError(f"{name} has weights that are too large for {kind}: take a wider one")
    return narrow


def _header(metadata: Mapping[str, Any], infos: Mapping[str, TensorInfo]) -> bytes:
    """Return everything before the data."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(infos), len(metadata))]
    for key, value in metadata.items():
        parts += [_text(key), *_typed(value)]
    for name, info in infos.items():
        sizes = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *reversed(info.shape))
        place = struct.pack("<IQ", KINDS[info.kind].number, info.offset)
        parts += [_text(name), sizes, place]
    return b"".join(parts)


def _text(text: str) -> bytes:
    """Return a text with its length before it."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Any) -> Iterable[bytes]:
    """Return a value of the metadata with its type before it."""
    if isinstance(value, str):
        return struct.pack("<I", TEXT), _text(value)
    if isinstance(value, list):
        kind = TEXT if isinstance(next(iter(value), ""), str) else _INT32
        start = struct.pack("<IIQ", LIST, kind, len(value))
        return itertools.chain(
            [start], (_text(v) if kind == TEXT else NUMBERS[kind].pack(v) for v in value)
        )
    kind = {bool: _BOOL, int: _UINT32, float: _FLOAT32}[type(value)]
    return struct.pack("<I", kind), NUMBERS[kind].pack(value)
