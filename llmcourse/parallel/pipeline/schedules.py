"""Who does what in which order: the schedules of a pipeline, as data.

A model is cut into stages, and every rank has one or several of them, its chunks: `stage_at` says
which.  With one chunk per rank stage and rank are the same number.  A batch is cut into m
micro-batches, each of which goes forward through all stages and backward again.  A schedule says,
for every rank, in which order it does its parts.  Every schedule here finishes the gradients of
micro-batch 0 first, then those of 1, and so on: sums are made in one order, whatever the schedule.

The functions take the numbers of ranks (p) and of micro-batches (m); both are 1 or more.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from llmcourse.base.arguments import require_each
from llmcourse.parallel.legal import multiples, nearest

KINDS = {
    "F": "forward",
    "B": "backward, whole",
    "I": "backward, gradient of the input alone",
    "W": "backward, gradients of the weights alone",
}


class Action(NamedTuple):
    """One part of the work: one micro-batch through one chunk of the model."""

    kind: str
    """One of `KINDS`; a backward pass is B, or I and some time later W."""
    micro_batch: int
    """From 0 to m - 1."""
    chunk: int = 0
    """From 0 to v - 1, in the order in which a micro-batch goes forward through the rank."""

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}" + (f".{self.chunk}" if self.chunk else "")


def stage_at(rank: int, chunk: int, num_ranks: int, *, v_shape: bool = False) -> int:
    """Return which stage of the model is a chunk of a rank.

    Chunk c of rank r is stage c p + r: every round begins at rank 0.  In the shape of a V every
    second round goes back, from the last rank to the first: c p + p - 1 - r for odd c.
    """
    back = v_shape and chunk % 2 == 1
    return chunk * num_ranks + (num_ranks - 1 - rank if back else rank)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The order of work of every rank of a pipeline; it may be wrong, see `validate`."""

    name: str
    """Such as 1f1b; for people to read."""
    num_ranks: int
    """p."""
    num_micro_batches: int
    """m."""
    num_chunks: int = 1
    """v, stages per rank."""
    v_shape: bool = False
    """Whether every second round through the ranks goes back, see `stage_at`."""
    actions: tuple[tuple[Action, ...], ...]
    """By rank."""

    def __str__(self) -> str:
        return "\n".join(
            f"rank {rank}: {' '.join(map(str, row))}" for rank, row in enumerate(self.actions)
        )

    @property
    def num_stages(self) -> int:
        """As many as there are chunks on all ranks, p v."""
        return self.num_ranks * self.num_chunks

    def stage(self, rank: int, action: Action) -> int:
        """Return which stage of the model an action of a rank belongs to."""
        return stage_at(rank, action.chunk, self.num_ranks, v_shape=self.v_shape)


def actions_of(text: str) -> tuple[Action, ...]:
    """Return the actions that a text such as "F0 F1 B0 F0.1" names; ".1" is chunk 1.

    Raises:
        ValueError: if a word is not a kind, a micro-batch and perhaps a chunk.
    """
    found = []
    for word in text.split():
        number, _, chunk = word[1:].partition(".")
        if word[0] not in KINDS or not number.isdigit() or not (chunk or "0").isdigit():
            raise ValueError(f"an action is written like F0, B12 or W3.1, got {word!r}")
        found.append(Action(word[0], int(number), int(chunk or 0)))
    return tuple(found)


def gpipe(num_ranks: int, num_micro_batches: int) -> Schedule:
    """All micro-batches forward, then all of them backward.

    Every rank holds all m micro-batches when the first backward pass begins.

    Source:
        Huang et al. 2019, https://arxiv.org/abs/1811.06965
    """
    _check_counts(num_ranks, num_micro_batches)
    row = [Action(kind, k) for kind in "FB" for k in range(num_micro_batches)]
    return _schedule("gpipe", num_micro_batches, [row] * num_ranks)


def one_f_one_b(num_ranks: int, num_micro_batches: int) -> Schedule:
    """One forward, one backward: a micro-batch goes backward as soon as it can.

    Rank r runs p - 1 - r micro-batches forward, then one forward and one backward in turn, and the
    rest backward.  It never holds more than p - r of them.

    Source:
        Narayanan et al. 2019 (PipeDream), https://doi.org/10.1145/3341301.3359646; with a flush
        after every batch: Narayanan et al. 2021, figure 4, https://arxiv.org/abs/2104.04473
    """
    _check_counts(num_ranks, num_micro_batches)
    rows = []
    for rank in range(num_ranks):
        forwards = [Action("F", k) for k in range(num_micro_batches)]
        backwards = [Action("B", k) for k in range(num_micro_batches)]
        rows.append(_in_turn(forwards, backwards, num_ranks - 1 - rank))
    return _schedule("1f1b", num_micro_batches, rows)


