"""Training steps per second against Hugging Face's Llama and a GPT, and the share of GEMM peak."""

import shutil

import torch
import torch.nn.functional as F
from torch import nn

from bench.peers import GPT, hugging_face
from bench.timing import medians, row
from llmcourse import loss, optim
from llmcourse.base.pairs import matmul_nt
from llmcourse.model import ModelConfig, Transformer
from llmcourse_labs.scale import cost

SHAPES = {
    "4 x 128, context 64, batch 12": (4, 128, 4, 64, 12),
    "6 x 384, context 256, batch 8": (6, 384, 6, 256, 8),
}
VOCAB_SIZE = 512


def shape(num_layers: int, width: int, num_heads: int, context_length: int) -> ModelConfig:
    """A Llama whose SwiGLU costs what a GPT's 4 x wide network costs: 8/3 of the width."""
    return ModelConfig(
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_size=width // num_heads,
        hidden=int(8 / 3 * width) // 8 * 8,
        vocab_size=VOCAB_SIZE,
        context_length=context_length,
    )


def training_step(model: nn.Module, ids, targets, cross_entropy, *, hidden_in: str = ""):
    """Return one whole training step as a function: forward, loss, backward, fused AdamW.

    All sides use the same optimizer, torch's fused AdamW, so that the models are compared.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        out = model(ids)
        logits = getattr(out, hidden_in) if hidden_in else out
        cross_entropy(logits, targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def torch_cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_rows(quick: bool) -> list[dict]:
    found = []
    for name, (layers, width, heads, context, batch) in SHAPES.items():
        config = shape(layers, width, heads, context)
        g = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, VOCAB_SIZE, (batch, context + 1), generator=g)
        ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        torch.manual_seed(0)
        ours = Transformer(config, generator=g)
        if shutil.which("g++"):
            found += compiled_rows(name, config, ids, targets, quick=quick)
        peers = {
            "GPT, torch.nn + SDPA": (GPT(config), ""),
            "Hugging Face, sdpa": (hugging_face(config, attention="sdpa"), "logits"),
            "Hugging Face, eager": (hugging_face(config, attention="eager"), "logits"),
        }
        sides = {"ours": training_step(ours, ids, targets, loss.cross_entropy)}
        for peer, (module, field) in peers.items():
            sides[peer] = training_step(module, ids, targets, torch_cross_entropy, hidden_in=field)
        repeats = (4 if quick else 12) if width > 200 else (15 if quick else 60)
        seconds = medians(sides, repeats=repeats, warm_up=2)
        rate = {side: ids.numel() / s for side, s in seconds.items()}
        aims = {"GPT, torch.nn + SDPA": ">= 1.0", "Hugging Face, sdpa": ">= 1.1"}
        found += [
            row(f"training, {name}", rate["ours"], rate[p], p, "tokens/s", aim=aims.get(p, ""))
            for p in peers
        ]
        found.append(peak_row(name, config, rate["ours"]))
    return found


def compiled_rows(name: str, config: ModelConfig, ids, targets, *, quick: bool) -> list[dict]:
    """Compare our model compiled with the GPT compiled, and with our own as it is."""
    torch.compiler.reset()  # nothing that was compiled for another shape
    ours, plain = (
        Transformer(config, generator=torch.Generator().manual_seed(0)) for _ in range(2)
    )
    sides = {
        "ours": training_step(torch.compile(ours), ids, targets, loss.cross_entropy),
        "GPT compiled": training_step(
            torch.compile(GPT(config)), ids, targets, torch_cross_entropy
        ),
        "ours, not compiled": training_step(plain, ids, targets, loss.cross_entropy),
    }
    repeats = (4 if quick else 12) if config.width > 200 else (15 if quick else 60)
    seconds = medians(sides, repeats=repeats, warm_up=3)
    rate = {side: ids.numel() / s for side, s in seconds.items()}
    aims = {"GPT compiled": ">= 1.05"}
    return [
        row(f"training compiled, {name}", rate["ours"], rate[p], p, "tokens/s", aim=aims.get(p, ""))
        for p in sides
        if p != "ours"
    ]


def peak_row(name: str, config: ModelConfig, tokens_per_s: float) -> dict:
    """Compare the FLOP/s of training with the best matrix product of this machine."""
    a = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    seconds = min(
        medians({"mkl": lambda: a @ a.T, "onednn": lambda: matmul_nt(a, a)}, repeats=9).values()
    )
    reached = cost.training_flop_per_token(config) * tokens_per_s
    return row(
        f"share of GEMM peak, {name}",
        reached / 1e9,
        2 * 1024**3 / seconds / 1e9,
        "1024^3 product, fp32",
        "GFLOP/s",
    )


def optimizer_rows(quick: bool) -> list[dict]:
    """Steps per second of our AdamW against torch's three, on a model's parameters."""
    config = shape(6, 384, 6, 256)
    makers = {
        "ours": lambda p: optim.AdamW(p, lr=1e-3),
        "torch, for-loop": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False, fused=False),
        "torch, foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
        "torch, fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    }
    sides = {}
    for name, make in makers.items():
        g = torch.Generator().manual_seed(0)
        parameters = list(Transformer(config, generator=g).parameters())
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=g)
        sides[name] = make(parameters).step
    seconds = medians(sides, repeats=5 if quick else 25, warm_up=2)
    return [
        row("AdamW, 10.8 M parameters", 1 / seconds["ours"], 1 / s, name, "steps/s")
        for name, s in seconds.items()
        if name != "ours"
    ]


def rows(quick: bool = False) -> list[dict]:
    """Return every row of this benchmark."""
    return training_rows(quick) + optimizer_rows(quick)
