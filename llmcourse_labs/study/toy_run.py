"""What a crash leaves of a toy run, by what it saves and when, and how the run goes on from there.

The run is one weight that learns the mean of some numbers, with Adam, in an order of batches, with
a random number in every step: its state has the four parts that a large run has.  `outcome` runs
it, ends it, and goes on from the files that are left.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

from llmcourse.base.arguments import require_each

STEPS = 24
PARTS = ("weights", "moments", "generators", "position")
CRASHES = ("before the write", "inside the write", "after the write")
FILES = ("one for each save", "one, written over")

_LEARNING_RATE, _BETA1, _BETA2, _EPSILON = 0.1, 0.9, 0.95, 1e-8
_BATCHES_SEED, _GENERATOR_SEED = 1, 2


class ToyState(NamedTuple):
    """All that the next step of the toy run depends on; the defaults are those of its beginning."""

    weights: float = 0.0
    moments: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    """Adam's first and second moment, and beta1 and beta2 to the number of updates."""
    generators: int = 0
    """Random numbers drawn."""
    position: int = 0
    """Batches taken."""


class SavedFile(NamedTuple):
    """A file on disk after a crash; its content is None where it is not whole."""

    step: int
    content: dict[str, Any] | None


class Outcome(NamedTuple):
    """What a crash left, and how the run went on from there."""

    files: dict[str, SavedFile]
    """By name, a temporary file included."""
    restart_step: int
    """Steps done when the second process begins; 0 where no file is whole."""
    weights: list[float]
    """At the restart, and after every step of the second process."""
    batches: list[int]
    """Taken by the second process; the first is 0."""
    draws: list[int]
    """Random numbers that it used; the first is 0."""
    equal: bool
    """Whether the last weight is the uninterrupted run's, to the last bit."""


def uniform(seed: int, n: int) -> float:
    """Return random number `n` of a seed, from 0 up to 1, the same that the page draws.

    Source:
        mulberry32 by Tommy Ettinger, placed in the public domain in 2017.
    """
    low = 0xFFFFFFFF
    t = (seed + (n + 1) * 0x6D2B79F5) & low
    t = (t ^ (t >> 15)) * (t | 1) & low
    t ^= (t + (t ^ (t >> 7)) * (t | 61)) & low
    return (t ^ (t >> 14)) / 2**32


def advance(state: ToyState) -> ToyState:
    """Return the state after one more step: each part of it matters, and each changes."""
    target = 0.4 + 1.2 * uniform(_BATCHES_SEED, state.position)
    gradient = (state.weights - target) * (2 * uniform(_GENERATOR_SEED, state.generators))
    first, second, power1, power2 = state.moments
    first = _BETA1 * first + (1 - _BETA1) * gradient
    second = _BETA2 * second + (1 - _BETA2) * (gradient * gradient)
    power1, power2 = power1 * _BETA1, power2 * _BETA2
    scale = math.sqrt(second / (1 - power2)) + _EPSILON
    weights = state.weights - _LEARNING_RATE * (first / (1 - power1)) / scale
    return ToyState(
        weights, (first, second, power1, power2), state.generators + 1, state.position + 1
    )


def uninterrupted(steps: int = STEPS) -> list[float]:
    """Return the weight of the run that nothing ends, at its beginning and after every step."""
    state, weights = ToyState(), [ToyState().weights]
    for _ in range(steps):
        state = advance(state)
        weights.append(state.weights)
    return weights


def crashed(
    saved: Collection[str],
    *,
    every: int,
    crash_step: int,
    crash_when: str,
    atomic: bool,
    files: str,
) -> dict[str, SavedFile]:
    """Run the first process until it is ended; return what is on disk then.

    Args:
        saved: the parts that it saves, of `PARTS`.
        every: steps from one save to the next, 1 or more.
        crash_step: the step that it still does, 1 or more.
        crash_when: one of `CRASHES`, of the write after that step; if that step does not save, the
            process ends after it.
        atomic: whether a save writes a temporary file and renames it when it is complete.
        files: one of `FILES`.

    Raises:
        ValueError: if an argument is none of these.
    """
    if unknown := sorted(set(saved) - set(PARTS)):
        raise ValueError(f"saved holds {unknown}; the parts are {', '.join(PARTS)}")
    require_each({"every": every, "crash_step": crash_step}, least=1)
    for name, value, allowed in (("crash_when", crash_when, CRASHES), ("files", files, FILES)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    disk: dict[str, SavedFile] = {}
    state = ToyState()
    for step in range(1, crash_step + 1):
        state = advance(state)
        if step % every:
            continue
        content = {part: getattr(state, part) for part in sorted(saved)}
        name = "last.ckpt" if files == FILES[1] else f"step_{step:08d}.ckpt"
        where = f".{name}.tmp" if atomic else name
        if step == crash_step and crash_when == CRASHES[0]:
            break
        disk[where] = SavedFile(step, None)  # the write has begun: what had this name is gone
        if step == crash_step and crash_when == CRASHES[1]:
            break
        disk[where] = SavedFile(step, content)
        disk[name] = disk.pop(where)
    return disk


def outcome(
    saved: Collection[str], *, crash_step: int, steps: int = STEPS, **settings: Any
) -> Outcome:
    """End the toy run once, go on from the newest whole file, and compare how it ends.

    What was not saved is in the second process what it is at the beginning of a run.

    Args:
        saved: see `crashed`.
        crash_step: see `crashed`; at most `steps`.
        steps: of the whole run.
        settings: every, crash_when, atomic and files, see `crashed`.

    Raises:
        ValueError: if an argument is none of these.
    """
    if crash_step > steps:
        raise ValueError(f"crash_step must be from 1 to {steps}, got {crash_step}")
    disk = crashed(saved, crash_step=crash_step, **settings)
    # A real file says in its header, with a hash, whether it is whole.
    whole = [f for name, f in disk.items() if f.content is not None and not name.endswith(".tmp")]
    newest = max(whole, key=lambda file: file.step, default=SavedFile(0, {}))
    state = ToyState()._replace(**(newest.content or {}))
    weights, batches, draws = [state.weights], [], []
    for _ in range(newest.step, steps):
        batches.append(state.position)
        draws.append(state.generators)
        state = advance(state)
        weights.append(state.weights)
    equal = weights[-1] == uninterrupted(steps)[-1]
    return Outcome(disk, newest.step, weights, batches, draws, equal)
