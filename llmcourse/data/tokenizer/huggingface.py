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
        specials = {token["content"]: token["id"] for token in added}
        ids = set(specials.values())
        vocabulary = {i: unspell(s) for s, i in model["vocab"].items() if i not in ids}
        merges = [tuple(map(unspell, _pair(merge))) for merge in model["merges"]]
        return Tokenizer(vocabulary, merges, specials, _pattern(content["pre_tokenizer"]))
    except FileNotFoundError as error:
        raise ValueError(f"no tokenizer in {folder}: {path.name} is missing") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the tokenizer {path} cannot be read: {error}") from error


def _pair(merge: str | list[str]) -> list[str]:
    """Return the two sides of a merge: a list, or, of older versions, a string with a space."""
    return merge.split(" ") if isinstance(merge, str) else merge


def _pattern(cutter: dict[str, Any]) -> str:
    """Return how text is cut into words."""
    if cutter["type"] == "ByteLevel" and cutter["use_regex"] and not cutter["add_prefix_space"]:
        return GPT2
    first, second = cutter["pretokenizers"]
    if first["type"] != "Split" or second["type"] != "ByteLevel" or second["add_prefix_space"]:
        raise ValueError("it does not cut text by a pattern and then spell bytes")
    return first["pattern"]["Regex"]
