"""What is printed never ends work: not a console, not a reader who has gone, not a full disk."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmcourse.base.command_line import for_people
from tests import warm

SMALL = ["--preset", "tiny", "--steps", "4", "--warmup_steps", "1", "--checkpoint_every", "0"]


def test_what_a_console_cannot_show_is_a_question_mark(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", shown)
    with for_people():
        print("Läufe der Flüsse: 川 \udcff")
        assert sys.stdout is not shown
    assert sys.stdout is shown
    assert shown.errors == "strict"  # as it was
    assert shown.buffer.getvalue().decode("cp1252").strip() == "Läufe der Flüsse: ? ?"


class _Full(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


def test_a_stream_that_fails_is_written_no_more_and_errors_of_the_work_are_others(monkeypatch):
    monkeypatch.setattr(sys, "stderr", _Full())
    with for_people():
        assert print("one", file=sys.stderr) is None
        assert sys.stderr.write("two") == 3
    with pytest.raises(OSError, match="full"), for_people():
        raise OSError(28, "full")


@pytest.mark.parametrize("gone", ["a reader", "a disk"])
def test_a_run_goes_on_to_its_checkpoint(gone, tmp_path):
    """Its output is closed after the first line, or goes to a disk without room."""
    command = [sys.executable, "-m", "llmcourse.train", *SMALL, "--out", str(tmp_path / "r")]
    command += ["--sample_every", "1", "--validate_every", "1"]
    if gone == "a reader":
        with warm.Process(command) as process:
            process.stdout.readline()
            process.stdout.close()
            status = process.wait(timeout=120)
    elif not Path("/dev/full").exists():
        pytest.skip("a disk without room is a file of Linux")
    else:
        with open("/dev/full", "w") as full:  # noqa: PTH123
            status = subprocess.run(command, stdout=full, check=False, timeout=120).returncode
    assert status == 0
    (saved,) = (tmp_path / "r" / "checkpoints").iterdir()
    assert saved.name == "step_00000004.ckpt"


def test_a_folder_with_an_umlaut_is_no_obstacle(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for words in (
        ["train", *SMALL, "--out", "Läufe→1", "--sample_every", "1"],
        ["sample", "--run", "Läufe→1", "--prompt", "Ünal", "--tokens", "5"],
    ):
        command = [sys.executable, "-m", "llmcourse", *words]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
