"""A trained run as a folder that Hugging Face's transformers loads: safetensors and a model card.

    llmcourse export --run runs/a --to exported/a

A safetensors file holds tensors and nothing that could run: its header is JSON, names, shapes and
offsets; then come the bytes.
"""

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from jsonargparse import ArgumentParser

from llmcourse.base.command_line import ended
from llmcourse.base.files import sync_folder, write_atomically
from llmcourse.checkpoint import Checkpoint
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.model.huggingface import obstacle
from llmcourse.train.config import TrainConfig
from llmcourse.train.saved import as_value_error, config_and_checkpoint, config_of
from llmcourse.train.stage import stage_of
from llmcourse_labs.export import huggingface
from llmcourse_labs.export.huggingface import DType
from llmcourse_labs.export.model_card import model_card
from llmcourse_labs.real import split_experts, to_huggingface
from llmcourse_labs.tuning.chat_format import END_OF_TURN

PROGRAM = "llmcourse export"
WEIGHTS = "model.safetensors"
NAMES = {
    WEIGHTS,
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "README.md",
}
"""The files of an exported run."""


def export(
    run_folder: str | Path, to: str | Path, *, dtype: DType = "float32", force: bool = False
) -> Path:
    """Write the newest intact checkpoint of a run as a folder for transformers; return the folder.

    It appears under its name only when all of it is on disk.

    Args:
        run_folder: where the run was started.
        to: the new folder.
        dtype: of the weights; bfloat16 rounds them.
        force: replace an export that stands there.  If the process is killed between the two
            renames, the old one is left whole as .NAME.HEX.old, the new one as .NAME.HEX.tmp.

    Raises:
        ValueError: if the run has no intact checkpoint, transformers has no class for its model,
            dtype is not one of the two, or something stands at `to` that may not be replaced.
        OSError: if a file cannot be read or written; what stood at `to` goes only when the new
            folder has its name.
    """
    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"dtype must be float32 or bfloat16, got {dtype!r}")
    run_folder, to = Path(run_folder), Path(to).resolve()
    _refuse_taken(to, force=force)
    contents = _contents(run_folder, to.name, dtype)
    temporary = to.with_name(f".{to.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        for name, content in contents.items():
            with write_atomically(temporary / name) as file:
                file.write(content)
        _put_in_place(temporary, to, force=force)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return to


def _refuse_taken(to: Path, *, force: bool) -> None:
    """Raise ValueError if something stands at `to`, unless it is an export that may be replaced."""
    if not to.exists():
        return
    if not force:
        raise ValueError(f"{to} exists: choose another folder, or replace it with force")
    if not to.is_dir():
        raise ValueError(f"{to} is no folder: force replaces an exported folder only")
    found = {path.name for path in to.iterdir()}
    if found and found != NAMES:
        others = sorted(found - NAMES)
        odd = f"holds {others[0]!r}" if others else f"lacks {min(NAMES - found)!r}"
        raise ValueError(
            f"{to} is not as an export left it, it {odd}: move it away, or choose another folder; "
            "force replaces an exported folder only"
        )


def _contents(run_folder: Path, name: str, dtype: DType) -> dict[str, bytes]:
    """Return every file of the export by name."""
    _refuse_early(run_folder)
    config, saved = config_and_checkpoint(run_folder)
    _refuse_other_models(config)
    with as_value_error(run_folder):
        saved = replace(saved, model=stage_of(config).whole(saved.model))
    tokenizer = Tokenizer.load(run_folder / "data" / "tokenizer")
    tokenizer_file = huggingface.tokenizer_json(tokenizer)
    end_id = tokenizer.special_tokens[END_OF_TEXT]
    weights = _weights(saved, config, dtype)
    described = {
        "config.json": huggingface.config_json(config.model, end_id=end_id, dtype=dtype),
        "generation_config.json": huggingface.generation_config_json(
            config.model, end_id=end_id, turn_id=tokenizer.special_tokens.get(END_OF_TURN)
        ),
        "tokenizer.json": tokenizer_file,
        "tokenizer_config.json": huggingface.tokenizer_config_json(
            config.model, talks=END_OF_TURN in tokenizer.special_tokens
        ),
    }
    card = model_card(run_folder, config, saved, tokenizer, name=name, dtype=dtype, weights=weights)
    return {
        WEIGHTS: weights,
        **{file: _json(value) for file, value in described.items()},
        "README.md": card.encode(),
    }


def _refuse_early(run_folder: Path) -> None:
    """Refuse by the settings beside the checkpoints, which may be large; those in them count."""
    try:
        path = run_folder / "config.json"
        config = config_of(json.loads(path.read_bytes()), path)
    except (OSError, ValueError, TypeError, KeyError):
        return
    _refuse_other_models(config)


def _refuse_other_models(config: TrainConfig) -> None:
    """Raise ValueError if transformers cannot compute what a run's model computes."""
    if (reason := obstacle(config.model, config.without)) is not None:
        raise ValueError(reason)


def _json(value: dict[str, Any]) -> bytes:
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n".encode()


def _weights(saved: Checkpoint, config: TrainConfig, dtype: DType) -> bytes:
    """Return model.safetensors: Hugging Face's names, a tied head once."""
    with torch.device("meta"):
        expected = Transformer(config.model).state_dict()
    if odd := [n for n, weight in saved.model.items() if not isinstance(weight, torch.Tensor)]:
        raise ValueError(f"the checkpoint's {odd[0]!r} is no tensor")
    if _shapes(saved.model) != _shapes(expected):
        odd = sorted(dict(_shapes(saved.model).items() ^ _shapes(expected).items()))
        raise ValueError(f"the checkpoint's weights are not those of its settings: {odd[0]}")
    state = split_experts(to_huggingface(saved.model, config.model))
    if config.model.tied_head:
        del state["lm_head.weight"]  # the same memory as the embedding: transformers ties it again
    narrow = {name: weight.to(getattr(torch, dtype)).contiguous() for name, weight in state.items()}
    return safetensors.torch.save(narrow, metadata={"format": "pt"})


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in state.items()}


def _put_in_place(temporary: Path, to: Path, *, force: bool) -> None:
    """Give a finished folder its name; what stands there, an export, goes only afterwards."""
    _refuse_taken(to, force=force)  # once more: it may have come meanwhile
    old = temporary.with_suffix(".old") if to.exists() else None
    if old is not None:
        to.rename(old)
    try:
        temporary.rename(to)
    except BaseException:
        if old is not None:
            old.rename(to)
        raise
    sync_folder(to.parent)
    if old is not None:
        shutil.rmtree(old)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _export(arguments))


def _export(arguments: Sequence[str] | None) -> None:
    """Write the folder, and say where."""
    options = _parser().parse_args(arguments)
    folder = export(options.run, options.to, dtype=options.dtype, force=options.force)
    print(f"exported to {folder}")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        description="Write a trained run as a folder that Hugging Face's transformers loads.",
    )
    parser.add_argument("--run", required=True, help="folder of the run")
    parser.add_argument("--to", required=True, help="new folder")
    parser.add_argument(
        "--dtype", type=DType, default="float32", help="of the weights; bfloat16 rounds them"
    )
    parser.add_argument("--force", action="store_true", help="replace an export that stands there")
    return parser
