"""cost: FLOPs by phase as torch counts them, utilisation, money and energy as published.

Mutants that these tests reject: backward once forward; recomputation that counts the head, forgets
the pairs or is multiplied by two; half of all pairs in PaLM's count, or T for T + 1 in the causal
one; a utilisation that takes GPUs for hours or minutes for seconds; days of one GPU; a share of
host and network in place of one more; PUE added or forgotten; a break-even that serves at 6 N or
trains at 2 N.
"""

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
LLAMA_405B = cost.PUBLISHED["Llama 3.1 405B"]
LLAMA_70B = cost.PUBLISHED["Llama 3 70B"]
PALM = {"num_layers": 118, "attention_width": 48 * 256, "context_length": 2_048, "causal": False}

# --- FLOPs by part and phase


def counted(config, forgotten):
    """FLOPs of a step of one sequence, as torch counts the products that it runs."""
    decoder = Transformer(config)
    decoder.attend_with(attention.attention)  # torch counts no product inside its own attention
    ids = torch.zeros(1, config.context_length, dtype=torch.long)

    def step():
        with FlopCounterMode(display=False) as counter:
            decoder(ids).sum().backward()
        return counter.get_total_flops()

    if forgotten == "nothing":
        return step()
    with recomputed(decoder, forgotten):
        return step()


def of_config(forgotten, **changes):
    """FLOPs per token, with the whole square of pairs that torch computes."""
    config = replace(model.tiny(), num_kv_heads=4, **changes)
    phases = cost.training_flop_by_phase(config, forgotten=forgotten)
    for flop in phases.values():
        flop["attention pairs"] *= 2 * config.context_length / (config.context_length + 1)
    return config, phases


@pytest.mark.parametrize("forgotten", cost.FORGOTTEN)
def test_every_phase_is_what_torch_counts(forgotten):
    config, phases = of_config(forgotten, num_layers=3, hidden=52)
    ours = config.context_length * sum(sum(flop.values()) for flop in phases.values())
    assert counted(config, forgotten) == pytest.approx(ours, rel=1e-12)


def test_the_phases_add_up_to_the_counts_of_other_chapters():
    config = model.llama3_70b()
    phases = cost.training_flop_by_phase(config)
    assert sum(sum(flop.values()) for flop in phases.values()) == cost.training_flop_per_token(
        config
    )
    assert not any(phases["recomputation"].values())
    again = cost.training_flop_by_phase(config, forgotten="block")["recomputation"]
    assert sum(again.values()) == sum(phases["forward"].values()) - phases["forward"]["head"]
    assert again["head"] == 0


def test_a_mixture_and_another_length_are_counted():
    phases = cost.training_flop_by_phase(model.tiny_moe(), context_length=7, forgotten="block")
    assert phases["recomputation"]["router"] == phases["forward"]["router"] > 0
    assert phases["forward"] == cost.forward_flop_by_part(model.tiny_moe(), context_length=7)


def test_a_choice_that_is_none_is_refused():
    with pytest.raises(Exception, match="forgotten"):
        cost.training_flop_by_phase(model.tiny(), forgotten="half")


# --- FLOPs from the few numbers of a paper


@given(layers=st.integers(1, 200), width=st.integers(1, 20_000), length=st.integers(1, 200_000))
def test_attention_is_the_sum_over_all_pairs(layers, width, length):
    parts = {"num_layers": layers, "attention_width": width, "context_length": length}
    causal = cost.model_flop_per_token(5, **parts) - 30
    square = cost.model_flop_per_token(5, **parts, causal=False) - 30
    pairs = length * (length + 1) // 2  # 4 A FLOPs each forward, three times that in training
    assert causal * length == pytest.approx(12 * layers * width * pairs, rel=1e-12)
    assert square == 12 * layers * width * length


def test_it_agrees_with_the_count_by_part():
    config = model.llama3_8b()
    used = cost.num_parameters(config) - config.vocab_size * config.width
    used -= cost.parameters_by_part(config)["norms"]
    assert cost.model_flop_per_token(
        used,
        num_layers=config.num_layers,
        attention_width=config.num_heads * config.head_size,
        context_length=config.context_length,
    ) == pytest.approx(cost.training_flop_per_token(config), rel=1e-12)


def test_half_a_shape_is_refused():
    with pytest.raises(ValueError, match="give all of num_layers, attention_width, context_length"):
        cost.model_flop_per_token(1e9, num_layers=3)
    with pytest.raises(ValueError, match="num_parameters must be above 0"):
        cost.model_flop_per_token(0)


# --- utilisation


