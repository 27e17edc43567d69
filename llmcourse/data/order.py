"""Which tokens a rank reads at which step: one global shuffled order, and nothing to remember.

The tokens are cut into windows of context_length + 1, each starting context_length after the one
before: the last token of a window is the first of the next, so that every token but the first is
a target once.  An epoch goes through the windows in a shuffled order.  Step s takes the next
batch_size * world_size of them, and rank r its share in the order of the ranks.  Where a run
stands is therefore one number, the step, and the order is the same for every world size.

Batches at random starts, which nanoGPT and Stanford's CS336 draw, are there beside it.  Any token
may begin a window, and each step draws anew.  The trade-off: there is nothing to shuffle, no border
between epochs, and no window is cut at the same place each time; but in one pass' worth of steps a
token is missed with probability 1/e = 37 %, another one comes twice or more.

Shape suffixes:  B batch of this rank, T time (tokens), S steps.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from jaxtyping import Int64

from llmcourse.base.arguments import require, require_fields
from llmcourse.data.shards import TokenShards

Item = TypeVar("Item")

_NUM_ROUNDS = 6
"""Of the Feistel network.  Four suffice in theory for strong round functions; two are spare."""

_BLOCK_STEPS = 64
"""Steps whose windows are found in one go: numpy takes as long for 1 number as for 1,000."""


def permuted(
    positions: Int64[np.ndarray, " N"], count: int, *, seed: int, epoch: int = 0
) -> Int64[np.ndarray, " N"]:
    """Return where a shuffle of range(count) puts these positions, without making the shuffle.

    Write a position as two digits (left, right) in base ceil(sqrt(count)) and repeat

        left, right = right, (left + hash(right)) mod base

    Every round can be undone, so the whole is a permutation of the base^2 pairs.  A result that is
    `count` or more goes through it again, until it is below.  It needs no memory, can start
    anywhere, and does not depend on the version of a library, as numpy's own shuffle does.

    Args:
        positions: any numbers from 0 to count - 1.
        count: how many there are, 1 or more.
        seed: 0 or greater.
        epoch: another number, another shuffle.

    Raises:
        ValueError: if count is below 1 or a position is outside.

    Source:
        Black and Rogaway 2002, "Ciphers with arbitrary finite domains", sections 3 and 4.
    """
    require("count", count, least=1)
    if len(positions) and not 0 <= positions.min() <= positions.max() < count:
        raise ValueError(f"positions must be from 0 to {count - 1}, got {positions}")
    base = np.uint64(math.isqrt(count - 1) + 1)
    digest = hashlib.shake_128(f"{seed} {epoch}".encode()).digest(8 * _NUM_ROUNDS)
    keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)  # one for each round
    found = _feistel(positions.astype(np.uint64), base, keys)
    while (outside := found >= count).any():  # a share of about 2 / sqrt(count) of them
        found[outside] = _feistel(found[outside], base, keys)
    return found.astype(np.int64)


def _feistel(values: np.ndarray, base: np.uint64, keys: np.ndarray) -> np.ndarray:
    """Permute the numbers below base^2."""
    left, right = np.divmod(values, base)
    for key in keys:
        left, right = right, (left + _hash(right + key) % base) % base
    return left * base + right


def _hash(x: np.ndarray) -> np.ndarray:
    """Mix 64 bits, modulo 2^64.

    Source:
        Steele, Lea and Flood 2014, figure 17 (SplitMix), with the constants of variant 13 of
        David Stafford.
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


Order = Literal["shuffled", "random"]
"""Of the windows: each once in an epoch, or at random starts, with repetition."""


