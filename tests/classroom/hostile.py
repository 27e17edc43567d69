"""Submissions that are broken, or mean harm, each with the score that it deserves.

`HERE` needs no process to be tested: files, cells, what answers return.  `SUBMISSIONS` are graded
by the command itself, under namespaces, and those that limits alone can hold under limits as well.

Texts in capitals stand for what the test knows when it runs: PRIVATE, a folder that nobody may
see; PORT, of a server on this machine's loopback; TOKEN, a word to find leftovers by.
"""

import json

import psutil

from tests.classroom.small_exam import STUB, Submission, cells, edited, notebook, of, text

NONE, SECOND = (0.0, 0.0), (0.0, 3.0)
WRONG_ADD = "def add_all(numbers):\n    return 7"
WRONG_DOUBLE = "def double(x):\n    return x"


def leftovers(token):
    """Return the processes of this machine that carry a word in their command line."""
    every = psutil.process_iter(["cmdline"])
    return [process for process in every if token in " ".join(process.info["cmdline"] or [])]


def code(body, head="def add_all(numbers):"):
    return head + "\n" + "\n".join("    " + line for line in body.strip("\n").split("\n"))


def doubled(body):
    return code(body, "def double(x):")


def cheat(extra, **settings):
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
READ_HIDDEN = """
import pathlib
for name in ("PRIVATE/exam/hidden/90_small.py", "hidden/90_small.py"):
    if pathlib.Path(name).exists():
        raise OSError("the hidden tests are in sight")
raise OSError("no hidden tests")
"""
READ_OTHERS = """
import pathlib
found = [p for p in pathlib.Path("PRIVATE").rglob("*") if p.is_file()]
raise OSError(f"others in sight: {found}" if found else "nobody to copy from")
"""
READ_GRADER = """
import os, pathlib
seen = [p for p in os.listdir("/proc") if p.isdigit()]
lines = [pathlib.Path("/proc", p, "cmdline").read_bytes() for p in seen]
found = [line for line in lines if b"llmcourse_classroom.exercises\\0grade" in line]
raise OSError("the grader is in sight" if found else "no grader")
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
INJECT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
SEIZE = 0x4206
if libc.ptrace(SEIZE, 1, None, None) == 0:
    raise OSError("process 1 can be written into")
try:
    open("/proc/1/mem", "r+b").close()
except PermissionError:
    raise OSError("process 1 is out of reach")
"""
CONNECT = """
import socket
socket.create_connection(("127.0.0.1", PORT), timeout=2).sendall(b"TOKEN")
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
LOOPBACK_AND_THREADS = """
import socket
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(20) as pool:
    assert sum(pool.map(int, range(100))) == 4950
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
client.sendall(b"2")
return int(other.recv(1)) * x
"""
MANY_PROCESSES = """
import subprocess
children, stopped = [], "nothing stopped it"
while len(children) < 300:
    try:
        children.append(subprocess.Popen(["sleep", "600"]))
    except OSError as error:
        stopped = f"no more than a limit of processes: {error}"
        break
for child in children:
    child.kill()
    child.wait()
raise OSError(stopped)
"""
BIG_FILE = """
with open("big", "wb") as file:
    for _ in range(10 * 1024):
        file.write(b"x" * (1 << 20))
"""
SWALLOW = """
import atexit, time
atexit.register(time.sleep, 600)
while True:
    try:
        while True:
            time.sleep(1)
    except BaseException:
        pass
"""
THREAD = """
import threading, sys
thread = threading.Thread(target=lambda: sys.exit(1))
thread.start()
thread.join()
"""
STAY_BEHIND = """
import threading, time
for _ in range(30):
    threading.Thread(target=time.sleep, args=(600,)).start()
"""
HOLD = """
import subprocess, sys
hold = "import time; held = b'x' * (MIB << 20); print(flush=True); time.sleep(600)"
held.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", hold], stdout=subprocess.PIPE))
held[-1].stdout.read(1)
"""
"""A child that holds memory: the limit of an address space counts each process for itself."""
# In several cells, each with its own time: a busy machine may need seconds for a gigabyte.
MEMORY = ["held = []", *[HOLD.replace("MIB", "300")] * 8, "import time\ntime.sleep(60)"]
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
import sys
import llmcourse_classroom.exercises.check
import llmcourse_classroom.exercises.compare as compare
check = sys.modules["llmcourse_classroom.exercises.check"]
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
import llmcourse_classroom.exercises.plain as plain
plain.dumps = lambda value: b'{"tuple":["ok",true]}'
"""


def set_key(key, value):
    return lambda document: document.update({key: value})


def set_cells(change):
    return lambda document: [cell.update(change(cell)) for cell in document["cells"]]


def new_cells(change):
    return lambda document: document.update(cells=change(document["cells"]))


def marks_of(cell):
    return cell["metadata"].get("nbgrader", {})


