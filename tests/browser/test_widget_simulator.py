"""The simulator of chapter 39: the page computes as the package, and every control obeys.

Mutants that these tests reject: latencies left out, the ring of cp with gradients of 2 bytes, a
head in every stage, messages of dp never hidden, activations of one micro-batch, a block computed
again that keeps all it has, chunks that change nothing, any layout allowed.
"""

import itertools
import math
import random

import pytest

from llmcourse.model import ModelConfig
from llmcourse.parallel.mesh import Split
from llmcourse_classroom.widgets.simulator import (
    OWN,
    PUBLISHED,
    StepSimulator,
    hardware_of,
    shape_of,
    state_of,
)
from llmcourse_labs.scale.cost import HARDWARE, Precision
from llmcourse_labs.scale.simulator import Cluster, simulate
from tests.browser.hands import choose, enter, later, place, press, stop_time, to_the_end
from tests.browser.kit import holds, numbers, pictured, said, table

META = "Llama 3 405B, 16,384 GPUs, 8,192 tokens"


def random_case(rng):
    heads = rng.choice([4, 8, 12, 16])
    config = ModelConfig(
        num_layers=rng.randrange(2, 33),
        width=64 * rng.randrange(1, 200),
        num_heads=heads,
        num_kv_heads=rng.choice([n for n in (1, 2, 4, heads) if heads % n == 0]),
        head_size=rng.choice([32, 64, 128]),
        hidden=64 * rng.randrange(1, 500),
        vocab_size=64 * rng.randrange(8, 2_000),
        context_length=64 * rng.choice([4, 16, 32, 128, 2_048]),
        tied_head=rng.random() < 0.5,
    )
    dp, tp = rng.choice([1, 2, 3, 8]), rng.choice([1, 1, 2, 3, 4, 8])
    pp, chunks = rng.choice([1, 2, 4, 7]), rng.choice([1, 1, 2, 3])
    sequences = rng.choice([1, 2, 4])
    micro_batches = rng.choice([1, 3, pp, 2 * pp, 8 * pp])
    name = rng.choice(list(HARDWARE))
    return config, {
        "model": shape_of(config) | {"T": config.context_length, "beside": rng.random() < 0.3},
        "gpu": name,
        **hardware_of(name),
        "dp": dp,
        "pp": pp,
        "cp": rng.choice([1, 1, 2, 4, 16]),
        "tp": tp,
        "batch": dp * sequences * micro_batches + (rng.random() < 0.05),
        "sequences": sequences,
        "chunks": chunks if pp > 1 or rng.random() < 0.1 else 1,
        "cut": tp > 1 and rng.random() < 0.6,
        "again": rng.choice(["nothing", "attention", "block"]),
        "scores": rng.choice(["fused", "kept", "again"]),
        "overlap": rng.random() < 0.6,
        "zero": rng.randrange(4),
        "number": 2,
        "gradient": rng.choice([2, 4]),
        "parameter": 2,
    }


def packages(config, case):
    per_rank, left = divmod(case["batch"], case["dp"])
    micro_batches, more = divmod(per_rank, case["sequences"])
    axes = {axis: case[axis] for axis in ("dp", "pp", "cp", "tp")}
    if left or more:
        return None
    try:
        split = Split(
            **axes,
            micro_batches=micro_batches,
            chunks=case["chunks"],
            pipeline="interleaved" if case["chunks"] > 1 else "1f1b",
            sequence_parallel=case["cut"],
            replicate_kv=case["tp"] > config.num_kv_heads,
        )
        split.check(config, case["batch"])
    except ValueError:
        return None
    return simulate(
        config,
        split,
        Cluster(accelerator=case["gpu"], num_gpus=math.prod(axes.values())),
        batch_size=case["batch"],
        recompute=case["again"],
        scores=case["scores"],
        side_by_side=case["model"]["beside"],
        overlap=case["overlap"],
        zero_stage=case["zero"],
        precision=Precision(activation=2, gradient=case["gradient"], parameter=2),
    )


def test_steps_are_the_packages_and_so_are_refusals(arithmetic):
    rng = random.Random(39)
    cases = [random_case(rng) for _ in range(800)]
    steps = [packages(*case) for case in cases]
    given = [[{k: v for k, v in case.items() if k != "gpu"}] for _, case in cases]
    refused = arithmetic(StepSimulator, "broken", given)
    assert [said == "" for said in refused] == [step is not None for step in steps]
    legal = [(step, one) for step, one in zip(steps, given, strict=True) if step]
    assert len(legal) > 150
    found = arithmetic(StepSimulator, "simulate", [one for _, one in legal])
    for (step, _), there in zip(legal, found, strict=True):
        seconds = {part: s for part, s in there["seconds"].items() if s}
        assert seconds == pytest.approx(
            {part: s for part, s in step.seconds_by_part.items() if s}, rel=1e-9
        )
        assert there["bytes"] == pytest.approx(step.bytes_by_part, rel=1e-9)
        assert there["mfu"] == pytest.approx(step.mfu, rel=1e-9)
    parts = {part for step, _ in legal for part, s in step.seconds_by_part.items() if s}
    assert {"head", "cp", "tp", "pp", "dp", "bubble", "recomputation", "attention"} <= parts


