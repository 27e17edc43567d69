"""Measure the models of the first lap with several seeds, for the axis of losses.

    python -m tools.runs.losses [NAME ...]

executes the cells of chapter 04 that define its models and its training, trains the models of
`MODELS` and the Llamas of `LLAMAS` (or the named ones) with the seeds 0, 1 and 2, and writes their
losses on held-out stories into llmcourse_classroom/losses.json.  All together take three quarters
of an hour of one processor; chapter 04 trains its shorter ones with seed 0.

Every model reads the same 345,600 tokens in 900 steps, where its name does not say otherwise.  A
Llama is the nutshell's with one thing changed.  A learning rate that differs from `PEAK` was the
best of those tried with seed 9: for SGD 0.1, 0.3, 0.5, 1; for momentum 0.02, 0.05, 0.1, 0.2, 0.4;
without norms 0.002, 0.006, 0.01, 0.018; for batches of 2 0.002, 0.004; of 16 0.006, 0.01, 0.016;
"""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

import torch
from torch import nn

from llmcourse import nutshell
from llmcourse.data import corpus
from llmcourse_classroom.notebooks import nbformat
from tools.build.uses import python_of
from tools.runs import recording

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "chapters" / "04_pairs_to_transformer.ipynb"
LOSSES = ROOT / "llmcourse_classroom" / "losses.json"
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
PAGE_BYTES, HELD_OUT_BYTES = 2_000_000, 120_000
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


PEAK = 6e-3


class Nothing(nn.Module):
    """What adds nothing to the residual stream, in the place of one of a block's two parts."""

    def __init__(self, config: nutshell.Config) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        """Return zeros."""
        return 0 * x


class Unscaled(nn.Module):
    """What leaves a token as it is, in the place of a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what comes in."""
        return x


class TwoMatrices(nn.Module):
    """A feed-forward network without a gate:  W_down max(0, W_up x), of as many parameters."""

    def __init__(self, config: nutshell.Config) -> None:
        super().__init__()
        hidden = 3 * config.hidden // 2
        self.w_up = nutshell.matrix(hidden, config.width)
        std = 0.02 / math.sqrt(2 * config.num_layers)
        self.w_down = nutshell.matrix(config.width, hidden, std=std)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum to the stream."""
        return (x @ self.w_up.T).relu() @ self.w_down.T


class WithoutStream(nutshell.Block):
    """A block whose parts replace the token in place of adding to it."""

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """Return what the feed-forward network makes of what attention makes."""
        x = self.attention(self.attention_norm(x), angles)
        return self.feed_forward(self.feed_forward_norm(x))


class Descent:
    """Gradient descent with momentum, without decay:  v = momentum v + g,  w = w - lr v."""

    momentum = 0.9

    def __init__(self, model: nn.Module) -> None:
        self.weights, self.t = list(model.parameters()), 0
        self.v = [torch.zeros_like(w) for w in self.weights]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update all weights, then forget their gradients."""
        self.t += 1
        for w, v in zip(self.weights, self.v, strict=True):
            v.mul_(self.momentum).add_(w.grad)
            w.sub_(lr * v)
            w.grad = None


class PlainDescent(Descent):
    """Gradient descent:  w = w - lr g."""

    momentum = 0.0


def constant(step: int, peak: float, num_steps: int, warmup: int, final: float) -> float:
    """Return the rate of a step that warms up and stays."""
    return peak * min(1.0, (step + 1) / warmup)


def without_warmup(step: int, peak: float, num_steps: int, warmup: int, final: float) -> float:
    """Return the rate of a step that falls along half a cosine from the start."""
    return final + (peak - final) * (1 + math.cos(math.pi * step / num_steps)) / 2


@dataclass(frozen=True)
class Llama:
    """A Llama of the nutshell: what differs in its shape, its parts, its training."""

    shape: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    """What stands in the place of names of the nutshell."""
    peak: float = PEAK
    times: int = 1
    batch: int = 4
    """Rows of a step; the steps are as many as give the same tokens."""
    text_bytes: int = 0
    """What it reads over and over, if not 0: the beginning of the page's text."""
    on_bytes: str = ""
    """It reads bytes, as many as the others read "tokens", or as many as those tokens hold."""


