"""The widget of chapter 30: the page foretells what a run that is really ended does."""

import functools
import itertools
import random

import pytest

from llmcourse_classroom.widgets.crash import CrashLab
from llmcourse_labs.study.toy_run import (
    CRASHES,
    FILES,
    PARTS,
    STEPS,
    ToyState,
    advance,
    crashed,
    outcome,
    uniform,
    uninterrupted,
)
from tests.browser import hands
from tests.browser.hands import by_key, choose, keys, later, place, press, stop_time, to_the_end
from tests.browser.kit import holds, pictured, said, table
from tests.browser.twins import each

BEFORE, INSIDE, AFTER = CRASHES
APART, OVER = FILES
SUBSETS = [list(parts) for count in range(5) for parts in itertools.combinations(PARTS, count)]
STOPS = (1, 2, 4, 5, 6, 7, 12, 13, 20, 24)
WRITES = list(itertools.product((1, 2, 5, 7, 12), STOPS, CRASHES, (True, False), FILES))


def in_page(every, step, when, atomic, files):
    return [every, step, when, atomic, files == OVER]


@functools.cache
def ended(every, step, when, atomic, files):
    return crashed(PARTS, every=every, crash_step=step, crash_when=when, atomic=atomic, files=files)


def ran(saved, restart, steps=STEPS):
    given = {"every": 1, "crash_when": AFTER, "atomic": True, "files": APART, "steps": steps}
    return outcome(saved, crash_step=restart, **given)


# --- the model in Python: what chapter 30 says of a real run holds for it


def test_every_part_matters_until_at_the_end_only_the_weights_do():
    for saved in SUBSETS:
        for restart in range(1, STEPS):
            assert ran(saved, restart).equal == (set(saved) == set(PARTS))
        assert ran(saved, STEPS).equal == ("weights" in saved)


def test_an_atomic_write_leaves_a_whole_file_at_every_moment():
    for every, step, when, _, files in WRITES:
        names = {n: f for n, f in ended(every, step, when, True, files).items() if n[0] != "."}
        assert all(file.content is not None for file in names.values())
        begun = step // every - (step % every == 0 and when != AFTER)
        assert len(names) == (min(begun, 1) if files == OVER else begun)


def test_a_torn_file_that_was_written_over_is_all_there_was():
    assert ended(5, 15, INSIDE, False, OVER) == {"last.ckpt": (15, None)}
    kept = ended(5, 15, INSIDE, False, APART)
    assert [(name, file.content is None) for name, file in kept.items()] == [
        ("step_00000005.ckpt", False),
        ("step_00000010.ckpt", False),
        ("step_00000015.ckpt", True),
    ]
    assert set(ended(5, 15, INSIDE, True, OVER)) == {"last.ckpt", ".last.ckpt.tmp"}


def test_without_a_file_the_seed_gives_the_run_again():
    found = outcome([], every=5, crash_step=5, crash_when=INSIDE, atomic=False, files=OVER, steps=9)
    assert (found.restart_step, found.equal) == (0, True)
    assert found.weights == uninterrupted(9)


def test_what_was_left_out_begins_again():
    found = ran(["weights", "moments", "generators"], 10)
    assert (found.batches, found.draws) == (list(range(14)), list(range(10, 24)))
    assert found.weights[0] == uninterrupted()[10]
    assert ran(["position"], 10).weights[0] == ToyState().weights


def test_a_first_step_of_adam_has_the_length_of_the_learning_rate():
    assert abs(advance(ToyState()).weights) == pytest.approx(0.1, rel=1e-6)
    assert uninterrupted()[-1] == pytest.approx(1, abs=0.3)  # the mean of what it learns


def test_random_numbers_and_the_uninterrupted_run_are_the_same_to_the_last_bit(arithmetic):
    given = [[seed, n] for seed in (0, 1, 2, 2**31) for n in (*range(50), 10**6)]
    got = arithmetic(CrashLab, "uniform", given)
    assert got == [uniform(*each) for each in given]
    assert 0.4 < sum(got) / len(got) < 0.6
    (states,) = arithmetic(CrashLab, "uninterrupted", [[200]])
    assert [state["weights"] for state in states] == uninterrupted(200)


