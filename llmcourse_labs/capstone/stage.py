"""One stage of the machine: done once, kept as long as nothing that it depends on changes.

A stage has a folder, NN_name.  When it begins it writes begun.json, when it is done done.json:

    settings   what of the settings it depends on
    inputs     the identity of every stage before it that it reads
    facts      what came out: numbers and hashes that are the same on every machine of a kind
    identity   the hash of the facts, which later stages name among their inputs
    files      a hash of every file that later stages read, to notice one that was changed
    seconds    how long it took, all calls together
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple

from llmcourse.base.resumable import read_record, write_record
from llmcourse_labs.capstone.config import CapstoneConfig
from llmcourse_labs.capstone.log import Log

BEGUN, DONE = "begun.json", "done.json"


class Artifact(NamedTuple):
    """What a stage has made."""

    facts: dict[str, Any]
    """Numbers and hashes, without times, paths and dates."""
    files: list[Path]
    """What later stages read."""


class StageFolder(NamedTuple):
    """What a stage works with."""

    config: CapstoneConfig
    folder: Path
    """Its own."""
    before: dict[str, Path]
    """The folders of the stages that it reads."""
    facts: dict[str, dict[str, Any]]
    """What these stages found."""
    log: Log


@dataclass(frozen=True)
class CapstoneStage:
    """A step of the machine."""

    name: str
    """In one word."""
    does: str
    """For a person."""
    reads: tuple[str, ...]
    """Stages whose folders it reads."""
    settings: Callable[[CapstoneConfig], dict[str, Any]]
    """What of the settings it depends on, as plain data."""
    run: Callable[[StageFolder], Artifact]
    """Does it; goes on where it was, if it can."""
    told: Callable[[dict[str, Any]], str]
    """What came out, in a few words."""


class ArtifactStore:
    """The stages of a machine in their folder: which are done, and why one is not.

    Args:
        config: of the machine.
        folder: of the machine.
        stages: in their order.
        log: of the machine.
    """

    def __init__(
        self, config: CapstoneConfig, folder: Path, stages: Iterable[CapstoneStage], log: Log
    ) -> None:
        self.config, self.folder, self.log = config, folder, log
        self.stages = {stage.name: stage for stage in stages}
        self.done: dict[str, dict[str, Any]] = {}
        """What done.json of every stage says that is done in this call, or was before."""

    def place_of(self, name: str) -> Path:
        """Return the folder of a stage."""
        return self.folder / f"{list(self.stages).index(name) + 1:02d}_{name}"

    def key_of(self, name: str) -> dict[str, Any]:
        """Return what a stage depends on; the stages that it reads are done."""
        stage = self.stages[name]
        inputs = {each: self.done[each]["identity"] for each in stage.reads}
        settings = json.loads(json.dumps(stage.settings(self.config)))
        return {"settings": settings, "inputs": inputs}

    def why_not(self, name: str) -> str:
        """Return why a stage has to be done; nothing if it is done and all is as it was."""
        done = _read(self.place_of(name) / DONE)
        if done is None:
            return "begun" if _read(self.place_of(name) / BEGUN) else "new"
        for what, now in self.key_of(name).items():
            before = done.get(what, {})
            if changed := [k for k in {**before, **now} if before.get(k) != now.get(k)]:
                return f"other {what}: {', '.join(changed)}"
        for file, known in done["files"].items():
            path = self.place_of(name) / file
            if not path.is_file():
                return f"{path.name} is gone"
            if file_hash(path) != known:
                return f"{path.name} is not what the stage has written"
        if identity_of(done["facts"]) != done["identity"]:
            return f"{DONE} was changed"
        return ""

    def planned(self) -> dict[str, str]:
        """Return what has to be done and why; what follows a stage that is redone says so."""
        found: dict[str, str] = {}
        for name, stage in self.stages.items():
            redone = [each for each in stage.reads if found.get(each)]
            found[name] = f"after {redone[0]}" if redone else self.why_not(name)
            if not found[name]:
                self._keep(name)
        return found

    def bring(self, name: str) -> dict[str, Any]:
        """See to it that a stage is done, and return what its done.json says."""
        stage, folder = self.stages[name], self.place_of(name)
        why = self.why_not(name)
        if not why:
            kept = self._keep(name)
            self.log("kept", stage=name, identity=kept["identity"])
            return kept
        key = self.key_of(name)
        begun = _read(folder / BEGUN)
        # Unfinished work is taken up only if it was begun with the same settings and inputs.
        if begun is None or {k: begun.get(k) for k in key} != key or why not in ("begun", "new"):
            if folder.exists():
                if why not in ("begun", "new"):
                    self.log("again", stage=name, why=why)
                shutil.rmtree(folder)
            # Seconds of all attempts add up here.
            begun = {**key, "seconds": 0.0}
            write_record(folder / BEGUN, begun, indent=1)
        started = time.monotonic()
        self.log("begin", stage=name, goes_on=begun["seconds"] > 0)
        place = StageFolder(
            self.config,
            folder,
            {each: self.place_of(each) for each in stage.reads},
            {each: self.done[each]["facts"] for each in stage.reads},
            self.log,
        )
        try:
            made = stage.run(place)
        except BaseException as error:
            # Ctrl-C, too: the work stays, and the next call goes on with it.
            begun["seconds"] = round(begun["seconds"] + time.monotonic() - started, 2)
            write_record(folder / BEGUN, begun, indent=1)
            if type(error) is ValueError:
                raise ValueError(f"stage {name}: {error}") from error
            raise
        # As they will be read from the file, so that the identity is the same then.
        facts = json.loads(json.dumps(made.facts))
        files = {str(p.relative_to(folder)): file_hash(p) for p in sorted(made.files)}
        seconds = round(begun["seconds"] + time.monotonic() - started, 2)
        done = {**key, "facts": facts, "identity": identity_of(facts), "files": files}
        self.done[name] = done = {**done, "seconds": seconds}
        # Written last: from here on the stage is done.
        write_record(folder / DONE, done, indent=1)
        self.log("end", stage=name, seconds=seconds, identity=done["identity"])
        return done

    def _keep(self, name: str) -> dict[str, Any]:
        """Return what done.json says of a stage that is done, and take it as done."""
        done = _read(self.place_of(name) / DONE)
        assert done is not None  # as `why_not` has found
        self.done[name] = done
        return done


def identity_of(facts: Mapping[str, Any]) -> str:
    """Return the hash by which later stages know what a stage has found."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    """Return what a file says; None if there is none, or what stands there is no record."""
    try:
        found, _ = read_record(path)
    except (OSError, ValueError):
        return None
    kinds: dict[str, type | UnionType] = {"settings": dict, "inputs": dict, "seconds": int | float}
    if path.name == DONE:
        kinds |= {"facts": dict, "files": dict, "identity": str}
    return found if all(isinstance(found.get(k), kinds[k]) for k in kinds) else None
