"""Lint the JavaScript of pages and widgets with biome, where Node and its packages can be had.

    python -m tools.check.lint_scripts

The rules are in biome.json.  Building and testing the book needs no Node; so a machine without it
is told that the scripts were not looked at, and goes on.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIOME = "@biomejs/biome@2.6.8"
FOLDERS = ("book/_static", "llmcourse_classroom/js")
SECONDS = 60
"""How long npm may take to find the package."""


def missing(npx: str | None) -> str:
    """Return what biome lacks to run here; nothing if it runs."""
    if npx is None:
        return "npx is not installed"
    command = [npx, "--yes", "--prefer-offline", BIOME, "--version"]
    try:
        found = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"npx did not find {BIOME} in {SECONDS} seconds"
    return "" if found.returncode == 0 else f"npx cannot get {BIOME}"


def main(root: Path = ROOT) -> int:
    npx = shutil.which("npx")
    lacks = missing(npx)
    if lacks:
        print(f"JavaScript: not linted, {lacks}")
        return 0
    command = [npx, "--yes", "--prefer-offline", BIOME, "lint", "--error-on-warnings", *FOLDERS]
    return subprocess.run(command, cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
