"""A widget of chapter 26: its rates and tokens are the package's, and every control obeys."""

import itertools
import math

import pytest

from llmcourse import optim
from llmcourse_classroom.widgets.schedule import PUBLISHED, TOTAL_TOKENS, ScheduleDesigner
from tests.browser.hands import by_key, choose, enter, keys, press
from tests.browser.kit import holds, noted, pictured, said, table, value
from tests.browser.twins import agrees

SMALL = {"peak": 1e-3, "final": 1e-4, "warmup_steps": 10, "num_steps": 100}
SETTINGS = [
    {**SMALL, "shape": shape, "warmup_steps": warmup, "decay_steps": decay, "anneal_steps": anneal}
    for shape, warmup, decay, anneal in (
        *(("cosine", warmup, 0, 0) for warmup in (10, 0, 100)),
        *(("wsd", 10, decay, 0) for decay in (20, 90, 0)),
        *(("cosine_anneal", 10, 0, anneal) for anneal in (7, 0)),
    )
]
SETTINGS.append(PUBLISHED)
STAGES = [[s.from_tokens, s.batch_tokens, s.sequence_length] for s in optim.LLAMA3_405B_BATCHES]
LONG_STEPS = (0, 59, 60, 61, 62, 7_999, 8_000, 342_145, 342_176, 600_000, 1_000_000, 1_199_999)


def rate_at(step, settings):
    common = {name: settings[name] for name in ("peak", "final", "warmup_steps", "num_steps")}
    if settings["shape"] == "wsd":
        return optim.warmup_stable_decay(step, decay_steps=settings["decay_steps"], **common)
    if settings["shape"] == "cosine_anneal":
        return optim.warmup_cosine_anneal(step, anneal_steps=settings["anneal_steps"], **common)
    return optim.warmup_cosine(step, **common)


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
        assert rate_at(step, PUBLISHED) == optim.llama3_405b_rate(step)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: each["shape"])
def test_rates_are_those_of_the_package(arithmetic, settings):
    cases = [[step, settings] for step in steps_of(settings)]
    near = {"rel": 1e-12, "abs": settings["peak"] * 1e-15}
    agrees(arithmetic, ScheduleDesigner, "rateAt", cases, rate_at, **near)


def test_tokens_batches_and_steps_are_those_of_the_package(arithmetic):
    """The tokens before a step are the most that take no more steps."""
    cases = [[step, STAGES] for step in (*LONG_STEPS, 1_101_000, 1_200_003)]
    seen = arithmetic(ScheduleDesigner, "tokensBefore", cases)
    for (step, _), tokens in zip(cases, seen, strict=True):
        assert [optim.num_steps_for(tokens + more) for more in (0, 1)] == [step, step + 1]
    batches = [optim.batch_at(tokens).batch_tokens for tokens in seen]
    assert arithmetic(ScheduleDesigner, "batchOf", cases) == batches
    edges = [s.from_tokens for s in optim.LLAMA3_405B_BATCHES] + [61 * 2**22, TOTAL_TOKENS]
    tokens = [edge + more for edge in edges for more in (-1, 0, 1, 2**22) if edge + more >= 0]
    cases = [[each, STAGES] for each in tokens]
    agrees(arithmetic, ScheduleDesigner, "stepsFor", cases, lambda t, _: optim.num_steps_for(t))


def test_the_parts_of_a_schedule_cover_it_without_a_gap(arithmetic):
    cases = [[settings] for settings in SETTINGS]
    last = arithmetic(ScheduleDesigner, "lastStep", cases)
    for parts, end in zip(arithmetic(ScheduleDesigner, "parts", cases), last, strict=True):
        assert (parts[0][1], parts[-1][2]) == (0, end)
        assert all(a[2] == b[1] for a, b in itertools.pairwise(parts))


def test_the_mean_rate_is_that_of_all_steps_or_of_fine_enough_samples(arithmetic):
    """Half a cosine has the mean of its ends; warm-up half of the peak."""

    def mean(settings):
        last = settings["num_steps"] + settings["anneal_steps"]
        return math.fsum(rate_at(s, settings) for s in range(last)) / last / settings["peak"]

    few = [[each] for each in SETTINGS if each["num_steps"] < 1_000]
    agrees(arithmetic, ScheduleDesigner, "meanShare", few, mean, rel=1e-12)
    [share] = arithmetic(ScheduleDesigner, "meanShare", [[PUBLISHED]])
    assert share == pytest.approx((8_000 * 0.5 + 1_192_000 * 1.01 / 2) / 1_200_003, rel=5e-6)


def test_the_mark_reads_rate_and_tokens(show):
    page = show(ScheduleDesigner(step=550))
    settings = SMALL | {"shape": "cosine", "warmup_steps": 100, "num_steps": 2_000}
    assert rate_at(550, settings) == pytest.approx(8.81076e-4, rel=1e-6)
    holds(said(page), "rate 8.81076e-4", "88 % of the peak", "9.011 M tokens seen", "takes 16.4 k")
    enter(page, "at step", "49", "Step 49 of 2,000, warm-up", "rate 5e-4", "50 % of the peak")
    holds(pictured(page), "step 49, rate 5e-4")
    keys(page, "at step", "ArrowRight", "Step 50 of 2,000")


