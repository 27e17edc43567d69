"""Hidden tests of the exercises of chapter 14."""

import math
from collections import Counter

import torch


def normal(rng, *shape):
    """Return random numbers in float64."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def some_experts(rng, num_tokens, num_experts, k):
    """Return k different experts for each token, some of them more often than others."""
    crowded = rng.sample(range(num_experts), k)
    rows = [
        rng.sample(crowded, k) if rng.random() < 0.5 else rng.sample(range(num_experts), k)
        for _ in range(num_tokens)
    ]
    return torch.tensor(rows).reshape(num_tokens, k)


def check_1(t, call, rng):
    """Plain sorting by (score, number), and exponentials of differences; ties, large scores."""
    for num_tokens, num_experts, k, scale in (
        (4, 6, 2, 1.0),
        (3, 5, 3, 2.0),
        (2, 40, 6, 1.0),
        (1, 3, 1, 1.0),
        (3, 4, 4, 1.0),
        (5, 64, 8, 0.0),
        (3, 8, 2, 100.0),
    ):
        scores = scale * normal(rng, num_tokens, num_experts)
        if scale == 2:
            scores = scores.round()  # ties
        if scale == 100:
            scores += 2_000
        experts, weights = [], []
        for row in scores.tolist():
            order = sorted(range(num_experts), key=lambda e, row=row: (-row[e], e))[:k]
            powers = [math.exp(row[e] - row[order[0]]) for e in order]
            experts.append(order)
            weights.append([power / math.fsum(powers) for power in powers])
        answer = call("choose_experts", scores, k)
        case = f"{num_tokens} tokens, {num_experts} experts, {k} chosen, scale {scale}"
        if not t(isinstance(answer, list | tuple) and len(answer) == 2, f"{case}: two tensors"):
            continue
        t.close(
            answer[0],
            torch.tensor(weights, dtype=torch.float64),
            f"{case}: weights",
            relative=1e-9,
        )
        t.equal(answer[1], torch.tensor(experts), f"{case}: experts")


def check_2(t, call, rng):
    """One term for each pair of a token's probability and a choice of any token."""
    for num_tokens, num_experts, k in ((4, 5, 2), (7, 3, 2), (6, 8, 3), (1, 4, 2), (5, 6, 1)):
        p = torch.softmax(2 * normal(rng, num_tokens, num_experts), -1)
        experts = some_experts(rng, num_tokens, num_experts, k)
        right = num_experts * math.fsum(
            p[n, e].item() / num_tokens / (num_tokens * k)
            for n in range(num_tokens)
            for e in experts.flatten().tolist()
        )
        case = f"{num_tokens} tokens, {num_experts} experts, {k} choices"
        # Shares that went through float32 are right, too.
        t.close(call("balance", p, experts), right, case, relative=1e-6)


def check_3(t, call, rng):
    """A choice is kept if fewer than the capacity chose its expert before it."""
    cases = [(12, 4, 2, 1), (9, 8, 2, 0.5), (11, 4, 3, 0.75), (5, 2, 1, 1), (13, 8, 2, 1.25)]
    for num_tokens, num_experts, k, factor in [*cases, (10, 4, 2, 4), (6, 8, 2, 0.25)]:
        experts = some_experts(rng, num_tokens, num_experts, k)
        weights = torch.softmax(normal(rng, num_tokens, k), -1)
        quarters = round(4 * factor) * num_tokens * k
        capacity = (quarters + 4 * num_experts - 1) // (4 * num_experts)
        earlier, right = Counter(), weights.clone().flatten()
        for choice, e in enumerate(experts.flatten().tolist()):
            if earlier[e] >= capacity:
                right[choice] = 0
            earlier[e] += 1
        answer = call("after_drops", weights, experts, num_experts, factor)
        case = f"{num_tokens} tokens, {num_experts} experts, {k} choices, factor {factor}"
        t.equal(answer, right.reshape(num_tokens, k), case)


def check_4(t, call, rng):
    """Token by token and expert by expert, in plain numbers."""
    for num_tokens, num_experts, k, width in (
        (5, 4, 2, 3),
        (9, 8, 3, 4),
        (3, 6, 1, 2),
        (4, 3, 3, 5),
        (1, 7, 2, 3),
    ):
        x, router = normal(rng, num_tokens, width), normal(rng, num_experts, width)
        bias = normal(rng, num_experts)
        shapes = (3, width), (3, width), (width, 3)
        experts = tuple(normal(rng, num_experts, *shape) for shape in shapes)
        shared = tuple(normal(rng, *shape) for shape in shapes)
        answer = call("deepseek_layer", x, router, bias, experts, shared, k)
        case = f"{num_tokens} tokens, {num_experts} experts, {k} choices"
        right = []
        for row in x:
            logits = (router * row).sum(1).tolist()
            scores = [1 / (1 + math.exp(-logit)) for logit in logits]
            sums = [score + b for score, b in zip(scores, bias.tolist(), strict=True)]
            chosen = sorted(range(num_experts), key=lambda e, sums=sums: -sums[e])[:k]
            total = math.fsum(scores[e] for e in chosen)
            parts = [scores[e] / total * _network(row, *(w[e] for w in experts)) for e in chosen]
            right.append(sum(parts) + _network(row, *shared))
        t.close(answer, torch.stack(right), case, relative=1e-9, absolute=1e-12)


def _network(row, gate, up, down):
    """Transform one token by a SwiGLU network."""
    return down @ (torch.nn.functional.silu(gate @ row) * (up @ row))


def check_5(t, call, rng):
    """Autograd through the whole of it: softmax over all, the sum of the chosen, the results."""
    for num_tokens, num_experts, k, width in (
        (5, 7, 3, 4),
        (3, 3, 2, 6),
        (4, 9, 4, 1),
        (2, 8, 2, 5),
        (1, 4, 4, 3),
    ):
        dy, scores = normal(rng, num_tokens, width), 2 * normal(rng, num_tokens, num_experts)
        results = normal(rng, num_tokens, k, width) - 1
        experts = some_experts(rng, num_tokens, num_experts, k)
        leaf = scores.clone().requires_grad_()
        chosen = torch.softmax(leaf, -1).gather(-1, experts)
        y = torch.einsum("nk,nkd->nd", chosen / chosen.sum(-1, keepdim=True), results)
        (right,) = torch.autograd.grad(y, leaf, dy)
        answer = call("router_gradient", dy, results, scores, experts)
        case = f"{num_tokens} tokens, {num_experts} experts, {k} chosen, width {width}"
        t.close(answer, right, case, relative=1e-9)
    single = some_experts(rng, 3, 5, 1)
    answer = call("router_gradient", normal(rng, 3, 2), normal(rng, 3, 1, 2), scores_of(3), single)
    t.close(answer, torch.zeros(3, 5, dtype=torch.float64), "one expert", absolute=1e-12)


def scores_of(num_tokens):
    """Return some scores of five experts."""
    return torch.linspace(-1, 1, 5 * num_tokens, dtype=torch.float64).reshape(num_tokens, 5)
