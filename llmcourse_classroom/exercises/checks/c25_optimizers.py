"""Checks of exercises 25: Optimizers compared."""

import math

import torch


def check_1(t, adamw_step):
    """25.1 One step of AdamW"""

    def one_step(w, g, lr=0.1, eps=1e-8, decay=0.0):
        w, g, m, v = (torch.tensor([x], dtype=torch.float64) for x in (w, g, 0, 0))
        return adamw_step(w, g, m, v, 1, lr, 0.9, 0.999, eps, decay)

    def near(x, y):
        return math.isclose(x, y, rel_tol=1e-6)

    answer = one_step(2, 3)
    t(
        isinstance(answer, list | tuple)
        and len(answer) == 3
        and all(isinstance(x, torch.Tensor) and x.shape == (1,) for x in answer),
        "return three tensors, w, m and v, each of the shape that it had",
        "three tensors",
    )
    w, m, v = (x.item() for x in answer)
    t(w < 2, "the gradient is 3, and your weight did not go down: the sign", "downhill")
    t(
        not near(w, 2 - 0.1 * math.sqrt(10)),
        "you did not correct for the start at 0: 0.3 / sqrt(0.009) is 3.16, and the first step "
        "is 3.16 times too long",
        "the means are corrected",
    )
    t(
        not (near(m, 3) and near(w, 1.9)),
        "you return the corrected means: the next step would correct them once more. m and v are "
        "kept as they are",
        "m and v are kept uncorrected",
    )
    t.close(
        [m, v],
        [0.3, 0.009],
        "from 0, and with the gradient 3, m becomes 0.1 x 3 and v becomes 0.001 x 9",
        "m and v after the first step",
    )
    t.close(
        w,
        1.9,
        "the first step is one learning rate long, whatever the gradient: 0.3 / (1 - 0.9) is 3, "
        "0.009 / (1 - 0.999) is 9, and the root of 9 is 3",
        "the first step is one learning rate long",
    )
    # With eps = 1, a gradient of 3 and a rate of 1, the step is 3 / (3 + 1).
    length = 2 - one_step(2, 3, lr=1, eps=1)[0].item()
    t(
        not near(length, 3 / math.sqrt(10)),
        "you add eps under the root: it is added to the root",
        "eps is outside the root",
    )
    t(
        not near(length, 0.3 * math.sqrt(0.001) / (0.1 * (math.sqrt(0.009) + 1))),
        "you add eps to the root of v, and correct afterwards: then the correction changes eps as "
        "well, 32 times in the first step",
        "v is corrected before eps is added",
    )
    t.close(length, 0.75, "with eps = 1 and a gradient of 3 the step is 3 / (3 + 1)", "eps counts")
    # Without a gradient only the decay is left.
    left = one_step(2, 0, decay=0.1)[0].item()
    t(
        not near(left, 1.9),
        "your decay went into the gradient: there it is divided by its own size, and becomes a "
        "step of one learning rate",
        "the decay is not in the gradient",
    )
    t(
        not near(left, 1.8),
        "your decay takes away a tenth of the weight: its share is lr x decay, 0.01",
        "the share is lr times decay",
    )
    t.close(left, 1.98, "without a gradient, 2 x (1 - 0.1 x 0.1) is left", "decay alone")
    t.close(
        one_step(2, 3, decay=0.5)[0].item(),
        1.8,
        "2 x 0.95 - 0.1: the weight decays first, and then it moves. What it moves by does not "
        "decay in this step",
        "first the decay, then the move",
    )
    draw = torch.Generator().manual_seed(0)
    mine = [torch.randn(3, 2, generator=draw, dtype=torch.float64)]
    mine += [torch.zeros_like(mine[0]), torch.zeros_like(mine[0])]
    theirs = mine[0].clone().requires_grad_()
    settings = {"lr": 0.03, "betas": (0.9, 0.95), "eps": 1e-3, "weight_decay": 0.1}
    adam = torch.optim.AdamW([theirs], **settings)
    for number in (1, 2, 3):
        theirs.grad = torch.randn(3, 2, generator=draw, dtype=torch.float64)
        mine = adamw_step(mine[0], theirs.grad, *mine[1:], number, 0.03, 0.9, 0.95, 1e-3, 0.1)
        adam.step()
    state = adam.state[theirs]
    t.close(
        list(mine),
        [theirs.detach(), state["exp_avg"], state["exp_avg_sq"]],
        "after three steps with other gradients you are elsewhere than torch's AdamW",
        "three steps, as torch's AdamW",
        relative=1e-9,
    )
    given = [torch.ones(2, dtype=torch.float64) for _ in range(4)]
    adamw_step(*given, 5, 0.1, 0.9, 0.999, 1e-8, 0.1)
    t(
        all(torch.equal(x, torch.ones(2, dtype=torch.float64)) for x in given),
        "you changed a tensor that was given: `*=` and names that end in `_` work in place",
        "the tensors that are given stay as they are",
    )


