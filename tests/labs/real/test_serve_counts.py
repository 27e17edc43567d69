"""Steps, idle places and empty cells: by hand, and what holds for all lengths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.real import serve_counts
from llmcourse_labs.real.serve_counts import Counts, Lengths, count, filled, pages_of, serve
from tests.edits import edited

FOUR = [Lengths(2, 5), Lengths(3, 1), Lengths(1, 2), Lengths(2, 1, arrival=4)]


def rows_of(steps):
    return [step.rows for step in steps]


def test_static_and_continuous_batching_by_hand():
    """Two places and reservations of 6 cells: a place stands idle, or goes to the next."""
    given = {"max_rows": 2, "num_pages": 2, "page_size": 6}
    static = serve(FOUR, continuous=False, **given)
    assert rows_of(static) == [[0, 1]] * 5 + [[2, 3]] * 2
    assert [[*step.cells] for step in static] == [[0, 1], *[[0]] * 4, [2, 3], [2]]
    assert count(static, 6) == Counts(7, 14, 9, 7 * 12, 2 + 3 + 3 + 4 + 5 + 6 + 1 + 2 + 2, 0)
    continuous = serve(FOUR, **given)
    assert rows_of(continuous) == [[0, 1], [0, 2], [0, 2], [0, None], [0, 3]]
    assert [step.waiting for step in continuous] == [[2], [], [], [], []]
    counts = count(continuous, 6)
    assert counts == Counts(5, 10, 9, 9 * 6, 28, 0)
    assert (counts.idle, counts.empty) == (pytest.approx(1 / 10), pytest.approx(26 / 54))


def test_pages_by_hand():
    """Of 2 cells: pages 1 and 2 go from request 1 to 2 and 0 in the step after its end."""
    steps = serve(FOUR, max_rows=2, num_pages=4, page_size=2)
    three = {0: [0, 1, 2]}
    assert [step.tables for step in steps] == [
        {0: [0], 1: [1, 2]},
        *[{0: [0, 1], 2: [2]}] * 2,
        three,
        three | {3: [3]},
    ]
    assert [filled(step, 2) for step in steps][::4] == [
        {0: 2, 1: 2, 2: 1},
        {0: 2, 1: 2, 2: 2, 3: 2},
    ]
    assert count(steps, 2) == Counts(5, 10, 9, 6 + 6 + 6 + 6 + 8, 28, 0)


def test_a_full_pool_preempts_the_youngest_by_hand():
    """Pages of 1, five in all: 1 gives way to 0; what it had is read anew in one step."""
    steps = serve([Lengths(1, 4), Lengths(1, 4)], max_rows=2, num_pages=5, page_size=1)
    assert [step.preempted for step in steps] == [[], [], [1], [], [], []]
    assert [step.waiting for step in steps] == [[], [], [1], [1], [], []]
    used = [{0: 1, 1: 1}, {0: 2, 1: 2}, {0: 3}, {0: 4}, {1: 3}, {1: 4}]
    assert [step.cells for step in steps] == used
    assert count(steps, 1) == Counts(6, 12, 8, 20, 20, 1)


def test_a_shared_beginning_is_kept_once_by_hand():
    """Five tokens in pages of 2 are two full pages, which both rows have, and the third row not."""
    requests = [Lengths(6, 1), Lengths(7, 2), Lengths(6, 1, arrival=5)]
    steps = serve(requests, max_rows=2, num_pages=8, page_size=2, shared=5)
    assert [step.tables for step in steps if step.cells] == [
        {0: [0, 1, 2], 1: [0, 1, 3, 4]},
        {1: [0, 1, 3, 4]},
        {2: [0, 1, 2]},
    ]
    assert [sum(filled(step, 2).values()) for step in steps if step.cells] == [9, 8, 6]
    assert count(steps, 2).steps == 3
    assert len(steps) == 6


lengths = st.lists(
    st.builds(Lengths, st.integers(4, 9), st.integers(1, 9), st.integers(0, 12)),
    max_size=9,
).map(lambda found: sorted(found, key=lambda each: each.arrival))
settings = st.fixed_dictionaries(
    {
        "max_rows": st.integers(1, 5),
        "num_pages": st.integers(17, 40),
        "page_size": st.sampled_from([1, 2, 3, 17]),
        "continuous": st.booleans(),
        "shared": st.integers(0, 3),
    }
)


def faults(requests, steps, *, max_rows, num_pages, page_size, continuous, shared):
    """Yield what is wrong with the steps."""
    new = dict.fromkeys(range(len(requests)), 0)
    for now, step in enumerate(steps):
        in_place = {i for i in step.rows if i is not None}
        if in_place != step.tables.keys() or len(step.rows) != max_rows:
            yield "a row without a place, or a place without pages"
        held = set().union(*step.tables.values())
        own = [page for table in step.tables.values() for page in table[shared // page_size :]]
        if len(own) != len(set(own)) or not held <= set(range(num_pages)):
            yield "a page of two rows, or none of the pool"
        for i, cells in step.cells.items():
            new[i] += 1
            if cells != requests[i].cells(new[i]) or requests[i].arrival > now:
                yield "a wrong number of cells, or too early"
            if len(step.tables[i]) != pages_of(cells, page_size):
                yield "more pages than are needed, or fewer"
        before = steps[now - 1].tables.keys() if now else set()
        if not continuous and in_place & before and in_place - before:
            yield "a row that joined a batch"
        if continuous and in_place - step.cells.keys():
            yield "a row that stands idle"
        # First come, first served: nobody has a place before one who waits.
        if step.waiting and any(step.waiting[0] < i for i in step.cells):
            yield "somebody was overtaken"
        first = step.waiting and step.waiting[0]
        if continuous and step.waiting and not step.preempted and None in step.rows:
            wanted = pages_of(requests[first].cells(new[first] + 1), page_size)
            if wanted - shared // page_size * bool(held) <= num_pages - len(held):
                yield "a request waits before a free place and free pages"
    if [*new.values()] != [each.answer for each in requests]:
        yield "tokens that were never made, or made twice"


@given(lengths, settings)
def test_what_holds_in_every_step(requests, given):
    assert [*faults(requests, serve(requests, **given), **given)] == []


@given(lengths, settings)
def test_a_row_wastes_less_than_a_page_and_static_no_fewer_steps(requests, given):
    """Without a full pool, and with all there from the start, where nothing hangs on when."""
    there = [each._replace(arrival=0) for each in requests]
    roomy = given | {"num_pages": 200, "shared": 0, "continuous": True}
    paged = count(serve(there, **roomy), given["page_size"])
    rows = paged.tokens
    assert rows == sum(each.answer for each in there)
    assert paged.held - paged.used <= rows * (given["page_size"] - 1)
    static = count(serve(there, **roomy | {"continuous": False}), given["page_size"])
    assert static.steps >= paged.steps >= pages_of(rows, given["max_rows"])
    assert (static.preemptions, paged.preemptions) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max(j for j", "min(j for j"),
        ("new[i] + 1), page_size", "new[i] + 2), page_size"),
        ("if continuous or all(map(ended, tables)):", "if continuous:"),
        ("if continuous or all(map(ended, tables)):", "if all(map(ended, tables)):"),
        ("i = there.pop(0)", "i = there.pop()"),
        ("found[0]", "found[-1] + 1"),
        ("[: shared // page_size]", "[: -(-shared // page_size)]"),
        ("arrival <= len(steps)", "arrival < len(steps)"),
        ("release(preempted[-1])", "release(preempted[-1]); new[preempted[-1]] = 0"),
        ("if continuous or not tables:", "if not tables:"),
        ("if continuous or not tables:", "if True:"),
    ],
)
def test_the_checks_see_a_mutant(old, new):
    """A youngest that is the oldest, a page too early, places that are kept or given too soon..."""
    loop = "while not all(map(ended, everyone))"
    mutant = edited(serve, (old, new), (loop, f"{loop} and len(steps) < 200"))
    requests = [Lengths(4 + i % 3, 1 + 4 * i % 9, i // 2) for i in range(9)]
    cases = [
        {"max_rows": 3, "num_pages": pages_of(20, size), "page_size": size, "shared": shared}
        for size in (1, 2, 3)
        for shared in (0, 3)
    ]
    for case in cases:
        for continuous in (True, False):
            given = case | {"continuous": continuous}
            try:
                steps = mutant(requests, **given)
            except (IndexError, KeyError, ValueError):
                return
            right = serve(requests, **given)
            if [*faults(requests, steps, **given)] or rows_of(steps) != rows_of(right):
                return
    pytest.fail("not seen")


@pytest.mark.parametrize(
    ("requests", "given", "said"),
    [
        ([Lengths(9, 8)], {}, "cells of request 0 must be at most 15, got 16"),
        ([Lengths(3, 0)], {}, "answer of request 0 must be 1 or greater, got 0"),
        ([Lengths(3, 1, 2), Lengths(3, 1, 1)], {}, "arrival of request 1 must be 2 or greater"),
        ([Lengths(3, 1)], {"shared": 3}, "shared must be below 3, got 3"),
        ([], {"page_size": 0}, "page_size must be 1 or greater"),
        ([], {"max_rows": 0}, "max_rows must be 1 or greater"),
    ],
)
def test_what_cannot_be_served_is_refused(requests, given, said):
    with pytest.raises(ValueError, match=said):
        serve(requests, **{"max_rows": 2, "num_pages": 5, "page_size": 3} | given)


def test_nothing_costs_nothing():
    assert serve([], max_rows=2, num_pages=1, page_size=1) == []
    counts = count([], 4)
    assert counts == Counts(0, 0, 0, 0, 0, 0)
    assert (counts.idle, counts.empty) == (0, 0)
    assert serve_counts.pages_of(0, 4) == 0
