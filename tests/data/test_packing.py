"""data: packing, each way against plain lists, and the loss of packed rows against documents."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import loss
from llmcourse.base import runtime
from llmcourse.data import best_fit, concatenate_and_cut, one_per_row, pack, packed_rows
from llmcourse.model import Transformer, tiny
from llmcourse.model.attention import document_mask

LENGTHS = st.lists(st.integers(0, 25), max_size=20)


def first_pieces(lengths, context):
    """The pieces of all documents, (document, start, length), the longest first."""
    pieces = [
        (d, s, min(context, n - s)) for d, n in enumerate(lengths) for s in range(0, n, context)
    ]
    return sorted(pieces, key=lambda p: (-p[2], p[0], p[1]))


@given(lengths=LENGTHS, context=st.integers(1, 12))
@pytest.mark.parametrize("way", [pack, best_fit, concatenate_and_cut, one_per_row])
def test_every_token_has_one_place(way, lengths, context):
    packing = way(lengths, context)
    expected = [(d, i) for d, length in enumerate(lengths) for i in range(length)]
    held = [(p.document, p.start + i) for row in packing.rows for p in row for i in range(p.length)]
    assert sorted(held) == expected
    assert packing.num_tokens == sum(lengths)
    assert all(0 < sum(p.length for p in row) <= context for row in packing.rows)
    assert all(p.length > 0 for row in packing.rows for p in row)
    room = context * len(packing.rows)
    assert packing.efficiency == (sum(lengths) / room if room else 1.0)


@given(lengths=LENGTHS, context=st.integers(1, 12))
def test_packing_cuts_no_document_that_fits(lengths, context):
    for packing in (way(lengths, context) for way in (pack, best_fit, one_per_row)):
        num_pieces = [0] * len(lengths)
        for row in packing.rows:
            for piece in row:
                num_pieces[piece.document] += 1
        assert num_pieces == [-(-length // context) for length in lengths]


@given(lengths=LENGTHS, context=st.integers(1, 12))
def test_concatenating_pads_the_last_row_alone(lengths, context):
    rows = concatenate_and_cut(lengths, context).rows
    assert len(rows) == -(-sum(lengths) // context)
    assert all(sum(p.length for p in row) == context for row in rows[:-1])
    in_order = [(p.document, p.start) for row in rows for p in row]
    assert in_order == sorted(in_order)


def reference_first_fit_decreasing(lengths, context):
    """Row by row in plain lists."""
    rows = []
    for piece in first_pieces(lengths, context):
        for row in rows:
            if sum(p[2] for p in row) + piece[2] <= context:
                row.append(piece)
                break
        else:
            rows.append([piece])
    return rows


@given(lengths=LENGTHS, context=st.integers(1, 30))
def test_pack_is_first_fit_decreasing(lengths, context):
    assert pack(lengths, context).rows == reference_first_fit_decreasing(lengths, context)


def reference_best_fit_decreasing(lengths, context):
    """Row by row in plain lists; of rows with equal room the one that was filled last."""
    rows, filled = [], []  # filled: row numbers, the one filled last at the end
    for piece in first_pieces(lengths, context):
        room = {row: context - sum(p[2] for p in rows[row]) for row in reversed(filled)}
        fitting = [row for row in room if room[row] >= piece[2]]
        if fitting:
            row = min(fitting, key=room.get)
            filled.remove(row)
        else:
            row = len(rows)
            rows.append([])
        rows[row].append(piece)
        filled.append(row)
    return rows


@given(lengths=LENGTHS, context=st.integers(1, 30))
def test_best_fit_is_best_fit_decreasing(lengths, context):
    assert best_fit(lengths, context).rows == reference_best_fit_decreasing(lengths, context)


def fewest_rows(lengths, context):
    """Try every way to put documents into rows; keep the best."""
    best = len(lengths)

    def place(index, room):
        nonlocal best
        if len(room) >= best:
            return
        if index == len(lengths):
            best = len(room)
            return
        for row in range(len(room)):
            if room[row] >= lengths[index]:
                place(index + 1, [r - lengths[index] * (i == row) for i, r in enumerate(room)])
        place(index + 1, [*room, context - lengths[index]])

    place(0, [])
    return best


@given(lengths=st.lists(st.integers(1, 12), max_size=9))
def test_pack_is_near_the_best_that_exists(lengths):
    best = fewest_rows(lengths, 12)
    for way in (pack, best_fit):
        rows = len(way(lengths, 12).rows)
        assert best <= rows
        assert 9 * rows <= 11 * best + 6


def texts(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 300, length).tolist() for length in lengths]


@given(lengths=LENGTHS, context=st.integers(1, 12))
@pytest.mark.parametrize("way", [best_fit, concatenate_and_cut])
def test_rows_hold_every_token_once_and_say_where_it_is_from(way, lengths, context):
    documents = texts(lengths)
    rows = packed_rows(documents, way(lengths, context), padding_id=0)
    assert rows.ids_RT.shape == rows.documents_RT.shape == rows.positions_RT.shape
    for number, document in enumerate(documents):
        assert sorted(rows.ids_RT[rows.documents_RT == number].tolist()) == sorted(document)
    padding = rows.documents_RT == -1
    assert (rows.ids_RT[padding] == 0).all()
    assert (rows.ids_RT[~padding] > 0).all()
    for ids, whose, positions in zip(*(x.tolist() for x in rows), strict=True):
        for t in range(1, len(ids)):
            if whose[t] >= 0:
                begins = whose[t] != whose[t - 1]
                assert positions[t] == (0 if begins else positions[t - 1] + 1)


def test_rows_by_hand():
    rows = packed_rows([[7, 8, 9], [4], [5, 6]], best_fit([3, 1, 2], 5), padding_id=0)
    assert rows.ids_RT.tolist() == [[7, 8, 9, 5, 6], [4, 0, 0, 0, 0]]
    assert rows.documents_RT.tolist() == [[0, 0, 0, 2, 2], [1, -1, -1, -1, -1]]
    assert rows.positions_RT.tolist() == [[0, 1, 2, 0, 1], [0, 0, 0, 0, 0]]


def decoder(dtype):
    """A tiny model with weights large enough that a wrong key shows."""
    model = Transformer(tiny(), generator=runtime.generator(0))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5)
    if dtype == torch.float64:
        model.to(dtype)
    return model


LENGTHS_OF_STORIES = [20, 7, 13, 5, 9, 32, 2, 1, 11, 3, 24]


def summed_one_by_one(model, documents):
    """The loss of every document in a batch of its own, without packing or padding."""
    total = 0.0
    for document in documents:
        ids = torch.tensor([document])
        total += loss.token_losses(model(ids), loss.shifted_targets(ids)).sum()
    return total


@pytest.mark.parametrize("way", [best_fit, pack, one_per_row])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_the_loss_of_packed_rows_is_that_of_the_documents(way, dtype, bound):
    model, documents = decoder(dtype), texts(LENGTHS_OF_STORIES)
    rows = packed_rows(documents, way(LENGTHS_OF_STORIES, 32), padding_id=0)
    targets = loss.shifted_targets(rows.ids_RT, documents_BT=rows.documents_RT)
    count = loss.count_targets([targets])
    assert count == sum(LENGTHS_OF_STORIES) - len(LENGTHS_OF_STORIES)
    mask = document_mask(rows.documents_RT)
    logits = model(rows.ids_RT, positions_BT=rows.positions_RT, mask=mask)
    packed = loss.cross_entropy(logits, targets, num_tokens=count)
    expected = summed_one_by_one(model, documents) / count
    assert abs(packed.item() / expected.item() - 1) < bound
    gradients = torch.autograd.grad(packed, list(model.parameters()))
    for ours, theirs in zip(
        gradients, torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        assert (ours - theirs).abs().max() < 10 * bound * theirs.abs().max()


WRONG = {
    "no document mask": (False, True),
    "the next document is asked for": (True, False),
    "restarted positions alone keep nothing apart": (False, False),
}
"""Whether there is a mask, and whether targets end with their document."""


@pytest.mark.parametrize("mutant", WRONG)
def test_the_comparison_notices_a_leak(mutant):
    model, documents = decoder(torch.float64), texts(LENGTHS_OF_STORIES)
    rows = packed_rows(documents, best_fit(LENGTHS_OF_STORIES, 32), padding_id=0)
    masked, apart = WRONG[mutant]
    mask = document_mask(rows.documents_RT) if masked else None
    logits = model(rows.ids_RT, positions_BT=rows.positions_RT, mask=mask)
    targets = loss.shifted_targets(rows.ids_RT, documents_BT=rows.documents_RT if apart else None)
    wrong = loss.cross_entropy(logits, targets).item()
    expected = summed_one_by_one(model, documents) / loss.count_targets([targets])
    assert abs(wrong / expected.item() - 1) > 1e-3


def test_no_gradient_crosses_from_one_document_to_another():
    """d loss of document b / d embeddings of document a = 0, through the whole model."""
    model, documents = decoder(torch.float64), texts([6, 8, 5])
    rows = packed_rows(documents, best_fit([6, 8, 5], 20), padding_id=0)
    seen = []
    hook = model.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    for mask, crosses in ((document_mask(rows.documents_RT), False), (None, True)):
        logits = model(rows.ids_RT, positions_BT=rows.positions_RT, mask=mask)
        targets = loss.shifted_targets(rows.ids_RT, documents_BT=rows.documents_RT)
        losses = loss.token_losses(logits, targets)
        last = rows.documents_RT == rows.documents_RT[0, 18]
        (dx,) = torch.autograd.grad(losses[last].sum(), seen.pop())
        others = (rows.documents_RT != rows.documents_RT[0, 18]).unsqueeze(-1)
        assert bool((dx.where(others, 0.0) != 0).any()) == crosses
        assert (dx.where(~others, 0.0) != 0).any()
    hook.remove()
