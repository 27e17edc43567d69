"""A byte-level BPE tokenizer from the metadata of a GGUF file.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Tokenizer"; the names of
patterns and what they bring along are llama.cpp's, src/llama-vocab.cpp
"""

from collections.abc import Mapping
from typing import Any

from llmcourse.data.tokenizer import GPT2, LLAMA3
from llmcourse.data.tokenizer.encoding import Tokenizer
from llmcourse_labs.real.tokenizer_parts import QWEN2, SMOLLM, TextEnds, tokenizer_from_parts

PATTERNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gpt-2": (GPT2, ()),
    "llama-bpe": (LLAMA3, ("whole words",)),
    "qwen2": (QWEN2, ("NFC",)),
    "smollm": (SMOLLM, ()),
}
"""By `tokenizer.ggml.pre`: how text is cut into words, and the quirks that come with it."""

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Of `tokenizer.ggml.token_type`; nothing gives an id that is not used."""

ROLES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
"""Of tokens: the word of GGUF, and that of chat templates."""


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer that a GGUF file describes.

    It gives the ids of the tokenizer that the model was trained with: text for a Qwen is composed
    (NFC), which llama.cpp leaves out.  Nothing is set around a text; see `ends_from_gguf`.

    Args:
        metadata: names and values, as `GgufFile` reads them.

    Raises:
        ValueError: if something is missing or broken, or another kind of tokenizer is described.
    """
    kind, pre = _value(metadata, "model", str), _value(metadata, "pre", str)
    if kind != "gpt2" or pre not in PATTERNS:
        raise ValueError(
            f"a tokenizer {kind!r} with the pattern {pre!r} cannot be read: the model must be "
            f"'gpt2', which is BPE on bytes, and the pattern one of {', '.join(PATTERNS)}"
        )
    tokens, types = _list(metadata, "tokens", str), _list(metadata, "token_type", int)
    if len(tokens) != len(types):
        raise ValueError(f"the file has {len(tokens):,} tokens, but types of {len(types):,}")
    if other := set(types) - {NORMAL, CONTROL, USER_DEFINED, UNUSED}:
        raise ValueError(f"the file has tokens of type {min(other)}: BPE on bytes has none such")
    vocabulary = {i: token for i, token in enumerate(tokens) if types[i] == NORMAL}
    special = [i for i, of in enumerate(types) if of in (CONTROL, USER_DEFINED)]
    special_tokens = {tokens[i]: i for i in special}
    if len(special_tokens) < len(special):
        raise ValueError("the file has a special token twice: every one needs its own id")
    merges = (merge.split(" ") for merge in _list(metadata, "merges", str))  # lists cost most
    shown = {i for i, of in enumerate(types) if of == USER_DEFINED}
    return tokenizer_from_parts(vocabulary, merges, special_tokens, *PATTERNS[pre], shown=shown)


def pattern_name(tokenizer: Tokenizer) -> str:
    """Return what a GGUF file calls the way in which a tokenizer cuts text, quirks included.

    Raises:
        ValueError: if there is no name for it.
    """
    quirks = tuple(quirk for quirk in tokenizer.quirks if quirk != "missing bytes")
    for name, way in PATTERNS.items():
        if way == (tokenizer.pattern, quirks):
            return name
    raise ValueError(
        f"llama.cpp has no name for the pattern {tokenizer.pattern[:60]!r} with {quirks}"
    )


def named_tokens_from_gguf(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens that a chat template calls by name, such as `eos_token`.

    Raises:
        ValueError: if an id is none of the vocabulary.
    """
    tokens, found = _list(metadata, "tokens", str), {}
    for word, name in ROLES.items():
        if f"tokenizer.ggml.{word}_token_id" in metadata:
            found[f"{name}_token"] = tokens[_role(metadata, word, len(tokens))]
    return found


def ends_from_gguf(metadata: Mapping[str, Any]) -> TextEnds:
    """Return what llama.cpp sets around a text: `add_bos_token`, `add_eos_token`.

    A file that says nothing of bos has none, but for the pattern "llama-bpe".

    Raises:
        ValueError: if a token is to be set that the file does not name.
    """
    count = len(_list(metadata, "tokens", str))
    without = {"bos": metadata.get("tokenizer.ggml.pre") == "llama-bpe", "eos": False}
    before, after = (
        (_role(metadata, word, count),)
        if metadata.get(f"tokenizer.ggml.add_{word}_token", default)
        else ()
        for word, default in without.items()
    )
    return TextEnds(before, after)


def end_ids_from_gguf(metadata: Mapping[str, Any]) -> set[int]:
    """Return the ids at which a file says that writing stops: of a text, a turn, a message.

    Raises:
        ValueError: if an id is none of the vocabulary.
    """
    count = len(_list(metadata, "tokens", str))
    words = [w for w in ("eos", "eot", "eom") if f"tokenizer.ggml.{w}_token_id" in metadata]
    return {_role(metadata, word, count) for word in words}


def _role(metadata: Mapping[str, Any], word: str, count: int) -> int:
    """Return the id of a token that has a role."""
    i = _value(metadata, f"{word}_token_id", int)
    if not 0 <= i < count:
        raise ValueError(f"tokenizer.ggml.{word}_token_id is {i}: ids are from 0 to {count - 1}")
    return i


def _value(metadata: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return what the file says of the tokenizer, if it is of the kind that it must be."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, kind):
        there = "is missing" if value is None else f"must be a {kind.__name__}, got {value!r:.40}"
        raise ValueError(f"tokenizer.ggml.{name} {there}: the file's tokenizer cannot be read")
    return value


def _list(metadata: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    """Return a list of the file, all of one kind."""
    values = _value(metadata, name, list)
    if wrong := [value for value in values if type(value) is not kind]:
        raise ValueError(f"tokenizer.ggml.{name} must hold {kind.__name__}s, got {wrong[0]!r:.40}")
    return values
