"""The widget of chapter 28: its detector is the package's, and every control obeys."""

import itertools
import math
import random
import statistics

import pytest
import traitlets

from llmcourse.course.widgets.spikes import SpikeLab
from llmcourse.optim.stability import SpikeDetector
from tests.browser.kit import enter, noted, pictured, said, table, value
from tests.browser.registry import PRECAUTIONS, all_spiky_runs, spike_lab, spiky_run


def box(page, name):
    return page.get_by_role("checkbox", name=name, exact=True)


# --- the page computes what the package computes


def series():
    """Series that a detector may meet: scatter, ties, jumps, a new level, what is not finite."""
    draws = random.Random(1)
    scatter = [round(draws.gauss(2, 0.3), 3) for _ in range(150)]
    jumps = [v + (5 if i % 37 == 36 else 0) for i, v in enumerate(scatter)]
    level = [v + (4 if i >= 90 else 0) for i, v in enumerate(scatter)]
    lost = [*jumps[:60], None, *jumps[60:90], None, None]
    return [scatter, jumps, level, lost, [1.0] * 40 + [1.1, 1.1001, 3.0], [2.0, 1.0], [None] * 5]


def judged(values, *, window=20, factor=8, least_rise=0.1):
    """What the package's detector says of every value, and the limit that it had before it."""
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
    for (values, window, factor, rise), got in zip(
        given, arithmetic(SpikeLab, "judged", given), strict=True
    ):
        expected = judged(values, window=window, factor=factor, least_rise=rise)
        assert [(v, math.inf if limit is None else limit) for v, limit in got] == expected


def test_median_is_that_of_python(arithmetic):
    draws = random.Random(2)
    given = [[[draws.gauss(0, 10) for _ in range(count)]] for count in (1, 2, 3, 10, 49, 50)]
    assert arithmetic(SpikeLab, "median", given) == [statistics.median(g[0]) for g in given]


def test_stretches_join_neighbours_of_one_kind(arithmetic):
    fine, spike, lost = "fine", "spike", "not finite"
    given = [[[fine, spike, spike, fine, spike, lost, lost]], [[fine, fine]], [[spike]], [[]]]
    assert arithmetic(SpikeLab, "stretches", given) == [
        [[spike, 1, 2], [spike, 4, 4], [lost, 5, 6]],
        [],
        [[spike, 0, 0]],
        [],
    ]


def test_the_end_is_a_median_of_the_last_tenth(arithmetic):
    long = [float(i) for i in range(100)]
    given = [[long], [[9.0, 1, 2, 3, 4, 100]], [[1.0, None]], [[1.0, None, 3, 4, 5, 6]]]
    got = arithmetic(SpikeLab, "ending", given)
    assert got == [statistics.median(long[90:]), 3, None, 4.5]


# --- the page


def test_the_start_is_all_off_with_its_spikes_named(show):
    made = spike_lab()
    page = show(made)
    verdicts = [verdict for verdict, _ in judged(chosen(made)["losses"])]
    first, second = verdicts.index("spike"), verdicts.index("spike", 60)
    assert (first, second) == (40, 80)
    assert "With all off: 2 spikes (steps 40 to 4" in said(page)
    assert "not finite from 100 on; the run is lost." in said(page)
    assert "With all off" not in said(page)[1:]
    assert pictured(page).startswith("loss against step: with all off, not finite at the end")
    assert pictured(page, 1).startswith("gradient norm against step: with all off, not finite")


def test_boxes_show_the_run_with_those_precautions(show):
    page = show(spike_lab())
    box(page, "clipping").check()
    assert said(page).startswith("With clipping: 1 spike (steps 80 to ")
    assert "With all off: 2 spikes, then not finite, and the run is lost." in said(page)
    assert "with all off not finite at the end" in pictured(page)
    box(page, "warm-up").focus()
    page.keyboard.press("Space")
    assert said(page).startswith("With clipping and warm-up: no spike; the loss ends at 1.49. ")
    box(page, "clipping").uncheck()
    assert said(page).startswith("With warm-up: 1 spike (steps 40 to ")
    page.get_by_role("button", name="All on").press("Enter")
    assert said(page).startswith("With clipping, warm-up, QK-norm and low beta2: no spike")
    page.get_by_role("button", name="All off").press("Enter")
    assert said(page).startswith("With all off")
    assert not box(page, "QK-norm").is_checked()


