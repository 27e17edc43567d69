"""Each optimizer on ranks takes the steps of one process, in every layout that it allows."""

from typing import get_args

import pytest
from parallel_kit import losses_of, saved_in

from llmcourse import train
from llmcourse.base import checks
from llmcourse.optim import OptimizerSettings

KINDS = [kind().optimizer for kind in get_args(OptimizerSettings) if kind().optimizer != "adamw"]
SPREAD = [
    *((name, {"ranks": 2}) for name in KINDS),
    *(("lion", {"ranks": 2, "parallel": f"zero{stage}"}) for stage in (1, 2, 3)),
    ("lion", {"mesh": "tp=2,dp=2"}),
    ("lion", {"mesh": "pp=2,dp=2", "parallel": "zero1"}),
]


@pytest.fixture(scope="module")
def alone(config, tmp_path_factory):
    made = {}
    for name in KINDS:
        folder = tmp_path_factory.mktemp(name) / "run"
        made[name] = losses_of(train.fit(train.start(of(config, name), folder))), saved_in(folder)
    return made


def of(config, name, **layout):
    return config.replace(optimizer=name, learning_rate=2e-4, warmup_steps=1, **layout)


@pytest.mark.parametrize(("name", "layout"), SPREAD, ids=str)
def test_ranks_take_the_steps_of_one_process(name, layout, config, alone, tmp_path):
    result = train.fit_on_ranks(of(config, name, **layout), tmp_path / "run")
    losses, one = alone[name]
    assert result.losses == pytest.approx(losses, rel=1e-5)
    many = saved_in(tmp_path / "run")
    assert many.optimizer["state"].keys() == one.optimizer["state"].keys()
    for number, state in one.optimizer["state"].items():
        assert many.optimizer["state"][number].keys() == state.keys()
    # A sign turns where a momentum is almost 0: a few entries may be a step apart, no more.
    for weight, wanted in many.model.items():
        assert checks.relative_error(wanted, one.model[weight]) < 0.02


def test_a_run_with_lion_moves_between_layouts(config, alone, tmp_path):
    folder = tmp_path / "run"
    train.fit_on_ranks(of(config, "lion", steps=3, mesh="tp=2,dp=2"), folder)
    train.resume_on_ranks(folder, steps=5, ranks=2, mesh="", parallel="zero3")
    result = train.fit(train.resume(folder, steps=config.steps))
    assert result.reports[-1].loss == pytest.approx(alone["lion"][0][-1], rel=1e-3)
