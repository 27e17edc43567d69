"""Hidden tests of the exercises of chapter 02."""

import torch
import torch.nn.functional as F

REST = torch.tensor([3.0, 2.0, 1.0, 4.0, 10.0], dtype=torch.float64).log()
"""The logits of the chapter."""
SHARES = torch.tensor([2.0, 1.0, 0.0, 10.0, 3.0], dtype=torch.float64) / 16


def normal(rng, *shape):
    """Return a float64 tensor of normal numbers."""
    seeded = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randn(*shape, generator=seeded, dtype=torch.float64)


def check_1(t, call, rng):
    """Any number of words and inputs, with a table of weights and autograd instead of formulas."""
    for num_words, width in ((2, 1), (5, 3), (9, 2), (40, 16)):
        table, h = normal(rng, num_words, width).requires_grad_(), normal(rng, width)
        target, rate = rng.randrange(num_words), rng.uniform(0.02, 0.6)
        logits = table @ h
        logits.retain_grad()
        loss = F.cross_entropy(logits, torch.tensor(target))
        loss.backward()
        moved = ((table.detach() - rate * table.grad) @ h).softmax(-1)
        before, slopes, after = call("sgd_step", logits.detach(), h, target, rate)
        case = f"{num_words} words, {width} inputs, target {target}, rate {rate:.3f}"
        t.close(before, loss.item(), f"the loss: {case}", relative=1e-9)
        t.close(slopes, logits.grad, f"the slopes: {case}", relative=1e-9)
        t.close(after, moved, f"the probabilities after the step: {case}", relative=1e-9)


def check_2(t, call, rng):
    """One token, many tokens, more words than inputs and the other way round."""
    for num_tokens, num_words, width in ((1, 5, 3), (2, 2, 2), (7, 3, 8), (16, 11, 4), (3, 2, 1)):
        h = normal(rng, num_tokens, width).requires_grad_()
        table = normal(rng, num_words, width).requires_grad_()
        targets = torch.tensor([rng.randrange(num_words) for _ in range(num_tokens)])
        logits = h @ table.T
        F.cross_entropy(logits, targets).backward()
        probabilities = logits.detach().softmax(-1)
        by_table, by_h = call("head_gradients", probabilities, targets, h.detach(), table.detach())
        case = f"{num_tokens} tokens, {num_words} words, {width} inputs"
        t.close(by_table, table.grad, f"the gradient of W: {case}", relative=1e-9)
        t.close(by_h, h.grad, f"the gradient of h: {case}", relative=1e-9)


def check_3(t, call, rng):
    """Any slope, among them 0, the slope of the logit itself and very small and large ones."""
    for wanted in (0.0, 1.0, -1.0, -0.8, 0.009, -1e-4, 250.0, rng.uniform(-5, 5), 0.0):
        logits = REST if wanted == -0.8 else normal(rng, rng.randrange(2, 12))
        target = 3 if wanted == -0.8 else rng.randrange(len(logits))
        table, h = call("head_with_slope", logits, target, wanted)
        case = f"slope {wanted:.4g} for word {target} of {len(logits)}"
        if not fit(table, h, len(logits)):
            t(False, f"W has a row for each word and a column for each entry of h: {case}")
            continue
        leaf = table.double().requires_grad_()
        made = leaf @ h.double()
        F.cross_entropy(made, torch.tensor(target)).backward()
        t.close(made.detach(), logits, f"W h is the logits: {case}", relative=1e-6)
        t.close(leaf.grad[target, 0], wanted, f"the slope: {case}", relative=1e-6, absolute=1e-9)


def fit(table, h, num_words):
    """Say whether an answer is a table of weights and a vector that can be multiplied."""
    both = isinstance(table, torch.Tensor) and isinstance(h, torch.Tensor)
    return both and h.ndim == 1 and h.numel() > 0 and table.shape == (num_words, h.numel())


def ends(logits, h, shares):
    """Return the rate of the lowest loss and that at which the loss is back, by halving."""
    slopes = logits.softmax(-1) - shares
    way = (h @ h) * slopes

    def loss(rate):
        return F.cross_entropy(logits - rate * way, shares).item()

    def falls(rate):
        return (((logits - rate * way).softmax(-1) - shares) @ slopes).item() > 0

    lowest = halved(falls, 0.0)
    return lowest, halved(lambda rate: loss(rate) < loss(0.0), lowest)


def halved(holds, low):
    """Return where a condition that holds at `low` ceases to hold."""
    high = 2 * low + 1
    while holds(high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def parabola(logits, h, shares):
    """Return the rate at which the parabola turns."""
    p = logits.softmax(-1)
    slopes = p - shares
    curvature = (p * slopes.square()).sum() - (p * slopes).sum().square()
    return (slopes.square().sum() / ((h @ h) * curvature)).item()


def check_4(t, call, rng):
    """Rates on each side of both ends, also between the true ends and those of the parabola."""
    cases = [(REST, normal(rng, 3), SHARES)]
    for num_words in (3, 6, 20):
        shares = torch.tensor([rng.random() + 0.05 for _ in range(num_words)], dtype=torch.float64)
        cases.append((normal(rng, num_words), normal(rng, 4), shares / shares.sum()))
    for logits, h, shares in cases:
        lowest, back = ends(logits, h, shares)
        turn = parabola(logits, h, shares)
        middle = (lowest + back) / 2
        rates = [lowest * 0.1, lowest * 0.9, middle, back * 1.1, back * 3, lowest * 0.6]
        rates += [(2 * lowest + turn) / 3, (2 * back + 2 * turn) / 3]
        rates = [r for r in rates if min(abs(r / lowest - 1), abs(r / back - 1)) > 0.01]
        rng.shuffle(rates)
        right = ["before" if r < lowest else "past" if r < back else "worse" for r in rates]
        answer = call("judge_steps", logits, h, shares, rates)
        t.equal(answer, right, f"lowest at {lowest:.3f}, back at {back:.3f}: {rates}")
    certain = F.one_hot(torch.tensor(rng.randrange(5)), 5).double()
    h = torch.tensor([1.0, -0.5], dtype=torch.float64)
    answer = call("judge_steps", REST, h, certain, [0.05, 3.0, 0.7])
    t.equal(answer, ["before"] * 3, "one word always comes: a longer step is always better")
    t.equal(call("judge_steps", REST, h, SHARES, []), [], "no rates, no verdicts")
