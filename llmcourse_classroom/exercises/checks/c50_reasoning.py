"""Checks of exercises 50: Reasoning: learning from a checker."""

import torch

from llmcourse_labs.tuning.votes import vote


def check_1(t, check_sum, fool):
    """50.1 A checker that cannot be fooled"""
    prompt = "27 + 58 = "

    def pays(*texts):
        said = [check_sum(prompt, text) for text in texts]
        return [float(pay) if isinstance(pay, bool) else pay for pay in said]

    t.equal(
        [check_sum(*asked) for asked in ((prompt, "85"), (prompt, "86"), ("8 + 4 = ", "12"))],
        [1.0, 0.0, 1.0],
        "27 + 58 is 85: this text alone gets 1.0, and 86 gets 0.0. Both are numbers, not True and "
        "False",
        "the right number, and a wrong one",
    )
    try:
        said = pays("", "no idea", "…")
    except (ValueError, IndexError):
        said = None
    t(
        said is not None,
        "a text without a number, or without anything, stops your checker. A policy writes all "
        "kinds of texts, and a long run must not end at one of them",
        "no text stops it",
    )
    t.equal(
        said,
        [0.0, 0.0, 0.0],
        "who says nothing, or no number, has not answered",
        "an empty text is no answer",
    )
    t.equal(
        pays("185", "850", "3854"),
        [0.0, 0.0, 0.0],
        "185 and 850 are other numbers, in which 85 stands",
        "a longer number is another number",
    )
    t.equal(
        pays("84 85", "85 86", "27 + 58 = 85", "85\n30 + 12 = 42"),
        [0.0, 0.0, 0.0, 0.0],
        "several numbers are no answer, even if the first or the last of them is right: a policy "
        "would soon write all that it can think of",
        "one number, not several",
    )
    t.equal(
        pays("85…", "85 …"),
        [0.0, 0.0],
        "… says that the text was cut: after 85 a third digit might have come",
        "a text that was cut is no answer",
    )
    t.equal(
        pays(" 85", "85 ", "85\n", "\t85"),
        [0.0, 0.0, 0.0, 0.0],
        "a space or a line end is a character more than the number, at either end of the text",
        "nothing stands around the number",
    )
    t.equal(
        pays("085", "0085"),
        [0.0, 0.0],
        "nobody writes 085: zeros in front make a second right text, and a third",
        "no zeros in front",
    )
    t.equal(
        pays("+85", "-85", "8_5", "85.", "85.0"),
        [0.0, 0.0, 0.0, 0.0, 0.0],
        "signs, underscores and points are no digits, though int or float reads some of them",
        "digits alone",
    )
    t.equal(
        pays("\uff18\uff15", "\u0668\u0665", "8\u0665"),
        [0.0, 0.0, 0.0],
        "the digits of other scripts are digits to isdecimal, to int and to \\d, but not the "
        "digits 0 to 9",
        "the digits 0 to 9 alone",
    )
    t.equal(
        [check_sum("3 + 1 = 4\n20 + 30 = 50\n27 + 58 = ", text) for text in ("85", "189", "4")],
        [1.0, 0.0, 0.0],
        "only the last line of the prompt is asked: the lines before it have their results",
        "the last line is what is asked",
    )
    text = fool()
    missing = [result for result in range(20, 199) if f"{result}" not in f"{text}"]
    t.equal(
        missing[:3],
        [],
        "results go from 10 + 10 = 20 to 99 + 99 = 198, and each has to stand in your text; at "
        "these ones the weaker checker does not pay",
        "one text for every sum",
    )
    t(
        isinstance(text, str) and len(text) <= 1_000,
        "your text has more than 1,000 characters, or is no text: leave out what stands between "
        "two numbers",
        "and a short one",
    )
    t.equal(
        check_sum(prompt, text),
        0.0,
        "your checker is fooled by a text in which every number stands",
        "your checker pays nothing for it",
    )


