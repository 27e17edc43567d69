"""Broken and hostile submissions: each costs its own score alone, and leaves nothing behind."""

import contextlib
import csv
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llmcourse_classroom.grader import alone, batch, submission
from llmcourse_labs.sandbox import sandbox
from tests.classroom import here, hostile, small_exam

LINUX = sys.platform == "linux"
KINDS = ("namespaces", "limits") if LINUX else ("limits",)
with_namespaces = pytest.mark.skipif(not LINUX, reason="namespaces are a thing of Linux")
# Many times what an honest one takes: nothing here may depend on what else the machine does.
LIMITS = ["--cell-s", "10", "--call-s", "10", "--wall-times", "1.5", "--submission-s", "300"]
LIMITS += ["--output-bytes", "4000000"]
LIMITS += ["--memory-bytes", str(2 * 2**30), "--disk-bytes", str(64 * 2**20)]


def names_for(kind):
    found = hostile.HERE if kind == "here" else hostile.SUBMISSIONS
    return [n for n, s in found.items() if kind != "limits" or not s.namespaces_only]


CASES = [(kind, name) for kind in ("here", *KINDS) for name in names_for(kind)]


@contextlib.contextmanager
def listening():
    """A server on this machine's loopback, which no submission may reach: its port, and who did."""
    heard = []

    class Heard(socketserver.BaseRequestHandler):
        def handle(self):
            heard.append(self.client_address)

    with socketserver.TCPServer(("127.0.0.1", 0), Heard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], heard
        server.shutdown()


def write(folder, place, token, port, kind):
    words = {"PRIVATE": str(place), "TOKEN": token, "PORT": str(port)}
    for name in names_for(kind):
        content = (hostile.HERE | hostile.SUBMISSIONS)[name].content
        path = folder / f"{name}.ipynb"
        if callable(content):
            content(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            for word, value in words.items():
                content = content.replace(word, value)
            path.write_text(content)


def snapshot(folder):
    return {str(p.relative_to(folder)): p.lstat().st_size for p in sorted(folder.rglob("*"))}


class Graded:
    def __init__(self, place, kind):
        self.place, self.token = place, f"token-{kind}-{os.getpid()}"
        exam = small_exam.write_exam(place / "exam")
        folder, self.out = place / "submissions", place / "out"
        folder.mkdir()
        self.error = ""
        with listening() as (port, self.heard):
            write(folder, place, self.token, port, kind)
            self.before = snapshot(place)
            self.grade(kind, exam, folder)
        self.after = {n: s for n, s in snapshot(place).items() if not n.startswith("out")}
        self.left = hostile.leftovers(self.token)

    def grade(self, kind, exam, folder):
        if kind == "here":
            self.grade_here(exam, folder)
        else:
            command = [sys.executable, "-m", "llmcourse_classroom", "grade", str(exam), str(folder)]
            command += ["--out", str(self.out), "--jobs", "2", "--isolation", kind, *LIMITS]
            done = subprocess.run(command, stderr=-1, text=True, timeout=1800, check=False)
            self.error = done.stderr if done.returncode else ""

    def grade_here(self, exam, folder):
        isolation = sandbox.Isolation("none", ("this process is all there is",))
        exam = submission.exam(exam, exam.parent / "hidden")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(submission, "Session", here.Here)
            patched.setattr(alone, "grade", submission.grade)
            batch.run(batch.Batch(exam, folder, self.out, isolation, sandbox.Limits()))

    def report(self, name):
        assert self.error == ""
        return json.loads((self.out / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def graded(tmp_path_factory, soaking):
    made = {}

    def of(kind):
        if kind == "limits" and LINUX and not soaking:
            pytest.skip("two minutes, for what comes where namespaces are missing: make soak")
        if kind not in made:
            made[kind] = Graded(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return of


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{k}-{n}" for k, n in CASES])
def test_a_submission_costs_its_own_score_alone(graded, kind, name):
    wanted = (hostile.HERE | hostile.SUBMISSIONS)[name]
    report = graded(kind).report(name)
    scores = tuple(question["score"] for question in report["questions"])
    assert scores == wanted.scores, json.dumps(report, indent=1)
    assert report["score"] == sum(wanted.scores)
    told = "; ".join(report["problems"])
    for words in [wanted.problem] if isinstance(wanted.problem, str) else wanted.problem:
        assert words in told, (told, report["printed"])


def test_a_question_that_was_ended_says_so_and_what_is_no_data_is_told(graded):
    said = [q["checks"][0]["meaning"] for q in graded(KINDS[-1]).report("loops")["questions"]]
    assert said[0] == "it took more than 15 s and was stopped"
    # Which of its two limits a loop reaches first is up to the other programs.
    assert said[1] in (said[0], "it took more than 10 s of processor time and was stopped")
    question, _ = graded("here").report("tensor-without-data")["questions"]
    assert "your function returned what is no data" in question["checks"][0]["meaning"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_behind(graded, kind):
    batch = graded(kind)
    assert batch.left == []
    assert batch.after == {n: s for n, s in batch.before.items() if not n.startswith("out")}


def test_the_server_hears_whoever_reaches_it():
    with listening() as (port, heard), socket.create_connection(("127.0.0.1", port)) as client:
        assert client.recv(1) == b""  # it has answered, by hanging up
    assert len(heard) == 1


@with_namespaces
def test_nobody_was_reached_on_the_loopback_and_nothing_was_written_elsewhere(graded):
    assert graded("namespaces").heard == []
    batch = graded("namespaces")
    for folder in (Path("/etc"), Path("/usr/lib"), Path(os.__file__).parent):
        assert not (folder / batch.token).exists()


@pytest.mark.parametrize("kind", ["here", *KINDS])
def test_the_table_has_a_row_for_each_and_no_formula(graded, kind):
    with (graded(kind).out / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(names_for(kind))
    assert not [cell for row in rows for cell in row.values() if cell[:1] in ("=", "+", "-", "@")]


def test_the_page_escapes_what_submissions_say(graded):
    page = (graded("here").out / "index.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "\x1b" not in page


@with_namespaces
def test_the_report_says_what_is_not_enforced(graded):
    assert graded("namespaces").report("honest")["isolation"]["missing"] == []
    missing = graded("limits").report("honest")["isolation"]["missing"]
    for word in ("network", "processor time", "shared memory"):
        assert any(word in sentence for sentence in missing), word
    page = (graded("limits").out / "index.html").read_text()
    assert all(sentence in page for sentence in missing if "'" not in sentence)
