"""cost: formulas equal what is counted on real and meta-device models, and published figures."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse import model
from llmcourse.backward.recompute import recomputed, saved_bytes
from llmcourse.base import runtime
from llmcourse.model import ModelConfig, Transformer
from llmcourse_labs.scale import cost


def counted(config):
    """Count the parameters of a model that is never allocated."""
    with torch.device("meta"):
        decoder = Transformer(config)
    by_part = dict.fromkeys(cost.parameters_by_part(config), 0)
    for name, parameter in decoder.named_parameters():
        (part,) = [
            part
            for part, marks in {
                "embedding": ["embedding"],
                "attention": [".attention."],
                "feed_forward": [".feed_forward."],
                "norms": ["gain"],
                "head": ["head"],
            }.items()
            if any(mark in name for mark in marks)
        ]
        by_part[part] += parameter.numel()
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
)


@given(config=shapes)
def test_the_formula_equals_the_count_for_every_shape(config):
    assert counted(config) == cost.parameters_by_part(config)


def gpt2_modules(num_layers, width, vocab_size, context_length, bias):
    """GPT-2's parameters as torch modules, as its paper and code describe them."""
    from torch import nn  # noqa: PLC0415 - used here alone

    def norm():
        return nn.LayerNorm(width, bias=bias)

    def lin(a, b):
        return nn.Linear(a, b, bias=bias)

    block = [norm(), lin(width, 3 * width), lin(width, width), norm()]
    block += [lin(width, 4 * width), lin(4 * width, width)]
    modules = [nn.Embedding(vocab_size, width), nn.Embedding(context_length, width), norm()]
    once = sum(p.numel() for m in modules for p in m.parameters())
    return once + num_layers * sum(p.numel() for m in block for p in m.parameters())


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


def test_gpt2_small_is_exact():
    shape = {"num_layers": 12, "width": 768, "vocab_size": 50_257, "context_length": 1_024}
    assert sum(cost.gpt2_parameters_by_part(**shape).values()) == 124_439_808
    assert sum(cost.gpt2_parameters_by_part(**shape, bias=False).values()) == 124_337_664


def test_flop_formula_equals_torchs_counter():
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 - used here alone

    config = replace(model.tiny(), num_kv_heads=4)
    T = config.context_length
    with torch.device("meta"):
        decoder = Transformer(config)
        ids = torch.zeros(1, T, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        decoder(ids)
    ours = cost.forward_flop_by_part(config)
    # torch counts the whole T x T square of scores; causal attention needs (T + 1) / 2 of T keys.
    square = ours["attention pairs"] * 2 * T / (T + 1)
    wanted = T * (sum(ours.values()) - ours["attention pairs"] + square)
    assert counter.get_total_flops() == pytest.approx(wanted, rel=1e-12)
    assert cost.training_flop_per_token(config) == 3 * sum(ours.values())


def test_the_rule_of_six_is_close_for_a_large_model_with_a_short_context():
    config = model.llama3_70b()
    exact = cost.training_flop_per_token(config, context_length=1)
    without_lookup = cost.num_parameters(config) - config.vocab_size * config.width
    assert exact == pytest.approx(6 * without_lookup, rel=1e-3)


def test_cache_bytes_of_the_70b():
    config = model.llama3_70b()
    assert cost.kv_cache_bytes_per_token(config) == 327_680
    assert cost.kv_cache_bytes_per_token(replace(config, num_kv_heads=64)) == 2_621_440


def test_training_state_of_the_70b_in_gb():
    n, mixed = cost.num_parameters(model.llama3_70b()), cost.MIXED_TRAINING
    assert n * mixed.total / 1e9 == pytest.approx(1_129, abs=0.5)
    assert n * (mixed.master + mixed.moments) / 1e9 == pytest.approx(847, abs=0.5)
    assert cost.FP32_TRAINING.total == 16


def test_days_of_the_405b_at_the_published_rate():
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
    if forgotten == "nothing":
        found = saved_bytes(decoder, (ids, ids))
    else:
        with recomputed(decoder, forgotten):
            found = saved_bytes(decoder, (ids, ids))
    for layer in range(config.num_layers):
        of_layer = [size for name, size in found.items() if name.startswith(f"blocks.{layer}")]
        assert sum(of_layer) == 3 * 17 * cost.kept_bytes(config, forgotten, number_bytes=4)


def test_an_unknown_choice_of_what_to_forget_is_refused():
    with pytest.raises(Exception, match="forgotten"):
        cost.kept_bytes(model.tiny(), "half")
    with pytest.raises(Exception, match="experts keep other tensors"):
        cost.kept_bytes(model.tiny_moe(), "cheap")


def test_norms_of_heads_are_counted():
    config = replace(model.tiny(), qk_norm=True)
    decoder = Transformer(config)
    assert cost.num_parameters(config) == sum(p.numel() for p in decoder.parameters())


def test_the_published_bytes_of_the_70b():
    n = cost.num_parameters(model.llama3_70b())
    totals = [
        n * cost.MOMENTS_IN_BF16.moments,
        n * cost.MIXED_TRAINING.moments,
        n * cost.MIXED_TRAINING.optimizer,
        n * cost.MIXED_TRAINING.total,
        n * cost.MIXED_WIDE_GRADIENTS.total,
    ]
    assert [round(b / 1e9) for b in totals] == [282, 564, 847, 1_129, 1_270]
