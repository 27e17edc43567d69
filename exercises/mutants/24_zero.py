"""Typical wrong answers to the exercises of chapter 24, and what the checks say to them."""

# %% 24.1 rest_to_the_last
# says: the rest of the division went to the last rank: 11 entries are 4, 4 and 3
import math


def shards(shapes, num_ranks):
    sizes = [math.prod(shape) for shape in shapes]
    each, rest = divmod(sum(sizes), num_ranks)
    found, low = [], 0
    for rank in range(num_ranks):
        high = low + each + rest * (rank == num_ranks - 1)
        pieces, begin = [], 0
        for parameter, size in enumerate(sizes):
            start, stop = max(low - begin, 0), min(high - begin, size)
            if start < stop:
                pieces.append((parameter, start, stop))
            begin += size
        found.append(pieces)
        low = high
    return found


# %% 24.1 rounded_up_for_all
# says: 9 entries on four ranks are 3, 2, 2, 2: chunks of 3 for all who still get some would leave
# the last rank with nothing
import math


def shards(shapes, num_ranks):
    sizes = [math.prod(shape) for shape in shapes]
    each = math.ceil(sum(sizes) / num_ranks)
    found, low = [], 0
    for _ in range(num_ranks):
        high = low + each
        pieces, begin = [], 0
        for parameter, size in enumerate(sizes):
            start, stop = max(low - begin, 0), min(high - begin, size)
            if start < stop:
                pieces.append((parameter, start, stop))
            begin += size
        found.append(pieces)
        low = high
    return found


# %% 24.1 places_in_the_row
# says: you give places in the row: start and stop are counted within the parameter, whose first
# entry is 0
import math


def shards(shapes, num_ranks):
    sizes = [math.prod(shape) for shape in shapes]
    each, rest = divmod(sum(sizes), num_ranks)
    found, low = [], 0
    for rank in range(num_ranks):
        high = low + each + (rank < rest)
        pieces, begin = [], 0
        for parameter, size in enumerate(sizes):
            start, stop = max(low - begin, 0), min(high - begin, size)
            if start < stop:
                pieces.append((parameter, begin + start, begin + stop))
            begin += size
        found.append(pieces)
        low = high
    return found


# %% 24.1 last_entry_included
# says: you give the last entry of a piece: stop is the first entry that does not belong to it, as
# in flattened[start:stop]
import math


def shards(shapes, num_ranks):
    sizes = [math.prod(shape) for shape in shapes]
    each, rest = divmod(sum(sizes), num_ranks)
    found, low = [], 0
    for rank in range(num_ranks):
        high = low + each + (rank < rest)
        pieces, begin = [], 0
        for parameter, size in enumerate(sizes):
            start, stop = max(low - begin, 0), min(high - begin, size)
            if start < stop:
                pieces.append((parameter, start, stop - 1))
            begin += size
        found.append(pieces)
        low = high
    return found


# %% 24.1 whole_parameters
# says: a rank of yours has the whole matrix of six entries, where a chunk has four at most: cuts
# go through parameters
import math


def shards(shapes, num_ranks):
    found = [[] for _ in range(num_ranks)]
    for parameter, shape in enumerate(shapes):
        found[parameter % num_ranks].append((parameter, 0, math.prod(shape)))
    return found


# %% 24.1 empty_pieces_too
# says: a piece of yours has no entry: such pieces are left out
import math


def shards(shapes, num_ranks):
    sizes = [math.prod(shape) for shape in shapes]
    each, rest = divmod(sum(sizes), num_ranks)
    found, low = [], 0
    for rank in range(num_ranks):
        high = low + each + (rank < rest)
        pieces, begin = [], 0
        for parameter, size in enumerate(sizes):
            start, stop = max(low - begin, 0), min(high - begin, size)
            pieces.append((parameter, min(start, size), max(start, stop)))
            begin += size
        found.append(pieces)
        low = high
    return found


# %% 24.2 not_gathered_again
# says: a unit computes while it is not whole: after forward it was freed, so backward has to
# gather it again
def stage3_schedule(uses):
    order = [("forward", unit) for unit in uses] + [("backward", unit) for unit in reversed(uses)]
    events = []
    for i, (direction, unit) in enumerate(order):
        coming = order[i + 1 :]
        if direction == "forward":
            events.append(("gather", unit))
        events.append((direction, unit))
        if ("backward", unit) not in coming:
            events.append(("reduce", unit))
        if not coming or coming[0][1] != unit:
            events.append(("free", unit))
    return events


# %% 24.2 all_at_once
# says: several units are whole at the same time: each is gathered right before its computation
# and freed right after it
def stage3_schedule(uses):
    units = list(dict.fromkeys(uses))
    events = [("gather", unit) for unit in units] + [("forward", unit) for unit in uses]
    for i, unit in enumerate(reversed(uses)):
        events.append(("backward", unit))
        if unit not in uses[: len(uses) - i - 1]:
            events += [("reduce", unit), ("free", unit)]
    return events


