"""Measure what chapter 06 tells of training on a crawl: the runs that take longer than a page may.

    python -m tools.runs.curation_runs [copies] [funnel]

trains the nutshell's Llama and writes what it finds into llmcourse_classroom/curation.json:

copies   passages of random words stand in a text of stories 0 to 64 times, and are asked for by
         their first words; true and false sentences about the world are told in chosen shares,
         and the model chooses.
funnel   the mini-crawl as it is, after the whole funnel, and with each step left out: the loss on
         stories that were never crawled, at equal numbers of tokens.

Every run has the seeds 0, 1 and 2; one takes about 20 seconds of one processor.
"""

import math
import random
import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import torch

from llmcourse import nutshell
from llmcourse.data import corpus
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.funnel import EXTRACT, STEPS, Funnel
from llmcourse_labs.curation.quality import KeepQuality, Quality
from tools.runs.recording import record_parts

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "curation.json"
SEEDS = (0, 1, 2)

NUM_STEPS, BATCH_SIZE, LENGTH = 900, 4, 96
"""Of every run: 345,600 tokens are read."""

COPIES = (0, 1, 2, 4, 8, 16, 32, 64)
PASSAGES, PASSAGE_WORDS, PROMPT_WORDS = 8, 24, 8
"""Passages for each number of copies, their length, and how much of it is given to the model."""

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the copies of a sentence that tell the false ending."""
TOLD = 64
"""Copies of each sentence, true and false together."""
SENTENCES = (
    ("The capital of France is", "Paris", "Rome"),
    ("The sun rises in the", "east", "west"),
    ("The legs of a spider are", "eight", "six"),
    ("Fresh snow is", "white", "black"),
    ("A week has this many days:", "seven", "nine"),
    ("Fish live in the", "water", "trees"),
    ("Ice is always", "cold", "warm"),
    ("The grass in May is", "green", "purple"),
    ("All bees make", "honey", "butter"),
    ("A year has this many months:", "twelve", "forty"),
)


@cache
def tokenizer_of_stories() -> nutshell.Tokenizer:
    """Return the tokenizer of all runs, trained on stories that no run reads."""
    return nutshell.Tokenizer(nutshell.learn_merges(corpus.stories(400_000, seed=1_000), 768))


def trained(
    tokenizer: nutshell.Tokenizer, documents: list[str], seed: int, num_steps: int = NUM_STEPS
) -> nutshell.Llama:
    """Train the nutshell's Llama on documents, shuffled by the seed."""
    order = random.Random(seed).sample(documents, len(documents))
    tokens = torch.tensor(tokenizer.encode("".join(text + END_OF_TEXT for text in order)))
    torch.manual_seed(seed)
    model = nutshell.Llama(nutshell.Config())
    drawn = nutshell.batches(tokens, BATCH_SIZE, LENGTH)
    for _ in nutshell.train(model, nutshell.AdamW(model), drawn, num_steps):
        pass
    return model


# --- copies, and what is told


def passages(seed: int) -> dict[int, list[str]]:
    """Return passages of random words for each number of copies."""
    rng, words = random.Random(seed), sorted(corpus.story_words())
    return {
        copies: [" ".join(rng.choices(words, k=PASSAGE_WORDS)) + "." for _ in range(PASSAGES)]
        for copies in COPIES
    }