def interleaved(num_ranks: int, num_micro_batches: int, num_chunks: int) -> Schedule:
    """1F1B in which every rank has v chunks of the model: the bubble is v times smaller.

    Micro-batches go through chunk 0 of a rank in groups of p, then the same p through chunk 1, and
    so on.  Rank r runs 2 (p - 1 - r) + (v - 1) p chunks forward before its first backward.

    Args:
        num_ranks: p, 1 or more.
        num_micro_batches: m, a multiple of p.
        num_chunks: v, 2 or more; with one chunk, use `one_f_one_b`.

    Raises:
        ValueError: if a number is below its minimum, or m is not a multiple of p.

    Source:
        Narayanan et al. 2021, section 2.2, https://arxiv.org/abs/2104.04473
    """
    _check_counts(num_ranks, num_micro_batches)
    if num_chunks < 2:
        raise ValueError(
            f"interleaving needs num_chunks of 2 or more, got {num_chunks}: with one chunk per "
            "rank, use one_f_one_b"
        )
    if num_micro_batches % num_ranks:
        raise ValueError(
            f"interleaving needs num_micro_batches to be a multiple of num_ranks = {num_ranks}, "
            f"got {num_micro_batches}; nearest: "
            f"{nearest(num_micro_batches, multiples(num_ranks, num_micro_batches))}"
        )
    rows = []
    for rank in range(num_ranks):
        warmup = 2 * (num_ranks - 1 - rank) + (num_chunks - 1) * num_ranks
        forwards = list(_by_groups("F", num_ranks, num_micro_batches, range(num_chunks)))
        backwards = _by_groups("B", num_ranks, num_micro_batches, range(num_chunks)[::-1])
        rows.append(_in_turn(forwards, list(backwards), warmup))
    return _schedule("interleaved", num_micro_batches, rows, num_chunks)


def zero_bubble(num_ranks: int, num_micro_batches: int) -> Schedule:
    """1F1B with every backward pass in two parts, of which the second fills the bubble (ZB-H1).

    The stage before waits for the gradient of the input (I) alone; the gradients of the weights
    (W) can come later.  Rank r puts W off by r micro-batches, so that I leaves the last ranks
    early, and holds at most min(m, p) micro-batches, as many as rank 0 of 1F1B.

    Source:
        Qi et al. 2023, section 2.1, https://arxiv.org/abs/2401.10241
    """
    _check_counts(num_ranks, num_micro_batches)
    rows = []
    for rank in range(num_ranks):
        row, done, later = [], 0, 0
        forwards = [Action("F", k) for k in range(num_micro_batches)]
        inputs = [Action("I", k) for k in range(num_micro_batches)]
        for action in _in_turn(forwards, inputs, num_ranks - 1 - rank):
            row.append(action)
            done += action.kind == "I"
            if done - later > rank:
                row.append(Action("W", later))
                later += 1
        rows.append([*row, *(Action("W", k) for k in range(later, num_micro_batches))])
    return _schedule("zero_bubble", num_micro_batches, rows)


def dualpipe_v(num_ranks: int, num_micro_batches: int) -> Schedule:
    """Forwards of one half of the model beside backwards of the other (DualPipeV).

    A micro-batch goes down the ranks and comes back up: rank r has stages r and 2 p - 1 - r, so
    that rank 0 has the first and the last.  Once both ways are full, every rank does by turns a
    forward of one chunk and a whole backward of the other, which have nothing to do with each
    other: the messages inside of one can hide behind the arithmetic of the other.  Before and
    after that, W fills gaps as in `zero_bubble`.

    DualPipe itself lets micro-batches in at both ends of 2 p ranks, of which r and 2 p - 1 - r have
    the same two stages and the same work.  This is one half of it: half of the ranks, and each
    stage once.

    With f, i, w the units of F, I and W of one chunk, w <= i <= f <= i + w, every rank works
    m 2 (f + i + w) and waits (p - 1) (f + i - w), half as long as in `zero_bubble`.  It holds
    2 p + 1 micro-batches at most, each for one chunk, that is, for half of its layers.

    Args:
        num_ranks: p, 1 or more.
        num_micro_batches: m, 2 p or more, so that both ways are filled.

    Raises:
        ValueError: if a number is below its minimum.

    Source:
        DeepSeek-V3, section 3.2.1, https://arxiv.org/abs/2412.19437; the half: Qi et al. 2025,
        https://huggingface.co/blog/ufotalent/cut-in-half
    """
    _check_counts(num_ranks, num_micro_batches)
    p, m = num_ranks, num_micro_batches
    if m < 2 * p:
        raise ValueError(
            f"DualPipeV needs 2 micro-batches or more for each of {p} ranks, got {m}; nearest: "
            f"{2 * p}"
        )
    rows = []
    for rank in range(p):
        below, (pairs, odd) = p - 1 - rank, divmod(rank + 1, 2)
        rows.append(
            _written_out(
                (2 * below, "F0"),
                (rank + 1, "F0 F1"),
                (below, "I1 W F1"),
                (m - 2 * p + rank + 1, "F0 B1 F1 B0"),
                (below, "B1 F1 B0"),
                (pairs, "B1 B0"),
                (odd, "B1 I0"),
                (pairs, "I1 I0"),
                (below, "W I0"),
                (rank + 1, "W"),
            )
        )
    return _schedule("dualpipe_v", m, rows, 2, v_shape=True)


SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")
"""Names for `schedule_of`."""


def check_name(name: str) -> None:
    """Raise ValueError if there is no such schedule."""
    if name not in SCHEDULES:
        raise ValueError(f"the schedule must be one of {', '.join(SCHEDULES)}, got {name!r}")


def schedule_of(name: str, num_ranks: int, num_micro_batches: int, num_chunks: int = 1) -> Schedule:
    """Return a schedule by its name, for numbers that make sense in training.

    Raises:
        ValueError: if there is no such schedule, there are fewer micro-batches than ranks, or the
            numbers do not fit the schedule.
    """
    check_name(name)
    _check_counts(num_ranks, num_micro_batches)
    if num_micro_batches < num_ranks:
        raise ValueError(
            f"a pipeline of {num_ranks} ranks needs {num_ranks} micro-batches or more to have work "
            f"for all of them, got {num_micro_batches}; nearest: {num_ranks} micro-batches, or "
            f"{num_micro_batches} ranks"
        )
    if name == "interleaved":
        return interleaved(num_ranks, num_micro_batches, num_chunks)
    if num_chunks != 1:
        raise ValueError(
            f"{name} has one chunk per rank, got num_chunks = {num_chunks}; nearest: 1, or the "
            "schedule interleaved"
        )
    maker = {"gpipe": gpipe, "1f1b": one_f_one_b, "zero_bubble": zero_bubble}[name]
    return maker(num_ranks, num_micro_batches)


def _in_turn(forwards: list[Action], backwards: list[Action], warmup: int) -> list[Action]:
    """Return `warmup` forwards, then a forward and a backward in turn, then the backwards left."""
    warmup = min(warmup, len(forwards))
    row, steady = forwards[:warmup], forwards[warmup:]
    for forward, backward in zip(steady, backwards, strict=False):
        row += [forward, backward]
    return row + backwards[len(steady) :]


def _written_out(*phases: tuple[int, str]) -> list[Action]:
    """Repeat the words of every phase: F1 is the next forward of chunk 1, W the oldest one due."""
    row, due = [], deque[Action]()
    numbers = {(part, chunk): count() for part in ("F", "backward") for chunk in "01"}
    for times, words in phases:
        for word in words.split() * times:
            if word == "W":
                row.append(due.popleft())
                continue
            kind, chunk = list(word)
            k = next(numbers["F" if kind == "F" else "backward", chunk])
            row.append(Action(kind, k, int(chunk)))
            if kind == "I":
                due.append(Action("W", k, int(chunk)))
    return row


def _by_groups(
    kind: str, num_ranks: int, num_micro_batches: int, chunks: range
) -> Iterator[Action]:
    """Give groups of p micro-batches, each through all chunks before the next group begins."""
    for first in range(0, num_micro_batches, num_ranks):
        for chunk in chunks:
            for micro_batch in range(first, first + num_ranks):
                yield Action(kind, micro_batch, chunk)


def _schedule(
    name: str,
    num_micro_batches: int,
    rows: list[list[Action]],
    num_chunks: int = 1,
    *,
    v_shape: bool = False,
) -> Schedule:
    return Schedule(
        name=name,
        num_ranks=len(rows),
        num_micro_batches=num_micro_batches,
        num_chunks=num_chunks,
        v_shape=v_shape,
        actions=tuple(map(tuple, rows)),
    )


def _check_counts(num_ranks: int, num_micro_batches: int) -> None:
    require_each({"num_ranks": num_ranks, "num_micro_batches": num_micro_batches}, least=1)
