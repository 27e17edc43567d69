"""evaluate.trust: calibration by hand and by simulation, perturbations, refusals."""

import math
import re
from collections import Counter
from dataclasses import replace

import pytest
import torch

from llmcourse.data.corpus import story_words
from llmcourse_labs.evaluate import (
    Bin,
    ChoiceScores,
    confidences,
    expected_calibration_error,
    perturbed,
    refusals,
    reliability,
    story_items,
)
from llmcourse_labs.evaluate.trust import SYNONYMS
from llmcourse_labs.study.story_skills import Tally
from llmcourse_labs.tuning import make_tasks
from llmcourse_labs.tuning.tasks import REFUSAL


def test_confidence_and_bins_by_hand():
    """Choices with probabilities in the ratio 3 to 1, and four equal ones that are unlikely."""
    nothing = {"alone": (), "num_tokens": (), "num_bytes": ()}
    given = (math.log(3), 0.0), (-800.0,) * 4
    scores = [ChoiceScores(log_probs=row, **nothing) for row in given]
    assert confidences(scores) == pytest.approx([0.75, 0.25])
    bins = reliability([0.3, 0.5, 0.51, 1.0, 0.0], [0, 1, 1, 0, 0], num_bins=2)
    assert bins == [Bin(0, 0.5, 3, pytest.approx(0.8 / 3), 1 / 3), Bin(0.5, 1, 2, 0.755, 0.5)]
    expected = 3 / 5 * (1 / 3 - 0.8 / 3) + 2 / 5 * 0.255
    assert expected_calibration_error(bins) == pytest.approx(expected)


def test_who_is_as_sure_as_right_has_no_error_and_who_is_surer_has_one(generator):
    sure = (0.25 + 0.75 * torch.rand(40_000, generator=generator)).tolist()
    right = (torch.rand(40_000, generator=generator) < torch.tensor(sure)).tolist()
    assert expected_calibration_error(reliability(sure, right)) < 0.01
    more = [min(1.0, p + 0.1) for p in sure]
    found = expected_calibration_error(reliability(more, right))
    mean = sum(b - a for a, b in zip(sure, more, strict=True)) / len(sure)
    assert found == pytest.approx(mean, abs=0.01)
    # The mutant that takes the mean of all items as one bin sees nothing of opposite mistakes.
    opposite = [p + 0.2 * (1 if p > 0.6 else -1) for p in (0.5, 0.7)] * 500
    verdicts = ([1, 1] * 250) + ([0, 1] * 250)
    assert expected_calibration_error(reliability(opposite, verdicts, num_bins=1)) < 0.16
    found = expected_calibration_error(reliability(opposite, verdicts))
    assert found == pytest.approx(0.15, abs=0.06)


ITEMS = story_items(40, seed=3)


def test_typos_exchange_neighbours_and_nothing_else():
    changed, words = 0, 0
    for item in ITEMS:
        found = perturbed(item, "typos", seed=0)
        assert found == perturbed(item, "typos", seed=0)
        assert replace(found, prompt=item.prompt) == item
        before, after = (re.findall(r"\w+", text) for text in (item.prompt, found.prompt))
        assert len(found.prompt) == len(item.prompt)
        for old, new in zip(before, after, strict=True):
            words += len(old) >= 4
            if old != new:
                changed += 1
                assert len(old) >= 4
                assert old[0] == new[0]
                assert Counter(old) == Counter(new)
                assert sum(a != b for a, b in zip(old, new, strict=True)) == 2
    assert changed / words == pytest.approx(1 / 6, abs=0.05)
    assert any(perturbed(i, "typos", seed=1) != perturbed(i, "typos", seed=0) for i in ITEMS)


def test_synonyms_are_words_that_no_story_has_and_refusals_are_counted_on_both_sides():
    assert set(SYNONYMS) <= story_words()
    assert not set(SYNONYMS.values()) & story_words()
    changed = 0
    for item in ITEMS:
        found = perturbed(item, "synonyms", seed=0)
        before, after = (re.findall(r"\w+", text) for text in (item.prompt, found.prompt))
        for old, new in zip(before, after, strict=True):
            assert new == SYNONYMS.get(old, old)
            changed += old != new
    assert changed > len(ITEMS) / 2
    tasks = make_tasks(200, seed=0, kinds=["ball", "refuse"])
    wanted = sum(task.answer == REFUSAL for task in tasks)
    right = refusals(tasks, [task.answer for task in tasks])
    assert right == (Tally(wanted, wanted), Tally(0, 200 - wanted))
    always = refusals(tasks, [f" {REFUSAL}\n"] * 200)
    assert always == (Tally(wanted, wanted), Tally(200 - wanted, 200 - wanted))
    cut = refusals(tasks, [REFUSAL[:-1]] * 200)
    assert cut.wanted.right == cut.unwanted.right == 0
