"""data.mixture: shares that are exact over any prefix, and an order that needs no memory."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.data import TokenShards, write_shards
from llmcourse.data.mixture import MixedBatches, MixtureStage, interleave, per_mille

SHARES = {"prose": 0.5, "code": 0.3, "stories": 0.2}
SIZES = {"prose": 90, "code": 40, "stories": 25}
"""Windows of each source."""
T = 4


@pytest.fixture
def sources(tmp_path):
    """Three sources whose tokens say which source they are of, and where they stand."""
    shards = {}
    for number, (name, count) in enumerate(SIZES.items()):
        tokens = np.arange(count * T + 1) + 1_000 * number
        settings = {"tokenizer_fingerprint": "numbers", "vocab_size": 4_000}
        write_shards(tokens, tmp_path / name, shard_tokens=37, **settings)
        shards[name] = TokenShards(tmp_path / name)
    return shards


def mixed(sources, *, stages=None, **given):
    settings = {"batch_size": 6, "context_length": T, "seed": 3} | given
    return MixedBatches(sources, stages or [MixtureStage(0, SHARES)], **settings)


def worst_distance(order, weights):
    """How far the number of turns of a source ever is from its share of all turns so far."""
    counts, worst = [0] * len(weights), 0.0
    for n, source in enumerate(order, 1):
        counts[source] += 1
        off = [abs(c - w * n / len(order)) for c, w in zip(counts, weights, strict=True)]
        worst = max(worst, *off)
    return worst


@given(weights=st.lists(st.integers(1, 60), min_size=1, max_size=7).map(tuple))
def test_no_source_is_ever_a_whole_turn_ahead_or_behind(weights):
    order, k = interleave(weights), len(weights)
    assert tuple(order.count(source) for source in range(k)) == weights
    assert worst_distance(order, weights) <= (1 - 1 / (2 * k - 2) if k > 1 else 0) + 1e-9


def test_turns_by_hand_and_mutants_of_shares_as_small_whole_numbers():
    assert (interleave((1, 1)), interleave((3, 1))) == ((0, 1), (0, 0, 1, 0))
    weights = (10, 10, 10, 10, 60)
    blocks = [i for i, w in enumerate(weights) for _ in range(w)]
    drawn = np.random.default_rng(0).permutation(blocks).tolist()
    assert worst_distance(interleave(weights), weights) < 1
    assert all(worst_distance(mutant, weights) > 1 for mutant in (blocks, drawn))
    assert per_mille(SHARES) == {"prose": 5, "code": 3, "stories": 2}
    assert per_mille({"a": 1.0}) == {"a": 1}
    assert per_mille({"a": 0.125, "b": 0.875}) == {"a": 1, "b": 7}


def read(batches, steps):
    return [window for step in steps for window in batches.windows(step)]


LATER = [MixtureStage(0, SHARES), MixtureStage(7, {"code": 1.0})]


@pytest.mark.parametrize(("stages", "shared"), [(None, 60), (LATER, 7)])
def test_every_prefix_has_the_shares_to_one_window(sources, stages, shared):
    batches = mixed(sources, stages=stages, batch_size=1)
    counts = dict.fromkeys(SIZES, 0)
    for n, (name, _) in enumerate(read(batches, range(60)), 1):
        counts[name] += 1
        assert batches.counts(n) == counts
        for source, share in SHARES.items():
            wanted = share * min(n, shared) + (max(0, n - shared) if source == "code" else 0)
            assert abs(counts[source] - wanted) < 1


def test_inside_a_source_every_window_comes_once_an_epoch(sources):
    batches = mixed(sources)
    order = read(batches, range(100))
    for name, count in SIZES.items():
        numbers = [window for source, window in order if source == name]
        whole = len(numbers) // count
        epochs = [numbers[e * count : (e + 1) * count] for e in range(whole)]
        assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
        assert epochs[0] != sorted(epochs[0])
        assert whole < 2 or epochs[0] != epochs[1]
    assert batches.epochs(100) == {"prose": 300 / 90, "code": 180 / 40, "stories": 120 / 25}


@pytest.mark.parametrize(("world_size", "batch_size"), [(1, 12), (2, 6), (3, 4), (4, 3)])
def test_the_order_is_the_same_for_every_world_size(sources, world_size, batch_size):
    stages = [MixtureStage(0, SHARES), MixtureStage(5, {"prose": 0.1, "code": 0.9})]
    one = mixed(sources, stages=stages, batch_size=12)
    parts = [
        mixed(sources, stages=stages, batch_size=batch_size, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    for step in (0, 1, 4, 5, 6, 50, 1_000):
        assert [w for part in parts for w in part.windows(step)] == one.windows(step)


def test_a_batch_holds_the_tokens_of_its_windows_and_runs_and_annealed_sources_go_on(sources):
    batches = mixed(sources)
    inputs, targets = batches.batch(9)
    assert torch.equal(targets, inputs + 1)
    for row, (name, window) in enumerate(batches.windows(9)):
        start = 1_000 * list(SIZES).index(name) + window * T
        assert inputs[row].tolist() == list(range(start, start + T))
    whole, stopped = mixed(sources), mixed(sources)
    expected = [next(whole)[0] for _ in range(9)][4:]
    for _ in range(4):
        next(stopped)
    resumed = mixed(sources, batch_size=3, world_size=2, rank=1)
    resumed.load_state_dict(stopped.state_dict())
    assert [next(resumed)[0].tolist() for _ in range(5)] == [b[3:].tolist() for b in expected]
    stages = [MixtureStage(0, SHARES), MixtureStage(10, {"stories": 1.0})]
    before, after = mixed(sources), mixed(sources, stages=stages)
    numbers = [w for name, w in read(after, range(13)) if name == "stories"]
    assert read(before, range(10)) == read(after, range(10))
    assert len(numbers) == 12 + 18
    assert sorted(numbers[:25]) == list(range(25))


def test_seeds_and_sources_have_orders_of_their_own(sources, tmp_path):
    assert read(mixed(sources), range(5)) != read(mixed(sources, seed=4), range(5))
    twins = {"a": sources["code"], "b": sources["code"]}
    order = read(mixed(twins, stages=[MixtureStage(0, {"a": 0.5, "b": 0.5})]), range(6))
    assert [w for name, w in order if name == "a"] != [w for name, w in order if name == "b"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"stages": [MixtureStage(0, {"prose": 0.5, "web": 0.5})]}, "no source 'web': there are p"),
        ({"stages": [MixtureStage(1, SHARES)]}, r"these at \[1\]"),
        ({"stages": [MixtureStage(0, SHARES)] * 2}, r"these at \[0, 0\]"),
        ({"batch_size": 0}, "batch_size"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"context_length": 200}, "code has 161 tokens, too few"),
    ],
)
def test_what_cannot_be_is_refused(sources, changed, said):
    with pytest.raises(ValueError, match=said):
        mixed(sources, **changed)


def test_a_position_of_another_order_is_refused(sources):
    shares = ({"prose": 1.0}, {"prose": 0.5, "code": 0.5}, {"code": 0.5, "prose": 0.5})
    other, one, two = (mixed(sources, stages=[MixtureStage(0, each)]) for each in shares)
    assert one.windows(1) != two.windows(1)  # of equal shares the first that is named comes first
    state, saved = mixed(sources).state_dict(), json.loads(json.dumps(one.state_dict()))
    for batches, given_state, said in (
        (mixed(sources, seed=4), state, "saved with seed = 3, here it is 4"),
        (other, state, "saved with stages"),
        (two, saved, "saved with stages"),
        (mixed(sources), state | {"step": -1}, "at step -1"),
    ):
        with pytest.raises(ValueError, match=said):
            batches.load_state_dict(given_state)
    one.load_state_dict(saved)


def test_two_vocabularies_do_not_mix(sources, tmp_path):
    settings = {"tokenizer_fingerprint": "others", "vocab_size": 500}
    write_shards(np.arange(100), tmp_path / "other", **settings)
    with pytest.raises(ValueError, match="vocabularies of"):
        mixed(sources | {"other": TokenShards(tmp_path / "other")})