def check_2(t, corrected_means):
    """25.2 A mean that began at 0"""
    answer = corrected_means([3.0, 3.0, 3.0], [0.9, 0.9, 0.9])
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return a list with a corrected mean for every step",
        "a mean for every step",
    )
    same = [float(x) for x in answer]
    t(
        not math.isclose(same[0], 0.3),
        "you did not correct: after the first step the weight of the only number is 0.1, and the "
        "mean a tenth of it",
        "the first mean is the first number",
    )
    t(
        not math.isclose(same[1], 5.7),
        "you divide by 1 - beta in every step: after two steps the weights add up to 0.1 + 0.09",
        "the weights add up to more in every step",
    )
    t(
        not math.isclose(same[1], 3 / 0.19),
        "you carry the corrected mean on to the next step: correct a copy, and go on with the "
        "mean itself",
        "the mean itself is carried on",
    )
    t.close(
        same,
        [3.0, 3.0, 3.0],
        "the mean of a constant is that constant, from the first step on",
        "a constant has itself as its mean",
        relative=1e-9,
    )
    later = float(corrected_means([1.0, 4.0], [0.75, 0.75])[1])
    t(
        not math.isclose(later, 2.5),
        "you took the plain mean: the second number has the weight 0.25, and the first only three "
        "quarters of that",
        "later numbers weigh more",
    )
    t(
        not math.isclose(later, 1.75),
        "you began with the first number in place of 0: it then has three times the weight of the "
        "second, though it is older",
        "the mean begins at 0",
    )
    t.close(
        later,
        19 / 7,
        "the weights are 0.1875 and 0.25, which add up to 0.4375, and 1.1875 / 0.4375 is 19/7",
        "weights of 0.1875 and 0.25",
        relative=1e-9,
    )
    other = float(corrected_means([1.0, 4.0], [0.5, 0.75])[1])
    t(
        not math.isclose(other, 1.375 / (1 - 0.75**2)),
        "you take the latest beta to the power of t: the 0 was multiplied by 0.5 and then by 0.75, "
        "not twice by 0.75",
        "every step has its own beta",
    )
    t(
        not math.isclose(other, 1.375 / (1 - 0.5**2)),
        "you take the first beta to the power of t: the 0 was multiplied by 0.5 and then by 0.75, "
        "not twice by 0.5",
        "the first beta does not count for all",
    )
    t.close(
        other,
        2.2,
        "the weights are 0.375 and 0.25, which add up to 0.625, and 1.375 / 0.625 is 2.2",
        "betas of 0.5 and 0.75",
        relative=1e-9,
    )
    rising = [1 - number**-0.8 for number in (1, 2, 3)]  # the first is 0
    t.close(
        [float(x) for x in corrected_means([1.0, 4.0, 9.0], rising)],
        [1.0, 2.7230475, 5.3295122],
        "with Adafactor's betas the first is 0, so the 0 at the start is forgotten at once and "
        "nothing is left to correct",
        "Adafactor's betas need no correction",
    )
    t.equal(corrected_means([], []), [], "no step, no mean", "no step")


