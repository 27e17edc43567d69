"""The widget of chapter 15: its ring does the package's work, and every control obeys."""

import itertools

import pytest

from llmcourse.course.widgets.key_ring import KeyRing
from llmcourse.parallel import context_parallel
from tests.browser.kit import choose, enter, noted, pictured, said, table, value

CASES = list(itertools.product(range(2, 9), ("blocks", "zigzag")))


# --- the arithmetic


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_the_work_of_every_rank_and_step_is_the_packages(arithmetic, chunk):
    given = [[2 * n * chunk, n, layout] for n, layout in CASES]
    expected = [context_parallel.work_pairs(*case).tolist() for case in given]
    assert arithmetic(KeyRing, "workPairs", given) == expected


def test_a_step_takes_as_long_as_its_busiest_rank(arithmetic):
    tables = [
        context_parallel.work_pairs(48, n, name) for n, name in [(4, "blocks"), (3, "zigzag")]
    ]
    got = arithmetic(KeyRing, "stepTimes", [[pairs.tolist()] for pairs in tables])
    assert got == [pairs.amax(0).tolist() for pairs in tables]


def test_a_rank_has_the_chunks_that_the_package_gives_it(arithmetic):
    given = [[layout, n, chunk] for n, layout in CASES for chunk in range(2 * n)]
    owners = arithmetic(KeyRing, "owner", given)
    for (layout, n, chunk), rank in zip(given, owners, strict=True):
        assert chunk in context_parallel.positions(2 * n, rank, n, layout).tolist()


def test_every_pair_is_read_once_while_its_keys_are_there(arithmetic):
    triangles = arithmetic(KeyRing, "cells", [[layout, n] for n, layout in CASES])
    for (n, layout), cells in zip(CASES, triangles, strict=True):
        read = [(cell["query"], cell["key"]) for cell in cells]
        assert sorted(read) == [(q, k) for q in range(2 * n) for k in range(q + 1)]
        whose = arithmetic(KeyRing, "source", [[n, cell["rank"], cell["step"]] for cell in cells])
        owners = arithmetic(KeyRing, "owner", [[layout, n, cell["key"]] for cell in cells])
        assert whose == owners


# --- the page


def test_blocks_wait_and_the_zigzag_does_not(show):
    page = show(KeyRing())
    assert said(page).startswith("Every rank has its own queries, keys and values")
    enter(page, "steps done", "4")
    assert said(page).endswith("Done in 3.5 units; of the ranks’ time 43 % was waiting.")
    choose(page, "sequence cut in", "zigzag")
    assert said(page).endswith(
        "All ranks have equal work: 0.5 units. Done in 2 units; of the ranks’ time 0 % was waiting."
    )
    assert "blocks takes 3.5 units and zig-zag takes 2 units" in pictured(page, 1)
    assert table(page)[4] == ["time", "0.5", "0.5", "0.5", "0.5", "2"]


def test_a_step_says_whose_keys_are_where(show):
    page = show(KeyRing(step=2))
    assert "Step 2 of 4: every rank has the keys of the rank 1 before it." in said(page)
    assert "Rank 0 has nothing to read: these keys come later" in said(page)
    assert "rank 0 has the keys of rank 3 and may read none of them" in pictured(page)
    assert "rank 1 has the keys of rank 0 and reads, 1 unit" in pictured(page)
    page.get_by_role("button", name="Step", exact=True).press("Enter")
    assert "Ranks 0, 1 have nothing to read" in said(page)
    assert "So far 2.5 units" in said(page)
    page.get_by_role("button", name="Reset").click()
    assert value(page, "steps done") == "0"


def test_steps_end_with_the_ranks(show):
    page = show(KeyRing(step=4))
    enter(page, "steps done", "9")
    assert "from 0 to 4, whole); 4 is used" in noted(page)
    enter(page, "ranks n", "3")
    assert value(page, "steps done") == "3"
    enter(page, "ranks n", "8")
    assert "Step 3 of 8" in said(page)
    page.get_by_label("steps done", exact=True).press("ArrowRight")
    assert "Step 4 of 8" in said(page)


def test_a_press_on_a_cell_goes_to_its_step(show):
    page = show(KeyRing())
    cell = page.locator('[data-key="cell 7 0"]').bounding_box()
    page.mouse.click(cell["x"] + cell["width"] / 2, cell["y"] + cell["height"] / 2)
    assert "Step 4 of 4" in said(page)


def test_reduced_motion_goes_to_the_end(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(KeyRing("zigzag", 5))
    page.get_by_role("button", name="To the end").click()
    assert "Step 5 of 5" in said(page)


def test_it_refuses_a_cut_that_it_does_not_know():
    with pytest.raises(ValueError, match="cut"):
        KeyRing("stripes")
