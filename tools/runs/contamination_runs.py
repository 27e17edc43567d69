"""Measure what chapter 44 tells of leaked tests: the runs that take longer than a page may.

    python -m tools.runs.contamination_runs [0] [4] [16] [64] [retold] ["retold file"]

trains small Llamas on texts in which half of a test stands 0, 4, 16 or 64 times, or 64 times in
other words (also as a file with its first line and its order), asks them the test, tries every
detector, and writes what it finds into llmcourse_classroom/contamination.json.  Losses are in nats
per token, shares are 0 to 1.
"""

import random
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from llmcourse import nutshell
from llmcourse.base import progress
from llmcourse.data import corpus
from llmcourse_labs.evaluate import (
    OPTIONS,
    VillageQuestion,
    Villages,
    canary_test,
    exchangeability_p_value,
    make_canary,
    min_k_log_prob,
    order_log_prob,
    overlapping_items,
    pair_log_probs,
    threshold_at,
)
from llmcourse_labs.tuning import answer_log_probs, answer_rows, token_log_probs
from tools.runs import recording

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "contamination.json"
SEEDS = (0, 1, 2)
COPIES = (0, 4, 16, 64)
RETOLD = 64
NUM_STEPS, BATCH_SIZE, LENGTH = 360, 8, 96
"""276,480 tokens, each read once."""
PEAK, WARMUP = 1.2e-2, 100
SHAPE = {"num_layers": 1, "width": 96, "head_size": 24, "hidden": 384, "vocab_size": 960}
K, RATE = 20, 0.05
"""Percent of the tokens that min-k looks at; share of false positives that is allowed."""
NUM_OTHERS, NUM_SHUFFLES = 999, 999
LENGTHS = (3, 5, 8, 13)
"""Runs of words."""
NULL_ORDERS, NULL_SHUFFLES = 200, 99
"""To measure false positives: so many random orders, each taken for the published one."""


@cache
def tokenizer(seed: int) -> nutshell.Tokenizer:
    """Return the tokenizer of stories and of sentences about the villages, without questions."""
    about = "".join(Villages(seed).documents(copies=0, seed=1_000)[:3_000])
    return nutshell.Tokenizer(
        nutshell.learn_merges(corpus.stories(300_000, seed=0) + about, SHAPE["vocab_size"])
    )


def documents(test: Villages, copies: int, told: str) -> list[str]:
    """Return a training text: sentences about the villages, the copies, and stories.

    The total is the same for all texts, so that copies take the place of stories.
    """
    encode, needed = tokenizer(test.seed).encode, NUM_STEPS * BATCH_SIZE * LENGTH + 1
    texts = test.documents(copies=copies, told=told, seed=test.seed)
    needed -= sum(len(encode(text)) for text in texts)
    for story in corpus.stories(1_200_000, seed=test.seed).split(corpus.END_OF_TEXT):
        if needed <= 0:
            break
        texts.append(story + corpus.END_OF_TEXT)
        needed -= len(encode(texts[-1]))
    random.Random(test.seed).shuffle(texts)
    return texts


def trained(texts: Sequence[str], seed: int) -> nn.Module:
    """Return a model that has read each window of a text once."""
    encode = tokenizer(seed).encode
    ids = torch.tensor([i for text in texts for i in encode(text)])
    generator = torch.Generator().manual_seed(seed)
    starts = LENGTH * torch.randperm(NUM_STEPS * BATCH_SIZE, generator=generator)
    windows = (ids[s[:, None] + torch.arange(LENGTH + 1)] for s in starts.split(BATCH_SIZE))
    drawn = ((rows[:, :-1], rows[:, 1:]) for rows in windows)
    torch.manual_seed(seed)
    model = nutshell.Llama(nutshell.Config(**SHAPE, context_length=LENGTH))
    optimizer = nutshell.AdamW(model)
    for _ in nutshell.train(model, optimizer, drawn, NUM_STEPS, peak=PEAK, warmup=WARMUP):
        pass
    return model


@torch.no_grad()
def loss_on_stories(model: nn.Module, seed: int) -> float:
    """Return the loss on stories that no run has read."""
    ids = torch.tensor(tokenizer(seed).encode(corpus.stories(60_000, seed=1_000)))
    starts = torch.arange(0, len(ids) - LENGTH, LENGTH)
    rows = ids[starts[:, None] + torch.arange(LENGTH + 1)]
    return nutshell.cross_entropy(model(rows[:, :-1]), rows[:, 1:]).item()


@torch.no_grad()
def right_answers(model: nn.Module, test: Sequence[VillageQuestion], seed: int) -> list[bool]:
    """Return for each question whether the likeliest of the ten answers is right."""
    encode, right = tokenizer(seed).encode, []
    for question in test:
        stem = encode(f"\n{question.stem}")
        rows = answer_rows([stem] * len(OPTIONS), [encode(f" {option}.") for option in OPTIONS])
        choice = OPTIONS[int(answer_log_probs(model, rows).argmax())]
        right.append(choice == question.answer)
    return right


@torch.no_grad()
def log_probs_of(model: nn.Module, texts: Sequence[str], seed: int) -> list[Tensor]:
    """Return log p of each token of some texts, the first of which has none."""
    encoded = [tokenizer(seed).encode(text) for text in texts]
    rows = answer_rows([ids[:1] for ids in encoded], [ids[1:] for ids in encoded])
    found = token_log_probs(model, rows)
    return [found[i, 1 : len(ids)] for i, ids in enumerate(encoded)]


