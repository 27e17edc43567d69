"""precision: rounding by bits equal to torch's casts, scales, master weights, autocast's policy."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import loss, model
from llmcourse.base import checks, runtime
from llmcourse.model import attention, ops
from llmcourse.optim import precision
from llmcourse.optim.precision import BF16, E2M1, E4M3, E5M2, FP16, FP32, encode
from llmcourse_labs import study

DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
NARROW = [BF16, FP16, E4M3, E5M2]
TORCH = dict(zip([fmt.name for fmt in NARROW], DTYPES, strict=True))
each_narrow = pytest.mark.parametrize("fmt", NARROW, ids=lambda fmt: fmt.name)
CODE = {1: torch.uint8, 2: torch.int16}


def every_number(fmt):
    """All numbers of a format, NaN left out, as torch decodes their bits, in float32."""
    dtype = TORCH[fmt.name]
    codes = torch.arange(1 << fmt.bits, dtype=torch.int32).to(CODE[dtype.itemsize])
    numbers = codes.view(dtype).float()
    return numbers[~numbers.isnan()]


def awkward(fmt):
    """Every number, every midpoint, both float32 neighbours of each, and what does not fit."""
    finite = every_number(fmt)
    finite = finite[finite.isfinite()].unique()
    midpoints = ((finite[1:].double() + finite[:-1].double()) / 2).float()
    edge = fmt.largest + (fmt.largest - fmt.value(fmt.largest_code - 1)) / 2  # rounds up from here
    outside = torch.tensor([edge, 2 * fmt.largest, 1e30, 3.4e38, math.inf, 1e-45, 1e-40, 0.0])
    x = torch.cat([finite, midpoints, outside, -outside])
    up, down = (torch.nextafter(x, torch.tensor(s * math.inf)) for s in (1, -1))
    return torch.cat([x, up, down, torch.tensor([math.nan, -math.nan])])


def as_torch(x, fmt):
    return x.to(TORCH[fmt.name]).float()


def same(a, b):
    """Equal as bits, so that -0 is not 0; all NaN count as one."""
    bits_a, bits_b = a.view(torch.int32), b.view(torch.int32)
    return ((bits_a == bits_b) | (a.isnan() & b.isnan())).all()


@each_narrow
def test_rounding_codes_and_numbers_equal_torchs_everywhere_that_matters(fmt):
    x = awkward(fmt)
    assert len(x) > 1_000
    assert same(precision.round_to(x, fmt), as_torch(x, fmt))
    x = x[~x.isnan()]
    dtype = TORCH[fmt.name]
    theirs = x.to(dtype).view(CODE[dtype.itemsize]).long() & ((1 << fmt.bits) - 1)
    assert torch.equal(encode(x, fmt), theirs)
    codes = torch.arange(1 << fmt.bits)
    theirs = codes.int().to(CODE[dtype.itemsize]).view(dtype).float()
    assert same(precision.decode(codes, fmt), theirs)
    assert same(torch.tensor([fmt.value(code) for code in codes.tolist()]).float(), theirs)


@given(bits=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64))
def test_rounding_equals_torchs_cast_on_any_bits(bits):
    x = torch.tensor(bits).to(torch.int32).view(torch.float32)
    for fmt in NARROW:
        assert same(precision.round_to(x, fmt), as_torch(x, fmt))
    assert same(precision.round_to(x, FP32), x)


def truncated(x, fmt):
    significand, exponent, dropped = precision.rounding._taken_apart(x, fmt)
    return precision.rounding._put_together(x, significand >> dropped, exponent, fmt)


def halves_up(x, fmt):
    significand, exponent, dropped = precision.rounding._taken_apart(x, fmt)
    half = torch.where(dropped > 0, 1 << (dropped - 1).clamp(min=0), 0)
    return precision.rounding._put_together(x, (significand + half) >> dropped, exponent, fmt)


def saturates(x, fmt):
    codes = encode(x, fmt)
    return torch.where((codes & (1 << fmt.bits - 1) - 1) == fmt.infinity_code, codes - 1, codes)


MUTANTS = {
    "truncated": truncated,
    "halves up": halves_up,
    "saturates": saturates,
    "no subnormals": lambda x, fmt: encode(x.where(x.abs() >= fmt.smallest_normal, 0 * x), fmt),
    "unsigned zero": lambda x, fmt: encode(x.where(x != 0, 0.0), fmt),
}


@pytest.mark.parametrize("mutant", MUTANTS)
@each_narrow
def test_the_comparison_notices_wrong_rounding(fmt, mutant):
    if mutant == "saturates" and not fmt.has_infinity:
        return
    x = awkward(fmt)
    assert not same(precision.decode(MUTANTS[mutant](x, fmt), fmt), as_torch(x, fmt))


def test_what_is_known_of_the_formats():
    assert [fmt.bits for fmt in (FP32, BF16, FP16, E4M3, E5M2)] == [32, 16, 16, 8, 8]
    for fmt, dtype in ((FP32, torch.float32), (BF16, torch.bfloat16), (FP16, torch.float16)):
        info = torch.finfo(dtype)
        assert (fmt.largest, fmt.smallest_normal, fmt.epsilon) == (info.max, info.tiny, info.eps)
        assert fmt.smallest == info.smallest_normal * info.eps
    assert (E4M3.largest, E4M3.smallest) == (448, 2.0**-9)
    assert (E5M2.largest, E5M2.smallest) == (57_344, 2.0**-16)
    assert precision.bits_of(torch.tensor([1.0, -0.0])).tolist() == [0x3F800000, 0x80000000]
    above = torch.tensor([1e6, math.inf])
    assert precision.round_to(above, E4M3).tolist() == [448, 448]
    assert precision.round_to(above, E5M2).tolist() == [math.inf, math.inf]


@each_narrow
def test_stochastic_rounding_is_right_on_average_and_leaves_numbers_of_the_format(fmt):
    g = torch.Generator().manual_seed(0)
    n = 40_000
    for x in (1.0 + 0.3 * fmt.epsilon, -(3.0 + fmt.epsilon), 2.75 * fmt.smallest, 0.01 / 3):
        rounded = precision.round_to(torch.full((n,), x), fmt, generator=g)
        neighbours = rounded.unique()
        assert len(neighbours) == 2
        distance = float(neighbours[1] - neighbours[0])
        # Five standard deviations of the mean of n draws, each of at most half a distance.
        bound = 5 * 0.5 * distance / n**0.5
        assert abs(float(rounded.double().mean()) - x) < bound
        nearest = precision.round_to(torch.tensor([x]), fmt).double()
        assert abs(float(nearest) - x) > bound
    x = every_number(fmt)
    g = torch.Generator().manual_seed(0)
    assert same(precision.round_to(x, fmt, generator=g), as_torch(x, fmt))


FOUR_BITS = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
"""What the codes 0 to 7 of e2m1 stand for; 8 to 15 are their negatives."""


def by_table(x):
    """The code of the nearest of the fifteen numbers; in the middle the even one."""
    sign = 8 * (math.copysign(1, x) < 0)
    return sign + min(range(8), key=lambda code: (abs(FOUR_BITS[code] - abs(x)), code % 2))


def by_table_halves_up(x):
    sign = 8 * (math.copysign(1, x) < 0)
    return sign + min(range(8), key=lambda code: (abs(FOUR_BITS[code] - abs(x)), -code))


def four_bit_inputs():
    points = torch.tensor(FOUR_BITS)
    x = torch.cat([points, (points[1:] + points[:-1]) / 2, torch.tensor([6.1, 7, 1e3, 1e-40])])
    x = torch.cat([x, *(torch.nextafter(x, torch.tensor(s * math.inf)) for s in (1, -1))])
    return torch.cat([x, -x, torch.randn(200, generator=torch.Generator().manual_seed(0)) * 3])


def test_four_bits_round_as_a_table_of_their_fifteen_numbers_says():
    x = four_bit_inputs()
    codes = encode(x, E2M1).tolist()
    assert codes == [by_table(n) for n in x.tolist()]
    assert codes != [by_table_halves_up(n) for n in x.tolist()]
    values = FOUR_BITS + [-n for n in FOUR_BITS]
    assert precision.decode(torch.arange(16), E2M1).tolist() == values
    assert [E2M1.value(code) for code in range(16)] == values
    assert (E2M1.largest, E2M1.smallest_normal, E2M1.smallest) == (6, 1, 0.5)
    assert precision.round_to(torch.tensor([-math.inf]), E2M1).tolist() == [-6]


def decisions(scaler, steps, theirs):
    """Feed the same good and bad gradients to our scaler and to torch's; return what they did."""
    w = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([w], lr=1.0)
    done = []
    for bad in steps:
        gradient = torch.tensor([0.01, 0.02, math.inf if bad else 0.03])
        before = w.detach().clone()
        if theirs:
            scaler.scale(torch.zeros((), requires_grad=True))  # torch's scaler wants to be used
            w.grad = gradient * scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            scale = scaler.get_scale()
        else:
            w.grad = gradient * scaler.value
            if scaler.unscale([w]):
                optimizer.step()
            scaler.update()
            scale = scaler.value
        done.append((scale, (w.detach() - before).tolist()))
    return done


