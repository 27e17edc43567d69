"""What came after GRPO: two clips, three means, one ratio for an answer, another sampler, refills.

Each formula is written here as its paper has it, in loops and in float64.
"""

import math

import pytest
import torch

from llmcourse_labs.tuning import (
    AnswerRows,
    RLConfig,
    Rollout,
    answer_log_ratios,
    clipped_objective,
    group_advantages,
    mean_over_answers,
    mean_over_tokens,
    rl,
    truncated_weights,
)
from llmcourse_labs.tuning.rollout import refilled

LENGTHS = (1, 4, 2, 3)
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
ADVANTAGES = (1.5, -1.5, 0.5, -0.5)


def drawn(seed=1, scale=0.6):
    """Log-probabilities of four answers before and after some updates."""
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(4, 5, generator=generator, dtype=torch.float64)
    moved = scale * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    return (old + moved).where(MASK, 0.0).requires_grad_(), old.where(MASK, 0.0)


def clipped_by_hand(ratio, advantage, low, high):
    """Return the smaller product, and its slope in ln ratio."""
    held = min(max(ratio, 1 - low), 1 + high)
    stopped = held * advantage < ratio * advantage
    return (held if stopped else ratio) * advantage, 0.0 if stopped else ratio * advantage


def loss_by_hand(new, old, *, low, high, average, ratio, constant=5):
    """Return the loss of the papers, and its gradient for the log-probability of each token."""
    new, old = new.tolist(), old.tolist()
    total, slopes = 0.0, torch.zeros(4, 5, dtype=torch.float64)
    for row, (length, advantage) in enumerate(zip(LENGTHS, ADVANTAGES, strict=True)):
        divided_by = {"answer": 4 * length, "token": sum(LENGTHS), "constant": 4 * constant}
        ratios = [math.exp(new[row][t] - old[row][t]) for t in range(length)]
        whole = math.prod(ratios) ** (1 / length)
        for t in range(length):
            one = whole if ratio == "answer" else ratios[t]
            value, slope = clipped_by_hand(one, advantage, low, high)
            total -= value / divided_by[average]
            if ratio == "token":
                slopes[row, t] -= slope / divided_by[average]
            else:  # each of the length terms moves with each of the length tokens
                slopes[row, :length] -= slope / length / divided_by[average]
    return total, slopes


@pytest.mark.parametrize("ratio", ["token", "answer"])
@pytest.mark.parametrize("average", ["answer", "token", "constant"])
@pytest.mark.parametrize(("low", "high"), [(0.2, None), (0.2, 0.28), (0.05, 0.01)])
def test_the_loss_of_a_run_is_that_of_the_papers(ratio, average, low, high):
    """GRPO, DAPO, Dr. GRPO and GSPO.

    Mutants: `clip` in place of `clip_high` in the clamp; the mean over answers for that over
    tokens; the sum of the ratios' logarithms, not divided by the length; `old` not taken away.
    """
    run = rl.RLRun.__new__(rl.RLRun)  # no model: the loss reads the settings alone
    run.config = RLConfig(
        steps=1, answer_tokens=5, clip=low, clip_high=high, ratio=ratio, average=average
    )
    new, old = drawn()
    rows = AnswerRows(torch.zeros(4, 5, dtype=torch.int64), MASK)
    rollout = Rollout(rows, old, old, torch.zeros(2, 2).double(), [], [])
    advantages = torch.tensor(ADVANTAGES).double()[:, None] * MASK
    value = rl.loss(run, rl.LearningBatch(rollout, advantages, None), new, None)
    above = low if high is None else high
    told, slopes = loss_by_hand(new, old, low=low, high=above, average=average, ratio=ratio)
    assert abs(value.item() - told) < 1e-12
    (found,) = torch.autograd.grad(value, new)
    assert (found - slopes).abs().max() < 1e-12
    still = (slopes == 0) & MASK
    assert still[::2].any()  # stopped above, where the advantage is positive
    assert still[1::2].any()  # and below


def test_a_likely_and_a_rare_token_under_two_clips():
    """Mutant: the clip of the lower side above, too."""
    new = torch.tensor([1.25, 1.3, 0.75], dtype=torch.float64).log().requires_grad_()
    ahead = torch.tensor([1.0, 1.0, -1.0])
    (grad,) = torch.autograd.grad(
        clipped_objective(new, torch.zeros(3), ahead, clip=0.2, clip_high=0.28).sum(), new
    )
    assert torch.allclose(grad, torch.tensor([1.25, 0.0, 0.0]).double())


def test_one_long_wrong_answer_in_three_means():
    """Mutant: tokens of the long answer divided by its length under `mean_over_tokens`."""
    mask = torch.arange(50) < torch.tensor([5, 5, 5, 50])[:, None]
    values = torch.zeros(4, 50).double().requires_grad_()
    means = (
        mean_over_answers(values, mask),
        mean_over_tokens(values, mask),
        mean_over_answers(values, mask, tokens=50),
    )
    weights = [torch.autograd.grad(mean, values)[0] for mean in means]
    told = ((1 / 20, 1 / 200), (1 / 65, 1 / 65), (1 / 200, 1 / 200))
    for weight, (short, long) in zip(weights, told, strict=True):
        assert torch.allclose(weight[:, 0], torch.tensor([short] * 3 + [long]).double())
        assert not weight[~mask].any()


