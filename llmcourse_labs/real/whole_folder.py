"""A folder that appears under its name only when all of its files are on disk."""

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from llmcourse.base.files import sync_folder, write_atomically
from llmcourse_labs.real import peft_adapter

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
ADAPTER = {peft_adapter.CONFIG, peft_adapter.WEIGHTS}
"""Those of an adapter."""


def refuse_taken(to: Path, *, force: bool) -> None:
    """Refuse a place that is taken.

    Args:
        to: where a folder is to be.
        force: whether an export that stands there may be replaced.

    Raises:
        ValueError: if something stands there, unless it is an export that may be replaced.
    """
    if not to.exists():
        return
    if not force:
        raise ValueError(f"{to} exists: choose another folder, or replace it with force")
    if not to.is_dir():
        raise ValueError(f"{to} is no folder: force replaces an exported folder only")
    found = {path.name for path in to.iterdir()}
    if found and found not in (NAMES, ADAPTER):
        others = sorted(found - NAMES)
        odd = f"holds {others[0]!r}" if others else f"lacks {min(NAMES - found)!r}"
        raise ValueError(
            f"{to} is not as an export left it, it {odd}: move it away, or choose another folder; "
            "force replaces an exported folder only"
        )


def write_folder(to: Path, contents: Mapping[str, bytes], *, force: bool) -> Path:
    """Write files into a folder that gets its name when all of them are on disk; return it.

    Args:
        to: the new folder.
        contents: of each file by name.
        force: replace an export that stands there.

    Raises:
        ValueError: as `refuse_taken`.
        OSError: if a file cannot be written; then nothing is left, and what stood at `to` stays.
    """
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


def _put_in_place(temporary: Path, to: Path, *, force: bool) -> None:
    """Give a finished folder its name; what stands there, an export, goes only afterwards."""
    refuse_taken(to, force=force)  # once more: it may have come meanwhile
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