def check_3(t, resting_place):
    """25.3 Where a weight comes to rest"""
    four = [("SGD", False), ("SGD", True), ("Adam", False), ("Adam", True)]
    inside, sgd_beside, adam_inside, adamw = (resting_place(10, 0.25, 0.25, *x) for x in four)
    t(
        not math.isclose(inside, 8),
        "you left the curvature out: in a flat loss the gradient is weak, and decay wins sooner. "
        "At rest c (w - a) + decay w = 0",
        "the curvature counts for SGD",
    )
    t(
        not math.isclose(inside, 7.5),
        "you took the decay as the share that is lost in all: it is lost in every step, and the "
        "gradient brings something back in every step",
        "decay is no share of the goal",
    )
    t.close(
        inside,
        5.0,
        "goal 10, curvature and decay 0.25: the two pulls are equal half-way",
        "SGD with the decay inside",
        relative=1e-9,
    )
    t.close(
        sgd_beside,
        5.0,
        "for SGD it is the same: a weight that loses lr x decay x w, and one that has decay x w "
        "in its gradient, end in one place",
        "SGD with the decay beside, the same",
        relative=1e-9,
    )
    t(
        not math.isclose(adam_inside, 4),
        "Adam with the decay inside sees one gradient, c (w - a) + decay w. While it is not 0, "
        "Adam moves: no limit at 1 / decay",
        "inside, Adam has no wall",
    )
    t.close(
        adam_inside,
        5.0,
        "Adam with the decay inside rests where its gradient is 0, and the decay is part of it: "
        "where SGD rests",
        "Adam with the decay inside, the same",
        relative=1e-9,
    )
    t(
        not math.isclose(adamw, 5),
        "you let AdamW rest where SGD does: but its step is as long for small gradients as for "
        "large ones, so it is not the size of the gradient that balances the decay",
        "AdamW rests elsewhere",
    )
    t(
        not math.isclose(adamw, 10),
        "AdamW at its goal of 10: the decay would pull 2.5 learning rates per step, and Adam can "
        "pull 1 at most",
        "AdamW cannot hold every goal",
    )
    near = resting_place(3, 0.25, 0.25, "Adam", True)
    t(
        not math.isclose(near, 2.4) and not math.isclose(near, 2.25),
        "your AdamW shrinks every weight by a share: at 2.9 Adam pulls 1 learning rate towards 3, "
        "and the decay 0.725 away from it. Adam is the stronger, up to the goal",
        "AdamW does not shrink all alike",
    )
    t(
        not math.isclose(near, 2.75),
        "your AdamW takes the decay off the goal: at 2.9 the decay pulls 0.725 learning rates, and "
        "Adam 1, so the weight goes on to 3",
        "AdamW takes nothing off a near goal",
    )
    t.close(
        [near, adamw],
        [3.0, 4.0],
        "decay 0.25: at 4 it pulls as strongly as Adam can. A goal of 3 is reached, and on the way "
        "to 10 the weight stops at 4",
        "AdamW reaches a near goal, and stops at 1 / decay before a far one",
        relative=1e-9,
    )
    t.close(
        [resting_place(goal, 2, 0.25, "Adam", True) for goal in (-3, -10, 0)],
        [-3.0, -4.0, 0.0],
        "a goal below 0 has its wall at -1 / decay",
        "goals below 0",
        relative=1e-9,
        absolute=1e-9,
    )
    t.close(
        [float(resting_place(10, 2, 0, *x)) for x in four],
        [10.0] * 4,
        "without decay nothing pulls away from the goal",
        "without decay",
        relative=1e-9,
    )
    # What torch does: four goals, 1,000 steps, and a rate that falls to 0.
    goals = torch.tensor([-9.0, -2.0, 3.0, 12.0])
    for name, make, beside in (("Adam", "Adam", False), ("AdamW", "AdamW", True)):
        weights = torch.zeros(4, requires_grad=True)
        runner = getattr(torch.optim, make)([weights], betas=(0.9, 0.95), weight_decay=0.2)
        for number in range(1_000):
            runner.param_groups[0]["lr"] = 0.1 * (1 - number / 1_000)
            weights.grad = 0.3 * (weights.detach() - goals)
            runner.step()
        t.close(
            [float(resting_place(goal, 0.3, 0.2, "Adam", beside)) for goal in goals.tolist()],
            weights.tolist(),
            f"goals -9, -2, 3 and 12, curvature 0.3, decay 0.2: torch's {name} rests elsewhere",
            f"torch's {name} rests there, too",
            absolute=0.02,
        )