def test_palm_from_its_tokens_per_second():
    """46.2 % with attention, 45.7 % without; with recomputation 57.8 %: 0.75 of forward."""
    rate = {"tokens_per_s": 238.3e3, "num_gpus": 6_144, "hardware": HARDWARE["TPUv4"]}
    with_attention = cost.model_flop_per_token(540.35e9, **PALM)
    assert with_attention == pytest.approx(3.28e12, rel=1e-3)
    mfu = cost.utilisation_from_rate(flop_per_token=with_attention, **rate)
    plain = cost.utilisation_from_rate(flop_per_token=6 * 540.35e9, **rate)
    assert (round(100 * mfu, 1), round(100 * plain, 1)) == (46.2, 45.7)
    again = with_attention / 3 * 0.75
    hfu = cost.utilisation_from_rate(flop_per_token=with_attention + again, **rate)
    assert round(100 * hfu, 1) == 57.8


def test_llama_from_its_hours():
    assert LLAMA_405B.gpu_hours == 30.84e6
    assert round(100 * LLAMA_405B.mfu, 1) == 34.6
    assert round(LLAMA_405B.mfu * 989.4) == 342
    assert round(cost.days(gpu_hours=30.84e6, num_gpus=16_384), 1) == 78.4
    ideal = cost.gpu_hours(flop=LLAMA_405B.flop, hardware=HARDWARE["H100"], mfu=400 / 989.4)
    assert round(cost.days(gpu_hours=ideal, num_gpus=16_384), 1) == 67.1
    assert round(100 * LLAMA_70B.mfu, 1) == 27.9
    assert round(cost.days(gpu_hours=6.4e6, num_gpus=16_384), 1) == 16.3
    faster = cost.gpu_hours(flop=LLAMA_70B.flop, hardware=HARDWARE["H100"], mfu=400 / 989.4)
    assert round(cost.days(gpu_hours=faster, num_gpus=16_384), 1) == 11.2


def test_deepseek_v3_from_hours_and_from_tokens_per_day():
    """250 GFLOP a token and 38.94 % by its makers, causal (arXiv 2505.09343, tables 2 and 4)."""
    run = cost.PUBLISHED["DeepSeek-V3"]
    assert round(100 * run.mfu, 1) == 35.1
    flop = cost.model_flop_per_token(
        36.6e9, num_layers=61, attention_width=128 * (192 + 128) / 2, context_length=4_096
    )
    assert flop == pytest.approx(250e9, rel=3e-3)
    rate = {"num_gpus": 2_048, "hardware": HARDWARE["H800"], "flop_per_token": flop}
    mfu = cost.utilisation_from_rate(tokens_per_s=272.8e9 / 86_400, **rate)
    assert mfu == pytest.approx(0.3894, rel=3e-3)
    by_hours = cost.utilisation_from_hours(
        flop=flop * run.num_tokens, gpu_hours=run.gpu_hours, hardware=HARDWARE["H800"]
    )
    assert by_hours == pytest.approx(mfu, rel=2e-3)


# --- money and energy


def test_the_chain_by_hand():
    """36e18 FLOPs at half of 1e15 a second: 72,000 s, 20 h; 4 GPUs 5 h; $2; 500 W and half more."""
    hardware = replace(HARDWARE["H100"], dense_bf16_flop_per_s=1e15, watts=500)
    rest = {"num_gpus": 4, "dollars_per_gpu_hour": 2, "host_share": 0.5, "pue": 1.2}
    found = cost.bill(flop=36e18, hardware=hardware, mfu=0.5, **rest)
    assert found == pytest.approx((36e18, 20, 5 / 24, 40, 18))
    other = cost.bill(flop=36e18, hardware=hardware, mfu=0.5, watts_per_gpu=1_000, **rest)
    assert other.energy_kwh == pytest.approx(36)


def test_gpt3_as_lambda_and_patterson_estimated_it():
    run = cost.PUBLISHED["GPT-3"]
    assert round(run.gpu_hours / 1e6, 3) == 3.115
    assert round(run.gpu_hours / 24 / 365.25) == 355
    price = cost.dollars(gpu_hours=run.gpu_hours, dollars_per_gpu_hour=run.dollars_per_gpu_hour)
    assert 4.6e6 < price < 4.7e6
    # 10,000 V100 for 14.8 days at 330 W, server included, and a PUE of 1.10: 1,287 MWh.
    energy = cost.energy_kwh(gpu_hours=10_000 * 14.8 * 24, watts_per_gpu=330, pue=1.10)
    assert energy == pytest.approx(1_287e3, rel=3e-3)


def test_the_energy_of_the_405b_and_the_price_of_deepseek():
    assert round(cost.energy_kwh(gpu_hours=30.84e6, watts_per_gpu=700) / 1e6, 1) == 21.6
    assert cost.dollars(gpu_hours=2.788e6, dollars_per_gpu_hour=2) == 5.576e6
    assert cost.PUBLISHED["DeepSeek-V3"].gpu_hours == 14.8 * 180e3


def test_published_runs_name_hardware_that_is_there():
    for run in cost.PUBLISHED.values():
        assert 0.2 < run.mfu < 0.4
        assert run.source
        assert HARDWARE[run.hardware].source


# --- over-train or serve


def test_break_even_by_hand_and_by_its_definition():
    """10 trained on 20 takes 1200, 4 on 100 takes 2400; each token served saves 12."""
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
