"""Hidden tests of the exercises of chapter 25."""

import math

import torch


def check_1(t, call, rng):
    """Several steps beside torch's AdamW, with settings of all sizes."""
    draw = torch.Generator().manual_seed(rng.randrange(2**31))
    for shape in ((5,), (2, 3), (1,), ()):
        lr, decay = rng.uniform(0.01, 0.3), rng.uniform(0.1, 0.9)
        betas = (rng.uniform(0.5, 0.9), rng.uniform(0.8, 0.99))
        eps = rng.choice((0.02, 0.3))
        w = torch.randn(shape, generator=draw, dtype=torch.float64)
        m, v = torch.zeros_like(w), torch.zeros_like(w)
        theirs = w.clone().requires_grad_()
        adam = torch.optim.AdamW([theirs], lr=lr, betas=betas, eps=eps, weight_decay=decay)
        for step in (1, 2, 3):
            theirs.grad = torch.randn(shape, generator=draw, dtype=torch.float64)
            if step == 2:
                theirs.grad *= 0
            w, m, v = call("adamw_step", w, theirs.grad, m, v, step, lr, *betas, eps, decay)
            adam.step()
            state = adam.state[theirs]
            right = [theirs.detach(), state["exp_avg"], state["exp_avg_sq"]]
            t.close([w, m, v], right, f"shape {shape}, step {step}", relative=1e-9)
    # A first gradient of 0: eps keeps the quotient from being 0 / 0.
    zero = torch.zeros(2, dtype=torch.float64)
    answer = call("adamw_step", zero + 1, zero, zero, zero, 1, 0.1, 0.9, 0.999, 1e-8, 0.5)
    t.close(list(answer), [zero + 0.95, zero, zero], "a gradient of 0", relative=1e-9)


def check_2(t, call, rng):
    """Every number with its own weight: 1 - beta of its step, times the betas after it."""
    cases = [(n, [rng.uniform(0.3, 0.97)] * n) for n in (1, 6)]
    cases += [(n, [rng.uniform(0.1, 0.99) for _ in range(n)]) for n in (2, 5, 9)]
    cases.append((5, [1 - step**-0.8 for step in range(1, 6)]))
    for count, betas in cases:
        values = [rng.uniform(-5, 5) for _ in range(count)]
        right = []
        for end in range(1, count + 1):
            weights = [(1 - betas[k]) * math.prod(betas[k + 1 : end]) for k in range(end)]
            parts = [weight * x for weight, x in zip(weights, values[:end], strict=True)]
            right.append(math.fsum(parts) / math.fsum(weights))
        answer = call("corrected_means", values, betas)
        t.close(
            [float(x) for x in answer],
            right,
            f"{count} values, betas {[round(x, 3) for x in betas]}",
            relative=1e-9,
            absolute=1e-9,
        )
    t.equal(list(call("corrected_means", [], [])), [], "no step")


def check_3(t, call, rng):
    """The sign of the pull on both sides of the place where the weight should rest."""
    for _ in range(4):
        curvature, decay = rng.uniform(0.05, 3), rng.uniform(0.1, 0.5)
        for goal in (rng.uniform(0.2, 0.9) / decay, rng.uniform(1.2, 3) / decay):
            for sign in (1, -1):
                where = f"goal {sign * goal:.3f}, curvature {curvature:.3f}, decay {decay:.3f}"

                def slope(w, goal=sign * goal, curvature=curvature, decay=decay):
                    return curvature * (w - goal) + decay * w

                def agreed(w, goal=sign * goal, decay=decay):
                    return math.copysign(1, w - goal) + decay * w

                walk = _zero(agreed, -4 / decay, 4 / decay)
                right = _zero(slope, -4 / decay, 4 / decay)
                case = [sign * goal, curvature, decay]
                answer = float(call("resting_place", *case, "Adam", True))
                t.close(answer, walk, f"AdamW, {where}", relative=1e-7)
                name, beside = rng.choice((("SGD", False), ("SGD", True), ("Adam", False)))
                answer = float(call("resting_place", *case, name, beside))
                t.close(answer, right, f"{name}, beside {beside}, {where}", relative=1e-7)
    for name, beside in (("SGD", True), ("SGD", False), ("Adam", True), ("Adam", False)):
        goal = rng.uniform(-50, 50)
        answer = float(call("resting_place", goal, 2, 0, name, beside))
        t.close(answer, goal, f"{name}, beside {beside}, no decay", relative=1e-9)
    answer = float(call("resting_place", 9.5, 0.75, 0.125, "Adam", False))
    t.close(answer, 9.5 * 0.75 / 0.875, "Adam with the decay inside, a far goal", relative=1e-9)


