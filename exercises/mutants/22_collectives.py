"""Typical wrong answers to the exercises of chapter 22, and what the checks say to them."""


# %% 22.1 own_chunk_first
# says: your sums are whole, but that of chunk r + 1 is at rank r: you begin with a rank's own
# chunk. Here a rank is to keep its own, so it begins with the one before
def reduce_scatter_schedule(num_ranks):
    return [
        [(rank - step) % num_ranks for rank in range(num_ranks)] for step in range(num_ranks - 1)
    ]


# %% 22.1 the_other_way_round
# says: what a rank sends in step 1 is not the chunk that it received in step 0: the sum that came
# has to travel on
def reduce_scatter_schedule(num_ranks):
    return [
        [(rank + 1 + step) % num_ranks for rank in range(num_ranks)]
        for step in range(num_ranks - 1)
    ]


# %% 22.1 same_chunk_in_every_step
# says: you send the same chunks in every step: then the next rank adds the same numbers again,
# and they get no further
def reduce_scatter_schedule(num_ranks):
    return [[(rank - 1) % num_ranks for rank in range(num_ranks)] for step in range(num_ranks - 1)]


# %% 22.1 one_chunk_for_all
# says: in some step two ranks send the same chunk: the four ranks send four different ones, so
# that all sums grow at the same time
def reduce_scatter_schedule(num_ranks):
    return [[step] * num_ranks for step in range(num_ranks - 1)]


# %% 22.1 a_row_for_each_rank
# says: your table has a row for each rank: the outer list is of steps, the inner ones of ranks
def reduce_scatter_schedule(num_ranks):
    return [
        [(rank - 1 - step) % num_ranks for step in range(num_ranks - 1)]
        for rank in range(num_ranks)
    ]


# %% 22.1 as_many_steps_as_ranks
# says: four ranks take three steps, and each step lists four chunks: a chunk is at its own rank
# after three hops, and a fourth would carry it past
def reduce_scatter_schedule(num_ranks):
    return [
        [(rank - 1 - step) % num_ranks for rank in range(num_ranks)] for step in range(num_ranks)
    ]


# %% 22.2 equal_chunks
# says: chunk 2 of the lengths 2, 1, 4 and 1 is buffer[3:7]: it begins where the chunks before it
# end. Chunks need not be equally long
def all_gather_plan(rank, lengths):
    n = len(lengths)
    size = sum(lengths) // n
    pieces = [(c * size, (c + 1) * size) for c in range(n)]

    return [(pieces[(rank - step) % n], pieces[(rank - step - 1) % n]) for step in range(n - 1)]


# %% 22.2 own_chunk_in_every_step
# says: you send your own chunk in every step: the next rank has it after the first. What came in
# one step is passed on in the next
import numpy as np