def check_4(t, clip):
    """25.4 Clip all gradients together"""

    def tensors(*values):
        return [torch.tensor(value, dtype=torch.float64) for value in values]

    answer = clip(tensors([3.0], [4.0]), 1)
    t(
        isinstance(answer, list | tuple)
        and len(answer) == 2
        and all(isinstance(g, torch.Tensor) and g.shape == (1,) for g in answer),
        "return a list with one tensor for each tensor that is given, of the same shape",
        "a list of tensors",
    )
    first, second = (g.item() for g in answer)
    t(
        not (math.isclose(first, 1) and math.isclose(second, 1)),
        "each tensor, or each entry, was clipped alone: 3 and 4 became equal, so the direction "
        "has changed. All gradients are multiplied by one number",
        "the direction stays",
    )
    t(
        not math.isclose(first, 3 / 7),
        "you added norms: 3 and 4 are at right angles, and their joint norm is 5. Add squares",
        "squares are added, not norms",
    )
    t(
        not math.isclose(first, 3 / 25),
        "you divided by the sum of the squares, 25: the norm is its root",
        "the root is taken",
    )
    t(
        not math.isclose(first, 3 / 4),
        "you took the largest of the tensors' norms, 4: the joint norm of 3 and 4 is 5",
        "all tensors count, not the largest alone",
    )
    t.close(
        [first, second],
        [0.6, 0.8],
        "3 and 4 have the joint norm 5, and with the bound 1 become 0.6 and 0.8",
        "3 and 4 become 0.6 and 0.8",
        relative=1e-9,
    )
    t.close(
        [g.item() for g in clip(tensors([0.3], [0.4]), 1)],
        [0.3, 0.4],
        "a norm of 0.5 is not above 1: such gradients stay, and are not made longer",
        "short gradients stay as they are",
        relative=1e-9,
    )
    given = tensors([[2.0, 4.0]], 4.0, [])
    answer = clip(given, 3)
    t.close(
        answer,
        tensors([[1.0, 2.0]], 2.0, []),
        "2, 4 and 4 have the norm 6: with the bound 3 all are halved, whatever their shapes",
        "tensors of all shapes",
        relative=1e-9,
    )
    t.equal(
        [g.tolist() for g in given],
        [[[2.0, 4.0]], 4.0, []],
        "you changed the tensors that were given: `mul_` and `*=` work in place",
        "the tensors that are given stay as they are",
    )
    t.equal(
        [g.tolist() for g in clip(tensors([0.0, 0.0], [0.0]), 1)],
        [[0.0, 0.0], [0.0]],
        "gradients that are all 0 stay 0: nothing is divided by their norm",
        "gradients of 0",
    )


def check_5(t, race):
    """25.5 Change something and see: who feels the turn?"""
    answer = race([0.5], 1, 0)
    t(
        isinstance(answer, list | tuple)
        and len(answer) == 2
        and isinstance(answer[0], dict)
        and sorted(answer[0]) == ["Adam", "SGD", "momentum"],
        "return two: a dictionary with the three names, and a list",
        "results and a list",
    )
    # On a round bowl with a rate of 0.5, each step of SGD halves the distance.
    halved = list(answer[0]["SGD"])
    t(
        halved[0] != 6,
        "you return the last step after which the ball was outside, or the ball was looked at "
        "before it moved: sqrt(5) / 2^7 is the first distance below 0.02",
        "the step after which it is inside",
    )
    t.equal(
        halved,
        [7, 7],
        "on a round bowl with a rate of 0.5 each step halves the distance: sqrt(5) / 2^7 = 0.017",
        "7 halvings",
    )
    t.equal(
        list(race([0.05], 50, 0)[0]["SGD"]),
        [401, 401],
        "a rate of 0.05 is above the critical 2/50: the ball runs away, and never arrives",
        "a ball that runs away",
    )
    upright, turned = race([0.03], 50, 45)[0]["SGD"]
    t(
        turned == upright,
        "SGD's path turns with the bowl, and yours needs another number of steps: the start has to "
        "turn as well, and so does the gradient",
        "SGD does not notice the turn",
    )
    t(
        race([0.3], 1, 0)[0]["momentum"][0] != 19,
        "you stopped when the ball was near for the first time: momentum rolls past the goal and "
        "leaves again. Near for good is what counts",
        "near for good",
    )
    t.equal(
        list(race([0.005], 50, 45)[0]["momentum"]),
        [92, 92],
        "momentum with the rate 0.005 and curvature 50: m = 0.9 m + g, and the weight moves by "
        "rate x m",
        "momentum",
    )
    found = list(race([0.08], 50, 45)[0]["Adam"])
    t(
        found[0] != 91,
        "your Adam is not corrected for the start at 0: its first steps are too short or too long",
        "Adam's means are corrected",
    )
    t.equal(
        found,
        [90, 144],
        "Adam with the rate 0.08 and curvature 50, upright and turned by 45 degrees",
        "Adam",
    )
    t.equal(
        list(race([0.2, 0.3], 50, 45)[0]["Adam"]),
        [227, 182],
        "with the rates 0.2 and 0.3, Adam is best with 0.2 on the upright bowl and with 0.3 on the "
        "turned one: each bowl has its own best rate",
        "a rate of its own for each bowl",
    )
    results, slower = race([0.001 * 10 ** (k / 8) for k in range(25)], 50, 45)
    t(
        list(slower) != ["SGD", "momentum"],
        "you list those that the turn does not make slower",
        "the list names who is slower",
    )
    t.equal(
        [list(results["SGD"]), list(results["momentum"]), list(results["Adam"]), list(slower)],
        [[144, 144], [83, 83], [89, 134], ["Adam"]],
        "with 25 rates from 0.001 to 1 and a curvature of 50, the turn makes Adam slower and "
        "leaves SGD and momentum as they are",
        "a stretched bowl at 45 degrees: Adam alone feels the turn",
    )
