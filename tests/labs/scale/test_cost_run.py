"""cost: FLOPs by phase as torch counts them, utilisation, money and energy as published.

Mutants that these tests reject: backward once forward; recomputation that counts the head, forgets
the pairs or is multiplied by two; half of all pairs in a count of whole squares, or T for T + 1 in
the causal one; days of one GPU; a share of host and network in place of one more; PUE added or
forgotten; a break-even that serves at 6 N or trains at 2 N.  Published runs: chapter 35.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from llmcourse import model
from llmcourse.backward.recompute import recomputed
from llmcourse.model import Transformer, attention
from llmcourse_labs.scale import cost

HARDWARE = cost.HARDWARE


def counted(config, forgotten):
    """FLOPs of a step of one sequence, as torch counts the products that it runs."""
    decoder = Transformer(config)
    decoder.attend_with(attention.attention)  # torch counts no product inside its own attention
    ids = torch.zeros(1, config.context_length, dtype=torch.long)
    forgetting = nullcontext() if forgotten == "nothing" else recomputed(decoder, forgotten)
    with forgetting, FlopCounterMode(display=False) as counter:
        decoder(ids).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("forgotten", cost.FORGOTTEN)
def test_every_phase_is_what_torch_counts(forgotten):
    config = replace(model.tiny(), num_kv_heads=4, num_layers=3, hidden=52)
    length = config.context_length
    ours = 0
    for flop in cost.training_flop_by_phase(config, forgotten=forgotten).values():
        flop["attention pairs"] *= 2 * length / (length + 1)  # torch counts the whole square
        ours += length * sum(flop.values())
    assert counted(config, forgotten) == pytest.approx(ours, rel=1e-12)


def test_the_phases_add_up_to_the_counts_of_other_chapters_also_of_a_mixture():
    config = model.llama3_70b()
    phases = cost.training_flop_by_phase(config)
    total = sum(sum(flop.values()) for flop in phases.values())
    assert total == cost.training_flop_per_token(config)
    assert not any(phases["recomputation"].values())
    again = cost.training_flop_by_phase(config, forgotten="block")["recomputation"]
    assert sum(again.values()) == sum(phases["forward"].values()) - phases["forward"]["head"]
    assert again["head"] == 0
    phases = cost.training_flop_by_phase(model.tiny_moe(), context_length=7, forgotten="block")
    assert phases["recomputation"]["router"] == phases["forward"]["router"] > 0
    assert phases["forward"] == cost.forward_flop_by_part(model.tiny_moe(), context_length=7)


@given(layers=st.integers(1, 200), width=st.integers(1, 20_000), length=st.integers(1, 200_000))
def test_attention_is_the_sum_over_all_pairs(layers, width, length):
    parts = {"num_layers": layers, "attention_width": width, "context_length": length}
    causal = cost.model_flop_per_token(5, **parts) - 30
    square = cost.model_flop_per_token(5, **parts, causal=False) - 30
    pairs = length * (length + 1) // 2  # 4 A FLOPs each forward, three times that in training
    assert causal * length == pytest.approx(12 * layers * width * pairs, rel=1e-12)
    assert square == 12 * layers * width * length


def test_it_agrees_with_the_count_by_part_and_the_chain_by_hand():
    config = model.llama3_8b()
    used = cost.num_parameters(config) - config.vocab_size * config.width
    used -= cost.parameters_by_part(config)["norms"]
    assert cost.model_flop_per_token(
        used,
        num_layers=config.num_layers,
        attention_width=config.num_heads * config.head_size,
        context_length=config.context_length,
    ) == pytest.approx(cost.training_flop_per_token(config), rel=1e-12)
    # 36e18 FLOPs at half of 1e15 a second: 72,000 s, 20 h; 4 GPUs 5 h; $2; 500 W and half more.
    hardware = replace(HARDWARE["H100"], dense_bf16_flop_per_s=1e15, watts=500)
    rest = {"num_gpus": 4, "dollars_per_gpu_hour": 2, "host_share": 0.5, "pue": 1.2}
    found = cost.bill(flop=36e18, hardware=hardware, mfu=0.5, **rest)
    assert found == pytest.approx((36e18, 20, 5 / 24, 40, 18))
    other = cost.bill(flop=36e18, hardware=hardware, mfu=0.5, watts_per_gpu=1_000, **rest)
    assert other.energy_kwh == pytest.approx(36)


def test_published_runs_name_hardware_that_is_there_and_break_even_by_hand():
    for run in cost.PUBLISHED.values():
        assert 0.2 < run.mfu < 0.4
        assert run.source
        assert HARDWARE[run.hardware].source
    # 10 trained on 20 takes 1200, 4 on 100 takes 2400; each token served saves 12.
    sizes = {"large_parameters": 10, "large_tokens": 20}
    assert cost.break_even_tokens(**sizes, small_parameters=4, small_tokens=100) == 100
    assert cost.break_even_tokens(**sizes, small_parameters=4, small_tokens=40) == 0


@given(
    large=st.floats(1e6, 1e12), share=st.floats(0.05, 0.95), tokens=st.floats(1e6, 1e13),
    more=st.floats(1, 100),
)  # fmt: skip
def test_at_the_break_even_both_have_cost_the_same(large, share, tokens, more):
    small, longer = large * share, tokens * more / share
    served = cost.break_even_tokens(
        large_parameters=large, large_tokens=tokens, small_parameters=small, small_tokens=longer
    )
    both = [6 * n * d + 2 * n * served for n, d in ((large, tokens), (small, longer))]
    assert both[0] == pytest.approx(both[1], rel=1e-9)
