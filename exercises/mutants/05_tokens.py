"""Typical wrong answers to the exercises of chapter 05, and what the checks say to them."""

# %% 05.1 first_seen_wins
# says: you broke a tie the other way: among pairs that occur equally often the greater one wins
from collections import Counter
from itertools import pairwise


def merge_step(words):
    counts = Counter(pair for word in words for pair in pairwise(word))
    first, second = counts.most_common(1)[0][0]
    new = []
    for word in words:
        out = []
        while word:
            if word[:2] == [first, second]:
                out.append(first + second)
                word = word[2:]
            else:
                out.append(word[0])
                word = word[1:]
        new.append(out)
    return (first, second), new


# %% 05.1 counts_words
# says: you counted words, not occurrences: a pair that stands twice in a word counts twice
from itertools import pairwise


def merge_step(words):
    sets = [set(pairwise(word)) for word in words]
    pairs = set().union(*sets)
    best = max(pairs, key=lambda pair: (sum(pair in s for s in sets), pair))
    new = []
    for word in words:
        out = []
        while word:
            if tuple(word[:2]) == best:
                out.append(best[0] + best[1])
                word = word[2:]
            else:
                out.append(word[0])
                word = word[1:]
        new.append(out)
    return best, new


# %% 05.1 overlaps
# says: you joined overlapping pairs: after a a is joined, go on behind it
from collections import Counter
from itertools import pairwise


def merge_step(words):
    counts = Counter(pair for word in words for pair in pairwise(word))
    best = max(counts, key=lambda pair: (counts[pair], pair))
    new = []
    for word in words:
        out, skip = [], False
        for first, second in pairwise([*word, b""]):
            if (first, second) == best:
                out.append(first + second)
                skip = True
            elif skip:
                skip = False
            else:
                out.append(first)
        new.append(out)
    return best, new


# %% 05.1 first_place_only
# says: the pair is to be joined in every word, and everything else is to stay
from collections import Counter
from itertools import pairwise


def merge_step(words):
    counts = Counter(pair for word in words for pair in pairwise(word))
    best = max(counts, key=lambda pair: (counts[pair], pair))
    new, done = [], False
    for word in words:
        place = next((i for i, pair in enumerate(pairwise(word)) if pair == best), None)
        if place is None or done:
            new.append(word)
        else:
            new.append([*word[:place], best[0] + best[1], *word[place + 2 :]])
            done = True
    return best, new


# %% 05.2 from_the_left
# says: you went by the place in the word: the merge that was learnt first is applied first
def encode_word(word, merges):
    known = set(merges)
    pieces = []
    for byte in word:
        pieces.append(bytes([byte]))
        while len(pieces) > 1 and (pieces[-2], pieces[-1]) in known:
            last = pieces.pop()
            pieces[-1] += last
    return pieces


# %% 05.2 from_the_right
# says: of places with the same pair you joined another than the leftmost first
import heapq


def encode_word(word, merges):
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    end = len(word)
    pieces = [bytes([byte]) for byte in word]
    left, right = list(range(-1, end - 1)), list(range(1, end + 1))

    def rank_at(i):
        return rank_of.get((pieces[i], pieces[right[i]])) if i >= 0 and right[i] < end else None

    heap = [(rank_at(i), -i) for i in range(end) if rank_at(i) is not None]
    heapq.heapify(heap)
    while heap:
        rank, i = heapq.heappop(heap)
        i = -i
        if rank_at(i) != rank:
            continue
        j = right[i]
        pieces[i], pieces[j], right[i] = pieces[i] + pieces[j], b"", right[j]
        if right[i] < end:
            left[right[i]] = i
        for k in (left[i], i):
            if rank_at(k) is not None:
                heapq.heappush(heap, (rank_at(k), -k))
    return [piece for piece in pieces if piece]


# %% 05.2 believes_the_heap
# says: you joined by an outdated entry: after b c is joined, the pair a b is no longer there
import heapq


def encode_word(word, merges):
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    end = len(word)
    pieces = [bytes([byte]) for byte in word]
    left, right = list(range(-1, end - 1)), list(range(1, end + 1))

    def rank_at(i):
        return rank_of.get((pieces[i], pieces[right[i]])) if i >= 0 and right[i] < end else None

    heap = [(rank_at(i), i) for i in range(end) if rank_at(i) is not None]
    heapq.heapify(heap)
    while heap:
        rank, i = heapq.heappop(heap)
        if not pieces[i] or right[i] == end:
            continue
        j = right[i]
        pieces[i], pieces[j], right[i] = pieces[i] + pieces[j], b"", right[j]
        if right[i] < end:
            left[right[i]] = i
        for k in (left[i], i):
            if rank_at(k) is not None:
                heapq.heappush(heap, (rank_at(k), k))
    return [piece for piece in pieces if piece]


