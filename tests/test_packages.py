"""The package stays small and by itself: what it holds, and what a run of it loads."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "llmcourse"
MOST_LINES, MOST_CODE = 24_000, 14_000
MOST_OF_PARALLEL = 12
"""Modules that a run in one process may load: it splits nothing."""

RUN = """
import sys
from llmcourse.train import __main__ as command
assert command.main(["--preset", "tiny", "--steps", "5", "--out", sys.argv[1]]) == 0
print("loaded", *sorted(name for name in sys.modules if name.startswith("llmcourse")))
"""


def code_lines(text):
    said = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said |= set(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(bool(s := line.strip()) and s[0] != "#" and n not in said for n, line in lines)


def test_the_package_is_small_and_nothing_but_python():
    files = [p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert {p.name for p in files if p.suffix != ".py"} == {"py.typed"}
    texts = [p.read_text(encoding="utf8") for p in files if p.suffix == ".py"]
    assert 15_000 < sum(len(text.splitlines()) for text in texts) <= MOST_LINES
    assert 8_000 < sum(map(code_lines, texts)) <= MOST_CODE


def test_a_run_in_one_process_loads_the_package_alone(tmp_path):
    """Mutants: an import of the laboratories in `train`, of ranks or layouts at its head."""
    words = [sys.executable, "-c", RUN, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    loaded = done.stdout.rpartition("loaded ")[2].split()
    assert "llmcourse.train.loop" in loaded
    assert [name for name in loaded if name.partition(".")[0] != "llmcourse"] == []
    of_parallel = [name for name in loaded if name.startswith("llmcourse.parallel")]
    assert 1 < len(of_parallel) <= MOST_OF_PARALLEL
