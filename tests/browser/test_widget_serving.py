"""The widget of chapter 48: it serves as the package counts, and every control obeys."""

import random

import pytest

from llmcourse_classroom.widgets.serving import BEGINNING, MAX_ROWS, RESERVED, ServingBoard
from llmcourse_labs.real.serve_counts import Lengths, count, filled, serve
from tests.browser.hands import by_key, choose, enter, later, place, press, stop_time, to_the_end
from tests.browser.kit import holds, per_cent, pictured, said, table, value
from tests.browser.twins import agrees

OWN = [Lengths(*one) for one in ServingBoard().requests]
SIZES = (1, 2, 4, 8, 16, RESERVED)


def settings(max_rows, num_cells, page_size, continuous, shared):
    """Return one setting in the page's words."""
    return {
        "maxRows": max_rows,
        "numPages": num_cells // page_size,
        "pageSize": page_size,
        "continuous": continuous,
        "shared": shared,
    }


def served(requests, given):
    return serve(
        [Lengths(*one) for one in requests],
        max_rows=given["maxRows"],
        num_pages=given["numPages"],
        page_size=given["pageSize"],
        continuous=given["continuous"],
        shared=given["shared"],
    )


def in_page(step):
    """Return a step as the page has it: there, the keys of objects are text."""
    return step._asdict() | {
        "cells": {str(i): cells for i, cells in step.cells.items()},
        "tables": {str(i): pages for i, pages in step.tables.items()},
    }


def cases():
    """What the controls can ask for, and drawn requests with tight pools."""
    for cells, shared in ((64, 0), (100, BEGINNING)):
        for size in SIZES:
            for continuous in (False, True):
                yield [list(map(list, OWN)), settings(MAX_ROWS, cells, size, continuous, shared)]
    draws = random.Random(0)
    for _ in range(20):
        made = [[draws.randint(4, 9), draws.randint(1, 9), draws.randint(0, 12)] for _ in range(9)]
        size, shared = draws.choice([1, 2, 3, 17]), draws.randint(0, 3)
        given = settings(draws.randint(1, 5), draws.randint(17, 50), size, True, shared)
        requests = sorted(made, key=lambda one: one[2])
        yield from ([requests, given | {"continuous": both}] for both in (False, True))


def test_steps_are_the_package_s(arithmetic):
    """Mutants: the oldest is preempted, a row is let in after a preemption, an arrival too late."""
    found = agrees(
        arithmetic,
        ServingBoard,
        "serve",
        cases(),
        lambda requests, given: [in_page(step) for step in served(requests, given)],
    )
    assert sum(bool(step["preempted"]) for steps in found for step in steps) > 50


