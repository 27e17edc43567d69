"""The widget of chapter 49: it compares as Python does, and shows what is recorded."""

import copy
import random
import statistics

import pytest

from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widgets import tuning
from llmcourse_classroom.widgets.tuning import SEEN, TEST_SEED, TuningPlane
from tests.browser.hands import choose, enter, later, place, stop_time
from tests.browser.kit import holds, pictured, said, table, value
from tests.browser.twins import agrees
from tools.runs import tuning_runs

SAID = ["boat.", "Lily has six berries.", "no", *["kite fox."] * 9]


def row(loss, bits, right=0.5, said=SAID):
    return {"loss": loss, "bits": bits, "right": right, "said": said}


def made():
    """A record with seeds that are missing, a rate that diverged, and rates in any order."""
    found = copy.deepcopy(recorded_runs("tuning"))
    return found | {
        "plane": {
            "all weights, rate 0.0002": {"0": row(0.5, 1.1), "1": row(0.7, 1.2)},
            "thin, rate 0.002": {"0": row(0.65, 1.12)},
            "all weights, rate 0.001": {"1": row(0.4, 1.5)},
            "thin, rate 0.01": {"0": row(0.3, 1.3), "1": {"diverged": 9}},
            "all weights, rate 5e-05": {"0": row(1.2, 1.0)},
            "thin, rate 0.0005": {"0": row(1.1, 1.05, said=["boat."] * 12)},
        }
    }


@pytest.fixture
def plane(monkeypatch):
    monkeypatch.setattr(tuning, "recorded_runs", lambda name: made())
    return TuningPlane


# --- arithmetic


def points(draws, number):
    """Points of a plane, with many ties."""
    return [[draws.choice([0.5, 1, draws.random()]), draws.choice([1, 2])] for _ in range(number)]


def beats(a, b):
    return a != b and all(mine <= other for mine, other in zip(a, b, strict=True))


def tally(firsts, seconds):
    pairs = [(a, b) for a in firsts for b in seconds]
    first, second = sum(beats(a, b) for a, b in pairs), sum(beats(b, a) for a, b in pairs)
    neither = len(pairs) - first - second
    return {"pairs": len(pairs), "first": first, "second": second, "neither": neither}


def unbeaten(some):
    return [i for i, one in enumerate(some) if not any(beats(other, one) for other in some)]


def test_it_compares_as_python_does(arithmetic):
    """Mutants: a tie counts as worse; equals beat each other; ties of a pair go to the first."""
    draws = random.Random(0)
    two = [
        [points(draws, draws.randint(1, 5)), points(draws, draws.randint(1, 4))] for _ in "123456"
    ]
    found = agrees(arithmetic, TuningPlane, "tally", two, tally)
    assert all(sum(one[who] for one in found) for who in ("first", "second", "neither"))
    agrees(arithmetic, TuningPlane, "unbeaten", [[a + b] for a, b in two], unbeaten)
    pairs = [[a, b] for one, other in two for a in one for b in other]
    agrees(arithmetic, TuningPlane, "beats", pairs, beats)
    means = [[one] for one, _ in two]
    agrees(
        arithmetic,
        TuningPlane,
        "meanOf",
        means,
        lambda some: [*map(mean, zip(*some, strict=True))],
        rel=1e-12,
    )


def mean(numbers):
    return statistics.fmean(numbers)


# --- what is recorded


def test_it_holds_what_is_recorded_with_the_tests_that_were_asked():
    """Mutants: another seed of the tests, the answers of another run, rates sorted as texts."""
    found, widget = recorded_runs("tuning"), TuningPlane()
    assert tuning_runs.TEST_SEED == TEST_SEED
    asked = tuning_runs.tests()[: tuning_runs.SHOWN]
    assert widget.tests == [[task.prompt, task.answer] for task in asked]
    for run in widget.runs:
        rows = found["plane"][tuning_runs.name_of(*rank_and_rate(run))]
        assert run["points"] == [[r["loss"], r["bits"], r["right"]] for r in rows.values()]
        first = next(iter(rows.values()))
        assert run["said"] == first["said"]
        right = [task.answer == text for task, text in zip(asked, first["said"], strict=True)]
        assert run["right"] == right
    assert any(any(run["right"]) for run in widget.runs)
    for way in {run["way"] for run in widget.runs}:
        rates = [float(run["rate"]) for run in widget.runs if run["way"] == way]
        assert rates == sorted(rates)


def rank_and_rate(run):
    return int(run["way"].removeprefix("rank ")) if "rank" in run["way"] else 0, float(run["rate"])


def test_missing_runs_and_what_diverged(plane):
    widget = plane()
    assert [run["name"] for run in widget.runs] == [
        *(f"all weights, rate {rate}" for rate in ("0.00005", "0.0002", "0.001")),
        *(f"thin, rate {rate}" for rate in ("0.0005", "0.002")),
    ]
    assert widget.diverged == ["thin, rate 0.01"]
    assert [len(run["points"]) for run in widget.runs] == [1, 2, 1, 1, 1]
    assert (widget.first, widget.second) == ("all weights, rate 0.001", "thin, rate 0.0005")


# --- the page


def test_a_pair_of_rates_makes_either_way_the_winner(show, plane):
    """Mutants: the winner by the loss alone; the first always wins."""
    page = show(plane(), says=["This pair decides nothing", "“all weights” has learnt more"])
    holds(said(page), "“thin” has forgotten less", "0.400", "1.050 bits")
    choose(page, "one run", "all weights, rate 0.0002", "(loss 0.600, 1.150 bits)")
    choose(page, "another run", "thin, rate 0.002", "This pair decides nothing")
    choose(
        page, "one run", "all weights, rate 0.00005", "decides nothing", "“thin” has learnt more"
    )
    choose(page, "another run", "all weights, rate 0.00005", "stands on both sides")
    choose(page, "another run", "all weights, rate 0.001", "the rate alone has moved it")
    assert "pairs of one rate" not in said(page)