# %% 24.2 freed_after_everything
# says: the last unit is freed and gathered again at once: backward begins with the unit with
# which forward ended, so it stays whole in between
def stage3_schedule(uses):
    order = [("forward", unit) for unit in uses] + [("backward", unit) for unit in reversed(uses)]
    events, whole = [], None
    for i, (direction, unit) in enumerate(order):
        coming = order[i + 1 :]
        if whole != unit:
            events.append(("gather", unit))
        events.append((direction, unit))
        whole = unit
        if ("backward", unit) not in coming:
            events.append(("reduce", unit))
        if True:
            events.append(("free", unit))
            whole = None
    return events


# %% 24.2 reduced_after_each_backward
# says: unit 0 is used twice, and you reduce it after each backward: a rank would send a gradient
# that is not complete, and then again
def stage3_schedule(uses):
    order = [("forward", unit) for unit in uses] + [("backward", unit) for unit in reversed(uses)]
    events, whole = [], None
    for i, (direction, unit) in enumerate(order):
        coming = order[i + 1 :]
        if whole != unit:
            events.append(("gather", unit))
        events.append((direction, unit))
        whole = unit
        if direction == "backward":
            events.append(("reduce", unit))
        if not coming or coming[0][1] != unit:
            events.append(("free", unit))
            whole = None
    return events


# %% 24.2 freed_then_reduced
# says: after its last backward computation a unit is reduced, and only then freed
def stage3_schedule(uses):
    order = [("forward", unit) for unit in uses] + [("backward", unit) for unit in reversed(uses)]
    events, whole = [], None
    for i, (direction, unit) in enumerate(order):
        coming = order[i + 1 :]
        if whole != unit:
            events.append(("gather", unit))
        events.append((direction, unit))
        whole = unit
        if not coming or coming[0][1] != unit:
            events.append(("free", unit))
            whole = None
        if ("backward", unit) not in coming:
            events.append(("reduce", unit))
    return events


# %% 24.2 backward_in_the_order_of_forward
# says: backward begins with the unit that forward used last
def stage3_schedule(uses):
    order = [("forward", unit) for unit in uses] + [("backward", unit) for unit in uses]
    events, whole = [], None
    for i, (direction, unit) in enumerate(order):
        coming = order[i + 1 :]
        if whole != unit:
            events.append(("gather", unit))
        events.append((direction, unit))
        whole = unit
        if ("backward", unit) not in coming:
            events.append(("reduce", unit))
        if not coming or coming[0][1] != unit:
            events.append(("free", unit))
            whole = None
    return events


