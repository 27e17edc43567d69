"""optim: what cannot be is refused by name, with the rule and what was given."""

import math

import pytest
import torch

from llmcourse import optim
from llmcourse.model import ModelConfig, Transformer
from llmcourse.optim import precision
from llmcourse.optim.precision import BF16, E2M1, E4M3, FloatFormat, LossScaler, quantize
from llmcourse.optim.stability import SpikeDetector, qk_clip, soft_cap
from llmcourse_labs import study
from llmcourse_labs.study import mup_groups, mup_start, weights
from llmcourse_labs.study.batch_law import BatchLaw, fit_batch_law
from llmcourse_labs.study.noise_scale import noise_scale_from_gradients, noise_scale_from_squares
from llmcourse_labs.study.skip_and_rewind import SkipAndRewind

W = [torch.nn.Parameter(torch.ones(shape)) for shape in ((3, 4), (5,), (2, 3, 2))]
MATRIX, ONES = torch.ones(8, 3), torch.ones(2)
WSD = {"peak": 2.0, "num_steps": 100, "warmup_steps": 10, "decay_steps": 20, "final": 0.4}
ANNEAL = {"peak": 1.0, "num_steps": 10, "warmup_steps": 2, "final": 0.1, "anneal_steps": -1}
FORMAT = {"name": "x", "exponent_bits": 4, "mantissa_bits": 3, "bias": 7}
A, B = {"a": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(1)}
COUNTED = {"a": torch.ones(3), "count": torch.tensor(4)}


def network(*, tied_head=False):
    heads = {"num_heads": 2, "num_kv_heads": 2, "head_size": 8}
    sizes = {"num_layers": 1, "width": 16, "hidden": 32, "vocab_size": 20, "context_length": 16}
    config = ModelConfig(**heads, **sizes, tied_head=tied_head)
    return Transformer(config, generator=torch.Generator().manual_seed(0))


def back(**settings):
    layer = torch.nn.Linear(2, 1)
    return SkipAndRewind(layer, torch.optim.SGD(layer.parameters(), lr=1.0), **settings)


def range_test(step=lambda _: 1.0, *, high=2.0, num_steps=5):
    return study.range_test(step, low=1.0, high=high, num_steps=num_steps)


def squares(*both, small=1, big=4):
    return noise_scale_from_squares(*map(torch.as_tensor, both), small=small, big=big)


