"""base.command_line: how the work of a command ends."""

from concurrent.futures.process import BrokenProcessPool
from unittest.mock import Mock

import pytest

from llmcourse.base.command_line import ended


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ValueError("steps must be above 0,\n  got 0"), 2, "x: steps must be above 0, got 0\n"),
        (FileNotFoundError(2, "No such file", "a.txt"), 2, "x: No such file: a.txt\n"),
        (KeyboardInterrupt(), 130, "x: interrupted\n"),
        (MemoryError(), 2, "x: there is not enough memory\n"),
        (BrokenProcessPool(), 2, "x: a process was ended, perhaps for want of memory\n"),
    ],
)
def test_an_error_is_one_line_and_a_status(error, status, said, capsys):
    """Mutants: 0 after an error; Ctrl-C is an error."""
    assert ended("x", Mock(side_effect=error)) == status
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OSError(28, "No space", "a.txt"), 2, "No space: a.txt; mend that, and it goes on"),
        (KeyboardInterrupt(), 130, "interrupted; it goes on"),
        (BrokenProcessPool(), 2, "for want of memory: with fewer --processes it goes on"),
        (MemoryError(), 2, "x: there is not enough memory; mend that, and it goes on\n"),
        (LookupError("odd"), 2, "odd"),
    ],
)
def test_unfinished_work_says_so_and_a_command_may_tell_other_errors(error, status, said, capsys):
    assert ended("x", Mock(side_effect=error), again="it goes on", told=(LookupError,)) == status
    assert said in capsys.readouterr().err


def test_done_work_is_silent_with_its_own_status_and_errors_of_others_are_not_swallowed(capsys):
    """Mutants: a broken pipe is an error of the command; every exception is caught."""
    work = Mock(return_value=None)
    assert ended("x", work) == 0
    work.assert_called_once()
    for error in (BrokenPipeError(), RuntimeError("a bug")):
        with pytest.raises(type(error)):
            ended("x", Mock(side_effect=error))
    assert capsys.readouterr() == ("", "")
    assert ended("x", lambda: 75) == 75
