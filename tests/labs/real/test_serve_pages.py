"""Pages: none is lost or given twice, names find them again, the longest kept goes first."""

import pytest

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


@pytest.mark.parametrize(("pages", "size"), [(0, 4), (4, 0)])
def test_a_pool_has_pages_and_a_page_has_slots(pages, size):
    with pytest.raises(ValueError, match=r"(num_pages|page_size) must be 1 or greater, got 0"):
        PagePool(pages, size)


def test_pages_for_tokens_are_rounded_up():
    assert [PagePool(1, 4).pages_for(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
