"""Typical wrong answers to the exercises of chapter 04, and what the checks say to them."""

# %% 04.1 first_axis_fastest
# says: you let the first axis change fastest: rank 1 is the neighbour of rank 0 on the last axis
import math


def group_of(rank, mesh, axis):
    names, size = list(mesh), mesh[axis]
    distance = math.prod(mesh[name] for name in names[: names.index(axis)])
    coordinate = rank // distance % size
    first = rank - coordinate * distance
    return coordinate, [first + k * distance for k in range(size)]


# %% 04.1 no_modulo
# says: rank 18 cannot stand at pp 4, where there are three stages: the quotient counts on over
# the axes before this one, so take it modulo the size
import math


def group_of(rank, mesh, axis):
    names, size = list(mesh), mesh[axis]
    distance = math.prod(mesh[name] for name in names[names.index(axis) + 1 :])
    coordinate = rank // distance
    first = rank - coordinate * distance
    return coordinate, [first + k * distance for k in range(size)]


# %% 04.1 own_size_in_the_distance
# says: 18 = 1 x 12 + 1 x 4 + 2, so rank 18 stands at dp 1, pp 1, tp 2: two neighbours on an axis
# are as far apart as the product of the sizes behind it, its own left out
import math


def group_of(rank, mesh, axis):
    names, size = list(mesh), mesh[axis]
    distance = math.prod(mesh[name] for name in names[names.index(axis) :])
    coordinate = rank // distance % size
    first = rank - coordinate * distance
    return coordinate, [first + k * distance for k in range(size)]


# %% 04.1 ranks_in_a_row
# says: your group along pp is a block of ranks in a row: that is so for the last axis only.
# Neighbours on pp are 4 apart
import math


def group_of(rank, mesh, axis):
    names, size = list(mesh), mesh[axis]
    distance = math.prod(mesh[name] for name in names[names.index(axis) + 1 :])
    coordinate = rank // distance % size
    first = rank // size * size
    return coordinate, list(range(first, first + size))


# %% 04.1 group_of_rank_0
# says: your group along pp is the one of rank 0: rank 18 is not in it
import math


def group_of(rank, mesh, axis):
    names, size = list(mesh), mesh[axis]
    distance = math.prod(mesh[name] for name in names[names.index(axis) + 1 :])
    coordinate = rank // distance % size
    return coordinate, [k * distance for k in range(size)]


# %% 04.1 same_coordinate
# says: you gathered the ranks that share the coordinate: a group is made of those that differ on
# this axis, and agree on all the others
import math