def test_the_files_are_those_that_the_ended_process_left(arithmetic):
    got = arithmetic(CrashLab, "disk", [in_page(*case) for case in WRITES])
    for case, files in zip(WRITES, got, strict=True):
        left = [[name, f.step, f.content is not None] for name, f in ended(*case).items()]
        assert sorted(files) == sorted(left), case


def test_the_way_on_is_that_of_a_run_that_was_really_ended(arithmetic):
    draw = random.Random(30)
    cases = [(saved, *draw.choice(WRITES)) for saved in SUBSETS for _ in range(15)]
    given, equal = [[saved, *in_page(*rest), STEPS] for saved, *rest in cases], 0
    names = ("every", "crash_step", "crash_when", "atomic", "files")
    for (saved, *rest), page in zip(cases, arithmetic(CrashLab, "outcome", given), strict=True):
        found = outcome(saved, **dict(zip(names, rest, strict=True)))
        assert page["restart"] == found.restart_step, (saved, rest)
        assert page["weights"] == found.weights, (saved, rest)
        assert (page["batches"], page["draws"]) == (found.batches, found.draws), (saved, rest)
        assert page["equal"] == found.equal == (page["lacking"] == []), (saved, rest)
        equal += found.equal
    assert 40 < equal < len(cases) - 40


def test_what_is_called_lacking_is_what_makes_another_run(arithmetic):
    given = [[saved, restart, STEPS] for saved in SUBSETS for restart in (1, 2, 11, 23, 24)]
    for (saved, restart, _), lacking in each(arithmetic, CrashLab, "lacking", given):
        alone = [p for p in PARTS if not ran([q for q in PARTS if q != p], restart).equal]
        assert ran(PARTS, restart).equal
        assert lacking == [part for part in alone if part not in saved]


def test_the_unseen_batches_are_those_that_nobody_takes(arithmetic):
    given = [[restart, steps] for steps in (1, 2, 7, 24) for restart in range(1, steps + 1)]
    for (restart, steps), unseen in each(arithmetic, CrashLab, "unseen", given):
        taken = {*range(restart), *ran(["weights"], restart, steps).batches}
        never = [batch + 1 for batch in range(steps) if batch not in taken]
        assert unseen == ([never[0], never[-1]] if never else None)
        assert not never or never == list(range(never[0], never[-1] + 1))


BITS, ANOTHER = "to the last bit", "It is another run"


def test_the_start_loses_steps_and_a_write_over_the_only_file_all(show):
    page = show(CrashLab())
    holds(said(page), "inside the write of step 15", "a temporary", "goes on from step 10")
    holds(said(page), "5 steps are done again", BITS)
    holds(pictured(page), "from step 10, step 24 done")
    holds(pictured(page, 1), f"{uninterrupted()[-1]:.3f}")
    choose(page, "files", OVER, "goes on from step 10")
    page.get_by_label("atomic: a temporary file, renamed when whole").uncheck()
    holds(said(page), "last.ckpt is half", "gone", "again at step 0", "all 15 steps")
    assert table(page, "Files on disk") == [["last.ckpt", "15", "no"]]
    choose(page, "files", APART)  # a torn file of its own is passed over
    holds(said(page), "step_00000015.ckpt is half", "passed over")
    assert [row[2] for row in table(page, "Files on disk")] == ["yes", "yes", "no"]


LEFT_OUT = {
    "weights": ["weights were not saved", "step 11 begins with new ones"],
    "Adam's moments": ["moments were not saved", "from zero in step 11"],
    "random generators": ["random number 1 again", "not number 11"],
    "position in the data": ["not batch 11", "batches 15 to 24"],
}


def test_a_part_left_out_by_keyboard_is_another_run(show):
    page = show(CrashLab())
    for name, facts in LEFT_OUT.items():
        keys(page, name, "Space", *facts, ANOTHER, "no error")
        rows = table(page, "Every step")
        assert [row[0] for row in rows] == [str(step) for step in range(10, 25)]
        assert rows[-1][-1] == "no"
        keys(page, name, "Space", BITS)


