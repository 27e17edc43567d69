"""Published figures that the package can recompute, each against its source."""

import json
import math
from pathlib import Path

import pytest
import torch

from llmcourse import loss, model
from llmcourse.scale import cost

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
