"""Decoders in few bits: what is rounded, in which order, what is held, and the same logits."""

from dataclasses import replace

import pytest
import torch

from llmcourse.model import Transformer, generate, tiny, tiny_moe
from llmcourse_labs.real.quantise import (
    READ_BY,
    Grid,
    MergeLoss,
    gptq,
    inputs_of,
    merge_loss,
    nearest,
    pack,
    round_decoder,
    rounded_cache,
    rounded_tokens,
)
from tests.edits import edited

CONFIG = replace(tiny(), qk_norm=True)
MIXTURE = replace(tiny_moe(), hidden=32)


def made(config=CONFIG):
    g = torch.Generator().manual_seed(0)
    decoder = Transformer(config, generator=g)
    for p in decoder.parameters():
        p.data += 0.2 * torch.randn(p.shape, generator=g)
    return decoder.eval()


def ids_of(rows, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 300, (rows, 32), generator=g)


@torch.no_grad()
def logits(decoder, ids=None):
    return decoder(ids_of(2, seed=9) if ids is None else ids)


# --- rounding


@pytest.mark.parametrize("config", [CONFIG, MIXTURE], ids=["dense", "mixture"])
def test_matrices_of_the_blocks_are_rounded_and_nothing_else(config):
    decoder = made(config)
    before = {name: w.clone() for name, w in decoder.state_dict().items()}
    few = round_decoder(decoder, Grid(3, 8))
    after, num_others = few.decoder.state_dict(), 0
    for name, w in before.items():
        assert torch.equal(decoder.state_dict()[name], w)
        if name in few.matrices:
            on_grid = nearest(w.flatten(0, -2), Grid(3, 8)).weights().view(w.shape)
            assert torch.equal(after[name], on_grid)
            assert not torch.equal(after[name], w)
        else:
            assert torch.equal(after[name], w)
            num_others += w.numel()
    kept = {name.split(".")[-1] for name in before.keys() - few.matrices.keys()}
    assert kept == {"embedding", "gain"} | ({"w_router"} if config.num_experts else set())
    assert few.num_others == num_others
    num_rounded = sum(w.numel() for w in before.values()) - num_others
    assert few.num_bytes == num_rounded * (3 + 32 / 8) / 8


@torch.no_grad()
def test_what_the_matrices_read_is_what_the_block_computes():
    decoder, ids = made(), ids_of(2)
    block, x = decoder.blocks[0], decoder.embedding[ids]
    read = inputs_of(block, x, decoder.rotations_of(32))
    attended = x + read["heads"] @ block.attention.w_o.T
    out = attended + read["hidden"] @ block.feed_forward.w_down.T
    assert torch.allclose(out, block(x, decoder.rotations_of(32)), atol=1e-5)
    assert torch.equal(read["normed"], block.attention_norm(x))
    assert torch.allclose(read["transformed"], block.feed_forward_norm(attended), atol=1e-5)
    assert READ_BY.keys() == {n for n, w in block.named_parameters() if w.ndim == 2}


@torch.no_grad()
def is_by_gptq(of):
    """Say whether each block was rounded for what the rounded blocks before it make of the text."""
    decoder, ids, grid = made(), ids_of(6), Grid(3)
    few = of(decoder, grid, ids)
    x = decoder.embedding[ids]
    for layer, block in enumerate(decoder.blocks):
        read = inputs_of(block, x, decoder.rotations_of(32))
        for name, w in block.named_parameters():
            if w.ndim == 2:
                rows = read[READ_BY[name]].flatten(0, 1).double()
                mine = gptq(w, (2 * rows.T @ rows).float(), grid).weights()
                theirs = few.decoder.state_dict()[f"blocks.{layer}.{name}"]
                if (mine - theirs).norm() > 0.03 * theirs.norm():  # a code may tip
                    return False
        x = few.decoder.blocks[layer](x, decoder.rotations_of(32))
    return True


