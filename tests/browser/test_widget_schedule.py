"""A widget of chapter 26: its rates and tokens are the package's, and every control obeys."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.course.widgets.schedule import PUBLISHED, TOTAL_TOKENS, ScheduleDesigner
from llmcourse.optim import (
    LLAMA3_405B_BATCHES,
    BatchStage,
    batch_at,
    llama3_405b_rate,
    num_steps_for,
    warmup_cosine,
    warmup_cosine_anneal,
    warmup_stable_decay,
)
from tests.browser.kit import choose, enter, noted, pictured, said, table, value

SMALL = {"peak": 1e-3, "final": 1e-4, "warmup_steps": 10, "num_steps": 100}
SETTINGS = [
    {**SMALL, "shape": "cosine", "decay_steps": 0, "anneal_steps": 0},
    {**SMALL, "shape": "cosine", "warmup_steps": 0, "decay_steps": 0, "anneal_steps": 0},
    {**SMALL, "shape": "cosine", "warmup_steps": 100, "decay_steps": 0, "anneal_steps": 0},
    {**SMALL, "shape": "wsd", "decay_steps": 20, "anneal_steps": 0},
    {**SMALL, "shape": "wsd", "decay_steps": 90, "anneal_steps": 0},
    {**SMALL, "shape": "wsd", "decay_steps": 0, "anneal_steps": 0},
    {**SMALL, "shape": "cosine_anneal", "decay_steps": 0, "anneal_steps": 7},
    {**SMALL, "shape": "cosine_anneal", "decay_steps": 0, "anneal_steps": 0},
    PUBLISHED,
]
STAGES = [[s.from_tokens, s.batch_tokens, s.sequence_length] for s in LLAMA3_405B_BATCHES]
LONG_STEPS = (0, 59, 60, 61, 62, 7_999, 8_000, 342_145, 342_176, 600_000, 1_000_000, 1_199_999)


def rate_at(step, settings):
    """The learning rate of a step by the package's functions."""
    common = {name: settings[name] for name in ("peak", "final", "warmup_steps", "num_steps")}
    if settings["shape"] == "wsd":
        return warmup_stable_decay(step, decay_steps=settings["decay_steps"], **common)
    if settings["shape"] == "cosine_anneal":
        return warmup_cosine_anneal(step, anneal_steps=settings["anneal_steps"], **common)
    return warmup_cosine(step, **common)


def tokens_before(step, stages=LLAMA3_405B_BATCHES):
    """How many tokens were trained on before a step: the inverse of `num_steps_for`."""
    seen = first = 0
    for stage, later in itertools.pairwise(stages):
        end = num_steps_for(later.from_tokens, stages)
        if step < end:
            return seen + (step - first) * stage.batch_tokens
        seen, first = seen + (end - first) * stage.batch_tokens, end
    return seen + (step - first) * stages[-1].batch_tokens


def steps_of(settings):
    if settings["num_steps"] > 1_000:
        return [*LONG_STEPS, *range(1_200_000, 1_200_005)]
    # The package's schedule has no step after the end of a decay of 0 steps.
    after = 1 if settings["shape"] == "wsd" and not settings["decay_steps"] else 3
    return range(settings["num_steps"] + settings["anneal_steps"] + after)


def steps_shown(page):
    return {row[0]: row[1:] for row in table(page, "The schedule at chosen steps")}


# --- what the page is held against


def test_the_published_numbers_are_those_of_the_package():
    for step in steps_of(PUBLISHED):
        assert rate_at(step, PUBLISHED) == llama3_405b_rate(step)


def test_tokens_before_a_step_by_running_the_ramp():
    stages = (
        BatchStage(from_tokens=0, batch_tokens=4, sequence_length=1),
        BatchStage(from_tokens=10, batch_tokens=7, sequence_length=1),
        BatchStage(from_tokens=40, batch_tokens=16, sequence_length=1),
    )
    seen = 0
    for step in range(20):
        assert tokens_before(step, stages) == seen
        seen += batch_at(seen, stages).batch_tokens


@given(step=st.integers(0, 2_000_000))
def test_tokens_before_undoes_num_steps_for(step):
    tokens = tokens_before(step)
    assert num_steps_for(tokens) == step
    assert num_steps_for(tokens + 1) == step + 1


# --- the shipped arithmetic, in Chromium


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: each["shape"])
def test_rates_are_those_of_the_package(arithmetic, settings):
    steps = steps_of(settings)
    found = arithmetic(ScheduleDesigner, "rateAt", [[step, settings] for step in steps])
    expected = [rate_at(step, settings) for step in steps]
    assert found == pytest.approx(expected, rel=1e-12, abs=settings["peak"] * 1e-15)


