"""A byte-level BPE tokenizer from tokenizer.json, the form of Hugging Face's `tokenizers`.

Either the ids are those of `tokenizers`, or a setting is refused by its name.  As in
`export.huggingface`, the two may differ on characters that one of them does not know yet.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmcourse.data.tokenizer import GPT2
from llmcourse.data.tokenizer.encoding import Tokenizer
from llmcourse_labs.real.tokenizer_parts import (
    SMOLLM,
    TextEnds,
    require_alike,
    tokenizer_from_parts,
)

_BROKEN = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What comes of a file that is not in this form."""


def read_tokenizer_json(folder: str | Path) -> Tokenizer:
    """Return the tokenizer of a folder in the form of Hugging Face's.

    Nothing is set around a text; see `read_text_ends`.

    Args:
        folder: with a tokenizer.json.

    Raises:
        ValueError: if the file is missing or broken, or describes another kind of tokenizer.
    """
    content = _read(folder)
    try:
        return _tokenizer(content)
    except _BROKEN as error:
        raise _unreadable(folder, error) from error


def read_text_ends(folder: str | Path) -> TextEnds:
    """Return the ids that `tokenizers` sets around a whole text, unless it is told not to.

    Args:
        folder: with a tokenizer.json.

    Raises:
        ValueError: if the file is missing or broken, or sets something else.
    """
    content = _read(folder)
    try:
        return _ends(content.get("post_processor"))
    except _BROKEN as error:
        raise _unreadable(folder, error) from error


def _read(folder: str | Path) -> dict[str, Any]:
    """Return what tokenizer.json holds."""
    path = Path(folder) / "tokenizer.json"
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise TypeError(f"it must be an object, got a {type(content).__name__}")
        return content
    except FileNotFoundError as error:
        raise ValueError(f"no tokenizer in {folder}: {path.name} is missing") from error
    except _BROKEN as error:
        raise _unreadable(folder, error) from error


def _unreadable(folder: str | Path, error: Exception) -> ValueError:
    why = f"{error} is missing" if isinstance(error, LookupError) else error
    return ValueError(f"the tokenizer {Path(folder) / 'tokenizer.json'} cannot be read: {why}")


