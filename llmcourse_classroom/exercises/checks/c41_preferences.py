"""Checks of exercises 41: Preferences."""

import math

import torch


def check_1(t, bt_loss, preferred, scores):
    """41.1 Who is preferred?"""
    t.close(
        [preferred(math.log(3), 0), preferred(1.0, 1.0 + 2 * math.log(3))],
        [0.75, 0.1],
        "a lead of ln 3 wins 3 of 4, and who is behind by 2 ln 3 wins 1 of 10",
        "differences are log-odds",
    )
    t.close(
        bt_loss([0.0, math.log(3)], [0.0, 0.0]),
        (math.log(2) - math.log(0.75)) / 2,
        "the loss is -ln of the probability that the chosen answer wins, and the mean over pairs",
        "the loss is that by hand",
    )
    t.close(
        [bt_loss([0.0], [2000.0]), bt_loss([2000.0], [0.0])],
        [2000.0, 0.0],
        "a pair that is ranked wrongly by 2,000 costs 2,000 nats, and one that is ranked rightly "
        "nothing: do not take exp of a large number",
        "the loss is finite for scores of any size",
    )
    one = scores([[0, 3], [1, 0]], 1, 0.4)
    t.close(
        one,
        [0.1, -0.1],
        "one step from zeros: the gradient of a is -(3 - 1) / 2 over 4 comparisons, -0.25, and "
        "that of b is 0.25",
        "one step is that by hand",
    )
    wins = [[0, 30, 90], [10, 0, 30], [10, 10, 0]]
    found = scores(wins, 600, 4.0)
    t.close(
        [found[0] - found[1], found[1] - found[2]],
        [math.log(3), math.log(3)],
        "with 3 of 4, 3 of 4 and 9 of 10 the scores lie ln 3 apart: move all of them at once, and "
        "count every cell of the table",
        "the scores explain the table",
        relative=1e-3,
    )


def check_2(t, dpo_gradient, dpo_loss, margin):
    """41.2 DPO"""
    start = [0.3, -1.0, 2.0]
    t.close(
        [dpo_loss(start, start, [[0, 1], [2, 0]], beta) for beta in (0.05, 3.0)],
        [math.log(2)] * 2,
        "where policy and reference are one, every margin is 0 and the loss ln 2, whatever beta is",
        "the loss starts at ln 2",
    )
    moved = [math.log(3), 0.0, 0.0]
    t.close(
        [margin(moved, [0.0] * 3, [0, 2], 2.0), margin(moved, [0.0] * 3, [1, 0], 1.0)],
        [2 * math.log(3), -math.log(3)],
        "the margin is beta times how much further the chosen answer has risen than the rejected "
        "one, compared with the reference",
        "the margin is that by hand",
    )
    t.close(
        dpo_loss(moved, [0.0] * 3, [[0, 2], [1, 2]], 1.0),
        (-math.log(0.75) + math.log(2)) / 2,
        "the loss is -ln sigma(margin), and the mean over the pairs",
        "the loss is that by hand",
    )
    t.close(
        dpo_gradient(start, start, [[0, 1]], 0.4),
        [-0.2, 0.2, 0.0],
        "at the start sigma(-margin) is 1/2: the gradient is -beta / 2 for the chosen answer and "
        "+beta / 2 for the rejected one",
        "chosen is pushed up, rejected down",
    )
    generator = torch.Generator().manual_seed(1)
    logits, kept = (torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(2))
    pairs = [[0, 1], [3, 0], [2, 1], [0, 1]]
    learnt = logits.clone().requires_grad_()
    p, ref = learnt.log_softmax(0), kept.log_softmax(0)
    chosen, rejected = torch.tensor(pairs).T
    ahead = 0.7 * ((p - ref)[chosen] - (p - ref)[rejected])
    (-torch.nn.functional.logsigmoid(ahead).mean()).backward()
    t.close(
        dpo_gradient(logits.tolist(), kept.tolist(), pairs, 0.7),
        learnt.grad.tolist(),
        "each pair is weighted by sigma(-margin): one that is far ahead moves nothing",
        "the gradient is autograd's",
        relative=1e-6,
        absolute=1e-12,
    )


