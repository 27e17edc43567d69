"""tuning.policy_gradient against sums over all answers of a tiny world, in float64."""

import itertools

import pytest
import torch

from llmcourse_labs.tuning import (
    AnswerRows,
    RLConfig,
    ValueHead,
    clipped_objective,
    gae,
    group_advantages,
    k1,
    k2,
    k3,
    mean_over_answers,
    num_equal_groups,
    rl,
)
from llmcourse_labs.tuning.rollout import Rollout

END, WORDS, LONGEST = 0, 3, 3
"""A world of two words and an end; an answer that does not end within three tokens is cut."""


def all_answers():
    """Every answer of the world: tokens (answers, tokens) with END after the end, and the mask."""
    found = [
        word
        for word in itertools.product(range(WORDS), repeat=LONGEST)
        if END not in word or not any(word[word.index(END) :])
    ]
    ids_NT = torch.tensor(found)
    before_NT = (ids_NT == END).cumsum(1) - (ids_NT == END).long()
    return ids_NT, before_NT == 0


IDS, IS_ANSWER = all_answers()
REWARDS = torch.linspace(-1, 2, len(IDS), dtype=torch.float64).sin() + IS_ANSWER.sum(1) / 4


def logits(seed=0, scale=1.0):
    """A policy: logits of the next word by the place and the word before (word 0 at the start)."""
    drawn = torch.randn(LONGEST, WORDS, WORDS, generator=torch.Generator().manual_seed(seed))
    return (scale * drawn.double()).requires_grad_()


def log_probs(theta, ids=IDS, is_answer=IS_ANSWER):
    before = torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], 1)
    places = torch.arange(LONGEST).expand_as(ids)
    chosen = theta.log_softmax(-1)[places, before].gather(-1, ids[..., None])[..., 0]
    return chosen.where(is_answer, 0.0)


def gradient(value, theta):
    return torch.autograd.grad(value, theta, retain_graph=True)[0]


def true_gradient(theta, rewards=REWARDS):
    """Of the expected reward, through the probabilities themselves."""
    return gradient((log_probs(theta).sum(1).exp() * rewards).sum(), theta)


def expected(theta, objective_NT):
    """Mean over all answers of the gradient that a sample of one answer gives."""
    p = log_probs(theta).sum(1).exp().detach()
    return gradient((p * objective_NT.where(IS_ANSWER, 0.0).sum(1)).sum(), theta)


def close(ours, reference, tolerance=1e-12):
    return (ours - reference).abs().max() < tolerance * reference.abs().max()


def in_pairs(theta, divide=False, tokens=LONGEST):
    """Expected gradient of GRPO with two answers to a prompt: all pairs of answers summed."""
    each = log_probs(theta)
    p = each.sum(1).exp().detach()
    places = list(itertools.product(range(len(IDS)), repeat=2))
    first = torch.tensor([REWARDS[list(pair)].tolist() for pair in places], dtype=torch.float64)
    advantages = group_advantages(first, divide=divide).values_PG
    total = 0.0
    for pair, values in zip(places, advantages, strict=True):
        rows = list(pair)
        wide = values[:, None].expand(2, LONGEST)
        objective = clipped_objective(each[rows], each[rows].detach(), wide, clip=0.2)
        mean = mean_over_answers(objective, IS_ANSWER[rows], tokens=tokens)
        total = total + p[rows].prod() * mean
    return gradient(total, theta)


def test_the_world_holds_every_answer_once():
    assert len(IDS) == 1 + 2 + 4 * 3
    assert len(set(map(tuple, IDS.tolist()))) == len(IDS)
    assert abs(log_probs(logits()).sum(1).exp().sum().item() - 1) < 1e-12


def test_the_policy_gradient_is_that_of_the_expected_reward_with_any_baseline():
    theta = logits()
    for level in (0.0, 3.0):
        advantages = (REWARDS - level)[:, None].expand_as(IDS)
        objective = clipped_objective(log_probs(theta), log_probs(theta), advantages, clip=0.2)
        assert close(expected(theta, objective), true_gradient(theta))


