"""data: shards byte by byte, one global order for every world size, and prefetch."""

import hashlib
import itertools
import threading

import numpy as np
import pytest
import torch
from edits import edited
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.data import Batches, TokenShards, permuted, prefetch, write_shards
from tests.data.helpers import CONTEXT, NUM_WINDOWS, peak_bytes, window_starts

NAME = "a tokenizer's fingerprint"


def write(tokens, folder, *, name=NAME, vocab_size=100, shard_tokens=7):
    how = {"vocab_size": vocab_size, "shard_tokens": shard_tokens}
    return write_shards(tokens, folder, tokenizer_fingerprint=name, **how)


def random_ids(count, vocab_size=100, seed=0):
    return np.random.default_rng(seed).integers(0, vocab_size, count)


# --- shards
@pytest.mark.parametrize(("vocab_size", "width"), [(65_536, 2), (65_537, 4), (2**32, 4)])
def test_a_shard_is_what_the_layout_says(vocab_size, width, tmp_path):
    ids = [0, 1, vocab_size - 1, 258, 5]
    first, second = write(ids, tmp_path, vocab_size=vocab_size, shard_tokens=3)
    assert (first.name, second.name) == ("shard_00000.bin", "shard_00001.bin")
    for path, tokens, number, is_last in ((first, ids[:3], 0, 0), (second, ids[3:], 1, 1)):
        raw = path.read_bytes()

        def number_at(start, length, raw=raw):
            return int.from_bytes(raw[start : start + length], "little")

        assert (raw[:8], number_at(8, 4)) == (b"LLMSHARD", 1)
        assert number_at(12, 4) == width
        assert number_at(16, 4) == number
        assert number_at(20, 4) == is_last
        assert number_at(24, 8) == vocab_size
        assert number_at(32, 8) == len(tokens)
        assert raw[40:72] == hashlib.sha256(NAME.encode()).digest()
        assert raw[72:104] == hashlib.sha256(raw[104:]).digest()
        assert len(raw) == 104 + width * len(tokens)
        assert [number_at(104 + width * i, width) for i in range(len(tokens))] == tokens


