"""Attention in both directions, a step without autograd, and recomputation: time and memory."""

from collections.abc import Callable
from unittest import mock

import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from bench.timing import medians, row
from llmcourse import loss, optim
from llmcourse.backward import backprop
from llmcourse.backward.recompute import recomputed, saved_bytes
from llmcourse.base.pairs import differentiable
from llmcourse.model import Transformer, attention, stories

LENGTHS = (64, 256, 1024, 4096)
BATCH, HEADS, KV_HEADS, HEAD_SIZE = 1, 8, 2, 32

naive = differentiable(attention.attention_forward, attention.attention_backward)


def heads(length: int) -> list[torch.Tensor]:
    """Return queries, keys and values that want a gradient."""
    g = torch.Generator().manual_seed(0)
    return [
        torch.randn(BATCH, length, n, HEAD_SIZE, generator=g).requires_grad_()
        for n in (HEADS, KV_HEADS, KV_HEADS)
    ]


def kept_bytes(form, inputs: list[torch.Tensor]) -> int:
    """Return the bytes that a forward pass keeps for backward, inputs and output left out."""
    kept = {}

    def note(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with saved_tensors_hooks(note, lambda x: x):
        out = form(*inputs)
    for x in (*inputs, out):
        kept.pop(x.untyped_storage().data_ptr(), None)
    return sum(kept.values())


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most memory that tensors took at one moment of a run, above what was there."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    # The profiler's table sums per operation; only its raw events have an order in time.
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def attention_rows(quick: bool) -> list[dict]:
    """Forward and backward of three forms, and what each keeps."""
    forms = {
        "torch SDPA": attention.attention_sdpa,
        "naive": naive,
        "tiled": lambda q, k, v: attention.FlashAttention.apply(q, k, v, None, 128),
    }
    found = []
    for length in LENGTHS[:2] if quick else LENGTHS:
        inputs = heads(length)
        sides = {
            name: lambda form=form, inputs=inputs: form(*inputs).sum().backward()
            for name, form in forms.items()
        }
        seconds = medians(sides, repeats=3 if quick else 7)
        kept = {name: kept_bytes(form, inputs) for name, form in forms.items()}
        peak = {name: peak_bytes(side) for name, side in sides.items()}
        rates = {name: length / s for name, s in seconds.items()}
        for name in ("naive", "tiled"):
            for what, figures, unit in (
                ("tokens/s", rates, "tokens/s"),
                ("peak", peak, "bytes"),
                ("kept", kept, "bytes"),
            ):
                text = f"attention and its backward, T = {length}, {name}: {what}"
                found.append(row(text, figures[name], figures["torch SDPA"], "torch SDPA", unit))
    return found


TORCHS_OWN = {
    "linear": F.linear,
    "rmsnorm": lambda x, gain, eps: F.rms_norm(x, gain.shape, gain, eps),
    "silu_gate": lambda gate, up: F.silu(gate) * up,
}
"""What torch has in place of the layers that the decoder takes from `ops`."""


def step_rows(quick: bool) -> list[dict]:
    """A training step of the `stories` shape: by hand, by autograd, and with recomputation."""
    config = stories()
    g = torch.Generator().manual_seed(1)
    ids, targets = (torch.randint(0, config.vocab_size, (12, 96), generator=g) for _ in range(2))

    def made():
        model = Transformer(config, generator=torch.Generator().manual_seed(0))
        return model, optim.AdamW(optim.decay_groups(model, weight_decay=0.1), lr=1e-3)

    def by_autograd(model, optimizer) -> None:
        loss.cross_entropy(model(ids), targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def recomputing(model, optimizer, policy) -> None:
        with recomputed(model, policy):
            by_autograd(model, optimizer)

    def by_torch(model, optimizer) -> None:
        with mock.patch.multiple("llmcourse.model.decoder", **TORCHS_OWN):
            logits = model(ids)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    by_hand, plain, torchs, blocks, reading = (made() for _ in range(5))
    sides = {
        "by hand": lambda: backprop.step(*by_hand, ids, targets),
        "autograd": lambda: by_autograd(*plain),
        "torch's layers": lambda: by_torch(*torchs),
        "blocks again": lambda: recomputing(*blocks, "block"),
        "attention again": lambda: recomputing(*reading, "attention"),
    }
    seconds = medians(sides, repeats=3 if quick else 9)
    rates = {name: ids.numel() / s for name, s in seconds.items()}
    model, _ = made()
    kept = {"autograd": sum(saved_bytes(model, (ids, targets)).values())}
    for policy in ("block", "attention"):
        with recomputed(model, policy):
            kept[policy] = sum(saved_bytes(model, (ids, targets)).values())
    return [
        row(
            "step without autograd",
            rates["by hand"],
            rates["autograd"],
            "autograd",
            "tokens/s",
            aim="at least 0.77",
        ),
        row(
            "step without autograd",
            rates["by hand"],
            rates["torch's layers"],
            "torch's own layers",
            "tokens/s",
        ),
        row("blocks again", rates["blocks again"], rates["autograd"], "autograd", "tokens/s"),
        row("attention again", rates["attention again"], rates["autograd"], "autograd", "tokens/s"),
        row("bytes kept, blocks again", kept["block"], kept["autograd"], "autograd", "bytes"),
        row(
            "bytes kept, attention again", kept["attention"], kept["autograd"], "autograd", "bytes"
        ),
    ]


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark."""
    return attention_rows(quick) + step_rows(quick)