def test_grpo_without_its_divisions_points_along_the_gradient_and_with_either_it_does_not():
    theta = logits()
    truth = true_gradient(theta) / 2 / LONGEST  # (G - 1) / G, and the constant length
    assert close(in_pairs(theta), truth)
    for biased in (in_pairs(theta, divide=True), in_pairs(theta, tokens=None)):
        assert 0 < torch.cosine_similarity(biased.flatten(), truth.flatten(), dim=0) < 0.999


def test_with_a_value_head_the_gradient_is_right_at_decay_1_for_any_values():
    theta = logits()
    rewards = torch.zeros_like(log_probs(theta)).detach()
    rewards[torch.arange(len(IDS)), IS_ANSWER.sum(1) - 1] = REWARDS
    # A value may depend on what came before: here on the word before, and on the place.
    before = torch.cat([torch.zeros_like(IDS[:, :1]), IDS[:, :-1]], 1)
    values = before * 0.7 - torch.arange(LONGEST) * 0.3 + 0.1
    for decay, right in ((1.0, True), (0.0, False), (0.9, False)):
        advantages = gae(rewards, values.double(), IS_ANSWER, decay=decay)
        objective = clipped_objective(log_probs(theta), log_probs(theta), advantages, clip=0.2)
        assert close(expected(theta, objective), true_gradient(theta)) == right


def test_gae_is_the_sum_of_all_later_surprises():
    generator = torch.Generator().manual_seed(3)
    rewards, values = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    mask = torch.zeros(4, 6, dtype=torch.bool)
    spans = ((0, 6), (1, 4), (2, 3), (3, 6))
    for row, (first, end) in enumerate(spans):
        mask[row, first:end] = True
    rewards = rewards * mask
    for gamma, decay in ((1.0, 0.95), (0.9, 0.7), (0.8, 0.0), (0.9, 1.0)):
        ours = gae(rewards, values, mask, gamma=gamma, decay=decay)
        for row, (first, end) in enumerate(spans):
            v = [*values[row, first:end].tolist(), 0.0]
            r = rewards[row, first:end].tolist()
            n, rate = end - first, gamma * decay
            deltas = [r[t] + gamma * v[t + 1] - v[t] for t in range(n)]
            sums = [sum(rate ** (s - t) * deltas[s] for s in range(t, n)) for t in range(n)]
            assert torch.allclose(ours[row, first:end], torch.tensor(sums, dtype=torch.float64))
            if decay == 1:  # what came, discounted, minus the value
                came = [sum(gamma ** (s - t) * r[s] for s in range(t, n)) for t in range(n)]
                told = torch.tensor([c - x for c, x in zip(came, v, strict=False)]).double()
                assert torch.allclose(ours[row, first:end], told, atol=1e-6)
        assert not ours[~mask].any()


def test_grpos_advantage_by_hand():
    rewards = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0.1, 0.1, 0.1, 0.1]])
    plain, root = torch.tensor([[0.75, *[-0.25] * 3], [0.5, 0.5, -0.5, -0.5]]), 3**0.5
    divided = torch.tensor([[root, *[-1 / root] * 3], [1.0, 1, -1, -1]])
    for divide, told in ((False, plain), (True, divided)):
        found = group_advantages(rewards, divide=divide)
        assert torch.allclose(found.values_PG[:2], told)
        assert found.num_equal == 2
        assert not found.values_PG[2:].any()
    assert num_equal_groups(rewards) == 2


