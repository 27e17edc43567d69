"""Typical wrong answers to the exercises of chapter 23, and what the checks say to them."""


# %% 23.1 forward_order
# says: your first bucket holds parameter 0: backward comes to it last, so that this bucket would
# be full at the very end
def departures(sizes, bucket_bytes, fired):
    buckets, held = [], 0
    for p in range(len(sizes)):
        if not buckets or held + sizes[p] > bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += sizes[p]

    place = {p: number for number, p in enumerate(fired, start=1)}
    found, left = [], 0
    for bucket in buckets:
        if left is not None:
            full = all(p in place for p in bucket)
            left = max(left, *(place[p] for p in bucket)) if full else None
        found.append((bucket, left))
    return found


# %% 23.1 order_of_hooks
# says: you cut in the order of the hooks: that may differ from rank to rank, and the buckets
# would, too. The order of parameters is the same everywhere
def departures(sizes, bucket_bytes, fired):
    buckets, held = [], 0
    for p in fired:
        if not buckets or held + sizes[p] > bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += sizes[p]

    place = {p: number for number, p in enumerate(fired, start=1)}
    found, left = [], 0
    for bucket in buckets:
        if left is not None:
            full = all(p in place for p in bucket)
            left = max(left, *(place[p] for p in bucket)) if full else None
        found.append((bucket, left))
    return found


# %% 23.1 over_the_limit
# says: your first bucket holds 50 + 40 + 60 = 150 bytes: the gradient that is too much begins the
# next one
def departures(sizes, bucket_bytes, fired):
    buckets, held = [], 0
    for p in reversed(range(len(sizes))):
        if not buckets or held >= bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += sizes[p]

    place = {p: number for number, p in enumerate(fired, start=1)}
    found, left = [], 0
    for bucket in buckets:
        if left is not None:
            full = all(p in place for p in bucket)
            left = max(left, *(place[p] for p in bucket)) if full else None
        found.append((bucket, left))
    return found


# %% 23.1 strict_limit
# says: 60 + 40 bytes are 100, and not more than 100: they share a bucket
def departures(sizes, bucket_bytes, fired):
    buckets, held = [], 0
    for p in reversed(range(len(sizes))):
        if not buckets or held + sizes[p] >= bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += sizes[p]

    place = {p: number for number, p in enumerate(fired, start=1)}
    found, left = [], 0
    for bucket in buckets:
        if left is not None:
            full = all(p in place for p in bucket)
            left = max(left, *(place[p] for p in bucket)) if full else None
        found.append((bucket, left))
    return found


# %% 23.1 overtaking
# says: your bucket 1 leaves before bucket 0: it is full after 2 hooks, and has to wait, since all
# ranks must send in one order
def departures(sizes, bucket_bytes, fired):
    buckets, held = [], 0
    for p in reversed(range(len(sizes))):
        if not buckets or held + sizes[p] > bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += sizes[p]

    place = {p: number for number, p in enumerate(fired, start=1)}
    found, left = [], 0
    for bucket in buckets:
        if left is not None:
            full = all(p in place for p in bucket)
            left = max(place[p] for p in bucket) if full else None
        found.append((bucket, left))
    return found


# %% 23.1 unused_is_complete
# says: parameter 3 was not used, and its bucket leaves all the same: without its hook nobody
# knows that nothing will come
def departures(sizes, bucket_bytes, fired):
    buckets, held = [], 0
    for p in reversed(range(len(sizes))):
        if not buckets or held + sizes[p] > bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += sizes[p]

    place = {p: number for number, p in enumerate(fired, start=1)}
    found, left = [], 0
    for bucket in buckets:
        if left is not None:
            full = any(p in place for p in bucket) or True
            left = max(left, *(place.get(p, 0) for p in bucket)) if full else None
        found.append((bucket, left))
    return found


# %% 23.2 mean_of_means
# says: all of your factors are 1: that is the mean of means. The lone token of rank 2 counts as
# much as five of rank 0
def loss_factors(counts, average):
    total = sum(sum(of_rank) for of_rank in counts)
    times = len(counts) if average else 1
    return [[1.0 for c in of_rank] for of_rank in counts]


