"""What `python -m tools.runs.losses` has recorded is what the chapter and the nutshell give."""

import pytest

from llmcourse_classroom.recorded import recorded_runs
from tools.runs import losses

# The rows that rounding does not move: by less than 0.0001 with another number of threads.  Rows
# with attention move by up to 0.03, as much as from seed to seed.
SMALL, LLAMA = "16 numbers per token", "Llama, no attention"


@pytest.fixture(scope="module")
def names():
    return losses.definitions()


def recorded(name):
    return recorded_runs("losses")["runs"][name][0]


def test_a_recorded_model_is_measured_again(names):
    assert losses.loss(names, SMALL, losses.SEEDS[0]) == pytest.approx(recorded(SMALL), abs=2e-4)


def test_a_recorded_llama_is_measured_again(names, soaking):
    if not soaking:
        pytest.skip("half a minute: make soak")
    measured = losses.llama_loss(names, losses.LLAMAS[LLAMA], losses.SEEDS[0])
    assert measured == pytest.approx(recorded(LLAMA), abs=2e-4)
