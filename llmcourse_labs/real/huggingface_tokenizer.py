"""A byte-level BPE tokenizer from tokenizer.json, the form of Hugging Face's `tokenizers`."""

import json
from pathlib import Path
from typing import Any

from llmcourse.data.tokenizer.encoding import Tokenizer
from llmcourse.data.tokenizer.files import unspell
from llmcourse.data.tokenizer.patterns import GPT2


def read_tokenizer_json(folder: str | Path) -> Tokenizer:
    """Return the tokenizer of a folder that `llmcourse export` wrote.

    Args:
        folder: with a tokenizer.json.

    Raises:
        ValueError: if the file is missing or broken, or describes another kind of tokenizer.
    """
    path = Path(folder) / "tokenizer.json"
    try:
        content = json.loads(path.read_bytes())
        model, added = content["model"], content["added_tokens"]
        if model["type"] != "BPE" or content.get("normalizer") is not None:
            raise ValueError(f"it is a {model['type']}, or normalises text: BPE on bytes is read")
        _refuse_settings(model, added)
        specials = {token["content"]: token["id"] for token in added}
        ids = set(specials.values())
        vocabulary = {i: unspell(s) for s, i in model["vocab"].items() if i not in ids}
        merges = [(unspell(a), unspell(b)) for a, b in map(_pair, model["merges"])]
        tokenizer = Tokenizer(vocabulary, merges, specials, _pattern(content["pre_tokenizer"]))
        if model.get("ignore_merges"):
            _refuse_whole_words(tokenizer, vocabulary)
        return tokenizer
    except FileNotFoundError as error:
        raise ValueError(f"no tokenizer in {folder}: {path.name} is missing") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the tokenizer {path} cannot be read: {error}") from error


def _refuse_settings(model: dict[str, Any], added: list[dict[str, Any]]) -> None:
    """Raise ValueError for what would give other ids than `Tokenizer` does."""
    names = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    if on := [name for name in names if model.get(name)]:
        raise ValueError(f"its model has {on[0]} = {model[on[0]]!r}: plain BPE on bytes is read")
    for token in added:
        if on := [name for name in ("single_word", "lstrip", "rstrip") if token.get(name)]:
            raise ValueError(
                f"its token {token['content']!r} has {on[0]}: only what is spelled exactly so is "
                "taken for a token here"
            )


def _refuse_whole_words(tokenizer: Tokenizer, vocabulary: dict[int, bytes]) -> None:
    """Raise ValueError if a word would be taken whole that merges make something else of."""
    for i, word in vocabulary.items():
        if list(tokenizer._merged(word)) != [i]:
            raise ValueError(
                f"it takes words of its vocabulary whole (ignore_merges), and of {word!r} merges "
                "make something else: only merges are followed here"
            )


def _pair(merge: str | list[str]) -> list[str]:
    """Return the two sides of a merge: a list, or, of older versions, a string with a space."""
    return merge.split(" ") if isinstance(merge, str) else merge


def _pattern(cutter: dict[str, Any]) -> str:
    """Return how text is cut into words."""
    if cutter["type"] == "ByteLevel" and cutter["use_regex"] and not cutter["add_prefix_space"]:
        return GPT2
    first, second = cutter["pretokenizers"]
    is_cut = first["type"] == "Split" and first["behavior"] == "Isolated" and not first["invert"]
    is_spelled = second["type"] == "ByteLevel" and not second["add_prefix_space"]
    if not is_cut or not is_spelled or second["use_regex"]:
        raise ValueError("it does not cut text by a pattern and then spell bytes")
    return first["pattern"]["Regex"]
