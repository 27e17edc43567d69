"""Hidden tests of the exercises of chapter 06."""

import math
import re
import zlib


def check_1(t, call, rng):
    """Texts of many lengths, their signatures, and the errors that are wanted."""
    for count in (1, 2, 3, 4, 9, 40):
        words = [rng.choice(("Ab", "cd", "EF", "gh")) for _ in range(count)]
        n, text = rng.choice((2, 3)), f" {'  '.join(words)}\n"
        low = [word.lower() for word in words]
        right = sorted({" ".join(low[i : i + n]) for i in range(max(1, count - n + 1))})
        t.equal(call("shingles", text, n), right, f"{count} words, n = {n}")
        hashes = [(rng.randrange(1, 2**60), rng.randrange(2**60)) for _ in range(7)]
        smallest = [
            min((a * zlib.crc32(s.encode()) + b) % (2**61 - 1) for s in right) for a, b in hashes
        ]
        t.equal(call("signature", right, hashes), smallest, f"signature of {count} words")
    t.equal(call("shingles", "\n", 2), [], "no words")
    for _ in range(5):
        first = [rng.randrange(4) for _ in range(16)]
        second = [rng.randrange(4) for _ in range(16)]
        right = sum(a == b for a, b in zip(first, second, strict=True)) / 16
        t.equal(call("estimate", first, second), right, f"{first} and {second}")
    for error in (0.25, 0.0625, 0.07, 0.011, rng.uniform(0.004, 0.3)):
        t.equal(call("hashes_for", error), math.ceil(1 / (4 * error**2)), f"error {error}")


def check_2(t, call, rng):
    """Curves, the nearest thresholds and what they miss."""

    def curve(s, bands, rows):
        return 1 - (1 - s**rows) ** bands

    for _ in range(8):
        s, bands, rows = rng.uniform(0.2, 0.9), rng.randrange(2, 9), rng.randrange(2, 9)
        case = f"similarity {s}, {bands} bands of {rows} rows"
        answer = call("candidate_probability", s, bands, rows)
        t.close(answer, curve(s, bands, rows), case, relative=1e-9)
        copies, others = ([rng.random() for _ in range(rng.randrange(6))] for _ in range(2))
        right = [
            sum(1 - curve(s, bands, rows) for s in copies),
            sum(curve(s, bands, rows) for s in others),
        ]
        answer = call("missed_and_needless", copies, others, bands, rows)
        t.close(list(answer), right, f"{case}: {copies}, {others}", relative=1e-9)
    for similarity, num_hashes in ((1.0, 9), (0.6, 16), (0.8, 100), (0.5, 1), (0.75, 130)):
        nearest, right = math.inf, None
        for rows in range(1, num_hashes + 1):
            bands = num_hashes // rows
            distance = abs((1 / bands) ** (1 / rows) - similarity)
            if distance < nearest:
                nearest, right = distance, [bands, rows]
        answer = call("bands_for", similarity, num_hashes)
        t.equal(list(answer), right, f"{num_hashes} hash functions for {similarity}")
    t.equal(call("with_more_rows"), {"missed": "more", "needless": "fewer"}, "the conclusion")


def check_3(t, call, rng):
    """Texts that break one rule, none or several, at the limits of each."""
    names = ("anna", "lena", "mona", "nina")
    words = [rng.choice(names) for _ in range(rng.randrange(10, 20))]
    good = " ".join(["The", *words, "and."])
    for text, min_words, right in (
        (good, len(words) + 2, None),
        (good, len(words) + 3, "few words"),
        (" ".join(["the", *words, "The"]), 5, "stop words"),
        (" ".join(words), 5, "stop words"),
        (f"{good} 'HAVE'", 5, None),
        ("the cat and the dog", 5, None),
        ("the cat and an ox", 5, "word length"),
        ("the that " + "x" * 13, 3, None),
        ("the that " + "x" * 24, 3, "word length"),
        ("that have " + "x" * 22, 3, None),
        ("that have " + "x" * 23, 3, "word length"),
        ("\n".join([f"{good}..."] * 3 + [good] * 7), 5, None),
        ("\n\n".join([f"{good}…  "] * 3 + [good] * 6), 5, "ellipses"),
        ("\n\n".join([f"{good}..."] * 3 + [good] * 6), 5, "ellipses"),
        ("\n \n".join([f"{names[0]}..."] * 3), 3, "ellipses"),
        ("a b...", 3, "few words"),
        ("a b...", 2, "word length"),
    ):
        t.equal(call("judge", text, min_words), right, f"{text!r} with min_words {min_words}")


