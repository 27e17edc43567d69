"""The widget of chapter 30: the page foretells what a run that is really ended does."""

import functools
import itertools
import random

import pytest

from llmcourse.checkpoint.toy_run import (
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
from llmcourse.course.widgets.crash import CrashLab
from tests.browser.kit import enter, pictured, said, table, value

BEFORE, INSIDE, AFTER = CRASHES
APART, OVER = FILES
SUBSETS = [list(parts) for count in range(5) for parts in itertools.combinations(PARTS, count)]
WRITES = list(
    itertools.product(
        (1, 2, 5, 7, 12), (1, 2, 4, 5, 6, 7, 12, 13, 20, 24), CRASHES, (True, False), FILES
    )
)


def in_page(every, step, when, atomic, files):
    """The page's arguments: whether one file is written over, as a flag."""
    return [every, step, when, atomic, files == OVER]


@functools.cache
def ended(every, step, when, atomic, files):
    return crashed(PARTS, every=every, crash_step=step, crash_when=when, atomic=atomic, files=files)


def ran(saved, restart, steps=STEPS):
    """A run that is ended after `restart` steps, all of which were saved."""
    return outcome(
        saved,
        every=1,
        crash_step=restart,
        crash_when=AFTER,
        atomic=True,
        files=APART,
        steps=steps,
    )


# --- the model in Python: what chapter 30 says of a real run holds for it


def test_every_part_matters_and_all_four_are_enough():
    for restart in range(1, STEPS):
        for saved in SUBSETS:
            assert ran(saved, restart).equal == (set(saved) == set(PARTS))


def test_at_the_end_only_the_weights_matter():
    for saved in SUBSETS:
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
    assert found.batches == list(range(14))
    assert found.draws == list(range(10, 24))
    assert found.weights[0] == uninterrupted()[10]
    assert ran(["position"], 10).weights[0] == ToyState().weights


def test_a_first_step_of_adam_has_the_length_of_the_learning_rate():
    assert abs(advance(ToyState()).weights) == pytest.approx(0.1, rel=1e-6)
    assert uninterrupted()[-1] == pytest.approx(1, abs=0.3)  # the mean of what it learns


# --- the page's arithmetic


def test_random_numbers_are_the_same(arithmetic):
    given = [[seed, n] for seed in (0, 1, 2, 2**31) for n in (*range(50), 10**6)]
    got = arithmetic(CrashLab, "uniform", given)
    assert got == [uniform(*each) for each in given]
    assert 0.4 < sum(got) / len(got) < 0.6


def test_the_uninterrupted_run_is_the_same_to_the_last_bit(arithmetic):
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
    given = [[saved, *in_page(*rest), STEPS] for saved, *rest in cases]
    equal = 0
    for case, page in zip(cases, arithmetic(CrashLab, "outcome", given), strict=True):
        saved, every, step, when, atomic, files = case
        found = outcome(
            saved, every=every, crash_step=step, crash_when=when, atomic=atomic, files=files
        )
        assert page["restart"] == found.restart_step, case
        assert page["weights"] == found.weights, case
        assert (page["batches"], page["draws"]) == (found.batches, found.draws), case
        assert page["equal"] == found.equal == (page["lacking"] == []), case
        equal += found.equal
    assert 40 < equal < len(cases) - 40


def test_what_is_called_lacking_is_what_makes_another_run(arithmetic):
    given = [[saved, restart, STEPS] for saved in SUBSETS for restart in (1, 2, 11, 23, 24)]
    for (saved, restart, _), lacking in zip(
        given, arithmetic(CrashLab, "lacking", given), strict=True
    ):
        whole = ran(PARTS, restart)
        alone = [p for p in PARTS if not ran([q for q in PARTS if q != p], restart).equal]
        assert whole.equal
        assert lacking == [part for part in alone if part not in saved]


def test_the_unseen_batches_are_those_that_nobody_takes(arithmetic):
    given = [[restart, steps] for steps in (1, 2, 7, 24) for restart in range(1, steps + 1)]
    for (restart, steps), unseen in zip(given, arithmetic(CrashLab, "unseen", given), strict=True):
        taken = {*range(restart), *ran(["weights"], restart, steps).batches}
        never = [batch + 1 for batch in range(steps) if batch not in taken]
        assert unseen == ([never[0], never[-1]] if never else None)
        assert not never or never == list(range(never[0], never[-1] + 1))


# --- the page


def test_the_start_loses_steps_and_nothing_else(show):
    page = show(CrashLab())
    assert said(page) == (
        "The first process is ended inside the write of step 15. The half file is a temporary "
        "one: nobody takes it for a checkpoint. The second process goes on from step 10; 5 steps "
        "are done again. It ends as the uninterrupted run does, to the last bit: all that the "
        "next step depends on was saved."
    )
    assert "second process goes on from step 10, step 24 done" in pictured(page)
    final = f"{uninterrupted()[-1]:.3f}"
    assert final in pictured(page, 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("weights", "The weights were not saved: step 11 begins with new ones."),
        ("Adam's moments", "The moments were not saved: Adam begins from zero in step 11."),
        ("random generators", "step 11 uses random number 1 again, not number 11."),
        ("position in the data", "not batch 11, and no step that is kept takes batches 15 to 24."),
    ],
)
def test_a_part_left_out_by_keyboard_is_another_run(show, name, words):
    page = show(CrashLab())
    box = page.get_by_label(name, exact=True)
    box.focus()
    page.keyboard.press("Space")
    assert words in said(page)
    assert "It is another run, and no error says so" in said(page)
    rows = table(page, "Every step")
    assert [row[0] for row in rows] == [str(step) for step in range(10, 25)]
    assert rows[-1][-1] == "no"
    page.keyboard.press("Space")
    box.check()
    assert "to the last bit" in said(page)