def test_rewards_that_differ_by_a_rounding_are_equal():
    """Mutant: `==` in place of the tolerance gives an advantage of 2 to a last bit."""
    close = torch.tensor([[0.5, 0.5 + 6e-8, 0.5, 0.5], [0.1] * 4, [-3e6, 0.25 - 3e6, *[-3e6] * 2]])
    for divide in (True, False):
        found = group_advantages(close, divide=divide)
        assert found.num_equal == 3
        assert not found.values_PG.any()
    apart = torch.tensor([[1e-9, 0, 0, 0], [0.5, 0.501, 0.5, 0.5]])
    told = torch.tensor([[3.0, -1, -1, -1], [-1, 3, -1, -1]]) / 3**0.5
    assert torch.allclose(group_advantages(apart).values_PG, told, atol=1e-3)
    assert num_equal_groups(apart) == 0


def test_the_mean_over_answers_by_hand():
    values = torch.tensor([[1.0, 9, 9, 9], [2.0, 2, 2, 2]])
    mask = torch.tensor([[True, False, False, False], [True] * 4])
    assert mean_over_answers(values, mask).item() == (1 + 8 / 4) / 2
    assert mean_over_answers(values, mask, tokens=4).item() == (1 / 4 + 8 / 4) / 2


def test_the_clip_stops_what_has_moved_far_enough_and_only_that():
    for ratio, advantage, told, slope in (
        (1.0, 2.0, 2.0, 2.0), (1.5, 2.0, 2.4, 0.0), (0.5, 2.0, 1.0, 1.0),
        (1.5, -2.0, -3.0, -3.0), (0.5, -2.0, -1.6, 0.0),
    ):  # fmt: skip
        new = torch.tensor(ratio, dtype=torch.float64).log().requires_grad_()
        old = torch.zeros((), dtype=torch.float64, requires_grad=True)
        value = clipped_objective(new, old, torch.tensor(advantage), clip=0.2)
        value.backward()
        assert abs(value.item() - told) < 1e-12
        assert abs(new.grad.item() - slope) < 1e-12
        assert old.grad is None


def test_an_advantage_of_0_teaches_nothing_though_the_ratio_is_too_large_for_a_number():
    new = torch.tensor([[90.0, 90.0, -90.0, 1.0]], requires_grad=True)
    advantages = torch.tensor([[0.0, 1.0, 0.0, 2.0]])
    objective = clipped_objective(new, torch.zeros(1, 4), advantages, clip=0.2)
    torch.testing.assert_close(objective, torch.tensor([[0.0, 1.2, 0.0, 2.4]]))
    objective.sum().backward()
    assert new.grad.tolist() == [[0, 0, 0, 0]]  # clipped, or of no weight


def test_the_kl_estimators_against_the_exact_kl():
    near, far, reference = logits(1, 0.3), logits(1, 3.0), logits(1, 0.2)
    for theta, is_near in ((near, True), (far, False)):
        ours, theirs = log_probs(theta).sum(1).detach(), log_probs(reference).sum(1).detach()
        p = ours.exp()
        exact = (p * (ours - theirs)).sum()
        means = [(p * k(ours, theirs)).sum() for k in (k1, k2, k3)]
        pairs = zip((k1, k2, k3), means, strict=True)
        spreads = [(p * (k(ours, theirs) - m).square()).sum() for k, m in pairs]
        assert abs(means[0] - exact) < 1e-12
        assert abs(means[2] - exact) < 1e-12
        assert abs(means[1] - exact) > 1e-6
        assert (k2(ours, theirs) >= 0).all()
        assert (k3(ours, theirs) >= 0).all()
        assert (k1(ours, theirs) < 0).any()
        if is_near:
            assert abs(means[1] / exact - 1) < 0.05
            assert spreads[2] < spreads[0] / 10
            assert spreads[1] < spreads[0] / 10


def kl_gradients(theta, reference):
    """Of KL(pi || reference) and of KL(reference || pi), through the sums over all answers."""
    whole = log_probs(theta).sum(1)
    forth = (whole.exp() * (whole - reference)).sum()
    return gradient(forth, theta), gradient(-(reference.exp() * whole).sum(), theta)


