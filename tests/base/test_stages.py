"""base.stages: what holds at a place, and how much of each stage lies before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.base.stages import lengths_before, stage_at

BEGINS = st.lists(st.integers(1, 50), max_size=4, unique=True).map(lambda x: [0, *sorted(x)])


@given(BEGINS, st.integers(0, 60))
def test_both_are_what_counting_finds(begins, place):
    """Mutants: a stage that begins one later, a last stage with an end."""
    holds = [max(i for i, begin in enumerate(begins) if begin <= here) for here in range(61)]
    assert stage_at(begins, place) == holds[place]
    lengths = [holds[:place].count(number) for number in range(len(begins))]
    assert lengths_before(begins, place) == lengths


def test_before_the_first_there_is_none():
    with pytest.raises(ValueError, match="no stage has begun at -1"):
        stage_at([0, 3], -1)
    assert stage_at([0, 2.5], 2.5) == 1
