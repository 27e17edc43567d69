"""Hidden tests of the exercises of chapter 29."""

import itertools
import math

import numpy as np
import torch


def check_1(t, call, rng):
    """Checkpoints of many layers, with names in another order, bf16, and layers of zeros."""
    for case in range(5):
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        dtype = (torch.float32, torch.bfloat16, torch.float64)[case % 3]
        groups = {f"blocks.{rng.randrange(2, 9)}{k}": ["a.w_q", "a.w_o", "w_up"] for k in range(3)}
        groups |= {"blocks.1": ["norm.gain", "w_up"], "blocks.11": ["w_up"], "blocks.111": ["x"]}
        before, after, right = {}, {}, {}
        names = {group: [f"{group}.{part}" for part in parts] for group, parts in groups.items()}
        names |= {"embedding": ["embedding"], "head.0.q": ["head.0.q"], "head.0.k": ["head.0.k"]}
        for group, members in names.items():
            squares = np.zeros(2)
            for place, name in enumerate(members):
                shape = (rng.randrange(1, 6), rng.randrange(1, 6))
                size = 10.0 ** rng.uniform(-2, 0) * (1 + 7 * place)
                w = (size * torch.randn(shape, generator=generator)).to(dtype)
                v = (w + 3 * rng.random() * torch.randn(shape, generator=generator)).to(dtype)
                before[name], after[name] = w, v
                old, new = (x.double().numpy() for x in (w, v))
                squares += [np.sum((new - old) ** 2), np.sum(old**2)]
            right[group] = math.sqrt(squares[0] / squares[1])
        for name, moved in (("bias", 0.0), ("blocks.0.w", 10.0 ** rng.uniform(-6, 0))):
            before[name] = torch.zeros(2, 3, dtype=dtype)
            after[name] = torch.full((2, 3), moved, dtype=dtype)
        right |= {"bias": 0.0, "blocks.0": math.inf}
        order = list(after)
        rng.shuffle(order)
        found = call("layer_ratios", before, {name: after[name] for name in order})
        t.close(found, right, f"case {case}, {dtype}", relative=1e-5)
    w = torch.randn(3, 4, generator=generator)
    t.close(
        call("layer_ratios", {"w": w}, {"w": -w}), {"w": 2.0}, "all signs turned", relative=1e-5
    )


