"""Hidden tests of the exercises of chapter 13."""

import torch


def normal(rng, *shape):
    """Return random numbers in float64."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def check_1(t, call, rng):
    """Any number of axes, square tensors, large and tiny tokens, tokens of zeros."""
    cases = [
        ((5,), 1.0, 1e-6),
        ((3, 7), 1e3, 1e-6),
        ((4, 4), 1.0, 0.5),
        ((2, 3, 4), 1e-4, 1e-8),
        ((3, 3, 3), 5.0, 1e-5),
        ((2, 1, 5, 6), 0.1, 0.02),
        ((3, 1), 2.0, 1.0),
    ]
    for shape, scale, eps in cases:
        x, gain = scale * normal(rng, *shape) + scale / 2, 1 + normal(rng, shape[-1])
        if len(shape) > 1:
            x[-1] = 0
        right = gain * torch.nn.functional.rms_norm(x, shape[-1:], eps=eps)
        t.close(call("rmsnorm", x, gain, eps), right, f"shape {shape}, eps {eps}", relative=1e-9)


def turned_with_matrices(x, positions, theta, pairs):
    """Turn every pair of channels with a 2 x 2 matrix, one after the other."""
    out = x.clone()
    for row, position in enumerate(positions.tolist()):
        for j, pair in enumerate(pairs):
            angle = torch.tensor(position * theta ** (-2 * j / x.shape[1]), dtype=torch.float64)
            cos, sin = angle.cos(), angle.sin()
            matrix = torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])])
            out[row, pair] = matrix @ x[row, pair]
    return out


def check_2(t, call, rng):
    """Both layouts, few and many channels, positions in any order, far and between two tokens."""
    for num_channels, theta in ((2, 10_000.0), (4, 100.0), (6, 500_000.0), (16, 10_000.0)):
        whole = [float(rng.randrange(100_000)) for _ in range(3)]
        positions = torch.tensor([*whole, 0.0, rng.uniform(0, 9), 1.0], dtype=torch.float64)
        x, half = normal(rng, len(positions), num_channels), num_channels // 2
        layouts = {
            "adjacent": [[2 * j, 2 * j + 1] for j in range(half)],
            "halves": [[j, j + half] for j in range(half)],
        }
        for layout, pairs in layouts.items():
            t.close(
                call("rotate", x, positions, theta, layout),
                turned_with_matrices(x, positions, theta, pairs),
                f"{layout}, K = {num_channels}, theta = {theta}, positions {positions.tolist()}",
                relative=1e-8,
            )
            many = normal(rng, 2, len(positions), len(positions), num_channels)
            right = [[turned_with_matrices(x, positions, theta, pairs) for x in m] for m in many]
            t.close(
                call("rotate", many, positions, theta, layout),
                torch.stack([torch.stack(rows) for rows in right]),
                f"{layout}, K = {num_channels}, heads and sequences in front",
                relative=1e-8,
            )


def rotated(x, positions, frequencies):
    """Return every vector of (N, K) turned for every position: (N, T, K)."""
    angles = torch.outer(positions, frequencies)
    a, b = x[:, None].chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def one_score(rng, num_positions):
    """Return queries and keys whose scores are 1, but 2 for one query and a key ahead of it."""
    key = rng.randrange(2, num_positions - 1)
    vectors = torch.stack([torch.ones(2, num_positions), torch.zeros(2, num_positions)], -1)
    queries, keys = vectors.double(), vectors.double().clone()
    queries[:, rng.randrange(1, key), 1] = 1
    keys[:, key, 1] = 1
    return queries, keys


def line_up(rng, num_positions):
    """Return codes that keep the promise, and codes that break it in one place or another."""
    places = torch.arange(num_positions, dtype=torch.float64)
    frequencies = 50.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
    q, k, last = normal(rng, 2, 6), normal(rng, 2, 6), num_positions - 1

    def both(positions):
        return rotated(q, positions, frequencies), rotated(k, positions, frequencies)

    def added(x):
        angles = torch.outer(places, frequencies)
        return x[:, None] + torch.cat([angles.cos(), angles.sin()], -1)

    zeros = torch.zeros_like(q)
    jump = places.clone()
    jump[last] += 0.5
    late = [torch.cat([x, y]) for x, y in zip(both(places), (added(q), added(k)), strict=True)]
    signs = torch.cat([q, -q]), torch.cat([k, -k])
    ahead, behind = one_score(rng, num_positions)
    good = {
        "rotation": both(places),
        "far rotation": both(places + rng.randrange(10, 500)),
        "backwards": both(-places),
        "growing and shrinking": tuple(
            x * (base**places).unsqueeze(-1)
            for x, base in zip(both(places), (1.2, 1 / 1.2), strict=True)
        ),
        "waves alone": (added(zeros), added(zeros)),
        "no position": tuple(x[:, None].expand(2, num_positions, 6).clone() for x in (q, k)),
    }
    bad = {
        "squares": both(places.square() / 7),
        "jump at the end": both(jump),
        "one side": (both(places)[0], good["no position"][1]),
        "sum of positions": (both(places)[0], both(-places)[1]),
        "late pair": tuple(late),
        "one score ahead": (ahead, behind),
        "one score behind": (behind, ahead),
        "both signs": (added(signs[0]), added(signs[1])),
        "random table": (normal(rng, 2, num_positions, 6), normal(rng, 2, num_positions, 6)),
    }
    return good, bad


def check_3(t, call, rng):
    """Each code alone, then all of them in some order."""
    for num_positions in (5, 9):
        good, bad = line_up(rng, num_positions)
        for name, code in (good | bad).items():
            t.equal(call("relative_codes", {name: code}, 1e-9), [name] * (name in good), name)
        names = rng.sample(sorted(good | bad), k=len(good | bad))
        codes = {name: (good | bad)[name] for name in names}
        right = [name for name in names if name in good]
        t.equal(call("relative_codes", codes, 1e-9), right, "all of them in another order")
    # With a wide tolerance a small deviation counts as none.
    q = torch.ones(1, 3, 1, dtype=torch.float64)
    k = q.clone()
    k[0, 2] += 0.25
    t.equal(call("relative_codes", {"it": (q, k)}, 0.3), ["it"], "a tolerance of 0.3")
    t.equal(call("relative_codes", {"it": (q, k)}, 0.2), [], "a tolerance of 0.2")
    k[0, :, 0] = torch.tensor([1, 1.25, 1.5])
    t.equal(call("relative_codes", {"it": (q, k)}, 0.3), [], "steps of 0.25 that add up")
    k[0, :, 0] = torch.tensor([1e6, 1e6 + 1, 1e6])
    t.equal(call("relative_codes", {"it": (q, k)}, 0.5), [], "scores of a million, one apart")


def check_4(t, call, rng):
    """Random lists and angles with each part taken out, and a bound that nothing exceeds."""
    for part in ("nothing", "norm", "position"):
        x, gain = 3 * normal(rng, 2, 5, 6), normal(rng, 6)
        rms = 1 if part == "norm" else (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        t.close(call("norm", part, x, gain), gain * x / rms, f"norm, without {part}", relative=1e-9)
        angles = normal(rng, 5, 3)
        pairs = torch.view_as_complex(x.reshape(2, 5, 3, 2))
        spun = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        right = x if part == "position" else spun
        t.close(call("turn", part, x, angles), right, f"turn, without {part}", relative=1e-9)
    for _ in range(5):
        parts, num_seeds = ("nothing", "norm", "position"), rng.randrange(1, 5)
        losses = {part: [rng.uniform(1, 4) for _ in range(num_seeds)] for part in parts}
        means = {part: sum(losses[part]) / num_seeds for part in parts}
        bound = rng.uniform(0, 1)
        right = [p for p in ("norm", "position") if means[p] - means["nothing"] > bound]
        case = f"losses {losses}, a bound of {bound}"
        t.equal(call("missed", losses, bound), right, case)
    right = {"back": ["norm", "position"], "commonest": ["norm"]}
    t.equal(call("conclusions"), right, "one of the two conclusions is another")
