"""Checks of exercises 02: one training step by hand."""

import torch
import torch.nn.functional as F


def check_1(t, sgd_step):
    """02.1 The step for another target"""
    five = torch.tensor([3, 2, 1, 4, 10], dtype=torch.float64).log()
    read = torch.tensor([2, -1, 0], dtype=torch.float64)
    before, slopes, after = sgd_step(five, read, 2, 0.1)
    t(
        abs(slopes[2] - 0.95) > 1e-6,
        "you took target minus probability: the slope is p − y, and it is negative for the word "
        "that came, since the loss falls when that logit rises",
        "the loss falls when the logit of the target rises",
    )
    t(
        all(slope != 0 for slope in slopes),
        "you gave a slope to the target alone: each wrong word has one too, its probability",
        "every word has a slope",
    )
    t.close(
        slopes,
        torch.tensor([0.15, 0.10, -0.95, 0.20, 0.50], dtype=torch.float64),
        "1 is subtracted for the word that came, which is sat here, and for no other",
        "the slopes are 0.15, 0.10, −0.95, 0.20, 0.50",
    )
    t.close(
        before,
        2.9957322735539913,
        "the loss is that of the word that came, before the step: −ln 0.05 = 2.9957",
        "the loss before the step is −ln 0.05",
    )
    t(
        abs(after.sum() - 1) < 1e-9,
        "what you returned for after the step does not add up to 1: these are logits, not "
        "probabilities, so take their softmax",
        "the probabilities after the step add up to 1",
    )
    t(
        after[2] > 0.05,
        "you stepped uphill: weights move against their slopes, so sat becomes more probable",
        "the word that came has become more probable",
    )
    t.close(
        after,
        torch.tensor(
            [0.1572352334, 0.1074771082, 0.0908428143, 0.2044707755, 0.4399740686],
            dtype=torch.float64,
        ),
        "each logit moves by η × h · h × slope, and h · h is 5 here: a weight moves by η × slope × "
        "its input, and acts on the logit through that input once more",
        "each logit moves by η × h · h × slope: sat rises to 0.0908",
    )


def check_2(t, head_gradients):
    """02.2 The gradients of a head"""
    random_numbers = torch.Generator().manual_seed(2)
    read = torch.randn(4, 3, generator=random_numbers, dtype=torch.float64).requires_grad_()
    table = torch.randn(5, 3, generator=random_numbers, dtype=torch.float64).requires_grad_()
    came = torch.tensor([3, 4, 3, 0])
    logits = read @ table.T
    F.cross_entropy(logits, came).backward()
    by_table, by_read = head_gradients(
        logits.detach().softmax(-1), came, read.detach(), table.detach()
    )
    t(
        by_table.shape == (5, 3),
        "you multiplied the other way round: the gradient of W has a row for each word and a "
        "column for each entry of h, as W has",
        "the gradient of W has the shape of W",
    )
    five = torch.tensor([3, 2, 1, 4, 10], dtype=torch.float64).log()
    of_five = torch.stack([five / 2, 0 * five, 0 * five], dim=1)  # times (2, -1, 0): five
    step = head_gradients(
        five.softmax(-1).reshape(1, 5),
        torch.tensor([3]),
        torch.tensor([[2.0, -1.0, 0.0]], dtype=torch.float64),
        of_five,
    )[0]
    t(
        abs(step[3, 0] - 1.6) > 1e-6,
        "you turned the sign: the slope of a logit is p − y, and it is negative for the word that "
        "came",
        "the slope of a logit is p − y",
    )
    t(
        by_table.sum(0).abs().max() < 1e-9,
        "the slopes of a token do not add up to 0: the 1 is subtracted in each row at its own "
        "target only",
        "the slopes of each token add up to 0",
    )
    t.close(
        step,
        torch.tensor(
            [[0.3, -0.15, 0], [0.2, -0.1, 0], [0.1, -0.05, 0], [-1.6, 0.8, 0], [1.0, -0.5, 0]],
            dtype=torch.float64,
        ),
        "you gave the weights the slopes of their logits: the slope of a weight is that of its "
        "logit times its input",
        "the chapter's step: the row of on is −1.60, 0.80, 0",
    )
    t(
        abs(by_table[0, 0] - 4 * table.grad[0, 0]) > 1e-6,
        "you added the four gradients: the loss is a mean, so each token has a share of 1/4",
        "each token has its share of the gradient of W",
    )
    t.close(
        by_table,
        table.grad,
        "you averaged slopes and h and then multiplied: the gradient is the mean of the outer "
        "products, and a mean of products is not the product of the means",
        "the gradient of W is that of autograd",
    )
    t(
        by_read.shape == (4, 3),
        "you added over the tokens: each has its own h, and its own row in the message",
        "each token has its own row in the message to the layers below",
    )
    t.close(
        by_read,
        read.grad,
        "in the mean loss the h of one token has a share of 1/4 of its own slope too",
        "the gradient of h is that of autograd",
    )