def check_2(t, pass_at_k, pass_at, bias):
    """50.2 One right among k"""
    near = {"relative": 1e-6, "absolute": 1e-9}
    t.close(
        pass_at_k(8, 2, 4),
        55 / 70,
        "of 70 ways to pick four of 8 draws, 15 take wrong ones alone: 0.786. The short way, "
        "1 − (1 − 2/8)^4, says 0.684, too little by 0.10: it puts each draw back",
        "picked without putting back",
        **near,
    )
    t.close(
        [pass_at_k(8, 0, 4), pass_at_k(8, 5, 4), pass_at_k(8, 8, 1), pass_at_k(8, 3, 1)],
        [0.0, 1.0, 1.0, 3 / 8],
        "where nothing was right it is 0, where fewer than k were wrong it is 1, and pass@1 is the "
        "share that was right",
        "none, nearly all, and one draw",
        **near,
    )
    try:
        many = [pass_at_k(10_000, 2, 5_000), pass_at_k(10_000, 3, 100)]
    except OverflowError:
        many = None
    t(
        many is not None,
        "with 10,000 draws a number becomes too large for a float: divide whole numbers, or "
        "multiply small quotients",
        "no number is too large",
    )
    t.close(
        many,
        [1 - 5_000 * 4_999 / (10_000 * 9_999), 1 - 9_900 * 9_899 * 9_898 / (1e4 * 9_999 * 9_998)],
        "two right among 10,000: both are left out by about a quarter of all picks of a half",
        "10,000 draws",
        **near,
    )
    t.close(
        [pass_at_k(10_000, 9_000, 5_000), pass_at_k(10_000, 10_000, 10_000)],
        [1.0, 1.0],
        "1,000 wrong draws do not fill a pick of 5,000: 1.0. The product of 1 − k / i has factors "
        "below 0 then, grows beyond every float, and times 0 becomes NaN",
        "fewer wrong ones than are picked",
        **near,
    )
    try:
        beyond = pass_at_k(8, 2, 9)
    except ValueError:
        beyond = "refused"
    t(
        beyond == "refused",
        "eight draws cannot be picked nine at a time: raise a ValueError, so that no table says "
        "1.0 or 0.0 there",
        "k above n is refused",
    )
    t.close(
        [pass_at(1, [0.5]), pass_at(2, [0.5]), pass_at(3, [0.0]), pass_at(5, [1.0])],
        [0.5, 0.75, 0.0, 1.0],
        "1 − (1 − p)^k: of two draws at p = 0.5 a quarter has none right",
        "one prompt, exactly",
        **near,
    )
    t.close(
        pass_at(8, [0.0, 0.5]),
        (1 - 0.5**8) / 2,
        "each prompt has its own pass@8, 0 and 0.996, with the mean 0.498. The mean p, 0.25, has a "
        "pass@8 of 0.9, as if a prompt that is never right were helped by the other",
        "first each prompt, then the mean",
        **near,
    )
    t.close(
        [bias(3, 1, 0.3), bias(8, 5, 0.0), bias(8, 5, 1.0)],
        [0.0, 0.0, 0.0],
        "for k = 1 the short way is the share of right draws, which is right on average; and where "
        "c is always 0, or always n, nothing is left to chance",
        "where the short way is right",
        **near,
    )
    t.close(
        bias(2, 2, 0.5),
        -0.125,
        "c is 0, 1 or 2, with probability 1/4, 1/2 and 1/4, and the short way says 0, 3/4 and 1: "
        "0.625 on average, which is 0.75 − 0.125: return −0.125. To look at c = n p is not enough",
        "the short way says too little",
        **near,
    )
    t.close(
        bias(8, 8, 0.1),
        -0.14716283,
        "eight draws at p = 0.1: the short way is too low by 0.147 on average",
        "too little where p is small",
        **near,
    )