def min_k_scores(model: nn.Module, test: Sequence[VillageQuestion], seed: int) -> list[float]:
    """Return the min-k log-probability of each question with its answer."""
    texts = [f"\n{question.text}" for question in test]
    return [min_k_log_prob(each, k=K) for each in log_probs_of(model, texts, seed)]


def share(flags: Sequence[bool]) -> float:
    return round(sum(flags) / len(flags), 4)


def canary(model: nn.Module, test: Villages) -> dict[str, float]:
    """Return the canary's rank, and how often another one would be reported by its rank."""
    others = [make_canary(seed=10_000 + n) for n in range(NUM_OTHERS)]
    own, *theirs = (x.sum().item() for x in log_probs_of(model, [test.canary, *others], test.seed))
    found = canary_test(own, theirs)
    alarms = [canary_test(x, theirs).p_value <= RATE for x in theirs[:NULL_ORDERS]]
    return {"rank": found.rank, "false": share(alarms)}


def min_k(model: nn.Module, test: Villages) -> dict[str, float]:
    """Return hits and false alarms above a threshold from clean questions of the same kind."""
    leaked, fresh, clean = (
        min_k_scores(model, questions, test.seed)
        for questions in (test.leaked, test.fresh, test.for_threshold)
    )
    least = threshold_at(clean, RATE)
    return {"hits": share([x > least for x in leaked]), "false": share([x > least for x in fresh])}


def order(model: nn.Module, test: Villages) -> dict[str, float]:
    """Return p-values of both halves' orders, and the share of random orders with p <= RATE."""
    generator, encode = torch.Generator().manual_seed(test.seed), tokenizer(test.seed).encode

    def p_value(scores: Tensor, published: Tensor, num_shuffles: int) -> float:
        return exchangeability_p_value(
            lambda order: order_log_prob(scores, published[order].tolist()),
            len(published),
            num_shuffles=num_shuffles,
            generator=generator,
        )

    leaked, fresh = (
        pair_log_probs(model, [encode(f"{question.text}\n") for question in questions])
        for questions in (test.leaked, test.fresh)
    )
    as_it_is = torch.arange(test.half)
    drawn = [torch.randperm(test.half, generator=generator) for _ in range(NULL_ORDERS)]
    return {
        "leaked": p_value(leaked, as_it_is, NUM_SHUFFLES),
        "fresh": p_value(fresh, as_it_is, NUM_SHUFFLES),
        "false": share([p_value(fresh, one, NULL_SHUFFLES) <= RATE for one in drawn]),
    }


def overlap(test: Villages, texts: Sequence[str], right: Sequence[bool]) -> dict[str, list[float]]:
    """Return for each length of runs the flagged share of both halves, and the clean subset."""
    items = [question.text for question in test.leaked + test.fresh]
    found: dict[str, list[float]] = {
        "leaked": [],
        "fresh": [],
        "clean right": [],
        "clean items": [],
    }
    for n in LENGTHS:
        flags = overlapping_items(items, texts, n=n)
        found["leaked"].append(share(flags[: test.half]))
        found["fresh"].append(share(flags[test.half :]))
        found["clean items"].append(flags.count(False))
        found["clean right"].append(sum(r for r, f in zip(right, flags, strict=True) if not f))
    return found


def run(copies: int, seed: int, told: str) -> dict[str, Any]:
    """Make one run and measure everything."""
    test = Villages(seed)
    texts = documents(test, copies, told)
    model = trained(texts, seed)
    right = right_answers(model, test.leaked + test.fresh, seed)
    return {
        "loss": round(loss_on_stories(model, seed), 4),
        "leaked": sum(right[: test.half]),
        "fresh": sum(right[test.half :]),
        "overlap": overlap(test, texts, right),
        "canary": canary(model, test),
        "min_k": min_k(model, test),
        "order": order(model, test),
    }


# --- the command


ROWS = {str(copies): (copies, "copied") for copies in COPIES}
ROWS |= {told: (RETOLD, told) for told in ("retold", "retold file")}


def write(name: str, runs: list[dict[str, Any]]) -> None:
    """Put the runs of a row into the file."""
    known = recording.read(FOUND).get("runs", {}) | {name: runs}
    found = {
        "command": "python -m tools.runs.contamination_runs",
        "settings": {
            "half": Villages().half,
            "options": len(OPTIONS),
            "tokens": NUM_STEPS * BATCH_SIZE * LENGTH,
            "lengths": list(LENGTHS),
            "candidates": NUM_OTHERS + 1,
        },
        "runs": {each: known[each] for each in ROWS if each in known},
    }
    recording.write(FOUND, found)


def main(wanted: list[str]) -> int:
    """Make the wanted rows, or all."""
    recording.refuse_unknown(wanted, ROWS)
    torch.set_num_threads(1)
    rows = {name: row for name, row in ROWS.items() if not wanted or name in wanted}
    with progress.bar(total=len(rows) * len(SEEDS), unit="run", desc="copies") as bar:
        for name, (copies, told) in rows.items():
            runs = []
            for seed in SEEDS:
                runs.append(run(copies, seed, told))
                bar.update()
                bar.write(f"{name}: {runs[-1]}")
            write(name, runs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
