"""Differences: found where they are, put into words, and none where there is none."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_classroom.exercises import compare

NAN = float("nan")
SAME = {
    "numbers": (3, 3),
    "whole and real": (3.0, 3),
    "list and tuple": ([1, 2], (1, 2)),
    "scalar of numpy": (np.float32(0.5), 0.5),
    "tensor without dimensions": (torch.tensor(4), 4),
    "nan": (NAN, NAN),
    "infinite": (math.inf, math.inf),
    "texts": ("ab", "ab"),
    "none": (None, None),
    "bytes": (b"a", b"a"),
    "nested": ({"a": [1, (2, "x")]}, {"a": [1, (2, "x")]}),
    "dictionary in another order": ({1: 2, 3: 4}, {3: 4, 1: 2}),
    "arrays": (np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3)),
    "empty arrays": (np.zeros((0, 2)), np.zeros((0, 2))),
    "tensors": (torch.ones(2, 2), torch.ones(2, 2)),
    "large whole numbers": (np.array([2**62 + 1]), np.array([2**62 + 1])),
    "bfloat16": (torch.ones(3).bfloat16(), torch.ones(3).bfloat16()),
    "nan in arrays": (np.array([NAN, 1.0]), np.array([NAN, 1.0])),
    "truth values": (np.array([True, False]), np.array([True, False])),
}
DIFFERENT = {
    "numbers": (3, 4, "yours: 3, expected: 4"),
    "nan for a number": (NAN, 1.0, "yours: nan"),
    "infinite for a number": (math.inf, 1.0, "yours: inf"),
    "number for infinite": (0.0, -math.inf, "expected: -inf"),
    "infinite for its opposite": (math.inf, -math.inf, "yours: inf"),
    "number for infinite in a list": ((0.0, 0.0), (math.inf, 0.0), "at place 0"),
    "number for nan": (1.0, NAN, "expected: nan"),
    "truth for a number": (True, 1, "a truth value"),
    "number for truth": (1, True, "expected a truth value"),
    "text for a number": ("3", 3, "a text"),
    "none for a number": (None, 3, "None"),
    "none for a list": (None, [], "None"),
    "lengths": ([1], [1, 2], "length 1"),
    "deep": ([1, [2, 3]], [1, [2, 4]], "at place 1: at place 1"),
    "keys": ({"a": 1}, {"b": 1}, "keys"),
    "value of a key": ({"a": 1}, {"a": 2}, "at 'a'"),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2)), "shape (2, 3)"),
    "dtypes": (np.zeros(2, np.float32), np.zeros(2), "dtype float32"),
    "tensor for array": (torch.zeros(2), np.zeros(2, np.float32), "a tensor"),
    "list for tensor": ([0.0, 0.0], torch.zeros(2), "a list of length 2"),
    "large whole numbers": (np.array([2**62 + 1]), np.array([2**62]), "1 of 1 entries"),
    "entry": (np.array([[1, 2], [3, 5]]), np.array([[1, 2], [3, 4]]), "first at (1, 1)"),
    "nan in an array": (np.array([NAN]), np.array([1.0]), "nan"),
    "zeros": (np.zeros(3), np.array([0.0, 1e-30, 0.0]), "1 of 3"),
    "class": (object(), 1, "not one of numbers"),
    "function": (len, 1, "not one of numbers"),
    "generator": ((x for x in ()), [], "not one of numbers"),
    "a number too long to print": (10**20_000, 1, ""),
}


@pytest.mark.parametrize(("answer", "expected"), SAME.values(), ids=SAME)
def test_what_is_the_same_has_no_difference(answer, expected):
    assert compare.difference(answer, expected, relative=0.0) == ""


@pytest.mark.parametrize(("answer", "expected", "says"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_is_put_into_words(answer, expected, says):
    found = compare.difference(answer, expected, relative=0.0)
    assert found
    assert says in found
    if isinstance(answer, float):
        assert says in compare.difference(answer, expected, relative=1e-6)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e-3), st.floats(-2, 2))
def test_numbers_are_near_exactly_when_within_the_tolerance(expected, relative, times):
    answer = expected + times * relative * abs(expected)
    near = answer == expected or abs(answer - expected) <= relative * abs(expected)
    assert (compare.difference(answer, expected, relative=relative) == "") == near


def test_the_tolerance_of_an_array_is_relative_to_its_largest_entry_and_accepts_no_zeros():
    right = np.array([1000.0, 1e-9])
    assert compare.difference(np.array([1000.0, 5e-4]), right, relative=1e-6) == ""
    assert compare.difference(np.array([1000.0, 5e-3]), right, relative=1e-6) != ""
    assert compare.difference(np.zeros(3), np.full(3, 1e-12), relative=1e-6) != ""
    assert compare.difference(1e-9, 0.0, relative=1e-6, absolute=1e-8) == ""
    assert compare.difference(1e-9, 0.0, relative=1e-6) != ""


@pytest.mark.parametrize("value", [list(range(1000)), "x" * 1000, {n: n for n in range(99)}])
def test_values_are_shown_in_one_short_line(value):
    shown = compare.shown(value)
    assert len(shown) <= compare.MOST_CHARACTERS
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("answer", "expected", "other"),
    [
        (np.zeros(2), np.zeros((3, 3)), False),
        (np.zeros(2, np.float32), np.zeros(2), True),
        (torch.zeros(2), np.zeros(2, np.float32), True),
        ([0.0], torch.zeros(1), True),
        (torch.zeros(2), [0.0, 0.0], True),
        (torch.tensor(3.0), 3.0, False),
        ((1, 2), 3, False),
        (1, "1", False),
    ],
)
def test_an_array_of_another_kind_is_recognised(answer, expected, other):
    assert compare.is_other_kind(answer, expected) is other
