"""The widget of chapter 24: the page counts as the package, and every control obeys."""

import itertools

import pytest

from llmcourse_classroom.widgets.zero import ZeroBars
from llmcourse_labs.scale.arithmetic import STAGES, memory_bytes, traffic_bytes
from tests.browser.hands import by_key, choose, enter, keys, later, press, stop_time, to_the_end
from tests.browser.kit import holds, noted, pictured, said, table
from tests.browser.twins import agrees, each

SIZES = (1, 7, 8_030_261_248, 70_553_706_496, 405_853_388_800)
CASES = list(itertools.product(SIZES, (1, 2, 3, 15, 64, 512, 16_384), STAGES))


def test_memory_its_three_parts_and_traffic_are_the_packages(arithmetic):
    agrees(arithmetic, ZeroBars, "memory", CASES, memory_bytes)
    agrees(arithmetic, ZeroBars, "traffic", CASES, traffic_bytes, rel=1e-12)
    names = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")
    for case, parts in each(arithmetic, ZeroBars, "kept", CASES):
        for name, size, found in zip(names, (2, 2, 12), parts, strict=True):
            assert found == memory_bytes(*case, **dict.fromkeys(names, 0) | {name: size})


def test_the_fewest_ranks_fit_and_one_less_does_not(arithmetic):
    rooms = (5, 16, 100, 4_000, 15_999, 16_000, 80e9, 141e9, 300e9)
    cases = list(itertools.product((1, 10, 1_000, 70_553_706_496), rooms, STAGES))
    found = arithmetic(ZeroBars, "fewest", [list(case) for case in cases])
    for (parameters, room, stage), ranks in zip(cases, found, strict=True):
        assert memory_bytes(parameters, ranks or 10**15, stage) <= room or ranks is None
        assert ranks in (None, 1) or memory_bytes(parameters, ranks - 1, stage) > room
        assert ranks or memory_bytes(parameters, 10**15, stage) > room
    assert 20 < found.count(None) < len(found) - 20


def test_a_stage_by_keyboard_and_the_fewest_ranks_by_a_button(show):
    page = show(ZeroBars())
    holds(said(page), "Stage 0, plain data parallelism, on 64 ranks", "1.13 TB", "1.05 TB too much")
    sizes = [f"stage {n} {s}" for n, s in enumerate(("1.13 TB", "295 GB", "157 GB", "17.6 GB"))]
    holds(pictured(page), ", ".join(sizes))
    holds(pictured(page, 2), "stage 2 278 GB, stage 3 417 GB")
    bars = page.locator(".lc-stage svg").first.locator("path[fill=none]:not(defs path)")
    assert bars.count() == 0
    page.get_by_label("zoom to the memory of a GPU").check()
    assert bars.count() == 3  # stage 3 is all there
    keys(page, "stage", "ArrowRight " * 3)
    holds(said(page), "Stage 3, weights too, on 64 ranks", "17.6 GB", "fits, 62.4 GB")
    holds(said(page), "fits from 15 ranks", "half as much again")
    bold = page.locator(".lc-stage svg text[style*='700']").all_text_contents()
    assert bold == ["stage 3: 17.6 GB, fits", "stage 3 sends 417 GB: 8.33 s"]
    by_key(page, "Fewest ranks that fit", "75.3 GB on each GPU: fits", values={"ranks": "15"})
    enter(page, "stage", "2")
    press(page, "Fewest ranks that fit")
    holds(noted(page), "No number of ranks", "stage 2")
    holds(said(page), "141 GB are not divided")


def test_link_memory_and_a_replica_over_several_gpus_obey(show):
    page = show(ZeroBars(stage=1))
    enter(page, "link, GB/s", "100", "2.78 s.")
    enter(page, "memory of a GPU, GB", "300", "fits, 4.56 GB")
    enter(page, "memory of a GPU, GB", "80")
    enter(page, "ranks", "512")
    enter(page, "GPUs for one replica", "32", "512 ranks, 32 GPUs each, 16,384 in all")
    holds(said(page), "8.87 GB on each GPU: fits", "fits from 1 rank on")


def test_the_table_has_the_exact_numbers(show):
    page = show(ZeroBars("llama3_8b", ranks=3, stage=2))
    rows = table(page)
    for stage, row in enumerate(rows):
        assert row[4] == f"{memory_bytes(8_030_261_248, 3, stage):,}"
        assert row[6] == f"{traffic_bytes(8_030_261_248, 3, stage):,.0f}"
    assert [row[5] for row in rows] == ["no", "yes", "yes", "yes"]
    choose(page, "model", "llama3_405b", "TB on each GPU")