def check_3(t, advantages, conclusion, longest_blame, token_weights):
    """41.3 The advantage of GRPO"""
    t.close(
        advantages([1.0, 0.0, 0.0, 0.0], True),
        [3 / math.sqrt(3), *[-1 / math.sqrt(3)] * 3],
        "mean 1/4, standard deviation 0.433: the advantages are 1.73 and three times -0.58; the "
        "standard deviation divides by 4, not by 3",
        "the advantages are those by hand",
    )
    t.close(
        advantages([1.0, 0.0, 0.0, 0.0], False),
        [0.75, -0.25, -0.25, -0.25],
        "without the division an advantage is the reward minus the mean",
        "the mean is what an answer is compared with",
    )
    t.close(
        [advantages([1.0] * 3, True), advantages([0.1] * 3, False)],
        [[0.0] * 3, [0.0] * 3],
        "a group of equal rewards teaches nothing: all advantages are 0, and nothing is divided by "
        "0",
        "equal rewards have no advantage",
    )
    rewards, lengths = [1.0, 1.0, 0.0, 0.0], [5, 50, 5, 50]
    t.close(
        [token_weights(rewards, lengths, True), token_weights(rewards, lengths, False)],
        [[0.2, 0.02, -0.2, -0.02], [0.02, 0.02, -0.02, -0.02]],
        "advantages are 1, 1, -1, -1: divided by 5 and 50, or all by 50",
        "a token's weight depends on the length of its answer",
    )
    t.equal(
        [longest_blame(rewards, lengths, True), longest_blame([1.0, 1.0], [3, 4], True)],
        [2, None],
        "the tokens of the short wrong answer are blamed ten times as much as those of the long "
        "one; where all rewards are equal, nobody is blamed",
        "the short wrong answer is blamed most",
    )
    t.equal(
        conclusion(),
        "long",
        "a long wrong answer is blamed less for each token, so a policy that is often wrong does "
        "better by being wrong at length",
        "the direction of the bias is named",
    )


def check_4(t, conclusion, estimates, exact_kl, mean_and_deviation):
    """41.4 Three estimators of the KL"""
    t.close(
        estimates(math.log(0.5), math.log(0.25)),
        [math.log(2), math.log(2) ** 2 / 2, 0.5 - 1 + math.log(2)],
        "with pi = 1/2 and ref = 1/4, x is ln 2: k1 = x, k2 = x^2 / 2, k3 = e^(-x) - 1 + x, and "
        "e^(-x) is ref / pi",
        "the estimates are those by hand",
    )
    close, far = ([0.5, 0.3, 0.2], [0.45, 0.33, 0.22]), ([0.98, 0.01, 0.01], [0.01, 0.01, 0.98])
    t.close(
        [exact_kl([0.5, 0.5], [0.25, 0.75]), exact_kl([1.0, 0.0], [0.5, 0.5])],
        [0.5 * math.log(2) + 0.5 * math.log(2 / 3), math.log(2)],
        "the KL is the sum of pi ln(pi / ref); an answer that pi never gives adds nothing",
        "the exact KL is that by hand",
    )
    t.close(
        [mean_and_deviation(*pair, which)[0] for pair in (close, far) for which in (1, 3)],
        [exact_kl(*pair) for pair in (close, far) for _ in range(2)],
        "the means of k1 and of k3 are the exact KL: weight each answer by pi",
        "k1 and k3 have the right mean",
        relative=1e-6,
    )
    t.close(
        mean_and_deviation([0.5, 0.5], [0.25, 0.75], 1),
        [0.5 * math.log(4 / 3), 0.5 * math.log(3)],
        "the values are ln 2 and ln 2/3: their deviation is half their difference, ln(3) / 2",
        "the deviation is that by hand",
    )
    t.close(
        mean_and_deviation([0.5, 0.5, 0.0], [0.25, 0.25, 0.5], 3)[0],
        0.5 - 1 + math.log(2),
        "an answer with pi = 0 is never drawn and must not be asked for its logarithm",
        "what is never drawn does not count",
    )
    t.equal(
        list(conclusion()),
        [3, 1],
        "print the deviations of k1 and k3 in both cases: close together k3 hardly varies, far "
        "apart e^(-x) makes it vary enormously",
        "each estimator is named where it is the better one",
    )