def _tokenizer(content: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer of what the file holds."""
    model = content["model"]
    _refuse_settings(content, model)
    quirks = ["NFC"] if _composes(content.get("normalizer")) else []
    quirks += ["whole words"] if model.get("ignore_merges") else []
    vocab = _checked(model["vocab"])
    added = content.get("added_tokens") or []
    special_tokens = _added(added, vocab, normalizes="NFC" in quirks)
    ids = set(special_tokens.values())
    pattern = _pattern(content["pre_tokenizer"])
    require_alike(pattern)
    tokenizer = tokenizer_from_parts(
        {i: token for token, i in vocab.items() if i not in ids},
        [_pair(merge) for merge in model["merges"]],
        special_tokens,
        pattern,
        quirks,
        shown={token["id"] for token in added if not token["special"]},
    )
    if "missing bytes" in tokenizer.quirks and model.get("unk_token") is not None:
        raise ValueError(f"bytes that have no token become unk_token, {model['unk_token']!r}")
    return tokenizer


def _checked(vocab: dict[str, Any]) -> dict[str, int]:
    """Return a vocabulary that has an id for every token."""
    if wrong := [token for token, i in vocab.items() if type(i) is not int]:
        raise ValueError(f"its token {wrong[0]!r} has the id {vocab[wrong[0]]!r}")
    if len(set(vocab.values())) < len(vocab):
        raise ValueError("two tokens have the same id")
    return vocab


def _refuse_settings(content: dict[str, Any], model: dict[str, Any]) -> None:
    """Raise ValueError for what would give other ids, or another text, than `Tokenizer` does."""
    if model["type"] != "BPE":
        raise ValueError(f"its model is a {model['type']}: BPE on bytes is read")
    names = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    if on := [name for name in names if model.get(name)]:
        raise ValueError(f"its model has {on[0]} = {model[on[0]]!r}: plain BPE on bytes is read")
    if (cut := content.get("truncation")) is not None:
        raise ValueError(f"it has truncation after {cut['max_length']} ids: take truncation out")
    padding = content.get("padding") or {"strategy": "BatchLongest"}
    if padding["strategy"] != "BatchLongest" or padding.get("pad_to_multiple_of"):
        raise ValueError("it has padding to a fixed length: take padding out")
    decoder = content.get("decoder")
    if decoder is not None and decoder["type"] != "ByteLevel":
        raise ValueError(f"its decoder is a {decoder['type']}, not ByteLevel")
    _ends(content.get("post_processor"))


def _composes(normalizer: dict[str, Any] | None) -> bool:
    """Whether text is composed, form C; other normalizers are refused."""
    parts = _flat(normalizer, "normalizers")
    if other := [part["type"] for part in parts if part["type"] != "NFC"]:
        raise ValueError(f"its normalizer is a {other[0]}: only NFC is read")
    return bool(parts)


def _added(
    tokens: list[dict[str, Any]], vocab: Mapping[str, int], *, normalizes: bool
) -> dict[str, int]:
    """Return the ids of added tokens, if `tokenizers` finds them where ours does, by these ids."""
    ids: dict[str, int] = {}
    taken = set(vocab.values())
    for token in sorted(tokens, key=lambda token: token["id"]):
        text, i = token["content"], token["id"]
        if on := [name for name in ("single_word", "lstrip", "rstrip") if token.get(name)]:
            raise ValueError(
                f"its token {text!r} has {on[0]}: only what is spelled exactly so is taken for a "
                "token here"
            )
        if normalizes and token["normalized"]:
            raise ValueError(f"its token {text!r} has normalized: it is looked for after NFC")
        # What the vocabulary does not have gets the next id, whatever the file says.
        given = vocab.get(text, max([len(vocab), *(last + 1 for last in ids.values())]))
        if type(i) is not int or i != given or text in ids:
            raise ValueError(f"its token {text!r} has the id {i!r}, and tokenizers gives {given}")
        if text not in vocab and i in taken:
            raise ValueError(f"its token {text!r} has the id {i}, which another token has")
        ids[text] = i
    late = {token["content"] for token in tokens if token["normalized"]}
    for text in late:
        for first in ids.keys() - late:
            if _may_overlap(text, first):
                raise ValueError(
                    f"its token {text!r} has normalized: it is looked for after {first!r}, which "
                    "it can overlap"
                )
    return ids


def _may_overlap(a: str, b: str) -> bool:
    """Whether a text can hold two tokens that share a character."""
    ends = (x.endswith(y[:n]) for x, y in ((a, b), (b, a)) for n in range(1, len(y) + 1))
    return a in b or b in a or any(ends)


def _pair(merge: str | list[str]) -> list[str]:
    """Return the two sides of a merge: a list, or, of older versions, a string with a space."""
    return merge.split(" ") if isinstance(merge, str) else merge


def _flat(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Return the parts of a sequence, of one part alone, or of none."""
    if part is None:
        return []
    return list(part[name]) if part["type"] == "Sequence" else [part]


def _pattern(cutter: dict[str, Any]) -> str:
    """Return how text is cut into words."""
    *first, last = _flat(cutter, "pretokenizers")
    if last["type"] != "ByteLevel" or last["add_prefix_space"] or len(first) > 1:
        raise ValueError("its pre_tokenizer is not one cut and ByteLevel without add_prefix_space")
    by_pattern = last.get("use_regex", True)
    match first, by_pattern:
        case [], True:
            return GPT2
        case [{"type": "Digits", "individual_digits": True}], True:
            return SMOLLM
        case [{"type": "Split", "pattern": {"Regex": pattern}, **how}], False:
            # To keep the matches alone is the same, as they must cover every text.
            if (how["behavior"], how["invert"]) in (("Isolated", False), ("Removed", True)):
                return pattern
    raise ValueError(
        f"its pre_tokenizer cuts text by {[part['type'] for part in first]} and then "
        f"{'by' if by_pattern else 'without'} GPT-2's pattern, which is not read"
    )


def _ends(processor: dict[str, Any] | None) -> TextEnds:
    """Return what is set around a text."""
    ends = TextEnds()
    for part in _flat(processor, "processors"):
        if part["type"] == "TemplateProcessing" and ends == TextEnds():
            ends = _around(part["single"], part["special_tokens"])
        elif part["type"] != "ByteLevel":
            raise ValueError(f"its post_processor is a {part['type']}, which is not read")
    return ends


def _around(places: Sequence[dict[str, Any]], tokens: Mapping[str, Any]) -> TextEnds:
    """Return the ids before and behind the text of a template."""
    at = [place for place, what in enumerate(places) if "Sequence" in what]
    if len(at) != 1:
        raise ValueError("its post_processor does not set the text once")
    names = [place.get("SpecialToken", {}).get("id") for place in places]
    before, after = (
        tuple(i for name in part for i in tokens[name]["ids"])
        for part in (names[: at[0]], names[at[0] + 1 :])
    )
    return TextEnds(before, after)
