"""What serving costs, counted on lengths alone: steps, idle places, and empty cells of memory.

A step is one forward pass, in which every row that computes gets one new token; the step that reads
its prompt brings its first.  A cell is where the keys and values of one token are kept.  Memory is
a pool of pages of `page_size` cells.  Reservation is the same with pages as long as the longest
request may get: each row then takes one page, at its start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llmcourse.base.arguments import require, require_each


class Lengths(NamedTuple):
    """A request, as far as it is counted."""

    prompt: int
    """Tokens."""
    answer: int
    """Tokens."""
    arrival: int = 0
    """The step from which on it waits."""

    def cells(self, new: int) -> int:
        """Return how many cells `new` tokens of the answer need: the last is not read again."""
        return self.prompt + new - 1


class Step(NamedTuple):
    """What stands where in a step; requests and pages are numbered from 0."""

    rows: list[int | None]
    """The request in each place of the batch."""
    cells: dict[int, int]
    """Cells used by each request that computes; others in a place have ended."""
    tables: dict[int, list[int]]
    """The pages of each request in a place, in the order of its tokens."""
    preempted: list[int]
    """Requests that gave back place and pages, since the pool was full."""
    waiting: list[int]
    """Requests that have arrived and have no place."""


@dataclass(frozen=True)
class Counts:
    """What steps cost together; cells are summed over the steps."""

    steps: int
    """Those in which a row computed."""
    places: int
    """Places of the batch in these steps."""
    tokens: int
    """New tokens, which are the places that were used."""
    held: int
    """Cells of pages that belonged to a request."""
    used: int
    """Those of them with a token of a request that computed."""
    preemptions: int

    @property
    def idle(self) -> float:
        """Return the share of places in which nothing was computed."""
        return 1 - self.tokens / self.places if self.places else 0.0

    @property
    def empty(self) -> float:
        """Return the share of held cells that were of no use."""
        return 1 - self.used / self.held if self.held else 0.0


def pages_of(cells: int, page_size: int) -> int:
    """Return ceil(cells / page_size)."""
    return -(-cells // page_size)


def filled(step: Step, page_size: int) -> dict[int, int]:
    """Return how many cells of each page are used; a page of several rows stands there once."""
    return {
        page: min(page_size, cells - place * page_size)
        for i, cells in step.cells.items()
        for place, page in enumerate(step.tables[i])
    }


def count(steps: Sequence[Step], page_size: int) -> Counts:
    """Add up what steps cost."""
    busy = [step for step in steps if step.cells]
    return Counts(
        steps=len(busy),
        places=sum(len(step.rows) for step in busy),
        tokens=sum(len(step.cells) for step in busy),
        held=sum(page_size * len(set().union(*step.tables.values())) for step in busy),
        used=sum(sum(filled(step, page_size).values()) for step in busy),
        preemptions=sum(len(step.preempted) for step in steps),
    )


def serve(
    requests: Sequence[Lengths],
    *,
    max_rows: int,
    num_pages: int,
    page_size: int,
    continuous: bool = True,
    shared: int = 0,
) -> list[Step]:
    """Serve all requests, first come first served; return every step.

    In continuous batching a row that has ended gives its place and pages to the next request.  In
    static batching it keeps them until all rows of its batch have ended.  Where a row finds no free
    page, the youngest row is preempted: its pages are freed, and it waits again, first in line.
    When it comes back, one step computes anew what it had.

    Args:
        requests: in the order of their arrival.
        max_rows: places of the batch.
        num_pages: of the pool.
        page_size: cells of a page.
        continuous: continuous batching, or static.
        shared: tokens with which all prompts begin; full pages of these are kept once, while a row
            has them.

    Raises:
        ValueError: if a number is too small, requests are not in order, one does not fit into the
            pool, or a prompt has nothing of its own.
    """
    require_each({"max_rows": max_rows, "page_size": page_size}, least=1)
    _check(requests, num_pages * page_size, shared)
    everyone = range(len(requests))
    new, steps = [0] * len(requests), list[Step]()
    rows: list[int | None] = [None] * max_rows
    tables: dict[int, list[int]] = {}

    def ended(i: int) -> bool:
        return new[i] == requests[i].answer

    def missing(i: int) -> int:
        return pages_of(requests[i].cells(new[i] + 1), page_size) - len(tables[i])

    def release(i: int) -> None:
        rows[rows.index(i)] = None
        del tables[i]

    def free() -> list[int]:
        return sorted(set(range(num_pages)).difference(*tables.values()))

    while not all(map(ended, everyone)):
        if continuous or all(map(ended, tables)):
            for i in [*filter(ended, tables)]:
                release(i)
        running = sorted(i for i in tables if not ended(i))
        preempted = []
        for i in running:
            while i in tables and missing(i) > 0:
                if found := free():
                    tables[i].append(found[0])
                else:
                    preempted.append(max(j for j in running if j in tables))
                    release(preempted[-1])
        over = {*tables, *filter(ended, everyone)}
        there = [i for i in everyone if requests[i].arrival <= len(steps) and i not in over]
        if continuous or not tables:
            while there and None in rows:
                common = next(iter(tables.values()), [])[: shared // page_size]
                tables[there[0]] = [*common]
                if missing(there[0]) > len(free()):
                    del tables[there[0]]
                    break
                i = there.pop(0)
                rows[rows.index(None)] = i
                tables[i] += free()[: missing(i)]
        cells = {}
        for i in tables:
            if not ended(i):
                new[i] += 1
                cells[i] = requests[i].cells(new[i])
        now = {i: [*pages] for i, pages in tables.items()}
        steps.append(Step([*rows], cells, now, preempted, there))
    return steps


def _check(requests: Sequence[Lengths], num_cells: int, shared: int) -> None:
    for i, each in enumerate(requests):
        require(f"arrival of request {i}", each.arrival, least=requests[i - 1].arrival if i else 0)
        require(f"answer of request {i}", each.answer, least=1)
        require(f"cells of request {i}", each.cells(each.answer), most=num_cells)
        require("shared", shared, least=0, below=each.prompt)
