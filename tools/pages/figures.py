"""Recompute published figures from the package: one function for each id of the JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llmcourse import loss, model
from llmcourse_labs.scale import arithmetic, cluster, cost, laws, simulator
from llmcourse_labs.scale.cost.activations import extra_share, gpt_layer_costs

FILE = Path(__file__).resolve().parents[2] / "book" / "data" / "reference_figures.json"

SEVENTY, BIG = model.llama3_70b(), model.llama3_405b()
PARTS = cost.parameters_by_part(SEVENTY)
GPT2 = {"num_layers": 12, "width": 768, "vocab_size": 50_257, "context_length": 1_024}
A100, H100 = cost.HARDWARE["A100"], cost.HARDWARE["H100"]
PF_DAY = 1e15 * 86_400


def figures() -> list[dict[str, Any]]:
    """Return what the JSON holds: figures that are recomputed, and behind them quoted ones."""
    return json.loads(FILE.read_text(encoding="utf8"))


def rule_of_six(num_parameters: float, num_tokens: float) -> float:
    """Return 6 N D."""
    return cost.model_flop_per_token(num_parameters) * num_tokens


def equal_guesses(vocab_size: int) -> float:
    return loss.cross_entropy(torch.zeros(1, vocab_size), torch.tensor([0])).item()


def worked_step() -> float:
    probabilities = torch.tensor([[0.15, 0.10, 0.05, 0.20, 0.50]])
    return loss.cross_entropy(probabilities.log(), torch.tensor([3])).item()


# --- utilisation

PALM = {"num_layers": 118, "attention_width": 48 * 256, "context_length": 2_048, "causal": False}
PALM_FLOP = cost.model_flop_per_token(540.35e9, **PALM)
V100_AT_28 = {"hardware": cost.HARDWARE["V100"], "mfu": 28 / 125}
KORTHIKANTI = {  # by the size that is printed
    row.name.split()[1].rstrip(","): row
    for row in simulator.KORTHIKANTI
    if row.settings["recompute"] == "nothing"
}


def mfu(
    flop_per_token: float, tokens_per_s: float = 238.3e3, num_gpus: int = 6_144, name: str = "TPUv4"
) -> float:
    return cost.utilisation_from_rate(
        tokens_per_s=tokens_per_s,
        flop_per_token=flop_per_token,
        num_gpus=num_gpus,
        hardware=cost.HARDWARE[name],
    )


def korthikanti_mfu(row: simulator.PublishedStep, *, again: float = 0) -> float:
    """Of a GPT with 12 L h^2 parameters and a head; its core of attention runs `again` times.

    Equation 8 of the paper counts the core three times more, which gives its HFU.
    """
    shape, layers, width = row.config, row.config.num_layers, row.config.width
    per_token = cost.model_flop_per_token(
        12 * layers * width**2 + shape.vocab_size * width,
        num_layers=layers,
        attention_width=width,
        context_length=shape.context_length,
        causal=False,
    )
    core = layers * gpt_costs(row)["again"]["attention"] / shape.context_length
    tokens_per_s = row.batch_size * shape.context_length / row.seconds
    return mfu(per_token + again * core, tokens_per_s, row.num_gpus, "A100")


def gpt_costs(row: simulator.PublishedStep) -> dict[str, dict[str, float]]:
    """Return what a layer keeps, and what it computes again."""
    return gpt_layer_costs(
        width=row.config.width,
        num_heads=row.config.num_heads,
        context_length=row.config.context_length,
    )


def attention_parts(row: simulator.PublishedStep) -> float:
    """Return 5 a s / h: what the core of attention keeps, where the rest of the layer keeps 34."""
    kept = gpt_costs(row)["kept"]
    return 34 * (kept["nothing"] - kept["attention"]) / kept["attention"]


def selective_saves(row: simulator.PublishedStep) -> float:
    kept = gpt_costs(row)["kept"]
    return 1 - kept["attention"] / kept["nothing"]


def selective_costs(row: simulator.PublishedStep) -> float:
    return extra_share(gpt_costs(row)["again"], ["attention"])


def outputs_given_back(row: simulator.PublishedStep) -> float:
    """Return the GiB of the outputs in bf16 that the first of p stages has sent when all work."""
    stages, shape = row.axes["pp"], row.config
    sent = cost.pipeline_bytes(
        stages,
        index=0,
        message_bytes=2 * shape.context_length * shape.width,
        num_micro_batches=stages,
    )
    return sent["forward"] / 2**30


# --- Megatron-LM

MEGATRON = {  # by the size that is printed
    row.name.split()[1]: (row, float(row.printed.split()[0])) for row in simulator.MEGATRON
}


def gpt_parameters(config: model.ModelConfig) -> int:
    """Of a GPT-2 of this width and depth; equation 2 leaves out the 2 h of the last norm."""
    shape = {"num_layers": config.num_layers, "width": config.width}
    shape |= {"vocab_size": config.vocab_size, "context_length": config.context_length}
    return sum(cost.gpt2_parameters_by_part(**shape).values())


def megatron_days(num_tokens: float, num_parameters: float, num_gpus: int, rate: float) -> float:
    """Equation 4, for a rate in TFLOP/s: every block runs twice forward, so 8 in place of 6."""
    seconds = cost.training_seconds(
        num_parameters=num_parameters,
        num_tokens=num_tokens,
        num_gpus=num_gpus,
        hardware=A100,
        utilisation=share_of_peak(rate, A100),
    )
    return 8 / 6 * seconds / 86_400


def share_of_peak(tflop_per_s: float, hardware: cost.Hardware) -> float:
    return tflop_per_s * 1e12 / hardware.dense_bf16_flop_per_s


# --- others


def days_of_the_405b() -> float:
    seconds = cost.training_seconds(
        num_parameters=cost.num_parameters(BIG),
        num_tokens=15.6e12,
        num_gpus=16_384,
        hardware=H100,
        utilisation=share_of_peak(400, H100),
    )
    return seconds / 86_400


def share_of_interruptions(wanted: Callable[[cluster.Cause], bool]) -> float:
    counts = [cause.count for cause in cluster.LLAMA3_INTERRUPTIONS if wanted(cause)]
    return sum(counts) / sum(cause.count for cause in cluster.LLAMA3_INTERRUPTIONS)


CHINCHILLA = {  # parameters and tokens
    "CHIN-T3-4e+08": (400e6, 8.0e9),
    "CHIN-T3-1e+09": (1e9, 20.2e9),
    "CHIN-T3-1e+10": (10e9, 205.1e9),
    "CHIN-T3-7e+10": (67e9, 1.5e12),
    "CHIN-T3-2e+11": (175e9, 3.7e12),
    "CHIN-T3-3e+11": (280e9, 5.9e12),
    "CHIN-T3-5e+11": (520e9, 11.0e12),
    "CHIN-T3-1e+12": (1e12, 21.2e12),
    "CHIN-T3-1e+13": (10e12, 216.2e12),
}

RECOMPUTED: dict[str, Callable[[], float]] = {
    "P-llama3-8b": lambda: cost.num_parameters(model.llama3_8b()),
    "P-llama3-70b": lambda: cost.num_parameters(SEVENTY),
    "P-llama3-405b": lambda: cost.num_parameters(BIG),
    "P-ffn-70b": lambda: PARTS["feed_forward"],
    "P-70b-one-emb": lambda: sum(PARTS.values()) - PARTS["head"],
    "P-ffn-share": lambda: PARTS["feed_forward"] / (sum(PARTS.values()) - PARTS["head"]),
    "P-gpt2": lambda: sum(cost.gpt2_parameters_by_part(**GPT2).values()),
    "P-gpt2-nobias": lambda: sum(cost.gpt2_parameters_by_part(**GPT2, bias=False).values()),
    "P-mixtral-total": lambda: cost.num_parameters(model.mixtral_8x7b()),
    "P-mixtral-active": lambda: cost.num_active_parameters(model.mixtral_8x7b()),
    "P-dsv3-total": lambda: cost.total_of(cost.deepseek_parameters()).total,
    "P-dsv3-active": lambda: cost.total_of(cost.deepseek_parameters()).active,
    "KV-70b": lambda: cost.kv_cache_bytes_per_token(SEVENTY),
    "KV-70b-mha": lambda: cost.kv_cache_bytes_per_token(SEVENTY) * 8,
    "STATE-70b": lambda: arithmetic.memory_bytes(cost.num_parameters(SEVENTY), 1, 0) / 1e9,
    "STEP-loss": worked_step,
    **{f"LNV-{size}": lambda size=size: equal_guesses(size) for size in (65, 256, 50257, 128256)},
    **{key: lambda size=size: rule_of_six(*size) for key, size in CHINCHILLA.items()},
    "L3-scaling-rounded": lambda: laws.LLAMA3_PRINTED.value(laws.LLAMA3_BUDGET_FLOP),
    "L3-scaling-fig3": lambda: laws.LLAMA3_FIGURE.value(laws.LLAMA3_BUDGET_FLOP),
    "L3-402Bx16.55T": lambda: rule_of_six(402e9, 16.55e12),
    "L3-flops": lambda: rule_of_six(cost.num_parameters(BIG), 15.6e12),
    "L3-days-400": days_of_the_405b,
    "GPT3-6ND": lambda: rule_of_six(174.6e9, 300e9),
    "GPT3-PFdays": lambda: 3_640 * PF_DAY,
    "GPT3-gpu-years": lambda: cost.gpu_hours(flop=3.14e23, **V100_AT_28) / (24 * 365.25),
    **{f"L3-MFU-{rate}": lambda rate=rate: share_of_peak(rate, H100) for rate in (430, 400, 380)},
    "PALM-MFU": lambda: mfu(PALM_FLOP),
    "PALM-MFU-noattn": lambda: mfu(6 * 540.35e9),
    "PALM-MTNLG": lambda: mfu(6 * 530e9, 65_430, 2_240, "A100"),
    "PALM-flops/token": lambda: PALM_FLOP,
    "L3-T5-sum": lambda: sum(cause.count for cause in cluster.LLAMA3_INTERRUPTIONS),
    "L3-T5-faulty": lambda: share_of_interruptions(lambda cause: cause.name == "faulty GPU"),
    "L3-T5-gpu": lambda: share_of_interruptions(lambda cause: cause.part == "GPU"),
    **{
        f"MLM21-P-{size}": lambda row=row: gpt_parameters(row.config)
        for size, (row, _) in MEGATRON.items()
    },
    **{
        f"MLM21-pk-{size}": lambda rate=rate: share_of_peak(rate, A100)
        for size, (_, rate) in MEGATRON.items()
    },
    **{
        f"MLM21-agg-{size}": lambda row=row, rate=rate: row.num_gpus * rate / 1_000
        for size, (row, rate) in MEGATRON.items()
    },
    "MLM21-gpt3-days": lambda: megatron_days(300e9, 175e9, 1_024, 140),
    "MLM21-1T-days": lambda: megatron_days(450e9, 1_008e9, 3_072, 163),
    **{f"KOR22-MFU-{k}": lambda row=row: korthikanti_mfu(row) for k, row in KORTHIKANTI.items()},
    **{
        f"KOR22-HFU-{k}": lambda row=row: korthikanti_mfu(row, again=3)
        for k, row in KORTHIKANTI.items()
    },
    **{
        f"KOR22-{name}-{which}": lambda count=count, key=key: count(KORTHIKANTI[key])
        for which, key in {"gpt3": "175B", "mtnlg": "530B"}.items()
        for name, count in {
            "5as/h": attention_parts,
            "save": selective_saves,
            "flops": selective_costs,
        }.items()
    },
    "KOR22-sbhp": lambda: outputs_given_back(KORTHIKANTI["530B"]),
    **{
        f"ZERO-T1-{name}-{ranks}-s{stage}": lambda size=size, ranks=ranks, stage=stage: (
            arithmetic.memory_bytes(size, ranks, stage) / 1e9
        )
        for name, size in {"7.5B": 7_500_000_000, "128B": 128 * 10**9, "1T": 10**12}.items()
        for ranks in (1, 4, 16, 64, 256, 1_024)
        for stage in (1, 2, 3)
    },
}
"""How each is computed, by its id."""
