"""A process for one submission, shut off from everything else as far as the system allows.

With bubblewrap (Linux) the process has its own file tree, process list, network with a loopback,
and home: it sees Python, the packages and nothing of other submissions or of the hidden tests, and
when it ends, everything that it started ends with it.  Without bubblewrap there are limits, a
process group and a search for leftovers; `Isolation.missing` says what is then not enforced.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

import llmcourse
from llmcourse.base.arguments import require_each

HOME = "/home/learner"
FOLDERS = ("/tmp", "/dev/shm", HOME)
"""File systems in memory: what a learner's process may write to, in namespaces."""
FIRST_UID = 61_000
"""User ids for the learners' processes when the grader is root: one for each submission."""
MOST_UIDS = 4_000
LOCKS = Path("/run" if Path("/run").is_dir() else "/var/run") / "llmcourse-users"
"""A file for each of these ids, locked by the grader that uses it."""
MARK = "LLMCOURSE_SUBMISSION"
SYSTEM_FILES = ("ld.so.cache", "localtime", "passwd", "group", "nsswitch.conf", "hosts", "fonts")
AS_ANOTHER = (
    f"import os; os.setgroups([]); os.setresgid(*[{FIRST_UID}] * 3); "
    f"os.setresuid(*[{FIRST_UID}] * 3); import logging.config; "
)
"""A process that has become another user must still be able to read all of Python."""
PROBE_REFUSAL = "from llmcourse_labs.sandbox import syscalls; syscalls.refuse()"
PROBE_S = 120
MISSING_REFUSAL = "memory outside processes is not limited, as no system call can be refused"
MISSING_PLAIN = (
    "other submissions and hidden tests can be read wherever the file system lets this user",
    "files can be written wherever the file system lets this user",
    "the network can be reached",
    "the space on disk is limited for each file alone",
    "a process that hides its origin can outlive its submission until the batch ends",
    "processor time can be taken from other submissions",
    "shared memory and files can be left behind",
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one submission may use."""

    submission_s: float = 600.0
    """Wall time of a submission, all its cells and calls together."""
    cell_s: float = 30.0
    """Processor time of one cell, all its processes together."""
    call_s: float = 30.0
    """Processor time of one call of an answer by a hidden test, all its processes together."""
    wall_times: float = 4.0
    """Wall time of a cell or a call, as a multiple of its processor time."""
    memory_bytes: int = 6 * 2**30
    """Memory of all its processes together, and address space of each."""
    disk_bytes: int = 256 * 2**20
    """Size of one file; of its home, its temporary folder and its shared memory together."""
    processes: int = 64
    """Processes and threads."""
    output_bytes: int = 32 * 2**20
    """What it may print."""
    answer_bytes: int = 8 * 2**20
    """Length of one returned value, as JSON."""
    tests_s: float = 60.0
    """Processor time of the hidden tests of one question."""
    tests_bytes: int = 2 * 2**30
    """Memory of the hidden tests."""

    def __post_init__(self) -> None:
        require_each(vars(self), above=0)


@dataclass(frozen=True)
class Isolation:
    """How submissions are kept apart on this machine."""

    kind: str
    """namespaces, or process limits only."""
    missing: tuple[str, ...]
    """What is not enforced, a sentence each."""
    bubblewrap: str = ""
    """Path of the program, or nothing."""
    drop_user: bool = False
    """Whether each submission runs under a user id of its own, which takes root."""


@dataclass(frozen=True)
class Place:
    """Where one submission runs."""

    isolation: Isolation
    limits: Limits
    private: tuple[Path, ...] = ()
    """Folders that it must not see."""
    number: int = 0
    """Of the submission, from 0: where the search for a user of its own begins."""
    uid: int = 0
    """The user id that the process gets (`reserved`), or 0 if it keeps that of the grader."""
    cores: tuple[int, ...] = ()
    """The processor's cores that it may use, or none for all."""
    mark: str = ""
    """Tells its processes from those of others."""
    folder: Path | None = None
    """Where its home is made, if that is on disk."""


@contextlib.contextmanager
def reserved(place: Place) -> Iterator[Place]:
    """Give a submission a user of its own: nobody else of this machine's graders has it meanwhile.

    A lock that ends with this process stands for the user; only root comes here.
    """
    if not place.isolation.drop_user:
        yield place
        return
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    for n in range(MOST_UIDS):
        uid = FIRST_UID + (place.number + n) % MOST_UIDS
        with (LOCKS / str(uid)).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield replace(place, uid=uid)
            return
    raise OSError(f"all {MOST_UIDS:,} user ids from {FIRST_UID} are in use by graders")


def detect(
    private: Sequence[Path],
    *,
    worker: str,
    wanted: str = "auto",
    needs: Sequence[str] = ("IPython", "torch"),
) -> Isolation:
    """Find out what this system can enforce, by trying it.

    Args:
        private: folders that a submission must not see.
        worker: the module that is going to run there.
        wanted: auto, namespaces or limits.
        needs: packages that must be readable there, too.

    Raises:
        ValueError: if namespaces are wanted and not to be had.
    """
    root, probe = os.getuid() == 0, f"import {', '.join([worker, *needs])}"
    program = shutil.which("bwrap") or ""
    why = "bubblewrap is not installed (Debian: apt-get install bubblewrap)"
    if program and wanted != "limits":
        isolation = Isolation("namespaces", (), program, root)
        place = Place(isolation, Limits(), tuple(private), uid=FIRST_UID if root else 0)
        why = _probe(_command(place, [sys.executable, "-c", probe]))
        if not why:
            return replace(isolation, missing=_unrefused(place))
    if wanted == "namespaces":
        raise ValueError(f"namespaces were asked for and cannot be had: {why}")
    if wanted == "limits":
        why = "only limits were asked for"
    drop = root and not _probe([sys.executable, "-c", AS_ANOTHER + probe])
    missing = [f"no namespaces: {why}", *MISSING_PLAIN, *_unrefused()]
    if not drop:
        missing.append("processes of this user can be killed, the grader itself included")
    if root and not drop:
        missing.append("it runs as root: another user cannot read this Python")
    if sys.platform != "linux":
        missing.append("memory is watched, not limited")
    return Isolation("limits", tuple(missing), "", drop)


def _unrefused(place: Place | None = None) -> tuple[str, ...]:
    """Return what to say if no system call can be refused: nothing, or a sentence."""
    arguments = [sys.executable, "-c", PROBE_REFUSAL]
    why = sys.platform == "linux" and _probe(_command(place, arguments) if place else arguments)
    return (f"{MISSING_REFUSAL}: {why}",) if why else ()


def _probe(arguments: list[str]) -> str:
    """Return why a command fails, or nothing."""
    try:
        done = subprocess.run(
            arguments, capture_output=True, timeout=PROBE_S, check=False, text=True,
            env=_environment(""), cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    said = done.stderr.strip().split("\n")[-1][:200]
    return "" if done.returncode == 0 else said or f"it ended with {done.returncode}"


def _environment(mark: str) -> dict[str, str]:
    """Return the environment of a learner's process: nothing of the grader's own."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(llmcourse.__file__).parents[1]), "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "HOME": HOME, "TMPDIR": "/tmp", "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "agg",
        "LLMCOURSE_PROGRESS": "off", MARK: mark,
    }  # fmt: skip


def _visible_folders() -> list[Path]:
    """Return what a learner's process needs to read: Python, its packages, those of the course."""
    found = {Path(sys.prefix), Path(sys.base_prefix)}
    found |= set(Path(llmcourse.__file__).parents[1].glob("llmcourse*/"))
    found |= {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    found |= {Path(sys.executable).resolve().parents[1]}
    found |= {path.resolve() for path in found}
    found = {path for path in found if not path.is_relative_to("/usr")}
    return sorted(p for p in found if not any(p != o and p.is_relative_to(o) for o in found))


def _command(place: Place, arguments: list[str]) -> list[str]:
    """Return what runs a command in a file tree, process list and network of its own."""
    size = str(place.limits.disk_bytes // 3)
    folders = _visible_folders()
    words = [place.isolation.bubblewrap, "--die-with-parent", "--new-session", "--unshare-pid"]
    words += ["--as-pid-1"]  # the worker's guard, which nothing in there can write into
    words += ["--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--hostname", "learner", "--cap-drop", "ALL"]
    words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if place.uid else []
    words += ["--ro-bind", "/usr", "/usr"]
    for link in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64")):
        if link.is_symlink():
            words += ["--symlink", str(link.readlink()), str(link)]
        elif link.exists():
            words += ["--ro-bind", str(link), str(link)]
    for name in SYSTEM_FILES:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    # It reads as zeros as well, and cannot be mapped: memory that processes share without a size.
    words += ["--dev-bind", "/dev/full", "/dev/zero"]
    for name in FOLDERS:
        words += ["--perms", "1777", "--size", size, "--tmpfs", name]
    # Without this, the folders above would be closed to the user that the process becomes.
    for above in sorted({p for folder in folders for p in folder.parents} - {Path("/")}):
        words += ["--perms", "0755", "--dir", str(above)]
    for folder in folders:
        words += ["--ro-bind", str(folder), str(folder)]
    for path in sorted({p.resolve() for p in place.private}):
        if any(path.is_relative_to(folder) for folder in (*folders, Path("/usr"))):
            words += ["--tmpfs", str(path)]
    # For an ordinary user, what lies between the folders above could be written otherwise.
    words += ["--remount-ro", "/dev", "--remount-ro", "/"]
    return [*words, "--chdir", HOME, "--", *arguments]


def _processes(limits: Limits, uid: int) -> int:
    """Return the limit of processes: the system counts all those of the user."""
    if uid:
        return limits.processes
    all_of_them = psutil.process_iter(["uids", "num_threads"])
    mine = [p.info for p in all_of_them if p.info["uids"] and p.info["uids"].real == os.getuid()]
    return limits.processes + sum(info["num_threads"] or 1 for info in mine)


def start(place: Place, mark: str, worker: str) -> tuple[subprocess.Popen, Path | None]:
    """Start the learner's process of one submission.

    Args:
        place: where.
        mark: tells its processes from those of others.
        worker: the module that runs there.

    Returns:
        The process, and the folder that is its home, to be removed, if there is one on disk.
    """
    limits, uid = place.limits, place.uid
    words = [sys.executable, "-m", worker, f"--uid={uid}"]
    words += [f"--cpu_s={int(limits.submission_s) + 1}", f"--file_bytes={limits.disk_bytes}"]
    words += [f"--processes={_processes(limits, uid)}", f"--memory_bytes={limits.memory_bytes}"]
    env, home = _environment(mark), None
    if place.isolation.kind == "namespaces":
        arguments = _command(place, words)
    else:
        arguments = words
        home = Path(tempfile.mkdtemp(prefix="llmcourse-learner-", dir=place.folder))
        if uid:
            os.chown(home, uid, uid)
        env |= {"HOME": str(home), "TMPDIR": str(home)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=home or "/",
        start_new_session=True,
    )  # fmt: skip
    return process, home