def test_a_write_over_the_only_file_loses_all(show):
    page = show(CrashLab())
    page.get_by_label("files", exact=True).select_option(OVER)
    assert "goes on from step 10" in said(page)
    page.get_by_label("atomic: a temporary file, renamed when whole").uncheck()
    assert "last.ckpt is half, and what it held before is gone." in said(page)
    assert "begins again at step 0" in said(page)
    assert "all 15 steps were for nothing" in said(page)
    assert table(page, "Files on disk") == [["last.ckpt", "15", "no"]]


def test_a_torn_file_of_its_own_is_passed_over(show):
    page = show(CrashLab(atomic=False))
    assert "step_00000015.ckpt is half: its hash does not fit, so it is passed over." in said(page)
    assert [row[2] for row in table(page, "Files on disk")] == ["yes", "yes", "no"]


def test_the_moment_of_the_write_is_offered_only_where_there_is_one(show):
    page = show(CrashLab())
    when = page.get_by_label("at that step", exact=True)
    when.select_option(AFTER)
    assert "goes on from step 15; nothing is done twice" in said(page)
    when.select_option(BEFORE)
    assert "before the write of step 15" in said(page)
    enter(page, "crash at step", "13")
    assert when.is_disabled()
    assert "ended after step 13, which does not save. The second" in said(page)
    assert "3 steps are done again" in said(page)
    page.get_by_role("button", name="Crash inside the next save").press("Enter")
    assert when.is_enabled()
    assert "inside the write of step 15" in said(page)
    for expected in ("20", "5"):
        page.get_by_role("button", name="Crash inside the next save").click()
        assert value(page, "crash at step") == expected


def test_a_crash_before_any_save(show):
    page = show(CrashLab(crash_step=3, weights=False))
    assert "No file is whole: the second process begins again at step 0." in said(page)
    assert "all 3 steps were for nothing" in said(page)
    assert table(page, "Files on disk") == [["none", "", ""]]


def test_when_all_is_done_only_the_weights_count(show):
    made = {"every": 12, "crash_step": 24, "crash_when": AFTER}
    page = show(CrashLab(**made, moments=False, position=False))
    assert "Nothing is left to do, so the missing moments and position change no" in said(page)
    page = show(CrashLab(**made, weights=False))
    assert "they are new ones, and no step is left. It is another run" in said(page)


def test_the_player_goes_through_both_processes(show):
    page = show(CrashLab(position=False))
    step = page.get_by_role("button", name="Step", exact=True)
    page.get_by_role("button", name="Reset").click()
    assert said(page) == "Nothing has happened yet: press Play or Step."
    for _ in range(5):
        step.press("Enter")
    assert said(page) == "Step 5 is done, and saved: batch 5, random number 5."
    assert pictured(page) == "timeline: 5 steps of the first process, 1 file on disk"
    for _ in range(11):
        step.click()
    assert said(page) == (
        "Second process, step 11: batch 1, random number 11; the uninterrupted run had batch 11, "
        "random number 11."
    )
    for _ in range(13):
        step.click()
    assert "It is another run" in said(page)
    step.click()
    assert said(page).startswith("Nothing has happened yet")
    page.get_by_label("position in the data", exact=True).check()
    assert "to the last bit" in said(page)  # a change shows what comes of it


def test_reduced_motion_goes_to_the_end_at_once(show):
    made = CrashLab(shown=0)
    page = show(made)
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("button", name="To the end").click()
    assert "to the last bit" in said(page)


# --- Python


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