def test_without_comparison_one_curve_is_drawn(show):
    page = show(spike_lab(on=["clipping"]))
    drawn = page.locator(".lc-stage svg").first.locator("polyline[stroke='var(--lc-muted)']")
    assert drawn.count() == 1
    page.get_by_label("compare with all off").uncheck()
    assert drawn.count() == 0
    assert "with all off" not in pictured(page)


def test_the_overview_says_what_is_enough_and_chooses_by_click(show):
    page = show(spike_lab())
    text = page.locator(".lc").text_content()
    assert "No spike in 4 of 16 recorded runs." in text
    assert "Calm with the fewest precautions: clipping + warm-up." in text
    overview = page.locator(".lc-stage svg").nth(2)
    assert "with warm-up 1 spike" in overview.get_attribute("aria-label")
    overview.locator(".sl-row").last.click()
    assert said(page).startswith("With clipping, warm-up, QK-norm and low beta2")
    assert box(page, "low beta2").is_checked()
    rows = table(page, "Every run")
    assert len(rows) == 16
    assert rows[0][:2] == ["all off", "2"]
    assert rows[0][-1] == "not finite"
    assert "100 to 119 not finite" in rows[0][2]
    assert rows[-1][1:3] == ["0", "none"]


def test_the_overview_has_the_best_run_last(show):
    ends = {"": 3.0, "clipping": 2.0, "warm-up": 4.0, "QK-norm": 2.5}
    runs = [
        {"on": name.split() if name else [], "losses": [5.0] * 30 + [end] * 30, "norms": [1.0] * 60}
        for name, end in ends.items()
    ]
    page = show(SpikeLab(PRECAUTIONS, runs))
    rows = page.locator(".sl-row")
    keys = rows.evaluate_all("all => all.map((one) => one.dataset.key)")
    assert keys == ["warm-up", "", "QK-norm", "clipping"]
    assert [float(row[-4:].strip()) for row in rows.all_text_contents()] == [4, 3, 2.5, 2]


def test_next_spike_goes_round_and_the_step_is_read_out(show):
    made = spike_lab(on=["QK-norm"])
    page = show(made)
    assert "Step 0: loss 2" in said(page)
    assert "no limit yet: the window is not full: fine." in said(page)
    places = []
    button = page.get_by_role("button", name="Next spike")
    for _ in range(3):
        button.press("Enter")
        places.append(int(value(page, "step")))
    assert places == [40, 80, 40]
    _, limit = judged(chosen(made)["losses"])[40]
    assert f"limit {limit:.3g}: spike." in said(page)
    page.get_by_role("button", name="All on").click()
    button.click()
    assert noted(page) == "This run has no spike to go to."
    page.get_by_label("step", exact=True).press("ArrowRight")
    assert value(page, "step") == "41"
    rows = table(page, "This run, step by step")
    assert len(rows) == 120
    assert rows[0][3:] == ["none yet", "fine"]


def test_settings_of_the_detector_matter(show):
    page = show(spike_lab(on=["clipping"]))
    assert "1 spike" in said(page)
    enter(page, "least rise", "5")
    assert said(page).startswith("With clipping: 1 spike (step 80); ")
    enter(page, "least rise", "0")
    enter(page, "factor, spreads", "1")
    strict = table(page, "Every run")
    assert int(strict[-1][1]) > 0
    assert "Is that the runs, or is the detector too strict?" in page.locator(".lc").text_content()
    enter(page, "least rise", "0.1")
    enter(page, "window, values", "100")
    assert said(page).startswith("With clipping: no spike")  # the window is full too late
    assert "Calm with the fewest precautions" in page.locator(".lc").text_content()


def test_the_detector_may_watch_the_norm(show):
    made = spike_lab(on=["clipping"], watch="gradient norm")
    page = show(made)
    verdicts = [verdict for verdict, _ in judged(chosen(made)["norms"])]
    spikes = [step for step, verdict in enumerate(verdicts) if verdict == "spike"]
    assert f"1 spike (steps {spikes[0]} to {spikes[-1]})" in pictured(page, 1)
    assert "spike" not in pictured(page, 0)
    page.get_by_label("it watches").select_option("loss")
    assert "spike" in pictured(page, 0)
    assert "spike" not in pictured(page, 1)


