"""The widget of chapter 24: the page counts as the package, and every control obeys."""

import itertools

import pytest

from llmcourse.course.widgets.zero import ZeroBars
from llmcourse.parallel import zero
from tests.browser.kit import enter, noted, pictured, said, table, value
from tests.browser.references import fewest_ranks

SIZES = (1, 7, 8_030_261_248, 70_553_706_496, 405_853_388_800)
CASES = list(itertools.product(SIZES, (1, 2, 3, 15, 64, 512, 16_384), zero.STAGES))


# --- the arithmetic


def test_memory_is_the_packages(arithmetic):
    got = arithmetic(ZeroBars, "memory", [list(case) for case in CASES])
    assert got == [zero.memory_bytes(*case) for case in CASES]


def test_the_three_parts_are_the_packages(arithmetic):
    names = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")
    got = arithmetic(ZeroBars, "kept", [list(case) for case in CASES])
    for parts, case in zip(got, CASES, strict=True):
        for name, size, found in zip(names, (2, 2, 12), parts, strict=True):
            assert found == zero.memory_bytes(*case, **dict.fromkeys(names, 0) | {name: size})


def test_traffic_is_the_packages(arithmetic):
    got = arithmetic(ZeroBars, "traffic", [list(case) for case in CASES])
    assert got == pytest.approx([zero.traffic_bytes(*case) for case in CASES], rel=1e-12)


def test_the_fewest_ranks_fit_and_one_less_does_not(arithmetic):
    cases = [
        (parameters, room, stage)
        for parameters in (1, 10, 1_000, 70_553_706_496)
        for room in (5, 16, 100, 4_000, 15_999, 16_000, 80e9, 141e9, 300e9)
        for stage in zero.STAGES
    ]
    found = [fewest_ranks(*case) for case in cases]
    for (parameters, room, stage), ranks in zip(cases, found, strict=True):
        if ranks is None:
            assert zero.memory_bytes(parameters, 10**15, stage) > room
            continue
        assert zero.memory_bytes(parameters, ranks, stage) <= room
        assert ranks == 1 or zero.memory_bytes(parameters, ranks - 1, stage) > room
    assert 20 < sum(ranks is None for ranks in found) < len(found) - 20
    assert arithmetic(ZeroBars, "fewest", [list(case) for case in cases]) == found


# --- the page


def test_the_start_is_plain_data_parallelism_and_does_not_fit(show):
    page = show(ZeroBars())
    assert said(page).startswith(
        "Stage 0, plain data parallelism, on 64 ranks: 1.13 TB on each GPU: 1.05 TB too much."
    )
    assert "stage 0 1.13 TB, stage 1 295 GB, stage 2 157 GB, stage 3 17.6 GB" in pictured(page)
    assert "stage 2 278 GB, stage 3 417 GB" in pictured(page, 1)


def test_a_stage_by_keyboard_changes_sentence_and_outline(show):
    page = show(ZeroBars())
    slider = page.get_by_label("stage", exact=True)
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert "Stage 3, weights too, on 64 ranks: 17.6 GB on each GPU: fits, 62.4 GB" in said(page)
    assert "It fits from 15 ranks on." in said(page)
    assert "half as much again" in said(page)
    bold = page.locator(".lc-stage svg text[style*='700']").all_text_contents()
    assert bold == ["stage 3: 17.6 GB, fits", "stage 3 sends 417 GB: 8.33 s"]


def test_the_fewest_ranks_by_a_button(show):
    page = show(ZeroBars(stage=3))
    page.get_by_role("button", name="Fewest ranks that fit").press("Enter")
    assert value(page, "ranks") == "15"
    assert "75.3 GB on each GPU: fits" in said(page)
    enter(page, "stage", "2")
    page.get_by_role("button", name="Fewest ranks that fit").click()
    assert "No number of ranks is enough at stage 2" in noted(page)
    assert "141 GB are not divided" in said(page)


def test_a_replica_over_several_gpus(show):
    page = show(ZeroBars(stage=1, ranks=512))
    enter(page, "GPUs for one replica", "32")
    assert "on 512 ranks, 32 GPUs each, 16,384 in all: 8.87 GB on each GPU: fits" in said(page)
    assert "It fits from 1 rank on." in said(page)


def test_the_table_has_the_exact_numbers(show):
    made = ZeroBars("llama3_8b", ranks=3, stage=2)
    page = show(made)
    rows = table(page)
    for stage, row in enumerate(rows):
        assert row[4] == f"{zero.memory_bytes(8_030_261_248, 3, stage):,}"
        assert row[6] == f"{zero.traffic_bytes(8_030_261_248, 3, stage):,.0f}"
    assert [row[5] for row in rows] == ["no", "yes", "yes", "yes"]
    page.get_by_label("model", exact=True).select_option("llama3_405b")
    assert "TB on each GPU" in said(page)


def test_link_and_memory_obey(show):
    page = show(ZeroBars(stage=1))
    enter(page, "link, GB/s", "100")
    assert "2.78 s." in said(page)
    enter(page, "memory of a GPU, GB", "300")
    assert "fits, 4.56 GB to spare" in said(page)


def test_zoom_cuts_the_long_bars(show):
    page = show(ZeroBars())
    bars = page.locator(".lc-stage svg").first.locator("path[fill=none]:not(defs path)")
    assert bars.count() == 0
    page.get_by_label("zoom to the memory of a GPU").check()
    assert bars.count() == 3  # stage 3 is all there


# --- Python


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match="preset must be one of"):
        ZeroBars("tiny")
