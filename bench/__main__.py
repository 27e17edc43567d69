"""Run every benchmark, print the table, and write it to bench/README.md."""

import argparse
import importlib
import platform
from datetime import date
from pathlib import Path

import torch
from tqdm import tqdm

from llmcourse.runtime import write_atomically

BENCHMARKS = (
    "model",
    "attention",
    "backward",
    "tokenizer",
    "data",
    "collectives",
    "data_parallel",
    "zero",
    "splitting",
    "optimizer",
    "checkpoints",
)
README = Path(__file__).parent / "README.md"
MARK = "<!-- table: written by python -m bench -->"


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
        file.write(f"{head}{MARK}\n\nMeasured {machine}.\n\n{table(rows)}\n".encode())


if __name__ == "__main__":
    main()
