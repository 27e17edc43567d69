"""Compiles the matrix kernel of the live run: text of WebAssembly to bytes that the page carries.

python -m tools.pages.kernel          writes llmcourse_classroom/js/live/kernel_bytes.js
python -m tools.pages.kernel --check  says whether it is what live.wat gives
"""

import argparse
import base64
import re
import sys
from pathlib import Path

from wasmtime import wat2wasm

FOLDER = Path(__file__).parents[2] / "llmcourse_classroom" / "js" / "live"
TEXT, BYTES = FOLDER / "live.wat", FOLDER / "kernel_bytes.js"
LOCAL = r"(\(local\.get \$\w+\))"
MULTIPLY_ADD = re.compile(rf"\(f32x4\.add {LOCAL} \(f32x4\.mul {LOCAL} {LOCAL}\)\)")

FORM = """// Written by tools/pages/kernel.py from live.wat: its two forms, in base64.

export const SIMD = `{simd}`;

export const RELAXED_SIMD = `{relaxed}`;
"""


def relaxed(text: str) -> str:
    """Return the text with each multiplication and the addition after it as one instruction."""
    return MULTIPLY_ADD.sub(r"(f32x4.relaxed_madd \2 \3 \1)", text)


def wanted_bytes(text: str) -> str:
    """Return what kernel_bytes.js has to be."""
    forms = {"simd": text, "relaxed": relaxed(text)}
    return FORM.format(**{name: _as_text(wat2wasm(form)) for name, form in forms.items()})


def _as_text(compiled: bytes) -> str:
    """Return bytes as lines of base64; atob in a browser passes over their ends."""
    return base64.encodebytes(compiled).decode().strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is stale")
    wanted = wanted_bytes(TEXT.read_text(encoding="utf8"))
    if not parser.parse_args().check:
        BYTES.write_text(wanted, encoding="utf8")
    elif not BYTES.exists() or BYTES.read_text(encoding="utf8") != wanted:
        print(f"{BYTES.name} is not what {TEXT.name} gives: run make format")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