def check_2(t, call, rng):
    """The effective rank of small sums that can be built, and of long ones with a known answer."""
    for case, (num_terms, m, n) in enumerate(
        ((1, 5, 3), (4, 7, 9), (6, 3, 8), (9, 8, 2), (5, 5, 5), (3, 40, 2))
    ):
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        a_TM, b_TN = (
            torch.randn(num_terms, k, generator=generator, dtype=torch.float64) for k in (m, n)
        )
        a_TM[num_terms // 2] = 2 * a_TM[0]  # the same direction twice
        scale = 10.0 ** rng.uniform(-14, -11) if case < 3 else rng.uniform(0.1, 99)
        s = np.linalg.svd(a_TM.numpy().T @ b_TN.numpy(), compute_uv=False)
        p = s[s > 1e-9 * s[0]] / s.sum()
        right = math.exp(-sum(x * math.log(x) for x in p))
        answer = call("effective_rank", a_TM * scale, b_TN)
        t.close(answer, right, f"{num_terms} terms, {m} x {n}", relative=1e-5)
    sizes = [rng.uniform(0.5, 9) for _ in range(3)]
    p = [size / sum(sizes) for size in sizes]
    right = math.exp(-sum(x * math.log(x) for x in p))
    axes = torch.eye(300, 4, dtype=torch.float64).T.contiguous()
    a_TM = axes * torch.tensor([*sizes, 0.0], dtype=torch.float64)[:, None]
    t.close(call("effective_rank", a_TM, axes), right, "a singular value of 0", relative=1e-5)
    zeros = torch.zeros(3, 4, dtype=torch.float64)
    t.close(call("effective_rank", zeros, axes[:3, :5]), 0.0, "a matrix of zeros", absolute=1e-12)


NUM_NAMES = 8
MALE, FEMALE, HE, SHE, AND, THE = range(16, 22)
NUM_FEATURES = 22


def unit(reads, writes):
    """Return a row of w_in and a column of w_out; features 0 to 7 are names, 8 to 15 others."""
    vectors = np.zeros((2, NUM_FEATURES))
    for vector, weights in zip(vectors, (reads, writes), strict=True):
        vector[list(weights)] = list(weights.values())
    return vectors


def gender(names):
    """Return units that say who of these names is male or female."""
    return [unit({n: 1}, {MALE if n < NUM_NAMES // 2 else FEMALE: 1}) for n in names]


def others(which):
    """Return units for which the text goes on with `and`."""
    return [unit({NUM_NAMES + k: 1}, {AND: 1}) for k in which]


PRONOUN = [unit({MALE: 1}, {HE: 1}), unit({FEMALE: 1}, {SHE: 1})]
STAND_IN = [unit({MALE: 1, HE: -2}, {HE: 1}), unit({FEMALE: 1, SHE: -2}, {SHE: 1})]


def programs(rng):
    """Return networks as lists of lists of units: chains, stand-ins, shared and idle layers."""
    names, rest = list(range(NUM_NAMES)), list(range(8))
    rng.shuffle(names)
    rng.shuffle(rest)
    idle = [unit({k: -1}, {HE: 1, AND: 1}) for k in names[:2]]
    known = rng.randrange(2, 4)
    yield [gender(names), idle, PRONOUN, others(rest)]
    yield [gender(names), PRONOUN, idle, STAND_IN, others(rest)]
    yield [gender(names) + others(rest), idle, PRONOUN]
    yield [gender(names) + others(rest[:1]), others(rest[1:]), PRONOUN]
    yield [gender(names) + others(rest[:2]), others(rest[2:]), PRONOUN]
    yield [gender(names[:4]), gender(names[4:]), PRONOUN, others(rest)]
    yield [gender(names[:5]), gender(names[5:]), STAND_IN, PRONOUN + others(rest[:3])]
    yield [gender(names[:known]), PRONOUN, others(rest)]
    yield [gender(names[:known]), gender(names[known : known + 3]), PRONOUN, others(rest[:6])]
    for _ in range(3):
        cut = rng.randrange(1, 8)
        layers = [gender(names[:cut]), gender(names[cut:]), others(rest[:cut]), PRONOUN]
        layers += [STAND_IN, idle]
        layers[rng.randrange(6)] = layers[rng.randrange(6)] + others(rest[cut:])
        yield layers


def shares(layers, table_VE, rows_NE, right_N, out):
    """Return the share of right predictions without some layers."""
    x_NE = rows_NE.copy()
    for place, (w_in_HE, w_out_EH) in enumerate(layers):
        if place not in out:
            x_NE = x_NE + np.maximum(x_NE @ w_in_HE.T, 0) @ w_out_EH.T
    return float(np.mean(np.argmax(x_NE @ table_VE.T, axis=1) == right_N))


def check_3(t, call, rng):
    """Networks with known parts, in a turned space, so that nothing can be read off."""
    rows_NE = np.eye(16, NUM_FEATURES)
    rows_NE[:, THE] = 0.5
    right_N = np.array([0] * 4 + [1] * 4 + [2] * 8)
    table_VE = np.eye(NUM_FEATURES)[[HE, SHE, AND, THE]]
    for case, program in enumerate(programs(rng)):
        seed = rng.randrange(2**31)
        random = np.random.default_rng(seed).standard_normal((NUM_FEATURES, NUM_FEATURES))
        turn = np.linalg.qr(random)[0]
        layers = [
            (np.array([u[0] for u in units]) @ turn.T, (np.array([u[1] for u in units]) @ turn.T).T)
            for units in program
        ]
        rows, table = rows_NE @ turn.T, table_VE @ turn.T
        asked = (rows[:8], right_N[:8]), (rows[8:], right_N[8:])
        whole = [shares(layers, table, *some, ()) for some in asked]

        def holds(*out, layers=layers, table=table, asked=asked, whole=whole):
            left = [shares(layers, table, *some, out) for some in asked]
            return whole[0] - left[0] >= 0.5 and whole[1] - left[1] <= 0.125

        places = range(len(layers))
        right = [(place,) for place in places if holds(place)]
        for pair in itertools.combinations(places, 2):
            if holds(*pair) and not any((place,) in right for place in pair):
                right.append(pair)
        as_tensors = [tuple(torch.from_numpy(w.copy()) for w in pair) for pair in layers]
        fact, other = (tuple(torch.from_numpy(x.copy()) for x in some) for some in asked)
        found = call("holders", as_tensors, torch.from_numpy(table), fact, other)
        t.equal(found, right, f"network {case}, turned by seed {seed}")
    t.equal(call("holders", [], torch.from_numpy(table), fact, other), [], "no layer")


def check_4(t, call, rng):
    """Networks whose units were shuffled and moved a little, and pairs that are far apart."""
    for case, (h, e) in enumerate(((1, 3), (2, 1), (3, 2), (4, 5), (5, 1), (6, 2), (4, 3), (5, 2))):
        generator = torch.Generator().manual_seed(rng.randrange(2**31))

        def draw(*shape, generator=generator):
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        first = {"w_gate": draw(h, e), "w_up": draw(h, e), "w_down": draw(e, h)}
        if case % 3 == 0:
            first["w_up"][:] = first["w_up"][0]
        order = torch.randperm(h, generator=generator)
        noise = rng.choice([0.01, 3.0])
        second = {
            name: (w[:, order] if name == "w_down" else w[order]) + noise * draw(*w.shape)
            for name, w in first.items()
        }
        time = rng.choice([0, 1, 0.5, rng.uniform(0.6, 0.9), rng.uniform(0.1, 0.4)])
        right = line(first, second, time)
        t.close(call("mixed", first, second, time), right, f"{h} units, t = {time}", relative=1e-9)
    order = [1, 2, 0]
    first = {"w_gate": draw(3, 2), "w_up": draw(3, 2), "w_down": draw(2, 3)}
    second = {name: w[:, order] if name == "w_down" else w[order] for name, w in first.items()}
    for time in (0.2, 0.7):
        t.close(call("mixed", first, second, time), first, "three units in turn", relative=1e-9)
    first |= {"w_gate": torch.ones(3, 2).double(), "w_up": torch.ones(3, 2).double()}
    second = {**first, "w_down": first["w_down"][:, order]}
    t.close(call("mixed", first, second, 0.3), first, "units known by w_down alone", relative=1e-9)
    for _ in range(2):
        corner = rng.uniform(1.95, 2.05)
        none = {"w_up": torch.zeros(2, 2).double(), "w_down": torch.zeros(2, 2).double()}
        first = {**none, "w_gate": torch.tensor([[0.0, 0], [0, 2]]).double()}
        second = {**none, "w_gate": torch.tensor([[0.0, 0], [corner, -0.25]]).double()}
        right = {**none, "w_gate": second["w_gate"].flip(0)}
        t.close(call("mixed", first, second, 1), right, "squared differences", relative=1e-9)
    # Unit 0 is nearest to the unit that unit 1 needs.
    for _ in range(3):
        near, far = 1 + rng.uniform(0.05, 0.2), -1 - rng.uniform(0.3, 0.6)
        first, second = (
            {"w_gate": draw(2, 1) * 0, "w_up": torch.tensor(up).double(), "w_down": draw(1, 2) * 0}
            for up in ([[0.0], [1.0]], [[near], [far]])
        )
        right = {**first, "w_up": torch.tensor([[far], [near]]).double()}
        t.close(call("mixed", first, second, 1), right, "the nearest is taken", absolute=1e-12)


def line(first, second, time):
    """Return the mixture for the order with the greatest sum of products."""
    units = [
        np.concatenate([net["w_gate"].numpy().T, net["w_up"].numpy().T, net["w_down"].numpy()])
        for net in (first, second)
    ]
    products = units[0].T @ units[1]
    places = range(len(products))
    order = list(
        max(
            itertools.permutations(places),
            key=lambda order: sum(products[h, order[h]] for h in places),
        )
    )
    matched = {name: w[:, order] if name == "w_down" else w[order] for name, w in second.items()}
    return {name: torch.lerp(w, matched[name], float(time)) for name, w in first.items()}