LLAMAS = {
    "Llama": Llama(),
    "Llama, 4 times the tokens": Llama(times=4),
    "Llama on bytes, equal tokens": Llama(on_bytes="tokens"),
    "Llama on bytes, equal text": Llama(on_bytes="text"),
    "Llama, 1 layer": Llama({"num_layers": 1}),
    "Llama, 2 layers": Llama({"num_layers": 2}),
    "Llama, no residual stream": Llama(parts={"Block": WithoutStream}),
    "Llama, no attention": Llama(parts={"Attention": Nothing}),
    "Llama, 1 head": Llama({"num_heads": 1, "num_kv_heads": 1, "head_size": 80}),
    "Llama, no shared heads": Llama({"num_kv_heads": 4}),
    "Llama, no feed-forward": Llama(parts={"FeedForward": Nothing}),
    "Llama, ReLU": Llama(parts={"FeedForward": TwoMatrices}),
    "Llama, no norms": Llama(parts={"RMSNorm": Unscaled}, peak=0.01),
    "Llama, no positions": Llama(parts={"rope": lambda x, angles: x}),
    "Llama, SGD": Llama(parts={"AdamW": PlainDescent}, peak=0.5),
    "Llama, momentum": Llama(parts={"AdamW": Descent}, peak=0.2),
    "Llama, constant rate": Llama(parts={"warmup_cosine": constant}),
    "Llama, no warm-up": Llama(parts={"warmup_cosine": without_warmup}),
    "Llama, batches of 2": Llama(batch=2, peak=4e-3),
    "Llama, batches of 16": Llama(batch=16, peak=0.016),
    "Llama, 20 kB of text": Llama(text_bytes=20_000),
    "Llama, 200 kB of text": Llama(text_bytes=200_000),
    "Llama, 16 times the tokens": Llama(times=16, peak=4e-3),
}


def definitions() -> dict[str, Any]:
    """Execute the cells of the chapter that define its models; return the names they define."""
    names: dict[str, Any] = {}
    for cell in nbformat.read(CHAPTER, as_version=4).cells:
        if cell.get("id") in DEFINING:
            exec(compile(python_of(cell.source), cell["id"], "exec"), names)
    return names


def _with(names: dict[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the chapter that reads these names."""
    return FunctionType(function.__code__, names, argdefs=function.__defaults__)


def loss(names: dict[str, Any], model: str, seed: int) -> float:
    """Return the held-out loss of one of `MODELS`, trained with a seed."""
    make, peak, times = MODELS[model]
    longer = corpus.stories(times * PAGE_BYTES, seed=0)  # the page's text is its beginning
    text = {"train_ids": torch.tensor(names["tokenizer"].encode(longer))}
    trained = _with(names | text, names["trained"])
    return names["loss_of"](trained(lambda: eval(make, names), peak, seed, times * names["STEPS"]))


def llama_loss(names: dict[str, Any], llama: Llama, seed: int) -> float:
    """Return the held-out loss of one of `LLAMAS`, in nats per token of chapter 04's tokenizer."""
    tokenizer, shape = names["tokenizer"], dict(llama.shape)
    steps = llama.times * names["STEPS"] * names["B"] // llama.batch
    longer = corpus.stories(llama.text_bytes or llama.times * PAGE_BYTES, seed=0)
    if llama.on_bytes:
        shape["vocab_size"], per_token = 257, len(longer.encode()) / len(names["train_ids"])
        steps = round(steps * (per_token if llama.on_bytes == "text" else 1))
        tokenizer = nutshell.Tokenizer([])
    window = names["T"] + 1
    held_out = torch.tensor(tokenizer.encode(corpus.stories(HELD_OUT_BYTES, seed=1)))
    windows = held_out[: len(held_out) // window * window].view(-1, window)
    train_ids = torch.tensor(tokenizer.encode(longer))
    names = names | {"windows": windows, "train_ids": train_ids, "B": llama.batch}
    functions = {each: _with(names, names[each]) for each in ("trained", "loss_of")}
    with ExitStack() as parts:
        for name, part in llama.parts.items():
            parts.enter_context(mock.patch.object(nutshell, name, part))
        model = functions["trained"](
            lambda: nutshell.Llama(nutshell.Config(**shape)), llama.peak, seed, steps
        )
        per_piece = functions["loss_of"](model)
    return per_piece * len(held_out) / len(names["held_out"])


def main(wanted: list[str]) -> int:
    """Measure the named models, or all, and write what is found after each."""
    names = definitions()
    found = {name: [names["loss_of"](names[model])] for name, model in COUNTED.items()}
    for name in wanted or [*MODELS, *LLAMAS]:
        found[name] = []
        for seed in SEEDS:
            one = (
                llama_loss(names, LLAMAS[name], seed) if name in LLAMAS else loss(names, name, seed)
            )
            found[name].append(one)
            print(f"{name}, seed {seed}: {found[name][-1]:.4f}", flush=True)
        known = recording.read(LOSSES).get("runs", {})
        known |= {each: [round(one, 4) for one in losses] for each, losses in found.items()}
        ordered = {each: known[each] for each in (*COUNTED, *MODELS, *LLAMAS) if each in known}
        recording.write(LOSSES, {"command": "python -m tools.runs.losses", "runs": ordered})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
