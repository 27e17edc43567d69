"""Small crawls for tests, WARC and WET as the standard has them; what calls leave behind."""

import base64
import contextlib
import gzip
import hashlib
import json
import subprocess
import sys
import time

import psutil
import pytest

from llmcourse.base import files
from llmcourse_labs.curation import Document
from llmcourse_labs.curation.quality import Quality


def record(kind, content, *, uri="http://a.example/", digest=None, **headers):
    hashed = base64.b32encode(hashlib.sha1(content).digest()).decode()
    lines = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:00000000-0000-0000-0000-{len(content):012d}>",
        "WARC-Date": "2026-01-01T00:00:00Z",
        "WARC-Target-URI": uri,
        "WARC-Block-Digest": f"sha1:{digest or hashed}",
        **{name.replace("_", "-"): value for name, value in headers.items()},
        "Content-Length": len(content),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"WARC/1.0\r\n{head}\r\n".encode() + content + b"\r\n\r\n"


def answer(body, *, status="200 OK", kind="text/html; charset=utf-8"):
    body = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


HTTP = {"Content_Type": "application/http; msgtype=response"}


def warc(pages, *, packed=False):
    records = [record("warcinfo", b"software: none\r\n", Content_Type="application/warc-fields")]
    for page in pages:
        request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
        records.append(record("request", request, Content_Type="application/http; msgtype=request"))
        records.append(record("response", answer(page), **HTTP))
    return b"".join(gzip.compress(each) if packed else each for each in records)


def quality_of(crawl):
    labels = list(crawl.labels())
    bad = [x.main_text for x in labels if x.kind in ("machine", "ocr", "spam")]
    return Quality.train([x.main_text for x in labels if x.wanted], bad)


def left_in(out):
    paths = sorted((out / "documents").iterdir())
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [Document(**row) for row in rows]


def files_in(folder, *, but=()):
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in but]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class Killed(BaseException):
    """Stands for SIGKILL."""


def cut_short(writes, call):
    """Call something, and kill it before the write after so many."""
    left, atomically = writes, files.write_atomically

    def until_killed(path):
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        return atomically(path)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(files, "write_atomically", until_killed)
        patch.setattr("llmcourse.data.tokenizer.files.write_atomically", until_killed)
        call()


def kill_half_way(program, reached, seconds=60):
    """Kill a program of Python by SIGKILL once a file is there; its processes end with it."""
    call = subprocess.Popen([sys.executable, "-c", program])
    limit = time.monotonic() + seconds
    while not reached.exists():
        assert call.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.01)
    others = psutil.Process(call.pid).children(recursive=True)
    call.kill()
    call.wait()
    assert others
    assert not psutil.wait_procs(others, timeout=seconds)[1]
