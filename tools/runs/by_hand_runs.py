"""Do chapter 01's training run once more, without autograd, as chapter 19 tells of it.

    python -m tools.runs.by_hand_runs

takes from chapter 19 the cells that define its backward functions and its loop, lets the loop do
the run of chapter 01 draw for draw, and writes losses and samples into
llmcourse_classroom/by_hand.json.
"""

import math
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from llmcourse import nutshell
from llmcourse_classroom.notebooks import nbformat
from tools.runs import live_runs
from tools.runs.recording import record

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "chapters" / "19_llama_backward.ipynb"
FOUND = ROOT / "llmcourse_classroom" / "by_hand.json"
DEFINING = {
    "linear": "linear_back",
    "loss-back": "loss_back",
    "rmsnorm": "norm_back",
    "attention": "attend_back",
    "gate": "gate_back",
    "block-forward": "block_forward",
    "block-back": "block_back",
    "model-back": "loss_and_gradients",
    "train": "train_by_hand",
}
"""The function that each cell begins with; what the cell does with it is left out."""


def defined() -> dict[str, Any]:
    """Return the functions of the chapter by their names."""
    names: dict[str, Any] = {"math": math, "torch": torch, "F": F, "nutshell": nutshell}
    names |= {"softmax": nutshell.softmax, "rope": nutshell.rope}
    for cell in nbformat.read(CHAPTER, as_version=4).cells:
        if cell.get("id") in DEFINING:
            function, *_ = cell.source.split("\n\n\n")
            exec(compile(function, cell["id"], "exec"), names)
    return {name: names[name] for name in DEFINING.values()}


def run(_seed: int, steps: int = 300) -> dict[str, Any]:
    """Do the run of chapter 01 by hand, or its first steps; return losses and samples."""
    with mock.patch.object(nutshell, "train", defined()["train_by_hand"]):
        found = live_runs.chapter(0, steps)
    return {"losses": found["losses"], "samples": found["samples"]}


def main() -> int:
    """Make the run, if it is not there."""
    about = {"command": "python -m tools.runs.by_hand_runs"}
    record(FOUND, {"run": {"chapter 01": run}}, seeds=[0], wanted=[], about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
