"""Hidden tests of the exercises of chapter 11."""

import math

import torch


def check_1(t, call, rng):
    """Masks of many sizes, entry by entry, with windows up to beyond the text."""
    sizes = [(1, 1), (1, 7), (4, 4), (rng.randrange(2, 6), rng.randrange(6, 12))]
    for num_queries, num_keys in sizes:
        for window in (None, 1, 2, rng.randrange(2, num_keys + 3), num_keys + 5):
            right = torch.zeros(num_queries, num_keys, dtype=torch.bool)
            for row in range(num_queries):
                place = num_keys - num_queries + row
                first = 0 if window is None else max(0, place - window + 1)
                right[row, first : place + 1] = True
            answer = call("may_look", num_queries, num_keys, window)
            t.equal(answer, right, f"{num_queries} queries, {num_keys} keys, window {window}")
    t.equal(
        call("may_look", 2, 3),
        torch.tensor([[True, True, False], [True, True, True]]),
        "without a window",
    )


def check_2(t, call, rng):
    """Every head by itself, for several ratios of heads and for both dtypes."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for groups, share in ((1, 1), (1, 5), (5, 1), (2, 3), (4, 2), (3, 4), (rng.randrange(2, 6), 2)):
        shape = (rng.randrange(1, 4), rng.randrange(2, 6), groups, rng.randrange(2, 9))
        dtype = rng.choice([torch.float32, torch.float64])
        x_BSGK = torch.randn(*shape, generator=generator, dtype=dtype)
        heads = groups * share
        right = torch.stack([x_BSGK[:, :, head // share] for head in range(heads)], dim=2)
        t.equal(call("spread", x_BSGK, heads), right, f"{heads} query heads over {groups}")
    one = torch.tensor([[[[0.5]]]])
    t.equal(call("spread", one, 1), one, "one number, one head")


def fitting(sizes):
    """Return bytes per token and users, by adding up caches one at a time."""
    per_token = 0
    for _ in range(sizes["num_layers"]):
        numbers_of_keys = sizes["num_kv_heads"] * sizes["head_size"]
        per_token += (numbers_of_keys + numbers_of_keys) * sizes["bytes_per_number"]
    used, users = sizes["weight_bytes"] + per_token * sizes["num_tokens"], 0
    while used <= sizes["memory_bytes"]:
        used, users = used + per_token * sizes["num_tokens"], users + 1
    return per_token, users


def check_3(t, call, rng):
    """Servers that are too small, exactly filled, and large."""
    for case in range(12):
        shared = rng.choice([2, 4, 8])
        sizes = {
            "num_layers": rng.randrange(2, 130),
            "num_kv_heads": rng.randrange(1, 9),
            "head_size": rng.choice([32, 64, 96, 128]),
            "bytes_per_number": rng.choice([1, 2, 4]),
            "num_tokens": rng.choice([2, 100, 8_192, 131_072]),
            "weight_bytes": rng.randrange(10**9, 10**11),
        }
        sizes["num_heads"] = sizes["num_kv_heads"] * shared
        one = fitting(sizes | {"memory_bytes": 0})[0] * sizes["num_tokens"]
        # In turn: not even the weights; the weights alone; some users; some and most of one more.
        users = rng.randrange(3, 300)
        room = (-one * 2 - 1, one // 2, one * users, one * users + one * 9 // 10)[case % 4]
        sizes["memory_bytes"] = max(0, sizes["weight_bytes"] + room)
        t.equal(call("readers_that_fit", **sizes), fitting(sizes), f"sizes {sizes}")
    # Users that are large beside the memory: the weights matter.
    sizes = {"num_layers": 4, "num_heads": 6, "num_kv_heads": 3, "head_size": 16}
    sizes |= {"bytes_per_number": 2, "num_tokens": rng.randrange(5, 50)}
    sizes |= {"memory_bytes": 10**6, "weight_bytes": 5 * 10**5}
    t.equal(call("readers_that_fit", **sizes), fitting(sizes), f"sizes {sizes}")


def check_4(t, call, rng):
    """Streams of blocks; after each block the state is compared with all scores at once."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    streams = [  # lengths of the blocks, spread of the scores, shift of each block
        ([1, 4, 2], 2.0, [0.0, 0.0, 0.0]),
        ([3, 1, 5], 3.0, [900.0, 1_200.0, 1_000.0]),
        ([2, 6], 1.0, [-2_000.0, -1_500.0]),
        ([4, 3, 1], 1.0, [-math.inf, 1.0, -math.inf]),
        ([2, 3, 2], 5.0, [3.0, -3.0, 6.0]),
        ([1, 1], 1.0, [-math.inf, -math.inf]),
    ]
    for lengths, spread, shifts in streams:
        width = rng.randrange(1, 6)
        state = (
            torch.tensor(-math.inf, dtype=torch.float64),
            torch.tensor(0.0, dtype=torch.float64),
            torch.zeros(width, dtype=torch.float64),
        )
        scores_S = torch.zeros(0, dtype=torch.float64)
        values_SK = torch.zeros(0, width, dtype=torch.float64)
        for length, shift in zip(lengths, shifts, strict=True):
            scores = spread * torch.randn(length, generator=generator, dtype=torch.float64) + shift
            if length > 2:
                scores[rng.randrange(length)] = -math.inf  # one key that may not be seen
            values = torch.randn(length, width, generator=generator, dtype=torch.float64) + 2
            state = call("absorb", *state, scores, values)
            scores_S, values_SK = torch.cat([scores_S, scores]), torch.cat([values_SK, values])
            largest = scores_S.max()
            seen = bool(largest > -math.inf)
            right = (
                largest,
                (scores_S - largest).exp().sum() if seen else torch.tensor(0.0).double(),
                scores_S.softmax(0) @ values_SK if seen else torch.zeros(width).double(),
            )
            t.close(state, right, f"after scores {scores_S.tolist()}", relative=1e-9)
            if not isinstance(state, list | tuple) or len(state) != 3:
                return
