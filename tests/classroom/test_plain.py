"""Plain data survives the way between the processes; everything else is refused."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_classroom.exercises import plain

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
SCALARS = SCALARS.filter(lambda x: not isinstance(x, str) or x.isascii() or x.isprintable())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers() | st.text("ab"), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a, b):
    """Say whether two plain values are equal, NaN being equal to itself, types included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


@given(VALUES)
def test_what_arrives_is_what_was_sent_in_one_line(value):
    assert same(plain.loads(plain.dumps(value)), value)
    assert b"\n" not in plain.dumps(value)


@pytest.mark.parametrize("dtype", sorted(plain.NUMPY_DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_arrays_arrive_with_shape_and_dtype(dtype, shape):
    array = (np.arange(math.prod(shape)).reshape(shape) - 1).astype(dtype)
    arrived = plain.passed_through(array)
    assert arrived.dtype == array.dtype
    assert arrived.shape == array.shape
    assert (arrived == array).all()


@pytest.mark.parametrize("dtype", sorted(plain.TORCH_DTYPES))
def test_tensors_arrive_with_shape_and_dtype_and_without_a_gradient(dtype):
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, dtype)).T
    arrived = plain.passed_through(tensor)
    assert arrived.dtype is tensor.dtype
    assert torch.equal(arrived, tensor)
    arrived = plain.passed_through(torch.nn.Parameter(torch.ones(2)))
    assert torch.equal(arrived, torch.ones(2))
    assert not arrived.requires_grad


class Sly(int):
    """A number that is not one."""


CYCLE = []
CYCLE.append(CYCLE)
NOT_PLAIN = {
    "object": object(),
    "function": math.sin,
    "class": int,
    "subclass": Sly(3),
    "set": {1, 2},
    "complex": 1j,
    "array of objects": np.array([object()]),
    "array of texts": np.array(["a"]),
    "many empty rows": torch.empty(10**9, 0),
    "complex tensor": torch.ones(1, dtype=torch.complex64),
    "cycle": CYCLE,
    "half a character": "\ud800",
    "inside": [1, {"a": (object(),)}],
}


FORGED = {
    "no json": b"{",
    "nothing": b"",
    "too deep": b"[" * 100_000 + b"]" * 100_000,
    "deep": json.dumps([[[]]]).encode().replace(b"[]", b"[" * 30 + b"]" * 30),
    "huge number": b"9" * 10_000,
    "unknown kind": b'{"pickle":"gASVAAAA"}',
    "empty object": b"{}",
    "no float": b'{"float":"one"}',
    "no bytes": b'{"bytes":"%%%"}',
    "object dtype": b'{"array":"object","shape":[1],"data":"AAAAAAAAAAA="}',
    "dtype is a list": b'{"array":[],"shape":[1],"data":"AAAA"}',
    "shape lies": b'{"array":"int8","shape":[1000000000],"data":"AAAA"}',
    "shape is negative": b'{"array":"int8","shape":[-3,-1],"data":"AAAA"}',
    "shape is true": b'{"array":"int8","shape":[true],"data":"AA=="}',
    "no shape": b'{"array":"int8","data":"AAAA"}',
    "odd length": b'{"array":"int16","shape":[1],"data":"AAAA"}',
    "many empty rows": b'{"tensor":"int8","shape":[1000000000,0],"data":""}',
    "empty columns": b'{"array":"int8","shape":[0,200,100],"data":""}',
    "key is a list": b'{"dict":[[[1],2]]}',
    "pair is one": b'{"dict":[[1]]}',
    "dict is a number": b'{"dict":5}',
    "tuple is none": b'{"tuple":null}',
    "data is a number": b'{"bytes":5}',
}


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED)
def test_a_forged_line_is_refused(line):
    with pytest.raises(plain.NotPlainError):
        plain.loads(line)


@pytest.mark.parametrize("value", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(plain.NotPlainError):
        plain.loads(plain.dumps(value))


@given(st.binary(max_size=60))
def test_any_line_is_read_or_refused(line):
    try:
        value = plain.loads(line)
    except plain.NotPlainError:
        return
    assert same(plain.passed_through(value), value)
