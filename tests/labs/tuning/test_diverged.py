"""Every loop that trains refuses a gradient that is no number before it changes a weight."""

import math

import pytest
import torch

from llmcourse.base.runtime import fingerprint
from llmcourse.train import TrainingDivergedError
from llmcourse_labs.scale.laws import grid
from llmcourse_labs.tuning import FitSettings, RLConfig, fit_answers, rl
from llmcourse_labs.tuning.fitting import require_finite
from llmcourse_labs.tuning.hack_lab import small_talker, talkative_tasks
from tests.labs.tuning.test_rl import QUICK, TASKS, TOKENIZER, by_length, new_model

SAYS = "the gradient norm is nan at step {}"


def spoilt():
    model = new_model()
    with torch.no_grad():
        model.norm.gain[0] = math.nan
    return model


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_what_is_no_finite_number_is_refused(norm):
    with pytest.raises(TrainingDivergedError, match=rf"norm is {norm} at step 7: lower"):
        require_finite(norm, 7)
    assert require_finite(2.5, 7) == 2.5


def test_fitting_changes_no_weight():
    model = spoilt()
    before = fingerprint(model.state_dict())
    settings = FitSettings(steps=2, batch_size=2, learning_rate=1e-3)
    with pytest.raises(TrainingDivergedError, match=SAYS.format(1)):
        fit_answers(model, [[3, 4], [3]], [[8, 1], [9, 1]], settings)
    assert fingerprint(model.state_dict()) == before


def test_reinforcement_changes_no_weight(monkeypatch):
    run = rl.start(RLConfig(**QUICK), new_model(), TOKENIZER, TASKS, by_length)
    rl.step(run)
    before, loss = fingerprint(dict(run.actors.state_dict())), rl.loss
    monkeypatch.setattr(rl, "loss", lambda *given: loss(*given) * math.nan)
    with pytest.raises(TrainingDivergedError, match=SAYS.format(2)):
        rl.step(run)
    assert fingerprint(dict(run.actors.state_dict())) == before


def test_the_small_talker_and_the_runs_of_the_law_end():
    with pytest.raises(TrainingDivergedError, match=SAYS.format(2)):
        small_talker(talkative_tasks(72, seed=0), seed=0, learning_rate=1e30)
    plan = grid.Plan(2e10, 32, 0)
    stories = grid.stories_of(grid.needed_bytes([plan]), grid.SEED_OF_READ)
    with pytest.raises(TrainingDivergedError, match=SAYS.format(2)):
        grid.train(plan, stories, peak=1e30)