def test_what_the_gradient_of_each_kl_estimator_is_in_the_reward_and_in_the_loss():
    theta, reference = logits(2), log_probs(logits(5)).sum(1).detach()
    truth, other_way = kl_gradients(theta, reference)
    whole = log_probs(theta).sum(1)
    p = whole.exp().detach()
    rewards, losses, values = {}, {}, {}
    for k in (k1, k2, k3):
        told = k(whole, reference)
        rewards[k] = gradient((p * told.detach() * whole).sum(), theta)
        losses[k] = gradient((p * told).sum(), theta)
        values[k] = gradient((whole.exp() * told).sum(), theta)
        assert close(rewards[k] + losses[k], values[k])
    assert close(rewards[k1], truth)
    assert close(losses[k2], truth)
    assert losses[k1].abs().max() < 1e-12  # the mean of grad log p
    assert close(losses[k3], other_way)
    assert not close(other_way, truth, 0.1)
    assert close(rewards[k3], truth - other_way)
    ratio = (whole - whole.detach()).exp()  # 1, but not its gradient
    assert close(gradient((p * ratio * k3(whole, reference)).sum(), theta), truth)


def test_a_loss_summed_over_tokens_lacks_what_a_token_does_for_those_after_it():
    theta, reference_NT = logits(2), log_probs(logits(5)).detach()
    tokens_NT = log_probs(theta)
    truth, _ = kl_gradients(theta, reference_NT.sum(1))
    p_N1 = tokens_NT.sum(1, keepdim=True).exp().detach()
    for k in (k2, k3):
        partial = gradient((p_N1 * k(tokens_NT, reference_NT)).sum(), theta)
        assert not close(partial, truth, 0.1)
    # Nothing comes after the last place: there the part is the whole.
    assert close(gradient((p_N1 * k2(tokens_NT, reference_NT)).sum(), theta)[-1], truth[-1])


@pytest.mark.parametrize("by_own_length", [True, False])
def test_the_penalty_of_a_run_of_grpo_follows_the_kl_from_the_policy_to_the_reference(
    by_own_length,
):
    theta, reference_NT = logits(2), log_probs(logits(5)).detach()
    average = "answer" if by_own_length else "constant"
    config = RLConfig(steps=1, answer_tokens=LONGEST, kl=1.0, average=average)
    run = rl.RLRun.__new__(rl.RLRun)  # no model: load and loss read the settings alone
    run.config = config
    truth, _ = kl_gradients(theta, reference_NT.sum(1))
    tokens_NT = log_probs(theta)
    p = tokens_NT.sum(1).exp().detach()
    total = torch.zeros_like(theta)
    equal = torch.zeros(1, 2, dtype=torch.float64)
    for both in itertools.product(range(len(IDS)), repeat=2):
        pair = list(both)
        rows = AnswerRows(IDS[pair], IS_ANSWER[pair])
        drawn = Rollout(rows, tokens_NT[pair].detach(), reference_NT[pair], equal, [], [])
        value = rl.loss(run, rl.load(run, drawn), tokens_NT[pair], None)
        total += p[pair].prod() * gradient(value, theta)
    whole, lengths = tokens_NT.sum(1), IS_ANSWER.sum(1)
    ahead = (whole - reference_NT.sum(1)).detach()
    ahead -= (p * ahead).sum()
    divided_by = lengths if by_own_length else LONGEST
    assert close(total, gradient((p * ahead / divided_by * whole).sum(), theta) / 2)  # (G - 1) / G
    assert close(total, truth / 2 / LONGEST) != by_own_length


def test_the_value_head_starts_at_zero_and_reads_each_place():
    head = ValueHead(4).double()
    hidden = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert not head(hidden).any()
    assert head(hidden).shape == (2, 3)
    head.w_D.data[:] = torch.tensor([1.0, 0, 0, -2])
    head.bias.data.fill_(0.5)
    assert torch.allclose(head(hidden), hidden[..., 0] - 2 * hidden[..., 3] + 0.5)