def check_3(t, advantages, kept, silent):
    """50.3 What a group says"""

    def table(*rows):
        return torch.tensor(rows, dtype=torch.float64)

    near = {"relative": 1e-6, "absolute": 1e-6}
    t.close(
        advantages(table([1, 0, 0, 0])),
        table([3**0.5] + [-1 / 3**0.5] * 3),
        "the mean is 0.25 and the deviation over four 0.433, so 0.75 becomes 1.732. Over three it "
        "is 0.5, which gives 1.5: torch.std does that unless told correction=0. Add nothing to it",
        "one right among four",
        **near,
    )
    t.close(
        advantages(table([1, 0, 0, 0], [1, 1, 1, 0])),
        table([3**0.5] + [-1 / 3**0.5] * 3, [1 / 3**0.5] * 3 + [-(3**0.5)]),
        "each row is compared with its own mean and deviation, not with those of the whole table: "
        "a right answer says more where it is rare",
        "each group by itself",
        **near,
    )
    t.close(
        advantages(table([1, 1], [0, 0], [2, 0])),
        table([0, 0], [0, 0], [1, -1]),
        "where all rewards are equal, 0 is divided by 0, and one NaN in a gradient is the end of a "
        "run: equal rewards give advantages of 0",
        "equal rewards say nothing",
        **near,
    )
    t.close(
        advantages(table([0.1, 0.1, 0.1], [0.7, 0.7, 0.7])),
        table([0, 0, 0], [0, 0, 0]),
        "three rewards of 0.1 are equal, but their mean in floating point is 0.10000000000000002: "
        "the rounding is divided by a deviation as small, which gives 1 or −1",
        "a rounding is no difference",
        **near,
    )
    t.equal(
        kept(table([1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0])),
        [1, 3],
        "a group in which all are right says as little as one in which all are wrong; the places "
        "are those in the whole table",
        "groups of both kinds are kept",
    )
    t.equal(
        kept(table([0.5, 0.5, 0.5], [1, -1, 0], [2, 3, 4], [0.1, 0.1, 0.1])),
        [1, 2],
        "rewards need not be 0 and 1: three times 0.5 says nothing, and 2, 3, 4 does",
        "any rewards that differ",
    )
    t.close(
        [silent([0.5], 2), silent([0.5], 8), silent([0.9], 4)],
        [0.5, 2 / 2**8, 0.9**4 + 0.1**4],
        "a group is silent if all its answers are right, or if all are wrong: p^G + (1 − p)^G",
        "all right, or all wrong",
        **near,
    )
    t.close(
        silent([0.0, 1.0, 0.5], 4),
        (1 + 1 + 2 / 2**4) / 3,
        "a prompt that is never answered rightly and one that always is are silent both. Their "
        "mean p would be 0.5, as if they said most",
        "prompts are averaged last",
        **near,
    )