def all_gather_plan(rank, lengths):
    n = len(lengths)
    stops = np.cumsum(lengths).tolist()
    pieces = [(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]

    return [(pieces[rank], pieces[(rank - step - 1) % n]) for step in range(n - 1)]


# %% 22.2 written_over_what_was_sent
# says: you write what arrives over what you have just sent: it is another chunk, and has a place
# of its own
import numpy as np


def all_gather_plan(rank, lengths):
    n = len(lengths)
    stops = np.cumsum(lengths).tolist()
    pieces = [(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]

    return [(pieces[(rank - step) % n], pieces[(rank - step) % n]) for step in range(n - 1)]


# %% 22.2 from_the_next_rank
# says: you expect the chunk of the next rank: it comes from the rank before, and is chunk 1 in
# step 0
import numpy as np


def all_gather_plan(rank, lengths):
    n = len(lengths)
    stops = np.cumsum(lengths).tolist()
    pieces = [(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]

    return [(pieces[(rank + step) % n], pieces[(rank + step + 1) % n]) for step in range(n - 1)]


# %% 22.2 begins_where_reduce_scatter_begins
# says: in step 0 you send a chunk that this rank does not have yet: all-gather begins with its
# own. In each pair, what is sent stands first
import numpy as np


def all_gather_plan(rank, lengths):
    n = len(lengths)
    stops = np.cumsum(lengths).tolist()
    pieces = [(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]

    return [(pieces[(rank - step - 1) % n], pieces[(rank - step - 2) % n]) for step in range(n - 1)]


# %% 22.2 as_many_steps_as_ranks
# says: four ranks take three steps: a rank has one chunk already, and three are to come
import numpy as np


def all_gather_plan(rank, lengths):
    n = len(lengths)
    stops = np.cumsum(lengths).tolist()
    pieces = [(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]

    return [(pieces[(rank - step) % n], pieces[(rank - step - 1) % n]) for step in range(n)]


# %% 22.3 one_way
# says: your tree goes one way only: the sum is at rank 0 then, and the others have yet to get it
def tree_and_ring(num_bytes, num_ranks, latency_s, bytes_per_s):
    rounds = (num_ranks - 1).bit_length()
    steps = num_ranks - 1
    tree_s = rounds * (latency_s + num_bytes / bytes_per_s)
    ring_s = 2 * steps * (latency_s + num_bytes / num_ranks / bytes_per_s)
    if steps == rounds:
        return tree_s, ring_s, 0.0
    saved_s = (steps - rounds) * latency_s
    paid_s_per_byte = (rounds - steps / num_ranks) / bytes_per_s
    return tree_s, ring_s, saved_s / paid_s_per_byte


# %% 22.3 parts_of_a_round
# says: there is no part of a round: six ranks need three, as seven or eight do
import math


def tree_and_ring(num_bytes, num_ranks, latency_s, bytes_per_s):
    rounds = math.log2(num_ranks)
    steps = num_ranks - 1
    tree_s = 2 * rounds * (latency_s + num_bytes / bytes_per_s)
    ring_s = 2 * steps * (latency_s + num_bytes / num_ranks / bytes_per_s)
    if steps == rounds:
        return tree_s, ring_s, 0.0
    saved_s = (steps - rounds) * latency_s
    paid_s_per_byte = (rounds - steps / num_ranks) / bytes_per_s
    return tree_s, ring_s, saved_s / paid_s_per_byte


# %% 22.3 whole_tensor_in_every_step
# says: your ring sends the whole tensor in every step: it is a sixth, and that is its advantage
def tree_and_ring(num_bytes, num_ranks, latency_s, bytes_per_s):
    rounds = (num_ranks - 1).bit_length()
    steps = num_ranks - 1
    tree_s = 2 * rounds * (latency_s + num_bytes / bytes_per_s)
    ring_s = 2 * steps * (latency_s + num_bytes / bytes_per_s)
    if steps == rounds:
        return tree_s, ring_s, 0.0
    saved_s = (steps - rounds) * latency_s
    paid_s_per_byte = (rounds - steps / num_ranks) / bytes_per_s
    return tree_s, ring_s, saved_s / paid_s_per_byte


# %% 22.3 latency_once
# says: you paid the latency once: in a ring a rank cannot send on what has not arrived, so each
# of the steps waits for it again
def tree_and_ring(num_bytes, num_ranks, latency_s, bytes_per_s):
    rounds = (num_ranks - 1).bit_length()
    steps = num_ranks - 1
    tree_s = 2 * rounds * (latency_s + num_bytes / bytes_per_s)
    ring_s = latency_s + 2 * steps * num_bytes / num_ranks / bytes_per_s
    if steps == rounds:
        return tree_s, ring_s, 0.0
    saved_s = (steps - rounds) * latency_s
    paid_s_per_byte = (rounds - steps / num_ranks) / bytes_per_s
    return tree_s, ring_s, saved_s / paid_s_per_byte


# %% 22.3 a_round_too_many
# says: eight ranks need three rounds, as 2 x 2 x 2 = 8, and 2 x 7 steps
def tree_and_ring(num_bytes, num_ranks, latency_s, bytes_per_s):
    rounds = num_ranks.bit_length()
    steps = num_ranks - 1
    tree_s = 2 * rounds * (latency_s + num_bytes / bytes_per_s)
    ring_s = 2 * steps * (latency_s + num_bytes / num_ranks / bytes_per_s)
    if steps == rounds:
        return tree_s, ring_s, 0.0
    saved_s = (steps - rounds) * latency_s
    paid_s_per_byte = (rounds - steps / num_ranks) / bytes_per_s
    return tree_s, ring_s, saved_s / paid_s_per_byte


# %% 22.3 rule_of_thumb
# says: latency x bandwidth, with or without the number of ranks, is a rough figure: put the two
# times equal and solve for the bytes
def tree_and_ring(num_bytes, num_ranks, latency_s, bytes_per_s):
    rounds = (num_ranks - 1).bit_length()
    steps = num_ranks - 1
    tree_s = 2 * rounds * (latency_s + num_bytes / bytes_per_s)
    ring_s = 2 * steps * (latency_s + num_bytes / num_ranks / bytes_per_s)
    if steps == rounds:
        return tree_s, ring_s, 0.0
    return tree_s, ring_s, num_ranks * latency_s * bytes_per_s


# %% 22.4 wider_type
# says: your sums are exact: you added in a wider type than float32. A rank rounds after every
# addition
import numpy as np


def two_sums(x):
    n = len(x)
    x = x.astype(np.float64)

    def added(rows, order):
        total = rows[order[0]]
        for r in order[1:]:
            total = total + rows[r]
        return total

    ordered = added(x, range(n))
    chunks = enumerate(np.array_split(x, n, axis=1))
    ring = np.concatenate(
        [added(rows, [(c + k) % n for k in range(1, n + 1)]) for c, rows in chunks]
    )
    ulps = np.abs(ring.astype(np.float64) - ordered) / np.spacing(np.abs(ordered))
    return ring.astype(np.float32), ordered.astype(np.float32), ulps


# %% 22.4 rank_order_twice
# says: both of your sums are in rank order: on a ring each chunk sets out from another rank
import numpy as np


def two_sums(x):
    n = len(x)

    def added(rows, order):
        total = rows[order[0]]
        for r in order[1:]:
            total = total + rows[r]
        return total

    ordered = added(x, range(n))
    chunks = enumerate(np.array_split(x, n, axis=1))
    ring = np.concatenate(
        [added(rows, sorted((c + k) % n for k in range(1, n + 1))) for c, rows in chunks]
    )
    ulps = np.abs(ring.astype(np.float64) - ordered) / np.spacing(np.abs(ordered))
    return ring, ordered, ulps


# %% 22.4 sets_out_from_home
# says: your chunk c sets out from rank c: then it arrives at rank c - 1. It sets out from rank c
# + 1 and ends at home
import numpy as np


def two_sums(x):
    n = len(x)

    def added(rows, order):
        total = rows[order[0]]
        for r in order[1:]:
            total = total + rows[r]
        return total

    ordered = added(x, range(n))
    chunks = enumerate(np.array_split(x, n, axis=1))
    ring = np.concatenate([added(rows, [(c + k) % n for k in range(n)]) for c, rows in chunks])
    ulps = np.abs(ring.astype(np.float64) - ordered) / np.spacing(np.abs(ordered))
    return ring, ordered, ulps


# %% 22.4 backwards
# says: you went round the ring backwards: rank c + 1 sends to rank c + 2, and so on up to rank c
import numpy as np


def two_sums(x):
    n = len(x)

    def added(rows, order):
        total = rows[order[0]]
        for r in order[1:]:
            total = total + rows[r]
        return total

    ordered = added(x, range(n))
    chunks = enumerate(np.array_split(x, n, axis=1))
    ring = np.concatenate(
        [added(rows, [(c - k) % n for k in range(1, n + 1)]) for c, rows in chunks]
    )
    ulps = np.abs(ring.astype(np.float64) - ordered) / np.spacing(np.abs(ordered))
    return ring, ordered, ulps


# %% 22.4 rest_to_the_last
# says: the rest of the division went to the last chunk: six entries on four ranks are 2, 2, 1 and
# 1
import numpy as np


def two_sums(x):
    n = len(x)

    def added(rows, order):
        total = rows[order[0]]
        for r in order[1:]:
            total = total + rows[r]
        return total

    ordered = added(x, range(n))
    size = x.shape[1] // n
    cuts = [c * size for c in range(1, n)]
    chunks = enumerate(np.split(x, cuts, axis=1))
    ring = np.concatenate(
        [added(rows, [(c + k) % n for k in range(1, n + 1)]) for c, rows in chunks]
    )
    ulps = np.abs(ring.astype(np.float64) - ordered) / np.spacing(np.abs(ordered))
    return ring, ordered, ulps


# %% 22.4 one_ulp_for_all
# says: you counted in steps of 1.2e-7, which is the ulp of numbers from 1 to 2: at 16 an ulp is
# sixteen times as large
import numpy as np


def two_sums(x):
    n = len(x)

    def added(rows, order):
        total = rows[order[0]]
        for r in order[1:]:
            total = total + rows[r]
        return total

    ordered = added(x, range(n))
    chunks = enumerate(np.array_split(x, n, axis=1))
    ring = np.concatenate(
        [added(rows, [(c + k) % n for k in range(1, n + 1)]) for c, rows in chunks]
    )
    ulps = np.abs(ring.astype(np.float64) - ordered) / np.finfo(np.float32).eps
    return ring, ordered, ulps