def test_wsd_is_flat_and_then_falls(show):
    page = show(ScheduleDesigner())
    decay = page.get_by_label("decay, steps", exact=True)
    assert not decay.is_visible()
    choose(page, "schedule", "wsd")
    assert decay.is_visible()
    holds(said(page), "flat: rate 0.001, 100 %", "as long as you like")
    enter(page, "at step", "1800", "decay: rate 5.5e-4, 55 %")
    holds(pictured(page), "decay from step 1,600 to 2,000")


def test_the_405b_has_its_own_numbers_and_batches(show):
    page = show(ScheduleDesigner("llama3_405b", step=4_000))
    assert not page.get_by_label("peak rate", exact=True).is_visible()
    holds(said(page), "rate 4.001e-5, 50 %", "33.3 B tokens seen", "takes 8.39 M")
    rows = steps_shown(page)
    assert rows["7,999"][:2] == ["last of warm-up", "0.00008"]
    assert (rows["1,200,000"][1], rows["1,200,003"][1]) == ("8e-7", "0")
    assert rows["61"][3:] == ["255,852,544", "8,388,608"]
    stages = ["4.19 M tokens from step 0", "8.39 M tokens from step 61", "16.8 M tokens from step "]
    stages[2] += f"{optim.num_steps_for(2_870_000_000_000):,}"
    holds(pictured(page, 1), *stages)
    last = optim.num_steps_for(TOTAL_TOKENS)
    rate = f"{optim.llama3_405b_rate(last):.3g}".replace("e-0", "e-")
    remark = page.locator(".sd-small").text_content()
    holds(remark, f"15.6 T tokens are used up at step {last:,}", f"still {rate}", "252 M tokens")
    holds(remark, "61 steps")
    before = said(page)
    by_key(page, "Take its numbers as my own")
    assert page.get_by_label("schedule", exact=True).input_value() == "cosine_anneal"
    assert page.get_by_label("batch ramp of the 405B").is_checked()
    assert (value(page, "peak rate"), said(page)) == ("0.00008", before)
    enter(page, "warm-up, steps", "2000", "Step 4,000 of 1,200,003, cosine")


def test_the_ramp_by_keyboard_and_a_kept_curve(show):
    page = show(ScheduleDesigner())
    keys(page, "batch ramp of the 405B", "Space", "takes 8.39 M")
    assert not page.get_by_label("tokens per step", exact=True).is_visible()
    page.keyboard.press("Space")
    enter(page, "tokens per step", "1000", "1 M tokens seen", "takes 1,000")
    press(page, "Keep this curve", picture=["dashed"])
    choose(page, "schedule", "wsd", "rate 0.001, 100 %", "kept curve has 5.87161e-4")
    press(page, "Let the kept curve go")
    assert "kept" not in said(page)


def test_the_first_and_the_last_steps_are_shown_large(show):
    page = show(ScheduleDesigner("llama3_405b"))
    picture = page.locator(".lc-stage svg").first
    page.get_by_label("rates in powers of ten").check()
    texts = picture.locator("text").all_text_contents()
    assert {"≤ 1e-9", "1e-8", "1e-7", "1e-6", "1e-5"} <= set(texts)
    page.get_by_label("rates in powers of ten").uncheck()
    choose(page, "show", "end", picture=["steps 1,199,994 to 1,200,003"])
    assert picture.locator("circle").count() == 11
    choose(page, "show", "start", "warm-up", picture=["steps 0 to 12,002"])


def test_what_the_other_numbers_do_not_let_be_is_clamped_and_said(show):
    page = show(ScheduleDesigner())
    enter(page, "warm-up, steps", "5000")
    holds(noted(page), "5,000 is not possible", "from 0 to 2,000", "2,000 is used")
    enter(page, "steps", "500")
    holds(noted(page), "warm-up, steps: at most 500", "500 is used", "at step: at most 500")
    assert value(page, "warm-up, steps") == "500"
    holds(said(page), "Step 500 of 500")
    enter(page, "peak rate", "0.00005", note=["final rate: at most 5e-5"])
    enter(page, "peak rate", "0", used="0.000001", note=["is not possible"])
    enter(page, "warm-up, steps", "400")
    choose(page, "schedule", "wsd", values={"decay, steps": "100"})
    holds(noted(page), "decay, steps: at most 100")
    made = ScheduleDesigner("wsd", num_steps=50)
    assert (made.warmup_steps, made.decay_steps) == (50, 0)
    holds(made.note, "decay, steps: at most 0", "0 is used")
    made.peak = 1e-5
    assert (made.final, made.step) == (1e-5, 50)