def check_4(t, wins, helps, examples):
    """50.4 A vote"""
    near = {"relative": 1e-6, "absolute": 1e-9}
    t.close(
        [wins(1, [0.3, 0.5, 0.2]), wins(9, [1.0]), wins(5, [0.0, 0.6, 0.4])],
        [0.3, 1.0, 0.0],
        "a vote of one is a draw; an answer that always comes wins, and one that never does loses",
        "one draw, and no doubt",
        **near,
    )
    t.close(
        wins(3, [0.6, 0.4]),
        0.648,
        "three draws: 0.6^3 = 0.216, and two of three, in three orders, 3 · 0.6^2 · 0.4 = 0.432",
        "each count in all its orders",
        **near,
    )
    t.close(
        wins(2, [0.6, 0.4]),
        0.6,
        "two draws: 0.36, and a tie with 0.48, of which the lot gives the right answer half. "
        "Without it you get 0.36, with all of it 0.84",
        "a tie is half won",
        **near,
    )
    t.close(
        wins(5, [0.4, 0.2, 0.2, 0.2]),
        0.50944,
        "two of five draws may be the most, if no other answer has as many: a vote needs no "
        "majority",
        "the most are enough",
        **near,
    )
    t.close(
        wins(3, [0.4, 0.3, 0.3]),
        0.4**3 + 3 * 0.4**2 * 0.6 + 6 * 0.4 * 0.3 * 0.3 / 3,
        "where three answers came once each, the right one wins with 1/3",
        "a tie of three is won by a third",
        **near,
    )
    t.equal(
        [helps(0.6, [0.4]), helps(0.4, [0.6])],
        [True, False],
        "of two answers the likelier one gains by a vote, and the other loses",
        "the likelier one of two gains",
    )
    t.equal(
        [helps(0.5, [0.5]), helps(0.2, [0.2] * 4), helps(1.0, [])],
        [False, False, False],
        "answers that are equally likely gain nothing by a vote, and 1.0 is not better than 1.0. A "
        "rounding may say so: ask for more than 1e-9",
        "equal ones gain nothing",
    )
    t.equal(
        [helps(0.3, [0.14] * 5), helps(0.4, [0.45, 0.15]), helps(0.3, [0.5, 0.2])],
        [True, True, False],
        "0.3 beats five answers of 0.14, so a half is not needed. Against 0.45 and 0.15, 0.4 "
        "becomes 0.417: the rare answer loses to both. Against 0.5 and 0.2, 0.3 becomes 0.219",
        "a vote needs no half",
    )
    found = examples()
    fine = isinstance(found, list | tuple) and len(found) == 2
    t(
        fine and all(2 <= len(p) <= 6 and min(p) >= 0 and abs(sum(p) - 1) < 1e-9 for p in found),
        "return two lists, each with two to six probabilities that sum to 1",
        "two lists of probabilities",
    )
    if fine:
        pairs = [(p, torch.tensor(rest, dtype=torch.float64)) for p, *rest in found]
        (low, _), (high, _) = pairs
        after = [vote(9, p, rest) for p, rest in pairs]
        t(
            low <= 0.3 and after[0] > low + 1e-9,
            f"first: {low:.3g} becomes {after[0]:.3g} by a vote of 9. It may be 0.3 at most and "
            "has to rise: the wrong answers have to be many, and each of them rarer",
            "0.3 or less can win",
        )
        t(
            high >= 0.4 and after[1] < high - 1e-9,
            f"second: {high:.3g} becomes {after[1]:.3g} by a vote of 9. It has to be 0.4 at least "
            "and to fall: one wrong answer has to be likelier",
            "0.4 or more can lose",
        )


