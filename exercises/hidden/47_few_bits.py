"""Hidden tests of chapter 47."""

import torch


def check_1(t, call, rng):
    """Codes of one block and of many."""
    for block, blocks in ((2, 1), (32, 3), (6, 7)):
        codes = [rng.randrange(16) for _ in range(block * blocks)]
        right, half = bytearray(), block // 2
        for start in range(0, len(codes), block):
            low, high = codes[start : start + half], codes[start + half : start + block]
            right += bytes(a | b << 4 for a, b in zip(low, high, strict=True))
        case = f"{blocks} blocks of {block}"
        t.equal(list(call("packed", codes, block)), list(right), f"packed, {case}")
        t.equal(list(call("unpacked", bytes(right), block)), codes, f"unpacked, {case}")


def check_2(t, call, rng):
    """Blocks of all kinds, none of whose weights lies in the middle of two levels."""
    for bits in (2, 3, 4, 8):
        for symmetric in (False, True):
            last = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
            first = -last if symmetric else 0
            d = rng.choice([0.25, 0.5, 3.0])
            m = 0.0 if symmetric else rng.choice([-7.0, 0.0, 2.5])
            ends = [first] if symmetric else [first, last]  # the largest absolute one is negative
            codes = ends + [rng.randrange(first + 1, last) for _ in range(9)]
            moved = [rng.uniform(-0.4, 0.4) for _ in codes]
            inside = [s if first < q < last else 0.0 for q, s in zip(codes, moved, strict=True)]
            w = torch.tensor([d * (q + s) + m for q, s in zip(codes, inside, strict=True)])
            case = f"{bits} bits, symmetric {symmetric}, d = {d}, m = {m}"
            found = call("quantised", w, bits, symmetric)
            t.close([found[0], found[1]], [d, m], case, relative=1e-4)
            t.equal([int(q) for q in found[2]], codes, case)
    for w in (torch.zeros(5), torch.full((4,), -2.0)):
        t.equal([int(q) for q in call("quantised", w, 4, False)[2]], [0] * len(w), "equal weights")


def check_3(t, call, rng):
    """Random matrices: what is left is the best that can be."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for rows, columns in ((1, 2), (4, 6), (7, 9)):
        x = torch.randn(60, columns, generator=generator, dtype=torch.float64)
        H = x.T @ x + torch.eye(columns, dtype=torch.float64)
        w = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        q = w[:, 0].round()
        best = w[:, 1:] + torch.linalg.solve(H[1:, 1:], H[1:, :1] @ (w[:, 0] - q)[None]).T
        inverse = torch.linalg.inv(H)
        case = f"{rows} rows of {columns} columns"
        t.close(call("made_good", w.clone(), q, inverse.clone()), best, case, relative=1e-5)
        right = torch.linalg.inv(H[1:, 1:])
        t.close(call("without_first", inverse), right, case, relative=1e-5)


def check_4(t, call, rng):
    """Memories around what each grid needs."""
    grids = [
        (bits, block, kind) for bits in (2, 3, 4, 8) for block in (16, 32) for kind in (False, True)
    ]
    rng.shuffle(grids)
    for bits, block, kind in grids:
        each = bits + (1 if kind else 2) * 16 / block
        t.close(call("bits_per_weight", bits, block, kind), each, f"{bits}, {block}, {kind}")
        weights, others, cache = 32 * rng.randrange(10, 99), rng.randrange(50), rng.randrange(900)
        needed = weights * each / 8 + 4 * others + cache
        for memory in (needed, needed - 1, 0):
            fits = []
            for b, size, symmetric in grids:
                takes = b + (16 if symmetric else 32) / size
                if weights * takes / 8 + 4 * others + cache <= memory:
                    fits.append((takes, b, size, symmetric))
            most = max((takes for takes, *_ in fits), default=None)
            right = next((tuple(rest) for takes, *rest in fits if takes == most), None)
            found = call("choose", memory, weights, others, cache, grids)
            t.equal(None if found is None else tuple(found), right, f"{memory} bytes")
