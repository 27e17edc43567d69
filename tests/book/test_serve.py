"""make serve shows the book; a port in use or a folder that cannot be written gives one line."""

import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tools.build import build_book
from tools.machine import serve

DEADLINE_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_book_is_served_and_reloads():
    port = free_port()
    command = [sys.executable, "tools/machine/serve.py", "--port", str(port)]
    process = subprocess.Popen(command, cwd=build_book.ROOT, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/book/intro.html"
    try:
        page = fetched(address, process)
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_S)
    assert "How training a large language model works" in page
    assert "livereload.js" in page


def fetched(address, process):
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(address) as answer:
                return answer.read().decode("utf8")
        except OSError:
            assert process.poll() is None, "the server stopped"
            assert time.monotonic() < end, "the server did not answer"
            time.sleep(0.2)


def test_a_port_in_use_gives_one_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert serve.main(["--port", str(port)]) == 2
    said = capsys.readouterr().err.strip()
    assert f"port {port}" in said
    assert "make serve PORT=" in said
    assert "\n" not in said


@pytest.mark.parametrize("port", ["0", "70000"])
def test_an_impossible_port_gives_one_line(capsys, port):
    assert serve.main(["--port", port]) == 2
    assert capsys.readouterr().err == "--port: 1 to 65535\n"


def test_a_folder_that_cannot_be_written_gives_one_line_and_every_watched_pattern_finds_files(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(build_book, "BUILD", tmp_path / "file" / "_build")
    assert build_book.main([]) == 2
    said = capsys.readouterr().err.strip()
    assert "cannot be written" in said
    assert "\n" not in said
    for pattern in serve.WATCHED:
        assert list(build_book.ROOT.glob(pattern)), pattern
