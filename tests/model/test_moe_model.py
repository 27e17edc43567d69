"""moe in a model: exact counts, its balance loss, its gradient, what learns and what is refused."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import small_config

from llmcourse import checkpoint, loss, model, optim
from llmcourse.backward import backprop
from llmcourse.backward.recompute import recomputed, saved_bytes
from llmcourse.base import checks
from llmcourse.model import Transformer, attention, moe
from llmcourse_labs.scale import cost


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# --- counts


def counted(config):
    """The parameters of the built model, on the meta device: all, and those of the experts."""
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
    assert total == 46_702_792_704
    assert total - in_experts * (8 - 2) // 8 == 12_879_925_248


@given(
    num_experts=st.integers(1, 5),
    data=st.data(),
    num_layers=st.integers(1, 3),
    tied_head=st.booleans(),
)
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


def test_a_mixture_of_too_many_choices_is_not_counted():
    with pytest.raises(ValueError, match="experts_per_token must be from 1 to num_experts = 2"):
        cost.mixture_parameters(width=2, hidden=3, num_experts=2, experts_per_token=3)


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
        per_token = cost.kept_bytes(config, forgotten, number_bytes=4)
        assert sum(of_layer) == 3 * 17 * per_token + once


# --- in a model


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


def test_the_auxiliary_loss_is_the_weighted_mean_of_the_layers_balance_losses():
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


def test_a_mixture_with_a_weight_alone_has_an_auxiliary_loss():
    ids, _ = batch_of(small_config())
    without = model.without(decoder_of(small_config(**MIXTURE)), "feed_forward")
    unweighted = decoder_of(small_config(**MIXTURE | {"balance_weight": 0.0}))
    for decoder in (decoder_of(small_config()), unweighted, without):
        assert model.auxiliary_loss(routings_of(decoder, ids), decoder.config) is None


def test_routings_of_two_forward_passes_are_refused():
    decoder = decoder_of(small_config(**MIXTURE))
    routings = 2 * routings_of(decoder, batch_of(decoder.config)[0])
    with pytest.raises(ValueError, match="begin a new list for every forward pass"):
        model.auxiliary_loss(routings, decoder.config)


def test_the_models_gradient_is_the_slope_of_its_loss():
    """In float64, at a point where no two scores are near each other."""
    config = small_config(**MIXTURE | {"balance_weight": 0.5})
    decoder = decoder_of(config).double()
    batch = batch_of(config, seed=2)
    objective(decoder, batch).backward()
    for routing in routings_of(decoder, batch[0]):
        best = routing.probabilities_NE.sort(1, descending=True).values
        assert (best[:, 1] - best[:, 2]).min() > 1e-4
    g, step = seeded(3), 1e-6
    for name, p in decoder.named_parameters():
        u = torch.randn(p.shape, generator=g, dtype=torch.float64)
        u /= u.norm()
        sides = []
        for sign in (1, -2, 1):
            with torch.no_grad():
                p.add_(u, alpha=sign * step)
                sides.append(objective(decoder, batch).item())
        slope = (sides[0] - sides[1]) / (2 * step)
        assert float((p.grad * u).sum()) == pytest.approx(
            slope, abs=1e-7 * p.grad.norm().item() + 1e-8
        ), name
        assert p.grad.norm() > 1e-6, name


def test_a_small_mixture_learns_and_its_experts_take_part():
    config = replace(model.tiny_moe(), vocab_size=40, context_length=16)
    decoder = Transformer(config, generator=seeded())
    before = {name: p.detach().clone() for name, p in decoder.named_parameters()}
    groups = optim.decay_groups(decoder, weight_decay=0.1)
    optimizer = optim.AdamW(groups, lr=1e-2)
    batch = batch_of(config, T=16)
    values = []
    for _ in range(30):
        value = objective(decoder, batch)
        value.backward()
        optim.clip_by_global_norm(decoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        values.append(value.item())
    assert values[0] == pytest.approx(math.log(40) + 0.01, abs=0.1)
    assert values[-1] < 0.5 * values[0]
    for name, p in decoder.named_parameters():
        assert not torch.equal(p, before[name]), name
        if "experts" in name:
            changed = (p.detach() - before[name]).flatten(1).abs().amax(1)
            assert (changed > 0).all(), name


def test_matrices_of_experts_decay_like_others():
    decoder = Transformer(model.tiny_moe(), generator=seeded())
    decayed, free = optim.decay_groups(decoder, weight_decay=0.1)
    names = {id(p): name for name, p in decoder.named_parameters()}
    parts = ("router.w_router", "experts.w_gate", "experts.w_up", "experts.w_down")
    for part in parts:
        assert f"blocks.1.feed_forward.{part}" in {names[id(p)] for p in decayed["params"]}
    assert {names[id(p)].rsplit(".", 1)[-1] for p in free["params"]} == {"gain", "embedding"}


def test_a_checkpoint_brings_a_mixture_back(tmp_path):
    config = model.tiny_moe()
    decoder, other = decoder_of(config), decoder_of(config, seed=5)
    checkpoint.save(tmp_path, step=3, model=decoder.state_dict(), config={})
    other.load_state_dict(checkpoint.load(checkpoint.latest(tmp_path)).model)
    ids, _ = batch_of(config)
    assert torch.equal(other(ids), decoder(ids))


@pytest.mark.parametrize("policy", ["block", "attention"])
def test_recomputing_changes_no_gradient(policy):
    config = small_config(**MIXTURE | {"capacity_factor": 1.0})
    decoder = decoder_of(config)
    batch = batch_of(config)
    wanted = torch.autograd.grad(objective(decoder, batch), list(decoder.parameters()))
    with recomputed(decoder, policy):
        found = torch.autograd.grad(objective(decoder, batch), list(decoder.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_the_cache_changes_nothing_in_a_mixture():
    decoder = decoder_of(small_config(**MIXTURE | {"capacity_factor": 0.5})).eval()
    ids, _ = batch_of(decoder.config)
    with torch.no_grad():
        cache = decoder.new_cache(4)
        pieces = [decoder(ids[:, a:b], cache=cache) for a, b in ((0, 4), (4, 5), (5, 9))]
        assert checks.relative_error(torch.cat(pieces, 1), decoder(ids)) < 1e-5
        assert checks.relative_error(decoder.train()(ids), decoder.eval()(ids)) > 1e-2


def test_a_step_by_hand_refuses_a_mixture():
    decoder = decoder_of(small_config(**MIXTURE))
    with pytest.raises(ValueError, match="feed_forward is a MixtureOfExperts, for which there is"):
        backprop.forward(decoder, *batch_of(decoder.config))


@pytest.mark.parametrize("part", ["gate", "silu"])
def test_a_mixture_keeps_its_gate(part):
    with pytest.raises(ValueError, match=f"without '{part}' is for a dense model"):
        model.without(decoder_of(small_config(**MIXTURE)), part)


def test_other_parts_of_a_mixture_can_be_removed():
    decoder = decoder_of(small_config(**MIXTURE))
    ids, _ = batch_of(decoder.config)
    whole = decoder(ids)
    for part in ("norm", "position", "residual", "attention", "feed_forward"):
        assert checks.relative_error(model.without(decoder, part)(ids), whole) > 1e-3