def is_answer(cell):
    return "def add_all" in "".join(cell["source"])


def other_chapter(cell):
    marks, source = marks_of(cell), "".join(cell["source"])
    marks |= {"grade_id": marks["grade_id"].replace("90-", "91-")} if marks else {}
    return {"source": source.replace("add_all", "f").replace("double", "g")}


def helper_in_a_check(cell):
    if marks_of(cell).get("grade_id") == "90-1-check":
        return {"source": [*cell["source"], "\ndef helper(numbers):\n", "    return sum(numbers)"]}
    answer = "def add_all(numbers):\n    return helper(numbers)"
    return {"source": answer} if is_answer(cell) else {}


def null_marks(document):
    document["metadata"]["kernelspec"] = None
    for cell in document["cells"]:
        if not marks_of(cell).get("grade"):
            cell["metadata"]["nbgrader"] = None


def without_metadata(document):
    for each in (document, *document["cells"]):
        del each["metadata"]


def heavy(cell):
    plot = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 3_000_000}}
    is_last = marks_of(cell).get("grade_id") == "90-2-check"
    outputs = [{} for _ in range(50_000)] if is_last else [plot]
    return {"outputs": outputs} if cell["cell_type"] == "code" else {}


R = {"name": "ir", "language": "R", "display_name": "R"}
HALF = {"source": "x = '\ud800'"}
WITHOUT_CHECKS = [cell for cell in cells() if not marks_of(cell).get("grade")]


def many(cells):
    return [{**cells[0], "id": f"c{n}"} for n in range(5000)]


