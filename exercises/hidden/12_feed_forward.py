"""Hidden tests of the exercises of chapter 12."""

import math
from fractions import Fraction

import torch


def check_1(t, call, rng):
    """Weights and forward passes of several sizes, and what the networks were good at."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for _ in range(4):
        width, hidden = rng.randrange(2, 9), 2 * rng.randrange(1, 9)
        for kind in ("gate", "relu", "no curve"):
            case = f"{kind}, {width} wide, {hidden} units with a gate"
            given = call("shapes", kind, width, hidden)
            sizes = [rows * columns for rows, columns in given]
            t.equal(sum(sizes), 3 * width * hidden, f"{case}: the number of weights")
            units = hidden if kind == "gate" else 3 * hidden // 2
            right = [(units, width)] * (1 + (kind == "gate")) + [(width, units)]
            t.equal([tuple(shape) for shape in given], right, f"{case}: the shapes")
            matrices = [
                torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in right
            ]
            x = torch.randn(3, 2, width, generator=generator, dtype=torch.float64)
            h = torch.einsum("btd,fd->btf", x, matrices[0])
            if kind == "gate":
                h = h / (1 + (-h).exp()) * torch.einsum("btd,fd->btf", x, matrices[1])
            if kind == "relu":
                h = h.clamp(min=0)
            answer = call("network", kind, x, matrices)
            t.close(answer, torch.einsum("btf,df->btd", h, matrices[-1]), case, relative=1e-9)
    found = call("compare", [1])
    t(found["gate", "products"] < 0.05, "seed 1: the error of the gate at products")
    t(found["relu", "products"] > 0.06, "seed 1: the error of relu at products")
    t(found["relu", "kinks"] < 0.02, "seed 1: the error of relu at kinks")
    t(found["gate", "kinks"] > 0.06, "seed 1: the error of the gate at kinks")
    right = {"products": "gate", "kinks": "relu", "neither": "no curve"}
    t.equal(call("conclusions"), right, "one of the three conclusions is another")


def check_2(t, call, rng):
    """Widths of real models and others, widths without a multiplier, and shares of many shapes."""
    sizes = [(8_192, 22_016, 256), (4_096, 14_336, 1_024), (16_384, 53_248, 4_096)]
    sizes += [(8_192, 28_672, 1_024), (5_120, 13_824, 256), (6_656, 17_920, 512)]
    for _ in range(8):
        multiple = rng.choice([32, 64, 100, 256, 1_024])
        sizes.append((rng.randrange(200, 9_000), multiple * rng.randrange(1, 40), multiple))
    for width, hidden, multiple in sizes:
        case = f"width {width:,}, hidden width {hidden:,}, multiple {multiple:,}"
        ends = (hidden - multiple, hidden)
        right = tuple(float(Fraction(3 * end, 8 * width)) for end in ends)
        answer = call("multipliers", width, hidden, multiple)
        t.close(answer, right, case, relative=1e-9, absolute=1e-12)
    for _ in range(6):
        multiple = rng.choice([32, 64, 100, 256, 1_024])
        width, hidden = rng.randrange(200, 9_000), multiple * rng.randrange(0, 40)
        hidden += rng.choice([1, multiple // 2, multiple - 1])
        case = f"width {width:,}, hidden width {hidden:,}, multiple {multiple:,}"
        t.equal(call("multipliers", width, hidden, multiple), None, case)
    shapes = [(80, 8_192, 64, 8, 28_672, 128_256), (4, 80, 5, 1, 224, 768)]
    for _ in range(8):
        kv_heads, size = rng.randrange(1, 5), rng.randrange(2, 9)
        heads = kv_heads * rng.randrange(1, 5)
        sizes = rng.randrange(1, 9), heads * size, heads, kv_heads
        shapes.append((*sizes, rng.randrange(5, 90), rng.randrange(2, 900)))
    for layers, width, heads, kv_heads, hidden, vocab_size in shapes:
        size = width // heads
        matrices = [(width, width)] * 2 + [(kv_heads * size, width)] * 2 + [(2, width)]
        networks = layers * sum(rows * columns for rows, columns in [(hidden, width)] * 3)
        blocks = networks + layers * sum(rows * columns for rows, columns in matrices)
        outside = [(vocab_size, width), (1, width), (vocab_size, width)]
        wholes = [blocks + sum(r * c for r, c in outside[:last]) for last in (3, 2, 0)]
        case = f"{layers} layers, width {width:,}, {heads} and {kv_heads} heads, {hidden} units"
        answer = call("shares", layers, width, heads, kv_heads, hidden, vocab_size)
        t.close(answer, [float(Fraction(networks, whole)) for whole in wholes], case, relative=1e-9)


def check_3(t, call, rng):
    """Any leading dimensions and sizes, square ones too, and numbers of any size."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for leading in ((), (1,), (4,), (2, 3), (2, 1, 3)):
        for width, hidden in ((5, 5), (rng.randrange(2, 9), rng.randrange(9, 20))):
            shapes = [(*leading, width), (hidden, width), (hidden, width), (width, hidden)]
            x, gate, up, down = (
                3 * torch.randn(*shape, generator=generator, dtype=torch.float64)
                for shape in shapes
            )
            a = torch.einsum("...d,fd->...f", x, gate)
            h = torch.nn.functional.silu(a) * torch.einsum("...d,fd->...f", x, up)
            right = torch.einsum("...f,df->...d", h, down)
            answer = call("gated", x, gate, up, down)
            t.close(answer, right, f"x of shape {tuple(x.shape)}, {hidden} units", relative=1e-9)
    # In float32 a gate of several hundred in either direction.
    x = torch.tensor([[rng.uniform(150, 900), -rng.uniform(150, 900)]])
    one = torch.eye(2)
    right = torch.tensor([[float(x[0, 0]) ** 2, 0.0]])
    t.close(call("gated", x, one, one, one), right, f"a gate of {x.tolist()}", relative=1e-5)


def check_4(t, call, rng):
    """Random networks, larger and smaller than the vocabulary, square ones too."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for width, hidden, vocab_size in ((2, 3, 2), (6, 6, 6), (5, 40, 9), (12, 7, 30), (8, 32, 64)):
        w_down_DF = torch.randn(width, hidden, generator=generator, dtype=torch.float64)
        # A head whose rows share a large part, as trained heads do.
        head_VD = torch.randn(vocab_size, width, generator=generator, dtype=torch.float64)
        head_VD += 3 * torch.randn(width, generator=generator, dtype=torch.float64)
        hidden_F = torch.randn(hidden, generator=generator, dtype=torch.float64)
        hidden_F[0] = -hidden_F[0].abs() - 1
        token, count = rng.randrange(vocab_size), rng.randrange(1, hidden + 1)
        written_DF = w_down_DF * hidden_F
        logits_VF = torch.einsum("vd,df->vf", head_VD, written_DF)
        rises = (logits_VF[token] - logits_VF.sum(0) / vocab_size).tolist()
        order = sorted(range(hidden), key=lambda unit: -rises[unit])
        for asked in {count, hidden}:
            answer = call("writers", hidden_F, w_down_DF, head_VD, token, asked)
            right = [(unit, rises[unit]) for unit in order[:asked]]
            case = f"{hidden} units, {vocab_size} tokens, {asked} asked for"
            t.close(answer, right, case, relative=1e-6, absolute=1e-9 * max(map(math.fabs, rises)))
