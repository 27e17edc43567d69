"""A browser that does not start is tried once more."""

import pytest
from playwright.sync_api import Error

from tests.browser.conftest import started


def launcher(*failures):
    left = list(failures)

    def launch():
        if left:
            raise left.pop(0)
        return "a browser"

    return launch


def test_it_is_tried_once_more_and_says_so():
    with pytest.warns(UserWarning, match="tried once more: no display"):
        assert started(launcher(Error("no display"))) == "a browser"


def test_a_second_failure_is_an_error():
    with pytest.warns(UserWarning, match="no display"), pytest.raises(Error, match="still none"):
        started(launcher(Error("no display"), Error("still none")))


def test_another_error_is_not_tried_again():
    with pytest.raises(OSError, match="disk"):
        started(launcher(OSError("disk")))