def group_of(rank, mesh, axis):
    names, size = list(mesh), mesh[axis]
    distance = math.prod(mesh[name] for name in names[names.index(axis) + 1 :])
    coordinate = rank // distance % size
    ranks = range(math.prod(mesh.values()))
    return coordinate, [r for r in ranks if r // distance % size == coordinate]


# %% 04.2 stages_equally_long
# says: you want stages with equally many layers: Meta ran 126 layers on 16 stages, which does not
# divide, and gave the first and the last stage one layer fewer
def unmet(layout, model, job):
    dp, cp, pp, tp = (layout[axis] for axis in ("dp", "cp", "pp", "tp"))
    sequences = job["batch_tokens"] // job["sequence_length"]
    per_replica, rest = divmod(sequences, dp)
    met = {
        "ranks": dp * cp * pp * tp == job["gpus"],
        "server": job["gpus_per_server"] % tp == 0,
        "heads": model["kv_heads"] % tp == 0,
        "layers": model["layers"] % pp == 0,
        "sequence": job["sequence_length"] % (2 * cp) == 0,
        "batch": rest == 0,
        "bubble": rest > 0 or pp - 1 <= per_replica,
    }
    return [word for word, holds in met.items() if not holds]


# %% 04.2 context_parallelism_forgotten
# says: you left CP out of the product: 8 x 16 x 16 x 8 = 16,384
def unmet(layout, model, job):
    dp, cp, pp, tp = (layout[axis] for axis in ("dp", "cp", "pp", "tp"))
    sequences = job["batch_tokens"] // job["sequence_length"]
    per_replica, rest = divmod(sequences, dp)
    met = {
        "ranks": dp * pp * tp == job["gpus"],
        "server": job["gpus_per_server"] % tp == 0,
        "heads": model["kv_heads"] % tp == 0,
        "layers": pp <= model["layers"],
        "sequence": job["sequence_length"] % (2 * cp) == 0,
        "batch": rest == 0,
        "bubble": rest > 0 or pp - 1 <= per_replica,
    }
    return [word for word, holds in met.items() if not holds]


# %% 04.2 micro_batches_of_all
# says: 512 replicas share 512 sequences, so that each has one micro-batch, and m is 1: every
# stage would wait three quarters of the time. m is counted for a replica, not for the whole batch
def unmet(layout, model, job):
    dp, cp, pp, tp = (layout[axis] for axis in ("dp", "cp", "pp", "tp"))
    sequences = job["batch_tokens"] // job["sequence_length"]
    rest = sequences % dp
    met = {
        "ranks": dp * cp * pp * tp == job["gpus"],
        "server": job["gpus_per_server"] % tp == 0,
        "heads": model["kv_heads"] % tp == 0,
        "layers": pp <= model["layers"],
        "sequence": job["sequence_length"] % (2 * cp) == 0,
        "batch": rest == 0,
        "bubble": rest > 0 or pp - 1 <= sequences,
    }
    return [word for word, holds in met.items() if not holds]


# %% 04.2 heads_of_queries
# says: you shared out the heads of queries: there are 128 of them, but only 8 of keys and values,
# and 16 ranks would have half a head each
def unmet(layout, model, job):
    dp, cp, pp, tp = (layout[axis] for axis in ("dp", "cp", "pp", "tp"))
    sequences = job["batch_tokens"] // job["sequence_length"]
    per_replica, rest = divmod(sequences, dp)
    met = {
        "ranks": dp * cp * pp * tp == job["gpus"],
        "server": job["gpus_per_server"] % tp == 0,
        "heads": model["heads"] % tp == 0,
        "layers": pp <= model["layers"],
        "sequence": job["sequence_length"] % (2 * cp) == 0,
        "batch": rest == 0,
        "bubble": rest > 0 or pp - 1 <= per_replica,
    }
    return [word for word, holds in met.items() if not holds]


# %% 04.2 smaller_than_a_server
# says: a group of 6 is smaller than a server of 8, but the second group is ranks 6 to 11, and
# lies across two servers
def unmet(layout, model, job):
    dp, cp, pp, tp = (layout[axis] for axis in ("dp", "cp", "pp", "tp"))
    sequences = job["batch_tokens"] // job["sequence_length"]
    per_replica, rest = divmod(sequences, dp)
    met = {
        "ranks": dp * cp * pp * tp == job["gpus"],
        "server": tp <= job["gpus_per_server"],
        "heads": model["kv_heads"] % tp == 0,
        "layers": pp <= model["layers"],
        "sequence": job["sequence_length"] % (2 * cp) == 0,
        "batch": rest == 0,
        "bubble": rest > 0 or pp - 1 <= per_replica,
    }
    return [word for word, holds in met.items() if not holds]


# %% 04.2 one_chunk_each
# says: 48 tokens on 16 ranks: each of them holds two chunks, and 32 chunks of 48 tokens are not
# equally long
def unmet(layout, model, job):
    dp, cp, pp, tp = (layout[axis] for axis in ("dp", "cp", "pp", "tp"))
    sequences = job["batch_tokens"] // job["sequence_length"]
    per_replica, rest = divmod(sequences, dp)
    met = {
        "ranks": dp * cp * pp * tp == job["gpus"],
        "server": job["gpus_per_server"] % tp == 0,
        "heads": model["kv_heads"] % tp == 0,
        "layers": pp <= model["layers"],
        "sequence": job["sequence_length"] % cp == 0,
        "batch": rest == 0,
        "bubble": rest > 0 or pp - 1 <= per_replica,
    }
    return [word for word, holds in met.items() if not holds]


# %% 04.3 every_rank_a_replica
# says: you counted every rank as a replica: the 5 x 7 x 11 ranks of a replica work on the same
# sequences
import math


def run_in_steps(mesh, micro_batch, periods):
    found = []
    for micro_batches, sequence_length, tokens in periods:
        sequences = math.prod(mesh.values()) * micro_batches * micro_batch
        batch_tokens = sequences * sequence_length
        found.append((batch_tokens, -(-tokens // batch_tokens)))
    return found


# %% 04.3 context_adds_sequences
# says: you counted the ranks that share a sequence as replicas: each has a piece of the same
# sequence, and the pieces together are one
def run_in_steps(mesh, micro_batch, periods):
    found = []
    for micro_batches, sequence_length, tokens in periods:
        sequences = mesh["dp"] * mesh["cp"] * micro_batches * micro_batch
        batch_tokens = sequences * sequence_length
        found.append((batch_tokens, -(-tokens // batch_tokens)))
    return found


# %% 04.3 no_accumulation
# says: you left out the accumulation: weights change once after 13 micro-batches, and so all 13
# belong to the batch
def run_in_steps(mesh, micro_batch, periods):
    found = []
    for _, sequence_length, tokens in periods:
        sequences = mesh["dp"] * micro_batch
        batch_tokens = sequences * sequence_length
        found.append((batch_tokens, -(-tokens // batch_tokens)))
    return found


# %% 04.3 one_replica
# says: this is the batch of one replica: the gradients of all three are summed before weights
# change
def run_in_steps(mesh, micro_batch, periods):
    found = []
    for micro_batches, sequence_length, tokens in periods:
        sequences = micro_batches * micro_batch
        batch_tokens = sequences * sequence_length
        found.append((batch_tokens, -(-tokens // batch_tokens)))
    return found


# %% 04.3 sequences_not_tokens
# says: these are sequences: the batch is asked for in tokens
def run_in_steps(mesh, micro_batch, periods):
    found = []
    for micro_batches, _, tokens in periods:
        sequences = mesh["dp"] * micro_batches * micro_batch
        batch_tokens = sequences
        found.append((batch_tokens, -(-tokens // batch_tokens)))
    return found


# %% 04.3 rounded_down
# says: you left out the last step: one token is over after 7,800, and it takes a step of its own
def run_in_steps(mesh, micro_batch, periods):
    found = []
    for micro_batches, sequence_length, tokens in periods:
        sequences = mesh["dp"] * micro_batches * micro_batch
        batch_tokens = sequences * sequence_length
        found.append((batch_tokens, tokens // batch_tokens))
    return found


# %% 04.4 torn_apart
# says: 57 // 4 = 14 tears groups apart: of a rack's 10 GPUs two are left, and the next rack's
# cannot join them
def fit_into_racks(num_gpus, rack, tp, cp, pp):
    replicas = num_gpus // (tp * cp * pp)
    return replicas, num_gpus - replicas * tp * cp * pp


# %% 04.4 full_racks_alone
# says: you left out the last rack: it is not full, but 7 GPUs have room for a group of 4
def fit_into_racks(num_gpus, rack, tp, cp, pp):
    groups = num_gpus // rack * (rack // tp)
    replicas = groups // (cp * pp)
    return replicas, num_gpus - replicas * tp * cp * pp


# %% 04.4 last_rack_full
# says: you counted the last rack as a full one: it has 7 GPUs, and not 10
import math


def fit_into_racks(num_gpus, rack, tp, cp, pp):
    groups = math.ceil(num_gpus / rack) * (rack // tp)
    replicas = groups // (cp * pp)
    return replicas, num_gpus - replicas * tp * cp * pp


# %% 04.4 rest_of_full_racks
# says: you left out the GPUs that are over in the last rack
def fit_into_racks(num_gpus, rack, tp, cp, pp):
    full, others = divmod(num_gpus, rack)
    groups = full * (rack // tp) + others // tp
    replicas = groups // (cp * pp)
    return replicas, full * (rack % tp) + groups % (cp * pp) * tp


# %% 04.4 replica_in_one_rack
# says: you want a whole replica in one rack: only the tensor-parallel group has to be, and stages
# may lie in different racks
def fit_into_racks(num_gpus, rack, tp, cp, pp):
    size = tp * cp * pp
    full, others = divmod(num_gpus, rack)
    replicas = full * (rack // size) + others // size
    return replicas, num_gpus - replicas * size


# %% 04.4 groups_at_work
# says: the groups that make no whole replica are left over, too: 11 groups are three replicas of
# three, and two groups have nothing to do
def fit_into_racks(num_gpus, rack, tp, cp, pp):
    full, others = divmod(num_gpus, rack)
    groups = full * (rack // tp) + others // tp
    replicas = groups // (cp * pp)
    return replicas, num_gpus - groups * tp