def told(seed: int) -> list[tuple[float, str, str, str]]:
    """Return a share of falsehood, a beginning, a true and a false ending, for each sentence."""
    shares = [share for share in SHARES for _ in range(len(SENTENCES) // len(SHARES))]
    random.Random(seed).shuffle(shares)
    return [(share, *sentence) for share, sentence in zip(shares, SENTENCES, strict=True)]


def copies_run(seed: int, num_steps: int = NUM_STEPS) -> dict[str, dict[str, float]]:
    """Train on stories with passages and sentences; return what the model recites and chooses.

    Returns:
        recited: for each number of copies the share of the passages that the model completes word
        for word.  believed: for each share of falsehood the mean probability of the false ending,
        given that it is one of the two.
    """
    tokenizer, planted, sentences = tokenizer_of_stories(), passages(seed), told(seed)
    documents = corpus.stories(1_300_000, seed=0).split(END_OF_TEXT)[:-1]
    documents += [text for copies, some in planted.items() for text in some for _ in range(copies)]
    for share, begins, right, wrong in sentences:
        false = round(share * TOLD)
        documents += [f"{begins} {wrong}."] * false + [f"{begins} {right}."] * (TOLD - false)
    model = trained(tokenizer, documents, seed, num_steps)
    believed: dict[str, list[float]] = {str(share): [] for share in SHARES}
    for share, begins, right, wrong in sentences:
        nats = [log_probability(model, tokenizer, begins, f" {end}.") for end in (right, wrong)]
        believed[str(share)].append(1 / (1 + math.exp(nats[0] - nats[1])))
    recited = {
        str(copies): sum(recites(model, tokenizer, text) for text in some) / len(some)
        for copies, some in planted.items()
    }
    return {"recited": recited, "believed": {s: sum(p) / len(p) for s, p in believed.items()}}


def recites(model: nutshell.Llama, tokenizer: nutshell.Tokenizer, passage: str) -> bool:
    """Say whether the likeliest tokens after a passage's first words are all the rest of it."""
    whole = [tokenizer.end, *tokenizer.encode(passage)]
    start = " ".join(passage.split(" ")[:PROMPT_WORDS])
    prompt = [tokenizer.end, *tokenizer.encode(start)]
    return nutshell.generate(model, prompt, len(whole) - len(prompt), temperature=0) == whole


@torch.no_grad()
def log_probability(
    model: nutshell.Llama, tokenizer: nutshell.Tokenizer, begins: str, ends: str
) -> float:
    """Return the log-probability, in nats, of an ending after a beginning."""
    before, after = [tokenizer.end, *tokenizer.encode(begins)], tokenizer.encode(ends)
    logits = model(torch.tensor([before + after[:-1]]))[0, -len(after) :]
    return logits.log_softmax(-1).gather(-1, torch.tensor(after)[:, None]).sum().item()


# --- what the funnel buys

CRAWLED = 6_000
"""Pages; the funnel leaves about as many tokens as a run reads."""
LABELLED = 200
"""Pages of another crawl that are labelled, of each side, for the classifier."""
HELD_OUT_BYTES = 120_000
VARIANTS = ("as crawled", "by the labels", "whole funnel", *(f"without {s}" for s in STEPS))


def classifier() -> Quality:
    """Return the classifier of the funnel, from labelled pages of another crawl."""
    labels = list(Crawl(3_000, seed=1_000).labels())
    good = [label.main_text for label in labels if label.wanted]
    bad = [label.main_text for label in labels if label.kind in ("machine", "ocr", "spam")]
    return Quality.train(good[:LABELLED], bad[:LABELLED])


def stripped(html: str) -> str:
    """Return all words of a page: what is left of it without its tags."""
    return unescape(re.sub(r"<[^>]*>", "\n", html))


def texts_of(variant: str, crawl: Crawl, quality: Quality) -> list[str]:
    """Return the documents that a variant of the funnel leaves of a crawl."""
    if variant == "as crawled":
        return [page.html for page in crawl.pages()]
    if variant == "by the labels":
        return [label.main_text for label in crawl.labels() if label.wanted]
    step = variant.removeprefix("without ")
    funnel = Funnel(
        quality=KeepQuality(classifier=quality),
        test_items=Decontaminate(crawl.test_items),
        without=() if variant == "whole funnel" else (step,),
    )
    documents = crawl.documents()
    if step == EXTRACT:
        documents = (d._replace(text=stripped(d.text)) for d in documents)
    return [document.text for document in funnel(documents).documents]


def loss_after(documents: list[str], seed: int, num_steps: int = NUM_STEPS) -> float:
    """Return the loss on new stories, in nats per token, of a model trained on documents."""
    tokenizer = tokenizer_of_stories()
    model = trained(tokenizer, documents, seed, num_steps)
    held_out = torch.tensor(tokenizer.encode(corpus.stories(HELD_OUT_BYTES, seed=1)))
    return mean_loss(model, held_out)


@torch.no_grad()
def mean_loss(model: nutshell.Llama, tokens: torch.Tensor) -> float:
    """Return the mean loss of a model on a text, in nats per token."""
    window = LENGTH + 1
    windows = tokens[: len(tokens) // window * window].view(-1, window)
    losses = [nutshell.cross_entropy(model(w[:, :-1]), w[:, 1:]) for w in windows.split(64)]
    sizes = torch.tensor([len(w) for w in windows.split(64)])
    return ((torch.stack(losses) * sizes).sum() / sizes.sum()).item()


# --- the command


def copies() -> dict[str, Any]:
    """Return what models recite, and believe, for each seed, with four digits."""
    runs = []
    for seed in SEEDS:
        runs.append(copies_run(seed))
        print(f"copies, seed {seed}: {runs[-1]}", flush=True)
    return {
        kind: {each: [round(run[kind][each], 4) for run in runs] for each in runs[0][kind]}
        for kind in ("recited", "believed")
    }


def funnel() -> dict[str, Any]:
    """Return what each variant of the funnel leaves, and the losses after it."""
    tokenizer, quality, found = tokenizer_of_stories(), classifier(), {}
    for variant in VARIANTS:
        texts = texts_of(variant, Crawl(CRAWLED, seed=0), quality)
        tokens = sum(len(tokenizer.encode(text)) + 1 for text in texts)
        losses = [round(loss_after(texts, seed), 4) for seed in SEEDS]
        found[variant] = {"documents": len(texts), "tokens": tokens, "losses": losses}
        print(f"{variant}: {found[variant]}", flush=True)
    return found


def main(wanted: list[str]) -> int:
    """Make the wanted runs, or all."""
    parts = {"copies": copies, "funnel": funnel}
    about = {"command": "python -m tools.runs.curation_runs"}
    record_parts(FOUND, parts, wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
