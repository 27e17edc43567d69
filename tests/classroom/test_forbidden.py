"""Functions of the package that an instructor forbids: cells may not call them, the package may."""

import subprocess
import sys
from contextlib import nullcontext

import pytest

from llmcourse_classroom import __main__ as command_line
from llmcourse_classroom.grader import alone, forbidden
from tests.classroom import small_exam

CELLS = """
from llmcourse_classroom.grader import forbidden
from llmcourse.loss import units
from llmcourse import loss

forbidden.forbid(["llmcourse.loss.units.bits_per_byte", "llmcourse.model.config.ModelConfig"])


def tried(source):
    try:
        exec(compile(source, "<cell 1>", "exec"), {})
    except forbidden.ForbiddenError as error:
        return str(error).split()[0]
    return "called"


call = "bits_per_byte(1.0, num_tokens=2, num_bytes=3)"
print(tried(f"from llmcourse.loss.units import bits_per_byte\\n{call}"))
print(tried(f"from llmcourse.loss import bits_per_byte\\n{call}"))
print(tried(f"from llmcourse import loss\\nlist(map(lambda _: loss.{call}, [1]))"))
print(tried("from llmcourse.model import ModelConfig\\nModelConfig()"))
print(tried("from llmcourse.model.config import ModelConfig\\nisinstance(1, ModelConfig)"))
print("outside", units.bits_per_byte(1.0, num_tokens=2, num_bytes=2) > 0)
"""


def test_cells_may_not_call_what_is_forbidden_and_the_package_may():
    command = [sys.executable, "-c", CELLS]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    function, kind = "llmcourse.loss.units.bits_per_byte", "llmcourse.model.config.ModelConfig"
    assert said[:6] == [function, function, function, kind, "called", "outside True"]


@pytest.mark.parametrize("name", ["os.remove", "llmcourse.loss.no", "x", "llmcourse.loss.FORMAT"])
def test_only_functions_of_the_package_are_forbidden(name, tmp_path, capsys, monkeypatch):
    with pytest.raises(ValueError, match="--forbid takes functions such as"):
        forbidden.checked_names([name])
    monkeypatch.setattr(alone, "adopted_orphans", nullcontext)  # this process keeps its children
    exam = small_exam.write_exam(tmp_path / "exam")
    words = ["grade", str(exam), str(tmp_path), "--out", str(tmp_path / "out"), "--forbid", name]
    assert command_line.main(words) == 2
    assert "--forbid takes" in capsys.readouterr().err
