"""Start kernels as copies of a process that has imported torch, matplotlib and what else many use.

`launch` stands in for jupyter_client's `launch_kernel`: a fork of the warm process, in a group of
its own, that then is an ordinary kernel.  It has no variable, file or module of an earlier
notebook.  On Linux alone; elsewhere a fork of a process with libraries loaded is not safe.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client import launcher

ROOT = Path(__file__).resolve().parents[2]
LOST = -signal.SIGKILL
INLINE = "module://matplotlib_inline.backend_inline"  # which asks for a kernel when it is imported
NEEDED = ("ipykernel_launcher", "ipykernel.kernelapp", "ipykernel.ipkernel", "torch")
USED = (
    "torch.distributed",
    "torch.utils.flop_counter",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_svg",
    "IPython.core.pylabtools",
    "anywidget",
    "jaxtyping",
    "jsonargparse",
    "regex",
    "safetensors.torch",
    "simpy",
)
"""What most notebooks import, or the package does, by other people; none of the course's own."""


class WarmProcess:
    """The process that has torch, and has done nothing with it."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.build.warm_kernel"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.end)

    def ask(self, **question: object) -> int | None:
        """Return the answer to a question, or that of a killed process when there is none."""
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())
        except (OSError, json.JSONDecodeError):
            return LOST

    def end(self) -> None:
        """End it; its kernels notice and end, too."""
        self._process.stdin.close()
        self._process.wait()


@functools.cache
def warm_process() -> WarmProcess:
    """Return the one warm process of this process."""
    return WarmProcess()


class Kernel:
    """A kernel that was forked off, with what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        if self.returncode is None:
            self.returncode = warm_process().ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("kernel", timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def launch(cmd: list[str], *, env: Mapping[str, str] | None = None, **settings: Any) -> Any:
    """Start a kernel: by a fork where that is safe, else as jupyter_client does."""
    env = dict(os.environ if env is None else env)
    if sys.platform != "linux" or cmd[1:3] != ["-m", "ipykernel_launcher"]:
        return launcher.launch_kernel(cmd, env=env, **settings)
    pid = warm_process().ask(arguments=cmd[3:], env=env, cwd=settings.get("cwd"))
    if pid is None or pid <= 0:
        raise RuntimeError("Kernel died before replying to kernel_info: there is no warm process")
    return Kernel(pid)


def _state_of(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return LOST
    return os.waitstatus_to_exitcode(status) if ended else None


def _serve() -> dict[str, Any]:
    """Fork for each request and answer about those forked; return the request in the child."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    while line := os.read(0, 1 << 20):
        while not line.endswith(b"\n"):
            line += os.read(0, 1 << 20)
        question = json.loads(line)
        if "poll" in question:
            answer = _state_of(question["poll"])
        else:
            answer = os.fork()
            os.setpgid(answer, answer)  # by both, so that neither goes on before it is true
            if answer == 0:
                os.close(answers.fileno())
                return question
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


def _become_kernel(arguments: list[str], env: Mapping[str, str], cwd: str | None) -> None:
    """Be what `python -m ipykernel_launcher` would be, but warm."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.environ.clear()
    os.environ.update(env)
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    os.chdir(cwd or ".")
    sys.path.remove(str(ROOT))
    sys.argv = [sys.modules["ipykernel_launcher"].__file__, *arguments]
    sys.modules["ipykernel.kernelapp"].launch_new_instance()


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = INLINE
    for name in NEEDED:
        importlib.import_module(name)
    for name in USED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # a copy that counts nothing of it copies none of its pages
    _become_kernel(**_serve())