def check_4(t, call, rng):
    """Items of many lengths in texts of few different words."""

    def runs(words, length):
        return [words[i : i + length] for i in range(len(words) - length + 1)]

    vocabulary = ("An", "Anna", "is", "the", "RED", "ball's", "5")
    for n in (1, 2, 3, 5):
        for _ in range(8):
            text = rng.choice((" ", ", ")).join(rng.choices(vocabulary, k=rng.randrange(3, 25)))
            items = [" - ".join(rng.choices(vocabulary, k=rng.randrange(0, 8))) for _ in range(6)]
            words, right = re.findall(r"[a-z0-9]+", text.lower()), []
            for index, item in enumerate(items):
                wanted = re.findall(r"[a-z0-9]+", item.lower())
                length = min(n, len(wanted))
                if length and any(run in runs(words, length) for run in runs(wanted, length)):
                    right.append(index)
            t.equal(call("contaminated", text, items, n), right, f"{items} in {text!r}, n = {n}")
    t.equal(call("contaminated", "who is Anna", ["is Ann", "?", "o is a"], 4), [], "borders")
    t.equal(call("contaminated", "a b c, d e", ["x a B c y"], 3), [0], "a part, with a capital")
    t.equal(call("contaminated", "c b a", ["a b c"], 3), [], "another order")
    for _ in range(12):
        lengths = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 9))]
        leaking = rng.sample(range(len(lengths)), rng.randrange(len(lengths) + 1))
        size = rng.randrange(1, 7)
        owners = [index for index, length in enumerate(lengths) for _ in range(length)]
        cut = [owners[i : i + size] for i in range(0, len(owners), size)]
        rows = [row for row, held in enumerate(cut) if set(held) & set(leaking)]
        lost = sum(owner not in leaking for row in rows for owner in cut[row])
        answer = call("rows_to_drop", lengths, leaking, size)
        case = f"documents of {lengths}, of which {leaking} leak, in rows of {size}"
        t.equal([list(answer[0]), answer[1]], [rows, lost], case)


def check_5(t, call, rng):
    """Scores with ties, and precisions that are reached exactly, or never."""
    for _ in range(20):
        count = rng.randrange(3, 25)
        scores = [rng.randrange(12) / 16 for _ in range(count)]
        labels = [int(rng.random() < 0.2 + score) for score in scores]
        wanted = rng.choice((0.5, 0.75, 0.9, 1.0))
        right = None
        for threshold in sorted(set(scores), reverse=True):
            kept = [y for s, y in zip(scores, labels, strict=True) if s >= threshold]
            if sum(kept) / len(kept) >= wanted:
                right = threshold
        case = f"scores {scores}, labels {labels}"
        t.equal(call("threshold_for", scores, labels, wanted), right, f"{case}, {wanted}")
        cut = rng.choice([*scores, 2, -1])
        kept = [y for s, y in zip(scores, labels, strict=True) if s >= cut]
        counts = [sum(kept), len(kept) - sum(kept), sum(labels) - sum(kept)]
        t.equal(list(call("kept_and_lost", scores, labels, cut)), counts, f"{case}, cut {cut}")
    for scores, labels, wanted, right in (
        ([0.9, 0.8, 0.7, 0.6, 0.5], [1, 0, 1, 1, 0], 0.75, 0.6),
        ([0.9, 0.8, 0.7, 0.6, 0.5], [0, 1, 1, 1, 0], 0.9, None),
        ([0.8, 0.8, 0.3], [1, 0, 0], 0.6, None),
        ([0.8, 0.8, 0.3], [0, 1, 0], 0.5, 0.8),
    ):
        answer = call("threshold_for", scores, labels, wanted)
        t.equal(answer, right, f"{scores}, {labels}, {wanted}")
    right = {"precision": "can do both", "recall": "never rises"}
    t.equal(call("with_a_higher_threshold"), right, "the conclusion")
