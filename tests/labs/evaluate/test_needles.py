"""evaluate.needles: a row can be answered by looking back, and by nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.base.runtime import generator as seeded
from llmcourse.loss import IGNORE_INDEX
from llmcourse_labs.evaluate import needle_rows, needle_tests, needles


def looked_up(ids):
    """What each question of a row asks for, found by reading from the left."""
    boxes, answers = {}, {}
    for place, token in enumerate(ids):
        if needles.FACTS <= token < needles.QUESTIONS:
            box, thing = divmod(token - needles.FACTS, needles.NUM_THINGS)
            assert box not in boxes, "two facts about a box"
            boxes[box] = thing
        elif needles.QUESTIONS <= token < needles.ANSWERS:
            answers[place] = needles.ANSWERS + boxes[token - needles.QUESTIONS]  # told before
    assert len(boxes) == needles.NUM_BOXES
    return answers


@given(seed=st.integers(0, 10**6), length=st.integers(9, 80), depth=st.floats(0, 1))
def test_every_question_is_answered_before_it(seed, length, depth):
    for rows in (
        needle_rows(3, length, generator=seeded(seed)),
        needle_tests(3, length, depth, generator=seeded(seed)),
    ):
        assert rows.ids_BT.max() < needles.NEEDLE_VOCAB
        for ids, targets in zip(rows.ids_BT.tolist(), rows.targets_BT.tolist(), strict=True):
            asked = {place: t for place, t in enumerate(targets) if t != needles.NOT_ASKED}
            assert asked == looked_up(ids)
    assert needles.NOT_ASKED == IGNORE_INDEX


@pytest.mark.parametrize(("depth", "place"), [(0, 0), (0.5, 31), (1, 62)])
def test_the_needle_stands_at_its_depth(depth, place):
    ids, targets = needle_tests(50, 64, depth, generator=seeded(0))
    box, thing = ids[:, -1] - needles.QUESTIONS, targets[:, -1] - needles.ANSWERS
    assert torch.equal(ids[:, place], needles.FACTS + needles.NUM_THINGS * box + thing)
    assert len(set(box.tolist())) == needles.NUM_BOXES
    others = (ids >= needles.FACTS) & (ids < needles.QUESTIONS)
    assert (others.sum(1) == needles.NUM_BOXES).all()
    assert others[:, :-1].float().mean(0).max() == 1  # the needle's place, and no other
    assert (others.float().mean(0) == 1).sum() == 1
