"""Hidden tests of the exercises of chapter 16."""

import math
from collections import Counter

import torch

from llmcourse import loss


def check_1(t, call, rng):
    """Rows in any order, with forbidden tokens, far from 0 on either side."""
    inf = math.inf
    rows = [
        [rng.uniform(-3, 3) for _ in range(6)],
        [-inf, 900 + rng.random(), -inf, 905.0, 905.0],
        sorted(rng.uniform(-2_000, -1_000) for _ in range(4)),
        [1e6, 1e6 - rng.random(), -1e6, 1e6 + 1.5],
        [-inf, -inf],
    ]
    for row in rows:
        pair = (-inf, 0.0)
        for place, logit in enumerate(row, start=1):
            pair = call("absorb", *pair, logit)
            seen = [x for x in row[:place] if x > -inf]
            largest = max(seen, default=-inf)
            total = math.fsum(math.exp(x - largest) for x in seen)
            t.close(pair, (largest, total), f"after the logits {row[:place]}", relative=1e-9)
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                return


def check_2(t, call, rng):
    """Texts of one to four bytes for each character, and any number of tokens."""
    words = ["State", "of the", "Grüße", "naïve", "日本語", "€ 5", "🙂", "\n"]
    for num_tokens in (1, 2, 7, 40):
        text = " ".join(rng.choices(words, k=rng.randrange(1, 9))) + "é€"
        losses = [rng.uniform(0.01, 9) for _ in range(num_tokens)]
        nats = math.fsum(losses) / num_tokens
        right = loss.bits_per_byte(nats, num_tokens=num_tokens, num_bytes=len(text.encode()))
        # Single precision is enough.
        t.close(
            call("bits_per_byte", losses, text), right, f"{losses} over {text!r}", relative=1e-5
        )
    t.equal(call("bits_per_byte", [0.0, 0.0], "sure"), 0.0, "a model that was certain pays nothing")


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
