"""The settings that most tests of train run with."""

import pytest

from tests.train.runs import SHORT


@pytest.fixture(scope="module")
def config():
    """Eight steps of the smallest model, on batches of 8."""
    return SHORT
