"""Batches that grow: every window once, in the order that constant batches have, on any ranks."""

from functools import partial

import numpy as np
import pytest
import torch

from llmcourse.data import Batches, RampedBatches, TokenShards, ramp_of, write_shards
from llmcourse.data import ramp as ramps

CONTEXT = 4
RAMP = "0:2,3:4,5:12"
NUM_WINDOWS = 124  # (500 - 1) // 4


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Tokens 0, 1, 2, ...: a token's value is its place."""
    folder = tmp_path_factory.mktemp("counted")
    write_shards(
        np.arange(500), folder, vocab_size=500, tokenizer_fingerprint="none", shard_tokens=37
    )
    return TokenShards(folder)


def ramped(shards, made=RampedBatches, ramp=RAMP, **settings):
    return made(shards, ramp_of(ramp), context_length=CONTEXT, seed=5, **settings)


def starts(batches, step):
    """The first token of every row of a step, having checked that the row follows it."""
    inputs_BT, targets_BT = batches.batch(step)
    first = inputs_BT[:, 0]
    expected = first[:, None] + torch.arange(CONTEXT + 1)
    assert torch.equal(torch.cat([inputs_BT, targets_BT[:, -1:]], dim=1), expected)
    return first.tolist()


def test_sizes_and_windows_of_a_ramp_by_hand():
    ramp = ramp_of(RAMP)
    assert [ramps.ramp_stage_at(ramp, step).batch_size for step in range(7)] == [
        2,
        2,
        2,
        4,
        4,
        12,
        12,
    ]
    assert [ramps.windows_before(ramp, step) for step in range(8)] == [0, 2, 4, 6, 10, 14, 26, 38]


def faults(make):
    """What is wrong with `make(world_size, rank)` over 40 steps, more than three epochs."""
    sizes = [2, 2, 2, 4, 4] + 35 * [12]
    steps = [starts(make(1, 0), step) for step in range(40)]
    found = []
    if [len(step) for step in steps] != sizes:
        found.append("a step has another size")
    order = [start for step in steps for start in step]
    epochs = [order[n * NUM_WINDOWS : (n + 1) * NUM_WINDOWS] for n in range(3)]
    if any(sorted(epoch) != list(range(0, 4 * NUM_WINDOWS, 4)) for epoch in epochs):
        found.append("an epoch has not every window once")
    if epochs[0] == epochs[1] or sorted(epochs[0]) == epochs[0]:
        found.append("an epoch is not shuffled anew")
    ranks = [make(2, rank) for rank in range(2)]
    if [[s for each in ranks for s in starts(each, n)] for n in range(40)] != steps:
        found.append("ranks read another order than one")
    return found


class SizeOfTheStepBefore(RampedBatches):
    """A change comes a step late: its windows are read, but not counted."""

    def starts(self, step):
        return super().starts(step)[: len(super().starts(max(0, step - 1)))]


class CountedAsIfConstant(RampedBatches):
    """The place in the order is the step times the present size: windows come again."""

    def starts(self, step):
        share = ramps.ramp_stage_at(self.ramp, step).batch_size // self.world_size
        positions = (step * share * self.world_size + self.rank * share + np.arange(share)) % 124
        return ramps.permuted(positions, self.num_windows, seed=self.seed) * CONTEXT


class OneEpochForAll(RampedBatches):
    """A step across the end of an epoch goes on in the old shuffle."""

    def starts(self, step):
        first = ramps.windows_before(self.ramp, step)
        share = ramps.ramp_stage_at(self.ramp, step).batch_size // self.world_size
        positions = first + self.rank * share + np.arange(share)
        epoch = int(positions[0]) // self.num_windows
        places = positions % self.num_windows
        return ramps.permuted(places, self.num_windows, seed=self.seed, epoch=epoch) * CONTEXT


class SharesOfRankZero(RampedBatches):
    """Every rank reads the first share."""

    def starts(self, step):
        rank, self.rank = self.rank, 0
        try:
            return super().starts(step)
        finally:
            self.rank = rank


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (SizeOfTheStepBefore, "a step has another size"),
        (CountedAsIfConstant, "an epoch has not every window once"),
        (OneEpochForAll, "an epoch has not every window once"),
        (SharesOfRankZero, "ranks read another order than one"),
    ],
)
def test_broken_ramps_are_noticed(made, fault, counted):
    broken = partial(ramped, counted, made)
    assert fault in faults(lambda world, rank: broken(world_size=world, rank=rank))


def test_every_window_comes_once_an_epoch_whatever_the_ranks(counted):
    assert faults(lambda world, rank: ramped(counted, world_size=world, rank=rank)) == []


def test_a_ramp_of_one_stage_is_the_order_of_constant_batches(counted):
    one = ramped(counted, ramp="0:12")
    constant = Batches(counted, 12, CONTEXT, seed=5)
    assert [starts(one, n) for n in range(10)] == [starts(constant, n) for n in range(10)]
    assert one.epoch_of(10) == 0  # the last 4 of 124 windows, which constant batches leave out
    assert one.epoch_of(11) == 1


def test_random_starts_take_their_numbers_in_the_same_row(counted):
    ramp = ramped(counted, order="random")
    single = Batches(counted, 1, CONTEXT, seed=5, order="random")
    row = [start for step in range(7) for start in starts(ramp, step)]
    assert row == [starts(single, n)[0] for n in range(38)]
    with pytest.raises(ValueError, match="have no numbers"):
        ramp.windows(0)


def test_a_ramp_goes_on_where_it_was_and_on_no_other_ramp(counted):
    whole = ramped(counted)
    rows = [next(whole)[0] for _ in range(8)]
    state = ramped(counted, world_size=2).state_dict() | {"step": 4}
    resumed = ramped(counted)
    resumed.load_state_dict(state)
    assert all(torch.equal(next(resumed)[0], row) for row in rows[4:])
    with pytest.raises(ValueError, match="saved with ramp"):
        ramped(counted, ramp="0:2,4:4").load_state_dict(state)
    with pytest.raises(ValueError, match="lacks 'global_batch_size'"):
        Batches(counted, 12, CONTEXT, seed=5).load_state_dict(state)


def test_ranks_must_be_able_to_share_every_batch(counted):
    with pytest.raises(ValueError, match="4 sequences, which 3 ranks cannot share"):
        ramped(counted, ramp="0:3,2:4", world_size=3)
