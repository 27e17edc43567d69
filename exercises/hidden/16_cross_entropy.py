"""Hidden tests of the exercises of chapter 16."""

import math
from collections import Counter

import torch


def check_1(t, call, rng):
    """Any number of places and tokens; logits of all sizes, near each other and far apart."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for num_rows, vocab_size, scale, level in (
        (1, 2, 1, 0),
        (5, 3, 2, 0),
        (3, 7, 1, 40),
        (40, 200, 3, 0),
        (6, 9, 1, -300),
        (4, 5, 1_000, 0),
    ):
        logits_NV = level + scale * torch.randn(num_rows, vocab_size, generator=generator)
        targets_N = torch.randint(0, vocab_size, (num_rows,), generator=generator)
        right = torch.nn.functional.cross_entropy(logits_NV.double(), targets_N).item()
        answer = call("cross_entropy", logits_NV, targets_N)
        case = f"{num_rows} places, {vocab_size} tokens, logits near {level} times {scale}"
        t.close(answer, right, case, relative=1e-4, absolute=1e-4)
    for level in (10_000.0, -10_000.0):
        logits_NV = level + torch.randn(8, 6, generator=generator)
        targets_N = torch.randint(0, 6, (8,), generator=generator)
        right = torch.nn.functional.cross_entropy(logits_NV.double(), targets_N).item()
        # The logits themselves are only known to a thousandth there.
        t.close(
            call("cross_entropy", logits_NV, targets_N), right, f"near {level:,}", absolute=5e-3
        )


def check_2(t, call, rng):
    """Temperatures on either side of 1; conclusions that the exercise's own table bears out."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for temperature in (0.3, 1.0, 1.0 + rng.random(), 4.0):
        logits_NV = 3 * torch.randn(20, 9, generator=generator, dtype=torch.float64)
        targets_N = torch.randint(0, 9, (20,), generator=generator)
        p_N = (logits_NV / temperature).softmax(-1)[torch.arange(20), targets_N]
        right = -p_N.log().mean().item(), p_N.mean().item()
        answer = call("measure", logits_NV, targets_N, temperature)
        t.close(answer, right, f"temperature {temperature:.2f}", relative=1e-5)
    yours = call("conclusions")
    for name, allowed in {
        # Each of these is within chance of the best, over ten seeds of the exercise's sweep.
        "smallest loss": (1.0,),
        "drawn tokens are right most often": (0.2,),
        "most sentences that the recogniser accepts": (0.2, 0.6),
        "fewest sentences that repeat others": (1.5, 2.5),
        "most sentences that are new and right": (0.6, 1.0),
        "the likeliest token depends on the temperature": (False,),
    }.items():
        t.equal(yours.get(name) in allowed, True, name)


def scores(training, test, vocab_size, num_bytes):
    """Return perplexity and bits per byte of a unigram model, by counting in plain Python."""
    counts = Counter(training)
    seen = len(training) + vocab_size
    bits = math.fsum(-math.log2((counts[token] + 1) / seen) for token in test)
    return 2 ** (bits / len(test)), bits / num_bytes


def check_3(t, call, rng):
    """Vocabularies with tokens that only one of the two texts has, or neither."""
    for vocab_size, shortest in ((5, 1), (60, 20), (1_000, 200)):
        for greatest in range(3):
            # Small ids are frequent, as in a text; the greatest never come in training.
            training = [
                int(rng.random() ** 3 * (vocab_size - 2))
                for _ in range(rng.randrange(shortest, 9 * shortest + 9))
            ]
            # The greatest id comes in two tests of three.
            test = [rng.randrange(vocab_size - 1) for _ in range(rng.randrange(shortest, 300))]
            test += [vocab_size - 1] * greatest
            num_bytes = len(test) + rng.randrange(1, 900)
            answer = call(
                "unigram_scores",
                torch.tensor(training).numpy(),
                torch.tensor(test).numpy(),
                vocab_size,
                num_bytes,
            )
            right = scores(training, test, vocab_size, num_bytes)
            case = f"{len(training)} tokens of {vocab_size} kinds, tested on {len(test)}"
            t.close(answer, right, case, relative=1e-10)


def with_all_logits(x_ND, w_VD, targets_N):
    """Return loss and gradients by autograd through torch's own cross-entropy."""
    x_ND, w_VD = x_ND.clone().requires_grad_(), w_VD.clone().requires_grad_()
    value = torch.nn.functional.cross_entropy(x_ND @ w_VD.T, targets_N)
    return (value.detach(), *torch.autograd.grad(value, [x_ND, w_VD]))


def check_4(t, call, rng):
    """Sizes that the number of slices divides and others, and logits of any size."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    cases = [
        (12, 24, 5, 4, 1),
        (7, 11, 3, 4, 1),
        (9, 30, 8, 7, 200),
        (5, 6, 2, 6, 1),
        (1, 8, 4, 3, 1),
    ]
    for num_rows, vocab_size, width, num_chunks, scale in [
        *cases,
        (8, 13, 4, 1, 3),
        (40, 300, 6, 9, 2),
    ]:
        x_ND = scale * torch.randn(num_rows, width, generator=generator, dtype=torch.float64)
        w_VD = torch.randn(vocab_size, width, generator=generator, dtype=torch.float64)
        targets_N = torch.randint(0, vocab_size, (num_rows,), generator=generator)
        answer = call("chunked_cross_entropy", x_ND, w_VD, targets_N, num_chunks)
        case = f"{num_rows} rows, {vocab_size} entries in {num_chunks} slices, scale {scale}"
        t.close(answer, with_all_logits(x_ND, w_VD, targets_N), case, relative=1e-9)
    # In float32 all logits of a row near 1,000, and the same far below 0.
    for level in (1_000.0, -1_000.0):
        x_ND = torch.cat([torch.full((6, 1), level), torch.randn(6, 3, generator=generator)], 1)
        w_VD = torch.cat([torch.ones(17, 1), torch.randn(17, 3, generator=generator)], 1)
        targets_N = torch.randint(0, 17, (6,), generator=generator)
        answer = call("chunked_cross_entropy", x_ND, w_VD, targets_N, 5)
        right = with_all_logits(x_ND.double(), w_VD.double(), targets_N)
        right = tuple(part.float() for part in right)
        t.close(answer, right, f"float32 logits near {level:,}", relative=2e-3)
