"""Hidden tests of the exercises of chapter 40."""

import math
import re
from itertools import pairwise

ROLES = ("system", "user", "assistant")


def specials(rng, first):
    """Special tokens with ids in random order."""
    ids = [first + n for n in range(4)]
    rng.shuffle(ids)
    return dict(zip((*(f"<|{role}|>" for role in ROLES), "<|end|>"), ids, strict=True))


def check_1(t, call, rng):
    """Conversations of any length, with forged tokens and signs of other scripts in them."""
    texts = ["", "Who?", "<|end|>", "<|assistant|>yes", "東京 🙂", "a\nb"]
    for _ in range(8):
        special = specials(rng, 3_000_000)
        turns = [[rng.choice(ROLES), rng.choice(texts)] for _ in range(rng.randrange(0, 5))]
        right = []
        for role, text in turns:
            right += [special[f"<|{role}|>"], *map(ord, text), special["<|end|>"]]
        t.equal(list(call("to_ids", turns, special)), right, f"{turns}")
        t.equal(
            list(call("prompt", turns, special)), [*right, special["<|assistant|>"]], f"{turns}"
        )
        cut = [*right, special["<|user|>"], *map(ord, rng.choice(texts))]
        for ids in (right, cut):
            found = [list(turn) for turn in call("to_turns", ids, special)]
            t.equal(found, turns, f"{turns}, {len(ids)} ids")


def check_2(t, call, rng):
    """Rows of every shape: of each token, the last special one before it decides."""
    for _ in range(30):
        special = specials(rng, 50)
        row = []
        for _ in range(rng.randrange(0, 5)):
            row += [special[f"<|{rng.choice(ROLES)}|>"]]
            row += [rng.randrange(50) for _ in range(rng.randrange(0, 4))]
            row += [special["<|end|>"]] * (rng.random() < 0.8)
            row += [0] * (rng.random() < 0.5)
        row = row or [1, 2]
        marks = []
        for place, number in enumerate(row):
            before = [i for i in row[:place] if i >= 50]
            inside = bool(before) and before[-1] == special["<|assistant|>"]
            marks.append(inside and (number < 50 or number == special["<|end|>"]))
        case = f"{row} with {special}"
        t.equal([bool(mark) for mark in call("written", row, special)], marks, case)
        right = [n if m else None for n, m in zip(row[1:], marks[1:], strict=True)] + [None]
        t.equal(list(call("targets", row, special)), right, case)
        losses = [rng.uniform(0, 9) for _ in row]
        kept = [x for x, target in zip(losses, right, strict=True) if target is not None]
        found = call("masked_loss", losses, row, special)
        if kept:
            t.close(found, math.fsum(kept) / len(kept), case, relative=1e-9)
        else:
            t.equal(found, None, case)


def check_3(t, call, rng):
    """Shares and sizes of many kinds."""
    for _ in range(8):
        size, steps = rng.randrange(1, 20), rng.randrange(1, 60)
        share = rng.choice([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, rng.uniform(0, 0.9)])
        case = f"{steps} batches of {size}, share {share}"
        sums = [math.floor(size * share * s + 1e-9) for s in range(steps + 1)]
        right = [b - a for a, b in pairwise(sums)]
        t.equal([call("old_rows", step, size, share) for step in range(steps)], right, case)
        new = [f"n{i}" for i in range(rng.randrange(1, 9))]
        old = [f"o{i}" for i in range(rng.randrange(1, 9))]
        found = [list(batch) for batch in call("mixed", new, old, size, share, steps)]
        t.equal([sum(row in old for row in batch) for batch in found], right, case)
        for rows, name in ((new, "new"), (old, "old")):
            flat = [row for batch in found for row in batch if row in rows]
            expected = [rows[i % len(rows)] for i in range(len(flat))]
            t.equal(flat, expected, f"{case}: {name} rows in their order")
        sides = [[row in old for row in batch] for batch in found]
        t.equal(sides, [sorted(each) for each in sides], f"{case}: new rows first")
        t.close(call("share_of_old", found, old), sums[-1] / (size * steps), case, absolute=1e-9)