def parts_sent(stage):
    sent = 0
    for what, *layer in MOMENTS[stage]:
        layers = 1 if layer else 3
        if what == "gather":
            sent += 3 * layers
        if what == "reduce":
            sent += 3 * layers * (1 if stage else 2)  # and the sum is sent back
    return sent


FORWARD = [["forward", n] for n in range(3)]
BACKWARD = [["backward", n] for n in (2, 1, 0)]
MOMENTS = {
    0: [["rest"], *FORWARD, *BACKWARD, ["reduce"], ["update"]],
    1: [["rest"], *FORWARD, *BACKWARD, ["reduce"], ["update"], ["gather"]],
    2: [
        ["rest"],
        *FORWARD,
        *(each for _, n in BACKWARD for each in (["backward", n], ["reduce", n])),
        ["update"],
        ["gather"],
    ],
    3: [
        ["rest"],
        *(each for _, n in FORWARD for each in (["gather", n], ["forward", n])),
        *(each for _, n in BACKWARD for each in (["gather", n], ["backward", n], ["reduce", n])),
        ["update"],
    ],
}


def test_the_step_sends_what_the_bars_say(arithmetic):
    found = arithmetic(ZeroBars, "moments", [[stage, 3] for stage in STAGES])
    assert found == [MOMENTS[stage] for stage in STAGES]
    for stage in STAGES:  # (4 - 1) / 4 of 2 bytes for each of 12 parts, once, twice or three times
        assert parts_sent(stage) * 2 == pytest.approx(traffic_bytes(12, 4, stage))


def test_what_ranks_have_after_each_moment(arithmetic):
    cases = [(stage, moment) for stage in STAGES for moment in range(len(MOMENTS[stage]))]
    given = [[stage, 3, moment] for stage, moment in cases]
    found = dict(zip(cases, arithmetic(ZeroBars, "held", given), strict=True))
    for (stage, moment), (weights, gradient) in found.items():
        what, *layer = MOMENTS[stage][moment]
        if stage == 3:
            whole = [*layer] if what == "gather" else []
            assert [n for n in range(3) if weights[n] == "all"] == whole  # one layer at a time
        else:
            assert weights == ["own" if what == "update" and stage else "all"] * 3
        if what in ("rest", "update", "forward"):
            assert gradient == ["none"] * 3
        if what == "backward" and stage >= 2:
            assert [n for n in range(3) if gradient[n] == "all"] == layer  # the others are divided
    assert (found[1, 7][1], found[0, 7][1]) == (["own"] * 3, ["all"] * 3)


PARTS = """() => [...document.querySelectorAll("[data-way]")].map((one) => {
  const of = (text) => text.match(/[\\d.]+/g).map(Number);
  return [of(one.dataset.way.split(" ")[0]), of(one.getAttribute("transform")),
    of(one.dataset.way.split(" ").at(-1))];
})"""


def test_parts_of_a_layer_fly_to_all_ranks_and_are_freed_after_it(show):
    page = show(ZeroBars(stage=3), as_is=True)
    stop_time(page)
    holds(pictured(page, 1), "stage 3 on four ranks, moment 0 of 16", "Rank 0 holds 6 of 36 pieces")
    press(page, "Step", "Each rank sends its part of the weights of layer 1")
    later(page, 400)
    on_its_way = page.evaluate(PARTS)
    assert len(on_its_way) == 12
    for (left, top), (x, y), (right, end) in on_its_way:
        assert x == left == right
        assert min(top, end) + 1 < y < max(top, end) - 1
    later(page, 1_500)
    for _, now, there in page.evaluate(PARTS):
        assert now == there
    holds(pictured(page, 1), "Rank 0 holds 9 of 36 pieces")
    press(page, "Step", "computes layer 1 on its own rows, and frees")
    leaving = page.locator("[data-gone]")
    assert leaving.count() == 12
    later(page, 400)
    assert 0 < float(leaving.first.get_attribute("opacity")) < 1
    later(page, 1_500)
    assert leaving.count() == 0
    holds(pictured(page, 1), "Rank 0 holds 6 of 36 pieces")


def test_a_step_goes_on_and_begins_again_when_the_stage_changes(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(ZeroBars(stage=2))
    to_the_end(page, "Each rank sends its part of the weights of all layers")
    holds(pictured(page, 1), "moment 11 of 11", "Rank 0 holds 15 of 36 pieces")
    assert page.locator("[data-gone]").count() == 0
    keys(page, "stage", "ArrowRight")
    holds(pictured(page, 1), "stage 3 on four ranks, moment 0 of 16: between two steps")
    press(page, "Step")
    for _, now, there in page.evaluate(PARTS):
        assert now == there
