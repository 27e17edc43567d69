"""The widget of chapter 28: its detector is the package's, and every control obeys."""

import itertools
import math
import random
import statistics

from llmcourse.optim.stability import SpikeDetector
from llmcourse_classroom.widgets.spikes import SpikeLab
from tests.browser.hands import by_key, enter, keys, later, press, stop_time
from tests.browser.kit import holds, noted, pictured, said, table, value
from tests.browser.registry import PRECAUTIONS, all_spiky_runs, spike_lab, spiky_run
from tests.browser.twins import each


def box(page, name):
    return page.get_by_role("checkbox", name=name, exact=True)


def series():
    draws = random.Random(1)
    scatter = [round(draws.gauss(2, 0.3), 3) for _ in range(150)]
    jumps = [v + (5 if i % 37 == 36 else 0) for i, v in enumerate(scatter)]
    level = [v + (4 if i >= 90 else 0) for i, v in enumerate(scatter)]
    lost = [*jumps[:60], None, *jumps[60:90], None, None]
    return [scatter, jumps, level, lost, [1.0] * 40 + [1.1, 1.1001, 3.0], [2.0, 1.0], [None] * 5]


def judged(values, *, window=20, factor=8, least_rise=0.1):
    detector = SpikeDetector(window=window, factor=factor, least_rise=least_rise)
    found = []
    for number in values:
        limit = detector.limit
        found.append((detector.look(math.nan if number is None else number), limit))
    return found


def chosen(made):
    return next(run for run in made.runs if run["on"] == made.on)


def test_verdicts_and_limits_are_the_packages(arithmetic):
    settings = list(itertools.product((3, 4, 20, 50), (1, 8, 2.5), (0, 0.1)))
    given = [[values, *chosen] for values in series() for chosen in settings]
    for (values, window, factor, rise), got in each(arithmetic, SpikeLab, "judged", given):
        expected = judged(values, window=window, factor=factor, least_rise=rise)
        assert [(v, math.inf if limit is None else limit) for v, limit in got] == expected


def test_medians_stretches_and_ends(arithmetic):
    """Stretches join neighbours of one kind; the end is a median of the last tenth."""
    draws = random.Random(2)
    given = [[[draws.gauss(0, 10) for _ in range(count)]] for count in (1, 2, 3, 10, 49, 50)]
    assert arithmetic(SpikeLab, "median", given) == [statistics.median(g[0]) for g in given]
    fine, spike, lost = "fine", "spike", "not finite"
    given = [[[fine, spike, spike, fine, spike, lost, lost]], [[fine, fine]], [[spike]], [[]]]
    joined = [[spike, 1, 2], [spike, 4, 4], [lost, 5, 6]]
    assert arithmetic(SpikeLab, "stretches", given) == [joined, [], [[spike, 0, 0]], []]
    long = [float(i) for i in range(100)]
    given = [[long], [[9.0, 1, 2, 3, 4, 100]], [[1.0, None]], [[1.0, None, 3, 4, 5, 6]]]
    assert arithmetic(SpikeLab, "ending", given) == [statistics.median(long[90:]), 3, None, 4.5]


def test_the_start_is_all_off_with_its_spikes_named(show):
    made = spike_lab()
    page = show(made)
    verdicts = [verdict for verdict, _ in judged(chosen(made)["losses"])]
    assert (verdicts.index("spike"), verdicts.index("spike", 60)) == (40, 80)
    holds(said(page), "With all off: 2 spikes (steps 40 to ", "from 100 on", "is lost")
    assert said(page).count("With all off") == 1
    lost = "with all off, not finite"
    assert pictured(page).startswith(f"loss against step: {lost}")
    assert pictured(page, 2).startswith(f"gradient norm against step: {lost}")


