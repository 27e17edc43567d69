"""data.packed_order: every document once in an epoch, in rows that ranks share and steps count."""

import numpy as np
import pytest
import torch

from llmcourse.data import Batches, PackedBatches, TokenShards, write_shards

END, CONTEXT = 7, 10
LENGTHS = [3, 10, 1, 4, 25, 6, 2, 9, 5, 5, 8, 3, 7, 2, 1, 6]


def documents():
    """Documents that can be told apart: tokens 10 i + 0, 1, ... and the end; the last has none."""
    made = [[100 * i + 20 + t for t in range(n - 1)] + [END] for i, n in enumerate(LENGTHS)]
    return [*made, [1701, 1702]]


@pytest.fixture
def shards(tmp_path):
    tokens = np.concatenate(documents()).astype("uint16")
    write_shards([tokens], tmp_path, tokenizer_fingerprint="x", vocab_size=2_000)
    return TokenShards(tmp_path, tokenizer_fingerprint="x")


def packed(shards, batch_size=2, **settings):
    return PackedBatches(shards, batch_size, CONTEXT, end_id=END, **settings)


def pieces(batch):
    found = []
    for ids, numbers, places in zip(*batch[:3], strict=True):
        for number in sorted(set(numbers.tolist()) - {-1}):
            there = numbers == number
            assert places[there].tolist() == list(range(int(there.sum())))
            found.append(ids[there].tolist())
        assert (ids[numbers == -1] == END).all()
    return found


def test_an_epoch_has_every_document_once(shards):
    batches = packed(shards, batch_size=1)
    found = [p for step in range(batches.steps_per_epoch) for p in pieces(batches.batch(step))]
    cut = [d[i : i + CONTEXT] for d in documents() for i in range(0, len(d), CONTEXT)]
    assert sorted(found) == sorted(cut)
    again = batches.batch(batches.steps_per_epoch)
    assert pieces(again) != pieces(batches.batch(0))  # another shuffle


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_share_the_rows_of_one_process(shards, num_ranks):
    whole = packed(shards, batch_size=4, seed=3)
    parts = [
        packed(shards, batch_size=4 // num_ranks, rank=r, world_size=num_ranks, seed=3)
        for r in range(num_ranks)
    ]
    for step in range(5):
        one, shared = whole.batch(step), [part.batch(step) for part in parts]
        for field in ("ids_RT", "documents_RT", "positions_RT"):
            assert torch.equal(torch.cat([getattr(b, field) for b in shared]), getattr(one, field))


def test_a_position_is_one_number_that_belongs_to_its_data_and_order(shards):
    batches = packed(shards)
    for _ in range(3):
        last = next(batches)
    later = packed(shards)
    later.load_state_dict(batches.state_dict())
    assert torch.equal(next(later).ids_RT, batches.batch(3).ids_RT)
    assert not torch.equal(last.ids_RT, batches.batch(3).ids_RT)
    windows = Batches(shards, 2, CONTEXT)
    with pytest.raises(ValueError, match="saved with order = 'shuffled', here it is 'packed'"):
        batches.load_state_dict(windows.state_dict())
    with pytest.raises(ValueError, match="saved with order = 'packed', here it is 'shuffled'"):
        windows.load_state_dict(batches.state_dict())
    with pytest.raises(ValueError, match="saved with end_id = 7, here it is 3"):
        PackedBatches(shards, 2, CONTEXT, end_id=3).load_state_dict(batches.state_dict())


def test_what_cannot_be_is_refused(shards):
    with pytest.raises(ValueError, match="too few for a global batch of 50"):
        packed(shards, batch_size=50)
    with pytest.raises(ValueError, match="packed rows have no starts, of step 2 or any"):
        packed(shards).starts(2)
