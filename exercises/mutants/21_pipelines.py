"""Typical wrong answers to the exercises of chapter 21, and what the checks say to them."""


# %% 21.1 gpipe
# says: this is GPipe: all forward, then all backward; in 1F1B a micro-batch goes backward as soon
# as it can
def actions_of_rank(rank, num_ranks, num_micro):
    return [(kind, k) for kind in "FB" for k in range(num_micro)]


# %% 21.1 same_warmup_for_all
# says: all ranks of yours warm up for as long as rank 0: the last rank has its first gradient at
# once, and would hold four micro-batches for nothing
def actions_of_rank(rank, num_ranks, num_micro):
    warmup = min(num_ranks - 1, num_micro)
    actions = [("F", k) for k in range(warmup)]
    for k in range(warmup, num_micro):
        actions += [("F", k), ("B", k - warmup)]
    return actions + [("B", k) for k in range(num_micro - warmup, num_micro)]


# %% 21.1 ranks_before
# says: you count the ranks before a rank: those behind it have to get work, so rank 0 has the
# longest warm-up and the last rank has none
def actions_of_rank(rank, num_ranks, num_micro):
    warmup = min(rank, num_micro)
    actions = [("F", k) for k in range(warmup)]
    for k in range(warmup, num_micro):
        actions += [("F", k), ("B", k - warmup)]
    return actions + [("B", k) for k in range(num_micro - warmup, num_micro)]


# %% 21.1 one_forward_too_many
# says: one forward pass too many before the first backward: p - r of them, and then another one
# from the turns; rank p - 1 has nobody behind it, so it begins with F0 B0
def actions_of_rank(rank, num_ranks, num_micro):
    warmup = min(num_ranks - rank, num_micro)
    actions = [("F", k) for k in range(warmup)]
    for k in range(warmup, num_micro):
        actions += [("F", k), ("B", k - warmup)]
    return actions + [("B", k) for k in range(num_micro - warmup, num_micro)]


# %% 21.1 last_one_back_first
# says: your backward passes do not come in the order 0, 1, 2, ...: micro-batch 0 is the first that
# comes back from the ranks behind, whichever went forward last
def actions_of_rank(rank, num_ranks, num_micro):
    warmup = min(num_ranks - 1 - rank, num_micro)
    actions = [("F", k) for k in range(warmup)]
    for k in range(warmup, num_micro):
        actions += [("F", k), ("B", num_micro - 1 - k + warmup)]
    return actions + [("B", k) for k in reversed(range(warmup))]


# %% 21.1 few_forgotten
# says: rank 0 of four with two micro-batches: you take a third one that does not exist; the
# warm-up is three forward passes only where there are three micro-batches
def actions_of_rank(rank, num_ranks, num_micro):
    warmup = num_ranks - 1 - rank
    actions = [("F", k) for k in range(warmup)]
    for k in range(warmup, num_micro):
        actions += [("F", k), ("B", k - warmup)]
    return actions + [("B", k) for k in range(num_micro - warmup, num_micro)]


# %% 21.2 share_of_the_whole
# says: this is the share of the whole time: 6 of 18 units; asked for is idle time relative to
# working time, 6 of 12
from fractions import Fraction


def bubble(rows, forward, backward):
    p, units = len(rows), {"F": forward, "B": backward}
    num_stages = p * (1 + max(chunk for each in rows for _, _, chunk in each))
    ends, done, free = {}, [0] * p, [0] * p
    while any(done[r] < len(rows[r]) for r in range(p)):
        for r in range(p):
            while done[r] < len(rows[r]):
                kind, number, chunk = rows[r][done[r]]
                stage = chunk * p + r
                source = stage + (-1 if kind == "F" else 1)
                there = 0
                if 0 <= source < num_stages:
                    there = ends.get((kind, number, source))
                if there is None:
                    break
                free[r] = ends[kind, number, stage] = max(free[r], there) + units[kind]
                done[r] += 1
    working = sum(units[kind] for each in rows for kind, _, _ in each)
    idle = p * max(free) - working
    return Fraction(idle, p * max(free)).as_integer_ratio()


# %% 21.2 nobody_waits
# says: no rank of yours waits for another: rank 1 cannot begin before rank 0 has sent it something
from fractions import Fraction


