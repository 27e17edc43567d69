"""Hidden tests of chapter 48."""

import torch


def check_1(t, call, rng):
    """A row that grows by any numbers, and gives its pages back."""
    for size in (1, 4, 16):
        free = [rng.randrange(100, 200) + 100 * i for i in range(9)]
        table, length, order = [], 0, list(free)
        for _ in range(8):
            new = rng.randrange(1, 2 * size + 1)
            missing = -(-(length + new) // size) - len(table)
            left = len(free) - missing
            right = (table + free[left:][::-1], free[:left]) if left >= 0 else None
            case = f"{length} tokens and {new} more, pages of {size}, {len(free)} free"
            t.equal(call("grow", table, length, new, free, size), right, case)
            if right is not None:
                (table, free), length = right, length + new
        for i in range(length):
            t.equal(tuple(call("slot", table, i, size)), (table[i // size], i % size), f"token {i}")
        t.equal(list(call("give_back", table, free)), order, f"pages of {size} given back")


def check_2(t, call, rng):
    """Requests that come at any time."""
    for rows in (1, 2, 5):
        n = rng.randrange(4, 9)
        arrivals = sorted(rng.randrange(12) for _ in range(n))
        answers = [rng.randrange(1, 7) for _ in range(n)]
        free, right = [0] * rows, []  # from which step on each row is free
        for arrival, answer in zip(arrivals, answers, strict=True):
            row = min(range(rows), key=free.__getitem__)
            free[row] = max(free[row], arrival) + answer
            right.append(free[row] - 1)
        case = f"arrivals {arrivals}, answers {answers}, {rows} rows"
        t.equal(list(call("ends", arrivals, answers, rows)), right, case)


def check_3(t, call, rng):
    """Guesses of all lengths, and pairs of distributions."""
    for length in (0, 1, 4, 7):
        model = [rng.randrange(3) for _ in range(length + 1)]
        guess = [rng.choice([token, 5, token]) for token in model[:-1]]
        wrong = next((i for i in range(length) if guess[i] != model[i]), length)
        t.equal(
            list(call("kept", guess, model)), [*guess[:wrong], model[wrong]], f"{guess}, {model}"
        )
    for size in (2, 5, 9):
        weights = [[rng.randrange(1, 9) for _ in range(size)] for _ in "pq"]
        p, q = (torch.tensor([w / sum(row) for w in row]) for row in weights)
        right = [max(a - b, 0.0) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
        if sum(right) > 0.01:
            right = [each / sum(right) for each in right]
            t.close(
                call("left_over", p, q),
                torch.tensor(right),
                f"p {p.tolist()}, q {q.tolist()}",
                relative=1e-3,
            )
        for x in range(size):
            ratio = (p[x] / q[x]).item()
            for u in (0.99 * ratio, 1.01 * ratio):
                if u < 1:
                    t.equal(bool(call("accepted", p, q, x, u)), u < ratio, f"p/q {ratio}, u {u}")


def check_4(t, call, rng):
    """Memories around what users need."""
    for size in (1, 16, 128):
        layers, heads, width = rng.randrange(1, 40), rng.randrange(1, 9), rng.choice([32, 64])
        token = 2 * layers * heads * width * 2
        t.equal(call("token_bytes", layers, heads, width, 2), token, f"{layers}, {heads}, {width}")
        shared = rng.randrange(0, 300)
        length = shared + rng.randrange(1, 600)
        common = shared // size
        own = -(-length // size) - common
        number, weights = rng.randrange(1, 20), rng.randrange(10**6)
        needed = weights + (common + number * own) * token * size
        for memory, right in ((needed, number), (needed - 1, number - 1)):
            found = call("users", memory, weights, token, length, shared, size)
            t.equal(found, right, f"{number} users of {length}, {shared} shared, pages of {size}")