def random_starts(
    positions: Int64[np.ndarray, " N"], count: int, *, seed: int
) -> Int64[np.ndarray, " N"]:
    """Return a random number below `count` for each position, the same one each time.

        start = hash(position * g + hash(seed)) mod count

    It is SplitMix64 at any place of its sequence, g being its step.  Like `permuted` it needs no
    memory, can start anywhere, and does not depend on the version of a library.

    Args:
        positions: 0 or greater: how many windows were drawn before, by all ranks.
        count: of possible starts, 1 or more.
        seed: 0 or greater.

    Raises:
        ValueError: if count is below 1 or a position is negative.
    """
    require("count", count, least=1)
    if len(positions) and positions.min() < 0:
        raise ValueError(f"positions must be 0 or greater, got {positions}")
    digest = hashlib.shake_128(f"{seed} random starts".encode()).digest(8)
    key = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
    golden = np.uint64(0x9E3779B97F4A7C15)
    return (_hash(positions.astype(np.uint64) * golden + key) % np.uint64(count)).astype(np.int64)


class Batches:
    """The batches of one rank: a pure function of (seed, step, rank, world size), and an iterator.

    In the order "shuffled" no window comes twice in an epoch.  Left out of an epoch are the windows
    that do not fill a last global batch (others in every epoch), and always the tokens at the very
    end that do not fill a window.  The iterator never ends: the next epoch is another shuffle.

    Memory: the numbers of the windows of 64 steps, however large the data.

    Args:
        shards: where the tokens are.
        batch_size: windows per step of *this rank*, 1 or more.  The global batch is
            batch_size * world_size; a run that continues with another world size keeps its order
            if that product stays the same.
        context_length: tokens that the model reads, 1 or more.
        rank: from 0 to world_size - 1.
        world_size: number of ranks.
        seed: of the order, 0 or greater.
        order: "shuffled", or "random" for windows that begin anywhere, drawn with repetition.

    Raises:
        ValueError: if a setting is outside its range, or the tokens do not fill one global batch.
    """

    def __init__(  # noqa: PLR0917 - the order of the published interface
        self,
        shards: TokenShards,
        batch_size: int,
        context_length: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        order: Order = "shuffled",
    ) -> None:
        self.shards = shards
        self.batch_size = batch_size
        self.context_length = context_length
        self.rank = rank
        self.world_size = world_size
        self.seed = seed
        self.order = order
        self.step = 0
        require_fields(self, "batch_size", "context_length", "world_size", least=1)
        require_fields(self, "rank", "seed", least=0)
        require("rank", rank, below=world_size)
        if order not in get_args(Order):
            raise ValueError(f"order must be shuffled or random, got {order!r}")
        self._block: tuple[tuple[int, int], np.ndarray] = ((-1, -1), np.empty((0, 0), np.int64))
        if self.steps_per_epoch < 1:
            raise ValueError(
                f"{len(shards)} tokens hold {self.num_windows} windows of {context_length} + 1 "
                f"tokens, too few for a global batch of {self.global_batch_size}: take more text, "
                "a smaller batch or a shorter context"
            )

    @property
    def global_batch_size(self) -> int:
        """Windows per step of all ranks together."""
        return self.batch_size * self.world_size

    @property
    def num_windows(self) -> int:
        """Windows that the tokens hold."""
        return max(0, len(self.shards) - 1) // self.context_length

    @property
    def steps_per_epoch(self) -> int:
        """Whole global batches in an epoch."""
        return self.num_windows // self.global_batch_size

    def epoch_of(self, step: int) -> int:
        """Return the epoch that a step belongs to, both counted from 0."""
        if step < 0:
            raise ValueError(f"step must be 0 or greater, got {step}")
        return step // self.steps_per_epoch

    def starts(self, step: int) -> Int64[np.ndarray, " B"]:
        """Return the tokens at which this rank's windows of a step begin.

        Raises:
            ValueError: if the step is negative.
        """
        if self.order == "shuffled":
            return self.windows(step) * self.context_length
        require("step", step, least=0)
        first = step * self.global_batch_size + self.rank * self.batch_size
        positions = np.arange(first, first + self.batch_size, dtype=np.int64)
        return random_starts(positions, len(self.shards) - self.context_length, seed=self.seed)

    def windows(self, step: int) -> Int64[np.ndarray, " B"]:
        """Return the numbers of the windows that this rank reads at a step of the shuffled order.

        Raises:
            ValueError: if the step is negative, or the windows have no numbers.
        """
        if self.order != "shuffled":
            raise ValueError("windows at random starts have no numbers: use starts(step)")
        epoch = self.epoch_of(step)
        block, row = divmod(step % self.steps_per_epoch, _BLOCK_STEPS)
        cached = self._block
        if cached[0] != (epoch, block):
            self._block = cached = ((epoch, block), self._windows_of(epoch, block))
        return cached[1][row]

    def _windows_of(self, epoch: int, block: int) -> Int64[np.ndarray, "S B"]:
        """Return the windows of this rank for S steps in a row."""
        last = min((block + 1) * _BLOCK_STEPS, self.steps_per_epoch)
        steps = np.arange(block * _BLOCK_STEPS, last, dtype=np.int64)
        first = steps * self.global_batch_size + self.rank * self.batch_size
        positions = (first[:, None] + np.arange(self.batch_size)).reshape(-1)
        windows = permuted(positions, self.num_windows, seed=self.seed, epoch=epoch)
        return windows.reshape(len(steps), self.batch_size)

    def batch(self, step: int) -> tuple[Int64[torch.Tensor, "B T"], ...]:
        """Return the inputs of a step, and as targets the tokens that follow them.

        Raises:
            ValueError: if the step is negative.
        """
        length, starts = self.context_length, self.starts(step).tolist()
        inputs_BT, targets_BT = np.empty((2, len(starts), length), dtype=np.int64)
        for row, start in enumerate(starts):
            tokens = self.shards[start : start + length + 1]
            inputs_BT[row] = tokens[:-1]
            targets_BT[row] = tokens[1:]
        return torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT)

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> tuple[torch.Tensor, ...]:
        batch = self.batch(self.step)
        self.step += 1
        return batch

    def _identity(self) -> dict[str, Any]:
        """Return what must be equal for a position to mean the same."""
        # Earlier states name no order.
        random = {} if self.order == "shuffled" else {"order": self.order}
        return {
            **random,
            "seed": self.seed,
            "context_length": self.context_length,
            "global_batch_size": self.global_batch_size,
            "data": self.shards.fingerprint,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and what it refers to, as plain data."""
        return {"step": self.step, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position that `state_dict` returned, on this or another world size.

        Raises:
            ValueError: if it belongs to another order: other data, seed, context or global batch.
        """
        state = {"order": "shuffled", **state}
        for name, value in {"order": self.order, **self._identity(), "step": None}.items():
            if name not in state:
                raise ValueError(f"the state lacks {name!r}: save it with state_dict()")
            if value is not None and state[name] != value:
                raise ValueError(
                    f"the state was saved with {name} = {state[name]!r}, here it is {value!r}: "
                    "its position means nothing in another order"
                )
        if type(state["step"]) is not int:
            raise ValueError(f"the state was saved at step {state['step']!r}, which is no number")
        self.epoch_of(state["step"])
        self.step = state["step"]


def prefetch(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """Yield the same items, the next `depth` being made in a thread while one is used.

    This hides the latency of reading as long as making an item takes less time than using it.
    An exception is raised where its item would have come; closing the generator ends the thread.

    An iterator with a position, such as `Batches`, runs ahead of what has been used, so saving its
    state would skip batches.  Give prefetch `(batches.batch(s) for s in range(first, last))`, and
    save the step that was used.

    Args:
        items: read by one thread only, in order.
        depth: items that are made ahead, 1 or more.

    Raises:
        ValueError: if depth is below 1.
    """
    require("depth", depth, least=1)
    return _prefetched(iter(items), depth)


def _prefetched(items: Iterator[Item], depth: int) -> Iterator[Item]:
    """Keep `depth` calls of next() under way, in a pool of one thread, hence in order."""
    end: Any = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as pool:
        try:
            ahead = deque(pool.submit(next, items, end) for _ in range(depth))
            while (item := ahead.popleft().result()) is not end:
                ahead.append(pool.submit(next, items, end))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)
