"""Submissions that are broken, or mean harm, each with the score that it deserves.

Texts in capitals stand for what the test knows when it runs: PRIVATE, a folder that nobody may
see; PORT, of a server on this machine's loopback; TOKEN, a word to find leftovers by.
"""

import json

from tests.grading.small_exam import (
    CHECK_2,
    STUB,
    Submission,
    cells,
    edited,
    notebook,
    of,
    text,
)

NONE, SECOND = (0.0, 0.0), (0.0, 3.0)
WRONG_ADD = "def add_all(numbers):\n    return 7"
WRONG_DOUBLE = "def double(x):\n    return x"


def code(body, head="def add_all(numbers):"):
    """Return an answer whose body is given."""
    return head + "\n" + "\n".join("    " + line for line in body.strip("\n").split("\n"))


def cheat(extra, **settings):
    """Return a submission with wrong answers and a cell that is to make them count."""
    return of(NONE, add=WRONG_ADD, double=WRONG_DOUBLE, extra=[extra], **settings)


DETACHED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        command = [sys.executable, "-c", "import time; time.sleep(600)", "TOKEN"]
        os.execve(sys.executable, command, ENV)
    os._exit(0)
os.wait()
time.sleep(0.3)
"""
EVERYTHING = """
class Everything:
    def __eq__(self, other):
        return True
    def __getattr__(self, name):
        return self
    def __call__(self, *rest):
        return self
    def __len__(self):
        return 1
    def __iter__(self):
        return iter([])
    def __bool__(self):
        return True
    __hash__ = None
"""
READ_HIDDEN = """
import pathlib
found = {}
for name in ("PRIVATE/exam/hidden/90_small.py", "hidden/90_small.py"):
    if pathlib.Path(name).exists():
        exec(pathlib.Path(name).read_text(), found)
if not found:
    raise OSError("not to be seen")
return sum(numbers)
"""
READ_OTHERS = """
import pathlib
others = list(pathlib.Path("PRIVATE/submissions").iterdir())
if len(others) < 3:
    raise OSError("nobody to copy from")
return sum(numbers)
"""
READ_GRADER = """
import os, pathlib
seen = [p for p in os.listdir("/proc") if p.isdigit()]
lines = [pathlib.Path("/proc", p, "cmdline").read_bytes() for p in seen]
if not any(b"llmcourse.grading\\0grade" in line for line in lines):
    raise OSError("no grader in sight")
return sum(numbers)
"""
WRITE_OUTSIDE = """
import os
for folder in ("PRIVATE", "PRIVATE/submissions", "PRIVATE/out", "PRIVATE/exam/hidden", "/etc",
               "/usr/lib", os.path.dirname(os.__file__), os.path.dirname(torch.__file__)):
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "TOKEN"), "w") as file:
            file.write("here")
    except OSError:
        pass
"""
CONNECT = """
import socket
socket.create_connection(("127.0.0.1", PORT), timeout=2).sendall(b"TOKEN")
"""
OWN_LOOPBACK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
client.sendall(bytes(numbers))
client.shutdown(socket.SHUT_WR)
received = b""
while part := other.recv(100):
    received += part
return sum(received)
"""
TWO_RANKS = """
import os, socket, tempfile
import torch.distributed as dist
result = tempfile.mktemp()
store = tempfile.mktemp()
children = []
for rank in range(2):
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
        mine = torch.tensor([sum(numbers[rank::2])])
        dist.all_reduce(mine)
        if rank == 0:
            open(result, "w").write(str(int(mine)))
        dist.barrier()
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
return int(open(result).read())
"""
FORGE = """
import os
line = b'{"tuple":["ok",0]}\\n'
for number in range(3, 64):
    try:
        os.write(number, line * 50)
    except OSError:
        pass
return 0
"""
FORK_BOMB = """
import os, time
PARENT = os.getpid()
for _ in range(7):
    try:
        os.fork()
    except OSError:
        break
time.sleep(1)
"""
BIG_FILE = """
with open("big", "wb") as file:
    for _ in range(10 * 1024):
        file.write(b"x" * (1 << 20))
"""
MANY_FILES = """
for number in range(64):
    with open(f"big{number}", "wb") as file:
        file.write(b"x" * (64 << 20))
"""
SWALLOW = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""
THREAD = """
import threading, sys
thread = threading.Thread(target=lambda: sys.exit(1))
thread.start()
thread.join()
"""
WRITE = """
import os, stat, threading, time
def forge(data):
    for number in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                os.write(number, data)
        except OSError:
            pass
"""
STAY_BEHIND = """
for _ in range(50):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
forge(b"garbage\\n")
time.sleep(600)
"""
COLLIDE = """
keys = b",".join(b"[%d,0]" % (k * (2**61 - 1)) for k in range(60_000))
forge(b'{"tuple":["ok",{"dict":[' + keys + b']}]}\\n')
"""
MANY_ITEMS = r"""
forge(b'{"tuple":["ok",[' + b"[]," * 2_000_000 + b'[]]]}\n')
"""
LONG_ERRORS = r"""
for _ in range(5):
    forge(b'{"tuple":["crash","' + b"A" * 3_000_000 + b'"]}\n')
"""
# In several cells, each with its own time: a busy machine may need seconds for a gigabyte.
HOLD_300_MIB = """
for number in range(6):
    held.append(os.memfd_create(str(number)))
    os.posix_fallocate(held[-1], 0, 50 << 20)
"""
MEMORY_FILES = [
    "import os, time\nheld = []",
    *[HOLD_300_MIB] * 8,
    "time.sleep(60)",
]
MANY_THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(20) as pool:
    return sum(pool.map(int, numbers))
