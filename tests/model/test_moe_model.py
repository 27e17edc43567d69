"""moe in a model: exact counts, its balance loss, its gradient, what learns and what is refused."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import small_config

from llmcourse import loss, model, optim
from llmcourse.backward import backprop
from llmcourse.backward.recompute import recomputed, saved_bytes
from llmcourse.base import checks
from llmcourse.model import Transformer, attention, moe
from llmcourse_labs.scale import cost


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def counted(config):
    with torch.device("meta"):
        decoder = Transformer(config)
    sizes = {name: p.numel() for name, p in decoder.named_parameters()}
    assert all(p.is_meta for p in decoder.parameters())
    return sum(sizes.values()), sum(n for name, n in sizes.items() if ".experts." in name)


def test_mixtral_is_exact_by_formula_and_as_built():
    config = model.mixtral_8x7b()
    assert cost.num_parameters(config) == 46_702_792_704
    assert cost.num_active_parameters(config) == 12_879_925_248
    total, in_experts = counted(config)
    assert (total, total - in_experts * (8 - 2) // 8) == (46_702_792_704, 12_879_925_248)


@given(st.integers(1, 5), st.data(), st.integers(1, 3), st.booleans())
def test_the_formula_equals_the_count_for_every_mixture(num_experts, data, num_layers, tied_head):
    k = data.draw(st.integers(1, num_experts))
    config = small_config(
        num_experts=num_experts, experts_per_token=k, num_layers=num_layers, tied_head=tied_head
    )
    total, in_experts = counted(config)
    assert cost.num_parameters(config) == total
    assert cost.num_active_parameters(config) == total - in_experts // num_experts * (
        num_experts - k
    )
    assert (cost.num_active_parameters(config) == total) == (k == num_experts)


def test_deepseek_v3_is_exact():
    parts = cost.deepseek_parameters()
    assert cost.total_of(parts) == (671_026_419_200, 37_552_297_472)
    # By hand, from the dimensions in the report.
    latent = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256
    assert cost.latent_attention_parameters(cost.DeepSeekShape()) == latent + 128 * 128 * 7168
    assert parts["experts"] == (58 * 256 * 3 * 7168 * 2048, 58 * 8 * 3 * 7168 * 2048)


def test_deepseek_v3_is_what_transformers_builds():
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM  # noqa: PLC0415 - slow import

    with torch.device("meta"):
        theirs = DeepseekV3ForCausalLM(DeepseekV3Config(vocab_size=129_280))
    buffers = sum(b.numel() for name, b in theirs.named_buffers() if "correction_bias" in name)
    built = sum(p.numel() for p in theirs.parameters()) + buffers
    assert built == cost.total_of(cost.deepseek_parameters()).total


def test_flop_of_a_mixture_equal_torchs_counter():
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 - used here alone

    config = replace(model.tiny_moe(), num_kv_heads=4)
    T = config.context_length
    decoder = Transformer(config, generator=seeded())
    decoder.attend_with(attention.attention)  # torch counts no product inside its own attention
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        decoder(torch.zeros(1, T, dtype=torch.long))
    ours = cost.forward_flop_by_part(config)
    square = ours["attention pairs"] * 2 * T / (T + 1)
    wanted = T * (sum(ours.values()) - ours["attention pairs"] + square)
    assert counter.get_total_flops() == pytest.approx(wanted, rel=1e-12)
    by_rule = 2 * (cost.num_active_parameters(config)) + ours["attention pairs"]
    norms = cost.parameters_by_part(config)["norms"]
    assert sum(ours.values()) == by_rule - 2 * norms  # the tied embedding is the head


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("forgotten", cost.FORGOTTEN)
def test_kept_bytes_of_a_mixture_are_what_autograd_keeps(forgotten, k):
    config = replace(model.tiny_moe(), num_experts=5, experts_per_token=k)
    decoder = Transformer(config, generator=seeded())
    ids = torch.randint(0, 300, (3, 17), generator=seeded(1))
    if forgotten == "nothing":
        found = saved_bytes(decoder, (ids, ids))
    else:
        with recomputed(decoder, forgotten):
            found = saved_bytes(decoder, (ids, ids))
    once = 0 if forgotten == "block" else 5 * 8  # of a layer: the counts of its experts
    for index in range(config.num_layers):
        of_layer = [size for name, size in found.items() if name.startswith(f"blocks.{index}")]
        assert sum(of_layer) == 3 * 17 * cost.kept_bytes(config, forgotten, number_bytes=4) + once


def decoder_of(config, seed=0, scale=8.0):
    decoder = Transformer(config, generator=seeded(seed))
    with torch.no_grad():
        for name, p in decoder.named_parameters():
            if not name.endswith("gain"):
                p.mul_(scale)
    return decoder


def batch_of(config, seed=1, B=4, T=9):
    g = seeded(seed)
    return tuple(torch.randint(0, config.vocab_size, (B, T), generator=g) for _ in range(2))


def objective(decoder, batch):
    routings = []
    value = loss.cross_entropy(decoder(batch[0], routings=routings), batch[1])
    return value + model.auxiliary_loss(routings, decoder.config)


MIXTURE = {"num_experts": 4, "experts_per_token": 2, "balance_weight": 0.01}


def routings_of(decoder, ids):
    routings = []
    decoder(ids, routings=routings)
    return routings


def test_the_auxiliary_loss_is_the_weighted_mean_of_balance_losses_where_there_are_any():
    decoder = decoder_of(small_config(**MIXTURE))
    routings = routings_of(decoder, batch_of(decoder.config)[0])
    losses = [
        moe.balance_loss(each.probabilities_NE, moe.count_choices(each.experts_NK, 4)).item()
        for each in routings
    ]
    assert losses[0] != losses[1]
    found = model.auxiliary_loss(routings, decoder.config).item()
    assert found == pytest.approx(0.01 * sum(losses) / 2, rel=1e-6)
    halves = [model.auxiliary_loss([each], decoder.config).item() for each in routings]
    assert sum(halves) == pytest.approx(found, rel=1e-6)
    ids, _ = batch_of(small_config())
    without = model.without(decoder_of(small_config(**MIXTURE)), "feed_forward")
    unweighted = decoder_of(small_config(**MIXTURE | {"balance_weight": 0.0}))
    for decoder in (decoder_of(small_config()), unweighted, without):
        assert model.auxiliary_loss(routings_of(decoder, ids), decoder.config) is None


def test_what_is_for_one_pass_or_a_dense_model_is_refused():
    decoder = decoder_of(small_config(**MIXTURE))
    batch = batch_of(decoder.config)
    twice = 2 * routings_of(decoder, batch[0])
    for call, said in (
        (lambda: model.auxiliary_loss(twice, decoder.config), "a new list for every forward pass"),
        (lambda: backprop.forward(decoder, *batch), "is a MixtureOfExperts, for which there is"),
        (lambda: model.without(decoder, "gate"), "without 'gate' is for a dense model"),
        (lambda: model.without(decoder, "silu"), "without 'silu' is for a dense model"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_matrices_of_experts_decay_like_others():
    decoder = Transformer(model.tiny_moe(), generator=seeded())
    decayed, free = optim.decay_groups(decoder, weight_decay=0.1)
    names = {id(p): name for name, p in decoder.named_parameters()}
    for part in ("router.w_router", "experts.w_gate", "experts.w_up", "experts.w_down"):
        assert f"blocks.1.feed_forward.{part}" in {names[id(p)] for p in decayed["params"]}
    assert {names[id(p)].rsplit(".", 1)[-1] for p in free["params"]} == {"gain", "embedding"}


@pytest.mark.parametrize("policy", ["block", "attention"])
def test_recomputing_changes_no_gradient(policy):
    config = small_config(**MIXTURE | {"capacity_factor": 1.0})
    decoder = decoder_of(config)
    batch = batch_of(config)
    wanted = torch.autograd.grad(objective(decoder, batch), list(decoder.parameters()))
    with recomputed(decoder, policy):
        found = torch.autograd.grad(objective(decoder, batch), list(decoder.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_other_parts_of_a_mixture_can_be_removed():
    decoder = decoder_of(small_config(**MIXTURE))
    ids, _ = batch_of(decoder.config)
    whole = decoder(ids)
    for part in ("norm", "position", "residual", "attention", "feed_forward"):
        assert checks.relative_error(model.without(decoder, part)(ids), whole) > 1e-3
