"""Serve the book on this machine, and build it again when a file is saved.

python tools/machine/serve.py [--port 8000]

A chapter whose cells changed is executed again; the browser reloads when the pages are ready.
"""

import argparse
import socket
import subprocess
import sys
from pathlib import Path

from livereload import Server

ROOT = Path(__file__).resolve().parents[2]
BUILD = [sys.executable, "-m", "tools.build.build_book"]
WATCHED = (
    "_config.yml",
    "_toc.yml",
    "book/**/*",
    "chapters/*.ipynb",
    "llmcourse*/**/*.py",
    "llmcourse_classroom/js/*",
    "llmcourse_classroom/js/live/*",
)


def port_problem(port: int) -> str | None:
    """Return why a port cannot be had, or nothing."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return f"port {port}: {error.strerror}. Choose another: make serve PORT={port + 1}"
    return None


def build() -> None:
    """Build the book; what is wrong is printed, and the old pages stay up."""
    subprocess.run(BUILD, cwd=ROOT, check=False)


def main(arguments: list[str] | None = None) -> int:
    """Build once, then serve until interrupted; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args(arguments)
    problem = port_problem(options.port) if 0 < options.port < 65536 else "--port: 1 to 65535"
    if problem:
        print(problem, file=sys.stderr)
        return 2
    build()
    server = Server()
    for pattern in WATCHED:
        server.watch(str(ROOT / pattern), build, delay=1)
    print(f"the book is at http://127.0.0.1:{options.port}; Ctrl-C ends")
    server.serve(host="127.0.0.1", port=options.port, root=str(ROOT / "_build" / "html"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