# %% 23.2 by_micro_batches
# says: you divide by the number of micro-batches: they do not have equally many tokens
def loss_factors(counts, average):
    total = sum(sum(of_rank) for of_rank in counts)
    times = len(counts) if average else 1
    return [[1 / len(of_rank) for c in of_rank] for of_rank in counts]


# %% 23.2 divided_twice
# says: you forgot that `sync` divides by the number of ranks: of your 5/12 only 5/36 is left
def loss_factors(counts, average):
    total = sum(sum(of_rank) for of_rank in counts)
    times = 1
    return [[times * c / total for c in of_rank] for of_rank in counts]


# %% 23.2 ranks_count_alike
# says: you divide by the tokens of the rank: then all ranks count alike, and the token of rank 2
# as much as all eight of rank 0
def loss_factors(counts, average):
    total = sum(sum(of_rank) for of_rank in counts)
    times = len(counts) if average else 1
    return [[c / max(1, sum(of_rank)) for c in of_rank] for of_rank in counts]


# %% 23.2 counts_micro_batches
# says: you multiply by the number of micro-batches, which is 4: `sync` divides by the ranks, 3
def loss_factors(counts, average):
    total = sum(sum(of_rank) for of_rank in counts)
    times = sum(len(of_rank) for of_rank in counts) if average else 1
    return [[times * c / total for c in of_rank] for of_rank in counts]


# %% 23.2 always_averaged
# says: with the sum over ranks nothing divides afterwards: each factor is a share in all tokens
def loss_factors(counts, average):
    total = sum(sum(of_rank) for of_rank in counts)
    times = len(counts)
    return [[times * c / total for c in of_rank] for of_rank in counts]


# %% 23.3 weights_alone
# says: you looked at the weights alone, or first: after clipping all of them differ, and say
# nothing of the cause. The gradients of the same step come before
def first_drift(weights, gradients):
    moments = [(0, "start", weights[0])]
    for step, (synced, stepped) in enumerate(zip(gradients, weights[1:], strict=True), start=1):
        moments += [(step, "optimizer", stepped)]

    for step, where, snapshot in moments:
        suspects = {}
        for name in snapshot[0]:
            prints = [of_rank[name] for of_rank in snapshot]
            usual = Counter(prints).most_common(1)[0][0]
            others = [rank for rank, found in enumerate(prints) if found != usual]
            if others:
                suspects[name] = others
        if suspects:
            return step, where, suspects
    return None


# %% 23.3 last_difference
# says: you return the last difference: look for the first, the others follow from it
def first_drift(weights, gradients):
    last = None
    moments = [(0, "start", weights[0])]
    for step, (synced, stepped) in enumerate(zip(gradients, weights[1:], strict=True), start=1):
        moments += [(step, "sync", synced), (step, "optimizer", stepped)]

    for step, where, snapshot in moments:
        suspects = {}
        for name in snapshot[0]:
            prints = [of_rank[name] for of_rank in snapshot]
            usual = Counter(prints).most_common(1)[0][0]
            others = [rank for rank, found in enumerate(prints) if found != usual]
            if others:
                suspects[name] = others
        if suspects:
            last = step, where, suspects
    return last


# %% 23.3 counted_from_0
# says: that is the second step: the gradients of step 1 are the first in the list
def first_drift(weights, gradients):
    moments = [(0, "start", weights[0])]
    for step, (synced, stepped) in enumerate(zip(gradients, weights[1:], strict=True), start=0):
        moments += [(step, "sync", synced), (step, "optimizer", stepped)]

    for step, where, snapshot in moments:
        suspects = {}
        for name in snapshot[0]:
            prints = [of_rank[name] for of_rank in snapshot]
            usual = Counter(prints).most_common(1)[0][0]
            others = [rank for rank, found in enumerate(prints) if found != usual]
            if others:
                suspects[name] = others
        if suspects:
            return step, where, suspects
    return None


