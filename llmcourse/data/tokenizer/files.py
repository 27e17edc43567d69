"""GPT-2's file format: vocab.json and merges.txt, and beside them special_tokens.json.

vocab.json maps tokens to ids, merges.txt has one pair of tokens a line, in order.  Both write bytes
as printable characters (`BYTE_CHARACTERS`), special tokens as they are.  special_tokens.json adds
what GPT-2 leaves to the code: which tokens are special, the pattern, and a fingerprint.

Source: Radford et al. 2019, https://github.com/openai/gpt-2, src/encoder.py
"""

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from llmcourse.base.files import write_atomically
from llmcourse.data.tokenizer.patterns import GPT2, Cutter, checked_special_tokens

_VERSION_LINE = "#version: 0.2"


def byte_characters() -> dict[int, str]:
    """Return GPT-2's printable character for every byte, in the order of its first 256 ids.

    Bytes that print stand for themselves; the other 68 take the characters from U+0100 on, so that
    the files have neither white space nor control characters in a token.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    return characters | {byte: chr(256 + place) for place, byte in enumerate(rest)}


BYTE_CHARACTERS = byte_characters()
"""GPT-2's printable character for every byte, in the order of its first 256 ids."""

_BYTE_OF = {character: byte for byte, character in BYTE_CHARACTERS.items()}


class Content(NamedTuple):
    """What the three files hold: the arguments of `Tokenizer`, in order."""

    vocabulary: Mapping[int, bytes]
    merges: Sequence[tuple[bytes, bytes]]
    special_tokens: dict[str, int]
    pattern: str
    quirks: Sequence[str] = ()


def spell(token: bytes) -> str:
    """Write bytes as GPT-2's printable characters."""
    return "".join(BYTE_CHARACTERS[byte] for byte in token)


def unspell(text: str) -> bytes:
    """Read GPT-2's printable characters as bytes."""
    try:
        return bytes(_BYTE_OF[character] for character in text)
    except KeyError as error:
        raise ValueError(f"{text!r} holds {error.args[0]!r}, which stands for no byte") from None


def write(folder: str | Path, content: Content, fingerprint: str) -> None:
    """Write the three files, each atomically, the one with the fingerprint last.

    A special token that is spelled like another token, such as "a", is in special_tokens.json only.

    Raises:
        OSError: if a file cannot be written.
    """
    vocabulary, merges, special_tokens, pattern, quirks = content
    spelled = special_tokens | {spell(token): i for i, token in vocabulary.items()}
    by_id = dict(sorted(spelled.items(), key=lambda item: item[1]))
    lines = [_VERSION_LINE, *(f"{spell(a)} {spell(b)}" for a, b in merges)]
    extra = {"special_tokens": special_tokens, "pattern": pattern, "fingerprint": fingerprint}
    extra |= {"quirks": list(quirks)} if quirks else {}
    for name, text in (
        ("vocab.json", json.dumps(by_id, ensure_ascii=False)),
        ("merges.txt", "\n".join(lines) + "\n"),
        ("special_tokens.json", json.dumps(extra, ensure_ascii=False, indent=1)),
    ):
        with write_atomically(Path(folder) / name) as file:
            file.write(text.encode())


def read(folder: str | Path) -> tuple[Content, str | None]:
    """Read the files; without special_tokens.json as GPT-2 is read, and without a fingerprint.

    Raises:
        ValueError: if a file is missing or not in this form.
    """
    folder = Path(folder)
    special_tokens, pattern, fingerprint = None, GPT2, None
    quirks: list[str] = []
    with _told(f"in {folder}"):
        if (folder / "special_tokens.json").exists():
            extra = _read_extra(folder / "special_tokens.json")
            special_tokens, pattern, fingerprint, quirks = extra
        content = _read_pair(folder / "vocab.json", folder / "merges.txt", special_tokens, pattern)
    return content._replace(quirks=quirks), fingerprint


