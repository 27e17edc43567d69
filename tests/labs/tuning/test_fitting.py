"""tuning.fitting: answers, a reward and preferences are learnt; the optimum in closed form."""

import copy
import math

import pytest
import torch
from torch import nn

from llmcourse.base import runtime
from llmcourse.data.tokenizer import train_bpe
from llmcourse.model import Transformer
from llmcourse_labs import tuning
from tests.strategies import small_config

PAIRS = tuning.PairRows(
    [[3, 4], [3], [5, 6], [4]], [[8, 1], [8, 1], [8, 9, 1], [8, 1]], [[9, 1], [2, 1], [1], [7, 1]]
)
SETTINGS = tuning.FitSettings(steps=60, batch_size=4, learning_rate=2e-2)


def small(seed=0):
    return Transformer(small_config(), generator=runtime.generator(seed))


class World(nn.Module):
    """A policy of one prompt and three answers of one token, with a number for each."""

    def __init__(self, reference):
        super().__init__()
        self.logits_V = nn.Parameter(reference.log())

    def forward(self, ids_BT):
        return self.logits_V.expand(*ids_BT.shape, 3)


REFERENCE = torch.tensor([0.5, 0.3, 0.2])
UTILITY = [0.0, math.log(3), 2 * math.log(3)]


def judged(number=20):
    """Return pairs of the three answers, each as often preferred as Bradley and Terry say."""
    prompts, chosen, rejected = [], [], []
    for a, b in ((0, 1), (0, 2), (1, 2)):
        won = round(number * tuning.preferred(UTILITY[a] - UTILITY[b]))  # 5, 2 and 5 of 20
        for first, second, times in ((a, b, won), (b, a, number - won)):
            prompts += [[0]] * times
            chosen += [[first]] * times
            rejected += [[second]] * times
    return tuning.PairRows(prompts, chosen, rejected)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_dpo_reaches_the_optimum_in_closed_form(beta):
    """pi* = reference exp(utility / beta) / Z, from nothing but who was preferred."""
    reference = World(REFERENCE)
    policy = copy.deepcopy(reference)
    settings = tuning.FitSettings(steps=200, batch_size=60, learning_rate=0.1)
    tuning.fit_preferences(policy, reference, judged(), settings, beta=beta)
    right = REFERENCE * (torch.tensor(UTILITY) / beta).exp()
    right = right / right.sum()
    assert (right - REFERENCE).abs().max() > 0.15
    torch.testing.assert_close(policy.logits_V.softmax(0).detach(), right, rtol=0, atol=0.01)
    assert torch.equal(reference.logits_V, REFERENCE.log())


def test_a_judge_who_never_errs_is_followed_without_end_by_dpo_and_not_by_ipo():
    """DPO's margin grows as long as one trains; IPO's stops at 1 / (2 beta)."""
    pairs = tuning.PairRows([[0]] * 2, [[1]] * 2, [[0]] * 2)
    ahead = {}
    for name, loss in (("dpo", {}), ("ipo", {"loss": tuning.ipo_loss})):
        reference = World(REFERENCE)
        policy = copy.deepcopy(reference)
        settings = tuning.FitSettings(steps=300, batch_size=2, learning_rate=0.1)
        tuning.fit_preferences(policy, reference, pairs, settings, beta=0.5, **loss)
        moved = policy.logits_V - reference.logits_V
        ahead[name] = (moved[1] - moved[0]).item()
    assert ahead["ipo"] == pytest.approx(1.0, abs=1e-3)
    assert ahead["dpo"] > 5


def test_a_model_learns_answers():
    model = small()
    losses = []
    tuning.fit_answers(
        model, PAIRS.prompts, PAIRS.chosen, SETTINGS, lambda _, x: losses.append(x.item())
    )
    assert losses[0] == pytest.approx(math.log(17), rel=0.02)
    assert losses[-1] < 0.5
    assert len(losses) == 60


def test_a_reward_model_learns_who_is_preferred_and_begins_at_the_logarithm_of_2():
    model, told = tuning.RewardModel(small()), []
    tuning.fit_reward_model(model, PAIRS, SETTINGS, lambda step, found: told.append((step, found)))
    assert [step for step, _ in told] == list(range(1, 61))
    assert (told[0][1].losses_B - math.log(2)).abs().max() < 1e-6
    assert told[-1][1].margins.min() > 2


def test_a_policy_is_fitted_to_pairs_and_its_reference_stays():
    policy, reference, told = small(), small(), []
    how = {"beta": 0.1, "on_step": lambda _, found: told.append(found)}
    before = tuning.pair_log_probs(reference, PAIRS)
    tuning.fit_preferences(policy, reference, PAIRS, SETTINGS, **how)
    assert torch.equal(tuning.pair_log_probs(reference, PAIRS), before)
    assert (told[0].losses_B - math.log(2)).abs().max() < 1e-5
    ahead = tuning.pair_log_probs(policy, PAIRS) - before
    assert (ahead[:, 0] - ahead[:, 1]).min() > 5


def test_log_probabilities_of_pairs_are_those_of_each_answer_alone():
    model = small()
    found = tuning.pair_log_probs(model, PAIRS)
    for row, (prompt, *both) in enumerate(zip(*PAIRS, strict=True)):
        for side, answer in enumerate(both):
            alone = tuning.answer_log_probs(model, tuning.answer_rows([prompt], [answer]))
            assert found[row, side].item() == pytest.approx(alone.item(), rel=1e-5)


def test_every_pair_comes_once_before_any_comes_again():
    seen = []

    class Noting(World):
        def forward(self, ids_BT):
            seen.extend(ids_BT[:, 0].tolist())
            return super().forward(ids_BT)

    prompts, answers = [[n % 3] for n in range(10)], [[n % 3] for n in range(10)]
    settings = tuning.FitSettings(steps=5, batch_size=4)
    tuning.fit_answers(Noting(REFERENCE), prompts, answers, settings)
    assert len(seen) == 20
    assert sorted(seen) == sorted([n % 3 for n in range(10)] * 2)


def test_the_same_seed_gives_the_same_model():
    found = []
    for seed in (0, 0, 1):
        model = small()
        settings = tuning.FitSettings(steps=5, batch_size=2, learning_rate=1e-2, seed=seed)
        tuning.fit_answers(model, PAIRS.prompts, PAIRS.chosen, settings)
        found.append(model.embedding.detach())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_pairs_become_rows_of_ids():
    pairs = tuning.preference_pairs(5, seed=0)
    text = " ".join(f"{p.task.prompt} {p.chosen} {p.rejected}" for p in pairs)
    tokenizer = train_bpe(text, 290, list(tuning.CHAT_TOKENS))
    rows = tuning.pair_rows(pairs, tokenizer)
    special = tokenizer.special_tokens
    user, assistant, end = (special[f"<|{n}|>"] for n in ("user", "assistant", "end"))
    for pair, prompt, chosen, rejected in zip(pairs, *rows, strict=True):
        assert (prompt[0], prompt[-2:]) == (user, [end, assistant])
        assert tokenizer.decode(prompt[1:-2]) == pair.task.prompt
        assert chosen == tuning.answer_ids(pair.chosen, tokenizer)
        assert (tokenizer.decode(rejected[:-1]), rejected[-1]) == (pair.rejected, end)
