"""A model of Hugging Face's from its folder: config.json, and the weights in safetensors.

Nothing is unpickled: a safetensors file holds tensors and nothing that could run.
"""

from collections.abc import Mapping
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from llmcourse.model.decoder import Transformer
from llmcourse_labs.real.huggingface_config import CONFIG, config_from_huggingface, read_json
from llmcourse_labs.real.huggingface_names import from_huggingface

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def load_huggingface(folder: str | Path) -> Transformer:
    """Return the model of a folder that `save_pretrained` wrote, its weights in float32.

    The weights are model.safetensors, or the files that model.safetensors.index.json names.
    Those in float32 are read where they lie, as transformers does: put another file in place of one
    that is loaded, and do not write into it.

    Args:
        folder: on this machine; nothing is downloaded.

    Raises:
        ValueError: if config.json describes what our decoder lacks or this machine cannot hold,
            the weights are others than it describes, a file is damaged or missing, or there are
            pickled weights alone.
        OSError: if a file cannot be read.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(
            f"{folder} holds no {CONFIG}: give a folder on this machine, such as "
            "huggingface_hub.snapshot_download returns; nothing is downloaded here"
        )
    config = config_from_huggingface(folder / CONFIG)
    weights = _read_weights(folder)
    try:
        state, model = from_huggingface(weights, config), Transformer(config)
    except (RuntimeError, OverflowError, TypeError) as error:  # torch's, of sizes beyond reason
        reason = str(error).splitlines()[0]
        raise ValueError(f"the model of {folder / CONFIG} cannot be made here: {reason}") from error
    whole = {name: weight.float() for name, weight in state.items()}
    model.load_state_dict(whole, assign=True)  # not copied: half the time, and half the memory
    return model


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Return every tensor of a folder under Hugging Face's name."""
    if (folder / WEIGHTS).is_file():
        return read_tensors(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        # The most likely reason has an answer of its own.
        pickled = sorted(
            path.name for end in ("bin", "pt", "pth") for path in folder.glob(f"*.{end}")
        )
        if pickled:
            raise ValueError(
                f"{folder} has its weights in {pickled[0]}, a pickle, which can run code when it "
                "is read: take a version in safetensors, or, if you trust its origin, write one "
                "with transformers' save_pretrained"
            )
        raise ValueError(f"{folder} holds neither {WEIGHTS} nor {INDEX}")
    # Weights in several files: an index says which tensor is in which.
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, Mapping) or not all(isinstance(f, str) for f in places.values()):
        raise ValueError(f"{folder / INDEX} has no weight_map from names to files")
    state: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        # The index comes from outside, and may not lead out of the folder.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{INDEX} names {name!r}, which is no safetensors file of its folder")
        if not (folder / name).is_file():
            raise ValueError(f"{INDEX} names {name}, which is not there: complete the folder")
        state |= read_tensors(folder / name)
    # They differ where a folder has files of two versions.
    if state.keys() != places.keys():
        odd = min(state.keys() ^ places.keys())
        raise ValueError(f"{INDEX} and the files do not list the same tensors: {odd!r}")
    return state


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of one safetensors file."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is no intact safetensors file: {error}") from error
    for name, weight in state.items():
        if weight.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(f"{path.name} holds {name} as {weight.dtype}: quantised weights?")
    return state
