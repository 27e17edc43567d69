"""One learner's process: what ends it, what is blamed for that, and that it is believed nothing."""

import os
import re
import subprocess
import sys
import time

import pytest

from llmcourse_classroom.exercises.check import AnswerError
from llmcourse_classroom.grader import session
from llmcourse_labs.sandbox import sandbox
from tests.classroom import hostile

HOLD_600_MIB = hostile.HOLD.replace("MIB", "600")
LIMITS = sandbox.Limits(memory_bytes=1200 << 20, disk_bytes=2 << 30)


def started(limits, seconds=300.0):
    place = sandbox.Place(sandbox.Isolation("limits", ()), limits)
    return session.Session(place, deadline=time.monotonic() + seconds)


@pytest.mark.skipif(sys.platform != "linux", reason="measured on Linux alone")
def test_who_takes_the_memory_is_blamed_and_what_it_has_started_is_ended(monkeypatch):
    # A watcher that never looks in time: what is tested must not depend on when it does.
    monkeypatch.setattr(session, "LOOK_EVERY_S", 3600.0)
    hold = "".join(f"    {line}\n" for line in HOLD_600_MIB.splitlines())
    token = f"token-session-{os.getpid()}"
    detached = hostile.DETACHED.replace("ENV", "dict(os.environ)").replace("TOKEN", token)
    with started(LIMITS) as learner:
        assert (learner.run_cell(detached), len(hostile.leftovers(token))) == ("", 1)
        assert learner.run_cell(f"held = []\ndef take():\n{hold}") == ""
        assert learner.call("take") is None
        assert learner.run_cell("x = 1") == ""
        with pytest.raises(session.EndedError, match=r"more than 1\.17 GiB of memory"):
            learner.call("take")
        with pytest.raises(session.EndedError, match="GiB of memory"):
            learner.run_cell("x = 2")
    assert hostile.leftovers(token) == []


UNREADABLE = {
    "if True:\n        x = 1\n    y = 2": "IndentationError, unindent .* line 3 of the cell",
    "if True:\n\tx = 1\n        y = 2": "TabError, inconsistent use of tabs .* line 3",
    "x = 1\0": "SyntaxError, source code .* null bytes$",
    "-" * 50_000 + "1": "MemoryError$",
    "1+" * 20_000 + "1": "RecursionError, ",
    "x = '\ud800'": "half a character",
}


def test_a_cell_that_cannot_be_compiled_is_told_and_ends_nothing():
    with started(sandbox.Limits()) as learner:
        for source, says in UNREADABLE.items():
            assert re.search(says, learner.run_cell(source)), source[:50]
        assert (learner.run_cell("def f():\n    return 1"), learner.call("f")) == ("", 1)
        assert learner.run_cell("def g():\n    raise ValueError('\\ud800')") == ""
        with pytest.raises(AnswerError, match="half a character"):
            learner.call("g")


READY = r"""
import os, sys, time
def say(line):
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()
def hear():
    return sys.stdin.buffer.readline()
say(b'{"tuple":["ok","ready"]}')
"""
KEYS = "keys = b','.join(b'[%d,0]' % (k * (2**61 - 1)) for k in range(60_000))\n"
DICT = """b'{"tuple":["ok",{"dict":['"""
SAYS = {
    "garbage": ("hear(); say(b'garbage'); time.sleep(600)", "cannot be read"),
    "half a line": ("hear(); os.write(1, b'{'); time.sleep(600)", "it took more than 2 s"),
    "nothing": ("hear(); time.sleep(600)", "it took more than 2 s"),
    "does not read": ("time.sleep(600)", "it took more than 2 s"),
    "ends": ("hear(); sys.exit()", "ended by itself"),
    "does not listen": ("os.close(0); time.sleep(600)", "ended by itself"),
    "no pair": ("hear(); say(b'[1,2]')", "something else than the grader asked for"),
    "another word": ("hear(); say(b'{\"tuple\":[\"pass\",0]}')", "something else"),
    "collides": (f"{KEYS}hear(); say({DICT} + keys + b']}}]}}')", "keys of a dictionary collide"),
    "items": ("hear(); say(b'{\"tuple\":[\"ok\",[' + b'[],' * 10**6 + b'[]]]}')", "1,000,000 it"),
    "200 MB": ("hear()\nwhile True: os.write(1, b'x' * 65536)", "more than the grader takes"),
    "a flood": ("hear()\nwhile True: os.write(2, b'x' * 65536)", "it printed more than 3 MiB"),
    "too much memory": ("hear(); x = bytearray(400 << 20); time.sleep(600)", "more than 0.293 GiB"),
}  # fmt: skip