def published(name):
    state = state_of(PUBLISHED[name])
    shape = StepSimulator(name).shapes[state["shape"]] | {"T": state["length"]}
    case = {k: v for k, v in state.items() if k not in ("shape", "gpu", "length")}
    case |= {"zero": int(case["zero"]), "gradient": int(case["gradient"])}
    return case | {"model": shape, "number": 2, "parameter": 2, **hardware_of(state["gpu"])}


def candidates():
    case = published(META)
    axes = itertools.product((8, 4, 2, 1), (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16))
    for tp, pp, cp in axes:
        chunks = 1 if pp == 1 else min(case["chunks"], case["model"]["L"] // pp)
        sizes = {"tp": tp, "pp": pp, "cp": cp, "dp": 16_384 // (tp * pp * cp)}
        yield case | sizes | {"chunks": chunks, "cut": tp > 1}


def test_the_search_tries_all_legal_meshes_of_as_many_gpus(arithmetic):
    wanted = list(candidates())
    legal = [not why for why in arithmetic(StepSimulator, "broken", [[one] for one in wanted])]
    ((found,),) = [arithmetic(StepSimulator, "meshes", [[published(META)]])]
    assert [one["c"] for one in found] == list(itertools.compress(wanted, legal))
    steps = arithmetic(StepSimulator, "simulate", [[one["c"]] for one in found])
    assert [one["step"] for one in found] == steps


def ranking(arithmetic):
    (found,) = arithmetic(StepSimulator, "meshes", [[published(META)]])
    fit = arithmetic(StepSimulator, "fits", [[one["c"], one["step"]] for one in found])
    names = [" · ".join(f"{a} {one['c'][a]:,}" for a in ("tp", "pp", "cp", "dp")) for one in found]
    return names, [sum(one["step"]["seconds"].values()) for one in found], fit


def test_each_mesh_that_fits_goes_to_its_place_in_the_ranking(show, page, arithmetic):
    names, seconds, fit = ranking(arithmetic)
    page.emulate_media(reduced_motion="reduce")
    show(StepSimulator())
    holds(pictured(page, 2), f"0 of {len(names)} meshes tried; none ranked yet")
    to_the_end(page, f"Tried {len(names)} of {len(names)} meshes")
    best = sorted(itertools.compress(zip(seconds, names, strict=True), fit))
    holds(said(page), f"The fastest that fits: {best[0][1]}, {best[0][0]:.3g} s")
    holds(pictured(page, 2), *(f"{n}: {name}, " for n, (_, name) in enumerate(best[:8], 1)))
    enter(page, "sequences of a step", "1", "breaks a rule")
    holds(pictured(page, 2), "0 of 0 meshes tried")


def test_a_mesh_flies_to_its_place_and_the_slower_ones_make_room(show, arithmetic):
    names, seconds, fit = ranking(arithmetic)
    fitting = list(itertools.compress(range(len(names)), fit))
    late = next(
        n for n, m in zip(fitting[2:], fitting[1:], strict=False) if seconds[n] < seconds[m]
    )
    slower = next(n for n in fitting if n < late and seconds[n] > seconds[late])
    page = show(StepSimulator(tried=late), as_is=True)
    stop_time(page)
    start = [place(page, names[n])[1] for n in (late, slower)]
    press(page, "Step", f"last {names[late]}: {seconds[late]:.3g} s, place ")
    later(page, 80)
    middle = [place(page, names[n])[1] for n in (late, slower)]
    later(page, 1_000)
    end = [place(page, names[n])[1] for n in (late, slower)]
    for was, between, will in zip(start, middle, end, strict=True):
        assert was + 2 < between < will - 2
    assert end[1] > end[0]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_is_the_published_run(arithmetic, name):
    row, case = PUBLISHED[name], published(name)
    step = row.simulated()
    assert case["dp"] * case["pp"] * case["cp"] * case["tp"] == row.num_gpus
    ((there,),) = [arithmetic(StepSimulator, "simulate", [[case]])]
    assert sum(there["seconds"].values()) == pytest.approx(step.seconds, rel=1e-9)
    assert sum(there["bytes"].values()) == pytest.approx(step.memory_bytes, rel=1e-9)


def test_it_says_what_was_published_and_a_change_makes_it_ones_own(show):
    page = show(StepSimulator())
    assert numbers(said(page)) == [16_384, 6.184, 42.2, 6.461, 89.3, 80]
    holds(said(page), "MFU of 42.2 %", "Published: 6.461 s", "it does not fit")
    holds(pictured(page), "products 4 s, attention 0.356 s")
    rows = {row[0]: row[1:] for row in table(page)}
    assert rows["time: bubble"][1] == "11.6 %"
    assert rows["published"] == ["400 TFLOP/s", PUBLISHED[META].source.replace("https://", "")]
    enter(page, "dp: replicas", "256")
    assert page.get_by_label("start from", exact=True).input_value() == OWN
    holds(said(page), "breaks a rule", "8 micro-batches, too few for 16 stages")
    enter(page, "pp: stages", "8")
    assert said(page).startswith("16,384 GPUs take ")
    choose(page, "start from", "PaLM 540B")
    assert numbers(said(page))[:2] == [6_144, 18.59]
    choose(page, "computed again in backward", "nothing")
    assert "Published" not in said(page)
    holds(said(page), "it does not fit")
