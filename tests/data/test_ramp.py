"""Batches that grow: every window once, in the order that constant batches have, on any ranks."""

import pytest
import torch
from edits import edited

from llmcourse.data import Batches, RampedBatches, ramp_of
from tests.data.helpers import CONTEXT, NUM_WINDOWS, window_starts


def ramped(shards, made=RampedBatches, ramp="0:2,3:4,5:12", **settings):
    return made(shards, ramp_of(ramp), context_length=CONTEXT, seed=5, **settings)


def starts(batches, step):
    return window_starts(batches.batch(step))


def faults(shards, made=RampedBatches):
    """What is wrong with ramped batches over 40 steps, more than three epochs."""

    def make(world_size, rank):
        return ramped(shards, made, world_size=world_size, rank=rank)

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


SPLIT = "epochs, places = np.divmod(positions, self.num_windows)"
PLACE = "windows_before(self.ramp, step) + self.rank * share"
WRONG = {
    "a change comes a step late": (
        ("stage_at(self.ramp, step)", "stage_at(self.ramp, max(0, step - 1))"),
        "a step has another size",
    ),
    "counted as if the size had always been the present one": (
        (PLACE, "step * share * self.world_size + self.rank * share"),
        "an epoch has not every window once",
    ),
    "a step across the end of an epoch goes on in the old shuffle": (
        (SPLIT, f"{SPLIT}\n        epochs[:] = epochs[0]"),
        "an epoch has not every window once",
    ),
    "every rank reads the first share": (
        (PLACE, "windows_before(self.ramp, step)"),
        "ranks read another order than one",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_broken_ramps_are_noticed(name, counted):
    edit, fault = WRONG[name]
    assert fault in faults(counted, edited(RampedBatches, edit))


def test_every_window_comes_once_an_epoch_in_order_and_random_starts_in_the_same_row(counted):
    assert faults(counted) == []
    one = ramped(counted, ramp="0:12")
    constant = Batches(counted, 12, CONTEXT, seed=5)
    assert [starts(one, n) for n in range(10)] == [starts(constant, n) for n in range(10)]
    assert one.epoch_of(10) == 0  # the last 4 of 124 windows, which constant batches leave out
    assert one.epoch_of(11) == 1
    ramp = ramped(counted, order="random")
    single = Batches(counted, 1, CONTEXT, seed=5, order="random")
    row = [start for step in range(7) for start in starts(ramp, step)]
    assert row == [starts(single, n)[0] for n in range(38)]
    with pytest.raises(ValueError, match="have no numbers"):
        ramp.windows(0)


def test_a_ramp_goes_on_where_it_was_on_no_other_and_on_ranks_that_can_share_its_batches(counted):
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
    with pytest.raises(ValueError, match="4 sequences, which 3 ranks cannot share"):
        ramped(counted, ramp="0:3,2:4", world_size=3)