WAYS = {
    "list": lambda ids: ids.tolist(),
    "generator": lambda ids: iter(ids.tolist()),
    "one array": lambda ids: ids,
    "numpy scalars": lambda ids: list(ids.astype(np.uint16)),
    "arrays": lambda ids: iter(np.array_split(ids, 5)),
    "arrays of other types, some empty": lambda ids: iter(
        [ids[:0], ids[:9].astype(np.uint8), np.array([]), ids[9:].astype(np.int32)]
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shard_tokens", [1, 7, 22, 23, 24])
def test_every_way_to_give_tokens_gives_the_same_sequence(way, shard_tokens, tmp_path):
    ids = random_ids(23)
    assert len(write(WAYS[way](ids), tmp_path, shard_tokens=shard_tokens)) == -(-23 // shard_tokens)
    assert np.array_equal(TokenShards(tmp_path)[:], ids)


def test_a_stream_longer_than_a_chunk(tmp_path):
    ids = random_ids(150_000)
    write(iter(ids.tolist()), tmp_path, shard_tokens=70_001)
    assert np.array_equal(TokenShards(tmp_path)[:], ids)


@pytest.fixture(scope="module")
def three_shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    write(random_ids(20), folder)
    return TokenShards(folder, tokenizer_fingerprint=NAME)


@given(start=st.integers(-25, 25) | st.none(), stop=st.integers(-25, 25) | st.none())
def test_slices_are_those_of_the_sequence(start, stop, three_shards):
    ours = three_shards[start:stop]
    assert ours.dtype == np.uint16
    assert not ours.flags.writeable or ours.size == 0
    assert np.array_equal(ours, random_ids(20)[start:stop])


def test_single_tokens_and_length(three_shards):
    ids = random_ids(20).tolist()
    assert len(three_shards) == 20
    assert [three_shards[i] for i in range(-20, 20)] == ids + ids
    assert list(three_shards) == ids
    with pytest.raises(IndexError):
        three_shards[20]
    with pytest.raises(ValueError, match="has step 1, got 2"):
        three_shards[::2]


def test_tokens_are_mapped_not_read(tmp_path):
    write(np.zeros(2_000_000, dtype=np.int64), tmp_path, shard_tokens=2**20)
    peak = peak_bytes(lambda: TokenShards(tmp_path)[1_000_000:1_000_100])
    assert peak < 100_000, "4 MB of tokens were read"


def test_writing_needs_the_memory_of_one_shard(tmp_path):
    stream = (np.full(1_000, 3, dtype=np.uint16) for _ in range(3_000))
    peak = peak_bytes(lambda: write(stream, tmp_path, shard_tokens=100_000))
    assert peak < 600_000, "one shard is 200 kB, the stream 6 MB"
    assert len(TokenShards(tmp_path)) == 3_000_000


BAD_TOKENS = {
    "too large": ([5, 100], ValueError, "token 1 has the id 100; a vocabulary of 100 has ids from"),
    "negative": ([-1], ValueError, "token 0 has the id -1"),
    "huge": ([1, 2**70], ValueError, f"token 1 has the id {2**70}"),
    "huge and negative": ([2**63, -1], ValueError, f"token 0 has the id {2**63}"),
    "in a later chunk": ([*[1] * 70_000, 100], ValueError, "token 70000 has the id 100"),
    "in a later array": ([np.array([1, 2]), np.array([3, 400])], ValueError, "token 3 has the id"),
    "float": ([1, 2.0], TypeError, "token 1 is 2.0, a float"),
    "bool": ([True], TypeError, "token 0 is True, a bool"),
    "text": ("ab", TypeError, "token 0 is 'a', a str"),
    "list of lists": ([[1], [2]], TypeError, r"token 0 is \[1\], a list"),
    "two dimensions": ([np.zeros((2, 2), dtype=int)], TypeError, "one-dimensional"),
    "ids, then an array": ([1, np.array([1, 2])], TypeError, "token 1 is array"),
    "none at all": ([], ValueError, "the stream was empty"),
}


@pytest.mark.parametrize("case", BAD_TOKENS)
def test_bad_tokens_are_refused(case, tmp_path):
    tokens, error, message = BAD_TOKENS[case]
    with pytest.raises(error, match=message):
        write(iter(tokens), tmp_path, shard_tokens=2**17)
    assert list(tmp_path.iterdir()) == []


class CutShortError(Exception):
    """Stands for whatever ends a stream too early."""


def cut_short_after(ids):
    yield from ids
    raise CutShortError


@pytest.mark.parametrize("done", [0, 6, 7, 8, 14, 20])
@pytest.mark.parametrize("over", ["nothing", "an older corpus"])
def test_an_interrupted_write_is_refused(done, over, tmp_path):
    if over == "an older corpus":
        write(random_ids(30), tmp_path)
    with pytest.raises(CutShortError):
        write((np.array([i]) for i in cut_short_after(range(done))), tmp_path)
    with pytest.raises(ValueError, match=r"is incomplete|holds no shards"):
        TokenShards(tmp_path)


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_write_interrupted_while_it_removes_an_older_corpus_is_refused(
    removed, tmp_path, monkeypatch
):
    write(random_ids(20), tmp_path)
    unlink, left = type(tmp_path).unlink, [removed]

    def unlink_a_few(path, **settings):
        left[0] -= 1
        if left[0] < 0:
            raise CutShortError
        unlink(path, **settings)

    monkeypatch.setattr(type(tmp_path), "unlink", unlink_a_few)
    with pytest.raises(CutShortError):
        write(random_ids(20, seed=1), tmp_path)
    if removed:
        with pytest.raises(ValueError, match=r"is missing|is incomplete"):
            TokenShards(tmp_path)
    else:
        assert np.array_equal(TokenShards(tmp_path)[:], random_ids(20))


def test_a_shorter_corpus_replaces_a_longer_one(tmp_path):
    write(random_ids(30), tmp_path)
    write(random_ids(9, seed=1), tmp_path)
    assert np.array_equal(TokenShards(tmp_path)[:], random_ids(9, seed=1))


def edit(path, offset, content):
    raw = bytearray(path.read_bytes())
    raw[offset : offset + len(content)] = content
    path.write_bytes(raw)


def exchanged(paths, **how):
    write(random_ids(20), paths[1].parent / "other", **how)[1].replace(paths[1])


DAMAGE = {
    "first missing": (lambda p: p[0].unlink(), r"shard_00000.bin is missing"),
    "middle missing": (lambda p: p[1].unlink(), r"shard_00001.bin is missing"),
    "last missing": (lambda p: p[2].unlink(), "incomplete.*not marked as the last"),
    "all missing": (lambda p: [x.unlink() for x in p], "holds no shards"),
    "one byte short": (lambda p: p[1].write_bytes(p[1].read_bytes()[:-1]), "has 117 bytes.*118"),
    "one byte more": (lambda p: p[1].write_bytes(p[1].read_bytes() + b"x"), "has 119 bytes"),
    "header cut": (lambda p: p[1].write_bytes(p[1].read_bytes()[:103]), "is no token shard"),
    "empty file": (lambda p: p[1].write_bytes(b""), "is no token shard"),
    "other magic": (lambda p: edit(p[1], 0, b"X"), "is no token shard"),
    "other version": (lambda p: edit(p[1], 8, b"\x02"), "version 2; this code reads 1"),
    "other width": (lambda p: edit(p[1], 12, b"\x04"), "bytes"),
    "no such width": (lambda p: edit(p[1], 12, b"\x03"), "damaged header"),
    "renamed": (lambda p: p[0].write_bytes(p[1].read_bytes()), "says it is shard 1"),
    "last in the middle": (lambda p: edit(p[1], 20, b"\x01"), "incomplete.*shards after it"),
    "of another tokenizer": (lambda p: exchanged(p, name="x"), "differs .* its tokenizer_sha256"),
    "of another type": (lambda p: exchanged(p, vocab_size=70_000), "differs .* bytes_per_token"),
    "of another size": (lambda p: edit(p[1], 24, b"\x65"), "differs .* in its vocab_size"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_shards_are_refused(damage, tmp_path):
    paths = write(random_ids(20), tmp_path)
    assert len(TokenShards(tmp_path)) == 20
    act, message = DAMAGE[damage]
    act(paths)
    with pytest.raises(ValueError, match=message):
        TokenShards(tmp_path)


def test_the_ids_of_another_tokenizer_are_refused_and_a_changed_token_is_found(tmp_path):
    paths = write(random_ids(20), tmp_path)
    assert TokenShards(tmp_path, tokenizer_fingerprint=NAME).vocab_size == 100
    with pytest.raises(ValueError, match=r"with another tokenizer .* encode the text again"):
        TokenShards(tmp_path, tokenizer_fingerprint=NAME + "x")
    TokenShards(tmp_path).verify()
    edit(paths[1], 106, bytes([paths[1].read_bytes()[106] ^ 1]))
    with pytest.raises(ValueError, match=r"shard_00001\.bin is damaged"):
        TokenShards(tmp_path).verify()


def test_a_fingerprint_names_the_data(tmp_path):
    prints = []
    for folder, ids in (("a", random_ids(20)), ("b", random_ids(20)), ("c", random_ids(20) ^ 1)):
        write(ids, tmp_path / folder)
        prints.append(TokenShards(tmp_path / folder).fingerprint)
    assert prints[0] == prints[1] != prints[2]


# --- the shuffle
def shuffle(count, seed=0, epoch=0):
    return permuted(np.arange(count), count, seed=seed, epoch=epoch)


@given(count=st.integers(1, 3_000), seed=st.integers(0, 2**63), epoch=st.integers(0, 1_000))
def test_a_shuffle_is_a_permutation(count, seed, epoch):
    assert np.array_equal(np.sort(shuffle(count, seed, epoch)), np.arange(count))


@given(count=st.integers(1, 2**62), seed=st.integers(0, 100), draw=st.data())
def test_positions_may_be_asked_for_alone(count, seed, draw):
    positions = np.array(draw.draw(st.lists(st.integers(0, count - 1), max_size=5)), dtype=np.int64)
    together = permuted(positions, count, seed=seed)
    alone = [permuted(positions[i : i + 1], count, seed=seed) for i in range(len(positions))]
    assert np.array_equal(together, np.concatenate([np.empty(0, np.int64), *alone]))
    assert all(0 <= x < count for x in together.tolist())
    assert len(set(together.tolist())) == len(set(positions.tolist()))


def reference_shuffle(position, count, seed, epoch):
    """The docstring in plain integers, without a word size to overflow."""
    base = next(b for b in itertools.count(1) if b * b >= count)
    digest = hashlib.shake_128(f"{seed} {epoch}".encode()).digest(48)
    keys = [int.from_bytes(digest[i : i + 8], "little") for i in range(0, 48, 8)]
    while True:
        left, right = divmod(position, base)
        for key in keys:
            x = (right + key) % 2**64
            x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
            left, right = right, (left + (x ^ (x >> 31)) % base) % base
        position = left * base + right
        if position < count:
            return position


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100, 1_001])
def test_a_shuffle_is_what_its_docstring_says(count):
    expected = [reference_shuffle(i, count, 7, 3) for i in range(count)]
    assert shuffle(count, 7, 3).tolist() == expected


def test_a_shuffle_never_changes_between_versions():
    """A run must find its order again after an upgrade: these numbers are for ever."""
    assert shuffle(10, seed=0, epoch=0).tolist() == [6, 4, 1, 7, 2, 8, 5, 0, 3, 9]
    assert shuffle(10, seed=0, epoch=1).tolist() == [9, 8, 5, 2, 3, 7, 0, 1, 6, 4]


def faults_of_shuffle(shuffled, count=997):
    """Return what tells a shuffle from a random one, each at five standard deviations or more.

    Looks at 400 shuffles of `count`: where the first item goes, whether neighbours stay near each
    other, whether the order follows the numbers, and whether two seeds look alike.
    """
    orders = np.array([shuffled(count, seed) for seed in range(400)])
    found = []
    where = orders[:, [0, 1, count // 2, -1]] / (count - 1)
    if np.abs(where.mean(0) - 0.5).max() > 5 * np.sqrt(1 / 12 / 400):
        found.append("some place prefers small or large numbers")
    steps = np.diff(orders, axis=1) % count
    commonest = max(np.bincount(row, minlength=count).max() for row in steps[:50])
    if commonest > 12:  # Poisson with mean 1: more than 12 has probability 6e-11
        found.append("one step from neighbour to neighbour comes too often")
    rank = np.arange(count) - (count - 1) / 2
    correlation = (orders - (count - 1) / 2) @ rank / (rank @ rank)
    if np.abs(correlation).max() > 5 / np.sqrt(count):
        found.append("the order follows the numbers")
    agree = (orders[1:] == orders[:-1]).sum(1)
    if agree.max() > 12 or abs(agree.mean() - 1) > 5 / np.sqrt(399):
        found.append("two seeds give similar orders")
    return found


def two_rounds(count, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llmcourse.data.order._NUM_ROUNDS", 2)
        return shuffle(count, seed)


BAD_SHUFFLES = {
    "no shuffle": lambda n, seed: np.arange(n),
    "rotation by the seed": lambda n, seed: (np.arange(n) + seed * 7) % n,
    "affine": lambda n, seed: (np.arange(n) * (2 * seed + 3) + seed * 31) % n,
    "the same for every seed": lambda n, seed: np.random.default_rng(0).permutation(n),
    "within blocks of 100": lambda n, seed: np.concatenate(
        [np.random.default_rng(seed).permutation(b) for b in np.array_split(np.arange(n), 10)]
    ),
    "two rounds": two_rounds,
}


def test_a_shuffle_looks_random():
    assert faults_of_shuffle(shuffle) == []
    assert faults_of_shuffle(lambda n, seed: shuffle(n, 0, epoch=seed)) == []
    assert faults_of_shuffle(lambda n, seed: np.random.default_rng(seed).permutation(n)) == []


@pytest.mark.parametrize("name", BAD_SHUFFLES)
def test_the_check_notices_a_bad_shuffle(name):
    assert faults_of_shuffle(BAD_SHUFFLES[name]) != []


# --- the order of batches
GLOBAL_BATCH = 12
STEPS_PER_EPOCH = 10  # 124 // 12


def batches_of(shards, world_size=1, rank=0, seed=0, made=Batches, **settings):
    settings = {"batch_size": GLOBAL_BATCH // world_size, "context_length": CONTEXT} | settings
    return made(shards, rank=rank, world_size=world_size, seed=seed, **settings)


def global_order(make, world_size, steps):
    """Return the window starts of all ranks, step by step, in the order of the ranks."""
    ranks = [make(world_size, rank) for rank in range(world_size)]
    return [[s for b in ranks for s in window_starts(b.batch(step))] for step in steps]


def test_the_numbers_of_an_epoch(counted):
    batches = batches_of(counted, world_size=3, rank=1)
    assert batches.global_batch_size == GLOBAL_BATCH
    assert batches.num_windows == NUM_WINDOWS
    assert batches.steps_per_epoch == STEPS_PER_EPOCH
    assert [batches.epoch_of(step) for step in (0, 9, 10, 19, 20)] == [0, 0, 1, 1, 2]
    with pytest.raises(ValueError, match="step must be 0 or greater, got -1"):
        batches.batch(-1)


def faults_of_order(make):
    """Return what is wrong with `make(world_size, rank).batch(step)` over three epochs."""
    steps = range(3 * STEPS_PER_EPOCH)
    one = global_order(make, 1, steps)
    found = []
    for world_size in (2, 3, 4, 6, 12):
        if global_order(make, world_size, steps) != one:
            found.append(f"{world_size} ranks read another order than one")
    epochs = [
        [start for step in one[first : first + STEPS_PER_EPOCH] for start in step]
        for first in range(0, len(steps), STEPS_PER_EPOCH)
    ]
    for epoch in epochs:
        if len(set(epoch)) != len(epoch):
            found.append("a window comes twice in an epoch")
        targets = {start + i for start in epoch for i in range(1, CONTEXT + 1)}
        if len(targets) != len(epoch) * CONTEXT:
            found.append("a token is a target twice in an epoch")
        if sorted(epoch) == epoch:
            found.append("the epoch is not shuffled")
    if epochs[0] == epochs[1] or epochs[1] == epochs[2]:
        found.append("two epochs have the same order")
    if set(epochs[0]) == set(epochs[1]) == set(epochs[2]):
        found.append("every epoch leaves out the same windows")
    return found


def test_one_order_for_every_world_size_without_repetition(counted):
    assert faults_of_order(lambda world, rank: batches_of(counted, world, rank)) == []


DRAWN = "permuted(positions, self.num_windows, seed=self.seed, epoch=epoch)"
PLACE = "steps * self.global_batch_size + self.rank * self.batch_size"
PART = "steps * self.batch_size + self.rank * (self.num_windows // self.world_size)"
GENERATOR = "np.random.default_rng([self.seed, epoch, block, self.rank])"
WRONG_ORDERS = {
    "draws with replacement": [
        (DRAWN, f"{GENERATOR}.integers(0, self.num_windows, len(positions))")
    ],
    "every rank reads the same": [(PLACE, "steps * self.global_batch_size")],
    "every rank shuffles by its own seed": [("self.seed, epoch", "self.seed + self.rank, epoch")],
    "every rank owns a part": [(PLACE, PART)],
    "the same in every epoch": [("epoch=epoch", "epoch=0")],
    "not shuffled": [(DRAWN, "positions")],
    "the windows of a step are dealt like cards": [
        (PLACE, "steps * self.global_batch_size + self.rank"),
        ("np.arange(self.batch_size))", "np.arange(0, self.global_batch_size, self.world_size))"),
    ],
}


@pytest.mark.parametrize("name", WRONG_ORDERS)
def test_the_check_notices_a_wrong_order(name, counted):
    made = edited(Batches, *WRONG_ORDERS[name])
    assert faults_of_order(lambda world, rank: batches_of(counted, world, rank, made=made)) != []


def random_order(make, world_size, steps):
    return [row for step in global_order(make, world_size, steps) for row in step]


def faults_of_random_starts(make, num_starts):
    steps, faults = range(400), []
    drawn = random_order(make, 1, steps)
    if any(random_order(make, n, steps) != drawn for n in (2, 4)):
        faults.append("the order depends on the number of ranks")
    if random_order(make, 1, range(200, 400)) != drawn[len(drawn) // 2 :]:
        faults.append("a step depends on those before it")
    if random_order(lambda n, r: make(n, r, seed=1), 1, steps) == drawn:
        faults.append("the seed is forgotten")
    counts = np.bincount(drawn, minlength=num_starts)
    if len(counts) != num_starts or not counts[0] or not counts[-1]:
        faults.append("not every start can be drawn, or others too")
    # Pearson: its mean is num_starts - 1, its spread sqrt(2 (num_starts - 1)).
    expected = len(drawn) / num_starts
    spread = (2 * (num_starts - 1)) ** 0.5
    if abs(((counts - expected) ** 2 / expected).sum() - (num_starts - 1)) > 5 * spread:
        faults.append("some starts are drawn more, or all of them equally often")
    if len(set(drawn[:num_starts])) > 0.75 * num_starts:  # 63 % with repetition
        faults.append("a start is not drawn again")
    return faults


def starts_at_random(made, shards):
    def make(world_size, rank, seed=0):
        return batches_of(shards, world_size, rank, seed, made=made, order="random")

    return faults_of_random_starts(make, len(shards) - CONTEXT)


def test_random_starts_are_uniform_repeat_and_depend_on_seed_and_step_alone(counted):
    assert starts_at_random(Batches, counted) == []


FIRST = "first = step * self.global_batch_size"
COUNT = "len(self.shards) - self.context_length"
WRONG_STARTS = {
    "the same at each step": (FIRST, "first = 0 * step"),
    "whole windows alone": (f"{COUNT}, seed=self.seed)", f"{COUNT}, seed=self.seed) // 4 * 4"),
    "all ranks draw those of the first": (f"{FIRST} + self.rank * self.batch_size", FIRST),
    "the last one is lost": (COUNT, f"{COUNT} - 1"),
    "shuffled": (f"random_starts(positions, {COUNT}", f"permuted(positions % ({COUNT}), {COUNT}"),
}


@pytest.mark.parametrize("name", WRONG_STARTS)
def test_wrong_random_starts_are_noticed(name, counted):
    assert starts_at_random(edited(Batches, WRONG_STARTS[name]), counted) != []


def test_a_state_of_one_order_means_nothing_in_the_other(counted):
    shuffled, random = batches_of(counted), batches_of(counted, order="random")
    next(random)
    resumed = batches_of(counted, order="random")
    resumed.load_state_dict(random.state_dict())
    assert torch.equal(next(resumed)[0], next(random)[0])
    with pytest.raises(ValueError, match="saved with order = 'random', here it is 'shuffled'"):
        shuffled.load_state_dict(random.state_dict())
    with pytest.raises(ValueError, match="saved with order = 'shuffled', here it is 'random'"):
        random.load_state_dict(shuffled.state_dict())  # as earlier versions saved it
    with pytest.raises(ValueError, match="have no numbers"):
        random.windows(0)


@given(
    num_tokens=st.integers(2, 120),
    context=st.integers(1, 9),
    batch=st.integers(1, 4),
    world=st.integers(1, 3),
)
def test_an_epoch_of_any_size(num_tokens, context, batch, world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    write(np.arange(num_tokens), folder, vocab_size=120, shard_tokens=11)
    shards = TokenShards(folder)
    num_windows = (num_tokens - 1) // context
    if num_windows < batch * world:
        with pytest.raises(ValueError, match="too few for a global batch"):
            Batches(shards, batch, context, world_size=world)
        return
    ranks = [Batches(shards, batch, context, rank, world) for rank in range(world)]
    seen = []
    for step in range(ranks[0].steps_per_epoch):
        for batches in ranks:
            inputs_BT, targets_BT = batches.batch(step)
            assert torch.equal(targets_BT, inputs_BT + 1)
            seen += inputs_BT[:, 0].tolist()
    possible = set(range(0, num_windows * context, context))
    assert len(seen) == len(set(seen)) == ranks[0].steps_per_epoch * batch * world
    assert set(seen) <= possible
    assert len(possible) - len(seen) < batch * world


@given(steps=st.lists(st.integers(0, 400), min_size=1, max_size=8), rank=st.integers(0, 1))
def test_any_step_may_be_asked_for_in_any_order(steps, rank, counted):
    batches = Batches(counted, 1, CONTEXT, rank, 2, seed=3)  # 62 steps per epoch
    longer = Batches(counted, 1, CONTEXT, seed=3)  # 124: more than one block
    for step in steps:
        for b, per_epoch in ((batches, 62), (longer, 124)):
            position = np.array([step % per_epoch * b.world_size + b.rank])
            expected = permuted(position, NUM_WINDOWS, seed=3, epoch=step // per_epoch)
            assert np.array_equal(b.windows(step), expected)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("after", [0, 7, 10, 23])
def test_a_run_continues_the_same_stream_with_any_world_size(after, world_size, counted):
    one = batches_of(counted)
    whole = [window_starts(one.batch(step)) for step in range(after + 12)]
    first = batches_of(counted, world_size=4, rank=3)
    read = [window_starts(batch) for batch in itertools.islice(first, after)]
    assert read == [starts[9:] for starts in whole[:after]]
    ranks = [batches_of(counted, world_size, rank) for rank in range(world_size)]
    for batches in ranks:
        batches.load_state_dict(first.state_dict())
    for starts in whole[after:]:
        assert [start for batches in ranks for start in window_starts(next(batches))] == starts
    assert (one.step, ranks[0].step) == (0, after + 12)


OTHER_ORDERS = {
    "seed": {"seed": 1},
    "context_length": {"context_length": 5},
    "global_batch_size": {"batch_size": 6},
    "data": {},
}


@pytest.mark.parametrize("name", OTHER_ORDERS)
def test_a_state_of_another_order_is_refused(name, counted, tmp_path):
    write(np.arange(500)[::-1], tmp_path, vocab_size=500)
    other = batches_of(TokenShards(tmp_path) if name == "data" else counted, **OTHER_ORDERS[name])
    with pytest.raises(ValueError, match=f"the state was saved with {name} = "):
        other.load_state_dict(batches_of(counted).state_dict())
    assert other.step == 0


def test_an_incomplete_state_is_refused(counted):
    state = batches_of(counted).state_dict()
    for name in state:
        with pytest.raises(ValueError, match=f"the state lacks '{name}'"):
            batches_of(counted).load_state_dict({k: v for k, v in state.items() if k != name})
    with pytest.raises(ValueError, match="step must be 0 or greater, got -1"):
        batches_of(counted).load_state_dict({**state, "step": -1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be 1 or greater, got 0"),
        ({"context_length": 0}, "context_length must be 1 or greater, got 0"),
        ({"world_size": 0, "batch_size": 1}, "world_size must be 1 or greater, got 0"),
        ({"rank": -1}, "rank must be 0 or greater, got -1"),
        ({"rank": 2, "world_size": 2}, "rank must be below 2, got 2"),
        ({"seed": -1}, "seed must be 0 or greater, got -1"),
        ({"batch_size": 125}, "500 tokens hold 124 windows of 4 . 1 tokens, too few"),
        ({"context_length": 500}, "500 tokens hold 0 windows"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, message, counted):
    settings = {"batch_size": 12, "context_length": 4} | settings
    with pytest.raises(ValueError, match=message):
        Batches(counted, **settings)


# --- prefetch
def prefetching_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_prefetch_yields_the_same_items(depth):
    assert list(prefetch(iter(range(20)), depth)) == list(range(20))
    assert (list(prefetch([], depth)), prefetching_threads()) == ([], [])


def test_the_next_item_is_made_while_one_is_used():
    made = [threading.Event() for _ in range(5)]

    def items():
        for event in made:
            event.set()
            yield event

    stream = prefetch(items(), depth=2)
    next(stream)
    # Nobody asks for items 1 and 2: they are made all the same, item 3 is not.
    assert made[1].wait(timeout=10)
    assert made[2].wait(timeout=10)
    assert not made[3].wait(timeout=0.05)
    assert len(prefetching_threads()) == 1
    stream.close()
    assert prefetching_threads() == []


def test_an_exception_comes_in_its_place():
    stream = prefetch(cut_short_after(range(3)), depth=2)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(CutShortError):
        next(stream)
    assert prefetching_threads() == []


def test_closing_makes_no_more_items():
    made, under_way, gate = [], threading.Event(), threading.Event()

    def items():
        for i in range(4):
            if i == 1:
                under_way.set()
                gate.wait(timeout=10)
            made.append(i)
            yield i

    stream = prefetch(items(), depth=3)
    next(stream)
    assert under_way.wait(timeout=10)
    opener = threading.Timer(0.1, gate.set)
    opener.start()
    stream.close()  # waits for item 1, which is under way, and gives up items 2 and 3
    opener.join()
    assert (made, prefetching_threads()) == ([0, 1], [])