# %% 23.3 collects_everything
# says: only the gain differs in the first snapshot: leave out what is equal there, and what
# differs later
def first_drift(weights, gradients):
    moments = [(0, "start", weights[0])]
    for step, (synced, stepped) in enumerate(zip(gradients, weights[1:], strict=True), start=1):
        moments += [(step, "sync", synced), (step, "optimizer", stepped)]

    first, suspects = None, {}
    for step, where, snapshot in moments:
        for name in snapshot[0]:
            prints = [of_rank[name] for of_rank in snapshot]
            usual = Counter(prints).most_common(1)[0][0]
            others = [rank for rank, found in enumerate(prints) if found != usual]
            if others:
                suspects[name] = others
        if suspects and first is None:
            first = step, where
    return None if first is None else (*first, suspects)


# %% 23.3 rank_0_is_right
# says: ranks 1 and 2 agree, so rank 0 is the odd one: it is not right because it is the first
def first_drift(weights, gradients):
    moments = [(0, "start", weights[0])]
    for step, (synced, stepped) in enumerate(zip(gradients, weights[1:], strict=True), start=1):
        moments += [(step, "sync", synced), (step, "optimizer", stepped)]

    for step, where, snapshot in moments:
        suspects = {}
        for name in snapshot[0]:
            prints = [of_rank[name] for of_rank in snapshot]
            usual = prints[0]
            others = [rank for rank, found in enumerate(prints) if found != usual]
            if others:
                suspects[name] = others
        if suspects:
            return step, where, suspects
    return None


# %% 23.3 forgot_the_start
# says: the weights differ before the first step: nobody sent those of rank 0 to the others
def first_drift(weights, gradients):
    moments = []
    for step, (synced, stepped) in enumerate(zip(gradients, weights[1:], strict=True), start=1):
        moments += [(step, "sync", synced), (step, "optimizer", stepped)]

    for step, where, snapshot in moments:
        suspects = {}
        for name in snapshot[0]:
            prints = [of_rank[name] for of_rank in snapshot]
            usual = Counter(prints).most_common(1)[0][0]
            others = [rank for rank, found in enumerate(prints) if found != usual]
            if others:
                suspects[name] = others
        if suspects:
            return step, where, suspects
    return None


# %% 23.4 end_of_the_last
# says: that is when the last bucket ends: for 60 of these 97 seconds backward is running
def exposed(ready_s, num_bytes, backward_s, latency_s, bytes_per_s):
    free_s = busy_s = 0.0
    for ready, size in zip(ready_s, num_bytes, strict=True):
        seconds = latency_s + size / bytes_per_s
        free_s = max(ready, free_s) + seconds
        busy_s += seconds
    return free_s, busy_s


# %% 23.4 link_less_backward
# says: you took the 60 s of backward off the 77 s of the link: but the link stands still until
# the first bucket is full, and between buckets
def exposed(ready_s, num_bytes, backward_s, latency_s, bytes_per_s):
    free_s = busy_s = 0.0
    for ready, size in zip(ready_s, num_bytes, strict=True):
        seconds = latency_s + size / bytes_per_s
        free_s = max(ready, free_s) + seconds
        busy_s += seconds
    return max(0.0, busy_s - backward_s), busy_s


# %% 23.4 all_at_once
# says: your buckets travel all at once: bucket 1 holds the link until 82 s, and bucket 2, full at
# 60 s, waits for it
def exposed(ready_s, num_bytes, backward_s, latency_s, bytes_per_s):
    free_s = busy_s = 0.0
    for ready, size in zip(ready_s, num_bytes, strict=True):
        seconds = latency_s + size / bytes_per_s
        free_s = max(free_s, ready + seconds)
        busy_s += seconds
    return max(0.0, free_s - backward_s), busy_s


# %% 23.4 without_a_gap
# says: you let the buckets follow each other without a gap: bucket 1 is full at 45 s, and the
# link is free at 37 s
def exposed(ready_s, num_bytes, backward_s, latency_s, bytes_per_s):
    free_s = busy_s = 0.0
    for ready, size in zip(ready_s, num_bytes, strict=True):
        seconds = latency_s + size / bytes_per_s
        free_s = (free_s or ready) + seconds
        busy_s += seconds
    return max(0.0, free_s - backward_s), busy_s


