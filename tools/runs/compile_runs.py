"""Measure what compiling buys, for readers of chapter 37 who have no C++ compiler.

    python -m tools.runs.compile_runs

compiles the gate of the nutshell and whole training steps, and writes the times of both sides, with
what the roofline of the machine foretells, into llmcourse_classroom/compiled.json: some minutes.
"""

import platform
import sys
from pathlib import Path
from typing import Any

import torch

from llmcourse import loss
from llmcourse.base import runtime
from llmcourse.model import ModelConfig, Transformer
from llmcourse_labs.scale import cost, roofline
from tools.runs import recording

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "compiled.json"
SHAPES = {"4 x 128": (4, 128, 64, 12), "6 x 384": (6, 384, 256, 8)}
"""Layers, width, tokens of a row, rows."""
NUMBERS = (2**16, 2**18, 2**20, 2**22)
"""In each of the gate's two arrays."""
ROUNDS = 15


def shape(num_layers: int, width: int, length: int) -> ModelConfig:
    """A Llama with heads of 32 or 64 channels and a vocabulary of 512."""
    head_size = 64 if width > 256 else 32
    return ModelConfig(
        num_layers=num_layers,
        width=width,
        num_heads=width // head_size,
        num_kv_heads=width // head_size,
        head_size=head_size,
        hidden=8 * width // 3 // 8 * 8,
        vocab_size=512,
        context_length=length,
    )


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Three lines of torch: 8 numbers moved for each that comes out, where 3 would do."""
    return gate * gate.sigmoid() * up


def gates() -> list[dict[str, Any]]:
    """Time the gate, line by line and compiled, on arrays of several sizes."""
    found = []
    for numbers in NUMBERS:
        torch.compiler.reset()
        compiled = torch.compile(gated)
        gate, up = torch.full((numbers,), 0.3), torch.full((numbers,), 0.7)
        eager_s = roofline.median_seconds(lambda a=gate, b=up: gated(a, b), rounds=ROUNDS)
        compiled_s = roofline.median_seconds(
            lambda f=compiled, a=gate, b=up: f(a, b), rounds=ROUNDS
        )
        found.append({"numbers": numbers, "eager_s": eager_s, "compiled_s": compiled_s})
    return found


def steps(machine: roofline.Machine) -> list[dict[str, Any]]:
    """Time training steps, line by line and compiled, and foretell both."""
    found = []
    for name, (num_layers, width, length, batch_size) in SHAPES.items():
        torch.compiler.reset()
        config = shape(num_layers, width, length)
        operations = roofline.training_operations(
            config, batch_size=batch_size, held=cost.FP32_TRAINING
        )
        row = {"shape": name, "eager_s": 0.0, "compiled_s": 0.0}
        for side in ("eager_s", "compiled_s"):
            g = torch.Generator().manual_seed(0)
            model = Transformer(config, generator=g)
            ids = torch.randint(0, config.vocab_size, (batch_size, length), generator=g)
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
            run = torch.compile(model) if side == "compiled_s" else model

            def step(run=run, ids=ids, optimizer=optimizer) -> None:
                loss.cross_entropy(run(ids), ids).backward()
                optimizer.step()
                optimizer.zero_grad()

            row[side] = roofline.median_seconds(step, rounds=ROUNDS)
        for side, fused in (("predicted_eager_s", False), ("predicted_fused_s", True)):
            row[side] = roofline.predicted_seconds(machine, operations, fused=fused)
        found.append(row)
    return found


def processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> int:
    """Measure all, and write it."""
    runtime.set_up(num_threads=1)
    machine = roofline.measured_machine()
    found = {
        "command": "python -m tools.runs.compile_runs",
        "gates": gates(),
        "steps": steps(machine),
    }
    recording.write(FOUND, found, processor=processor())
    return 0


if __name__ == "__main__":
    sys.exit(main())