def test_tokens_and_batches_are_those_of_the_package(arithmetic):
    steps = [*LONG_STEPS, 1_101_000, 1_200_003]
    found = arithmetic(ScheduleDesigner, "tokensBefore", [[step, STAGES] for step in steps])
    assert found == [tokens_before(step) for step in steps]
    batches = arithmetic(ScheduleDesigner, "batchOf", [[step, STAGES] for step in steps])
    assert batches == [batch_at(tokens_before(step)).batch_tokens for step in steps]


def test_steps_for_tokens_are_those_of_the_package(arithmetic):
    edges = [s.from_tokens for s in LLAMA3_405B_BATCHES] + [61 * 2**22, TOTAL_TOKENS]
    tokens = [edge + more for edge in edges for more in (-1, 0, 1, 2**22) if edge + more >= 0]
    found = arithmetic(ScheduleDesigner, "stepsFor", [[each, STAGES] for each in tokens])
    assert found == [num_steps_for(each) for each in tokens]


def test_the_parts_of_a_schedule_cover_it_without_a_gap(arithmetic):
    last = arithmetic(ScheduleDesigner, "lastStep", [[each] for each in SETTINGS])
    for parts, end in zip(
        arithmetic(ScheduleDesigner, "parts", [[each] for each in SETTINGS]), last, strict=True
    ):
        assert parts[0][1] == 0
        assert parts[-1][2] == end
        assert all(a[2] == b[1] for a, b in itertools.pairwise(parts))


def test_the_mean_rate_is_that_of_all_steps(arithmetic):
    few = [each for each in SETTINGS if each["num_steps"] < 1_000]
    found = arithmetic(ScheduleDesigner, "meanShare", [[each] for each in few])
    for settings, share in zip(few, found, strict=True):
        last = settings["num_steps"] + settings["anneal_steps"]
        rates = [rate_at(step, settings) for step in range(last)]
        assert share == pytest.approx(math.fsum(rates) / last / settings["peak"], rel=1e-12)


def test_the_mean_rate_of_a_long_run_is_sampled_finely_enough(arithmetic):
    """Half a cosine has the mean of its ends; warm-up half of the peak."""
    [share] = arithmetic(ScheduleDesigner, "meanShare", [[PUBLISHED]])
    expected = (8_000 * 0.5 + 1_192_000 * 1.01 / 2) / 1_200_003
    assert share == pytest.approx(expected, rel=5e-6)


# --- the page


def test_the_mark_reads_rate_and_tokens(show):
    page = show(ScheduleDesigner(step=550))
    settings = SMALL | {"shape": "cosine", "warmup_steps": 100, "num_steps": 2_000}
    assert rate_at(550, settings) == pytest.approx(8.81076e-4, rel=1e-6)
    assert "rate 8.81076e-4, 88 % of the peak" in said(page)
    assert "9.011 M tokens seen; the next step takes 16.4 k" in said(page)
    enter(page, "at step", "49")
    assert "Step 49 of 2,000, warm-up: rate 5e-4, 50 % of the peak" in said(page)
    assert "the mark is at step 49, rate 5e-4" in pictured(page)
    page.get_by_label("at step", exact=True).press("ArrowRight")
    assert "Step 50 of 2,000" in said(page)


def test_the_mark_follows_the_mouse(show):
    page = show(ScheduleDesigner())
    box = page.locator(".lc-stage svg").first.bounding_box()
    page.mouse.click(box["x"] + 56, box["y"] + 100)
    assert "Step 0 of 2,000" in said(page)
    page.mouse.move(box["x"] + 56, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 16, box["y"] + 100)
    page.mouse.up()
    assert "Step 2,000 of 2,000: rate 1e-4" in said(page)


def test_wsd_is_flat_and_then_falls(show):
    page = show(ScheduleDesigner())
    assert not page.get_by_label("decay, steps", exact=True).is_visible()
    choose(page, "schedule", "wsd")
    assert page.get_by_label("decay, steps", exact=True).is_visible()
    assert "flat: rate 0.001, 100 % of the peak" in said(page)
    assert "go on as long as you like" in said(page)
    enter(page, "at step", "1800")
    assert "decay: rate 5.5e-4, 55 % of the peak" in said(page)
    assert "decay from step 1,600 to 2,000" in pictured(page)