def bubble(rows, forward, backward):
    units = {"F": forward, "B": backward}
    works = [sum(units[kind] for kind, _, _ in each) for each in rows]
    return Fraction(len(rows) * max(works) - sum(works), sum(works)).as_integer_ratio()


# %% 21.2 all_ranks_over_one
# says: you put the idle time of all three ranks over the working time of one of them
from fractions import Fraction


def bubble(rows, forward, backward):
    p, units = len(rows), {"F": forward, "B": backward}
    num_stages = p * (1 + max(chunk for each in rows for _, _, chunk in each))
    ends, done, free = {}, [0] * p, [0] * p
    while any(done[r] < len(rows[r]) for r in range(p)):
        for r in range(p):
            while done[r] < len(rows[r]):
                kind, number, chunk = rows[r][done[r]]
                stage = chunk * p + r
                source = stage + (-1 if kind == "F" else 1)
                there = 0
                if 0 <= source < num_stages:
                    there = ends.get((kind, number, source))
                if there is None:
                    break
                free[r] = ends[kind, number, stage] = max(free[r], there) + units[kind]
                done[r] += 1
    working = sum(units[kind] for each in rows for kind, _, _ in each)
    idle = p * max(free) - working
    return Fraction(idle * p, working).as_integer_ratio()


# %% 21.2 gaps_alone
# says: you count the gaps between actions: a rank is also idle before its first action and after
# its last one, until the step ends
from fractions import Fraction


def bubble(rows, forward, backward):
    p, units = len(rows), {"F": forward, "B": backward}
    num_stages = p * (1 + max(chunk for each in rows for _, _, chunk in each))
    first = [None] * p
    ends, done, free = {}, [0] * p, [0] * p
    while any(done[r] < len(rows[r]) for r in range(p)):
        for r in range(p):
            while done[r] < len(rows[r]):
                kind, number, chunk = rows[r][done[r]]
                stage = chunk * p + r
                source = stage + (-1 if kind == "F" else 1)
                there = 0
                if 0 <= source < num_stages:
                    there = ends.get((kind, number, source))
                if there is None:
                    break
                if first[r] is None:
                    first[r] = there
                free[r] = ends[kind, number, stage] = max(free[r], there) + units[kind]
                done[r] += 1
    working = sum(units[kind] for each in rows for kind, _, _ in each)
    idle = sum(free) - sum(first) - working
    return Fraction(idle, working).as_integer_ratio()


# %% 21.2 backward_waits_for_nobody
# says: your step ends with the last rank: a backward pass needs the gradient from the stage after,
# which comes up from the last rank, so the ranks before it end later
from fractions import Fraction


def bubble(rows, forward, backward):
    p, units = len(rows), {"F": forward, "B": backward}
    num_stages = p * (1 + max(chunk for each in rows for _, _, chunk in each))
    ends, done, free = {}, [0] * p, [0] * p
    while any(done[r] < len(rows[r]) for r in range(p)):
        for r in range(p):
            while done[r] < len(rows[r]):
                kind, number, chunk = rows[r][done[r]]
                stage = chunk * p + r
                source = stage - 1 if kind == "F" else -1
                there = 0
                if 0 <= source < num_stages:
                    there = ends.get((kind, number, source))
                if there is None:
                    break
                free[r] = ends[kind, number, stage] = max(free[r], there) + units[kind]
                done[r] += 1
    working = sum(units[kind] for each in rows for kind, _, _ in each)
    idle = p * max(free) - working
    return Fraction(idle, working).as_integer_ratio()


# %% 21.2 chunks_by_themselves
# says: one micro-batch through two chunks on each of two ranks: chunk 1 of rank 0 is the stage
# after chunk 0 of rank 1, and has to wait for it; here only one rank works at any time ((p - 1)/(v
# m) holds where m is a multiple of p)
from fractions import Fraction


