"""roofline: FLOPs are those of `cost`, bytes and calls those that torch makes, limits as in theory.

Mutants that these tests reject: one product in backward; bytes without the result of a product;
an attention that reads a square; a cache that is read once for all sequences, or for every query
head; a master copy that is written and not read; the sum of arithmetic and memory for the larger
of them; a table read between its rows on straight axes; a weight moved for each token; the calls of
one layer for all.  Of the ridge, chapter 37 has checks.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llmcourse import loss, model
from llmcourse.model import Transformer
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_labs.scale import cost, roofline
from llmcourse_labs.scale.roofline.operations import PER_NUMBER
from tests.strategies import small_config
from tools.pages import hardware_card
from tools.runs import compile_runs

CONFIGS = {
    "awkward": small_config(),
    "untied": small_config(tied_head=False, num_layers=3, hidden=28),
    "stories": model.stories(),
    "Llama 3 70B": model.llama3_70b(),
}
LAPTOP = roofline.Machine(
    name="a machine of round numbers",
    products=((10.0, 1e9), (1000.0, 1e11)),
    attention=((64.0, 2e10), (256.0, 4e10)),
    streams=((1e4, 1e11), (1e8, 1e10)),
    call_s=1e-6,
)


def total(operations, field, phase=None):
    return sum(getattr(o, field) for o in operations if phase in (None, o.phase))


def by_part(operations, phase):
    found = {}
    for o in operations:
        if o.phase == phase and o.part:
            found[o.part] = found.get(o.part, 0) + o.flop
    return found


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_flop_of_a_step_are_those_of_cost(config):
    operations = roofline.training_operations(config, batch_size=3, length=7)
    expected = cost.training_flop_by_phase(config, context_length=7)
    for phase in ("forward", "backward"):
        per_token = {part: flop / 21 for part, flop in by_part(operations, phase).items()}
        assert per_token == pytest.approx(expected[phase])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_decoding_has_the_flop_of_a_token_that_sees_the_whole_cache(config):
    operations = roofline.decode_operations(config, batch_size=5, length=9)
    # T keys are the mean number of keys in a sequence of 2 T - 1 tokens.
    expected = cost.forward_flop_by_part(config, context_length=17)
    per_token = {part: flop / 5 for part, flop in by_part(operations, "decode").items()}
    assert per_token == pytest.approx(expected)
    assert {o.name for o in operations} >= {"norms", "head", "attention"}
    assert "loss" not in {o.name for o in operations}


def test_decoding_reads_each_weight_once_and_a_product_moves_three_matrices():
    def moved(batch_size, length):
        how = {"batch_size": batch_size, "length": length}
        return total(roofline.decode_operations(config, **how), "bytes")

    config = CONFIGS["stories"]
    parts = cost.parameters_by_part(config)
    matrices = parts["attention"] + parts["feed_forward"] + config.vocab_size * config.width
    one, two, longer = moved(1, 33), moved(2, 33), moved(1, 34)
    assert one > 2 * matrices
    # A second sequence brings its cache and its activations, and no weight.
    assert longer - one == cost.kv_cache_bytes_per_token(config, bytes_per_number=2)
    assert two - one == one - 2 * matrices
    assert roofline.product(2, 3, 5, number_bytes=4) == (60, 4 * (6 + 15 + 10))
    operations = roofline.training_operations(
        CONFIGS["stories"], batch_size=1, length=1, held=cost.FP32_TRAINING
    )
    down, back = (o for o in operations if o.name == "down")
    assert (down.phase, down.bytes) == ("forward", 4 * 4 * (224 + 224 * 80 + 80))
    assert (back.flop, back.bytes) == (2 * down.flop, 2 * down.bytes)


@pytest.mark.parametrize("held", [cost.FP32_TRAINING, cost.MIXED_TRAINING])
def test_adamw_moves_28_bytes_for_each_parameter(held):
    config = CONFIGS["awkward"]
    adamw = roofline.training_operations(config, batch_size=1, held=held)[-1]
    assert (adamw.name, adamw.bytes) == ("AdamW", 28 * cost.num_parameters(config))
    assert roofline.training_operations(config, batch_size=9, held=held)[-1] == adamw


class Dispatched(TorchDispatchMode):
    """Counts the calls that torch makes, and the bytes that those of single numbers touch."""

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.calls += 1
        skipped = ("mm.", "attention", "gather", "scatter", "view", "_backward", "detach")
        if not function.is_view and not any(part in str(function) for part in skipped):
            touched = [t for t in tree_leaves((args, out)) if isinstance(t, torch.Tensor)]
            self.bytes += sum(t.numel() * t.element_size() for t in touched)
        return out


@pytest.mark.parametrize("num_layers", [1, 3])
def test_calls_and_bytes_are_those_that_torch_makes(num_layers, generator):
    config = small_config(
        num_layers=num_layers, width=64, num_kv_heads=4, head_size=16, hidden=96, vocab_size=50
    )
    decoder = Transformer(config, generator=generator)
    ids = torch.zeros(8, config.context_length, dtype=torch.long)
    loss.cross_entropy(decoder(ids), ids).backward()  # warm
    decoder.zero_grad()
    with Dispatched() as forward:
        mean = loss.cross_entropy(decoder(ids), ids)
    with Dispatched() as backward:
        mean.backward()
    operations = roofline.training_operations(config, batch_size=8, held=cost.FP32_TRAINING)
    assert total(operations, "calls", "forward") == forward.calls
    assert total(operations, "calls", "backward") == backward.calls
    singles = [o for o in operations if not o.part]
    for phase, seen in (("forward", forward), ("backward", backward)):
        assert total(singles, "eager_bytes", phase) == pytest.approx(seen.bytes, rel=0.05)


def test_fused_is_never_more_than_line_by_line():
    for rows in PER_NUMBER.values():
        for name, (_, least, eager, calls) in rows.items():
            assert 1 <= least <= eager, name
            assert calls >= 1, name


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([0.5, 1, 2]))
def test_a_faster_machine_is_never_slower_nor_a_larger_batch_quicker(batch, length, factor):
    few, many = (
        roofline.training_operations(CONFIGS["awkward"], batch_size=size, length=length)
        for size in (batch, batch + 1)
    )
    faster = replace(
        LAPTOP,
        products=tuple((size, 2 * rate) for size, rate in LAPTOP.products),
        streams=tuple((size, factor * rate) for size, rate in LAPTOP.streams),
        call_s=LAPTOP.call_s / 2,
    )
    seconds, flat = roofline.predicted_seconds, roofline.accelerator("A100")
    assert seconds(faster, few) < seconds(LAPTOP, few) or factor < 1
    assert seconds(flat, few) < seconds(flat, many)


def test_without_a_limit_the_other_is_left():
    operations = roofline.training_operations(CONFIGS["stories"], batch_size=2)
    seconds, a100 = roofline.predicted_seconds, roofline.accelerator("A100")
    endless = ((1.0, 1e300),)
    no_memory = replace(a100, streams=endless)
    no_compute = replace(a100, products=endless, attention=endless)
    only_calls = replace(no_compute, streams=endless, call_s=1e-3)
    for found, field, rate in (
        (seconds(no_memory, operations), "flop", 312e12),
        (seconds(no_compute, operations), "eager_bytes", 2.039e12),
        (seconds(no_compute, operations, fused=True), "bytes", 2.039e12),
        (seconds(only_calls, operations), "calls", 1e3),
    ):
        assert found == pytest.approx(total(operations, field) / rate), field


def test_an_operation_takes_the_larger_of_both_and_its_calls():
    moved = {"bytes": 1e8, "eager_bytes": 2e8, "calls": 100, "count": 2}
    operation = roofline.Operation(
        name="made up", phase="forward", flop=2e9, shape=(100, 100, 100), **moved
    )
    placed = roofline.place(LAPTOP, operation)
    assert placed.compute_s == pytest.approx(2e9 / 1e10)  # half-way between 10 and 1000
    assert placed.memory_s == pytest.approx(2e8 / 1e10)  # 1e8 bytes each
    assert placed.seconds == pytest.approx(0.2 + 100e-6)
    assert placed.bound == "compute"
    fused = roofline.place(replace(LAPTOP, products=((1.0, 1e13),)), operation, fused=True)
    assert (fused.bound, fused.calls_s) == ("memory", pytest.approx(2e-6))
    assert roofline.place(replace(LAPTOP, call_s=1), operation).bound == "calls"


@given(st.floats(1e-2, 1e12))
def test_rates_between_rows_lie_between_them(size):
    rate = LAPTOP.bytes_per_s(size)
    assert 1e10 <= rate <= 1e11
    if 1e4 <= size <= 1e8:
        assert rate == pytest.approx(1e11 * (size / 1e4) ** -0.25)
    assert LAPTOP.memory_bytes_per_s == 1e10


def test_where_a_step_of_llama_is_bound_on_an_h100():
    h100, config = roofline.accelerator("H100"), model.llama3_8b()
    step = roofline.training_operations(config, batch_size=1, length=8_192)
    bounds = {(o.phase, o.name): roofline.place(h100, o, fused=True).bound for o in step}
    assert bounds["forward", "gate, up"] == bounds["backward", "queries"] == "compute"
    assert bounds["optimizer", "AdamW"] == bounds["forward", "norms"] == "memory"
    for batch_size, bound in ((1, "memory"), (128, "memory"), (512, "compute")):
        decode = roofline.decode_operations(config, batch_size=batch_size, length=1_024)
        at = {o.name: roofline.place(h100, o, fused=True).bound for o in decode}
        assert (at["gate, up"], at["attention"]) == (bound, "memory")


def test_the_table_holds_one_direction_and_dense_peaks_and_this_machine_is_measured():
    sheets = cost.HARDWARE
    rack = sheets["GB200"]
    assert rack.domain * rack.dense_bf16_flop_per_s == 180e15
    assert rack.domain * rack.memory_bytes == pytest.approx(13.4e12, rel=0.001)
    assert rack.domain * rack.memory_bytes_per_s == 576e12
    both_ways = 2 * rack.domain * rack.link_bytes_per_s
    assert both_ways == pytest.approx(130e12, rel=0.005)
    nvlink = {"V100": 300, "A100": 600, "H100": 900, "H200": 900, "H800": 400, "B200": 1_800}
    for name, gb_both_ways in nvlink.items():
        assert 2 * sheets[name].link_bytes_per_s == gb_both_ways * 1e9
        assert sheets[name].domain == 8
    for sheet in sheets.values():
        assert sheet.memory_bytes_per_s > sheet.link_bytes_per_s > sheet.network_bytes_per_s > 0
    assert 8 * sheets["H100"].network_bytes_per_s == 400e9  # bits: one card for each GPU
    machine = roofline.measured_machine(rounds=1)
    for rates in (machine.products, machine.attention, machine.streams):
        assert all(math.isfinite(rate) and rate > 1e6 for _, rate in rates)
    assert 1e-8 < machine.call_s < 1
    assert machine.peak_flop_per_s == max(rate for _, rate in machine.products)
    assert "1 thread)" in machine.name
    assert roofline.median_seconds(lambda: None, rounds=3) >= 0


def test_the_card_of_hardware_has_every_accelerator_and_is_fresh(capsys):
    rows = hardware_card.card().split("## Accelerators")[1].split("A *link*")[0].splitlines()
    assert [row.split(" | ")[0][2:] for row in rows if row.startswith("| ")][1:] == [
        part.name for part in cost.HARDWARE.values()
    ]
    gb200 = next(row for row in rows if "GB200" in row)
    assert gb200.endswith("| 2,500 | 186 | 8 | 312 | 900 | 72 | 50 | 1,200 |")
    assert hardware_card.main(["--check"]) == 0
    assert "fresh" in capsys.readouterr().out


def test_the_units_are_worked_out_right():
    """With a pencil's numbers; MFU, PF-days and days also stand in chapter 35."""
    table = hardware_card.card().split("## Units")[1].split("## Rules")[0]
    lines = {row.split(" | ")[0][2:]: row for row in table.splitlines() if row.startswith("| ")}
    flop = 6 * 405.85e9 * 15.6e12
    hours = flop / 0.4 / 989.4e12 / 3600
    products = 8_030_261_248 - 128_256 * 4_096  # the embedding is only looked up
    per_token = 6 * products + 12 * 32 * 4_096 * (8_192 + 1) / 2
    for unit, says in {
        "FLOP": f"takes {per_token / 1e9:.1f} · 10⁹",
        "FLOP/s, TFLOP/s, PFLOP/s": f"on {989.4e12 / per_token:,.0f} tokens in a second",
        "MFU": f"{flop / 1e24:.1f} · 10²⁴ FLOPs: {flop / 30.84e6 / 36 / 989.4e12:.0f} %",
        "PF-day": f"314 · 10²¹ FLOPs are {6 * 174.6e9 * 300e9 / 8.64e19:,.0f} PF-days",
        "GB, TB": "are 16.06 GB",
        "GiB": "are 14.96 GiB; 80 · 10⁹ bytes are 74.5 GiB",
        "Gb/s": "in 0.32 s",
        "token": "62.4 TB",
        "nat per token": "perplexity of 7.39",
        "bit per byte": "are 0.721 bits per byte",
        "GPU-hour": f"{hours / 1e6:.1f} million on H100s; on 16,384 of them that is "
        f"{hours / 16_384 / 24:.0f} days",
        "kWh": "takes 0.7 kWh,",
    }.items():
        assert says in lines.pop(unit)
    assert list(lines) == ["unit"]


def test_what_compiling_bought_is_recorded_for_every_shape():
    """Times are of one machine; that bytes are saved, and no FLOPs, holds on all."""
    found = recorded_runs("compiled")
    assert [row["numbers"] for row in found["gates"]] == list(compile_runs.NUMBERS)
    assert [row["shape"] for row in found["steps"]] == list(compile_runs.SHAPES)
    for num_layers, width, length, batch_size in compile_runs.SHAPES.values():
        config = compile_runs.shape(num_layers, width, length)
        operations = roofline.training_operations(config, batch_size=batch_size)
        slow, fast = (
            roofline.predicted_seconds(LAPTOP, operations, fused=fused) for fused in (False, True)
        )
        assert slow > fast > total(operations, "flop") / LAPTOP.peak_flop_per_s
    for row in found["steps"]:
        assert row["eager_s"] > row["compiled_s"] > 0
        assert row["predicted_eager_s"] > row["predicted_fused_s"] > 0
