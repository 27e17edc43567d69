"""Runs that are ended by SIGKILL, again and again, until one reaches its end."""

import hashlib
import os
import shutil
import signal
from pathlib import Path

from llmcourse import checkpoint, train
from llmcourse.checkpoint import payload_file
from llmcourse.train import phases

NOTES = "batches.txt"


def config(ranks):
    """A small run that saves at every second step; several ranks in shards, from threads."""
    return train.PRESETS["tiny"]().replace(
        steps=16,
        warmup_steps=4,
        checkpoint_every=2,
        validate_every=5,
        sample_every=5,
        sample_tokens=10,
        ranks=ranks,
        save_in_shards=ranks > 1,
        save_in_background=ranks > 1,
    )


def live(folder, ranks=1, deadly_write=None):
    """Start a run, or go on with it, and train to the end.

    That comes sooner where a write is deadly, counted over all parts of checkpoints.
    """
    if deadly_write is not None:
        _die_in_write(deadly_write)
    folder = Path(folder)
    begun = checkpoint.latest(folder / "checkpoints") is not None
    if not begun and folder.exists():
        shutil.rmtree(folder)  # nothing was saved yet: from the start
    if ranks > 1:
        (train.resume_on_ranks(folder) if begun else train.fit_on_ranks(config(ranks), folder))
        return
    run = train.resume(folder) if begun else train.start(config(1), folder)
    _note_batches(folder / NOTES)
    train.fit(run, show=lambda _: None)


def _die_in_write(number):
    """End this process by SIGKILL in the middle of a write."""
    original, parts = payload_file._HashingFile.write, iter(range(10**9))

    def write(self, part):
        if next(parts) == number:
            self.file.write(memoryview(part).cast("B")[: memoryview(part).nbytes // 2])
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, part)

    payload_file._HashingFile.write = write


def _note_batches(path):
    original = phases.load

    def load(run):
        batch = original(run)
        digest = hashlib.sha256(batch.inputs_BT.numpy().tobytes()).hexdigest()
        with path.open("a") as file:
            file.write(f"{run.steps_done} {digest}\n")
        return batch

    phases.load = load