def check_5(t, token_loss, gradient, expected):
    """50.5 Another program draws"""

    def logs(*rows):
        return torch.tensor(rows, dtype=torch.float64).log()

    def slopes(log_p, log_q, advantages, cap):
        leaf = log_p.clone().requires_grad_()
        loss = token_loss(leaf, log_q, torch.tensor(advantages, dtype=torch.float64), cap)
        return torch.autograd.grad(loss, leaf)[0]

    near = {"relative": 1e-6, "absolute": 1e-9}
    p, q = logs([0.5, 0.2]), logs([0.25, 0.4])
    one = torch.ones(1, dtype=torch.float64)
    t.close(
        token_loss(p, p, 2 * one, 1.0),
        -2 * p.sum(),
        "where both programs agree all weights are 1, and the loss is −A Σ ln p: the sum over both "
        "tokens, with a minus sign, as a loss is made small",
        "who draws and who learns agree",
        **near,
    )
    t.close(
        token_loss(p[:, :1], q[:, :1], one, 2.0),
        -2 * p[0, 0],
        "p is 0.5 and q 0.25: the sampler draws this token half as often as the learner would, so "
        "each draw counts twice, p / q. You may have q / p",
        "what is drawn too rarely counts more",
        **near,
    )
    t.close(
        token_loss(p.T, q.T, one.expand(2), 1.5),
        -(1.5 * p[0, 0] + 0.5 * p[0, 1]) / 2,
        "two answers of a token each: the cap of 1.5 makes 1.5 of the weight 2 and leaves 0.5 as "
        "it is. Cut is above, where one draw would speak for many, and not below",
        "weights are cut above",
        **near,
    )
    t.close(
        token_loss(p, q, one, 1e9),
        -(2 * p[0, 0] + 0.5 * p[0, 1]),
        "an answer of two tokens, with the ratios 2 and 0.5: each token has its own weight. The "
        "product over the answer is 1 here, and the longer an answer, the wilder it becomes",
        "each token has its own weight",
        **near,
    )
    t.close(
        slopes(p, q, [1.0], 1e9),
        torch.tensor([[-2.0, -0.5]], dtype=torch.float64),
        "for ln p of a token the gradient is −w A. If the weight has a gradient of its own, "
        "−w A (1 + ln p) comes out: detach it",
        "no gradient flows through a weight",
        **near,
    )
    t.close(
        slopes(torch.cat([p, q]), torch.cat([q, q]), [1.0, -3.0], 1.5),
        torch.tensor([[-0.75, -0.25], [1.5, 1.5]], dtype=torch.float64),
        "the loss is the mean over the answers of sums over their tokens, each with the advantage "
        "of its own answer: two answers, so halves",
        "mean over answers, sum over tokens",
        **near,
    )
    generator = torch.Generator().manual_seed(5)
    theta, apart = (torch.randn(2, 3, generator=generator, dtype=torch.float64) for _ in "pq")
    theta_q = theta + apart / 2
    drawn = torch.tensor([[0, 2], [1, 1], [0, 0]])
    paid = torch.tensor([1.0, -0.5, 0.7], dtype=torch.float64)
    ratio = (theta.log_softmax(1) - theta_q.log_softmax(1)).exp()
    by_hand = torch.zeros(2, 3, dtype=torch.float64)
    for answer, advantage in zip(drawn.tolist(), paid.tolist(), strict=True):
        for place, token in enumerate(answer):
            weight = advantage * min(ratio[place, token].item(), 1.2) / 3
            by_hand[place] += weight * theta[place].softmax(0)
            by_hand[place, token] -= weight
    t.close(
        gradient(theta, theta_q, drawn, paid, 1.2),
        by_hand,
        "a token with the weight w adds w A / B times p − 1 to the gradient of its own logit, and "
        "times p to those of the others at its place",
        "the gradient for the logits",
        **near,
    )
    rewards = torch.randn(3, generator=generator, dtype=torch.float64)
    chances = theta[0].softmax(0)
    t.close(
        expected(theta[:1], theta_q[:1], rewards, 1e9),
        (-chances * (rewards - chances @ rewards))[None],
        "one token, and no cap: draws of q with the weight p / q are worth draws of p, so this is "
        "the gradient of −Σ p · reward. Each answer comes with the probability that q gives it",
        "with weights the sampler's draws will do",
        **near,
    )
    table = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    q_both = theta_q[0].softmax(0)[:, None] * theta_q[1].softmax(0)
    right = torch.zeros(2, 3, dtype=torch.float64)
    for place in (0, 1):
        pull = (q_both * table).sum(1 - place) * ratio[place].clamp(max=1.1)
        right[place] = pull.sum() * theta[place].softmax(0) - pull
    t.close(
        expected(theta, theta_q, table, 1.1),
        right,
        "two tokens: all nine answers, each with the probability of both its tokens under q",
        "all answers of two tokens",
        **near,
    )