def bubble(rows, forward, backward):
    p, units = len(rows), {"F": forward, "B": backward}
    ends, done, free = {}, [0] * p, [0] * p
    while any(done[r] < len(rows[r]) for r in range(p)):
        for r in range(p):
            while done[r] < len(rows[r]):
                kind, number, chunk = rows[r][done[r]]
                source = r + (-1 if kind == "F" else 1)
                there = 0
                if 0 <= source < p:
                    there = ends.get((kind, number, chunk, source))
                if there is None:
                    break
                free[r] = ends[kind, number, chunk, r] = max(free[r], there) + units[kind]
                done[r] += 1
    working = sum(units[kind] for each in rows for kind, _, _ in each)
    idle = p * max(free) - working
    return Fraction(idle, working).as_integer_ratio()


# %% 21.3 all_forward_passes
# says: you counted all forward passes: in 1F1B a backward pass frees a micro-batch before the next
# one comes
def most_held(rows):
    return [sum(kind == "F" for kind, _, _ in actions) for actions in rows]


# %% 21.3 formula_of_1f1b
# says: GPipe holds all four micro-batches on both ranks: the number of ranks does not limit it,
# nor does a formula for 1F1B apply
def most_held(rows):
    p = len(rows)
    counts = [sum(kind == "F" for kind, _, _ in actions) for actions in rows]
    return [min(counts[r], p - r) for r in range(p)]


# %% 21.3 after_backward
# says: you look after the backward pass has freed its micro-batch: while it runs, its own is still
# held, so that even the last rank holds one
def most_held(rows):
    most = []
    for actions in rows:
        held = peak = 0
        for kind, _, _ in actions:
            if kind == "F":
                held += 1
            elif kind in ("B", "W"):
                held -= 1
                peak = max(peak, held)
        most.append(peak)
    return most


# %% 21.3 freed_after_forward
# says: you drop the activations when the forward pass has sent its output: they stay for the
# backward pass of this rank
def most_held(rows):
    most = []
    for actions in rows:
        held = peak = 0
        for kind, _, _ in actions:
            if kind == "F":
                held += 1
                peak = max(peak, held)
                held -= 1
        most.append(peak)
    return most


# %% 21.3 freed_at_i
# says: you free at I, the gradient of the input: the gradients of the weights, W, are computed
# from the same activations later
def most_held(rows):
    most = []
    for actions in rows:
        held = peak = 0
        for kind, _, _ in actions:
            if kind == "F":
                held += 1
                peak = max(peak, held)
            elif kind in ("B", "I"):
                held -= 1
        most.append(peak)
    return most


# %% 21.3 chunks_as_one
# says: a micro-batch that went forward through two chunks of a rank is held twice, once for each:
# they are different layers with different activations
def most_held(rows):
    most = []
    for actions in rows:
        held, peak = set(), 0
        for kind, number, chunk in actions:
            if kind == "F":
                held.add(number)
                peak = max(peak, len(held))
            elif kind in ("B", "W") and chunk == 0:
                held.discard(number)
        most.append(peak)
    return most


