"""Every kind of block gives exactly what the package `gguf` makes of it.

Those that are written have its bytes.
"""

import gguf
import numpy as np
import pytest
import torch

from llmcourse_labs.real.gguf_blocks import KINDS, dequantise, quantise_q4_1, quantise_q8_0

SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}
"""Where a float16 stands in a block: any, but finite, of all sizes."""


def blocks(kind, seed, count=600):
    draw = np.random.default_rng(seed)
    made = draw.integers(0, 256, (count, KINDS[kind].num_bytes), dtype=np.uint8)
    if kind in SCALES:
        for place in SCALES[kind]:
            scales = (draw.normal(size=count) * 10.0 ** draw.integers(-8, 4, count)).astype("<f2")
            made[:, place : place + 2] = scales.view(np.uint8).reshape(-1, 2)
    else:  # every bit pattern but those of no number
        made[~np.isfinite(gguf.dequantize(made, gguf.GGMLQuantizationType[kind])[:, 0])] = 0
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_weights_equal_those_of_gguf(kind, nth_seed):
    given = blocks(kind, nth_seed)
    theirs = gguf.dequantize(given, gguf.GGMLQuantizationType[kind])
    ours_NW = dequantise(torch.from_numpy(given), kind)
    assert ours_NW.dtype == torch.float32
    assert torch.equal(ours_NW, torch.from_numpy(theirs))
    assert ours_NW.unique().numel() > 300


def test_numbers_and_sizes_are_those_of_gguf():
    for name, kind in KINDS.items():
        theirs = gguf.GGMLQuantizationType[name]
        assert kind == (theirs, *gguf.GGML_QUANT_SIZES[theirs])


def test_q8_0_is_written_as_gguf_writes_it(nth_seed):
    draw = np.random.default_rng(nth_seed)
    weights = (draw.normal(size=(500, 32)) * 10.0 ** draw.integers(-6, 3, (500, 1))).astype("f4")
    weights[0] = 0
    halves = np.append(draw.integers(-126, 126, (99, 31)) + 0.5, np.full((99, 1), 127.0), axis=1)
    weights[1:50] = halves[:49]
    weights[50:100] = halves[49:] * draw.uniform(0.1, 3, (50, 1))  # by rounding on either side
    theirs = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    assert torch.equal(quantise_q8_0(torch.from_numpy(weights)), torch.from_numpy(theirs))


def test_q4_1_is_written_as_gguf_writes_it(nth_seed):
    draw = np.random.default_rng(nth_seed)
    weights = draw.normal(size=(500, 32)) + draw.normal(size=(500, 1))
    weights = (weights * 10.0 ** draw.integers(-6, 3, (500, 1))).astype("f4")
    weights[0], weights[1] = 0, -3
    weights[2:60, :30] = draw.integers(0, 15, (58, 30)) + 0.5  # halves
    weights[2:60, 30:] = [0, 15]
    theirs = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q4_1)
    assert torch.equal(quantise_q4_1(torch.from_numpy(weights)), torch.from_numpy(theirs))


def test_other_kinds_and_sizes_are_refused():
    for kind, size in (("Q5_K", 176), ("Q4_0", 20)):
        with pytest.raises(ValueError, match=f"one of F32, .*got '{kind}' and blocks of {size}"):
            dequantise(torch.zeros(2, size, dtype=torch.uint8), kind)