def check_5(t, gradient, objective, stopped):
    """41.5 The clipped objective"""
    same = [-1.0, -2.0, -0.5]
    push = [3.0, -1.0, 1.0]
    t.close(
        [objective(same, same, push, 0.2), *gradient(same, same, push, 0.2)],
        [1.0, 1.0, -1 / 3, 1 / 3],
        "at ratio 1 the objective is the mean advantage and the gradient of each token its "
        "advantage over the number of tokens: plain policy gradient",
        "at ratio 1 it is plain policy gradient",
    )
    old = [0.0] * 4
    new = [math.log(r) for r in (1.5, 1.5, 0.5, 0.5)]
    push = [2.0, -2.0, 2.0, -2.0]
    t.close(
        objective(new, old, push, 0.2),
        (2.4 - 3.0 + 1.0 - 1.6) / 4,
        "ratios 1.5 and 0.5, clip 0.2: with A = 2 the tokens give 1.2 A and 0.5 A, with A = -2 "
        "they give 1.5 A and 0.8 A: the smaller product of the two, each time",
        "the minimum is taken of the products",
    )
    t.close(
        gradient(new, old, push, 0.2),
        [0.0, -0.75, 0.25, 0.0],
        "likelier and wanted, or less likely and unwanted: stopped; the other two lead back, with "
        "the gradient ratio A / 4",
        "only two of four corners are stopped",
    )
    t.close(
        stopped([*new, 0.0], [*old, 0.0], [*push, 0.0], 0.2),
        0.4,
        "2 of 5 tokens are stopped; one with an advantage of 0 has nothing to be stopped",
        "the share of stopped tokens is counted",
    )
    generator = torch.Generator().manual_seed(2)
    a, b, c = (torch.randn(40, generator=generator, dtype=torch.float64) for _ in range(3))
    learnt = (a / 3).clone().requires_grad_()
    ratio = (learnt - b / 3).exp()
    torch.minimum(ratio * c, ratio.clamp(0.7, 1.3) * c).mean().backward()
    t.close(
        gradient((a / 3).tolist(), (b / 3).tolist(), c.tolist(), 0.3),
        learnt.grad.tolist(),
        "the gradient of an unclipped token is ratio A over the number of tokens",
        "the gradient is autograd's",
        relative=1e-6,
        absolute=1e-12,
    )


def check_6(t, conclusion, loss_gradient, reward_gradient):
    """41.6 The gradient of an estimate"""
    pi, ref = [1 / 6, 1 / 3, 1 / 2], [1 / 2, 1 / 3, 1 / 6]
    log3, third = math.log(3), math.log(3) / 3
    t.close(
        reward_gradient(pi, ref, 1),
        [(-log3 - third) / 6, -third / 3, (log3 - third) / 2],
        "k1 in the reward: x is -ln 3, 0 and ln 3, its mean ln(3) / 3, and the gradient is pi "
        "times x less this mean",
        "k1 in the reward is that by hand",
    )
    t.close(
        loss_gradient(pi, ref, 1),
        [0.0, 0.0, 0.0],
        "k1 in the loss: the mean of grad ln pi is 0, because probabilities sum to 1",
        "k1 in the loss does nothing on average",
    )
    generator = torch.Generator().manual_seed(3)
    logits, other = (torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(2))
    learnt, kept = logits.clone().requires_grad_(), other.softmax(0)
    log_pi = learnt.log_softmax(0)
    pi, x = log_pi.exp().detach(), log_pi - kept.log()
    forms = (x, x * x / 2, torch.expm1(-x) + x)
    for function, terms, what, rule in (
        (reward_gradient, [pi * k.detach() * log_pi for k in forms], "reward", "pi k grad ln pi"),
        (loss_gradient, [pi * k for k in forms], "loss", "pi grad k"),
    ):
        slopes = [torch.autograd.grad(k.sum(), learnt, retain_graph=True)[0] for k in terms]
        t.close(
            [function(pi.tolist(), kept.tolist(), which) for which in (1, 2, 3)],
            [slope.tolist() for slope in slopes],
            f"k in the {what}: the sum of {rule}, for k1, k2 and k3",
            f"the gradients in the {what} are autograd's",
            relative=1e-6,
            absolute=1e-12,
        )
    t.equal(
        list(conclusion()),
        [1, 2],
        "print all six beside pi times x less the KL: one in the reward and one in the loss agree",
        "each estimator is named where its gradient is right",
    )