def check_3(t, head_with_slope):
    """02.3 Logits or weights?"""
    five = torch.tensor([3, 2, 1, 4, 10], dtype=torch.float64).log()

    def slope_and_logits(wanted):
        """Return, by autograd, the slope of the first weight of on, and the logits."""
        table, read = head_with_slope(five, 3, wanted)
        table = table.clone().requires_grad_()
        logits = table @ read
        F.cross_entropy(logits, torch.tensor(3)).backward()
        return table.grad[3, 0].item(), logits.detach()

    found, logits = slope_and_logits(2.4)
    t(
        abs(found + 0.8) > 1e-6,
        "your first weight of on has the slope of its logit, −0.80: that is so only where its "
        "input is exactly 1",
        "the slope of a weight is not the slope of its logit",
    )
    t(
        found > 0,
        "you turned the sign: the slope of the logit of on is negative, so a weight gets a "
        "positive slope from a negative input",
        "a negative input makes the slope of a weight of on positive",
    )
    t.close(
        logits,
        five,
        "your logits are others than before: when you choose h, choose W such that W h stays",
        "logits, probabilities and loss are as before",
    )
    t.close(
        found,
        2.4,
        "the slope of the weight is the slope of the logit, p − 1 = −0.80, times its input: that "
        "times your first input is not 2.4",
        "the first weight of on has the slope 2.4",
    )
    t.close(
        slope_and_logits(0.0)[1],
        five,
        "for a slope of 0 your W h is not the logits: with a single input, which is then 0, no W "
        "makes them. Give h another entry",
        "a slope of 0, with the same logits",
    )


def check_4(t, adam_weights):
    """02.4 Two steps of Adam"""
    steps = [torch.tensor([2.0, 0.01]).double(), torch.tensor([-1.0, 0.01]).double()]
    path = adam_weights(torch.ones(2, dtype=torch.float64), steps, 0.1)
    t.equal(
        len(path), 2, "one entry for each step, and not the last alone", "an entry for each step"
    )
    (first, second) = path[0].tolist(), path[1].tolist()
    t(
        first != second,
        "all entries of your list are the same tensor: you change it in place, so append a copy",
        "the list keeps the weights of every step",
    )
    t(
        first[0] < 1,
        "you stepped uphill: a weight moves against its gradient",
        "the weight moves against its gradient",
    )
    t(
        abs(first[0] - 0.9553) > 1e-3,
        "you left out the bias correction: m and v began at 0 and are too small in step 1",
        "the means are corrected for their start at 0",
    )
    t(
        abs(first[0] - 0.95) > 1e-3,
        "you divided by the corrected v itself: Adam divides by its root",
        "the step is divided by the root of v",
    )
    t.close(
        first,
        [0.9, 0.9],
        "in step 1 every weight moves by the learning rate, whatever the size of its gradient: "
        "each weight has its own v",
        "step 1 moves every weight by the learning rate",
        relative=1e-6,
    )
    t(
        abs(second[0] - 1.0) > 1e-3,
        "you began m and v anew in step 2: they are kept from step to step",
        "m and v are kept from step to step",
    )
    t.close(
        second,
        [0.8731632, 0.8],
        "in step 2 the correction divides m by 1 − 0.9² = 0.19 and v by 1 − 0.95² = 0.0975",
        "after step 2 the weight is at 0.8732: it has not turned round",
        relative=1e-6,
    )


def check_5(t, conclusions):
    """02.5 Ten times the loss"""
    start = torch.tensor([3, 2, 1, 4, 10], dtype=torch.float64).log()
    read = torch.tensor([2, -1, 0], dtype=torch.float64)
    sixteen = torch.tensor([2, 1, 0, 10, 3], dtype=torch.float64) / 16

    def trained(rate, factor=1, adam=False, num_steps=20):
        weights = (torch.outer(start, read) / 5).requires_grad_()
        settings = {"betas": (0.9, 0.95)} if adam else {}
        maker = torch.optim.Adam if adam else torch.optim.SGD
        optimizer = maker([weights], lr=rate, **settings)
        for _ in range(num_steps):
            optimizer.zero_grad()
            (factor * F.cross_entropy(weights @ read, sixteen)).backward()
            optimizer.step()
        return F.cross_entropy(weights.detach() @ read, sixteen).item()

    rates = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3]
    change, lowest = {}, {}
    for name, adam in (("SGD", False), ("Adam", True)):
        rows = [[trained(rate, factor, adam) for rate in rates] for factor in (1, 10)]
        first, tenfold = (rates[row.index(min(row))] for row in rows)
        change[name], lowest[name] = tenfold / first, min(rows[0])
    near = [n for n in (5, 10, 20, 50, 100, 200) if trained(0.3, num_steps=n) < 1.0408 + 0.01]
    said = conclusions()
    t.equal(
        sorted(said),
        ["Adam", "SGD", "lower", "steps"],
        "the findings are named SGD, Adam, lower and steps, no others",
        "four findings",
    )
    t.close(
        said["SGD"],
        change["SGD"],
        "SGD moves in proportion to the gradient: with ten times the gradient, which rate takes "
        "the same steps as before? Compare the two rows",
        "ten times the loss: SGD needs a tenth of the rate",
        relative=1e-6,
    )
    t.close(
        said["Adam"],
        change["Adam"],
        "Adam divides by the size of the gradient, so its two rows are the same: look again",
        "ten times the loss: Adam's best rate stays",
        relative=1e-6,
    )
    t.equal(
        said["lower"],
        min(lowest, key=lowest.get),
        "compare the lowest entries of the two rows with factor 1: on this batch SGD, at its best "
        "rate, ends a little lower",
        "on this small batch SGD ends a little lower",
    )
    t.equal(
        said["steps"],
        near[0],
        "the loss has to be below 1.0508 after the steps, and no smaller number of the list may do",
        "the last hundredth of a nat takes its time",
    )
