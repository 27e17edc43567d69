"""The widget of chapter 45: what a log says after each event is what Python reads in it."""

import pytest
import traitlets

from llmcourse.course.recorded import recorded_runs
from llmcourse.course.widgets import MachineBoard
from tests.browser.kit import choose, enter, noted, pictured, said, table
from tests.browser.registry import machine_board, machine_events

EVENTS = machine_events()
KILLED = next(i for i, e in enumerate(EVENTS) if e["event"] == "kill")

# --- the shipped arithmetic, in Chromium


def known(events):
    """Read the state off a log, from its end."""
    steps = [(e["stage"], e["step"], e["loss"]) for e in events if e["event"] == "step"]
    again = [s for i, s in enumerate(steps) if s[:2] in [each[:2] for each in steps[:i]]]
    begun = [i for i, e in enumerate(events) if e["event"] == "begin"]
    here = events[begun[-1] :] if begun else []
    is_over = any(e["event"] == "end" for e in here)

    def last(kind, key, default, among=events):
        return next((e[key] for e in reversed(among) if e["event"] == kind), default)

    return {
        "at": events[-1]["at"],
        "stage": "" if is_over or not here else here[0]["stage"],
        "done": [e["stage"] for e in events if e["event"] == "end"],
        "ranks": "" if is_over else last("ranks", "state", "", here),
        "step": last("step", "step", 0, here),
        "loss": last("step", "loss", None, here),
        "saved": last("saved", "step", 0, here),
        "killed": last("kill", "step", 0),
        "resumed": last("resume", "step", -1),
        "again": len(again),
        "same": len(again),
    }


def test_the_state_after_each_event(arithmetic):
    """Mutants: a step of another stage counts as taken again; the state outlives its stage."""
    grid = [[EVENTS, number] for number in range(1, len(EVENTS) + 1)]
    found = arithmetic(MachineBoard, "stateAt", grid)
    assert found == [known(EVENTS[:number]) for _, number in grid]
    assert found[-1]["again"] == 1


def test_a_step_that_comes_out_otherwise_is_not_the_same(arithmetic):
    """Mutant: repeated steps are counted as equal without looking at the loss."""
    events = [dict(e) for e in EVENTS]
    again = [e for e in events if e["event"] == "step" and e["step"] == 7][1]
    again["loss"] += 0.001
    (found,) = arithmetic(MachineBoard, "stateAt", [[events, len(events)]])
    assert (found["again"], found["same"]) == (1, 0)


def test_spans_cover_the_time_of_stages_and_processes(arithmetic):
    """Mutants: a span that does not end with the crash; a running one that has no end yet."""
    (stages,) = arithmetic(MachineBoard, "stageSpans", [[EVENTS, len(EVENTS)]])
    assert [s["stage"] for s in stages] == ["crawl", "train", "sft"]
    begins = [e["at"] for e in EVENTS if e["event"] == "begin"]
    ends = [e["at"] for e in EVENTS if e["event"] == "end"]
    assert [(s["from"], s["to"]) for s in stages] == list(zip(begins, ends, strict=True))
    (ranks,) = arithmetic(MachineBoard, "rankSpans", [[EVENTS, len(EVENTS)]])
    states = ["starting", "training", "killed", "starting", "training", "training"]
    assert [(r["state"], r["count"]) for r in ranks] == list(
        zip(states, [4] * 5 + [1], strict=True)
    )
    assert ranks[2]["from"] == ranks[1]["to"] == EVENTS[KILLED]["at"]
    (half,) = arithmetic(MachineBoard, "rankSpans", [[EVENTS, KILLED]])
    assert half[-1]["to"] == EVENTS[KILLED - 1]["at"]


def test_the_curve_marks_what_was_taken_again(arithmetic):
    (points,) = arithmetic(MachineBoard, "curve", [[EVENTS, len(EVENTS), "train"]])
    assert [p["step"] for p in points] == [*range(1, 8), *range(7, 13)]
    assert [p["step"] for p in points if p["again"]] == [7]
    assert arithmetic(MachineBoard, "curve", [[EVENTS, 3, "sft"]]) == [[]]


# --- the page


def test_the_state_is_said_in_words_and_numbers(show):
    page = show(machine_board(event=KILLED))
    assert "All 4 processes are training. Step 7, loss 3.867; last checkpoint: step 6." in said(
        page
    )
    enter(page, "events of the log", str(KILLED + 2))
    assert "All 4 processes are dead, killed by SIGKILL." in said(page)
    assert "Killed after step 7." in said(page)
    enter(page, "events of the log", str(len(EVENTS)))
    assert said(page).endswith(
        "Killed after step 7, resumed from step 6; steps taken again: 1, with the same loss: 1."
    )
    assert table(page)[0][:2] == ["1 crawl", "done"]
    assert table(page)[3][:2] == ["4 preferences", "waiting"]
    assert "4 killed" in pictured(page)
    assert "1 steps drawn a second time" in pictured(page, 1)
    choose(page, "losses of", "sft")
    assert "from 3 to 1; 0 steps" in pictured(page, 1)
    enter(page, "events of the log", "9999")
    assert "is not possible" in noted(page)


def test_the_player_goes_event_by_event(show):
    page = show(machine_board(event=1))
    assert said(page).startswith("0.0 s, 0 of 4 stages done. Stage 1, crawl.")
    page.get_by_role("button", name="Step").click()
    assert said(page).startswith("0.5 s, 1 of 4 stages done.")
    page.get_by_role("button", name="Reset").click()
    assert said(page).startswith("0.0 s, 0 of 4")


def test_it_shows_what_the_chapter_has_recorded(show):
    run = recorded_runs("capstone")["runs"]["killed"]["0"]
    stages = {name: name for name in run["stages"]}
    page = show(MachineBoard(run["log"], stages=stages, mesh={"dp": 2, "pp": 2}))
    kill = next(e["step"] for e in run["log"] if e["event"] == "kill")
    assert f"Killed after step {kill}, resumed from step" in said(page)
    assert said(page).startswith(f"{run['log'][-1]['at']:.1f} s, 9 of 9 stages done.")


# --- Python

WRONG = [
    ({"event": "nap"}, "an event is one of begin, end"),
    ({"event": "kill"}, "an event 'kill' needs step, too"),
    ({"stage": "lunch"}, "the stage 'lunch' is none of crawl, train"),
    ({"event": "ranks", "state": "tired", "number": 4}, "processes are starting, training"),
    ({"event": "step", "step": 1, "loss": float("nan")}, "numbers of an event 'step' must be"),
    ({"at": 1e6}, "do not decrease"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_events_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        machine_board([EVENTS[0] | change, *EVENTS[1:]])


def test_boards_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="give 2 to 2000 events, not 1"):
        machine_board(EVENTS[:1])
    with pytest.raises(ValueError, match="give 1 to 12 stages, not 0"):
        machine_board(stages={})
    with pytest.raises(ValueError, match="must have dp and pp for 4 processes"):
        machine_board(mesh={"dp": 4, "pp": 2})
    with pytest.raises(ValueError, match="must have dp and pp for 0 processes"):
        machine_board(EVENTS[:2])


def test_state_is_checked():
    made = machine_board(event=3)
    made.event = 99_999
    assert made.event == len(EVENTS)
    with pytest.raises(traitlets.TraitError, match="of must be one of train, sft, dpo"):
        made.of = "rl"
