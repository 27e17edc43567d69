"""The widget of chapter 24: the page counts as the package, and every control obeys."""

import itertools

from llmcourse_classroom.widgets.zero import ZeroBars
from llmcourse_labs.scale.arithmetic import STAGES, memory_bytes, traffic_bytes
from tests.browser.hands import by_key, choose, enter, keys, press
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
    sizes = [
        f"stage {n} {size}" for n, size in enumerate(("1.13 TB", "295 GB", "157 GB", "17.6 GB"))
    ]
    holds(pictured(page), ", ".join(sizes))
    holds(pictured(page, 1), "stage 2 278 GB, stage 3 417 GB")
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
