"""Shared by all tests: one thread, one seed, small and reproducible property tests."""

import asyncio
import os
from multiprocessing.context import BaseContext

import pytest
import torch
from hypothesis import HealthCheck, settings

from llmcourse_classroom import notebooks  # noqa: F401 - before others import nbformat, slowly

pytest_plugins = ["tools.build.unchanged", "tools.build.said_at_once", "tools.build.spent"]
torch.set_num_threads(1)

# Whoever needs the server of forks first decides what it has imported.  After a test of curation,
# each rank of the later tests would import torch again, for four seconds of a processor.
# Some need the compiler of torch, for FSDP: once here is less than in each of them.
RANKS = ("torch", "torch.distributed", "torch._dynamo", "llmcourse.train")
_preload = BaseContext.set_forkserver_preload
BaseContext.set_forkserver_preload = lambda context, names: _preload(context, [*RANKS, *names])

# No test writes into the progress of whoever runs it.
os.environ["LLMCOURSE_PROGRESS"] = "off"

# Generated examples are the same in every run, and a slow machine is not a failure.
settings.register_profile(
    "course",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("course")


def pytest_addoption(parser):
    """`make soak` asks for more random faults and more seeds than an ordinary run."""
    parser.addoption("--runs", type=int, default=3, help="random faults in test_soak.py")
    parser.addoption("--seeds", type=int, default=1, help="of tests that ask for `nth_seed`")


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: runs in make soak, and where what it needs changed")


def pytest_collection_modifyitems(config, items):
    """Leave the tests marked `soak` to `make soak`, and to `make test` after a change of theirs."""
    if config.getoption("seeds") > 1 or config.getoption("unchanged") == "skip":
        return
    gone = [item for item in items if item.get_closest_marker("soak")]
    if gone:
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=gone)


def pytest_generate_tests(metafunc):
    """A test with an argument `nth_seed` runs once for each of `--seeds`."""
    if "nth_seed" in metafunc.fixturenames:
        metafunc.parametrize("nth_seed", range(metafunc.config.getoption("seeds")))


@pytest.fixture(scope="session")
def soaking(pytestconfig):
    return pytestconfig.getoption("seeds") > 1


@pytest.fixture
def no_loop():
    """Signals come in the main thread, in which a browser of other tests leaves its loop."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(before)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
