"""Checkpoints: bytes per second beside peers and the disk, seconds a run loses, two engines.

The state is that of a model of 11.0 million parameters with moments, 132 MB.  Every write ends
with fsync, on all sides.  Reads come from memory, since the files have just been written;
safetensors maps its file, so that its figure is that of opening it.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist
from torch.distributed import checkpoint as torch_checkpoint

from bench.timing import medians, row
from llmcourse import checkpoint, train
from llmcourse.checkpoint.flat import take_apart
from llmcourse.model import Transformer, stories
from llmcourse.optim import AdamW
from llmcourse.parallel import world
from llmcourse_labs.torch_engine.layout import TorchLayout, TorchSharded

SHAPE = {"width": 384, "hidden": 1_024, "num_layers": 6, "vocab_size": 4_096, "head_size": 32,
         "num_heads": 12, "num_kv_heads": 4}  # fmt: skip


AIMS = {"write": ">= 0.95", "read": ">= 0.6"}
"""Of what torch does without a hash, on two cores."""


def state() -> tuple[torch.nn.Module, AdamW]:
    """Return a model, and an optimizer that has its moments."""
    model = Transformer(replace(stories(), **SHAPE), generator=torch.Generator().manual_seed(0))
    optimizer = AdamW(model.parameters(), lr=1e-3)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    return model, optimizer


def synced(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file, and wait until the disk has it."""
    write(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def writers(folder: Path) -> tuple[dict, dict, int]:
    """Return what writes, what reads, and the bytes."""
    model, optimizer = state()
    named, _ = take_apart(model.state_dict(), optimizer.state_dict())
    named = {name: tensor.contiguous() for name, tensor in named.items()}
    num_bytes = sum(tensor.nbytes for tensor in named.values())
    noise = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8).numpy()
    blank = {name: torch.empty_like(tensor) for name, tensor in named.items()}

    def raw(path: Path) -> None:
        with path.open("wb") as file:
            file.write(noise)

    path = folder / "a.ckpt"
    writes = {
        "ours": lambda: checkpoint.save(
            folder / "a.ckpt", step=0, model=model, optimizer=optimizer
        ),
        "disk": lambda: synced(folder / "raw", raw),
        "torch.save": lambda: synced(folder / "b.pt", lambda path: torch.save(named, path)),
        "safetensors": lambda: synced(
            folder / "c.safetensors", lambda path: safetensors.torch.save_file(named, path)
        ),
        "DCP": lambda: torch_checkpoint.save(
            named, storage_writer=torch_checkpoint.FileSystemWriter(folder / "dcp", overwrite=True)
        ),
    }
    reads = {
        "ours": lambda: checkpoint.load(path),
        "disk": (folder / "raw").read_bytes,
        "torch.save": lambda: torch.load(folder / "b.pt", weights_only=True),
        "safetensors": lambda: safetensors.torch.load_file(folder / "c.safetensors"),
        "DCP": lambda: torch_checkpoint.load(blank, checkpoint_id=folder / "dcp"),
    }
    return writes, reads, num_bytes


def bytes_per_second(*, quick: bool) -> list[dict]:
    """Write and read one state by every side."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    found = []
    with tempfile.TemporaryDirectory() as name:
        writes, reads, num_bytes = writers(Path(name))
        for what, sides in (("write", writes), ("read", reads)):
            seconds = medians(sides, repeats=3 if quick else 9)
            rates = {side: num_bytes / s / 1e6 for side, s in seconds.items()}
            for peer in [name for name in rates if name != "ours"]:
                aim = AIMS[what] if peer == "torch.save" else ""
                label = f"checkpoint, {what}"
                found.append(row(label, rates["ours"], rates[peer], peer, "MB/s", aim=aim))
    dist.destroy_process_group()
    return found


def lost_seconds(*, quick: bool) -> list[dict]:
    """Let training wait for a save, then for its copy alone."""
    model, optimizer = state()
    parts = {"step": 0, "model": model, "optimizer": optimizer}
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as name, checkpoint.BackgroundSaver() as saver:

        def in_background() -> None:
            saver.wait()
            started = time.perf_counter()
            saver.save(Path(name) / "behind", **parts)
            waits.append(time.perf_counter() - started)

        sides = {
            "at once": lambda: checkpoint.save(Path(name) / "now", **parts),
            "in background": in_background,
        }
        seconds = medians(sides, repeats=3 if quick else 9)
    background, at_once = statistics.median(waits[1:]), seconds["at once"]
    what = f"saves per second of waiting, background ({background:.3f} s each)"
    return [row(what, 1 / background, 1 / at_once, f"at once ({at_once:.3f} s)", "1/s")]


def engine_seconds(
    rank: world.Rank, config: train.TrainConfig, folder: Path, repeats: int
) -> dict[str, list[float]]:
    """Time one rank's steps on either engine, in turn."""
    prepared = train.prepare(config, folder)
    layouts = [("own", "ddp"), ("torch", "ddp"), ("own", "zero3"), ("torch", "fsdp")]
    runs = {}
    for engine, kind in layouts if config.layout.ranks > 1 else layouts[:2]:
        made = config.replace(engine=engine, parallel=kind)
        if engine == "torch":
            layout = TorchSharded if kind == "fsdp" else TorchLayout
        else:
            layout = train.layout_on(rank, made) if config.layout.ranks > 1 else train.Layout
        runs[engine, kind] = train.new_run(made, folder, prepared, layout=layout)
    seconds: dict[str, list[float]] = {" ".join(name): [] for name in runs}
    for turn in range(repeats + 2):
        for name, run in runs.items():
            rank.axis("dp").barrier()
            started = time.perf_counter()
            train.step(run)
            if turn > 1:
                seconds[" ".join(name)].append(time.perf_counter() - started)
    return seconds


def engines(*, quick: bool) -> list[dict]:
    """Compare a step of the `stories` preset on both engines at 1, 2 and 4 ranks."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        config = train.PRESETS["stories"]().replace(checkpoint_every=0, corpus_bytes=300_000)
        train.prepare(config, Path(name))
        for ranks in (1, 2, 4):
            made = config.replace(ranks=ranks)
            by_rank = world.run(engine_seconds, ranks, made, Path(name), 8 if quick else 40)
            medians_of = {
                side: statistics.median(map(max, zip(*(s[side] for s in by_rank), strict=True)))
                for side in by_rank[0]
            }
            tokens = config.batch_size * config.model.context_length
            rates = {side: tokens / s for side, s in medians_of.items()}
            for ours, peer in (("own ddp", "torch ddp"), ("own zero3", "torch fsdp")):
                if ours in rates:
                    what = f"training step, {ours.split()[1]}, {ranks} rank{'s' * (ranks > 1)}"
                    label = f"torch's engine, {peer.split()[1]}"
                    found.append(row(what, rates[ours], rates[peer], label, "tokens/s"))
    return found


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark."""
    return [*bytes_per_second(quick=quick), *lost_seconds(quick=quick), *engines(quick=quick)]