def test_the_moment_of_the_write_is_offered_only_where_there_is_one(show):
    page = show(CrashLab())
    when = page.get_by_label("at that step", exact=True)
    when.select_option(AFTER)
    holds(said(page), "goes on from step 15", "nothing is done twice")
    when.select_option(BEFORE)
    holds(said(page), "before the write of step 15")
    hands.enter(page, "crash at step", "13")
    assert when.is_disabled()
    holds(said(page), "after step 13", "does not save", "3 steps are done again")
    by_key(page, "Crash inside the next save")
    assert when.is_enabled()
    holds(said(page), "inside the write of step 15")
    for expected in ("20", "5"):
        press(page, "Crash inside the next save", values={"crash at step": expected})


def test_before_any_save_nothing_is_whole_and_when_all_is_done_only_the_weights_count(show):
    page = show(CrashLab(crash_step=3, weights=False))
    holds(said(page), "No file is whole", "again at step 0", "all 3 steps")
    assert table(page, "Files on disk") == [["none", "", ""]]
    made = {"every": 12, "crash_step": 24, "crash_when": AFTER}
    page = show(CrashLab(**made, moments=False, position=False))
    holds(said(page), "Nothing is left to do", "missing moments and position")
    page.get_by_label("weights", exact=True).uncheck()
    for other in ("Adam's moments", "position in the data"):
        page.get_by_label(other, exact=True).check()
    holds(said(page), "no step is left", ANOTHER)


def test_the_player_goes_through_both_processes(show):
    page = show(CrashLab(position=False))
    press(page, "Reset", "Nothing has happened")
    for _ in range(5):
        by_key(page, "Step")
    holds(said(page), "Step 5 is done", "saved", "batch 5, random number 5")
    holds(pictured(page), "5 steps of the first process, 1 file")
    press(page, "Step", times=11)
    holds(said(page), "Second process, step 11: batch 1, random number 11", "had batch 11")
    press(page, "Step", ANOTHER, times=13)
    press(page, "Step", "Nothing has happened")
    page.get_by_label("position in the data", exact=True).check()
    holds(said(page), BITS)  # a change shows what comes of it
    to_the_end(page, BITS)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"saved": ["weight"]}, "saved holds"),
        ({"every": 0}, "every must be 1 or greater"),
        ({"crash_step": 0}, "crash_step must be 1 or greater"),
        ({"crash_step": 25}, "crash_step must be from 1 to 24"),
        ({"crash_when": "never"}, "crash_when must be one of"),
        ({"files": "two"}, "files must be one of"),
    ],
)
def test_the_model_refuses_what_is_impossible(changed, message):
    given = {"saved": PARTS, "every": 5, "crash_step": 15, "crash_when": INSIDE, "atomic": True}
    with pytest.raises(ValueError, match=message):
        outcome(**(given | {"files": APART} | changed))


def test_a_file_leaves_the_run_is_loaded_and_the_lost_steps_are_done_again(show):
    page = show(CrashLab(shown=9), as_is=True)
    stop_time(page)

    def step(key):
        """Return how far down something is at the start, in the middle and at the end of a step."""
        press(page, "Step")
        found = [place(page, key)[1]]
        for milliseconds in (100, 1_000):
            later(page, milliseconds)
            found.append(place(page, key)[1])
        return found

    line, falling, disk = step("file 10")
    assert line + 2 < falling < disk - 2
    for _ in range(4):
        step("file 10")
    file, loading, second = step("second")
    assert file == pytest.approx(disk, abs=1)
    assert file + 5 < loading < second - 5
    first, sinking, again = step("again 11")
    assert first == pytest.approx(place(page, "step 11")[1], abs=1)
    assert first + 5 < sinking < again - 5
    assert place(page, "again 11")[0] == pytest.approx(place(page, "step 11")[0], abs=0.1)


def test_with_reduced_motion_a_step_is_done_again_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(CrashLab(shown=15), as_is=True)
    stop_time(page)
    press(page, "Step")
    there = place(page, "again 11")
    assert there[1] > place(page, "step 11")[1] + 20
    later(page, 1_000)
    assert place(page, "again 11") == there