def test_a_choice_that_was_not_recorded_is_said(show):
    runs = [run for run in all_spiky_runs() if run["on"] in ([], ["clipping"], ["warm-up"])]
    made = SpikeLab(PRECAUTIONS, runs, on=["QK-norm"])
    page = show(made)
    assert said(page).startswith("With QK-norm no run was recorded; shown is all off.")
    assert said(page).endswith("Recorded: all off; warm-up; clipping.")
    assert page.get_by_role("button", name="All on").count() == 0


def test_what_was_not_recorded_together_gives_way(show):
    choices = ([], ["clipping"], ["warm-up"], ["clipping", "QK-norm"])
    runs = [run for run in all_spiky_runs() if run["on"] in choices]
    page = show(SpikeLab(PRECAUTIONS, runs, on=["clipping", "QK-norm"]))
    box(page, "warm-up").check()
    assert said(page).startswith("With warm-up: 1 spike")
    assert noted(page) == "Not recorded with warm-up, and off now: clipping and QK-norm."
    box(page, "clipping").check()
    assert said(page).startswith("With clipping: 1 spike")
    box(page, "QK-norm").check()
    assert said(page).startswith("With clipping and QK-norm: 1 spike")
    assert noted(page) == ""


def test_a_level_that_stays_is_said(show):
    runs = [
        spiky_run([]),
        {"on": ["clipping"], "losses": [1.0] * 60 + [4.0] * 40, "norms": [1] * 100},
    ]
    page = show(SpikeLab(["clipping"], runs, on=["clipping"]))
    assert "1 spike (steps 60 to 99); the loss ends at 4. Since step 60 it has not come" in said(
        page
    )
    enter(page, "step", "110")
    assert "The run ended before step 110." in said(page)
    enter(page, "step", "999")
    assert "999 is not possible (from 0 to 119, whole); 119 is used." in noted(page)


# --- Python


def test_what_is_not_finite_is_kept_as_none_and_precautions_in_order():
    made = spike_lab(on=["warm-up", "clipping"])
    assert made.on == ["clipping", "warm-up"]
    assert chosen(made)["losses"][-1] == pytest.approx(1.5, abs=0.1)
    made.on = []
    assert chosen(made)["losses"][99:101] == [pytest.approx(1.5, abs=0.1), None]
    with pytest.raises(traitlets.TraitError, match=r"there is no precaution \['z-loss'\]"):
        made.on = ["z-loss"]
    made.step = 400
    assert made.step == 119
    assert "119 is used" in made.note
    made.window = 1
    assert (made.window, "3 is used" in made.note) == (3, True)


@pytest.mark.parametrize(
    ("precautions", "change", "match"),
    [
        ([], {}, "1 to 5 names"),
        ("clipping", {}, "1 to 5 names"),
        (["a", "b", "c", "d", "e", "f"], {}, "1 to 5 names"),
        (["clipping", "clipping"], {}, "different names"),
        (["clipping"], {"on": ["z-loss"]}, "run 0: on must be a list of"),
        (["clipping"], {"on": "clipping"}, "run 0: on must be a list of"),
        (["clipping"], {"on": ["clipping"]}, "all precautions off"),
        (["clipping"], {"losses": [1.0] * 4, "norms": [1.0] * 4}, "5 to 500 steps, not 4|5 to 500"),
        (["clipping"], {"losses": [1.0] * 501, "norms": [1.0] * 501}, "not 501 and 501"),
        (["clipping"], {"norms": [1.0] * 5}, "not 120 and 5"),
        (["clipping"], {"losses": [math.nan] * 120}, "nothing can be drawn"),
        (["clipping"], {"norms": [-1.0] * 120}, "a norm is negative"),
    ],
)
def test_what_does_not_belong_together_is_refused(precautions, change, match):
    with pytest.raises(ValueError, match=match):
        SpikeLab(precautions, [spiky_run([]) | change])


def test_other_bad_runs_are_refused():
    with pytest.raises(ValueError, match="run 0 has no norms"):
        SpikeLab(["clipping"], [{"on": [], "losses": [1.0] * 9}])
    with pytest.raises(ValueError, match=r"more than one run has on \['clipping'\]"):
        SpikeLab(["clipping"], [spiky_run([]), spiky_run(["clipping"]), spiky_run(["clipping"])])
