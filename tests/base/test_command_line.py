"""base.command_line: how the work of a command ends."""

import pytest

from llmcourse.base.command_line import ended


def raised(error):
    """Return work that fails so."""

    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            ValueError("steps must be at least 1,\n  got 0"),
            2,
            "x: steps must be at least 1, got 0\n",
        ),
        (FileNotFoundError(2, "No such file", "a.txt"), 2, "x: No such file: a.txt\n"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_an_error_is_one_line_and_a_status(error, status, said, capsys):
    """Mutants: 0 after an error; Ctrl-C is an error."""
    assert ended("x", raised(error)) == status
    assert capsys.readouterr() == ("", said)


def test_work_that_is_done_is_silent_and_errors_of_others_are_not_swallowed(capsys):
    """Mutants: a broken pipe is an error of the command; every exception is caught."""
    done = []
    assert ended("x", lambda: done.append(1)) == 0
    assert done == [1]
    for error in (BrokenPipeError(), RuntimeError("a bug")):
        with pytest.raises(type(error)):
            ended("x", raised(error))
    assert capsys.readouterr() == ("", "")