# %% 24.3 no_copy_of_the_weights
# says: 12 bytes of optimizer state, not 8: two running means of 4 bytes, and the float32 copy of
# the weight
def bytes_per_gpu(num_parameters, num_ranks, stage):
    part = -(-num_parameters // num_ranks)
    return (
        2 * (part if stage >= 3 else num_parameters),
        2 * (part if stage >= 2 else num_parameters),
        8 * (part if stage >= 1 else num_parameters),
    )


# %% 24.3 weights_first
# says: stage 1 divided the weights or the gradient: it begins with the optimizer state, the
# largest of the three
def bytes_per_gpu(num_parameters, num_ranks, stage):
    part = -(-num_parameters // num_ranks)
    return (
        2 * (part if stage >= 1 else num_parameters),
        2 * (part if stage >= 2 else num_parameters),
        12 * (part if stage >= 3 else num_parameters),
    )


# %% 24.3 one_thing_each
# says: stage 2 divides the gradient alone: a stage also divides what the stages before it do
def bytes_per_gpu(num_parameters, num_ranks, stage):
    part = -(-num_parameters // num_ranks)
    return (
        2 * (part if stage >= 3 else num_parameters),
        2 * (part if stage == 2 else num_parameters),
        12 * (part if stage == 1 else num_parameters),
    )


# %% 24.3 rounded_down
# says: ten parameters on three ranks: the fullest has 4 of them, which is 10 / 3 rounded up;
# whole numbers
def bytes_per_gpu(num_parameters, num_ranks, stage):
    part = num_parameters // num_ranks
    return (
        2 * (part if stage >= 3 else num_parameters),
        2 * (part if stage >= 2 else num_parameters),
        12 * (part if stage >= 1 else num_parameters),
    )


# %% 24.3 through_a_float
# says: without parameters nothing; and (2**60 + 1) / 2 rounded up is 2**59 + 1, which a float
# cannot hold
import math


def bytes_per_gpu(num_parameters, num_ranks, stage):
    part = math.ceil(num_parameters / num_ranks)
    return (
        2 * (part if stage >= 3 else num_parameters),
        2 * (part if stage >= 2 else num_parameters),
        12 * (part if stage >= 1 else num_parameters),
    )


# %% 24.3 everything_at_every_stage
# says: stage 1 keeps weights and gradient whole, 30 GB, and 1/64 of 90 GB
def bytes_per_gpu(num_parameters, num_ranks, stage):
    part = -(-num_parameters // num_ranks)
    return (
        2 * (part if stage else num_parameters),
        2 * (part if stage else num_parameters),
        12 * (part if stage else num_parameters),
    )


# %% 24.4 own_chunk_sent_too
# says: a rank has its own chunk already: it sends 3/4 of the bytes, not all of them
def bytes_sent(num_parameters, num_ranks, stage, num_micro, keep_whole):
    once = 2 * num_parameters
    reduces = 1 if stage < 2 or keep_whole else num_micro

    gathers = 2 * num_micro if stage == 3 else 1
    return (reduces + gathers) * once


# %% 24.4 all_reduce_then_gather
# says: you all-reduce the gradients and then gather the weights: a rank that updates one chunk
# needs the sum of that chunk only, which is a reduce-scatter
def bytes_sent(num_parameters, num_ranks, stage, num_micro, keep_whole):
    once = 2 * num_parameters * (num_ranks - 1) / num_ranks
    reduces = 1 if stage < 2 or keep_whole else num_micro

    gathers = 2 * num_micro if stage == 3 else 1
    return (reduces + gathers + (stage in (1, 2))) * once


# %% 24.4 weights_stay_after_forward
# says: at stage 3 the weights are freed between forward and backward, so they are gathered twice
def bytes_sent(num_parameters, num_ranks, stage, num_micro, keep_whole):
    once = 2 * num_parameters * (num_ranks - 1) / num_ranks
    reduces = 1 if stage < 2 or keep_whole else num_micro

    gathers = num_micro if stage == 3 else 1
    return (reduces + gathers) * once


# %% 24.4 stage_1_reduces_each_time
# says: stage 1 keeps whole gradients, so they add up and are reduced once, however many
# micro-batches there are
def bytes_sent(num_parameters, num_ranks, stage, num_micro, keep_whole):
    once = 2 * num_parameters * (num_ranks - 1) / num_ranks
    reduces = 1 if stage < 1 or keep_whole else num_micro

    gathers = 2 * num_micro if stage == 3 else 1
    return (reduces + gathers) * once


# %% 24.4 weights_gathered_once_a_step
# says: you gather the weights twice in a step: every micro-batch has a forward and a backward
# pass, and between two passes the weights are freed
def bytes_sent(num_parameters, num_ranks, stage, num_micro, keep_whole):
    once = 2 * num_parameters * (num_ranks - 1) / num_ranks
    reduces = 1 if stage < 2 or keep_whole else num_micro

    gathers = 2 if stage == 3 else 1
    return (reduces + gathers) * once


# %% 24.4 keeping_changes_nothing
# says: with whole gradients kept there is one reduce-scatter for the whole step: 2, 2, 1 + 1 and
# 1 + 8 units
def bytes_sent(num_parameters, num_ranks, stage, num_micro, keep_whole):
    once = 2 * num_parameters * (num_ranks - 1) / num_ranks
    reduces = 1 if stage < 2 else num_micro

    gathers = 2 * num_micro if stage == 3 else 1
    return (reduces + gathers) * once


# %% 24.5 everything_that_is_kept
# says: you counted everything that is kept: at stage 3 all of it is one copy, and nothing is
# redundant
def redundant_bytes(num_parameters, num_replicas, stage):
    undivided = (16, 4, 2, 0)[stage]
    return (undivided * num_replicas + 16 - undivided) * num_parameters


# %% 24.5 one_copy_too_many
# says: one replica has one copy, and that one is needed
def redundant_bytes(num_parameters, num_replicas, stage):
    undivided = (16, 4, 2, 0)[stage]
    return undivided * num_parameters * num_replicas


# %% 24.5 share_of_a_replica
# says: you divided by the number of replicas, which is the share of one of them: add up over all
def redundant_bytes(num_parameters, num_replicas, stage):
    undivided = (16, 4, 2, 0)[stage]
    return undivided * num_parameters * (num_replicas - 1) // num_replicas


# %% 24.5 state_alone
# says: you counted the optimizer state alone: weights and gradients are copied as well
def redundant_bytes(num_parameters, num_replicas, stage):
    undivided = (12, 0, 0, 0)[stage]
    return undivided * num_parameters * (num_replicas - 1)


# %% 24.5 stage_2_leaves_gradients
# says: two replicas of 100 parameters: 1,600 bytes too much; stage 1 leaves weights and
# gradients, 4 bytes each, stage 2 the weights, stage 3 nothing
def redundant_bytes(num_parameters, num_replicas, stage):
    undivided = (16, 4, 4, 0)[stage]
    return undivided * num_parameters * (num_replicas - 1)
