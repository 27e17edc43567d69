"""Hidden tests of the exercises of chapter 05."""

import gc
import time
from collections import Counter
from itertools import pairwise

from llmcourse_classroom.exercises.result import State
from llmcourse_classroom.grader import hidden
from llmcourse.data import corpus
from llmcourse.data.tokenizer import train_bpe


def best_of(words):
    """Return the most frequent pair; the greater one of two that are tied."""
    counts = Counter(pair for word in words for pair in pairwise(word))
    return max(counts, key=lambda pair: (counts[pair], pair))


def joined(word, pair):
    """Return a word with a pair joined, from the left."""
    out, joined_last = [], False
    for piece in word:
        if out and not joined_last and (out[-1], piece) == pair:
            out[-1], joined_last = out[-1] + piece, True
        else:
            out.append(piece)
            joined_last = False
    return out


def check_1(t, call, rng):
    """Words of few different letters, so that ties and overlaps occur."""
    for letters in (2, 3, 4):
        words = [
            [bytes([97 + rng.randrange(letters)]) for _ in range(rng.randrange(1, 9))]
            for _ in range(12)
        ]
        pair, new_words = call("merge_step", words)
        right = best_of(words)
        t.equal(pair, right, f"not the most frequent, or the greater, pair of {words}")
        t.equal(new_words, [joined(word, right) for word in words], f"{right} joined in {words}")
    tied = [[b"p", b"q"], [b"q", b"p"], [b"p", b"p"]]
    t.equal(call("merge_step", tied)[0], (b"q", b"p"), "a tie of three pairs is broken otherwise")
    twice = [[b"x", b"y"], [b"x", b"z"], [b"m", b"n", b"m", b"n", b"m", b"n"]]
    t.equal(call("merge_step", twice)[0], (b"m", b"n"), "a pair counts once for each place")
    run = [[b"k"] * 5]
    t.equal(call("merge_step", run)[1], [[b"kk", b"kk", b"k"]], "overlapping pairs")


def random_merges(rng, letters, count):
    """Return merges as BPE makes them: of earlier pieces, each making a piece of its own."""
    pieces, merges = [bytes([letter]) for letter in letters], []
    while len(merges) < count:
        pair = rng.choice(pieces), rng.choice(pieces)
        if pair[0] + pair[1] not in pieces:
            merges.append(pair)
            pieces.append(pair[0] + pair[1])
    return merges


def encoded_slowly(word, merges):
    """Apply the merges one after another, each to the whole word."""
    pieces = [bytes([byte]) for byte in word]
    for pair in merges:
        pieces = joined(pieces, pair)
    return pieces


def encoded_fast(word, merges):
    """Go through the ranks, each with a list of the places where its pair may stand."""
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    pieces = [bytes([byte]) for byte in word] + [b""]
    left, right = list(range(-1, len(word))), [*range(1, len(word) + 1), -1]
    places = [[] for _ in merges]
    for place, pair in enumerate(pairwise(pieces)):
        if pair in rank_of:
            places[rank_of[pair]].append(place)
    for rank, pair in enumerate(merges):
        for place in sorted(places[rank]):
            gone = right[place]
            if (pieces[place], pieces[gone]) != pair:
                continue
            pieces[place], pieces[gone] = pair[0] + pair[1], b""
            right[place], left[right[gone]] = right[gone], place
            for start in (left[place], place):
                new = rank_of.get((pieces[start], pieces[right[start]])) if start >= 0 else None
                if new is not None:
                    places[new].append(start)
    return [piece for piece in pieces if piece]


def is_slow(call, word, merges):
    """Say whether an answer takes far longer than `encoded_fast`, and to pass the data, each time.

    Both are processor times, of which a busy machine's other programs take nothing.
    """
    own = hidden.Caller({"encode_word": encoded_fast})
    gc.collect()
    gc.disable()  # it takes longer than what is measured here
    try:
        for _ in range(3):
            began = time.thread_time()
            own("encode_word", word, merges)
            needed = time.thread_time() - began
            call("encode_word", word, merges)
            # An answer in n log n is at 0.5 to 2 here; one that is quadratic, or walks through
            # the word for each merge, at 30.
            if call.processor_s < 8 * needed:
                return False
    finally:
        gc.enable()
    return True


