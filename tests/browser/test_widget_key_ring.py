"""The widget of chapter 15: its ring does the package's work, and every control obeys."""

import itertools

from llmcourse.parallel import context_parallel
from llmcourse_classroom.widgets.key_ring import KeyRing
from tests.browser.hands import by_key, choose, enter, keys, press
from tests.browser.kit import holds, pictured, said, table
from tests.browser.twins import agrees, each

CASES = list(itertools.product(range(2, 9), ("blocks", "zigzag")))


def test_the_work_of_every_rank_and_step_is_the_packages(arithmetic):
    cases = [[2 * n * chunk, n, layout] for n, layout in CASES for chunk in (1, 2, 7)]
    found = [context_parallel.work_pairs(*case).tolist() for case in cases]
    assert arithmetic(KeyRing, "workPairs", cases) == found
    # A step takes as long as its busiest rank.
    agrees(arithmetic, KeyRing, "stepTimes", [[p] for p in found], lambda p: [*map(max, *p)])


def test_a_rank_has_the_chunks_that_the_package_gives_it(arithmetic):
    given = [[layout, n, chunk] for n, layout in CASES for chunk in range(2 * n)]
    for (layout, n, chunk), rank in each(arithmetic, KeyRing, "owner", given):
        assert chunk in context_parallel.positions(2 * n, rank, n, layout).tolist()


def test_every_pair_is_read_once_while_its_keys_are_there(arithmetic):
    triangles = arithmetic(KeyRing, "cells", [[layout, n] for n, layout in CASES])
    for (n, layout), cells in zip(CASES, triangles, strict=True):
        read = [(cell["query"], cell["key"]) for cell in cells]
        assert sorted(read) == [(q, k) for q in range(2 * n) for k in range(q + 1)]
        whose = arithmetic(KeyRing, "source", [[n, cell["rank"], cell["step"]] for cell in cells])
        assert whose == arithmetic(KeyRing, "owner", [[layout, n, cell["key"]] for cell in cells])


def test_blocks_wait_and_the_zigzag_does_not(show):
    page = show(KeyRing(), says=["Every rank has its own"])
    enter(page, "steps done", "4", "Done in 3.5 units", "43 %")
    choose(page, "sequence cut in", "zigzag", "equal work: 0.5 units", "Done in 2 units", " 0 %")
    holds(pictured(page, 1), "blocks takes 3.5 units", "zig-zag takes 2 units")
    assert table(page)[4] == ["time", "0.5", "0.5", "0.5", "0.5", "2"]


def test_a_step_says_whose_keys_are_where(show):
    page = show(KeyRing(step=2))
    holds(said(page), "Step 2 of 4", "the rank 1 before it", "Rank 0 has nothing to read")
    holds(pictured(page), "rank 0 has the keys of rank 3 and may read none")
    holds(pictured(page), "rank 1 has the keys of rank 0 and reads, 1 unit")
    by_key(page, "Step", "Ranks 0, 1 have nothing to read", "So far 2.5 units")
    press(page, "Reset", values={"steps done": "0"})
    cell = page.locator('[data-key="cell 7 0"]').bounding_box()
    page.mouse.click(cell["x"] + cell["width"] / 2, cell["y"] + cell["height"] / 2)
    holds(said(page), "Step 4 of 4")


def test_steps_end_with_the_ranks(show):
    page = show(KeyRing(step=4))
    enter(page, "steps done", "9", note=["from 0 to 4", "4 is used"])
    enter(page, "ranks n", "3", values={"steps done": "3"})
    enter(page, "ranks n", "8", "Step 3 of 8")
    keys(page, "steps done", "ArrowRight", "Step 4 of 8")