ANSWERS_AFTER_A_WHILE = """
hear()
time.sleep(2)
say(b'{"tuple":["ok",0]}')
hear()
own = os.getpid()
if os.fork():
    os.wait()
while os.getppid() == own:  # nobody else ends the child of this stand-in
    pass
"""


@pytest.fixture
def liar(monkeypatch):
    """A session with a process that runs a script of Python instead of a worker."""
    opened = []

    def of(script, **limits):
        def start(_place, _mark, _worker):
            command = [sys.executable, "-I", "-S", "-c", READY + script]
            pipe = subprocess.PIPE
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe), None

        monkeypatch.setattr(sandbox, "start", start)
        given = {"output_bytes": 3 << 20, "memory_bytes": 300 << 20, "wall_times": 1.0} | limits
        opened.append(started(sandbox.Limits(**given)).__enter__())
        return opened[-1]

    yield of
    for each in opened:
        each.close()


@pytest.mark.parametrize("what", SAYS)
def test_a_process_that_lies_is_ended_and_told(liar, what):
    script, says = SAYS[what]
    learner = liar(script, call_s=2.0 if "2 s" in says else 120.0)
    with pytest.raises(session.EndedError, match=says):
        learner.call("f", "x" * (1 << 20))
    assert learner._process.poll() is not None
    with pytest.raises(session.EndedError, match=says):
        learner.run_cell("")


def test_a_call_may_wait_and_is_limited_by_its_own_processor_time(liar):
    learner = liar(ANSWERS_AFTER_A_WHILE, call_s=1.0, wall_times=100.0)
    assert learner.call("sleep") == 0
    assert learner.processor_s < 1.0
    with pytest.raises(session.EndedError, match="more than 1 s of processor time"):
        learner.call("work")


def test_who_was_ended_while_it_answered_has_not_answered(liar, monkeypatch):
    monkeypatch.setattr(session, "LOOK_EVERY_S", 3600.0)
    learner = liar('hear(); say(b\'{"tuple":["ok",0]}\'); time.sleep(600)')
    # The watcher is the first to see it: whoever looks next finds no process.
    monkeypatch.setattr(learner, "_too_much", lambda: learner._stop("too much") or "")
    with pytest.raises(session.EndedError, match="too much"):
        learner.call("f")


def test_forged_answers_are_plain_data_and_nothing_more_and_a_long_error_is_cut(liar):
    learner = liar('hear()\nfor _ in range(50): say(b\'{"tuple":["ok",0]}\')\ntime.sleep(600)')
    assert [learner.call("f"), learner.call("g"), learner.run_cell("x")] == [0, 0, ""]
    learner = liar("hear(); say(b'{\"tuple\":[\"crash\",\"' + b'A' * 3_000_000 + b'\"]}')")
    assert 100 < len(learner.run_cell("x")) <= 400


def test_the_whole_submission_has_a_deadline_of_its_own(liar, monkeypatch):
    learner = liar("time.sleep(600)", call_s=100.0, submission_s=7.0)
    learner.deadline = time.monotonic() + 0.1
    with pytest.raises(session.EndedError, match="it took more than 7 s"):
        learner.call("f")
