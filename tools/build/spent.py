"""What a whole run costs, in seconds of processors: set-up, style, notebooks, pages, tests.

    python tools/build/spent.py -- make test ALL=1     run it, and print the table at its end
    python tools/build/spent.py style -- ruff check    inside of that: note what a command costs

Stages and test files add lines to the file that SPENT names; without it, nothing is noted.  Seconds
of a processor are those of a process and of all that it started.  They depend a good deal on the
machine, and by a tenth or two on what else it does.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FILE = "SPENT"
KEPT = Path(__file__).resolve().parents[2] / "_build" / "spent.jsonl"
DEAREST = 25


def note(family: str, name: str, cpu_s: float, wall_s: float) -> None:
    """Add a line, if a file for it is named."""
    if path := os.environ.get(FILE):
        line = json.dumps([family, name, round(cpu_s, 2), round(wall_s, 2)])
        with Path(path).open("a", encoding="utf8") as file:  # short lines arrive whole
            file.write(f"{line}\n")


def used_s() -> float:
    """Return what this process has used, and those of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(each.ru_utime + each.ru_stime for each in map(resource.getrusage, whose))


@contextlib.contextmanager
def noted(family: str, name: str = "") -> Iterator[None]:
    """Note what is spent inside."""
    cpu_s, wall_s = used_s(), time.monotonic()
    try:
        yield
    finally:
        note(family, name or family, used_s() - cpu_s, time.monotonic() - wall_s)


def family_used_s() -> float:
    """Return what this process and all that it started has used, the running ones included."""
    import psutil  # noqa: PLC0415 - the set-up notes its cost before this is installed

    own = psutil.Process()
    found = 0.0
    for each in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            found += sum(each.cpu_times()[:4])
    return found


def family_of(file: str) -> str:
    """Return the family of a test file: its folder, of the laboratories the room."""
    if "/" not in file:
        return "tests: collection"
    parts = file.split("/")
    return "/".join(parts[: 3 if parts[1] == "labs" else 2])


class TestFiles:
    """Follows the test files of one process."""

    def __init__(self) -> None:
        self.file = "collection"
        self.begun = (0.0, 0.0, time.monotonic())

    def end_of_file(self, following: str) -> None:
        """Note the file that has ended."""
        now = (family_used_s(), time.process_time(), time.monotonic())
        folder = family_of(self.file)
        family_s, own_s, wall_s = (a - b for a, b in zip(now, self.begun, strict=True))
        # Who ends without being waited for, such as the server of ranks, takes its seconds along;
        # those of a browser, which is waited for at the end, were noted while it ran.
        note(folder, self.file, max(family_s, own_s), wall_s)
        self.file, self.begun = following, now

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Notice the first test of a file."""
        if (file := nodeid.partition("::")[0]) != self.file:
            self.end_of_file(file)

    def pytest_sessionfinish(self) -> None:
        """Note the last file."""
        self.end_of_file("")


def pytest_configure(config) -> None:
    """Follow the files of a process that runs tests itself."""
    distributes = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if os.environ.get(FILE) and not distributes:
        config.pluginmanager.register(TestFiles(), "spent-files")


def table(lines: list[str], all_s: float) -> str:
    """Return the families by their cost, the rest of all seconds, and the dearest files.

    What has no family, a notebook's kernel, is part of something that has one.
    """
    families, names = defaultdict(float), defaultdict(float)
    for family, name, cpu_s, _ in map(json.loads, lines):
        names[name] += cpu_s
        if family:
            families[family] += cpu_s
    known_s = sum(families.values())  # with those of processes that nobody has waited for
    families["the rest"] = max(0.0, all_s - known_s)
    said = [f"{max(all_s, known_s):8.0f}  seconds of processors, of these"]
    said += [f"{s:8.0f}  {name}" for name, s in sorted(families.items(), key=lambda x: -x[1])]
    dearest = sorted(names.items(), key=lambda x: -x[1])[:DEAREST]
    said += ["          the dearest", *(f"{s:8.0f}  {name}" for name, s in dearest)]
    return "\n".join(said)


def main(arguments: list[str]) -> int:
    """Run a command, and note what it costs, or print what each part of it cost."""
    *family, _ = arguments[: arguments.index("--") + 1]
    command = arguments[arguments.index("--") + 1 :]
    if family:
        with noted(family[0], " ".join(command)[:60]):
            return subprocess.run(command, check=False).returncode
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text("")
    code = subprocess.run(command, check=False, env=os.environ | {FILE: str(KEPT)}).returncode
    print(table(KEPT.read_text(encoding="utf8").splitlines(), used_s()), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