def test_the_ratio_of_an_answer_is_the_geometric_mean_of_its_tokens():
    """Mutant: padding counted in the length."""
    new, old = drawn(1)
    found = answer_log_ratios(new, old, MASK)
    for row, length in enumerate(LENGTHS):
        ratios = (new - old)[row, :length].exp()
        assert abs(found[row, 0].exp() - ratios.prod() ** (1 / length)) < 1e-12
        assert (found[row, :length] == found[row, 0]).all()
    assert not found[~MASK].any()


def test_the_weights_bring_the_gradient_back_to_the_policy_that_learns():
    """Whole answers of one token, summed exactly.  Mutants: upside down; a gradient through w."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(6, generator=generator, dtype=torch.float64).requires_grad_()
    learner = logits.log_softmax(0)
    noise = torch.randn(6, generator=generator, dtype=torch.float64)
    sampler = (learner.detach() + noise).log_softmax(0)
    rewards = torch.arange(6.0).double()

    def slope(weight):
        return torch.autograd.grad(
            (sampler.exp() * weight * rewards * learner).sum(), logits, retain_graph=True
        )[0]

    (truth,) = torch.autograd.grad((learner.exp() * rewards).sum(), logits, retain_graph=True)
    free = truncated_weights(learner, sampler, cap=1e9)
    held = truncated_weights(learner, sampler)
    assert not free.requires_grad
    assert torch.allclose(slope(free), truth)
    off = [(slope(w) - truth).norm().item() for w in (held, torch.ones(6))]
    assert 1e-3 < off[0] < off[1]
    ratios = [math.exp(a - b) for a, b in zip(learner.tolist(), sampler.tolist(), strict=True)]
    assert max(ratios) > 2
    assert torch.allclose(held, torch.tensor([min(r, 2.0) for r in ratios]).double())


def test_the_deviation_over_n_less_one_is_that_of_torch():
    """Mutant: the correction left out."""
    rewards = torch.randn(3, 8, generator=torch.Generator().manual_seed(3)).double()
    ahead = rewards - rewards.mean(1, keepdim=True)
    for correction, spread in ((0, ahead.square().mean(1).sqrt()), (1, rewards.std(1))):
        found = group_advantages(rewards, correction=correction).values_PG
        assert torch.allclose(found, ahead / spread[:, None])


def of_groups(rewards, width, first):
    """A rollout of groups of two, whose tokens and texts say which answer they are."""
    numbers = torch.arange(first, first + 2 * len(rewards))
    wide = numbers[:, None].expand(-1, width)
    rows = AnswerRows(wide.clone(), torch.ones(len(numbers), width, dtype=torch.bool))
    names = [str(number) for number in numbers.tolist()]
    return Rollout(rows, -wide.float(), -2 * wide.float(), torch.tensor(rewards), names, names)


def test_groups_that_teach_take_the_places_of_those_that_do_not():
    """Mutants: places and groups exchanged; a reference that stays; texts of the first rollout."""
    rolled = of_groups([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]], 3, 0)
    others = of_groups([[0.0, 0.0], [1.0, 0.0], [0.0, 0.5]], 5, 100)
    found = refilled(rolled, others)
    told = [102, 103, 2, 3, 104, 105, 6, 7]  # the last place stays as it was
    assert found.texts == found.tasks == list(map(str, told))
    assert found.rows.ids_BT[:, 0].tolist() == told
    assert torch.equal(found.old_BT[:, 0], -torch.tensor(told).float())
    assert torch.equal(found.reference_BT, 2 * found.old_BT)
    assert found.rewards_PG.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.5], [1.0, 1.0]]
    assert found.rows.is_answer_BT.sum(1).tolist() == [5, 5, 3, 3, 5, 5, 3, 3]
    assert not found.old_BT[2, 3:].any()


def test_what_was_drawn_estimates_the_entropy():
    """Of an answer of two tokens.  Mutant: the sign."""
    generator = torch.Generator().manual_seed(4)
    first, second = (
        torch.randn(shape, generator=generator).double().log_softmax(-1) for shape in (3, (3, 3))
    )
    p = first.exp()[:, None] * second.exp()
    exact = -(first.exp() * first).sum() - (first.exp()[:, None] * second.exp() * second).sum()
    old = torch.stack([first[:, None].expand(3, 3), second], -1).view(9, 2)
    ones = torch.ones(1, 2, dtype=torch.bool)
    each = [-mean_over_tokens(row[None], ones) for row in old]
    assert abs((p.flatten() * torch.stack(each)).sum() * 2 - exact) < 1e-12