def test_what_steps_cost_is_the_package_s(arithmetic):
    """Mutants: a page of several rows counts for each, an ended row's cells are used."""
    both = [(served(*case), case[1]["pageSize"]) for case in [*cases()][1::3]]
    given = [[list(map(in_page, steps)), size] for steps, size in both]
    costs = arithmetic(ServingBoard, "count", given)
    assert costs == [vars(count(steps, size)) for steps, size in both]
    lasts = [(steps[len(steps) // 2], size) for steps, size in both]
    pages = arithmetic(ServingBoard, "filled", [[in_page(step), size] for step, size in lasts])
    assert pages == [{str(k): n for k, n in filled(*one).items()} for one in lasts]


def of(batching, memory, pool=96, page_size=4, shared=0):
    """Return the steps of a way, and what they cost."""
    size = RESERVED if memory == "reserved" else page_size
    given = settings(MAX_ROWS, pool, size, batching == "continuous", shared)
    steps = served(OWN, given)
    return steps, size


def facts(steps, size, at):
    """Return what the sentence must say after so many steps."""
    cost = count(steps[:at], size)
    return [
        f"After {at} of {len(steps)} steps",
        f"{cost.tokens / cost.steps:.3g} tokens",
        f"{per_cent(cost.idle)} of the places idle",
        f"{per_cent(cost.empty)} of the held cells empty",
    ]


def test_the_lesson_of_the_four_ways(show):
    """Batching that goes on and pages that are taken as needed each save steps."""
    rows = table(show(ServingBoard()))
    ways = [(a, b) for a in ("static", "continuous") for b in ("reserved", "paged")]
    costs = []
    for row, way in zip(rows, ways, strict=True):
        steps, size = of(*way)
        cost = count(steps, size)
        costs.append(cost)
        right = [", ".join(way), str(len(steps)), f"{cost.tokens / cost.steps:.3g}"]
        assert row == [*right, per_cent(cost.idle), per_cent(cost.empty), str(cost.preemptions)]
    static, paged = costs[0], costs[-1]
    assert static.steps > 2.5 * paged.steps
    assert costs[1].steps > costs[-1].steps < costs[2].steps
    assert static.empty > 0.7 > 5 * paged.empty
    assert static.idle > 2 * paged.idle


def test_ways_are_chosen_and_played(show):
    page = show(ServingBoard(), says=facts(*of("static", "reserved"), 14))
    holds(said(page), "1 row computes", "2 ended and wait", "13 requests wait", "2 of 16 are done")
    holds(pictured(page), "13 requests wait")
    choose(page, "batching", "continuous", *facts(*of("continuous", "reserved"), 14))
    choose(page, "memory", "paged", *facts(*of("continuous", "paged"), 14))
    choose(page, "cells of a page", "16", *facts(*of("continuous", "paged", page_size=16), 14))
    page.get_by_label("all prompts begin").check()
    holds(said(page), *facts(*of("continuous", "paged", page_size=16, shared=BEGINNING), 14))
    choose(page, "cells of a page", "2")
    holds(said(page), *facts(*of("continuous", "paged", page_size=2, shared=BEGINNING), 14))
    enter(page, "cells of memory", "64", "of 21 steps")
    enter(page, "cells of memory", "65", used="65", note=[])
    enter(page, "cells of memory", "1000", used="160", note=["from 64 to 160"])
    enter(page, "step", "3", "After 3 of 19")
    by_key(page, "Step", "After 4 of 19")
    to_the_end(page, "After 19 of 19", "all are done")
    choose(page, "batching", "static", "all are done")  # and it stays at its end
    steps, _ = of("static", "paged", pool=160, page_size=2, shared=BEGINNING)
    assert value(page, "step") == str(len(steps))
    press(page, "Step", "After 0 of")
    press(page, "Reset", "After 0 of")


def test_a_full_memory_is_said_and_pages_go_on_at_once(show):
    """Mutants: the oldest gives way; pages that were free before are said to be passed on."""
    steps, _ = of("continuous", "paged", pool=64)
    full = [t for t, step in enumerate(steps, 1) if step.preempted]
    page = show(ServingBoard(batching="continuous", memory="paged", pool=64, step=full[0]))
    holds(said(page), "The memory is full", f"request {steps[full[0] - 1].preempted[0] + 1} gives")
    page = show(ServingBoard(batching="continuous", step=4))
    holds(said(page), "Request 4 takes pages that 1 left")
    assert "takes pages" not in said(show(ServingBoard(batching="continuous", step=3)))
    shared = ServingBoard(batching="continuous", memory="paged", pool=64, shared=True, step=4)
    steps, _ = of("continuous", "paged", pool=64, shared=BEGINNING)
    two, four = (steps[t].tables for t in (2, 3))
    (new,), (gone,) = four.keys() - two.keys(), two.keys() - four.keys()
    holds(said(show(shared)), f"Request {new + 1} takes pages that {gone + 1} left")


@pytest.mark.parametrize(("memory", "size"), [("reserved", RESERVED), ("paged", 4)])
def test_the_picture_has_every_page_and_what_is_used_of_it(show, memory, size):
    """Mutants: a page too narrow or filled by its row's first cells, a free page drawn as held."""
    steps, _ = of("continuous", memory)
    page = show(ServingBoard(batching="continuous", memory=memory, step=12))
    drawn = page.locator("[data-key^='page ']").evaluate_all(
        "all => all.map((one) => [...one.querySelectorAll('rect')].slice(0, 2)"
        ".map((box) => Number(box.getAttribute('width'))))"
    )
    assert len(drawn) == 96 // size
    used = filled(steps[11], size)
    cell = (drawn[0][1] + 1.5) / size
    assert [long for long, _ in drawn] == pytest.approx(
        [max(0, used.get(n, 0) * cell - 1.5) for n in range(len(drawn))]
    )
    names = page.locator("[data-key^='page ']").all_text_contents()
    owners = {page: i for i, pages in steps[11].tables.items() for page in pages}
    assert names == [str(owners[n] + 1) if n in owners else "" for n in range(len(drawn))]
    before = {page: i for i, pages in steps[10].tables.items() for page in pages}
    bold = page.locator("[data-key^='page ']:has(rect[stroke-width='2.5'])")
    passed = [f"page {n}" for n in sorted(owners) if before.get(n, owners[n]) != owners[n]]
    assert bold.evaluate_all("all => all.map((one) => one.dataset.key)") == passed


def test_a_request_moves_to_its_row_and_away(show):
    """Mutants: it is there at once; it stays in its row."""
    page = show(ServingBoard(batching="continuous", step=3), as_is=True)
    stop_time(page)
    before, ended = place(page, "request 3"), place(page, "request 0")
    press(page, "Step", "After 4 of")
    later(page, 80)
    between = place(page, "request 3")
    later(page, 300)
    after = place(page, "request 3")
    assert before[1] < between[1] < after[1]  # down from those that wait
    assert place(page, "request 0")[1] > ended[1]  # down to those that are done


def test_with_reduced_motion_it_is_there_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(ServingBoard(batching="continuous", step=3), as_is=True)
    stop_time(page)
    press(page, "Step", "After 4 of")
    first = place(page, "request 3")
    later(page, 500)
    assert place(page, "request 3") == first
