"""What keeps submissions and graders apart before anything runs: users, cores."""

import subprocess
import sys

import pytest

from llmcourse_classroom.grader import batch, session
from llmcourse_labs.sandbox import sandbox

LOCKED = """
import sys
from pathlib import Path
from llmcourse_labs.sandbox import sandbox
sandbox.LOCKS = Path(sys.argv[1])
place = sandbox.Place(sandbox.Isolation("limits", (), "", True), sandbox.Limits())
with sandbox.reserved(place) as reserved:
    print(reserved.uid)
"""


@pytest.fixture
def place(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "LOCKS", tmp_path / "locks")
    return sandbox.Place(sandbox.Isolation("limits", (), "", True), sandbox.Limits())


def test_two_graders_never_use_one_user_at_a_time(place, tmp_path):
    with sandbox.reserved(place) as first, sandbox.reserved(place) as second:
        command = [sys.executable, "-c", LOCKED, str(tmp_path / "locks")]
        other = subprocess.run(command, capture_output=True, text=True, check=True)
        assert len({first.uid, second.uid, int(other.stdout)}) == 3
    with sandbox.reserved(place) as again:
        assert again.uid == first.uid == sandbox.FIRST_UID


def test_when_all_users_are_taken_it_is_said(place, monkeypatch):
    monkeypatch.setattr(sandbox, "MOST_UIDS", 1)
    with sandbox.reserved(place), pytest.raises(OSError, match="all 1 user ids"):
        sandbox.reserved(place).__enter__()


def test_without_root_nobody_gets_another_user():
    place = sandbox.Place(sandbox.Isolation("limits", ()), sandbox.Limits())
    with sandbox.reserved(place) as reserved:
        assert reserved.uid == 0


@pytest.mark.skipif(sys.platform != "linux", reason="cores are given on Linux alone")
@pytest.mark.parametrize(
    ("jobs", "cores"), [(1, [()]), (2, [(0, 2, 4), (1, 3)]), (5, [(0,), (1,), (2,), (3,), (4,)])]
)
def test_submissions_at_a_time_have_cores_of_their_own(monkeypatch, jobs, cores):
    monkeypatch.setattr(batch.os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4})
    assert batch._cores(jobs) == cores
    assert len(batch._cores(7)) == 7


GUARDED = """
import ctypes, os
from llmcourse_labs.sandbox import lockdown
if os.getuid() == 0:
    os.setresuid(61000, 61000, 61000)
lockdown.prctl(lockdown.SET_DUMPABLE, 1)  # as an ordinary user's process is
lockdown.stand_guard()
guard = os.getppid()
try:
    open(f"/proc/{guard}/mem", "r+b").close()
    print("open")
except PermissionError:
    print("closed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
def test_a_learner_cannot_write_into_the_guard_of_its_own_user():
    command = [sys.executable, "-c", GUARDED]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "closed\n"


@pytest.mark.parametrize("drops_user", [False, True])
def test_limits_alone_say_who_can_kill_the_grader(monkeypatch, drops_user):
    monkeypatch.setattr(sandbox.os, "getuid", lambda: 0)
    monkeypatch.setattr(sandbox, "_probe", lambda _: "" if drops_user else "cannot")
    found = sandbox.detect([], worker=session.WORKER, wanted="limits")
    assert any("the grader itself" in sentence for sentence in found.missing) is not drops_user
    assert any("shared memory" in sentence for sentence in found.missing)
