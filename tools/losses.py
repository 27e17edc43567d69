"""Measure the models of chapter 04 with several seeds, for the axis of losses.

    python -m tools.losses [NAME ...]

executes the cells of the chapter that define its models, trains those of `MODELS` (or the named
ones) with the seeds 0, 1 and 2, and writes their losses on held-out stories into
llmcourse/course/losses.json.  All together take a quarter of an hour of one processor; the chapter
trains the shorter ones with seed 0.
"""

import json
import sys
from pathlib import Path
from typing import Any

import nbformat

from llmcourse.base.files import write_atomically
from llmcourse.data import corpus
from tools.uses import python_of

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = ROOT / "chapters" / "04_pairs_to_transformer.ipynb"
LOSSES = ROOT / "llmcourse" / "course" / "losses.json"
DEFINING = (
    "setup",
    "text",
    "equal",
    "counts",
    "table",
    "two-tables",
    "fit",
    "last-tokens",
    "blocks",
)
SEEDS = (0, 1, 2)
PAGE_BYTES = 2_000_000
COUNTED = {
    "equal chances": "equal_chances",
    "counts of tokens": "token_counts",
    "table of pairs": "pair_table",
}
"""The models without chance."""
MODELS = {
    "16 numbers per token": ("TwoTables(16)", 0.03, 1),
    "last 4 tokens, no curve": ("LastTokens(curve=lambda h: h)", 0.01, 1),
    "last 4 tokens, a curve": ("LastTokens()", 0.01, 1),
    "attention: 1 block": ("Blocks(1)", 0.01, 1),
    "depth: 2 blocks": ("Blocks(2)", 0.01, 1),
    "depth: 4 blocks": ("Blocks(4)", 0.01, 1),
    "1 block, 4 times the tokens": ("Blocks(1)", 0.01, 4),
    "2 blocks, 4 times the tokens": ("Blocks(2)", 0.01, 4),
}
"""What makes a model, its learning rate, and how many times the tokens of the page it reads."""


def definitions() -> dict[str, Any]:
    """Execute the cells of the chapter that define its models; return the names they define."""
    names: dict[str, Any] = {}
    for cell in nbformat.read(CHAPTER, as_version=4).cells:
        if cell.get("id") in DEFINING:
            exec(compile(python_of(cell.source), cell["id"], "exec"), names)
    return names


def loss(names: dict[str, Any], model: str, seed: int) -> float:
    """Return the held-out loss of one of `MODELS`, trained with a seed."""
    make, peak, times = MODELS[model]
    longer = corpus.stories(times * PAGE_BYTES, seed=0)  # the page's text is its beginning
    names["train_ids"] = names["torch"].tensor(names["tokenizer"].encode(longer))
    steps = times * names["STEPS"]
    ready = names["trained"](lambda: eval(make, names), peak, seed=seed, num_steps=steps)
    return names["loss_of"](ready)


def main(wanted: list[str]) -> int:
    """Measure the named models, or all, and write what is found after each."""
    names = definitions()
    found = {name: [names["loss_of"](names[model])] for name, model in COUNTED.items()}
    for name in wanted or MODELS:
        found[name] = []
        for seed in SEEDS:
            found[name].append(loss(names, name, seed))
            print(f"{name}, seed {seed}: {found[name][-1]:.4f}", flush=True)
        known = json.loads(LOSSES.read_text(encoding="utf8")) if LOSSES.exists() else {}
        known |= {each: [round(one, 4) for one in losses] for each, losses in found.items()}
        ordered = {each: known[each] for each in (*COUNTED, *MODELS) if each in known}
        with write_atomically(LOSSES) as file:
            file.write(f"{json.dumps(ordered, indent=1)}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