# What the file is, what its cells are, and what its answers return: no process is needed.
HERE = {
    "=1+1": of(),
    "-name with spaces": of(),
    "open": of(SECOND, add=STUB),
    "wrong": of(NONE, add=WRONG_ADD, double=WRONG_DOUBLE),
    # --- files and cells
    "helper-in-a-check": edited(set_cells(helper_in_a_check)),
    "byte-order-mark": Submission(b"\xef\xbb\xbf" + text().encode()),
    "utf-16": Submission(text().encode("utf-16")),
    "null-marks": edited(null_marks, problem="no cell is marked"),
    "without-metadata": edited(without_metadata, problem="no cell is marked"),
    "heavy-outputs": edited(set_cells(heavy)),
    "empty": Submission("", NONE, "empty"),
    "not-a-notebook": Submission(b"\x89PNG\r\n\x1a\n" + bytes(range(256)), NONE, "not a notebook"),
    "plain-text": Submission("print('hello')", NONE, "not a notebook"),
    "json-of-something": Submission('{"a": [1, 2]}', NONE, "not a notebook"),
    "truncated": Submission(text()[:700], NONE, "not a notebook"),
    "corrupted": Submission(text().replace('"', "'", 9), NONE, "not a notebook"),
    "nested-too-deep": Submission("[" * 200_000, NONE, "not a notebook"),
    "an-old-form": edited(set_key("nbformat", 3), NONE, "lacks the head of one of form 4"),
    "other-language": edited(set_key("metadata", {"kernelspec": R}), NONE, "not Python"),
    "wrong-notebook": edited(set_cells(other_chapter), NONE, "chapter 91"),
    "cells-are-no-list": edited(set_key("cells", 5), NONE, "not a notebook"),
    "metadata-is-a-list": edited(set_key("metadata", [])),
    "sources-are-numbers": edited(set_cells(lambda _: {"source": 5}), NONE, "source is no text"),
    "does-not-parse": of(SECOND, "SyntaxError", add="def add_all(numbers:\n  return"),
    "two-million-cells": Submission(" " * 60_000_000, NONE, "bytes, more than"),
    "five-thousand-cells": edited(new_cells(many), NONE, "cells, more than"),
    "a-link": Submission(lambda p: p.symlink_to("/etc/passwd"), NONE, "not a file of its own"),
    # --- checks that were changed
    "checks-deleted": Submission(json.dumps(notebook(WITHOUT_CHECKS))),
    "checks-edited": of(NONE, add=WRONG_ADD, double=WRONG_DOUBLE, check_1="1", check_2="2"),
    "checks-duplicated": edited(new_cells(lambda cells: cells * 2), problem="there twice"),
    "checks-reordered": edited(new_cells(lambda cells: cells[::-1])),
    "checks-unmarked": edited(set_cells(lambda _: {"metadata": {}}), problem="no cell is marked"),
    # --- what answers do and return
    "half-a-character-in-a-cell": edited(
        set_cells(lambda cell: HALF if is_answer(cell) else {}), SECOND, "half a character"
    ),
    "half-a-character-everywhere": edited(set_cells(lambda _: HALF), NONE, "half a character"),
    "thirty-wrong-cells": of(problem="and 10 more", extra=["1 / 0"] * 30),
    "cells-that-end-it": of(problem="cell 6: it was ended", extra=["END"] * 4),
    "exit-in-answer": of(SECOND, add=code("import sys\nsys.exit(0)")),
    "interrupt-in-answer": of(SECOND, add=code("raise KeyboardInterrupt")),
    "endless-recursion": of(SECOND, add=code("return add_all(numbers)")),
    "equals-everything": of(SECOND, add=code("from unittest.mock import ANY\nreturn ANY")),
    "number-that-lies": of(SECOND, add=code("class N(int): __eq__ = lambda *_: True\nreturn N(0)")),
    "class-instead-of-data": of(SECOND, add=code("return add_all")),
    "pickle-instead-of-data": of(SECOND, add=code("import pickle\nreturn pickle.dumps(sum)")),
    "tensor-without-data": of(SECOND, add=code("return torch.ones(2, device='meta')")),
    "many-empty-rows": of(SECOND, add=code("return torch.empty(10**9, 0)")),
    "nan": of(SECOND, add=code("return float('nan')")),
    "infinite": of((2.0, 0.0), double=doubled("return x / 0")),
    "nan-in-a-tensor": of((2.0, 0.0), double=doubled("return x * float('nan')")),
    "wrong-dtype": of((2.0, 0.0), double=doubled("return (2 * x).float()")),
    "wrong-shape": of((2.0, 0.0), double=doubled("return (2 * x)[None]")),
    "false-for-zero": of(SECOND, add=code("return sum(numbers) if numbers else False")),
    "huge-number": of(SECOND, add=code("return 10**20_000")),
    "list-in-itself": of(SECOND, add=code("x = []\nx.append(x)\nreturn x")),
    "half-a-character": of(SECOND, add=code("return '\\ud800'")),
    "evil-text": of(SECOND, add=code("raise ValueError('<script>alert(1)</script>\\x1b[31m' * 9)")),
}
ENVIRONMENTS = ("dict(os.environ)", "{}")
NO_PARENT, NOBODY = (f"import os\nos.kill({each}, 9)\n" for each in ("os.getppid()", "-1"))
SUBMISSIONS = {
    # --- honest ones, among the others
    "honest": of(),
    "ranks-and-loopback": of(add=code(TWO_RANKS), double=doubled(LOOPBACK_AND_THREADS)),
    "as-in-jupyter": of(
        extra=[IN_JUPYTER, "x = 1\nexit()"], add=code("assert WAITED\nreturn sum(numbers)"),
        namespaces_only=True,
    ),
    # --- cells that go wrong, and leave the process as it is
    "goes-on": of(
        problem=("SystemExit", "EOFError", "MemoryError", "RuntimeError", "OSError: [Errno 2"),
        extra=["import sys\nsys.exit(0)", THREAD, "input()", "x = bytearray(40 << 30)",
               "torch.empty(3 << 30, dtype=torch.uint8)", BIG_FILE],
    ),
    # A limit that a grader that is root and stays root cannot set without namespaces.
    "many-processes": of(problem="a limit of", extra=[MANY_PROCESSES], namespaces_only=True),
    # --- what has to be ended
    "loops": of(
        NONE, problem="cell 3: it took more than 15 s", extra=[SWALLOW],
        add=code("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
        double=doubled("while True:\n    pass"),
    ),
    "exits-hard": of(
        SECOND, problem="cell 3: the process ended by itself", extra=["import os\nos._exit(0)"],
        add=code("import ctypes\nctypes.string_at(0)"),
    ),
    "leaves-children": of(extra=[*(DETACHED.replace("ENV", e) for e in ENVIRONMENTS), STAY_BEHIND]),
    "output-flood": of(
        SECOND, problem="cell 3: it printed more", extra=["while True:\n    print('x' * 100_000)"],
        add=code("while True:\n    print('x' * 100_000)"), namespaces_only=True,
    ),
    "memory": of(problem="GiB of memory", extra=MEMORY, namespaces_only=True),
    "kills-parent": of(problem="cell 3", extra=[f"{NO_PARENT}while True:\n    pass"]),
    "kills-all": of(
        problem="cell 3", extra=[f"{NOBODY}os.kill(os.getpid(), 9)"], namespaces_only=True
    ),
    # --- what is not the learner's business
    "patched-check": cheat(PATCH_CHECK + PATCH_LIBRARIES, namespaces_only=True),
    "patched-wire": cheat(PATCH_WIRE, namespaces_only=True),
    "snoops": of(
        problem=("OSError: no hidden tests", "OSError: nobody to copy", "OSError: no grader",
                 "ConnectionRefusedError", "process 1 is out of reach"),
        extra=[READ_HIDDEN, READ_OTHERS, READ_GRADER, WRITE_OUTSIDE, CONNECT, INJECT],
        namespaces_only=True,
    ),
}  # fmt: skip