# %% 05.2 forgets_the_left
# says: you forgot a new pair: a joined piece makes one with its left and one with its right
import heapq


def encode_word(word, merges):
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    end = len(word)
    pieces = [bytes([byte]) for byte in word]
    right = list(range(1, end + 1))

    def rank_at(i):
        return rank_of.get((pieces[i], pieces[right[i]])) if right[i] < end else None

    heap = [(rank_at(i), i) for i in range(end) if rank_at(i) is not None]
    heapq.heapify(heap)
    while heap:
        rank, i = heapq.heappop(heap)
        if rank_at(i) != rank:
            continue
        j = right[i]
        pieces[i], pieces[j], right[i] = pieces[i] + pieces[j], b"", right[j]
        if rank_at(i) is not None:
            heapq.heappush(heap, (rank_at(i), i))
    return [piece for piece in pieces if piece]


# %% 05.2 searches_all_ranks
# says: your time grows with the square of the length: 32 times the letters take several hundred
# times as long
from itertools import pairwise


def encode_word(word, merges):
    never = len(merges)
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    pieces = [bytes([byte]) for byte in word]
    ranks = [rank_of.get(pair, never) for pair in pairwise(pieces)]
    while ranks and (best := min(ranks)) < never:
        i = ranks.index(best)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        del ranks[i]
        for k in (i - 1, i):
            if 0 <= k < len(ranks):
                ranks[k] = rank_of.get((pieces[k], pieces[k + 1]), never)
    return pieces


# %% 05.2 one_walk_for_each_merge
# says: your time grows with the number of merges: do not walk through the word, or through the
# list, for each of them
def encode_word(word, merges):
    pieces = [bytes([byte]) for byte in word]
    for first, second in merges:
        out = []
        for piece in pieces:
            if piece == second and out and out[-1] == first:
                # A piece that was just joined is longer than `first`, so it is not joined again.
                out[-1] = first + second
            else:
                out.append(piece)
        pieces = out
    return pieces


# %% 05.3 two_bytes
# says: two bytes hold 65,536 different ids, and there are 128,256
def corpus_bytes(num_tokens, vocab_size):
    return 2 * num_tokens


# %% 05.3 bits_for_bytes
# says: an id of Llama 3 takes 4 bytes: 15.6 trillion of them are 62.4 TB
def corpus_bytes(num_tokens, vocab_size):
    return num_tokens * vocab_size.bit_length()


# %% 05.3 off_by_one
# says: ids begin at 0: a vocabulary of 65,536 ends at id 65,535, which two bytes hold
def corpus_bytes(num_tokens, vocab_size):
    return num_tokens * next(width for width in (1, 2, 4) if vocab_size < 256**width)


# %% 05.4 half_of_the_present
# says: you took half of the present parameters: the whole grows too when the tables grow
def half_vocabulary(num_parameters, vocab_size, width, tied):
    per_row = width if tied else 2 * width
    return -(-num_parameters // (2 * per_row))


# %% 05.4 tables_in_the_rest
# says: you divided all parameters: the present embedding and head do not belong to the rest
def half_vocabulary(num_parameters, vocab_size, width, tied):
    per_row = width if tied else 2 * width
    return -(-num_parameters // per_row)


# %% 05.4 forgets_the_head
# says: you counted one table: without tying, a token has a row in the embedding and one in the head
def half_vocabulary(num_parameters, vocab_size, width, tied):
    return -(-(num_parameters - vocab_size * width) // width)


# %% 05.4 ignores_tying
# says: GPT-2 small ties its head: its one table counts once, and a token adds 768 parameters
def half_vocabulary(num_parameters, vocab_size, width, tied):
    return -(-(num_parameters - 2 * vocab_size * width) // (2 * width))


# %% 05.4 rounds_down
# says: at 852,000 rows the tables of Llama 3 8B are still a little smaller than the rest: round up
def half_vocabulary(num_parameters, vocab_size, width, tied):
    per_row = width if tied else 2 * width
    return (num_parameters - vocab_size * per_row) // per_row
