"""A pickle with deep containers ends no process: it is refused before anything is made of it."""

import hashlib
import io
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch

from llmcourse.checkpoint import payload_file


def nested(depth, *, beside=False):
    """A pickle of a dictionary whose key is a tuple in a tuple ..., with a number beside each."""
    one = b"K\x01" if beside else b""
    close = b"\x86" if beside else b"\x85"
    return b"\x80\x02})" + (one + close) * depth + b"K\x01s."


def payload_with(raw, path):
    out = io.BytesIO()
    torch.save({"a": torch.ones(2)}, out)
    changed = io.BytesIO()
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            content = raw if entry.filename.endswith("data.pkl") else old.read(entry)
            new.writestr(entry.filename, content)
    _write(path, changed.getvalue())


def _write(path, content):
    with path.open("wb") as file:
        payload_file.write_payload(file, {"a": 1})
    sha = hashlib.sha256(hashlib.sha256(content).digest()).digest()
    path.write_bytes(payload_file.LAYOUT.pack(b"LLMCHKPT", 2, len(content), sha) + content)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("depth", [payload_file.DEEPEST + 5, 1_000_000])
def test_a_deep_key_is_refused(depth, beside, tmp_path):
    raw = nested(depth, beside=beside)
    with pytest.raises(ValueError, match="containers inside each other"):
        payload_file.require_shallow(raw)
    payload_with(raw, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="containers inside each other"):
        payload_file.read_payload(tmp_path / "a.ckpt")


def test_it_would_end_the_process_and_a_bare_pickle_is_no_checkpoint(tmp_path):
    """Else the check would be for nothing; torch's own reader is as easily ended."""
    program = f"import pickle; pickle.loads({nested(3)!r}.replace(b'\\x85', b'\\x85' * 3_000_000))"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode != 0
    _write(tmp_path / "a.ckpt", nested(100_000))
    with pytest.raises(ValueError, match=r"not the archive that torch.save writes"):
        payload_file.read_payload(tmp_path / "a.ckpt")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_depths_are_counted_whatever_the_protocol(protocol):
    def deep(depth, around):
        found = 1
        for _ in range(depth):
            found = around(found)
        return pickle.dumps({"a": found, "wide": list(range(1_000))}, protocol)

    for around in (lambda x: (x,), lambda x: (1, x), lambda x: [1, x], lambda x: {"a": x}):
        payload_file.require_shallow(deep(payload_file.DEEPEST - 2, around))
        with pytest.raises(ValueError, match="containers inside each other"):
            payload_file.require_shallow(deep(payload_file.DEEPEST + 2, around))
    shallow = {"state": {n: {"step": n, "shape": (n, (2, 3))} for n in range(500)}}
    payload_file.require_shallow(pickle.dumps([shallow, shallow], protocol))