def test_boxes_show_the_run_with_those_precautions(show):
    page = show(spike_lab())
    box(page, "clipping").check()
    holds(said(page), "With clipping: 1 spike (steps 80 to ", "With all off: 2 spikes", "is lost")
    holds(pictured(page), "all off not finite")
    drawn = page.locator(".lc-stage svg").first.locator("polyline[stroke='var(--lc-muted)']")
    assert drawn.count() == 1
    page.get_by_label("compare with all off").uncheck()
    assert drawn.count() == 0
    assert "with all off" not in pictured(page)
    page.get_by_label("compare with all off").check()
    box(page, "warm-up").focus()
    page.keyboard.press("Space")
    holds(said(page), "With clipping and warm-up: no spike", "ends at 1.49")
    box(page, "clipping").uncheck()
    holds(said(page), "With warm-up: 1 spike (steps 40 to ")
    by_key(page, "All on", "With clipping, warm-up, QK-norm and low beta2: no spike")
    by_key(page, "All off")
    assert said(page).startswith("With all off")
    assert not box(page, "QK-norm").is_checked()
    text = page.locator(".lc").text_content()
    holds(text, "No spike in 4 of 16", "fewest precautions: clipping + warm-up")
    rows = table(page, "Every run")
    assert (len(rows), [*rows[0][:2], rows[0][-1]]) == (16, ["all off", "2", "not finite"])
    holds(rows[0][2], "100 to 119 not finite")
    assert rows[-1][1:3] == ["0", "none"]


def jumping(on, after):
    """A run at 3 with a jump to 9 at step 40, and at another level after it."""
    return {"on": on, "losses": [3.0] * 40 + [9.0] + [after] * 59, "norms": [1.0] * 100}


ENDS = {(): 3.5, ("clipping",): 2.5, ("warm-up",): 3.75, ("QK-norm",): 3.504}


def panel(page, name):
    return page.locator(f".sl-panel[data-key='{name}']")


def test_each_panel_shows_what_a_precaution_does_to_the_spike(show):
    """Mutants: the spike itself counts; the panel compares with all off, not with the others on."""
    page = show(SpikeLab(PRECAUTIONS, [jumping(list(on), end) for on, end in ENDS.items()]))
    holds(pictured(page, 1), "steps 32 to 76", "clipping: 1.00 lower after", "QK-norm: no diff")
    holds(pictured(page, 1), "warm-up: 0.25 higher after", "low beta2: not recorded")
    both = jumping(["clipping", "warm-up"], 3.1)
    page = show(
        SpikeLab(
            PRECAUTIONS[:2], [both, *(jumping(list(on), end) for on, end in [*ENDS.items()][:3])]
        )
    )
    panel(page, "clipping").click()
    holds(said(page), "With clipping: 1 spike")
    holds(pictured(page, 1), "clipping, on: 1.00 lower after", "warm-up: 0.60 higher after")
    panel(page, "warm-up").click()
    assert box(page, "warm-up").is_checked()
    holds(pictured(page, 1), "clipping, on: 0.65 lower after", "warm-up, on: 0.60 higher after")
    panel(page, "clipping").click()
    assert said(page).startswith("With warm-up")


def test_a_lost_run_and_no_spike_are_said_in_the_panels(show):
    page = show(spike_lab(step=80))
    holds(pictured(page, 1), "steps 72 to 114", "clipping: lost without", "warm-up: lost without")
    calm = {"losses": [1.0] * 30, "norms": [1.0] * 30}
    page = show(SpikeLab(["clipping"], [calm | {"on": []}, calm | {"on": ["clipping"]}]))
    holds(pictured(page, 1), "clipping: no spike")


CURVES = """() => [...document.querySelectorAll("[data-key='clipping'] polyline")].map((one) =>
  Number(one.getAttribute("points").split(" ").at(-1).split(",")[1]))"""


def test_the_curves_glide_to_those_of_the_run_that_is_chosen(show):
    runs = [jumping(list(on), end) for on, end in [*ENDS.items()][:3]]
    page = show(
        SpikeLab(PRECAUTIONS[:2], [*runs, jumping(["clipping", "warm-up"], 3.1)]), as_is=True
    )
    stop_time(page)
    ends = [page.evaluate(CURVES)]
    for milliseconds in (0, 200, 1_000):
        if not milliseconds:
            panel(page, "warm-up").click()
        later(page, milliseconds)
        ends.append(page.evaluate(CURVES))
    before, start, middle, end = ends
    assert start == before
    for was, between, will in zip(before, middle, end, strict=True):
        assert min(was, will) < between < max(was, will)