@given(
    steps=st.lists(st.booleans(), max_size=30),
    interval=st.integers(1, 4),
    start=st.sampled_from([1024.0, 2.0**127]),  # which never becomes infinite
)
def test_the_loss_scaler_decides_as_torchs_does(steps, interval, start):
    theirs = torch.amp.GradScaler("cpu", init_scale=start, growth_interval=interval)
    ours = precision.LossScaler(start, growth_interval=interval)
    assert decisions(ours, steps, theirs=False) == decisions(theirs, steps, theirs=True)


def test_a_scaler_goes_on_where_it_was_saved_and_no_other_order_is_taken():
    one = precision.LossScaler(64.0, growth_interval=3)
    decisions(one, [False, True, False, False], theirs=False)
    other = precision.LossScaler(growth_interval=3)
    other.load_state_dict(one.state_dict())
    rest = [False, False, True]
    assert decisions(other, rest, theirs=False) == decisions(one, rest, theirs=False)
    scaler = precision.LossScaler()
    with pytest.raises(RuntimeError, match="call unscale before update"):
        scaler.update()
    scaler.unscale([])
    with pytest.raises(RuntimeError, match="twice"):
        scaler.unscale([])


SCALES = ["float32", "power of two", "e4m3"]


def uneven(seed=0):
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)) * 1e-3
    x[2] *= 100
    x[5, 7] = 3.0
    return x