def read_pair(
    vocab: Path, merges: Path, special_tokens: Sequence[str] | None, pattern: str
) -> Content:
    """Read GPT-2's two files; special tokens are those named, or those that no merge can make.

    Raises:
        ValueError: if a file is missing or not in this form, or no merge makes a token.
    """
    with _told(f"of {vocab} and {merges}"):
        return _read_pair(vocab, merges, special_tokens, pattern)


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    """Say where the tokenizer is that cannot be read."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"no tokenizer {where}: {error.filename} is missing") from error
    except ValueError as error:
        raise ValueError(f"the tokenizer {where} is broken: {error}") from error


def _read_pair(
    vocab: Path,
    merges_path: Path,
    special_tokens: dict[str, int] | Sequence[str] | None,
    pattern: str,
) -> Content:
    """Read the two files; special tokens with their ids are taken as they are."""
    spelled = _read_json(vocab)
    if not _are_ids(spelled):
        raise ValueError(f"{vocab.name} must map strings to ids")
    if len(set(spelled.values())) < len(spelled):
        raise ValueError(f"two tokens of {vocab.name} have the same id")
    merges = _read_merges(merges_path)
    if not isinstance(special_tokens, dict):
        special_tokens = _specials(spelled, merges, special_tokens, pattern)
    special_ids = set(special_tokens.values())
    vocabulary = {i: unspell(s) for s, i in spelled.items() if i not in special_ids}
    return Content(vocabulary, merges, special_tokens, pattern)


def _read_json(path: Path) -> Any:
    """Read a JSON file, and name it if it is broken."""
    try:
        data = path.read_bytes()
        if data.startswith(b"\x80"):
            raise ValueError("it is a pickle, which is not read, as it could run code")
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error


def _are_ids(value: Any) -> TypeGuard[dict[str, int]]:
    """Whether a value read from JSON maps strings to ids."""
    return isinstance(value, dict) and all(type(i) is int for i in value.values())


def _read_merges(path: Path) -> list[tuple[bytes, bytes]]:
    """Read the merges: after the version line, two tokens and a space between them a line."""
    lines = path.read_text(encoding="utf8").splitlines()
    has_version = bool(lines) and lines[0].startswith("#version")
    merges = []
    for number, line in enumerate(lines[has_version:], start=1 + has_version):
        pair = line.split(" ")
        if len(pair) != 2 or "" in pair:
            raise ValueError(f"{path.name}, line {number}: expected two tokens, got {line!r}")
        merges.append((unspell(pair[0]), unspell(pair[1])))
    return merges


def _read_extra(path: Path) -> tuple[dict[str, int], str, str | None, list[str]]:
    """Read special tokens, pattern, fingerprint and quirks; the last two may be left out."""
    extra = _read_json(path)
    extra = extra if isinstance(extra, dict) else {}
    special_tokens, pattern = extra.get("special_tokens"), extra.get("pattern")
    if not _are_ids(special_tokens) or not isinstance(pattern, str):
        raise ValueError(f"{path.name} must hold special_tokens (string to id) and pattern")
    return special_tokens, pattern, extra.get("fingerprint"), extra.get("quirks", [])


def _specials(
    spelled: dict[str, int],
    merges: Sequence[tuple[bytes, bytes]],
    named: Sequence[str] | None,
    pattern: str,
) -> dict[str, int]:
    """Return the ids of the special tokens that are named, or that no merge could make.

    What no merge could make is cut into several words by the pattern.
    """
    made = {spell(a + b) for a, b in merges} | set(_BYTE_OF)
    unmade = {token: i for token, i in spelled.items() if token not in made}
    names = checked_special_tokens(named or ())
    ids = {name: unmade.get(name, unmade.get(spell(name.encode()))) for name in names}
    cutter = Cutter(pattern, ())
    for token, i in unmade.items():
        if i not in ids.values() and len(cutter.words(token)) < 2:
            raise ValueError(
                f"no merge makes {token!r}: the merges are incomplete, or it is a special token "
                "and must be named as one"
            )
    free = itertools.count(1 + max(spelled.values(), default=-1))
    return unmade if named is None else {s: next(free) if i is None else i for s, i in ids.items()}
