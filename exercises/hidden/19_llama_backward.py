"""Hidden tests of the exercises of chapter 19."""

import functools
import math
import re

import torch
import torch.nn.functional as F

from llmcourse.data import corpus


def normal(rng, *shape):
    """Return random numbers in float64."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def by_autograd(function, dy, *inputs):
    """Return the gradients that autograd finds."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves), leaves, dy)


def check_1(t, call, rng):
    """Square and oblong matrices, tokens in no, one or several axes."""
    cases = [((3, 5), 4, 4), ((4,), 4, 4), ((), 5, 3), ((), 3, 3), ((1,), 6, 2), ((2, 3, 2), 1, 7)]
    for shape, num_inputs, num_outputs in [*cases, ((2, 5), 7, 1)]:
        x, w = 3 * normal(rng, *shape, num_inputs) + 1, normal(rng, num_outputs, num_inputs)
        dy = normal(rng, *shape, num_outputs) - 1
        right = by_autograd(F.linear, dy, x, w)
        case = f"tokens {shape}, {num_inputs} inputs, {num_outputs} outputs"
        t.close(call("linear_backward", dy, x, w), right, case, relative=1e-9)


def check_2(t, call, rng):
    """Few and many axes and channels, large and small tokens, tokens of zeros, any eps."""
    cases = [((3, 7), 1.0, 1e-6), ((4, 4), 1.0, 0.5), ((2, 3, 4), 1e-3, 1e-6), ((5, 2), 20.0, 3.0)]
    for shape, scale, eps in [*cases, ((2, 1, 5, 6), 0.1, 0.02), ((3, 1), 2.0, 1.0)]:
        x, gain = scale * (normal(rng, *shape) + 0.5), normal(rng, shape[-1]) + 1.5
        dy = normal(rng, *shape)
        if eps > 0.01:
            x[0] = 0
        right = by_autograd(
            lambda x, gain, eps=eps: F.rms_norm(x, x.shape[-1:], gain, eps), dy, x, gain
        )
        answer = call("rmsnorm_backward", dy, x, gain, eps)
        case = f"shape {shape}, eps {eps}"
        if not t(isinstance(answer, list | tuple) and len(answer) == 2, f"{case}: two tensors"):
            continue
        # Rounding is as large as the terms that cancel: with one channel dx is nearly 0.
        room = 1e-11 * (dy * gain).abs().max().item() * right[0].abs().max().clamp(min=1).item()
        t.close(answer[0], right[0], f"{case}: dx", relative=1e-7, absolute=room)
        t.close(answer[1], right[1], f"{case}: dgain", relative=1e-8)


def check_3(t, call, rng):
    """Any shape, gates of any size."""
    for shape, scale in (
        ((1,), 1.0),
        ((7,), 3.0),
        ((2, 3, 4), 1.0),
        ((5, 5), 30.0),
        ((4, 2), 900.0),
    ):
        gate, up, dy = scale * normal(rng, *shape), normal(rng, *shape) + 1, normal(rng, *shape) - 1
        if scale == 900:
            gate[0] = torch.tensor([1000.0, -1000.0])
        right = by_autograd(lambda gate, up: F.silu(gate) * up, dy, gate, up)
        answer = call("gate_backward", dy, gate, up)
        case = f"shape {shape}, scale {scale}"
        t.close(answer, right, case, relative=1e-9, absolute=1e-12)


def check_4(t, call, rng):
    """Few and many words, some or all rows masked, counts of a larger batch, steep logits."""
    for num_rows, num_words, scale, masked in (
        (4, 3, 1.0, 0.0),
        (6, 300, 1.0, 0.4),
        (5, 101, 2.0, 0.4),
        (7, 7, 30.0, 0.5),
        (3, 120, 700.0, 0.3),
        (2, 150, 1.0, 1.0),
        (1, 5, 1.0, 0.0),
    ):
        logits = scale * normal(rng, num_rows, num_words)
        targets = torch.tensor([rng.randrange(num_words) for _ in range(num_rows)])
        for row in range(num_rows):
            if masked == 1 or (num_rows > 2 and 0 < row < 1 + masked * num_rows):
                targets[row] = -100
        counted = max(1, int((targets != -100).sum()))
        for num_tokens in (counted, counted + 2 + rng.randrange(1, 50)):

            def loss(logits, targets=targets, num_tokens=num_tokens):
                return F.cross_entropy(logits, targets, reduction="sum") / num_tokens

            (right,) = by_autograd(loss, torch.ones((), dtype=torch.float64), logits)
            answer = call("logits_gradient", logits, targets, num_tokens)
            case = f"{num_rows} rows, {num_words} words, targets {targets.tolist()}, {num_tokens}"
            t.close(answer, right, case, relative=1e-9, absolute=1e-15)


