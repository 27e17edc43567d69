"""Published figures that the package can recompute, each against its source."""

import json
import math
from pathlib import Path

import pytest
import torch

from llmcourse import loss, model
from llmcourse.scale import cost, laws, simulator

FILE = Path(__file__).parents[2] / "book" / "data" / "reference_figures.json"
FIGURES = {figure["id"]: figure for figure in json.loads(FILE.read_text())}

SEVENTY = model.llama3_70b()
PARTS = cost.parameters_by_part(SEVENTY)
GPT2 = {"num_layers": 12, "width": 768, "vocab_size": 50_257, "context_length": 1_024}
H100 = cost.HARDWARE["H100"]


def rule_of_six(num_parameters, num_tokens):
    """6 N D, taken out of the package's training time on one ideal GPU."""
    seconds = cost.training_seconds(
        num_parameters=num_parameters,
        num_tokens=num_tokens,
        num_gpus=1,
        hardware=H100,
        utilisation=1,
    )
    return seconds * H100.dense_bf16_flop_per_s


def equal_guesses(vocab_size):
    return loss.cross_entropy(torch.zeros(1, vocab_size), torch.tensor([0])).item()


CHINCHILLA = {
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

PALM = {"num_layers": 118, "attention_width": 48 * 256, "context_length": 2_048, "causal": False}
PALM_FLOP = cost.model_flop_per_token(540.35e9, **PALM)
V100_AT_28 = {"hardware": cost.HARDWARE["V100"], "mfu": 28 / 125}
KORTHIKANTI = {  # layers, width, GPUs, sequences, seconds
    "22B": (48, 6_144, 8, 4, 1.10),
    "175B": (96, 12_288, 64, 64, 13.75),
    "530B": (105, 20_480, 280, 280, 37.83),
    "1T": (128, 25_600, 512, 512, 71.49),
}


def palm_mfu(flop_per_token, tokens_per_s=238.3e3, num_gpus=6_144, hardware="TPUv4"):
    return cost.utilisation_from_rate(
        tokens_per_s=tokens_per_s,
        flop_per_token=flop_per_token,
        num_gpus=num_gpus,
        hardware=cost.HARDWARE[hardware],
    )


def megatron_mfu(layers, width, num_gpus, num_sequences, seconds):
    """A GPT of 12 L h^2 parameters and a head of 51,200 tokens, sequences of 2,048."""
    per_token = cost.model_flop_per_token(
        12 * layers * width**2 + 51_200 * width,
        num_layers=layers,
        attention_width=width,
        context_length=2_048,
        causal=False,
    )
    return palm_mfu(per_token, num_sequences * 2_048 / seconds, num_gpus, "A100")


def megatron_hfu(layers, width, num_gpus, num_sequences, seconds):
    """With the core of attention three times more, as equation 8 of the paper counts it."""
    mfu = megatron_mfu(layers, width, num_gpus, num_sequences, seconds)
    core = 3 * 4 * layers * width * 2_048 * num_sequences * 2_048
    return mfu + core / (num_gpus * 312e12 * seconds)


MEGATRON = {  # by the size that is printed
    row.name.split()[1]: (row, float(row.printed.split()[0])) for row in simulator.MEGATRON
}


def gpt_parameters(config):
    """Equation 2 of Narayanan et al. 2021, for 51,200 tokens and 2,048 positions."""
    layers, width = config.num_layers, config.width
    return 12 * layers * width**2 * (1 + 13 / (12 * width) + 53_248 / (12 * layers * width))


def megatron_days(num_tokens, num_parameters, num_gpus, flop_per_s):
    """Equation 4: every block runs twice, so 8 in place of 6."""
    return 8 * num_tokens * num_parameters / (num_gpus * flop_per_s) / 86_400


RECOMPUTED = {
    "P-llama3-8b": lambda: cost.num_parameters(model.llama3_8b()),
    "P-llama3-70b": lambda: cost.num_parameters(SEVENTY),
    "P-llama3-405b": lambda: cost.num_parameters(model.llama3_405b()),
    "P-ffn-70b": lambda: PARTS["feed_forward"],
    "P-70b-one-emb": lambda: sum(PARTS.values()) - PARTS["head"],
    "P-ffn-share": lambda: PARTS["feed_forward"] / (sum(PARTS.values()) - PARTS["head"]),
    "P-gpt2": lambda: sum(cost.gpt2_parameters_by_part(**GPT2).values()),
    "P-gpt2-nobias": lambda: sum(cost.gpt2_parameters_by_part(**GPT2, bias=False).values()),
    "L3-flops": lambda: rule_of_six(cost.num_parameters(model.llama3_405b()), 15.6e12),
    "GPT3-6ND": lambda: rule_of_six(174.6e9, 300e9),
    "GPT3-PFdays": lambda: 3_640 * 1e15 * 86_400,
    "GPT3-gpu-years": lambda: cost.gpu_hours(flop=3.14e23, **V100_AT_28) / (24 * 365.25),
    "PALM-MFU": lambda: palm_mfu(PALM_FLOP),
    "PALM-MFU-noattn": lambda: palm_mfu(6 * 540.35e9),
    "PALM-MTNLG": lambda: palm_mfu(6 * 530e9, 65_430, 2_240, "A100"),
    "PALM-flops/token": lambda: PALM_FLOP,
    **{f"KOR22-MFU-{k}": lambda row=row: megatron_mfu(*row) for k, row in KORTHIKANTI.items()},
    **{f"KOR22-HFU-{k}": lambda row=row: megatron_hfu(*row) for k, row in KORTHIKANTI.items()},
    **{
        f"MLM21-P-{size}": lambda row=row: gpt_parameters(row.config)
        for size, (row, _) in MEGATRON.items()
    },
    **{f"MLM21-pk-{size}": lambda rate=rate: rate / 312 for size, (_, rate) in MEGATRON.items()},
    **{
        f"MLM21-agg-{size}": lambda row=row, rate=rate: row.num_gpus * rate / 1_000
        for size, (row, rate) in MEGATRON.items()
    },
    "MLM21-gpt3-days": lambda: megatron_days(300e9, 175e9, 1_024, 140e12),
    "MLM21-1T-days": lambda: megatron_days(450e9, 1_008e9, 3_072, 163e12),
    **{
        f"L3-MFU-{rate}": lambda rate=rate: rate * 1e12 / H100.dense_bf16_flop_per_s
        for rate in (430, 400, 380)
    },
    **{key: lambda size=size: rule_of_six(*size) for key, size in CHINCHILLA.items()},
    **{
        f"ZERO-T1-{name}-1-s1": lambda size=size: size * cost.MIXED_TRAINING.total / 1e9
        for name, size in {"7.5B": 7.5e9, "128B": 128e9, "1T": 1e12}.items()
    },
    "KV-70b": lambda: cost.kv_cache_bytes_per_token(SEVENTY),
    "KV-70b-mha": lambda: cost.kv_cache_bytes_per_token(SEVENTY) * 8,
    "STATE-70b": lambda: cost.num_parameters(SEVENTY) * cost.MIXED_TRAINING.total / 1e9,
    "STEP-loss": lambda: loss.cross_entropy(
        torch.tensor([[0.15, 0.10, 0.05, 0.20, 0.50]]).log(), torch.tensor([3])
    ).item(),
    **{f"LNV-{size}": lambda size=size: equal_guesses(size) for size in (65, 256, 50257, 128256)},
    "L3-scaling-rounded": lambda: laws.LLAMA3_PRINTED.value(laws.LLAMA3_BUDGET_FLOP),
    "L3-scaling-fig3": lambda: laws.LLAMA3_FIGURE.value(laws.LLAMA3_BUDGET_FLOP),
    "L3-402Bx16.55T": lambda: rule_of_six(402e9, 16.55e12),
    "L3-days-400": lambda: (
        rule_of_six(cost.num_parameters(model.llama3_405b()), 15.6e12) / 16_384 / 400e12 / 86_400
    ),
}


def test_every_figure_is_recomputed():
    assert RECOMPUTED.keys() == FIGURES.keys()
    assert all(figure["source"] for figure in FIGURES.values())


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figure(name):
    figure = FIGURES[name]
    error = abs(RECOMPUTED[name]() / figure["published"] - 1)
    if figure["tolerance"] == 0:
        assert error == 0
    elif figure["reproduces"]:
        assert error <= figure["tolerance"]
    else:
        assert error > figure["tolerance"], "now it reproduces: correct the errata"


def test_a_wrong_recomputation_is_noticed():
    figure = FIGURES["P-70b-one-emb"]
    with_head = cost.num_parameters(SEVENTY)
    assert abs(with_head / figure["published"] - 1) > figure["tolerance"]
    assert not math.isclose(equal_guesses(256), FIGURES["LNV-65"]["published"], rel_tol=1e-4)
