"""What the tests of train share: short settings, the command, and what a run leaves behind."""

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil

from llmcourse import checkpoint, train
from llmcourse.base import runtime
from llmcourse.train import __main__ as command_line
from tests import warm

TINY = train.PRESETS["tiny"]()
SHORT = TINY.replace(steps=8, warmup_steps=2, validate_every=0, checkpoint_every=3, sample_tokens=5)
"""Eight steps of the smallest model, on batches of 8: about a second."""

WORDS = ["--preset", "tiny", "--steps", "6", "--warmup_steps", "2", "--validate_every", "0"]
WORDS += ["--checkpoint_every", "0", "--sample_tokens", "5"]

LONG = ["--preset", "tiny", "--steps", "100000", "--validate_every", "0", "--checkpoint_every", "0"]
TRAIN = [sys.executable, "-m", "llmcourse.train"]
TORCHRUN = [
    *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"),
    *("--monitor-interval", "0.1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"),
]


def command(*words):
    return command_line.main([str(word) for word in words])


def refused(capfd, *words):
    assert command(*words) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("llmcourse train: ")
    return line


def weights(run):
    return runtime.fingerprint(run.model.state_dict())


def losses(result):
    return [report.loss for report in result.reports]


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@contextlib.contextmanager
def started(words, folder, *, steps=3, fresh=False):
    """A command in a session of its own, as soon as its run in a folder has taken a few steps.

    It is a copy of a warm process, unless it is to be a fresh Python.
    """
    with (begun_anew if fresh else warm.Process)(words) as process:
        try:
            wait_for_steps(folder, steps, process)
            yield process
        finally:
            if process.poll() is None:
                for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                    each.kill()


def begun_anew(words):
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def wait_for_steps(folder, steps, process):
    limit = time.monotonic() + 120
    while steps_in(folder) < steps:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < limit, "the run does not train"
        time.sleep(0.05)


def steps_in(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def saved_step(folder):
    newest = checkpoint.latest(folder / "checkpoints")
    return checkpoint.load(newest).step if newest else None


def children(process):
    return psutil.Process(process.pid).children()


def learn(layout, batch):
    if layout.joins_phases:
        return layout.forward_backward(batch)
    value = layout.loss(layout.forward(batch), batch)
    layout.backward(value)
    return value
