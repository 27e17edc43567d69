"""The stage in the middle: four processes, their crash, and the run that goes on from it."""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmcourse import checkpoint as checkpoints
from llmcourse.base import runtime
from llmcourse.base.files import write_atomically
from llmcourse.parallel.world import RankError
from llmcourse.train import fit_on_ranks, resume_on_ranks
from llmcourse.train.config import TrainConfig
from llmcourse.train.layout_settings import MeshRanks
from llmcourse.train.saved import config_and_checkpoint, require_run
from llmcourse_labs.capstone.config import Kill
from llmcourse_labs.capstone.log import Log
from llmcourse_labs.capstone.stage import Artifact, StageFolder

KILLED = "killed.json"
"""Says that the crash has come, so that the run which goes on does not crash again."""

POLL_S = 0.05


class InterruptedEarlyError(KeyboardInterrupt):
    """A run has saved because somebody pressed Ctrl-C."""


def train(place: StageFolder) -> Artifact:
    """Train on ranks; where settings ask for it, kill them all on the way, and go on."""
    run = place.folder / "run"
    config = place.config.train.replace(data=str((place.before["tokens"] / "data").resolve()))
    watch = Watch(run, config, place, place.config.kill)
    with watch.watching():
        try:
            result = _go_on(run, config, place.log)
        except RankError:
            if not watch.killed:
                raise  # a rank died that nobody here has killed
            watch.say("killed")
            watch.say("starting")
            result = _go_on(run, config, place.log)
    if result.interrupted:
        raise InterruptedEarlyError
    watch.say("ended")
    return Artifact(facts_of(run), weights_files(run))


def _go_on(run: Path, config: TrainConfig, log: Log) -> Any:
    """Start the run, or go on with it from its newest checkpoint."""
    try:
        require_run(run)
    except ValueError:
        return fit_on_ranks(config, run)
    newest = checkpoints.latest(run / "checkpoints")
    log("resume", stage="train", step=checkpoints.load(newest).step if newest else 0)
    return resume_on_ranks(run, data=config.flat()["data"])


def facts_of(run: Path) -> dict[str, Any]:
    """Return the steps, the losses and the hash of the weights of a finished run."""
    config, saved = config_and_checkpoint(run)
    rows = _rows(run)
    return {
        "steps": saved.step,
        "tokens": config.num_tokens,
        "weights": runtime.fingerprint(saved.model),
        "losses": [row["loss"] for row in rows],
        "validations": {
            str(row["step"]): {k: v for k, v in row.items() if k.startswith("validation")}
            for row in rows
            if "validation_loss" in row
        },
    }


def weights_files(run: Path) -> list[Path]:
    """Return the files of a run that later stages read."""
    newest = checkpoints.latest(run / "checkpoints")
    assert newest is not None  # the run is finished
    found = [newest] if newest.is_file() else sorted(p for p in newest.rglob("*") if p.is_file())
    return [*found, run / "config.json", run / "metrics.jsonl"]


def _rows(run: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a run's metrics; one may be half written."""
    with contextlib.suppress(OSError):
        lines = (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]
    return []


def _ranks() -> set[int]:
    """Return the process ids of all ranks that this process has started and that still run."""
    running = multiprocessing.active_children()
    return {process.pid for process in running if process.pid and process.name.startswith("rank ")}


class Watch:
    """Reads beside a training what it writes, logs it, and kills it when it is time to.

    Args:
        run: folder of the training.
        config: of the training.
        place: of the stage.
        kill: when to; None is never.
    """

    def __init__(
        self, run: Path, config: TrainConfig, place: StageFolder, kill: Kill | None = None
    ) -> None:
        self.run, self.config, self.kill, self.log = run, config, kill or Kill(), place.log
        self.stage = place.folder.name.partition("_")[2]
        self.marker = place.folder / KILLED
        self.killed = False
        """Whether this watch has killed the ranks."""
        self.seen = len(_rows(run))
        self.saved = checkpoints.list_checkpoints(run / "checkpoints")[-1:]
        self.state = ""
        self.others = _ranks()
        """Ranks that were there before this training, and are none of its own."""
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch in a thread of its own."""
        thread = threading.Thread(target=self._watch, daemon=True)
        self.say("starting")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._look()

    def say(self, state: str) -> None:
        """Log the state of the ranks, if it is another one."""
        if state == self.state:
            return
        self.state = state
        sizes = (
            self.config.layout.split().sizes
            if isinstance(self.config.layout, MeshRanks)
            else {"dp": self.config.layout.num_ranks}
        )
        self.log(
            "ranks",
            stage=self.stage,
            state=state,
            number=self.config.layout.num_ranks,
            mesh=dict(sizes),
        )

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        """Log what is new, and kill if the step has come."""
        rows = _rows(self.run)
        self.seen = min(self.seen, len(rows))  # the run may have gone back to its checkpoint
        for row in rows[self.seen :]:
            self.say("training")
            about = {"stage": self.stage, "step": row["step"]}
            self.log("step", **about, loss=round(row["loss"], 4))
            if "validation_loss" in row:
                self.log("validation", **about, loss=round(row["validation_loss"], 4))
        self.seen = len(rows)
        newest = checkpoints.list_checkpoints(self.run / "checkpoints")[-1:]
        if newest != self.saved:
            self.saved = newest
            self.log("saved", stage=self.stage, step=rows[-1]["step"], file=newest[0].name)
        if rows:
            self._kill_after(rows[-1]["step"])

    def _kill_after(self, step: int) -> None:
        """End every rank at once, and for good, if nobody has done so before."""
        if not self.kill.step or step < self.kill.step or self.marker.exists():
            return
        time.sleep(self.kill.delay_s)
        ranks = _ranks() - self.others
        if not ranks:
            return  # it was the last step
        with write_atomically(self.marker) as file:
            file.write(json.dumps({"step": step}).encode())
        self.killed = True
        for pid in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.log("kill", stage=self.stage, step=step, ranks=len(ranks))
