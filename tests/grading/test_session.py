"""One learner's process: what ends it, and what is blamed for that."""

import time

import pytest

from llmcourse.grading import sandbox, session

HOLD_600_MIB = """
import os
held = os.memfd_create("held")
for _ in range(60):
    os.write(held, bytes(10 << 20))
"""
"""Memory that no limit of an address space counts."""
LIMITS = sandbox.Limits(memory_bytes=1200 << 20, disk_bytes=2 << 30)


@pytest.fixture
def learner(monkeypatch):
    # A watcher that never looks in time: what is tested must not depend on when it does.
    monkeypatch.setattr(session, "LOOK_EVERY_S", 3600.0)
    place = sandbox.Place(sandbox.detect([], wanted="limits"), LIMITS)
    with session.Session(place, deadline=time.monotonic() + 120) as found:
        yield found


@pytest.mark.skipif(not hasattr(session.os, "memfd_create"), reason="Linux has such files")
def test_the_cell_that_took_the_memory_is_blamed_not_the_one_after_it(learner):
    assert learner.run_cell(HOLD_600_MIB) == ""
    with pytest.raises(session.EndedError, match=r"more than 1\.17 GiB of memory"):
        learner.run_cell(HOLD_600_MIB.replace("held", "more"))


@pytest.mark.skipif(not hasattr(session.os, "memfd_create"), reason="Linux has such files")
def test_a_call_that_takes_the_memory_is_blamed_itself(learner):
    hold = "".join(f"    {line}\n" for line in HOLD_600_MIB.replace("60", "120").splitlines())
    assert learner.run_cell(f"kept = []\ndef take():\n{hold}    kept.append(held)") == ""
    with pytest.raises(session.EndedError, match="GiB of memory"):
        learner.call("take")


def test_what_holds_little_is_left_alone(learner):
    assert learner.run_cell("def twice(x):\n    return 2 * x") == ""
    assert [learner.call("twice", x) for x in (1, 2)] == [2, 4]
    assert learner.ended == ""
