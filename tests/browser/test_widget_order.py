"""The widget of chapter 09: who reads which window is what the package's loader says."""

import itertools
import random

import numpy as np
import pytest

from llmcourse.data import Batches, TokenShards, write_shards
from llmcourse_classroom.widgets import OrderBoard
from llmcourse_classroom.widgets.order import GLOBAL_BATCH, NUM_STEPS, NUM_WINDOWS, RANKS
from tests.browser.hands import choose, enter
from tests.browser.kit import holds, pictured, said, table

ORDER = OrderBoard().order
CASES = list(itertools.product(map(int, RANKS), range(NUM_STEPS + 1), map(int, RANKS)))


@pytest.fixture(scope="module")
def windows_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    names = {"tokenizer_fingerprint": "numbers", "vocab_size": NUM_WINDOWS + 1}
    write_shards(range(NUM_WINDOWS + 1), folder, **names)
    shards = TokenShards(folder)
    loaders = {
        n: [Batches(shards, GLOBAL_BATCH // n, 1, rank=r, world_size=n) for r in range(n)]
        for n in map(int, RANKS)
    }
    return lambda step, ranks: [each.windows(step).tolist() for each in loaders[ranks]]


def reads(plan, windows_of):
    read = [window for step in plan for part in windows_of(*step) for window in part]
    return np.bincount(read, minlength=NUM_WINDOWS).tolist()


def plan_of(before, stop, after, saved):
    later = range(stop, NUM_STEPS) if saved else range(NUM_STEPS - stop)
    return [(step, before) for step in range(stop)] + [(step, after) for step in later]


def test_ranks_read_what_the_loader_gives_them(arithmetic, windows_of):
    """Mutant: rank r takes every n-th window of a step."""
    grid = [[ORDER, step, int(n), GLOBAL_BATCH] for step in range(NUM_STEPS) for n in RANKS]
    assert arithmetic(OrderBoard, "partsOf", grid) == [windows_of(s, n) for _, s, n, _ in grid]


def test_every_run_that_saves_its_step_reads_each_window_once(arithmetic, windows_of):
    """Mutants: the step is lost or counted twice; the ranks change one step too late."""
    for saved in (True, False):
        plans = arithmetic(OrderBoard, "planOf", [[*case, saved, NUM_STEPS] for case in CASES])
        right = [plan_of(*case, saved) for case in CASES]
        assert [[(each["step"], each["ranks"]) for each in plan] for plan in plans] == right
        counts = arithmetic(OrderBoard, "countsOf", [[ORDER, p, GLOBAL_BATCH] for p in plans])
        assert counts == [reads(plan, windows_of) for plan in right]
        if saved:
            assert all(each == [1] * NUM_WINDOWS for each in counts)
        else:
            assert max(map(max, counts)) == 2


def test_the_readers_of_a_window(arithmetic, windows_of):
    for before, stop, after in random.Random(9).sample(CASES, 6):
        plan = plan_of(before, stop, after, saved=False)
        shown = [{"step": step, "ranks": ranks} for step, ranks in plan]
        right = [[] for _ in range(NUM_WINDOWS)]
        for i, (step, ranks) in enumerate(plan):
            for rank, part in enumerate(windows_of(step, ranks)):
                for window in part:
                    right[window].append([i, rank])
        grid = [[ORDER, shown, GLOBAL_BATCH, window] for window in range(NUM_WINDOWS)]
        assert arithmetic(OrderBoard, "readersOf", grid) == right


def test_the_state_is_said_in_words_and_numbers(show, windows_of):
    page = show(OrderBoard(window=ORDER[0]))
    holds(said(page), "2 steps on 4 ranks, 3 windows each", "2 steps on 2 ranks, 6 windows each")
    holds(
        said(page),
        "All 48 windows",
        "exactly once",
        f"Window {ORDER[0]} is read by rank 0 in step 0",
    )
    holds(
        pictured(page),
        "step 1 on 4 ranks, step 2 on 2 ranks",
        "48 windows",
        "once, 0 twice, 0 never",
    )
    assert table(page) == [
        [str(step), str(rank), ", ".join(map(str, part))]
        for step, ranks in plan_of(4, 2, 2, saved=True)
        for rank, part in enumerate(windows_of(step, ranks))
    ]
    page.locator(".lc-stage > svg").get_by_text(str(ORDER[20]), exact=True).first.click()
    holds(said(page), f"Window {ORDER[20]} is read by rank 2 in step 1")


def test_without_the_step_the_run_begins_again(show):
    page = show(OrderBoard(window=ORDER[0]))
    choose(page, "the checkpoint holds", "nothing")
    holds(said(page), "begins the order again", ". 0 windows are read once, 24 twice and 24 never")
    assert said(page).count("rank 0 in step 0") == 2
    enter(page, "steps before the stop", "1", "24 windows are read once, 12 twice and 12 never")
    enter(page, "steps before the stop", "9", note=["9 is not possible", "from 0 to 4"])
    holds(said(page), "4 steps on 4 ranks, 3 windows each", "All 48")


def test_the_ranks_change_and_the_windows_stay(show):
    page = show(OrderBoard(stop=0))
    picture = page.locator(".lc-stage > svg")
    before = picture.locator("rect").count()
    holds(said(page), "4 steps on 2 ranks, 6 windows each", "All 48")
    choose(page, "ranks after the stop", "6", "4 steps on 6 ranks, 2 windows each", "All 48")
    assert picture.locator("rect").count() == before
    numbers = picture.locator("text").filter(has_text="rank")
    assert numbers.count() == 4 * 6 + 1 + 1  # and the line of the stop, and the title
