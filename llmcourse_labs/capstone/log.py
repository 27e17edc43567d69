"""What the machine did and when: one JSON object a line, which a dashboard replays.

{"at": 1764000000.123, "event": "step", "stage": "train", "step": 12, "loss": 4.31}
"""

import json
import threading
import time
from pathlib import Path
from typing import Any

LOG = "log.jsonl"

EVENTS = {
    "begin": "a stage begins, or goes on where it was",
    "end": "a stage is done: its seconds and its identity",
    "kept": "a stage was done before, and nothing that it depends on has changed",
    "again": "a stage is done anew: why",
    "ranks": "the state of every process of the training: starting, training, killed, ended",
    "step": "one step: its loss",
    "saved": "a checkpoint of the training is on disk: its step",
    "validation": "the loss on text that no step has seen",
    "kill": "all processes of the training were ended by SIGKILL: after which step",
    "resume": "the training goes on: from which step",
    "stop": "the command ends early: why",
}
"""What a line may say."""


class Log:
    """Appends events, from any thread.

    Args:
        folder: of the machine; its log goes on at its end.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / LOG
        if path.exists() and (text := path.read_bytes()) and not text.endswith(b"\n"):
            with path.open("ab") as file:  # a line that a crash has cut short
                file.write(b"\n")
        self._file = path.open("a", encoding="utf8")
        self._lock = threading.Lock()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __call__(self, event: str, **about: Any) -> None:
        """Write one line, at once."""
        assert event in EVENTS, event
        line = json.dumps({"at": round(time.time(), 3), "event": event, **about})
        with self._lock:
            self._file.write(f"{line}\n")
            self._file.flush()


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """Return the events of a machine; lines that a crash has cut short are left out.

    Raises:
        ValueError: if there is no log.
    """
    path = Path(folder) / LOG
    if not path.is_file():
        raise ValueError(f"{folder} holds no capstone: llmcourse capstone --out {folder} makes it")
    found = []
    for line in path.read_text(encoding="utf8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") in EVENTS:
            found.append(event)
    return found