# %% 21.4 stages_as_replicas
# says: too few micro-batches: the 128 GPUs of a replica, tp times pp of them, all work on the same
# micro-batches, so 8,192 GPUs are 64 replicas
def on_more_gpus(batch_tokens, sequence_tokens, layout, times, mfu):
    num_gpus, tp, pp, v = layout
    sequences = batch_tokens // sequence_tokens
    replicas = num_gpus // tp
    counts = [sequences // (replicas * factor) for factor in (1, times)]
    before, after = [(pp - 1) / (v * count) for count in counts]
    without_bubble = mfu * (1 + before)
    return *counts, before, after, without_bubble / (1 + after)


# %% 21.4 p_in_place_of_p_minus_1
# says: p - 1 and not p: the first micro-batch has 15 stages to pass before the last one
def on_more_gpus(batch_tokens, sequence_tokens, layout, times, mfu):
    num_gpus, tp, pp, v = layout
    sequences = batch_tokens // sequence_tokens
    replicas = num_gpus // (tp * pp)
    counts = [sequences // (replicas * factor) for factor in (1, times)]
    before, after = [pp / (v * count) for count in counts]
    without_bubble = mfu * (1 + before)
    return *counts, before, after, without_bubble / (1 + after)


# %% 21.4 chunks_forgotten
# says: your bubble does not know v: with eight chunks on each rank it is an eighth
def on_more_gpus(batch_tokens, sequence_tokens, layout, times, mfu):
    num_gpus, tp, pp, _ = layout
    sequences = batch_tokens // sequence_tokens
    replicas = num_gpus // (tp * pp)
    counts = [sequences // (replicas * factor) for factor in (1, times)]
    before, after = [(pp - 1) / count for count in counts]
    without_bubble = mfu * (1 + before)
    return *counts, before, after, without_bubble / (1 + after)


# %% 21.4 growth_subtracted
# says: you subtract the growth of the bubble from the MFU, and it becomes negative: a bubble is
# relative to working time, so rates are divided by 1 + bubble
def on_more_gpus(batch_tokens, sequence_tokens, layout, times, mfu):
    num_gpus, tp, pp, v = layout
    sequences = batch_tokens // sequence_tokens
    replicas = num_gpus // (tp * pp)
    counts = [sequences // (replicas * factor) for factor in (1, times)]
    before, after = [(pp - 1) / (v * count) for count in counts]
    return *counts, before, after, mfu - (after - before)


# %% 21.4 as_share_of_the_whole
# says: you multiply by 1 - bubble, as if it were a share of the whole time: with a bubble of
# 15/16, idle relative to working, a GPU still works for 16/31 of the time
def on_more_gpus(batch_tokens, sequence_tokens, layout, times, mfu):
    num_gpus, tp, pp, v = layout
    sequences = batch_tokens // sequence_tokens
    replicas = num_gpus // (tp * pp)
    counts = [sequences // (replicas * factor) for factor in (1, times)]
    before, after = [(pp - 1) / (v * count) for count in counts]
    without_bubble = mfu / (1 - before)
    return *counts, before, after, without_bubble * (1 - after)


# %% 21.4 first_bubble_forgotten
# says: the 43 % were measured with a bubble in them already: only the growth of the bubble lowers
# the MFU further
def on_more_gpus(batch_tokens, sequence_tokens, layout, times, mfu):
    num_gpus, tp, pp, v = layout
    sequences = batch_tokens // sequence_tokens
    replicas = num_gpus // (tp * pp)
    counts = [sequences // (replicas * factor) for factor in (1, times)]
    before, after = [(pp - 1) / (v * count) for count in counts]
    return *counts, before, after, mfu / (1 + after)


# %% 21.5 one_round
# says: a receive that comes first is not a deadlock: rank 0 waits until rank 1 has sent, and then
# goes on; look at it again once others have moved
from collections import Counter


def waiting(rows, buffered):
    at = [0] * len(rows)
    sent = Counter()

    def present(rank):
        return tuple(rows[rank][at[rank]]) if at[rank] < len(rows[rank]) else None

    for rank in range(len(rows)):
        while present(rank) is not None:
            what, other = present(rank)
            if what == "send" and buffered:
                sent[rank, other] += 1
            elif what == "send" and present(other) == ("receive", rank):
                at[other] += 1
            elif what == "receive" and sent[other, rank]:
                sent[other, rank] -= 1
            else:
                break
            at[rank] += 1

    stuck = [(rank, at[rank]) for rank in range(len(rows)) if present(rank)]
    if not stuck:
        return None
    way = [stuck[0][0]]
    while way.count(way[-1]) < 2 and present(way[-1]):
        way.append(present(way[-1])[1])
    ring = way[way.index(way[-1]) : -1]
    return stuck, sorted(ring)


# %% 21.5 pairs_alone
# says: rank 0 waits for 2, 2 for 1 and 1 for 0: no two of them wait for each other, and still
# nobody will ever go on
from collections import Counter


def waiting(rows, buffered):
    at = [0] * len(rows)
    sent = Counter()

    def present(rank):
        return tuple(rows[rank][at[rank]]) if at[rank] < len(rows[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            if present(rank) is None:
                continue
            what, other = present(rank)
            if what == "send" and buffered:
                sent[rank, other] += 1
            elif what == "send" and present(other) == ("receive", rank):
                at[other] += 1
            elif what == "receive" and sent[other, rank]:
                sent[other, rank] -= 1
            else:
                continue
            at[rank] += 1
            moved = True

    stuck = [(rank, at[rank]) for rank in range(len(rows)) if present(rank)]
    if not stuck:
        return None
    for rank, _ in stuck:
        other = present(rank)[1]
        if present(other) and present(other)[1] == rank:
            return stuck, [rank, other]
    return None


# %% 21.5 stuck_is_the_ring
# says: rank 2 waits for rank 1, which waits for ever: rank 2 is stuck as well, though it is not in
# the ring
from collections import Counter


def waiting(rows, buffered):
    at = [0] * len(rows)
    sent = Counter()

    def present(rank):
        return tuple(rows[rank][at[rank]]) if at[rank] < len(rows[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            if present(rank) is None:
                continue
            what, other = present(rank)
            if what == "send" and buffered:
                sent[rank, other] += 1
            elif what == "send" and present(other) == ("receive", rank):
                at[other] += 1
            elif what == "receive" and sent[other, rank]:
                sent[other, rank] -= 1
            else:
                continue
            at[rank] += 1
            moved = True

    stuck = [(rank, at[rank]) for rank in range(len(rows)) if present(rank)]
    if not stuck:
        return None
    way = [stuck[0][0]]
    while way.count(way[-1]) < 2:
        way.append(present(way[-1])[1])
    ring = way[way.index(way[-1]) : -1]
    first = ring.index(min(ring))
    return [each for each in stuck if each[0] in ring], ring[first:] + ring[:first]


# %% 21.5 sends_always_wait
# says: with buffers a send does not wait: two ranks that both send first both go on, and find
# their messages
from collections import Counter


def waiting(rows, buffered):
    at = [0] * len(rows)
    sent = Counter()

    def present(rank):
        return tuple(rows[rank][at[rank]]) if at[rank] < len(rows[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            if present(rank) is None:
                continue
            what, other = present(rank)
            if what == "send" and present(other) == ("receive", rank):
                at[other] += 1
            elif what == "receive" and sent[other, rank]:
                sent[other, rank] -= 1
            else:
                continue
            at[rank] += 1
            moved = True

    stuck = [(rank, at[rank]) for rank in range(len(rows)) if present(rank)]
    if not stuck:
        return None
    way = [stuck[0][0]]
    while way.count(way[-1]) < 2:
        way.append(present(way[-1])[1])
    ring = way[way.index(way[-1]) : -1]
    first = ring.index(min(ring))
    return stuck, ring[first:] + ring[:first]


# %% 21.5 sends_never_wait
# says: without buffers a send waits for its receive: two ranks that both send first wait for each
# other
from collections import Counter


def waiting(rows, buffered):
    at = [0] * len(rows)
    sent = Counter()

    def present(rank):
        return tuple(rows[rank][at[rank]]) if at[rank] < len(rows[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            if present(rank) is None:
                continue
            what, other = present(rank)
            if what == "send":
                sent[rank, other] += 1
            elif what == "receive" and sent[other, rank]:
                sent[other, rank] -= 1
            else:
                continue
            at[rank] += 1
            moved = True

    stuck = [(rank, at[rank]) for rank in range(len(rows)) if present(rank)]
    if not stuck:
        return None
    way = [stuck[0][0]]
    while way.count(way[-1]) < 2:
        way.append(present(way[-1])[1])
    ring = way[way.index(way[-1]) : -1]
    first = ring.index(min(ring))
    return stuck, ring[first:] + ring[:first]


# %% 21.5 one_message_for_all
# says: rank 0 has sent one message, and rank 1 receives it twice: a message that was received is
# gone
from collections import Counter


def waiting(rows, buffered):
    at = [0] * len(rows)
    sent = Counter()

    def present(rank):
        return tuple(rows[rank][at[rank]]) if at[rank] < len(rows[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            if present(rank) is None:
                continue
            what, other = present(rank)
            if what == "send" and buffered:
                sent[rank, other] += 1
            elif what == "send" and present(other) == ("receive", rank):
                at[other] += 1
            elif what == "receive" and sent[other, rank]:
                pass
            else:
                continue
            at[rank] += 1
            moved = True

    stuck = [(rank, at[rank]) for rank in range(len(rows)) if present(rank)]
    if not stuck:
        return None
    way = [stuck[0][0]]
    while way.count(way[-1]) < 2:
        way.append(present(way[-1])[1])
    ring = way[way.index(way[-1]) : -1]
    first = ring.index(min(ring))
    return stuck, ring[first:] + ring[:first]
