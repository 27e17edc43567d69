"""Hidden tests of the exercises of chapter 02."""

import functools

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


def adam(w, gradients, rate):
    """Return the weights after each step of torch's Adam."""
    leaf = w.clone().requires_grad_()
    optimizer = torch.optim.Adam([leaf], lr=rate, betas=(0.9, 0.95))
    path = []
    for gradient in gradients:
        leaf.grad = gradient.clone()
        optimizer.step()
        path.append(leaf.detach().clone())
    return path


def check_4(t, call, rng):
    """One weight and tables of them, gradients of all sizes, one step and many."""
    for shape, num_steps in (((1,), 1), ((3,), 2), ((5, 3), 7), ((2, 4), 30)):
        scales = 10 ** normal(rng, *shape)
        gradients = [scales * (1 + normal(rng, *shape)) for _ in range(num_steps)]
        w, rate = normal(rng, *shape), rng.uniform(0.001, 0.5)
        found = call("adam_weights", w, gradients, rate)
        case = f"{num_steps} steps of weights of shape {shape}, rate {rate:.3f}"
        if not t.equal(len(found), num_steps, f"an entry for each step: {case}"):
            continue
        for number in {1, num_steps // 2 + 1, num_steps}:
            right = adam(w, gradients, rate)[number - 1]
            t.close(found[number - 1], right, f"after step {number}: {case}", relative=1e-6)


def trained(rate, *, factor=1, num_steps=20, adam=False):
    """Return the mean loss after some steps of an optimizer of torch, with autograd."""
    h = torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64)
    leaf = (torch.outer(REST, h) / 5).requires_grad_()
    maker = functools.partial(torch.optim.Adam, betas=(0.9, 0.95)) if adam else torch.optim.SGD
    optimizer = maker([leaf], lr=rate)
    for _ in range(num_steps):
        optimizer.zero_grad()
        (factor * F.cross_entropy(leaf @ h, SHARES)).backward()
        optimizer.step()
    return F.cross_entropy(leaf.detach() @ h, SHARES).item()


def check_5(t, call, rng):
    """The sweeps once more."""
    said, rates, lowest = call("conclusions"), [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3], {}
    for name, adam in (("SGD", False), ("Adam", True)):
        rows = [[trained(r, factor=factor, adam=adam) for r in rates] for factor in (1, 10)]
        first, tenfold = (rates[row.index(min(row))] for row in rows)
        t.close(said.get(name, 0), tenfold / first, f"the rate of {name}", relative=1e-6)
        lowest[name] = min(rows[0])
    t.equal(said.get("lower"), min(lowest, key=lowest.get), "which of the two ends lower")
    near = [n for n in (5, 10, 20, 50, 100, 200) if trained(0.3, num_steps=n) < 1.0408 + 0.01]
    t.equal(said.get("steps"), near[0], "the steps to a hundredth of a nat")
