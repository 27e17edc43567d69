"""The optimizer's step, ours against torch's; and a training step in fp32 and under bf16."""

from collections.abc import Callable
from contextlib import nullcontext

import torch

from bench.timing import medians, row
from llmcourse import loss, model, optim
from llmcourse.backward.recompute import recomputed
from llmcourse.model import ModelConfig, Transformer

WIDE = ModelConfig(
    num_layers=4,
    width=512,
    num_heads=8,
    num_kv_heads=4,
    head_size=64,
    hidden=1_376,
    vocab_size=4_096,
    context_length=96,
)
"""13.7 M parameters: their moments no longer fit into the processor's caches."""

ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}


def with_gradients(config: ModelConfig) -> Transformer:
    """Return a model that has a gradient for every weight."""
    g = torch.Generator().manual_seed(0)
    decoder = Transformer(config, generator=g)
    for p in decoder.parameters():
        p.grad = torch.randn(p.shape, generator=g) * 1e-3
    return decoder


def optimizer_rows(name: str, config: ModelConfig, repeats: int) -> list[dict]:
    """AdamW against torch's loop, foreach and fused."""
    makers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "loop": optim.AdamW,
        "torch loop": lambda p, **s: torch.optim.AdamW(p, foreach=False, **s),
        "torch foreach": lambda p, **s: torch.optim.AdamW(p, foreach=True, **s),
        "torch fused": lambda p, **s: torch.optim.AdamW(p, fused=True, **s),
    }
    sides = {
        side: make(optim.decay_groups(with_gradients(config), weight_decay=0.1), **ADAMW).step
        for side, make in makers.items()
    }
    seconds = medians(sides, repeats=repeats, warm_up=3)
    return [
        row(f"AdamW loop, {name}", 1 / seconds["loop"], 1 / seconds[peer], peer, "steps/s")
        for peer in ("torch loop", "torch foreach", "torch fused")
    ]


def step_rows(name: str, config: ModelConfig, repeats: int) -> list[dict]:
    """A whole training step: fp32, bf16 by autocast, and both with recomputed blocks."""
    g = torch.Generator().manual_seed(1)
    shape = (12, config.context_length)
    ids, targets = (torch.randint(0, config.vocab_size, shape, generator=g) for _ in range(2))

    def stepper(narrow: bool, again: bool) -> Callable[[], None]:
        decoder = Transformer(config, generator=torch.Generator().manual_seed(0))
        optimizer = optim.AdamW(decoder.parameters(), lr=1e-3)

        def step() -> None:
            with recomputed(decoder, "block") if again else nullcontext():
                with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                    value = loss.cross_entropy(decoder(ids), targets)
                value.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    cases = {
        "fp32": (False, False),
        "bf16": (True, False),
        "fp32, blocks recomputed": (False, True),
        "bf16, blocks recomputed": (True, True),
    }
    sides = {case: stepper(*choice) for case, choice in cases.items()}
    seconds = medians(sides, repeats=repeats)
    rates = {case: ids.numel() / s for case, s in seconds.items()}
    return [
        row(f"training step, {name}: {case}", rates[case], rates["fp32"], "fp32", "tokens/s")
        for case in list(cases)[1:]
    ]


def rows(*, quick: bool) -> list[dict]:
    """Return the lines of the table."""
    shapes = {"stories": model.stories()} | ({} if quick else {"13.7 M": WIDE})
    found = []
    for name, config in shapes.items():
        found += optimizer_rows(name, config, repeats=5 if quick else 25)
        found += step_rows(name, config, repeats=3 if quick else 7)
    return found