def check_2(t, call, rng):
    """Alphabets of few letters, then long words beside an encoder that takes n log n."""
    for letters, count, length in ((b"a", 5, 83), (b"ab", 12, 300), (b"abcd", 40, 600)):
        merges = random_merges(rng, letters, count)
        word = bytes(rng.choices(letters, k=length))
        pieces = encoded_slowly(word, merges)
        t.equal(call("encode_word", word, merges), pieces, f"{word[:40]} ... with {merges[:5]} ...")
    chain = [(b"p", b"q"), (b"o", b"pq"), (b"opq", b"r")]
    t.equal(call("encode_word", b"opqropq", chain), [b"opqr", b"opq"], "pairs on both sides")
    t.equal(call("encode_word", b"qpqo", chain), [b"q", b"pq", b"o"], "the order of a pair")
    swapped = [(b"y", b"z"), (b"x", b"y")]
    t.equal(call("encode_word", b"xyzxy", swapped), [b"x", b"yz", b"xy"], "an outdated entry")
    for word in (b"", b"k", b"\x00\xff"):
        single = [bytes([byte]) for byte in word]
        t.equal(call("encode_word", word, chain), single, f"nothing to join in {word}")

    if t.result.state is not State.PASS:
        return  # the long words take their time
    letters, own = b"acgt", [(bytes([a]), bytes([b])) for a in b"acgt" for b in b"acgt"]
    rng.shuffle(own)
    others = [(bytes([a]), bytes([b])) for a in range(128, 192) for b in range(128, 256)]
    word = bytes(rng.choices(letters, k=24_000))
    pieces = encoded_fast(word, own)
    if not t.equal(call("encode_word", word, own + others), pieces, "24,000 letters"):
        return
    slow = is_slow(call, word, own + others)
    if t(not slow, "24,000 letters and 8,208 merges take far longer than in n log n"):
        word = bytes(rng.choices(letters, k=200_000))
        pieces = encoded_fast(word, own)
        t.equal(call("encode_word", word, own), pieces, "200,000 letters")


def pays(text, held_out, sizes, bound):
    """Return the size of 05.3, with a tokenizer trained anew for each size."""
    counts = [len(train_bpe(text, size).encode(held_out)) for size in sizes]
    for place in range(len(sizes) - 1):
        saved, added = counts[place] - counts[place + 1], sizes[place + 1] - sizes[place]
        if saved < bound * added:
            return sizes[place]
    return sizes[-1]


def check_3(t, call, rng):
    """Stories learnt, and others read, with bounds between the gains; then the addresses."""
    for sizes in ([256, 300, 320, 400, 500], [260, 280, 360], [300, 512]):
        text = corpus.stories(6_000, seed=rng.randrange(10**6))
        held_out = corpus.stories(3_000, seed=rng.randrange(10**6))
        for bound in (0.25, 1.5, 4.3, 1000):
            answer = call("size_that_pays", text, held_out, sizes, bound)
            case = f"sizes {sizes}, a bound of {bound}"
            t.equal(answer, pays(text, held_out, sizes, bound), case)
    t.equal(list(call("conclusions")), [512, 2048, 4096], "the three texts")


def check_4(t, call, rng):
    """Models of every size, tied and not, some of them exactly half at a whole number of rows."""
    for tied in (False, True) * 4:
        width, vocab_size = 64 * rng.randrange(1, 200), rng.randrange(256, 300_000)
        per_row = width if tied else 2 * width
        rows, extra = rng.randrange(300, 500_000), rng.choice([0, 1, per_row - 1])
        num_parameters = vocab_size * per_row + rows * per_row + extra
        answer = call("half_vocabulary", num_parameters, vocab_size, width, tied)
        # rows * per_row reaches the rest if the rest has no extra parameter.
        case = f"{num_parameters:,} parameters, {vocab_size:,} rows of {width}, tied: {tied}"
        t.equal(answer, rows + (extra > 0), case)
    t.equal(call("half_vocabulary", 10_000_001, 1_000, 500, False), 9_001, "one parameter above")
    t.equal(call("half_vocabulary", 10_000_000, 1_000, 500, True), 19_000, "exactly half, tied")