# %% 23.4 latency_once
# says: you paid the latency once: every bucket pays it
def exposed(ready_s, num_bytes, backward_s, latency_s, bytes_per_s):
    free_s = busy_s = 0.0
    for ready, size in zip(ready_s, num_bytes, strict=True):
        seconds = size / bytes_per_s + (0 if busy_s else latency_s)
        free_s = max(ready, free_s) + seconds
        busy_s += seconds
    return max(0.0, free_s - backward_s), busy_s


# %% 23.4 below_zero
# says: both buckets are there long before backward ends: a step does not wait a negative time
def exposed(ready_s, num_bytes, backward_s, latency_s, bytes_per_s):
    free_s = busy_s = 0.0
    for ready, size in zip(ready_s, num_bytes, strict=True):
        seconds = latency_s + size / bytes_per_s
        free_s = max(ready, free_s) + seconds
        busy_s += seconds
    return free_s - backward_s, busy_s


# %% 23.5 shortest_list
# says: your loops end with the shortest list: rank 0 has a third call, and waits for a partner
def meet(used, sizes):
    swaps = []
    places = min(len(of_rank) for of_rank in used)
    for k in range(places):
        met = {of_rank[k] for of_rank in used}
        if len({sizes[p] for p in met}) > 1:
            return "mismatch", k, swaps
        if len(met) > 1:
            swaps.append(k)
    return "done", places, swaps


# %% 23.5 parameters_are_noticed
# says: you compare parameters: at place 1 they differ, but both have 4 entries, so that nobody
# notices
def meet(used, sizes):
    swaps = []
    places = max(len(of_rank) for of_rank in used)
    for k in range(places):
        if any(len(of_rank) == k for of_rank in used):
            return "hang", k, swaps
        met = {of_rank[k] for of_rank in used}
        if len(met) > 1:
            return "mismatch", k, swaps
        if len(met) > 1:
            swaps.append(k)
    return "done", places, swaps


# %% 23.5 by_parameter
# says: your gradients find those of the same parameter: but calls meet by their place, so that
# parameter 3 of rank 1 is added to parameter 1 of rank 0
def meet(used, sizes):
    sums = 0
    for p in sorted(set().union(*used)):
        if not all(p in of_rank for of_rank in used):
            return "hang", sums, []
        sums += 1
    return "done", sums, []


# %% 23.5 counts_the_hanging_sum
# says: you count the sum that hangs: it was begun on rank 0, and never completed
def meet(used, sizes):
    swaps = []
    places = max(len(of_rank) for of_rank in used)
    for k in range(places):
        if any(len(of_rank) == k for of_rank in used):
            return "hang", k + 1, swaps
        met = {of_rank[k] for of_rank in used}
        if len({sizes[p] for p in met}) > 1:
            return "mismatch", k, swaps
        if len(met) > 1:
            swaps.append(k)
    return "done", places, swaps


# %% 23.5 sizes_ignored
# says: at place 1 a gradient with 4 entries meets one with 9: that is an error, and not a swap
def meet(used, sizes):
    swaps = []
    places = max(len(of_rank) for of_rank in used)
    for k in range(places):
        if any(len(of_rank) == k for of_rank in used):
            return "hang", k, swaps
        met = {of_rank[k] for of_rank in used}
        if len(met) > 1:
            swaps.append(k)
    return "done", places, swaps


# %% 23.5 two_ranks_alone
# says: it is rank 2 that differs: all ranks meet, and not two of them
def meet(used, sizes):
    swaps = []
    places = max(len(of_rank) for of_rank in used)
    for k in range(places):
        if any(len(of_rank) == k for of_rank in used):
            return "hang", k, swaps
        met = {of_rank[k] for of_rank in used[:2]}
        if len({sizes[p] for p in met}) > 1:
            return "mismatch", k, swaps
        if len(met) > 1:
            swaps.append(k)
    return "done", places, swaps
