"""Metrics that cannot be written wait, and stand between no step and its checkpoint."""

import json
import logging

import pytest

from llmcourse.train.loop import Metrics


class Full:
    """A file on a disk that has room for a number of bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.file.close()

    def write(self, content):
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self.file.write(content[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 5, 20])
def test_lines_are_whole_and_in_order_when_there_is_room_again(room, tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    with caplog.at_level(logging.WARNING), Metrics(path, keep_steps=0) as metrics:
        metrics.file = full = Full(metrics.file, room)
        for step in (1, 2):
            metrics.write({"step": step})
        assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'[:room]
        full.room = 1_000
        metrics.write({"step": 3})
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]
    assert len(caplog.messages) == 1
    assert "cannot be written and waits: No space left" in caplog.text


def in_vain(path, error=None):
    """Write a line to a disk without room, and end with an error if there is one."""
    with Metrics(path, keep_steps=0) as metrics:
        metrics.file = Full(metrics.file, 0)
        metrics.write({"step": 1})
        if error is not None:
            raise error


def test_what_is_still_missing_at_the_end_is_an_error_unless_the_run_has_its_own(tmp_path):
    with pytest.raises(OSError, match="No space left"):
        in_vain(tmp_path / "metrics.jsonl")
    with pytest.raises(KeyError):
        in_vain(tmp_path / "metrics.jsonl", KeyError("a bug"))