def test_wins_and_their_number(show, monkeypatch):
    """Mutants: pairs within a way are counted; inner rates are called ends, too."""
    found = made()
    found["plane"]["thin, rate 0.002"]["0"] = row(0.55, 1.12)
    found["plane"]["thin, rate 0.02"] = {"0": row(0.62, 1.6)}
    monkeypatch.setattr(tuning, "recorded_runs", lambda name: found)
    one, two = "all weights, rate 0.0002", "thin, rate 0.002"
    page = show(TuningPlane(first=one, second=two), says=["“thin” wins", "forgotten less"])
    choose(page, "another run", "thin, rate 0.02", "“all weights” wins")
    page.get_by_label("all runs").check()
    holds(said(page), "Of the 9 pairs", "“all weights” wins 2", "“thin” wins 1", "6 decide nothing")
    ends = ["“all weights, rate 0.00005”", "“all weights, rate 0.001”", "“thin, rate 0.0005”"]
    holds(said(page), f"no other run: {', '.join(ends)} and “thin, rate 0.002”.")
    holds(said(page), f"rates: {', '.join(ends[:2])} and {ends[2]}. A better rate may lie beyond")
    holds(pictured(page), "thin, rate 0.02 (loss 0.620, 1.600 bits)")


def test_all_runs_are_drawn_where_they_are(show, plane):
    """Mutants: the curve in the order of the record, a run at its first seed, the axes swapped."""
    page = show(plane())
    assert page.locator("[data-key^='run ']").count() == 2
    assert page.locator("polyline[stroke='currentColor']").count() == 0
    page.get_by_label("all runs").check()
    assert page.locator("[data-key^='run ']").count() == 5
    curves = page.locator("polyline[stroke='currentColor']")
    assert curves.count() == 2
    ends = curves.first.get_attribute("points").split(" ")
    places = [tuple(map(float, end.split(","))) for end in ends]
    losses, bits = (1.2, 0.6, 0.4), (1.0, 1.15, 1.5)
    assert straight(losses, [x for x, _ in places])
    assert straight(bits, [y for _, y in places])
    assert places[0][0] > places[2][0]  # more learnt is on the left
    assert places[0][1] > places[2][1]  # more forgotten is above
    assert page.locator("[data-key='run all weights, rate 0.0002'] circle[opacity]").count() == 2


def straight(values, places):
    """Say whether places are a straight line of values."""
    share = (values[1] - values[0]) / (values[2] - values[0])
    return places[1] - places[0] == pytest.approx(share * (places[2] - places[0]), abs=0.05)


def test_a_press_on_a_run_takes_it(show, plane):
    """Mutants: it is always the second; a press far from all takes one."""
    page = show(plane(every=True))
    page.mouse.click(*place(page, "run all weights, rate 0.0002"))
    assert page.get_by_label("one run", exact=True).input_value() == "all weights, rate 0.0002"
    page.mouse.click(*place(page, "run thin, rate 0.002"))
    assert page.get_by_label("another run", exact=True).input_value() == "thin, rate 0.002"
    box = page.locator(".lc-stage svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 30, box["y"] + 40)
    assert page.get_by_label("another run", exact=True).input_value() == "thin, rate 0.002"


def test_what_the_models_said(show, plane):
    """Mutants: answers of another part, right and wrong swapped."""
    page = show(plane())
    boxes = page.locator(".tp-tests > li")
    asked = plane().tests
    assert boxes.count() == SEEN
    holds(
        boxes.nth(0).text_content(),
        asked[0][0],
        asked[0][1],
        "all weights, rate 0.001: boat. (right)",
    )
    holds(boxes.nth(1).text_content(), "rate 0.001: Lily has six berries. (right)")
    holds(boxes.nth(1).text_content(), "thin, rate 0.0005: boat. (wrong)", "before: ")
    enter(page, "tests, 3 at a time", "4", used="4")
    holds(boxes.nth(2).text_content(), asked[11][0])
    assert page.locator(".tp-tests").get_attribute("start") == "10"
    enter(page, "tests, 3 at a time", "5", used="4", note=["from 1 to 4"])
    assert value(page, "tests, 3 at a time") == "4"


def test_the_table_and_the_note_have_every_run(show, plane):
    page = show(plane())
    rows = table(page)
    assert rows[2] == ["all weights, rate 0.0002", "0.600", "1.150", "0.500", "2", "no"]
    assert [one[0] for one in rows[1:]] == [run["name"] for run in plane().runs]
    holds(page.locator(".lc-stages").text_content(), "Diverged: thin, rate 0.01.")
    shipped = recorded_runs("tuning")["before"][""]["0"]
    assert rows[0][:3] == ["before", f"{shipped['loss']:.3f}", f"{shipped['bits']:.3f}"]


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_ring_moves_to_its_run(show, page, plane, motion):
    """Mutants: it is there at once; it stays; it moves where motion is not wanted."""
    page.emulate_media(reduced_motion=motion)
    show(plane(), as_is=True)
    stop_time(page)
    before = place(page, "first")
    choose(page, "one run", "all weights, rate 0.00005")
    later(page, 40)
    between = place(page, "first")
    later(page, 400)
    after = place(page, "first")
    assert before[0] < after[0]
    assert (between[0] < after[0] - 1) == (motion == "no-preference")
