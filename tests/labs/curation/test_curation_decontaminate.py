"""curation.decontaminate: runs of words that a text shares with a test."""

from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.curation import Dropped
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.decontaminate import Decontaminate, normalised

ITEM = "Anna keeps 12 red marbles and 7 blue ones in a box. How many has she?"


def shares_a_run(text, items, n):
    """The definition: an item's run of n words, or the whole of a shorter item, is in the text."""
    words = normalised(text)
    for item in map(normalised, items):
        length = min(n, len(item))
        runs = [item[i : i + length] for i in range(len(item) - length + 1)]
        places = range(len(words) - length + 1)
        if any(words[i : i + length] == run for run in runs for i in places):
            return True
    return False


TEXT = st.lists(st.sampled_from("abc"), max_size=12).map(" ".join)


@given(text=TEXT, items=st.lists(TEXT.filter(bool), max_size=3), n=st.integers(1, 5))
def test_equal_to_the_definition(text, items, n):
    found = Decontaminate(items, n=n).found_in(text)
    assert (found is not None) == shares_a_run(text, items, n)
    assert found is None or shares_a_run(text, [items[found]], n)


def test_marks_do_not_hide_an_item_short_ones_must_be_whole_and_nothing_else_is_lost():
    judge = Decontaminate([ITEM])
    hidden = "So: anna KEEPS 12 red\nmarbles, and 7 (blue) ones in a box! How nice, they say."
    assert judge(hidden) == Dropped("holds a test item", f"item 0: {ITEM[:60]}")
    assert judge(ITEM.replace("red", "green")) == ITEM.replace("red", "green")  # told otherwise
    assert judge("Anna keeps 12 red marbles.") == "Anna keeps 12 red marbles."  # a run of 5
    judge = Decontaminate(["How old is Ben?"])
    assert isinstance(judge("They asked: how old is Ben today?"), Dropped)
    assert judge("How old is Benjamin?") == "How old is Benjamin?"
    crawl = Crawl(500, seed=4)
    judge = Decontaminate(crawl.test_items)
    leaking = 0
    for label in crawl.labels():
        dropped = isinstance(judge(label.main_text), Dropped)
        leaking += bool(label.leaks)
        assert dropped or not label.leaks
        assert not dropped or label.leaks or label.copy_of
    assert leaking > 5
