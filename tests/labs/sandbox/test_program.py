"""Programs that nobody trusts: plain answers come back, and no hostile one is counted as solved."""

import dataclasses
import re
import sys
import textwrap
from collections import Counter
from pathlib import Path

import psutil
import pytest

from llmcourse_labs.evaluate.problems import Problem, fault
from llmcourse_labs.sandbox import program
from llmcourse_labs.sandbox.program import Program, ProgramError
from tests.classroom.test_hostile import listening

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are a thing of Linux")

LIMITS = dataclasses.replace(program.LIMITS, submission_s=1.0, memory_bytes=2**28)
LOOP = dataclasses.replace(LIMITS, wall_times=1.0)
TASK = Problem(
    "own/0",
    "def answer(n):\n    '''Return 42.'''\n",
    "answer",
    "",
    "def check(c):\n    assert c(20) == 42\n",
)


@pytest.fixture(scope="module")
def place():
    return program.place(limits=LIMITS)


@pytest.fixture(scope="module")
def server():
    with listening() as reached:
        yield reached


def test_literals_come_back_as_plain_types_and_prints_do_not_matter(place):
    source = """
from collections import Counter, OrderedDict
class Text(str): pass
def give(*arguments):
    print("out", arguments * 1000)
    return arguments
def count(text): return Counter(text)
def odd(): return [Text("a"), {True, 2}, OrderedDict(a=(None, 2.5)), b"x"]
"""
    with Program(source, place) as running:
        given = (1, -2.5, "ü\n'", (3, [True, None]), {"a": {4}})
        assert running.call("give", *given) == given
        assert running.call("count", "aba") == Counter("aab") == {"a": 2, "b": 1}
        assert running.call("odd") == ["a", {1, 2}, {"a": (None, 2.5)}, b"x"]
        assert [type(x) for x in running.call("odd")[:3]] == [str, set, dict]
        with pytest.raises(ProgramError, match=r"^KeyError: 'none'$"):
            running.call("none")
        assert running.call("give") == ()  # a failure ends nothing
    with pytest.raises(ProgramError, match="SyntaxError"), Program("def", place):
        pass


ALL = "class All:\n    __eq__ = lambda *_: True\n"
HOSTILE = {
    "loops": ("ended by itself|took too long", "while True: pass"),
    "sleeps": ("took too long", "import time; time.sleep(60)"),
    "forks": ("BlockingIOError|no plain data", "import os\nwhile True: os.fork()"),
    "fills memory": ("MemoryError", "x = bytes(2**30)"),
    "fills the disk": (
        "OSError",
        "for i in range(99): open(f'/tmp/{i}', 'wb').write(bytes(2**24))",
    ),
    "fills its home": ("OSError", "for i in range(99): open(str(i), 'wb').write(bytes(2**24))"),
    "opens files": ("OSError", "x = [open('/dev/null') for _ in range(2000)]"),
    "writes elsewhere": ("OSError", "open('/usr/lib/of_mine', 'w')"),
    "reads home": ("FileNotFoundError", "return int(open('SECRET').read())"),
    "asks the network": (
        "ConnectionRefusedError",
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), 2)\nreturn 42",
    ),
    "kills its parent": (
        "PermissionError|ended by itself",
        "import os\nfor p in (1, os.getppid()): os.kill(p, 9)\nos._exit(0)",
    ),
    "kills all": ("Error|ended by itself", "import os\nos.kill(-1, 9)\nos._exit(0)"),
    "prints for ever": ("prints too much", "while True: print('x' * 9999)"),
    "writes 42 for ever": ("prints too much", "import os\nwhile True: os.write(1, b'42' * 999)"),
    "ends well": ("ended by itself", "import os; os._exit(0)"),
    "exits": ("SystemExit", "raise SystemExit(0)"),
    "exits from afar": ("SystemExit", "import sys; sys.exit()"),
    "skips the tests": (
        "^a test fails$",
        (
            "import builtins\nbuiltins.AssertionError = ValueError\nglobal check\n"
            "check = lambda c: None\nreturn 41"
        ),
    ),
    "equals all": ("no plain data", f"{ALL}    __repr__ = lambda _: 'all'\nreturn All()"),
    "is any literal": ("^a test fails$", f"{ALL}    __repr__ = lambda _: '41'\nreturn All()"),
    "nests deeply": (
        "no plain data",
        f"{ALL}    __repr__ = lambda _: '-' * 9**6 + '1'\nreturn All()",
    ),
    "nests in brackets": (
        "much|no plain data",
        f"{ALL}    __repr__ = lambda _: '[' * 10**5 + ']' * 10**5\nreturn All()",
    ),
    "returns much": ("says much", "return 'x' * 2**21"),
    "writes into the pipe": (
        "no plain data|ended by itself",
        (
            "import os\nfor f in range(3, 20):\n    try: os.write(f, b\"('solved', '')\\n\" * 2)\n"
            "    except OSError: pass\nos._exit(0)"
        ),
    ),
    "changes its frames": (
        "something else|a test fails",
        "import sys\nsys._getframe(1).f_globals['repr'] = lambda _: 42\nreturn 1",
    ),
}
"""What a program does when it is asked for 42, and what is said of it."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs_are_not_solved(place, server, tmp_path, name):
    why, body = HOSTILE[name]
    secret = tmp_path / "secret"
    secret.write_text("42")
    body = body.replace("SECRET", str(secret)).replace("PORT", str(server[0]))
    where = dataclasses.replace(place, limits=LOOP) if name == "sleeps" else place
    others = psutil.Process().children(recursive=True)  # of earlier tests, such as a browser
    told = fault(TASK, TASK.prompt + textwrap.indent(body, "    "), where)
    assert told, "it counts as solved"
    assert re.search(why, told), told
    assert server[1] == []
    assert secret.read_text() == "42"
    assert set(psutil.Process().children(recursive=True)) <= set(others)


@pytest.mark.parametrize("is_private", [True, False])
def test_a_private_folder_is_empty_for_a_program(is_private):
    folder = Path(program.__file__).parents[1] / "evaluate"
    source = f"import os\ndef seen(): return os.listdir({str(folder)!r})"
    where = program.place(*[folder] * is_private, limits=LIMITS)
    with Program(source, where) as running:
        assert ("problems.py" in running.call("seen")) is not is_private


def test_nothing_runs_without_namespaces(monkeypatch):
    monkeypatch.setattr(program.sandbox.shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match=r"namespaces were asked for .*install bubblewrap"):
        program.place.__wrapped__()