def test_gptq_goes_through_the_blocks_in_order():
    assert is_by_gptq(round_decoder)
    given = ("decoder = copy.deepcopy(decoder)", "given, decoder = decoder, copy.deepcopy(decoder)")
    for edit in (
        ("x_RTD = torch.cat([", "x_RTD = x_RTD if decoder else torch.cat(["),
        ("[block(rows", "[given.blocks[layer](rows"),
        ("READ_BY[name]", "READ_BY[name].replace('transformed', 'normed')"),
        ("hessians.get(name, 0) + 2", "2"),
    ):
        assert not is_by_gptq(edited(round_decoder, given, edit))


def test_gptq_is_nearer_to_the_logits_than_nearest():
    decoder, held_out = made(), ids_of(8, seed=4)
    exact = logits(decoder, held_out)
    errors = [
        float((logits(round_decoder(decoder, Grid(3, 16), text).decoder, held_out) - exact).norm())
        for text in (ids_of(40), None)
    ]
    assert 0 < errors[0] < 0.9 * errors[1]


def test_a_mixture_has_no_gptq_here():
    with pytest.raises(ValueError, match="and this one has experts: round to nearest"):
        round_decoder(made(MIXTURE), Grid(4), ids_of(2))


# --- packed


@pytest.mark.parametrize(
    ("grid", "code_bits"),
    [
        (Grid(2, 16), 4),
        (Grid(4), 4),
        (Grid(4, None, symmetric=True), 4),
        (Grid(3, 1), 8),
        (Grid(5), 8),
        (Grid(8, 8, symmetric=True), 8),
    ],
    ids=str,
)
@pytest.mark.parametrize("config", [CONFIG, MIXTURE], ids=["dense", "mixture"])
def test_a_packed_decoder_holds_bytes_and_has_the_same_logits(config, grid, code_bits):
    few = round_decoder(made(config), grid)
    packed = pack(few)
    assert torch.equal(logits(packed), logits(few.decoder))
    held = sum(w.numel() * w.element_size() for w in packed.parameters())
    numbers = sum(
        code_bits * m.codes_FD.numel() // 8 + 2 * m.scales_FN.numel() * (1 if grid.symmetric else 2)
        for m in few.matrices.values()
    )
    assert held == 4 * few.num_others + numbers
    assert [b.dtype for b in packed.buffers()] == [torch.float32]  # the rotations
    assert not any(w.requires_grad for w in packed.parameters())
    assert all(w.requires_grad for w in few.decoder.parameters())


def test_a_packed_decoder_writes():
    few = round_decoder(made(), Grid(4))
    prompt = torch.tensor([[3, 1, 4]])
    texts = [
        generate(d, prompt, max_new_tokens=12, generator=torch.Generator().manual_seed(0))
        for d in (few.decoder, pack(few))
    ]
    assert torch.equal(*texts)
    assert torch.equal(pack(few).embedding, few.decoder.embedding)


# --- cache


def by_hand(x_BSGK, bits, block, along):
    """Round number by number."""
    out = x_BSGK.clone()
    B, S, G, K = x_BSGK.shape
    for b in range(B):
        for g in range(G):
            groups = (
                [(slice(s, s + block), k) for s in range(0, S, block) for k in range(K)]
                if along == "channel"
                else [(s, slice(k, k + block)) for s in range(S) for k in range(0, K, block)]
            )
            for s, k in groups:
                values = x_BSGK[b, s, g, k]
                low, high = values.min(), values.max()
                d = (high - low) / (2**bits - 1)
                q = ((values - low) / d + 0.5).floor().clamp(0, 2**bits - 1)
                out[b, s, g, k] = d.half().float() * q + low.half().float()
    return out


