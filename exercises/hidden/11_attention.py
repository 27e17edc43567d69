"""Hidden tests of the exercises of chapter 11."""

import math

import torch


def attended(q, k, v):
    """Return causal attention of (T, K) by sums over single numbers, relative to the largest."""
    T, K = q.shape
    q, k, v = (rows.tolist() for rows in (q, k, v))
    out = []
    for t in range(T):
        scores = [math.fsum(a * b for a, b in zip(q[t], k[s], strict=True)) for s in range(t + 1)]
        scores = [score / math.sqrt(K) for score in scores]
        shares = [math.exp(score - max(scores)) for score in scores]
        mixed = [math.fsum(w * v[s][c] for s, w in enumerate(shares)) for c in range(K)]
        out.append([number / math.fsum(shares) for number in mixed])
    return torch.tensor(out, dtype=torch.float64)


def check_1(t, call, rng):
    """Two, three and four axes, one token and one number, scores of all sizes."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for axes in ((), (3,), (1,), (2, 4), (rng.randrange(1, 4), rng.randrange(1, 4))):
        for T, K in ((1, 1), (4, 4), (rng.randrange(2, 9), rng.randrange(1, 9))):
            for size in (1.0, 40.0):
                q, k, v = torch.randn(3, *axes, T, K, generator=generator, dtype=torch.float64)
                q, k = size * q, size * k
                flat = (x.reshape(-1, T, K) for x in (q, k, v))
                right = torch.stack([attended(*each) for each in zip(*flat, strict=True)])
                case = f"shape {(*axes, T, K)}, numbers of size {size:g}"
                given = [x.clone() for x in (q, k, v)]
                answer = call("attend", *given)
                t.close(answer, right.reshape(q.shape), case, relative=1e-7, absolute=1e-9)
                untouched = all(map(torch.equal, given, (q, k, v)))
                t(untouched, f"{case}: queries, keys and values stay as they are")
    # Rows of scores far apart, in float32.
    q = torch.tensor([[90.0], [-90.0], [1.0]])
    answer = call("attend", q, 90 * torch.ones(3, 1), torch.tensor([[1.0], [3.0], [8.0]]))
    t.close(answer.flatten(), torch.tensor([1.0, 2.0, 4.0]), "scores of 8,100 and -8,100")


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


def check_3(t, call, rng):
    """Heads of many sizes on random texts, and how sharp they have to be."""
    for _ in range(4):
        V, P = rng.randrange(1, 9), rng.randrange(2, 12)
        sharpness = rng.choice([0.5, 3.0, 200.0])
        ids = [rng.randrange(V) for _ in range(P)]
        x = torch.zeros(P, V + P)
        for place, token in enumerate(ids):
            x[place, token] = x[place, V + place] = 1
        case = f"{V} tokens, {P} places, sharpness {sharpness:g}"
        head = call("copying_head", V, P, sharpness)
        shapes = [tuple(w.shape) for w in head]
        t.equal(shapes, [(P, V + P), (P, V + P), (V, V + P)], case)
        if shapes != [(P, V + P), (P, V + P), (V, V + P)]:
            return
        q, k, v = (x @ w.float().T for w in head)
        right = torch.zeros(P, P)
        for place in range(1, P):
            right[place, place - 1] = sharpness
        t.close((q @ k.T).tril(), right, f"{case}: scores", absolute=1e-5)
        t.close(v, x[:, :V], f"{case}: values", absolute=1e-6)
    for places in (2, 5, rng.randrange(10, 60), 200):
        for share in (0.3, 0.75, 0.995):
            enough = 1
            # The last token has the most others to give weight to.
            while 1 / (1 + (places - 1) * math.exp(-enough / math.sqrt(places))) < share:
                enough += 1
            t.equal(call("sharp_enough", places, share), enough, f"{places} places, {share}")


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