def _zero(pull, low, high):
    """Where a pull that grows with w changes its sign."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if pull(middle) > 0 else (middle, high)
    return (low + high) / 2


def check_4(t, call, rng):
    """The whole gradient in one row, and torch's norm of it."""
    draw = torch.Generator().manual_seed(rng.randrange(2**31))
    for bound in (0.1, 0.5, 0.99, 1.01, 3.0):
        shapes = rng.choices(((3,), (2, 2), (1, 4), (0,), ()), k=rng.randrange(5))
        gradients = [
            torch.randn(shape, generator=draw, dtype=torch.float64)
            for shape in [*shapes, (2, 3), (5,)]
        ]
        row = torch.cat([g.flatten() for g in gradients])
        norm = torch.linalg.vector_norm(row).item()
        right = [g * min(1.0, bound) for g in gradients]
        case = f"{len(gradients)} tensors, norm {norm:.3f}, bound {bound * norm:.3f}"
        t.close(list(call("clip", gradients, bound * norm)), right, case, relative=1e-9)
    zero = torch.zeros(2, dtype=torch.float64)
    t.close(list(call("clip", [zero, zero], 1.0)), [zero, zero], "gradients of 0")


def check_5(t, call, rng):
    """Races on bowls of other curvatures, turned by other angles."""
    for curvature, angle in ((1, 45), (rng.choice((4, 9, 20)), 30), (50, rng.choice((20, 45, 70)))):
        rates = [rng.choice((0.003, 0.01, 0.03, 0.1)), rng.choice((0.2, 0.3))]
        right = {
            name: [min(_steps(name, rate, curvature, a) for rate in rates) for a in (0, angle)]
            for name in ("SGD", "momentum", "Adam")
        }
        slower = [name for name, (upright, turned) in right.items() if turned > upright + 2]
        results, named = call("race", rates, curvature, angle)
        case = f"rates {rates}, curvature {curvature}, turned by {angle}"
        t.equal({name: list(results[name]) for name in right}, right, case)
        t.equal(list(named), slower, f"{case}: who is slower")
    t.equal(list(call("race", [0.3], 1, 0)[0]["momentum"]), [89, 89], "near for good")
    t.equal(list(call("race", [0.2, 0.3], 50, 45)[0]["Adam"]), [227, 182], "a rate for each bowl")
    t.equal(list(call("race", [0.08, 0.1], 50, 45)[1]), ["Adam"], "Adam feels the turn")


def _steps(name, rate, curvature, angle):
    """Steps until the ball stays near, with arrays in place of pairs."""
    turn = math.radians(angle)
    axes = torch.tensor(
        [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64
    )
    bowl = axes.T @ torch.diag(torch.tensor([1.0, curvature], dtype=torch.float64)) @ axes
    w = axes.T @ torch.tensor([-2.0, 1.0], dtype=torch.float64)
    m, v, outside = torch.zeros_like(w), torch.zeros_like(w), 0
    for t in range(1, 401):
        g = bowl @ w
        if name == "Adam":
            m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
            w = w - rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-8)
        else:
            m = (0.9 * m if name == "momentum" else 0) + g
            w = w - rate * m
        if not w.norm() <= 1e6:
            return 401
        outside = t if w.norm() > 0.02 else outside
    return outside + 1
