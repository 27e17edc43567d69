"""Hidden tests of the exercises of chapter 38."""

import itertools
import math


def check_1(t, call, rng):
    """Meshes of two to five axes in any order of names, some of size 1."""
    for count in (2, 3, 3, 4, 5):
        names = rng.sample(["dp", "pp", "cp", "tp", "ep"], count)
        mesh = {name: rng.randrange(2, 6) for name in names}
        if count > 2:
            mesh[rng.choice(names)] = 1
        ranks = list(itertools.product(*(range(size) for size in mesh.values())))
        numbers = {place: rank for rank, place in enumerate(ranks)}
        rank = rng.randrange(len(ranks) // 2, len(ranks))
        for axis, name in enumerate(mesh):
            place = ranks[rank]
            group = [numbers[(*place[:axis], k, *place[axis + 1 :])] for k in range(mesh[name])]
            answer = call("group_of", rank, mesh, name)
            t.equal(answer, (place[axis], group), f"rank {rank} of {mesh} along {name}")
    mesh = {"dp": 8, "pp": 16, "cp": 16, "tp": 8}
    right = 5, [2 * 2048 + 7 * 128 + k * 8 + 3 for k in range(16)]
    t.equal(call("group_of", 2 * 2048 + 7 * 128 + 5 * 8 + 3, mesh, "cp"), right, "16,384 ranks")
    mesh = {"dp": 3, "pp": 4, "tp": 5}
    answer = call("group_of", 59, mesh, "pp")
    t.equal(answer, (3, [44, 49, 54, 59]), "the last rank of 60, along pp")


def faults(layout, model, job):
    """Return the demands that are not met, by counting pieces rather than dividing."""
    dp, cp, pp, tp = (layout[name] for name in ("dp", "cp", "pp", "tp"))
    found = []
    if math.prod(layout.values()) != job["gpus"]:
        found.append("ranks")
    if math.lcm(job["gpus_per_server"], tp) != job["gpus_per_server"]:
        found.append("server")
    if math.gcd(model["kv_heads"], tp) != tp:
        found.append("heads")
    if model["layers"] < pp:
        found.append("layers")
    if math.gcd(job["sequence_length"], 2 * cp) != 2 * cp:
        found.append("sequence")
    sequences = job["batch_tokens"] // job["sequence_length"]
    if sequences < dp or math.gcd(sequences, dp) != dp:
        found.append("batch")
    elif (pp - 1) * dp > sequences:
        found.append("bubble")
    return found


def check_2(t, call, rng):
    """Every demand alone, first on plans that meet all others; then layouts at random."""
    good = {"dp": 4, "cp": 2, "pp": 3, "tp": 4}
    model = {"layers": 10, "heads": 32, "kv_heads": 8}
    job = {"gpus": 96, "gpus_per_server": 8, "sequence_length": 64, "batch_tokens": 64 * 24}
    cases = [(good, model, job)]
    for layout, shape, plan in (
        ({"dp": 3}, {}, {}),
        ({"cp": 1}, {}, {}),
        ({"tp": 16, "dp": 1}, {"kv_heads": 16}, {}),
        ({"tp": 3, "dp": 8, "cp": 1}, {"kv_heads": 12, "heads": 24}, {"gpus": 72}),
        ({"tp": 8, "dp": 2}, {"kv_heads": 4}, {}),
        ({"pp": 12, "dp": 1}, {}, {}),
        ({"pp": 10, "dp": 1}, {}, {"gpus": 80}),
        ({"pp": 7, "dp": 1}, {}, {"gpus": 56}),
        ({}, {}, {"sequence_length": 66, "batch_tokens": 66 * 24}),
        ({"cp": 16}, {}, {"gpus": 768, "sequence_length": 48, "batch_tokens": 48 * 24}),
        ({"dp": 16}, {}, {"gpus": 384, "batch_tokens": 64 * 40}),
        ({"dp": 32}, {}, {"gpus": 768}),
        ({"dp": 12}, {}, {"gpus": 288}),
        ({"dp": 24}, {}, {"gpus": 576}),
        ({"pp": 4, "dp": 24}, {}, {"gpus": 768}),
    ):
        cases.append((good | layout, model | shape, job | plan))
    for _ in range(24):
        kv_heads, length = rng.choice((4, 8, 12)), rng.choice((24, 32, 48, 66))
        layout = {
            "dp": rng.choice((1, 2, 4, 6)),
            "cp": rng.choice((1, 2, 3, 4, 8)),
            "pp": rng.choice((1, 2, 5, 9, 16)),
            "tp": rng.choice((1, 2, 3, 4, 6, 8)),
        }
        gpus = math.prod(layout.values()) * rng.choice((1, 1, 1, 2))
        sequences = rng.choice((4, 8, 12, 24, 25))
        shape = {"layers": rng.choice((8, 12, 32)), "heads": 3 * kv_heads, "kv_heads": kv_heads}
        plan = {
            "gpus": gpus,
            "gpus_per_server": rng.choice((4, 8)),
            "sequence_length": length,
            "batch_tokens": length * sequences,
        }
        cases.append((layout, shape, plan))
    for layout, shape, plan in cases:
        answer = call("unmet", layout, shape, plan)
        t.equal(answer, faults(layout, shape, plan), f"{layout}, {shape}, {plan}")


def check_3(t, call, rng):
    """Runs of one to four periods; with a rest and without one."""
    for count in (1, 2, 3, 4, 0):
        mesh = {name: rng.randrange(2, 20) for name in ("dp", "cp", "pp", "tp")}
        micro_batch = rng.randrange(1, 5)
        periods, right = [], []
        for rest in [1, 0, -1, 2][:count]:
            micro_batches, length = rng.randrange(2, 30), rng.randrange(100, 10_000)
            batch = sum([length] * (micro_batch * micro_batches * mesh["dp"]))
            whole = rng.randrange(2, 10**6)
            periods.append((micro_batches, length, whole * batch + rest))
            right.append((batch, whole + (rest > 0)))
        answer = call("run_in_steps", mesh, micro_batch, periods)
        t.equal(answer, right, f"{mesh}, micro-batches of {micro_batch}, {periods}")


def check_4(t, call, rng):
    """Racks that are filled one GPU at a time; small clusters and large ones."""
    cases = [
        (97, 12, 5, 1, 1),
        (97, 12, 5, 1, 4),
        (97, 12, 5, 3, 2),
        (16_384, 72, 8, 16, 16),
        (16_384, 72, 32, 1, 4),
        (71, 72, 8, 1, 2),
        (5, 8, 6, 1, 1),
    ]
    for _ in range(12):
        rack = rng.randrange(6, 20)
        tp, cp, pp = rng.randrange(2, rack + 2), rng.choice((1, 1, 2)), rng.randrange(1, 6)
        cases.append((rng.randrange(rack, 40 * rack), rack, tp, cp, pp))
    for num_gpus, rack, tp, cp, pp in cases:
        groups = used = 0
        for start in range(0, num_gpus, rack):
            groups += sum(1 for _ in range(start + tp, min(start + rack, num_gpus) + 1, tp))
        replicas = 0
        while used + cp * pp <= groups:
            used += cp * pp
            replicas += 1
        answer = call("fit_into_racks", num_gpus, rack, tp, cp, pp)
        case = f"{num_gpus} GPUs in racks of {rack}, tp {tp}, cp {cp}, pp {pp}"
        t.equal(answer, (replicas, num_gpus - used * tp), case)
