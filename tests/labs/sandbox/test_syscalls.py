"""Memory outside processes: each way to it works on this system, and a learner's process has none.

Each attack ends with an OSError where it is refused.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time

import psutil
import pytest

from llmcourse_classroom.grader import session
from llmcourse_labs.sandbox import sandbox, syscalls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its calls are those of Linux")

LIBC = """
import array, ctypes, errno, mmap, os, socket, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def must(returned):
    if returned == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
SHARED = """
with mmap.mmap(FILE, 8 << 20) as shared:
    shared.write(bytes(8 << 20))
    shared.madvise(mmap.MADV_DONTNEED)  # from now on nothing of it is in a process
"""
ATTACKS = {
    "user namespace": "must(libc.unshare(0x10000000))",
    "user namespace of a child": """
child = libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
must(child)
os.waitpid(child, 0)
""",
    "System V memory": "must(libc.shmget(0, 8 << 20, 0o1600))",
    "System V messages": "must(libc.msgget(0, 0o1600))",
    "System V semaphores": "must(libc.semget(0, 1, 0o1600))",
    "memory file in a socket": """
here, there = socket.socketpair()
file = os.memfd_create("held")
os.write(file, bytes(8 << 20))
socket.send_fds(here, [b"x"], [file])
os.close(file)
""",
    "shared memory": SHARED.replace("FILE", "-1"),
    "pages in a pipe": """
pages, ends = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE), os.pipe()
vector = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.c_char.from_buffer(pages)), 1)
must(libc.vmsplice(ends[1], vector, 1, 0))
""",
    "access list": """
with tempfile.NamedTemporaryFile() as file:
    entries = ((1, 6, 0xFFFFFFFF), (2, 6, 1234), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF),
               (32, 4, 0xFFFFFFFF))
    packed = b"".join(t.to_bytes(2, "little") + p.to_bytes(2, "little") + i.to_bytes(4, "little")
                      for t, p, i in entries)
    os.setxattr(file.name, "system.posix_acl_access", b"\\2\\0\\0\\0" + packed)
""",
    "out of sight": "must(libc.prctl(4, 0, 0, 0, 0))",
}
NOT_EVERYWHERE = ("user namespace", "access list")
"""What some systems refuse to anybody."""
DEV_ZERO = SHARED.replace("FILE", 'os.open("/dev/zero", os.O_RDWR)')
HONEST = {
    "threads and processes": """
import multiprocessing, subprocess, sys, threading
threads = [threading.Thread(target=print) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True).stdout == b"7\\n"
assert subprocess.run("echo 8 | cat", shell=True, capture_output=True).stdout == b"8\\n"
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
counter = multiprocessing.Value("i", 3)
assert counter.value == 3
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=4096)
block.close()
block.unlink()
""",
    "a loader with workers": """
import torch
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2)
assert sum(float(x.sum()) for (x,) in loader) == 28.0
assert torch.ones(100).share_memory_().is_shared()
""",
    "figures and files": """
import io, pathlib, shutil, tempfile
import matplotlib.pyplot as plt
import numpy as np
plt.plot(np.arange(3))
plt.savefig(io.BytesIO(), format="png")
with tempfile.TemporaryDirectory() as folder:
    np.save(folder + "/x.npy", np.ones(1000))
    shutil.copy2(folder + "/x.npy", folder + "/y.npy")
    assert np.load(folder + "/y.npy", mmap_mode="r").sum() == 1000
assert open("/dev/zero", "rb").read(3) == bytes(3)
""",
}


def run(source):
    """Run a text of Python; return the last line that it says, or nothing."""
    command = [sys.executable, "-c", LIBC + source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().split("\n")[-1]


@contextlib.contextmanager
def learner_of(kind):
    """A learner's process, with a user of its own where it has namespaces."""
    apart = (shutil.which("bwrap"), os.getuid() == 0) if kind == "namespaces" else ()
    isolated = sandbox.Place(sandbox.Isolation(kind, (), *apart), sandbox.Limits())
    deadline = time.monotonic() + 300
    with sandbox.reserved(isolated) as place, session.Session(place, deadline=deadline) as learner:
        yield learner


REFUSE = "from llmcourse_labs.sandbox import syscalls\nsyscalls.refuse()\n"


@pytest.mark.parametrize("name", ATTACKS)
def test_what_works_is_refused_for_good(name):
    if not name.startswith(NOT_EVERYWHERE):
        assert run(ATTACKS[name]) == ""
    assert "Error: [Errno " in run(REFUSE + ATTACKS[name])
    command = [sys.executable, "-c", LIBC + ATTACKS[name]]
    in_a_child = f"import subprocess\nsubprocess.run({command!r}, check=True)"
    assert "CalledProcessError" in run(REFUSE + in_a_child)


@pytest.mark.parametrize("kind", ["namespaces", "limits"])
def test_a_learners_process_holds_no_memory_outside_and_does_all_else(kind):
    with learner_of(kind) as learner:
        assert learner.run_cell(LIBC) == ""
        attacks = ATTACKS | ({"zeros": DEV_ZERO} if kind == "namespaces" else {})
        for name, source in attacks.items():
            assert "Error: [Errno " in learner.run_cell(source), name
        for name, source in HONEST.items():
            assert learner.run_cell(source) == "", name


def test_empty_files_in_memory_are_counted(monkeypatch):
    monkeypatch.setattr(session, "INODE_BYTES", 1 << 20)
    with learner_of("namespaces") as learner:
        make = "import os\nfor n in range(COUNT):\n    os.mkdir(f'FOLDER/{n}')"
        few = make.replace("COUNT", "100")
        for folder in sandbox.FOLDERS:
            assert learner.run_cell(few.replace("FOLDER", folder)) == ""
        with pytest.raises(session.EndedError, match="than 6 GiB of memory, with") as ended:
            learner.run_cell(make.replace("COUNT", "6500").replace("FOLDER", "/tmp/0"))
        # Its own memory counts, too: as much as was resident when the limit was reached.
        (files,) = re.findall(r"with ([\d,]+) files", str(ended.value))
        assert 5_000 < int(files.replace(",", "")) < 7_000


THREAD_ALONE = """
import ctypes, threading, time
def hold():
    held = b"x" * (100 << 20)
    print(flush=True)
    time.sleep(600)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60 if __import__("os").uname().machine == "x86_64" else 93, 0)
"""
"""A process whose first thread ends alone."""


def test_what_a_thread_holds_is_seen_when_the_first_has_ended():
    command = [sys.executable, "-I", "-S", "-c", THREAD_ALONE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.read(1)
            assert session._held_bytes(psutil.Process(process.pid)) > 100 << 20
        finally:
            process.kill()


def test_a_system_that_cannot_refuse_is_told_of(monkeypatch):
    assert sandbox._unrefused() == ()
    monkeypatch.setattr(sandbox, "PROBE_REFUSAL", "raise OSError('no libseccomp.so.2')")
    for kind in ("namespaces", "limits"):
        missing = sandbox.detect([], worker=session.WORKER, wanted=kind).missing
        (said,) = [each for each in missing if "no libseccomp" in each]
        assert said.startswith(sandbox.MISSING_REFUSAL)
    monkeypatch.setattr(syscalls, "LIBRARY", "libno.so.0")
    with pytest.raises(OSError, match=r"libno\.so\.0"):
        syscalls.refuse()
