"""Pages: none is lost or given twice, names find them again, the longest kept goes first."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmcourse_labs.real.serve import PagePool, page_names


def test_a_page_that_is_kept_is_found_until_it_is_given_away():
    pool, names = PagePool(3, 2), page_names([1, 2, 3, 4, 5, 6], 2)
    pages = [pool.take() for _ in names]
    assert sorted(pages) == [0, 1, 2]
    assert pool.take() is None
    for page, name in zip(pages, names, strict=True):
        pool.name(page, name)
    pool.release(pages)
    assert (pool.num_empty, pool.num_kept) == (0, 3)
    assert pool.find(names) == pages
    assert pool.find([names[0], b"unknown", names[2]]) == pages[:1]
    pool.release(pages[:1])
    pool.release(pages)
    assert pool.take() == pages[2]  # of a text, the end goes first
    assert pool.find(names) == pages[:2]
    pool.release(pages[:2])
    pool.release(pool.find(names[:1]))  # so this one was used later
    assert [pool.take(), pool.take()] == [pages[1], pages[0]]
    assert pool.find(names) == []


def test_a_name_tells_a_page_and_all_before_it():
    names = page_names([1, 2, 3, 4, 5], 2)
    assert len(names) == 2
    assert page_names([1, 2, 3, 4, 5, 6], 2, names)[:2] == names
    assert page_names([1, 2, 3, 4, 5, 6], 2, names) == page_names([1, 2, 3, 4, 5, 6], 2)
    assert page_names([0, 2, 3, 4], 2)[1] != names[1]
    assert page_names([1, 2, 4, 3], 2)[1] != names[1]
    assert page_names([1, 2, 3, 4], 1)[1] != names[0]
    assert page_names([1, 2, 1, 2], 2)[0] == names[0] != page_names([1, 2, 1, 2], 2)[1]
    assert page_names([1], 2) == []


class Pool(RuleBasedStateMachine):
    """Rows that begin, grow and end, beside a pool, and what they must find there."""

    def __init__(self):
        super().__init__()
        self.pool, self.rows, self.content = PagePool(6, 1), [], {}

    @rule(ids=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def begin(self, ids):
        names = page_names(ids, 1)
        row = self.pool.find(names)
        assert [self.content[page] for page in row] == names[: len(row)]
        for name in names[len(row) :]:
            if (page := self.pool.take()) is None:
                break
            assert page not in row
            assert all(page not in other for other in self.rows)
            row.append(page)
            self.content[page] = name
            self.pool.name(page, name)
        self.rows.append(row)

    @precondition(lambda self: self.rows)
    @rule(which=st.integers(0, 9))
    def end(self, which):
        self.pool.release(self.rows.pop(which % len(self.rows)))

    @invariant()
    def no_page_is_lost(self):
        used = Counter(page for row in self.rows for page in row)
        assert len(used) + self.pool.num_empty + self.pool.num_kept == 6
        assert [self.pool._num_uses[page] for page in range(6)] == [used[p] for p in range(6)]

    def teardown(self):
        while self.rows:
            self.pool.release(self.rows.pop())
        assert len({self.pool.take() for _ in range(6)}) == 6
        assert self.pool.take() is None


Pool.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestPool = Pool.TestCase


@pytest.mark.parametrize(("pages", "size"), [(0, 4), (4, 0)])
def test_a_pool_has_pages_and_a_page_has_slots(pages, size):
    with pytest.raises(ValueError, match=r"(num_pages|page_size) must be 1 or greater, got 0"):
        PagePool(pages, size)


def test_pages_for_tokens_are_rounded_up():
    assert [PagePool(1, 4).pages_for(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
