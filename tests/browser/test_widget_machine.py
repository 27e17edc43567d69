"""The widget of chapter 45: what a log says after each event is what Python reads in it."""

from llmcourse_classroom.widgets import MachineBoard
from tests.browser.hands import choose, enter, press
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import machine_board, machine_events
from tests.browser.twins import agrees

EVENTS = machine_events()
KILLED = next(i for i, e in enumerate(EVENTS) if e["event"] == "kill")


def known(events):
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
    found = agrees(arithmetic, MachineBoard, "stateAt", grid, lambda log, n: known(log[:n]))
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
    for end, kind in (("from", "begin"), ("to", "end")):
        assert [s[end] for s in stages] == [e["at"] for e in EVENTS if e["event"] == kind]
    ranks, half = arithmetic(MachineBoard, "rankSpans", [[EVENTS, len(EVENTS)], [EVENTS, KILLED]])
    states = ["starting", "training", "killed", "starting", "training", "training"]
    assert [r["state"] for r in ranks] == states
    assert [r["count"] for r in ranks] == [4] * 5 + [1]
    assert ranks[2]["from"] == ranks[1]["to"] == EVENTS[KILLED]["at"]
    assert half[-1]["to"] == EVENTS[KILLED - 1]["at"]


def test_the_curve_marks_what_was_taken_again(arithmetic):
    (points,) = arithmetic(MachineBoard, "curve", [[EVENTS, len(EVENTS), "train"]])
    assert [p["step"] for p in points] == [*range(1, 8), *range(7, 13)]
    assert [p["step"] for p in points if p["again"]] == [7]
    assert arithmetic(MachineBoard, "curve", [[EVENTS, 3, "sft"]]) == [[]]


def test_the_state_is_said_and_the_player_goes_event_by_event(show):
    page = show(machine_board(event=KILLED))
    holds(said(page), "All 4 processes", "Step 7, loss 3.867", "checkpoint: step 6")
    enter(page, "events of the log", str(KILLED + 2))
    holds(said(page), "All 4 processes are dead", "SIGKILL", "Killed after step 7")
    enter(page, "events of the log", str(len(EVENTS)))
    holds(said(page), "Killed after step 7", "from step 6", "again: 1", "same loss: 1")
    assert table(page)[0][:2] == ["1 crawl", "done"]
    assert table(page)[3][:2] == ["4 preferences", "waiting"]
    holds(pictured(page), "4 killed")
    holds(pictured(page, 1), "1 steps drawn a second time")
    choose(page, "losses of", "sft")
    holds(pictured(page, 1), "from 3 to 1", "0 steps")
    enter(page, "events of the log", "1", "0.0 s, 0 of 4", "Stage 1, crawl")
    press(page, "Step", "0.5 s, 1 of 4")
    press(page, "Reset", "0.0 s, 0 of 4")


def test_play_at_the_end_begins_anew(show):
    """Mutant: a board that opens at its last event stays there when Play is pressed."""
    page = show(machine_board())
    holds(said(page), "Killed after step 7")
    press(page, "Step", "0.0 s, 0 of 4", "Stage 1, crawl")
    press(page, "Step", "0.5 s, 1 of 4")