def check_4(t, call, rng):
    """Shapes and scales of many kinds, by sums over indices."""
    for _ in range(6):
        out, num_in, rank, rows = (rng.randrange(1, 5) for _ in range(4))
        alpha = rng.choice([1, 8, 16, rng.uniform(0.5, 4)])

        def drawn(a, b):
            return [[rng.uniform(-1, 1) for _ in range(b)] for _ in range(a)]

        W, A, B = drawn(out, num_in), drawn(rank, num_in), drawn(out, rank)
        x, dy, s = drawn(rows, num_in), drawn(rows, out), alpha / rank
        case = f"out {out}, in {num_in}, rank {rank}, alpha {alpha:g}"
        near = {"relative": 1e-8, "absolute": 1e-10}
        whole = [
            [W[f][d] + s * sum(B[f][r] * A[r][d] for r in range(rank)) for d in range(num_in)]
            for f in range(out)
        ]
        t.close(call("merge", W, A, B, alpha), whole, case, **near)
        y = [[sum(whole[f][d] * row[d] for d in range(num_in)) for f in range(out)] for row in x]
        t.close(call("lora_forward", x, W, A, B, alpha), y, case, **near)
        dW = [
            [sum(dy[n][f] * x[n][d] for n in range(rows)) for d in range(num_in)]
            for f in range(out)
        ]
        dA = [
            [s * sum(B[f][r] * dW[f][d] for f in range(out)) for d in range(num_in)]
            for r in range(rank)
        ]
        dB = [
            [s * sum(dW[f][d] * A[r][d] for d in range(num_in)) for r in range(rank)]
            for f in range(out)
        ]
        found = call("gradients", x, dy, A, B, alpha)
        t.close(found[0], dA, f"{case}: dA", **near)
        t.close(found[1], dB, f"{case}: dB", **near)
        shapes = [[rng.randrange(1, 99), rng.randrange(1, 99)] for _ in range(rng.randrange(1, 6))]
        right = sum(rank * sum(shape) for shape in shapes)
        t.equal(call("numbers_learnt", shapes, rank), right, f"{shapes}, rank {rank}")


def check_5(t, call, rng):
    """Made-up kinds and words."""
    words = ["red", "kite", "say", "who", "?", ":", ".", "soup"]

    def text():
        return " ".join(rng.choice(words) for _ in range(rng.randrange(1, 5))).capitalize()

    for _ in range(6):
        tasks = [[rng.choice("abc"), text()] for _ in range(rng.randrange(1, 12))]
        tests = [[rng.choice("abc"), rng.choice([text(), tasks[0][1]])] for _ in range(9)]
        counts = {}
        for kind, said in tasks:
            for word in re.findall(r"[a-z]+|[.?:,]", said.lower()):
                counts.setdefault(kind, {}).setdefault(word, 0)
                counts[kind][word] += 1
        right = []
        for _, said in tests:
            fits = {}
            for kind in sorted(counts):
                total = sum(counts[kind].values()) + 400
                found = re.findall(r"[a-z]+|[.?:,]", said.lower())
                fits[kind] = sum(math.log((counts[kind].get(w, 0) + 1) / total) for w in found)
            right.append(max(fits, key=fits.get))
        case = f"{tasks} on {tests}"
        t.equal([call("kind_of", tasks, said) for _, said in tests], right, case)
        share = sum(k == r for (k, _), r in zip(tests, right, strict=True)) / len(tests)
        t.close(call("share_right", tasks, tests), share, case, absolute=1e-9)
        known = sum(any(said == other for _, other in tasks) for _, said in tests) / len(tests)
        t.close(call("share_known", tasks, tests), known, case, absolute=1e-9)
    t.equal(list(call("conclusion")), [50, "the form"], "the conclusion")
