"""Small crawls for tests: WARC and WET as the standard has them."""

import base64
import gzip
import hashlib


def record(kind, content, *, uri="http://a.example/", digest=None, **headers):
    """One record of a WARC file."""
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
    """What a server sends."""
    body = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


HTTP = {"Content_Type": "application/http; msgtype=response"}


def warc(pages, *, packed=False):
    """A crawl: of each page the request and the answer, each record packed by itself."""
    records = [record("warcinfo", b"software: none\r\n", Content_Type="application/warc-fields")]
    for page in pages:
        request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
        records.append(record("request", request, Content_Type="application/http; msgtype=request"))
        records.append(record("response", answer(page), **HTTP))
    return b"".join(gzip.compress(each) if packed else each for each in records)