@pytest.mark.parametrize("along", ["channel", "token"])
def test_a_channel_or_a_token_has_scales_of_its_own(along):
    x = torch.randn(2, 8, 2, 8, generator=torch.Generator().manual_seed(3))
    x[:, :, :, 5] += 9  # an outlier in every token
    made_BSGK = rounded_tokens(x, Grid(3, 4), along)
    assert torch.allclose(made_BSGK, by_hand(x, 3, 4, along), atol=1e-5)
    other = rounded_tokens(x, Grid(3, 4), "token" if along == "channel" else "channel")
    worse = (made_BSGK - x).norm() > (other - x).norm()
    assert bool(worse) == (along == "token")


@torch.no_grad()
def filled(decoder, ids, grid, sizes, **how):
    cache = rounded_cache(decoder, len(ids), grid, **how)
    out = torch.cat([decoder(part, cache=cache) for part in ids.split(sizes, dim=1)], dim=1)
    return cache, out


@torch.no_grad()
def test_a_cache_rounds_what_is_complete_and_leaves_the_newest():
    decoder, ids, grid = made(), ids_of(2), Grid(2, 4)
    exact = decoder.new_cache(2)
    decoder(ids[:, :11], cache=exact)
    for keys, values in (("channel", "token"), ("token", "channel")):
        cache, _ = filled(decoder, ids[:, :11], grid, [10, 1], keys=keys, values=values)
        first = cache[0]  # what its layer sees comes from no cache
        assert first.length == 11
        for kept, whole, along in (
            (first.keys_BSGK, exact[0].keys_BSGK, keys),
            (first.values_BSGK, exact[0].values_BSGK, values),
        ):
            assert torch.allclose(kept[:, :8], by_hand(whole[:, :8], 2, 4, along), atol=1e-5)
            assert torch.allclose(kept[:, 8:11], whole[:, 8:11], atol=1e-5)


def test_a_token_reads_a_rounded_past_and_no_later_token():
    decoder, ids, grid = made(), ids_of(2), Grid(2, 4)
    _, whole = filled(decoder, ids, grid, [32])
    assert torch.allclose(whole, logits(decoder, ids), atol=1e-4)
    _, pieces = filled(decoder, ids, grid, 4)
    _, singly = filled(decoder, ids, grid, 1)
    assert torch.allclose(pieces[:, :4], whole[:, :4], atol=1e-4)
    assert (pieces[:, 4:] - whole[:, 4:]).abs().amax() > 0.05
    assert torch.allclose(pieces, singly, atol=1e-3)
    _, fine = filled(decoder, ids, Grid(8, 4), 4)
    assert (fine - whole).norm() < 0.05 * (pieces - whole).norm()
    ids[:, 20:] = 7
    assert torch.allclose(filled(decoder, ids, grid, 4)[1][:, :20], pieces[:, :20], atol=1e-4)


def test_a_cache_needs_blocks_that_fit():
    decoder = made()
    with pytest.raises(ValueError, match="block must be a number of tokens, got None"):
        rounded_cache(decoder, 1, Grid(4, None))
    with pytest.raises(ValueError, match="blocks of 3 do not divide rows of 8"):
        rounded_cache(decoder, 1, Grid(4, 3))
    rounded_cache(decoder, 1, Grid(4, 3), keys="channel", values="channel")


# --- merge


def test_a_change_below_half_a_step_is_lost_and_whole_steps_stay():
    w = torch.arange(16.0).repeat(3, 2)  # each block of 32 reaches both ends of its grid
    change = torch.zeros(3, 32)
    change[:, 4] = 0.4
    assert merge_loss(w, change, Grid(4)) == MergeLoss(survives=0.0, noise=1.0)
    assert merge_loss(w, 5 * change, Grid(4)) == MergeLoss(survives=1.0, noise=0.0)
    survives, noise = merge_loss(w, 1.5 * change, Grid(4))  # 0.6 becomes 1
    assert (survives, noise) == (pytest.approx(1 / 0.6), pytest.approx(0.4 / 0.6))
