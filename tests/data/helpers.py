"""What the tests of data share: whose windows a batch has, and the memory that a call takes."""

import tracemalloc

import torch

CONTEXT = 4
NUM_WINDOWS = 124
"""Of the 500 tokens of the fixture `counted`: (500 - 1) // 4."""


def window_starts(batch):
    """Return the first token of every row, having checked that the row is what follows it."""
    inputs_BT, targets_BT = batch
    assert inputs_BT.dtype == targets_BT.dtype == torch.int64
    assert inputs_BT.is_contiguous()
    assert targets_BT.is_contiguous()
    starts = inputs_BT[:, 0]
    expected = starts[:, None] + torch.arange(CONTEXT + 1)
    assert torch.equal(inputs_BT, expected[:, :-1])
    assert torch.equal(targets_BT, expected[:, 1:])
    return starts.tolist()


def peak_bytes(call):
    tracemalloc.start()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most