def check_6(t, step, run, conclusion, *, start):
    """50.6 A coin as the reward"""

    def table(*rows):
        return torch.tensor(rows, dtype=torch.float64)

    near = {"relative": 1e-6, "absolute": 1e-9}
    logits = table([0.0, 1.0, 2.0], [1.0, 1.0, 0.0])
    kept = logits.clone()
    drawn = torch.tensor([[0, 0, 2, 1], [2, 2, 2, 2]])
    t.close(
        step(logits, drawn, torch.ones(2, 4, dtype=torch.float64), 0.5),
        kept,
        "rewards that are all equal say nothing, and no logit moves. Without their mean taken off, "
        "rewards of 1 would push up whatever was drawn",
        "equal rewards move nothing",
        **near,
    )
    root = 3**0.5
    t.close(
        step(logits, drawn, table([0, 0, 1, 0], [0, 0, 0, 0]), 0.5),
        kept + table([-2 / root, -1 / root, root], [0, 0, 0]) / 8,
        "the advantages are −0.577, −0.577, 1.732 and −0.577, each of which adds 0.5 / 4 of itself "
        "at the place of its answer: the first answer was drawn twice, and gets it twice",
        "a step, draw by draw",
        **near,
    )
    t.close(
        logits,
        kept,
        "the table that was given has changed: work on a new one",
        "the given table stays as it is",
        **near,
    )
    t.close(
        step(logits, drawn, table([0, 0, 0, 0], [1, 0, 0, 1]), 0.5),
        kept,
        "an answer that was drawn four times and was paid in two of them gains and loses as much",
        "one answer, paid and unpaid",
        **near,
    )
    first, right = start()
    found, entropies = run(first.clone(), right, "right", 3, 8, 1.0, 0)
    t.equal(
        [len(found), len(entropies)],
        [4, 4],
        "three steps have four points: the start, and one after each step",
        "curves with their start",
    )
    t.close(
        [found[0], entropies[0]],
        [0.8 / 3, 1.402761],
        "before the first step p is 0.5, 0.2 and 0.1, 0.267 on average, and the entropy −Σ p ln p "
        "is 1.403 nats",
        "where they start",
        relative=1e-5,
    )
    coins = [run(first.clone(), right, "coin", 5, 8, 1.0, 1)[1] for _ in range(2)]
    others = [run(first.clone(), right, "right", 5, 8, 1.0, seed)[1] for seed in (1, 2)]
    t(
        [*coins[0]] == [*coins[1]] and [*others[0]] != [*others[1]],
        "the same seed has to give the same run, and another seed another one: make a generator of "
        "the seed, and draw everything from it",
        "a run hangs on its seed",
    )
    ends = [[x[-1] for x in run(first.clone(), right, "right", 60, 8, 2.0, s)] for s in range(3)]
    t(
        all(p > 0.9 and entropy < 0.4 for p, entropy in ends),
        "after 60 steps with the right reward the right answers should have more than 0.9, and "
        "the entropy should be below 0.4, with any seed. If they lose, a sign is turned; if they "
        "stay behind, the same draws may come in every step",
        "a checker teaches what it pays for",
    )
    far = first.clone()
    far[1, right[1]] = -40.0
    end = run(far, right, "right", 60, 8, 2.0, 0)[0][-1]
    t(
        0.55 < end < 0.7,
        "a right answer that is never drawn is never paid for: two of three questions are learnt, "
        "and the third stays as it is, so the mean ends near 0.66",
        "what is never drawn is not learnt",
    )
    ends = [[x[-1] for x in run(first.clone(), right, "coin", 60, 8, 2.0, s)] for s in range(8)]
    mean, entropy = (sum(x) / len(x) for x in zip(*ends, strict=True))
    t(
        mean < 0.65,
        "under a coin the right answers gain far too much on average: the coin must not look at "
        "what an answer says",
        "a coin does not know what is right",
    )
    t(
        entropy < entropies[0] - 0.3,
        "under a coin the entropy should fall by more than 0.3 on average. If one throw pays the "
        "whole group, all its rewards are equal and nothing moves: each answer has its own",
        "a coin moves the policy all the same",
    )
    said = conclusion()
    t.equal(
        said["right"],
        ["up", "down"],
        "with the right reward the right answers gain and the entropy falls, in every run",
        "with the right reward",
    )
    t.equal(
        said["coin"],
        ["either", "down"],
        "under a coin the entropy falls in every run, but the right answers gain in some and lose "
        "in others. One run, or two, would have told you something else: look at all 20",
        "and with a coin",
    )