"""
IN_JUPYTER = """
%matplotlib inline
import asyncio
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
task = asyncio.create_task(asyncio.sleep(0))
await task
WAITED = True
"""
PATCH_CHECK = """
import llmcourse.grading.check as check
import llmcourse.grading.compare as compare
compare.difference = lambda *a, **k: ""
check._truth = lambda condition: True
check.Check.equal = check.Check.close = check.Check.__call__ = lambda self, *a, **k: True
check.Result.score = property(lambda self: self.points)
Check = check.Check
"""
PATCH_LIBRARIES = """
import builtins, math
import numpy as np
for name in ("allclose", "equal", "isclose"):
    setattr(torch, name, lambda *a, **k: True)
    setattr(np, name, lambda *a, **k: True)
np.array_equal = np.testing.assert_allclose = lambda *a, **k: True
torch.Tensor.__eq__ = lambda self, other: torch.tensor(True)
math.isclose = lambda *a, **k: True
builtins.abs = lambda x: 0
"""
PATCH_WIRE = """
import llmcourse.grading.plain as plain
plain.dumps = lambda value: b'{"tuple":["ok",true]}'
"""
PATCH_SENDER = """
import json, json.encoder
json.dumps = lambda *a, **k: '{"tuple":["ok",{"float":"nan"}]}'
"""


def swapped(document):
    document["cells"] = document["cells"][::-1]


def doubled(document):
    document["cells"] = [cell for cell in document["cells"] for _ in range(2)]


def other_language(document):
    document["metadata"]["kernelspec"] = {"name": "ir", "language": "R", "display_name": "R"}


def other_chapter(document):
    for cell in document["cells"]:
        marks = cell["metadata"].get("nbgrader", {})
        if marks:
            marks["grade_id"] = marks["grade_id"].replace("90-", "91-")
        whole = "".join(cell["source"])
        cell["source"] = whole.replace("add_all", "f").replace("double", "g")


def unmarked(document):
    for cell in document["cells"]:
        cell["metadata"] = {}


def many(document):
    document["cells"] = [{**document["cells"][0], "id": f"c{n}"} for n in range(5000)]


def whole(text):
    return "".join(text) if isinstance(text, list) else text


def helper_in_a_check(document):
    for cell in document["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "90-1-check":
            cell["source"] += ["\n", "def helper(numbers):\n", "    return sum(numbers)"]
        if "def add_all" in whole(cell["source"]):
            cell["source"] = "def add_all(numbers):\n    return helper(numbers)"


def null_marks(document):
    document["metadata"]["kernelspec"] = None
    for cell in document["cells"]:
        if not cell["metadata"].get("nbgrader", {}).get("grade"):
            cell["metadata"]["nbgrader"] = None


def without_metadata(document):
    del document["metadata"]
    for cell in document["cells"]:
        cell.pop("metadata")


def heavy(document):
    plot = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 3_000_000}}
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [plot, *[{} for _ in range(20_000)]][: 1 if cell["id"] else 0]
    document["cells"][-1]["outputs"] = [{} for _ in range(50_000)]


def set_key(key, value):
    def change(document):
        document[key] = value

    return change


def set_source(value):
    def change(document):
        for cell in document["cells"]:
            cell["source"] = value

    return change


def link_to_passwords(path):
    path.symlink_to("/etc/passwd")


def folder(path):
    path.mkdir()


WITHOUT_CHECKS = [c for c in cells() if not c.metadata.get("nbgrader", {}).get("grade")]
SUBMISSIONS = {
    # --- honest ones, among the others
    "honest": of(),
    "honest-too": of(),
    "open": of(SECOND, add=STUB),
    "wrong": of(NONE, add=WRONG_ADD, double=WRONG_DOUBLE),
    "own-loopback": of(add=code(OWN_LOOPBACK)),
    "two-ranks": of(add=code(TWO_RANKS)),
    "threads": of(add=code(MANY_THREADS)),
    "as-in-jupyter": of(extra=[IN_JUPYTER], add=code("assert WAITED\nreturn sum(numbers)")),
    "leaves-with-exit": of(extra=["x = 1\nexit()"]),
    "helper-in-a-check": edited(helper_in_a_check),
    "byte-order-mark": Submission(b"\xef\xbb\xbf" + text().encode()),
    "utf-16": Submission(text().encode("utf-16")),
    "null-marks": edited(null_marks, problem="no cell is marked"),
    "without-metadata": edited(without_metadata, problem="no cell is marked"),
    "heavy-outputs": edited(heavy),
    "four-slow-cells": of(problem="it took more than", extra=["import time\ntime.sleep(600)"] * 4),
    # --- loops and exits
    "loop-in-answer": of(SECOND, "", add=code("while True:\n    pass")),
    "loop-after-answer": of(problem="it took more than", extra=["while True:\n    pass"]),
    "loop-swallows-interrupt": of(problem="it took more than", extra=[SWALLOW]),
    "loop-at-exit": of(extra=["import atexit, time\natexit.register(time.sleep, 600)"]),
    "exit-hard-in-answer": of(SECOND, add=code("import os\nos._exit(0)")),
    "exit-hard-in-cell": of(problem="ended by itself", extra=["import os\nos._exit(0)"]),
    "exit-in-answer": of(SECOND, add=code("import sys\nsys.exit(0)")),
    "exit-in-cell": of(problem="SystemExit", extra=["import sys\nsys.exit(0)"]),
    "exit-in-thread": of(extra=[THREAD]),
    "interrupt-in-answer": of(SECOND, add=code("raise KeyboardInterrupt")),
    "crash-of-python": of(SECOND, add=code("import ctypes\nctypes.string_at(0)")),
    "endless-recursion": of(SECOND, add=code("return add_all(numbers)")),
    "stops-itself": of(SECOND, add=code("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")),
    "waits-for-input": of(SECOND, add=code("return int(input())")),
    "sleeps": of(SECOND, add=code("import time\ntime.sleep(600)")),
    # --- resources
    "allocates-40-gb": of(problem="MemoryError", extra=["x = bytearray(40 << 30)"]),
    "allocates-40-gb-in-answer": of(SECOND, add=code("return torch.ones(10 << 30).sum().item()")),
    "file-of-10-gb": of(problem="OSError", extra=[BIG_FILE]),
    "files-of-4-gb": of(problem="OSError", extra=[MANY_FILES], namespaces_only=True),
    "fork-bomb": of(extra=[FORK_BOMB + "\nif os.getpid() != PARENT:\n    os._exit(0)"]),
    "detached-grandchild": of(extra=[DETACHED.replace("ENV", "dict(os.environ)")]),
    "detached-without-mark": of(extra=[DETACHED.replace("ENV", "{}")]),
    "output-flood": of(problem="printed more", extra=["while True:\n    print('x' * 100_000)"]),
    "output-flood-in-answer": of(SECOND, add=code("while True:\n    print('x' * 100_000)")),
    "returns-200-mb": of(SECOND, add=code("return 'x' * 200_000_000")),
    "memory-files": of(problem="GiB of memory", extra=MEMORY_FILES),
    "stays-behind": of(problem="cannot be read", extra=[WRITE + STAY_BEHIND]),
    "keys-that-collide": of(SECOND, add=WRITE + code(COLLIDE + "return 0")),
    "two-million-items": of(SECOND, add=WRITE + code(MANY_ITEMS + "return 0")),
    "long-errors": of(NONE, extra=[WRITE + LONG_ERRORS]),
    # --- checks that were changed
    "checks-deleted": Submission(json.dumps(notebook(WITHOUT_CHECKS))),
    "checks-edited": of(
        NONE, add=WRONG_ADD, double=WRONG_DOUBLE, check_1="1", check_2="assert True"
    ),
    "checks-duplicated": edited(doubled, problem="there twice"),
    "checks-reordered": edited(swapped),
    "checks-unmarked": edited(unmarked, problem="no cell is marked"),
    "check-that-loops": of(check_1="while True:\n    pass", check_2=CHECK_2),
    "patched-check": cheat(PATCH_CHECK),
    "patched-libraries": cheat(PATCH_LIBRARIES),
    "patched-wire": cheat(PATCH_WIRE),
    "patched-sender": cheat(PATCH_SENDER),
    "forged-answers": of(NONE, add=code(FORGE)),
    # --- what answers return
    "equals-everything": of(SECOND, add=EVERYTHING + code("return Everything()")),
    "number-that-lies": of(
        SECOND,
        add="class N(int):\n    __eq__ = lambda self, other: True\n    __hash__ = None\n"
        + code("return N(0)"),
    ),
    "class-instead-of-data": of(SECOND, add=code("return add_all")),
    "pickle-instead-of-data": of(SECOND, add=code("import pickle\nreturn pickle.dumps(sum)")),
    "nan": of(SECOND, add=code("return float('nan')")),
    "infinite": of((2.0, 0.0), double=code("return x / 0", "def double(x):")),
    "nan-in-a-tensor": of((2.0, 0.0), double=code("return x * float('nan')", "def double(x):")),
    "wrong-dtype": of((2.0, 0.0), double=code("return (2 * x).float()", "def double(x):")),
    "wrong-shape": of((2.0, 0.0), double=code("return (2 * x)[None]", "def double(x):")),
    "true-for-one": of(SECOND, add=code("return True")),
    "huge-number": of(SECOND, add=code("return 10**20_000")),
    "list-in-itself": of(SECOND, add=code("x = []\nx.append(x)\nreturn x")),
    "half-a-character": of(SECOND, add=code("return '\\ud800'")),
    "evil-text": of(
        SECOND, add=code("raise ValueError('<script>alert(1)</script>\\x1b[31m' * 99)")
    ),
    # --- what is not the learner's business
    "reads-hidden-tests": of(SECOND, add=code(READ_HIDDEN), namespaces_only=True),
    "reads-others": of(SECOND, add=code(READ_OTHERS), namespaces_only=True),
    "reads-grader": of(SECOND, add=code(READ_GRADER), namespaces_only=True),
    "writes-outside": of(extra=[WRITE_OUTSIDE], namespaces_only=True),
    "connects-to-loopback": of(problem="refused", extra=[CONNECT], namespaces_only=True),
    "kills-parent": of(
        problem="cell 3", extra=["import os\nos.kill(os.getppid(), 9)\nwhile True:\n    pass"]
    ),
    "kills-all": of(
        problem="cell 3",
        extra=["import os\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)"],
        namespaces_only=True,
    ),
    # --- files that are no such notebook
    "empty": Submission("", NONE, "empty"),
    "not-a-notebook": Submission(b"\x89PNG\r\n\x1a\n" + bytes(range(256)), NONE, "not a notebook"),
    "plain-text": Submission("print('hello')", NONE, "not a notebook"),
    "json-of-something": Submission('{"a": [1, 2]}', NONE, "not a notebook"),
    "truncated": Submission(text()[:700], NONE, "not a notebook"),
    "corrupted": Submission(text().replace('"', "'", 9), NONE, "not a notebook"),
    "nested-too-deep": Submission("[" * 200_000, NONE, "not a notebook"),
    "other-language": edited(other_language, NONE, "not Python"),
    "wrong-notebook": edited(other_chapter, NONE, "chapter 91"),
    "cells-are-no-list": edited(set_key("cells", 5), NONE, "not a notebook"),
    "metadata-is-a-list": edited(set_key("metadata", [])),
    "sources-are-numbers": edited(set_source(5), NONE, "source is no text"),
    "does-not-parse": of(SECOND, "SyntaxError", add="def add_all(numbers:\n  return"),
    "two-million-cells": Submission(" " * 60_000_000, NONE, "bytes, more than"),
    "five-thousand-cells": edited(many, NONE, "cells, more than"),
    "a-link": Submission(link_to_passwords, NONE, "not a file of its own"),
    "=1+1": of(),
    "-name with spaces": of(),
}
