"""cost: formulas equal what is counted on real and meta-device models, and published figures."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from llmcourse import model
from llmcourse.backward.recompute import recomputed, saved_bytes
from llmcourse.base import runtime
from llmcourse.model import ModelConfig, Transformer
from llmcourse_labs.scale import cost

MARKS = {
    "norms": "gain",
    "embedding": "embedding",
    "attention": ".attention.",
    "feed_forward": ".feed_forward.",
    "head": "head",
}


def counted(config):
    with torch.device("meta"):
        decoder = Transformer(config)
    by_part = dict.fromkeys(cost.parameters_by_part(config), 0)
    for name, parameter in decoder.named_parameters():
        by_part[next(part for part, mark in MARKS.items() if mark in name)] += parameter.numel()
        assert parameter.is_meta
    return by_part


EXACT = {"llama3_8b": 8_030_261_248, "llama3_70b": 70_553_706_496, "llama3_405b": 405_853_388_800}


@pytest.mark.parametrize("name", EXACT)
def test_llama3_sizes_are_exact_and_nothing_is_allocated(name):
    config = model.PRESETS[name]()
    assert counted(config) == cost.parameters_by_part(config)
    assert cost.num_parameters(config) == EXACT[name]


shapes = st.builds(
    lambda groups, group_size, head_size, **sizes: ModelConfig(
        num_heads=groups * group_size, num_kv_heads=groups, head_size=2 * head_size, **sizes
    ),
    groups=st.integers(1, 3),
    group_size=st.integers(1, 3),
    head_size=st.integers(1, 4),
    num_layers=st.integers(1, 3),
    width=st.integers(1, 20),
    hidden=st.integers(1, 20),
    vocab_size=st.integers(1, 40),
    context_length=st.integers(1, 8),
    tied_head=st.booleans(),
    qk_norm=st.booleans(),
)


@given(config=shapes)
def test_the_formula_equals_the_count_for_every_shape(config):
    assert counted(config) == cost.parameters_by_part(config)
    assert cost.num_parameters(config) == sum(counted(config).values())


def gpt2_modules(num_layers, width, vocab_size, context_length, bias):
    """GPT-2's parameters as torch modules, as its paper and code describe them."""
    norm, linear = partial(nn.LayerNorm, bias=bias), partial(nn.Linear, bias=bias)
    block = [norm(width), linear(width, 3 * width), linear(width, width)]
    block += [norm(width), linear(width, 4 * width), linear(4 * width, width)]
    once = [nn.Embedding(vocab_size, width), nn.Embedding(context_length, width), norm(width)]
    return sum(p.numel() for m in once + num_layers * block for p in m.parameters())


@settings(max_examples=20)
@given(
    num_layers=st.integers(1, 4),
    width=st.integers(1, 20),
    vocab_size=st.integers(1, 30),
    context_length=st.integers(1, 9),
    bias=st.booleans(),
)
def test_gpt2_formula_equals_its_modules(**shape):
    assert sum(cost.gpt2_parameters_by_part(**shape).values()) == gpt2_modules(**shape)


def test_cache_bytes_of_the_70b_and_days_of_the_405b():
    config = model.llama3_70b()
    assert cost.kv_cache_bytes_per_token(config) == 327_680
    assert cost.kv_cache_bytes_per_token(replace(config, num_kv_heads=64)) == 2_621_440
    seconds = cost.training_seconds(
        num_parameters=405e9,
        num_tokens=15.6e12,
        num_gpus=16_384,
        hardware=cost.HARDWARE["H100"],
        utilisation=400e12 / 989.4e12,
    )
    assert seconds / 86_400 == pytest.approx(67, abs=0.3)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("forgotten", [*cost.FORGOTTEN, "cheap"])
def test_kept_bytes_are_what_autograd_keeps(forgotten, num_kv_heads, qk_norm):
    config = replace(model.tiny(), num_kv_heads=num_kv_heads, hidden=52, qk_norm=qk_norm)
    decoder = Transformer(config, generator=runtime.generator(0))
    ids = torch.randint(0, 300, (3, 17), generator=runtime.generator(1))
    with nullcontext() if forgotten == "nothing" else recomputed(decoder, forgotten):
        found = saved_bytes(decoder, (ids, ids))
    for layer in range(config.num_layers):
        of_layer = [size for name, size in found.items() if name.startswith(f"blocks.{layer}")]
        assert sum(of_layer) == 3 * 17 * cost.kept_bytes(config, forgotten, number_bytes=4)


def test_the_published_bytes_of_the_70b():
    mixed = cost.MIXED_TRAINING
    numbers = cost.MOMENTS_IN_BF16.moments, mixed.moments, mixed.optimizer, mixed.total
    numbers += (mixed.master + mixed.moments, cost.MIXED_WIDE_GRADIENTS.total)
    held = [cost.num_parameters(model.llama3_70b()) * each / 1e9 for each in numbers]
    assert [round(each) for each in held] == [282, 564, 847, 1_129, 847, 1_270]
    assert cost.FP32_TRAINING.total == 16
