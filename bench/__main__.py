"""Run every benchmark, print the table, and write it to bench/README.md."""

import argparse
import importlib
import platform
import re
from datetime import date
from pathlib import Path

import torch
from tqdm import tqdm

from llmcourse.base.files import write_atomically

BENCHMARKS = (
    "model",
    "attention",
    "backward",
    "tokenizer",
    "data",
    "prepare",
    "curation",
    "collectives",
    "data_parallel",
    "zero",
    "splitting",
    "optimizer",
    "checkpoints",
    "posttraining",
    "real",
    "serving",
    "live",
    "pages",
    "motion",
)
README = Path(__file__).parent / "README.md"
MARK = "<!-- from here on written by python -m bench -->"
OPENING = (
    (
        "Training 4 layers of width 128",
        "training, 4 x 128, context 64, batch 12",
        {"GPT, torch.nn + SDPA": "a GPT of torch.nn", "Hugging Face, sdpa": "Hugging Face"},
    ),
    (
        "Training 6 layers of width 384",
        "training, 6 x 384, context 256, batch 8",
        {"GPT, torch.nn + SDPA": "a GPT of torch.nn", "Hugging Face, sdpa": "Hugging Face"},
    ),
    (
        "Training BPE on 10 MB, to 8,192 tokens",
        "BPE training, 10 MB to 8,192",
        {"Hugging Face tokenizers": "`tokenizers`"},
    ),
    (
        "Encoding 10 MB with GPT-2's vocabulary, from a cold start",
        "encoding 10 MB, GPT-2's vocabulary, cold",
        {"Hugging Face tokenizers": "`tokenizers`", "tiktoken": "`tiktoken`"},
    ),
    (
        "Drawing batches of 24 x 64 tokens from shards",
        "batches from shards, 24 x 64",
        {"torch DataLoader, same windows": "torch's `DataLoader` with the same windows"},
    ),
    ("Writing a checkpoint", "checkpoint, write", {"torch.save": "`torch.save`"}),
    (
        "The ring's all-reduce of 4 MiB on 2 ranks",
        "all-reduce of 4,096 KiB, 2 ranks, ring",
        {"gloo": "gloo"},
    ),
    ("Data parallelism on 2 ranks", "BucketedDDP, 2 ranks", {"torch's DDP": "torch's DDP"}),
    ("ZeRO-3 on 2 ranks", "ZeRO step, 2 ranks, stage 3", {"FSDP2": "FSDP2"}),
    ("Tensor parallelism on 2 ranks", "split by tp, 2 ranks", {"torch's": "torch's"}),
)
"""What the page begins with: a subject, its rows in the table, and the peers in words."""


def processor() -> str:
    """Name the processor as well as the system lets us."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in fields.items()}
        return (
            f"{fields.get('model name', 'unknown')}, family {fields.get('cpu family', '?')} "
            f"model {fields.get('model', '?')}"
        )
    return platform.processor() or platform.machine()


def figure(value: float) -> str:
    """Write a rate with three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: list[dict]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| what | ours | peer | peer's | unit | ratio | aim |",
        "|---|---:|---|---:|---|---:|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['what']} | {figure(r['ours'])} | {r['peer_name']} | {figure(r['peer'])} "
            f"| {r['unit']} | {r['ratio']:.2f} | {r['aim']} |"
        )
    return "\n".join(lines)


def compared(row: dict, peer: str) -> str:
    """Say which side is faster, by how much, and whether the aim is reached."""
    ratio = round(row["ratio"], 2)  # what the table says
    which = "as fast as" if ratio == 1 else "faster than" if ratio > 1 else "slower than"
    facts = f"{ratio:.2f} times its {figure(row['peer'])}"
    if aim := re.search(r"[0-9.]+", row["aim"]):
        reached = "reached" if ratio >= float(aim[0]) else "missed"
        facts += f"; the aim of {aim[0]} is {reached}"
    return f"{which} {peer} ({facts})"


def opening(rows: list[dict]) -> str:
    """Return the rows that matter, a sentence each.

    Raises:
        ValueError: if one of them is not among the rows.
    """
    found = {(row["what"], row["peer_name"]): row for row in rows}
    lines = []
    for number, (subject, what, peers) in enumerate(OPENING, 1):
        for peer in peers:
            if (what, peer) not in found:
                raise ValueError(f"no row '{what}' against '{peer}': change OPENING or the row")
        row = found[what, next(iter(peers))]
        sides = " and ".join(compared(found[what, peer], name) for peer, name in peers.items())
        lines.append(f"{number}. {subject}: {figure(row['ours'])} {row['unit']}, {sides}.")
    return "\n".join(lines)


def page(rows: list[dict], machine: str) -> str:
    """Return what the README says after its first lines."""
    return f"Measured {machine}.\n\n{opening(rows)}\n\n## All rows\n\n{table(rows)}\n"


def main() -> None:
    """Measure, print, and write the table unless the run was quick."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats; prints only")
    parser.add_argument("--only", choices=BENCHMARKS, help="one benchmark; prints only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in tqdm([options.only] if options.only else BENCHMARKS, disable=None):
        rows += importlib.import_module(f"bench.{name}").rows(quick=options.quick)
    print(table(rows))
    if options.quick or options.only:
        return
    head, _, _ = README.read_text().partition(MARK)
    machine = f"{date.today()}, {processor()}, one thread, torch {torch.__version__}, "
    machine += f"Python {platform.python_version()}"
    with write_atomically(README) as file:
        file.write(f"{head}{MARK}\n\n{page(rows, machine)}".encode())


if __name__ == "__main__":
    main()