def test_the_405b_has_its_own_numbers_and_batches(show):
    page = show(ScheduleDesigner("llama3_405b", step=4_000))
    assert not page.get_by_label("peak rate", exact=True).is_visible()
    assert "rate 4.001e-5, 50 % of the peak. 33.3 B tokens seen;" in said(page)
    assert "the next step takes 8.39 M" in said(page)
    rows = steps_shown(page)
    assert rows["7,999"][:2] == ["last of warm-up", "0.00008"]
    assert rows["1,200,000"][1] == "8e-7"
    assert rows["1,200,003"][1] == "0"
    assert rows["61"][3:] == ["255,852,544", "8,388,608"]
    stages = "4.19 M tokens from step 0 on, 8.39 M tokens from step 61 on, 16.8 M tokens from step "
    assert f"{stages}{num_steps_for(2_870_000_000_000):,} on" in pictured(page, 1)
    remark = page.locator(".sd-small").text_content()
    assert f"15.6 T tokens are used up at step {num_steps_for(TOTAL_TOKENS):,}" in remark
    assert (
        f"still {llama3_405b_rate(num_steps_for(TOTAL_TOKENS)):.3g}".replace("e-0", "e-") in remark
    )
    assert "252 M tokens, which are 61 steps" in remark


def test_its_numbers_can_be_taken_and_changed(show):
    page = show(ScheduleDesigner("llama3_405b", step=4_000))
    before = said(page)
    page.get_by_role("button", name="Take its numbers as my own").press("Enter")
    assert page.get_by_label("schedule", exact=True).input_value() == "cosine_anneal"
    assert page.get_by_label("batch ramp of the 405B").is_checked()
    assert value(page, "peak rate") == "0.00008"
    assert said(page) == before
    enter(page, "warm-up, steps", "2000")
    assert "Step 4,000 of 1,200,003, cosine" in said(page)


def test_the_ramp_can_be_switched_by_keyboard(show):
    page = show(ScheduleDesigner())
    box = page.get_by_label("batch ramp of the 405B")
    box.focus()
    page.keyboard.press("Space")
    assert "the next step takes 8.39 M" in said(page)
    assert not page.get_by_label("tokens per step", exact=True).is_visible()
    page.keyboard.press("Space")
    enter(page, "tokens per step", "1000")
    assert "1 M tokens seen; the next step takes 1,000" in said(page)


def test_the_first_and_the_last_steps_are_shown_large(show):
    page = show(ScheduleDesigner("llama3_405b"))
    choose(page, "show", "end")
    assert "steps 1,199,994 to 1,200,003" in pictured(page)
    assert page.locator(".lc-stage svg").first.locator("circle").count() == 11
    choose(page, "show", "start")
    assert "steps 0 to 12,002" in pictured(page)
    assert "warm-up" in said(page)


def test_a_kept_curve_is_drawn_dashed_and_read(show):
    page = show(ScheduleDesigner())
    button = page.get_by_role("button", name="Keep this curve")
    button.click()
    assert "a kept curve is dashed" in pictured(page)
    choose(page, "schedule", "wsd")
    assert "rate 0.001, 100 % of the peak" in said(page)
    assert "The kept curve has 5.87" in said(page)
    page.get_by_role("button", name="Let the kept curve go").click()
    assert "kept" not in said(page)


def test_powers_of_ten_on_the_axis(show):
    page = show(ScheduleDesigner("llama3_405b"))
    page.get_by_label("rates in powers of ten").check()
    texts = page.locator(".lc-stage svg").first.locator("text").all_text_contents()
    assert {"≤ 1e-9", "1e-8", "1e-7", "1e-6", "1e-5"} <= set(texts)


def test_what_is_impossible_is_clamped_and_said(show):
    page = show(ScheduleDesigner())
    enter(page, "warm-up, steps", "5000")
    assert "5,000 is not possible (from 0 to 2,000, whole); 2,000 is used." in noted(page)
    enter(page, "steps", "500")
    assert "warm-up, steps: at most 500 now; 500 is used." in noted(page)
    assert value(page, "warm-up, steps") == "500"
    assert "Step 500 of 500" in said(page)
    assert "at step: at most 500 now; 500 is used." in noted(page)
    enter(page, "peak rate", "0.00005")
    assert "final rate: at most 5e-5 now" in noted(page)
    enter(page, "peak rate", "0")
    assert "is not possible" in noted(page)
    assert value(page, "peak rate") == "0.000001"
    enter(page, "warm-up, steps", "400")
    choose(page, "schedule", "wsd")
    assert value(page, "decay, steps") == "100"
    assert "decay, steps: at most 100 now" in noted(page)


# --- Python


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match="shape must be one of cosine, wsd"):
        ScheduleDesigner("linear")


def test_python_clamps_what_the_numbers_do_not_let_be():
    made = ScheduleDesigner("wsd", num_steps=50)
    assert (made.warmup_steps, made.decay_steps) == (50, 0)
    assert "decay, steps: at most 0 now; 0 is used." in made.note
    made.peak = 1e-5
    assert made.final == 1e-5
    assert made.step == 50