def pieces(x, block):
    rows, columns = (1, block) if isinstance(block, int) else block or x.shape
    for i in range(0, x.shape[0], rows):
        for j in range(0, x.shape[1], columns):
            yield (i // rows, j // columns), x[i : i + rows, j : j + columns]


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("block", [None, 4, 32, (4, 16)])
@pytest.mark.parametrize("fmt", [E2M1, E4M3, E5M2, FP16], ids=lambda f: f.name)
def test_every_block_is_divided_by_its_own_scale(fmt, block, scales):
    x = uneven()
    scaled = precision.quantize(x, fmt, block=block, scales=scales)
    numbers, whole = scaled.numbers(), float(x.abs().max()) / fmt.largest / 448
    there = dict(pieces(numbers, block))
    for place, piece in pieces(x, block):
        scale = float(piece.abs().max()) / fmt.largest
        if scales == "power of two":
            scale = 2.0 ** math.ceil(math.log2(scale))
        elif scales == "e4m3":
            scale = whole * float(torch.tensor(scale / whole).to(torch.float8_e4m3fn))
        found = scaled.scales if block is None else scaled.scales[place]
        assert float(found) == pytest.approx(scale, rel=1e-6)
        shares = piece / found if found > 0 else torch.zeros_like(piece)
        assert torch.equal(there[place], precision.round_to(shares, fmt) * found)
    assert not torch.equal(numbers, x)


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("fmt", [E4M3, E5M2], ids=lambda f: f.name)
def test_a_scaled_cast_is_torchs(fmt, scales):
    x = uneven()
    scaled = precision.quantize(x, fmt, block=32, scales=scales)
    spread = scaled.scales.repeat_interleave(32, 1)
    bound = fmt.largest  # torch makes NaN of what is beyond e4m3; ours is the largest
    theirs = (x / spread).clamp(-bound, bound).to(TORCH[fmt.name]).float() * spread
    assert torch.equal(scaled.numbers(), theirs)


def floored(x, fmt, block):
    """A scale that is rounded down, as the standard of 2023 allows: the largest entry overflows."""
    scaled = precision.quantize(x, fmt, block=block, scales="power of two")
    codes = encode(2 * x / precision.scaling._spread(scaled.scales, x.shape), fmt)
    return precision.Scaled(codes, scaled.scales / 2, fmt)


def saturated(scaled, x):
    """Whether an entry stands for less than itself by more than half a distance."""
    return bool(((x.abs() - scaled.numbers().abs()) > 0.51 * E4M3.epsilon * x.abs()).any())


def test_scales_that_are_powers_of_two_fit_eight_bits_and_never_saturate():
    x = uneven() + 1e-4  # nothing subnormal
    scaled = precision.quantize(x, E4M3, block=32, scales="power of two")
    assert torch.equal(scaled.scales.to(torch.float8_e8m0fnu).float(), scaled.scales)
    x[0, 0] = 448 * float(scaled.scales[0, 0])  # exactly the largest number
    again = precision.quantize(x, E4M3, block=32, scales="power of two")
    assert torch.equal(again.scales, scaled.scales)
    assert again.codes[0, 0] == E4M3.largest_code
    large = torch.full((1, 32), 500.0)
    assert not saturated(precision.quantize(large, E4M3, block=32, scales="power of two"), large)
    assert saturated(floored(large, E4M3, 32), large)


@given(power=st.integers(-20, 20))
def test_a_tensor_times_a_power_of_two_has_the_same_codes(power):
    x = uneven()
    powers, e4m3 = (E4M3, 32, "power of two"), (E2M1, 16, "e4m3")
    for fmt, block, scales in (powers, e4m3, (E5M2, None, "float32")):
        one = precision.quantize(x, fmt, block=block, scales=scales)
        other = precision.quantize(x * 2.0**power, fmt, block=block, scales=scales)
        assert torch.equal(one.codes, other.codes)
        assert torch.equal(one.scales * 2.0**power, other.scales)


@pytest.mark.parametrize(("fmt", "block"), [(E4M3, 32), (E2M1, 32), (E2M1, (4, 4)), (E5M2, None)])
def test_what_was_rounded_with_powers_of_two_stays(fmt, block):
    once = precision.quantize(uneven(), fmt, block=block, scales="power of two").numbers()
    again = precision.quantize(once, fmt, block=block, scales="power of two").numbers()
    assert torch.equal(once, again)


def test_blocks_protect_small_numbers_and_one_too_small_for_its_scale_becomes_zero():
    x = torch.ones(1, 32)
    x[0, 16:] = 1e-7  # e4m3 has nothing between 0 and 2^-9, and the largest scale is 448
    scaled = precision.quantize(x, E2M1, block=16, scales="e4m3")
    assert scaled.scales.tolist()[0][1] == 0
    assert torch.equal(scaled.numbers(), (x == 1).float())
    zeros = torch.zeros(2, 16)
    for fmt, scales in itertools.product((E2M1, E4M3), SCALES):
        assert torch.equal(precision.quantize(zeros, fmt, block=4, scales=scales).numbers(), zeros)
    x = torch.randn(1, 256, generator=torch.Generator().manual_seed(1))
    x[0, 3] = 1e6
    whole, blocks = (precision.quantize(x, E4M3, block=b).numbers() for b in (None, 32))
    rest = slice(32, None)
    assert checks.relative_error(whole[:, rest], x[:, rest]) > 0.6
    assert checks.relative_error(blocks[:, rest], x[:, rest]) < 0.07


def masters_and_plain(dtype, steps=200, lr=1e-4):
    g = torch.Generator().manual_seed(0)
    start = (torch.randn(50, generator=g) + 3).to(dtype)
    with_master, alone = (torch.nn.Parameter(start.clone()) for _ in range(2))
    wide = torch.nn.Parameter(start.float())
    optimizers = [study.MasterWeights([with_master], torch.optim.SGD, lr=lr)]
    optimizers += [torch.optim.SGD([w], lr=lr) for w in (alone, wide)]
    for _ in range(steps):
        gradient = (1 + torch.rand(50, generator=g)).to(dtype)
        for w, optimizer in zip((with_master, alone, wide), optimizers, strict=True):
            w.grad = gradient.to(w.dtype)
            optimizer.step()
    return start.float(), with_master, alone, wide, optimizers[0]


def test_masters_follow_float32_where_bf16_stands_still_and_go_on_from_a_saved_state():
    start, with_master, alone, wide, optimizer = masters_and_plain(torch.bfloat16)
    assert torch.equal(alone.float(), start)
    assert torch.equal(optimizer.masters[0], wide)
    assert torch.equal(with_master, wide.bfloat16())
    assert not torch.equal(with_master.float(), start)
    _, w, _, _, one = masters_and_plain(torch.bfloat16, steps=5)
    again = torch.nn.Parameter(torch.zeros(50, dtype=torch.bfloat16))
    other = study.MasterWeights([{"params": [again], "lr": 1e-3}], torch.optim.SGD, lr=1e-4)
    other.load_state_dict(one.state_dict())
    assert torch.equal(again, w)
    assert torch.equal(other.masters[0], one.masters[0])
    assert other.param_groups[0]["lr"] == 1e-4
    narrow = study.MasterWeights([torch.zeros(3)], torch.optim.SGD, lr=1.0)
    with pytest.raises(ValueError, match="shapes"):
        narrow.load_state_dict(one.state_dict())
    moved, stays = (torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)) for _ in range(2))
    optimizer = study.MasterWeights([moved, stays], torch.optim.SGD, lr=0.5)
    moved.grad = torch.ones(2, dtype=torch.bfloat16)
    optimizer.step()
    assert (moved.tolist(), stays.tolist()) == ([0.5, 0.5], [1, 1])
    optimizer.zero_grad(set_to_none=False)
    assert moved.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert moved.grad is None


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


