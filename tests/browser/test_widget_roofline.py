"""The roofline of chapter 37: the page counts as the package, and every control obeys.

Mutants that these tests reject: float32 in place of bf16, one product in backward, a cache that is
shared by all sequences, gradients that are sent once, the sum of both times, residual sums of
forward in backward, the loss in decoding.
"""

import pytest

from llmcourse_classroom.widgets.roofline import (
    DECODING,
    SHAPES,
    TRAINING,
    RooflineBoard,
    moved,
    sizes_of,
)
from llmcourse_labs.scale import cost, roofline
from llmcourse_labs.scale.arithmetic.collectives import sent_bytes
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table

CASES = [(1, 1), (3, 17), (64, 8_192), (4_096, 131_072)]


def packages(config, *, decoding, batch, length):
    if decoding:
        return roofline.decode_operations(config, batch_size=batch, length=length)
    return roofline.training_operations(config, batch_size=batch, length=length)


@pytest.mark.parametrize("decoding", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_operations_are_the_packages(arithmetic, name, decoding):
    config = SHAPES[name]()
    asked = [{"decoding": decoding, "batch": b, "length": t} for b, t in CASES]
    calls = [[sizes_of(config), one, moved()] for one in asked]
    for one, rows in zip(asked, arithmetic(RooflineBoard, "operations", calls), strict=True):
        found = {(phase, what): (flop, size) for phase, what, flop, size in rows}
        expected = packages(config, **one)
        assert len(found) == len(rows) == len(expected)
        for o in expected:
            assert found[o.phase, o.name] == pytest.approx((o.flop, o.bytes), rel=1e-12)


def test_times_and_the_roof_are_the_packages(arithmetic):
    cases = [(flop, size) for flop in (0, 1e3, 1e12) for size in (1, 1e6, 1e13)]
    for name, part in cost.HARDWARE.items():
        machine = roofline.accelerator(name)
        gpu = {"peak": part.dense_bf16_flop_per_s, "bandwidth": part.memory_bytes_per_s}
        found = arithmetic(RooflineBoard, "seconds", [[case, gpu] for case in cases])
        for (flop, size), seconds in zip(cases, found, strict=True):
            one = roofline.Operation(
                name="x", phase="decode", flop=flop, bytes=size, eager_bytes=size, calls=0
            )
            assert seconds == pytest.approx(roofline.place(machine, one, fused=True).seconds)
        roof = arithmetic(RooflineBoard, "attainable", [[i, gpu] for i in (0.1, 200, 5e3)])
        assert roof == [roofline.attainable_flop_per_s(machine, i) for i in (0.1, 200, 5e3)]


def test_the_gradients_are_four_bytes_for_each_parameter_behind_twice_the_forward_pass(arithmetic):
    config = SHAPES["Llama 3 8B"]()
    rows = [
        list(row)
        for row in zip(
            *[
                [getattr(o, of) for o in packages(config, decoding=False, batch=2, length=512)]
                for of in ("phase", "name", "flop", "bytes")
            ],
            strict=True,
        )
    ]
    [[flop, sent]] = arithmetic(RooflineBoard, "allReduce", [[rows, sizes_of(config)]])
    assert flop == sum(row[2] for row in rows if row[0] == "backward")
    expected = sent_bytes("all_reduce_ring", 2 * cost.num_parameters(config), 100_000)
    assert sent == pytest.approx(expected, rel=2e-5)


def test_many_tokens_hide_the_gradients_and_few_do_not(show):
    page = show(RooflineBoard(work=TRAINING, batch=1, length=8_192))
    holds(said(page), "32.1 GB of gradients", "642 ms", "the step is network-bound")
    enter(page, "sequences at once", "4", "hidden behind", "the step is not network-bound")
    choose(page, "work", DECODING)
    assert "gradients" not in said(page)


def test_what_is_held_is_weights_and_caches_or_the_state_of_training(arithmetic):
    config = SHAPES["Llama 3 8B"]()
    asked = [{"decoding": d, "batch": 3, "length": 100} for d in (True, False)]
    calls = [[sizes_of(config), one] for one in asked]
    decode, training = arithmetic(RooflineBoard, "heldBytes", calls)
    parameters = cost.num_parameters(config)
    assert decode == 2 * parameters + 300 * cost.kv_cache_bytes_per_token(config)
    assert training == cost.MIXED_TRAINING.total * parameters


def test_the_sentence_has_the_numbers_of_the_chapter(show):
    page = show(RooflineBoard(batch=1))
    holds(said(page), "4.52 ms, 221 tokens a second, 0.35 %", "memory is the limit for 100 %")
    enter(page, "sequences at once", "512", "does not fit", "80 GB")
    choose(page, "work", TRAINING)
    enter(page, "sequences at once", "1")
    enter(page, "tokens of each", "8192", "529 ms", "128 GB, which does not fit")


def test_the_table_has_every_operation_with_its_bound(show):
    page = show(RooflineBoard(work=TRAINING, batch=1, length=8_192))
    rows = {(row[1], row[0]): row[2:] for row in table(page)}
    assert (len(rows), rows["optimizer", "AdamW"][3::2]) == (27, ["memory", "13 %"])
    assert rows["forward", "gate, up"][2:4] == ["2,290", "arithmetic"]
    choose(page, "work", DECODING)
    assert {row[1] for row in table(page)} == {"decode"}
    assert "loss" not in {row[0] for row in table(page)}


def test_another_accelerator_moves_the_ridge(show):
    page = show(RooflineBoard())
    holds(pictured(page), "ridge at 295")
    choose(page, "accelerator", "A100", picture=["ridge at 153"])
    choose(page, "model", "stories", picture=["queries"])
