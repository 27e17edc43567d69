"""Checkpoints of a run: one file that the first rank writes, or a part from every rank.

Taught in: chapters/30_checkpoints.ipynb
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from llmcourse import checkpoint as checkpoints
from llmcourse.checkpoint import flat, folder, shards, store
from llmcourse.checkpoint.shards import Piece
from llmcourse.parallel.collectives import chunk_sizes
from llmcourse.train.config import TrainConfig

if TYPE_CHECKING:
    from llmcourse.train.phases import Run


class Part(NamedTuple):
    """What one rank writes of a checkpoint in shards."""

    pieces: dict[str, Piece]
    """Of weights and moments, by the names of `checkpoint.flat`."""
    shapes: dict[str, tuple[int, ...]]
    """Of all of them, whole."""
    rest: dict[str, Any]
    """What is no tensor of the model or the optimizer; the same on all ranks."""


def even_part(
    model: dict[str, Any], optimizer: dict[str, Any] | None, *, index: int, size: int
) -> Part:
    """Return a rank's share of states that every rank holds whole: a chunk of every tensor."""
    tensors, rest = flat.take_apart(model, optimizer)
    pieces = {}
    for name, tensor in tensors.items():
        sizes = chunk_sizes(tensor.numel(), size)
        first = sum(sizes[:index])
        pieces[name] = Piece(first, tensor.detach().flatten()[first : first + sizes[index]])
    return Part(pieces, {name: tuple(t.shape) for name, t in tensors.items()}, rest)


def facts(run: "Run") -> dict[str, Any]:
    """Return what a checkpoint holds besides weights and moments, as `checkpoint.save` takes it."""
    return {
        "step": run.steps_done,
        "schedule": schedule_state(run.config),
        "data": run.batches,
        "generators": {"sample": run.sample_generator},
        "config": asdict(run.config),
    }


def save_whole(run: "Run") -> Path | None:
    """Write one file, that of one process whatever the layout; ranks but the first return None.

    In the background, the path is that of the save before.
    """
    model, optimizer = run.layout.states(run)
    if not run.layout.is_first:
        return None
    given = {"keep_last": run.config.keep_checkpoints, "model": model, "optimizer": optimizer}
    target = run.folder / "checkpoints"
    if run.config.save_in_background:
        run.saver.save(target, **given, **facts(run))
        return checkpoints.checkpoint_path(target, run.steps_done)
    return checkpoints.save(target, **given, **facts(run))


def save_in_shards(run: "Run") -> Path | None:
    """Write this rank's part of a checkpoint; ranks but the first return None."""
    layout, target, step = run.layout, run.folder / "checkpoints", run.steps_done
    number = layout.told_by_first(folder.next_try(target, step) if layout.is_first else 0)
    path = folder.parts_path(target, step, number, "shards")
    part = layout.part(run)
    content = store.content_of_run(**facts(run), **part.rest)
    background = run.config.save_in_background
    if background:
        content = checkpoints.copied(content)
    # A piece is copied in any case before it is written; here before anybody may change it.
    pieces = {
        name: Piece(first, values.to("cpu", copy=background))
        for name, (first, values) in part.pieces.items()
    }

    def write() -> Path:
        shards.write_parts(
            path, pieces, part.shapes, content, rank=layout.index, num_ranks=layout.size
        )
        if layout.is_first:
            folder.prune(path, step, run.config.keep_checkpoints)
        return path

    if background:
        run.saver.start(write)
    else:
        write()
    return path if layout.is_first else None


def schedule_state(config: TrainConfig) -> dict[str, Any]:
    """The schedule is a pure function of the step: its state is its settings."""
    names = ("schedule", "learning_rate", "steps", "warmup_steps", "decay_steps", "final_share")
    return {name: getattr(config, name) for name in names}