REFUSED = [
    (lambda: optim.AdamW(W, lr=0.0), "lr must be above 0"),
    (lambda: optim.AdamW(W, lr=math.nan), "lr must be above 0"),
    (lambda: optim.AdamW(W, lr=1e-3, betas=(1.0, 0.9)), r"betas\[0\] must be below 1"),
    (lambda: optim.AdamW(W, lr=1e-3, betas=(0.9, -0.1)), r"betas\[1\] must be 0 or greater"),
    (lambda: optim.AdamW(W, lr=1e-3, eps=0.0), "eps must be above 0"),
    (lambda: optim.AdamW(W, lr=1e-3, weight_decay=-1.0), "weight_decay must be 0 or greater"),
    (lambda: optim.Lion(W, lr=0.0), "lr must be above 0"),
    (lambda: optim.Lion(W, betas=(1.0, 0.9)), r"betas\[0\] must be below 1"),
    (lambda: optim.Lion(W, weight_decay=-0.1), "weight_decay must be 0 or greater"),
    (lambda: optim.SGD(W, lr=0.1, momentum=1.0), "momentum must be below 1"),
    (lambda: optim.RMSProp(W, lr=0), "lr must be above 0"),
    (lambda: optim.RMSProp(W, lr=1, alpha=1.0), "alpha must be below 1"),
    (lambda: optim.RMSProp(W, lr=1, eps=0.0), "eps must be above 0"),
    (lambda: optim.Adam(W, lr=1, betas=(0.9, 1.0)), r"betas\[1\] must be below 1"),
    (lambda: optim.Adafactor(W, lr=0), "lr must be above 0"),
    (lambda: optim.Adafactor(W, clip=0), "clip must be above 0"),
    (lambda: optim.Adafactor(W, eps=(0.0, 1e-3)), r"eps\[0\] must be above 0"),
    (lambda: optim.Adafactor(W, weight_decay=-1), "weight_decay must be 0 or greater"),
    (lambda: optim.Muon(W), r"matrices alone, got \[\(5,\), \(2, 3, 2\)\]"),
    (lambda: optim.Muon(W[:1], momentum=1), "momentum must be below 1"),
    (lambda: optim.Muon(W[:1], num_steps=0), "num_steps must be 1 or greater"),
    (lambda: optim.newton_schulz(W[0], -1), "num_steps must be 0 or greater"),
    (lambda: optim.clip_by_global_norm(W, 0.0), "max_norm must be above 0"),
    # schedules, batches and rates
    (lambda: optim.warmup_stable_decay(-1, **WSD), "step must be 0 or greater"),
    (lambda: optim.warmup_stable_decay(0, **WSD | {"peak": 0.0}), "peak must be above 0"),
    (lambda: optim.warmup_stable_decay(0, **WSD | {"warmup_steps": 200}), "must be from 0 to 100"),
    (lambda: optim.warmup_stable_decay(0, **WSD | {"decay_steps": 95}), "warmup_steps = 90"),
    (lambda: optim.warmup_cosine_anneal(1, **ANNEAL), "anneal_steps must be 0 or greater"),
    (lambda: optim.batch_at(-1), "no stage has begun"),
    (lambda: optim.num_steps_for(-1), "tokens must be 0 or greater"),
    (lambda: optim.rate_for_batch(1, batch=1, new_batch=0, rule="sqrt"), "new_batch must be above"),
    (lambda: range_test(high=0.5), r"high must be above 1\.0"),
    (lambda: range_test(num_steps=1), "num_steps must be 2"),
    (lambda: range_test(lambda _: math.nan), "before the first update"),
    (lambda: fit_batch_law([2, 8], [10]), "2 batches and 1 numbers"),
    (lambda: fit_batch_law([8, 8], [10, 11]), "two different batches"),
    (lambda: fit_batch_law([2, 0], [10, 5]), "batch must be above 0"),
    (lambda: fit_batch_law([2, 4], [10, -5]), "steps must be above 0"),
    (lambda: fit_batch_law([2, 8], [10, 20]), "steps have to fall"),
    (lambda: fit_batch_law([2, 8], [100, 10]), "not faster than it grows"),
    (lambda: BatchLaw(1, 1).steps(0), "batch must be above 0"),
    (lambda: BatchLaw(1, 1).sequences(0), "batch must be above 0"),
    (lambda: noise_scale_from_gradients(torch.ones(2, 3)), "number of gradients must be 3"),
    (lambda: noise_scale_from_gradients(torch.full((3, 3), math.nan)), "not finite"),
    (lambda: squares([1.0] * 4, [1.0] * 4, small=4), "big must be above 4"),
    (lambda: squares([1.0] * 2, [1.0] * 2), "number of repetitions must be 3"),
    (lambda: squares([math.inf] * 3, [1.0] * 3), "not finite"),
    # widths, stability, weights
    (lambda: mup_groups(network(tied_head=True), lr=0.01, m=2), "build .* with tied_head=False"),
    (lambda: mup_start(network(), m=0), "m must be above 0"),
    (lambda: mup_groups(network(), lr=0, m=2), "lr must be above 0"),
    (lambda: SpikeDetector(window=2), "window must be 3 or greater"),
    (lambda: SpikeDetector(factor=0), "factor must be above 0"),
    (lambda: SpikeDetector(least_rise=-1), "least_rise must be 0 or greater"),
    (lambda: back().rewind(3), "no snapshot"),
    (lambda: back(every=0), "every must be 1 or greater"),
    (lambda: soft_cap(ONES, 0), "cap must be above 0"),
    (lambda: qk_clip(MATRIX, MATRIX, torch.ones(3), 1.0), "3 heads do not divide 8 rows"),
    (lambda: qk_clip(MATRIX, MATRIX[:3], ONES, 1.0), "and 3 of keys"),
    (lambda: qk_clip(MATRIX, MATRIX, ONES, 0), "tau must be above 0"),
    (lambda: weights.update_ratios(A, B), r"only one of the checkpoints has \['b'\]"),
    (lambda: weights.update_ratios(A, {"a": ONES}), r"a is \(1,\) in one checkpoint and \(2,\)"),
    (lambda: weights.changes(A, B), r"only one of the checkpoints has \['b'\]"),
    (lambda: weights.changes(A, {"a": ONES}), r"a is \(1,\) in one checkpoint and \(2,\)"),
    (lambda: weights.interpolate(COUNTED, {"a": torch.ones(3)}, 0.5), "only one of the checkpoint"),
    (lambda: weights.rank_for(MATRIX, 0), "share must be above 0"),
    (lambda: weights.rank_for(MATRIX, 1.1), "share must be at most 1"),
    (lambda: weights.low_rank(MATRIX, -1), "rank must be 0 or greater"),
    (lambda: weights.prune(MATRIX, 1.5), "share must be"),
    (lambda: weights.prune(MATRIX, 0.5, generator=torch.Generator()), "no effect otherwise"),
    (lambda: weights.prune(MATRIX, 0.5, by="random"), "needed for random"),
    # precision
    (lambda: FloatFormat(**FORMAT | {"exponent_bits": 9}), "exponent_bits must be at most 8"),
    (lambda: FloatFormat(**FORMAT | {"mantissa_bits": 0}), "mantissa_bits must be 1 or greater"),
    (lambda: FloatFormat(**FORMAT | {"bias": 0}), "bias must be 1 or greater"),
    (lambda: FloatFormat(**FORMAT | {"has_infinity": False}), "has no infinity"),
    (lambda: FloatFormat(**FORMAT | {"has_nan": False}), "has an infinity, and so it has a NaN"),
    (lambda: precision.encode(torch.zeros(2, dtype=torch.float64), BF16), "float32"),
    (lambda: precision.encode(torch.tensor([math.nan]), E2M1), "e2m1 has no NaN"),
    (lambda: E4M3.value(256), "8 bits, got 256"),
    (lambda: LossScaler(scale=0.0), "scale must be above 0"),
    (lambda: LossScaler(growth=1.0), "growth must be above 1"),
    (lambda: LossScaler(backoff=1.0), "backoff must be below 1"),
    (lambda: LossScaler(growth_interval=0), "growth_interval"),
    (lambda: quantize(torch.ones(2, 6), E4M3, block=4), "must divide the last axis of"),
    (lambda: quantize(torch.ones(2, 6), E4M3, block=(4, 2)), "must divide the last axes of"),
    (lambda: quantize(torch.ones(()), E4M3, block=1), "must divide the last axis of"),
    (lambda: quantize(torch.tensor([1.0, math.nan]), E4M3), "not finite"),
]


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_is_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()
