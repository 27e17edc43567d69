"""Write the card of hardware and units, book/hardware.md, from the package's table and functions.

python -m tools.pages.hardware_card [--check]
"""

import argparse
import math
import re
import sys
from pathlib import Path

from llmcourse import loss, model
from llmcourse_labs.scale import cost
from llmcourse_labs.scale.cost import HARDWARE, Hardware

PAGE = Path(__file__).resolve().parents[2] / "book" / "hardware.md"
CARD = """# Hardware and units

Appendix D: the numbers that chapters calculate with, from the package's own table, \
[`scale.cost.HARDWARE`](api/labs/scale.md). Peaks are those of dense products in bf16 (of fp16 for \
the V100), links and networks count one direction. [Chapter 37](../chapters/37_hardware.ipynb) \
says what follows from them.

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

The last column works one line with each unit. The package computes it when the page is written.

| unit | meaning | worked |
|---|---|---|
| FLOP | one addition or one multiplication; a multiply-add is two | to train Llama 3 8B on one \
token of an 8,192-token context takes {gflop_per_token:.1f} · 10⁹ |
| FLOP/s, TFLOP/s, PFLOP/s | FLOPs in a second; 10¹² and 10¹⁵ of them | an H100 at its peak of \
989.4 TFLOP/s could train that model on {tokens_per_s:,.0f} tokens in a second |
| MFU | the share of the peak that the model's own FLOPs reach | Llama 3.1 405B, with 30.84 \
million H100-hours for {large_yflop:.1f} · 10²⁴ FLOPs: {mfu_percent:.0f} % |
| PF-day | 10¹⁵ FLOP/s for a day, 8.64 · 10¹⁹ FLOPs | GPT-3's {gpt3_zflop:.0f} · 10²¹ FLOPs are \
{pf_days:,.0f} PF-days |
| GB, TB | 10⁹ and 10¹² bytes, as data sheets count | the {parameters:,} parameters of Llama 3 8B, \
2 bytes each, are {weights_gb:.2f} GB |
| GiB | 2³⁰ bytes, {gib:.3f} GB, as many programs count | the same parameters are \
{weights_gib:.2f} GiB; 80 · 10⁹ bytes are {memory_gib:.1f} GiB (a GPU sold as 80 GB may have \
nearly 80 GiB) |
| Gb/s | 10⁹ bits in a second; 8 bits are a byte | 400 Gb/s are 50 GB/s, so these parameters go \
through one such card in {weights_s:.2f} s |
| token | a piece of text; how many bytes it has depends on tokenizer and text | 15.6 · 10¹² \
tokens of 4 bytes each would be {text_tb:.1f} TB of text |
| nat per token | the loss with the natural logarithm; its exponential is the perplexity | 2 nats \
are a perplexity of {perplexity:.2f} |
| bit per byte | nats divided by ln 2 (1 nat is {bits:.4f} bits) and by the bytes of the text, so \
that tokenizers can be compared | 2 nats per token of 4 bytes are {bits_per_byte:.3f} bits per \
byte |
| GPU-hour | one GPU at work for an hour | the 405B's FLOPs at an MFU of 40 % would take \
{million_hours:.1f} million on H100s; on 16,384 of them that is {days:.0f} days |
| kWh | 1,000 W for an hour, 3.6 · 10⁶ joules | an H100 of 700 W at work for an hour takes \
{kwh:.1f} kWh, its server and the cooling left out |

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


def worked() -> dict[str, int | float]:
    """Return the numbers of the units' last column."""
    llama, h100 = model.llama3_8b(), HARDWARE["H100"]
    gpt3, large = cost.PUBLISHED["GPT-3"], cost.PUBLISHED["Llama 3.1 405B"]
    parameters, flop_per_token = cost.num_parameters(llama), cost.training_flop_per_token(llama)
    hours = cost.gpu_hours(flop=large.flop, hardware=h100, mfu=0.4)
    return {
        "gflop_per_token": flop_per_token / 1e9,
        "tokens_per_s": h100.dense_bf16_flop_per_s / flop_per_token,
        "large_yflop": large.flop / 1e24,
        "mfu_percent": 100 * large.mfu,
        "gpt3_zflop": gpt3.flop / 1e21,
        "pf_days": gpt3.flop / (1e15 * 86_400),
        "parameters": parameters,
        "weights_gb": 2 * parameters / 1e9,
        "gib": 2**30 / 1e9,
        "weights_gib": 2 * parameters / 2**30,
        "memory_gib": h100.memory_bytes / 2**30,
        "weights_s": 2 * parameters / h100.network_bytes_per_s,
        "text_tb": 4 * large.num_tokens / 1e12,
        "perplexity": loss.perplexity(2),
        "bits": 1 / math.log(2),
        "bits_per_byte": loss.bits_per_byte(2, num_tokens=1, num_bytes=4),
        "million_hours": hours / 1e6,
        "days": cost.days(gpu_hours=hours, num_gpus=large.num_gpus),
        "kwh": cost.energy_kwh(gpu_hours=1, watts_per_gpu=h100.watts),
    }


def card() -> str:
    """Return the page."""
    sources = []
    for part in HARDWARE.values():
        linked = re.sub(r"https://[^\s,;)]+", lambda m: f"<{m[0]}>", part.source)
        sources.append(f"- {part.name}: {linked}.")
    rows = "\n".join(map(row, HARDWARE.values()))
    return CARD.format(rows=rows, sources="\n".join(sources), **worked())


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