TARGETS = torch.tensor([1, 4, 2])
EMBEDDINGS = [lambda w: ops.embedding(TARGETS, w), lambda w: F.embedding(TARGETS, w)]
TURNED = randn(1, 3, 2, 8).bfloat16()
HEADS = [randn(1, 3, 2, 8, seed=seed) for seed in range(3)]
FORMS = {  # ours and torch's, where it has one
    "linear": ([ops.linear, F.linear], randn(3, 8), randn(6, 8)),
    "attention": ([attention.attention_sdpa, F.scaled_dot_product_attention], *HEADS),
    "embedding": (EMBEDDINGS, randn(6, 8)),
    "residual sum": ([torch.add], randn(3, 8), randn(3, 8).bfloat16()),
    "silu gate": ([ops.silu_gate], randn(3, 8).bfloat16(), randn(3, 8, seed=1).bfloat16()),
    "rotation": ([lambda q: attention.rope_adjacent(q, attention.rope_rotations(8, 3))], TURNED),
    "RMSNorm": ([ops.rmsnorm], randn(3, 8).bfloat16(), randn(8)),
    "cross-entropy": ([loss.cross_entropy, F.cross_entropy], randn(3, 8).bfloat16(), TARGETS),
}


@pytest.mark.parametrize("name", precision.POLICY)
def test_our_layers_and_torchs_follow_the_policy(name):
    functions, *inputs = FORMS[name]
    widest = max((x.dtype for x in inputs if x.is_floating_point()), key=lambda d: d.itemsize)
    expected = {"lower": torch.bfloat16, "float32": torch.float32, "widest": widest}
    for function in functions:
        assert precision.autocast_dtype(function, *inputs) == expected[precision.POLICY[name]]


