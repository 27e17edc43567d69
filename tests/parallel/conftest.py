"""Shared by the tests of parallelism: ranks for the session, and the run that all are held to."""

import parallel_kit as kit
import pytest

from llmcourse import train
from llmcourse.parallel import world
from llmcourse.parallel.world.worker import plain


@pytest.fixture(scope="session")
def pools():
    """Ranks by their number, the same processes for all tests of a worker: ``pools(3).run(fn)``."""
    made = kit.Pools()
    yield made
    made.close()


@pytest.fixture(scope="module")
def run(request, pools):
    """Run a function on 1 or more ranks; a single one is this process, which checks annotations.

    They stand on the axis that the test's module names `AXIS`, or else on "dp".
    """
    name = getattr(request.module, "AXIS", "dp")

    def run(num_ranks, fn, *args, mutant=None, **settings):
        mesh = {name: num_ranks}
        if num_ranks == 1 and not mutant:
            return [plain(fn(world.Rank(0, mesh, messages=[]), *args, **settings))]
        return pools(num_ranks, mesh).run(fn, *args, mutant=mutant, **settings)

    return run


@pytest.fixture
def one_rank():
    """An axis with one rank, which is this process: nothing is ever sent."""
    return kit.axis()


@pytest.fixture(scope="session")
def config():
    """Six steps of the smallest model, saved twice."""
    return train.PRESETS["tiny"]().replace(
        steps=6, validate_every=0, checkpoint_every=3, sample_tokens=5
    )


@pytest.fixture(scope="session")
def alone(config, tmp_path_factory):
    """The run of one process that all layouts and engines are compared with."""
    return train.fit(train.start(config, tmp_path_factory.mktemp("runs") / "alone"))