def test_with_reduced_motion_the_curves_are_there_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    runs = [jumping(list(on), end) for on, end in [*ENDS.items()][:3]]
    show(SpikeLab(PRECAUTIONS[:2], [*runs, jumping(["clipping", "warm-up"], 3.1)]), as_is=True)
    stop_time(page)
    panel(page, "warm-up").click()
    at_once = page.evaluate(CURVES)
    later(page, 1_000)
    assert page.evaluate(CURVES) == at_once


def test_how_far_a_loss_stays_above_another(arithmetic):
    given = [[[9, 2, 4], [0, 1, 3], 1], [[1, None, 2], [1, 1, 1], 0]]
    given += [[[1, None, 2], [1, 1, 1.5], 2]]
    assert arithmetic(SpikeLab, "above", given) == [1, None, 0.5]


def test_next_spike_goes_round_and_the_step_is_read_out(show):
    made = spike_lab(on=["QK-norm"])
    page, places = show(made, says=["Step 0: loss 2", "no limit yet", "fine"]), []
    button = page.get_by_role("button", name="Next spike")
    for _ in range(3):
        button.press("Enter")
        places.append(int(value(page, "step")))
    assert places == [40, 80, 40]
    _, limit = judged(chosen(made)["losses"])[40]
    holds(said(page), f"limit {limit:.3g}: spike")
    press(page, "All on")
    button.click()
    holds(noted(page), "no spike")
    keys(page, "step", "ArrowRight", values={"step": "41"})
    rows = table(page, "This run, step by step")
    assert (len(rows), rows[0][3:]) == (120, ["none yet", "fine"])


def test_settings_of_the_detector_matter(show):
    page = show(spike_lab(on=["clipping"]), says=["1 spike"])
    enter(page, "least rise", "5", "With clipping: 1 spike (step 80)")
    enter(page, "least rise", "0")
    enter(page, "factor, spreads", "1")
    assert int(table(page, "Every run")[-1][1]) > 0
    holds(page.locator(".lc").text_content(), "too strict?")
    enter(page, "least rise", "0.1")
    enter(page, "window, values", "100", "With clipping: no spike")  # the window is full too late
    holds(page.locator(".lc").text_content(), "fewest precautions")


def test_the_detector_may_watch_the_norm(show):
    made = spike_lab(on=["clipping"], watch="gradient norm")
    page = show(made)
    verdicts = [verdict for verdict, _ in judged(chosen(made)["norms"])]
    spikes = [step for step, verdict in enumerate(verdicts) if verdict == "spike"]
    holds(pictured(page, 2), f"1 spike (steps {spikes[0]} to {spikes[-1]})")
    assert "spike" not in pictured(page, 0)
    page.get_by_label("it watches").select_option("loss")
    assert ["spike" in pictured(page, place) for place in (0, 2)] == [True, False]


def test_a_choice_that_was_not_recorded_is_said(show):
    runs = [run for run in all_spiky_runs() if run["on"] in ([], ["clipping"], ["warm-up"])]
    page = show(SpikeLab(PRECAUTIONS, runs, on=["QK-norm"]))
    holds(said(page), "With QK-norm no run", "shown is all off", "all off; warm-up; clipping")
    assert page.get_by_role("button", name="All on").count() == 0


def test_what_was_not_recorded_together_gives_way(show):
    choices = ([], ["clipping"], ["warm-up"], ["clipping", "QK-norm"])
    runs = [run for run in all_spiky_runs() if run["on"] in choices]
    page = show(SpikeLab(PRECAUTIONS, runs, on=["clipping", "QK-norm"]))
    box(page, "warm-up").check()
    holds(said(page), "With warm-up: 1 spike")
    holds(noted(page), "Not recorded with warm-up", "off now: clipping and QK-norm")
    box(page, "clipping").check()
    holds(said(page), "With clipping: 1 spike")
    box(page, "QK-norm").check()
    holds(said(page), "With clipping and QK-norm: 1 spike")
    assert noted(page) == ""


def test_a_level_that_stays_is_said(show):
    level = {"on": ["clipping"], "losses": [1.0] * 60 + [4.0] * 40, "norms": [1] * 100}
    page = show(SpikeLab(["clipping"], [spiky_run([]), level], on=["clipping"]))
    holds(said(page), "1 spike (steps 60 to 99)", "ends at 4.", "Since step 60")
    enter(page, "step", "110", "ended before step 110")