def test_a_decoder_under_autocast_is_near_float32_and_its_gradients_are_float32():
    decoder = model.Transformer(model.tiny(), generator=runtime.generator(0))
    g = runtime.generator(1)
    ids, targets = (torch.randint(0, 300, (3, 16), generator=g) for _ in range(2))

    def gradients(enabled):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            value = loss.cross_entropy(decoder(ids), targets)
        return value.detach(), torch.autograd.grad(value, list(decoder.parameters()))

    wide, narrow = gradients(False), gradients(True)
    assert narrow[0].dtype == torch.float32
    assert 0 < abs(float(wide[0] - narrow[0])) < 1e-3
    for ours, theirs in zip(narrow[1], wide[1], strict=True):
        assert ours.dtype == torch.float32
        assert 0 < checks.relative_error(ours, theirs) < 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_norms_rotations_and_losses_sum_in_float32_and_round_once(dtype):
    x, gain = randn(4, 8_192, dtype=dtype), (1 + 0.1 * randn(8_192, seed=1)).to(dtype)
    theirs = F.rms_norm(x.double(), (8_192,), gain.double(), 1e-5)
    assert checks.relative_error(ops.rmsnorm(x, gain).double(), theirs) < torch.finfo(dtype).eps
    logits, targets = 3 * randn(5, 500, dtype=dtype), torch.arange(5)
    exact = F.cross_entropy(logits.double(), targets)
    ours = loss.cross_entropy(logits, targets)
    assert ours.dtype == torch.float32
    assert abs(float(ours) - float(exact)) < 1e-5
    q = randn(1, 3, 2, 8, dtype=dtype)
    assert attention.rope_adjacent(q, attention.rope_rotations(8, 3)).dtype == dtype
    x, gain = randn(4, 512, dtype=dtype), (1 + 0.1 * randn(512, seed=1)).to(dtype)
    dy = randn(4, 512, seed=2, dtype=dtype)
    _, saved = ops.rmsnorm_forward(x, gain)
    dx, dgain = ops.rmsnorm_backward(dy, saved)
    wide = [t.double().requires_grad_() for t in (x, gain)]
    F.rms_norm(wide[0], (512,), wide[1], 1e-5).backward(dy.double())
    for ours, theirs in ((dx, wide[0].grad), (dgain, wide[1].grad)):
        assert ours.dtype == dtype
        # One rounding errs by half an epsilon of the entry; the float32 inside by far less.
        error = (ours.double() - theirs).abs() / theirs.abs().clamp(min=1e-3)
        assert error.max() < 0.51 * torch.finfo(dtype).eps
