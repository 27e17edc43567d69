"""Write the card of hardware and units, book/hardware.md, from the package's table.

python -m tools.hardware_card [--check]
"""

import argparse
import re
import sys
from pathlib import Path

from llmcourse.scale.cost import HARDWARE, Hardware

PAGE = Path(__file__).resolve().parents[1] / "book" / "hardware.md"
CARD = """# Hardware and units

Appendix D: the numbers that chapters calculate with, from the package's own table, \
[`scale.cost.HARDWARE`](api/scale.md). Peaks are those of dense products in bf16 (of fp16 for the \
V100), links and networks count one direction. [Chapter 37](../chapters/37_hardware.ipynb) says \
what follows from them.

## Accelerators

| name | peak, TFLOP/s | memory, GB | its speed, TB/s | ridge point, FLOPs per byte | link, GB/s | \
GPUs that it joins | network, GB/s | power, W |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}

A *link* joins GPUs of a server or rack (NVLink), or TPUs of a pod, where each has links to its \
neighbours in a torus alone. The *network* is what one accelerator has of the cards that leave its \
server. A data sheet often prints twice as much: a peak with sparsity, or a link in both \
directions.

### Sources

{sources}

## Units

| unit | meaning |
|---|---|
| FLOP | one addition or one multiplication; a multiply-add is two |
| TFLOP/s, PFLOP/s | 10¹² and 10¹⁵ FLOPs in a second |
| PF-day | 10¹⁵ FLOPs per second for a day, 8.64 · 10¹⁹ FLOPs |
| GB, TB | 10⁹ and 10¹² bytes, as data sheets count |
| GiB | 2³⁰ bytes, 1.074 GB, as operating systems count |
| Gb/s | 10⁹ bits in a second: 400 Gb/s are 50 GB/s |
| GPU-hour | one GPU at work for an hour |
| kWh | 1,000 W for an hour, 3.6 · 10⁶ joules |

## Rules of thumb

| quantity | rule | chapter |
|---|---|---|
| FLOPs of training | 6 for each parameter and token | [35](../chapters/35_cost.ipynb) |
| FLOPs of writing | 2 for each parameter and token | [35](../chapters/35_cost.ipynb) |
| memory of training | 16 bytes for each parameter, and activations | \
[24](../chapters/24_zero.ipynb) |
| memory of a bf16 model | 2 bytes for each parameter, and the cache | \
[11](../chapters/11_attention.ipynb) |
| AdamW | moves 28 bytes for each parameter and step | [37](../chapters/37_hardware.ipynb) |
| ring all-reduce | each of n ranks sends 2 (n − 1) / n times the bytes | \
[22](../chapters/22_collectives.ipynb) |
"""


def row(part: Hardware) -> str:
    """Return the line of one accelerator."""
    numbers = (
        f"{part.dense_bf16_flop_per_s / 1e12:,.4g}".replace("e+03", "000"),
        f"{part.memory_bytes / 1e9:.0f}",
        f"{part.memory_bytes_per_s / 1e12:.3g}",
        f"{part.dense_bf16_flop_per_s / part.memory_bytes_per_s:.0f}",
        f"{part.link_bytes_per_s / 1e9:.0f}",
        f"{part.domain:,}",
        f"{part.network_bytes_per_s / 1e9:g}",
        f"{part.watts:,}" if part.watts else "not published",
    )
    return f"| {part.name} | " + " | ".join(numbers) + " |"


def card() -> str:
    """Return the page."""
    sources = []
    for part in HARDWARE.values():
        linked = re.sub(r"https://[^\s,;)]+", lambda m: f"<{m[0]}>", part.source)
        sources.append(f"- {part.name}: {linked}.")
    rows = "\n".join(map(row, HARDWARE.values()))
    return CARD.format(rows=rows, sources="\n".join(sources))


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or say whether it is stale; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    options = parser.parse_args(arguments)
    if not options.check:
        PAGE.write_text(card(), encoding="utf8")
        return 0
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf8") == card()
    print("book/hardware.md is " + ("fresh" if fresh else "stale: run make format"))
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