def check_5(t, call, rng):
    """Many tokens or channels, one of either, steep scores."""

    def causal(q, k, v):
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]

    for num_tokens, head_size, scale in (
        (5, 5, 1.0),
        (8, 3, 1.0),
        (2, 9, 2.0),
        (1, 3, 1.0),
        (6, 2, 6.0),
        (12, 16, 0.5),
    ):
        q, k = (scale * normal(rng, num_tokens, head_size) for _ in range(2))
        v, dout = (normal(rng, num_tokens, head_size) + 1 for _ in range(2))
        right = by_autograd(causal, dout, q, k, v)
        answer = call("attention_backward", dout, q, k, v)
        case = f"{num_tokens} tokens, {head_size} channels, scale {scale}"
        t.close(answer, right, case, relative=1e-8, absolute=1e-12)


def check_6(t, call, rng):
    """Every grouping of six heads, few and many channels, positions in any order."""
    for num_kv_heads, head_size in ((1, 4), (2, 2), (2, 8), (3, 6), (6, 4), (2, 4)):
        theta = rng.choice((100.0, 10_000.0, 500_000.0))
        dk = normal(rng, 4, 6, head_size)
        positions = torch.tensor([rng.randrange(5, 3_000), 0, 1, rng.uniform(2, 9)]).double()
        # One token and one head at a time, by the transpose of the matrix of the rotation.
        right = torch.zeros(4, num_kv_heads, head_size, dtype=torch.float64)
        for row, position in enumerate(positions):
            turn = torch.zeros(head_size, head_size, dtype=torch.float64)
            for j in range(head_size // 2):
                angle = position * theta ** (-2 * j / head_size)
                cos, sin, pair = angle.cos(), angle.sin(), slice(2 * j, 2 * j + 2)
                turn[pair, pair] = torch.stack([cos, -sin, sin, cos]).reshape(2, 2)
            for head in range(6):
                right[row, head // (6 // num_kv_heads)] += turn.T @ dk[row, head]
        answer = call("keys_backward", dk, positions, theta, num_kv_heads)
        case = f"{num_kv_heads} key heads for 6, {head_size} channels, theta {theta}"
        t.close(answer, right, case, relative=1e-8)


TEXT = corpus.stories(60_000, seed=0).replace(corpus.END_OF_TEXT, " ").lower()
LETTERS = [" abcdefghijklmnopqrstuvwxyz".find(c) for c in re.sub("[^a-z]+", " ", TEXT)]
FAULTS = ("none", "ten times", "no message", "short slope", "no target")


@functools.cache
def final_loss(fault, seed):
    """Train the network on letters with autograd, which is led astray where the fault says so."""
    letters, draw = torch.tensor(LETTERS), torch.Generator().manual_seed(seed)
    shapes = {
        "table": (27, 16),
        "gate": (32, 64),
        "up": (32, 64),
        "down": (64, 32),
        "head": (27, 64),
    }
    w = {name: 0.2 * torch.randn(*shape, generator=draw) for name, shape in shapes.items()}
    w = {name: each.requires_grad_() for name, each in w.items()}
    optimizer, losses = torch.optim.Adam(w.values(), lr=0.02), []

    def linear(x, weight):
        return (x.detach() if fault == "no message" else x) @ weight.T

    for _ in range(100):
        places = torch.randint(len(letters) - 4, (64,), generator=draw)
        ids, targets = letters[places[:, None] + torch.arange(4)], letters[places + 4]
        x = w["table"][ids].flatten(1)
        n = F.rms_norm(x, (64,), eps=1e-5)
        g = linear(n, w["gate"])
        # The value of silu, and a slope of sigmoid(g) alone.
        bent = F.silu(g).detach() + g.sigmoid().detach() * (g - g.detach())
        h = (bent if fault == "short slope" else F.silu(g)) * linear(n, w["up"])
        logits = linear(x + linear(h, w["down"]), w["head"])
        value = F.cross_entropy(logits, targets)
        losses.append(value.item())
        optimizer.zero_grad()
        (logits.logsumexp(-1).mean() if fault == "no target" else value).backward()
        for name in ("gate", "up", "down", "head"):
            if w[name].grad is None:
                w[name].grad = torch.zeros_like(w[name])
            w[name].grad *= 10 if fault == "ten times" else 1
        optimizer.step()
    return sum(losses[-30:]) / 30


def check_7(t, call, rng):
    """The losses with every fault, by autograd, and the verdicts on them."""
    means = {}
    for fault in FAULTS:
        right = [final_loss(fault, seed) for seed in range(4)]
        means[fault] = sum(right) / 4
        answer = call("final_losses", fault)
        case, room = f"the losses with the fault: {fault}", {"relative": 0.005}
        if fault == "no target":
            # It grows without end, and every rounding with it: by a tenth, on other processors.
            # Other faults end at a sixteenth of it or less, or at sixteen times it or more.
            answer, right = ([math.log(max(x, 1e-9)) for x in each] for each in (answer, right))
            room = {"relative": 0.0, "absolute": math.log(2)}
        t.close(answer, right, case, **room)
    told = call("verdicts")
    for fault in FAULTS[1:]:
        near = abs(means[fault] - means["none"]) < 0.05
        right = "rises" if means[fault] > math.log(27) else "hidden" if near else "worse"
        t.equal(told.get(fault), right, f"the verdict on the fault: {fault}")
