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


def first_start(now, free, running, wanted):
    """Return when that many nodes are first free, going from end to end."""
    for moment in sorted({now, *(end for end, _ in running)}):
        if free + sum(nodes for end, nodes in running if end <= moment) >= wanted:
            return moment
    return None


def check_3(t, call, rng):
    """Queues at random; who overtakes must leave the first one's start where it is."""
    exact = [("first", 5, 1), ("exact", 1, 4), ("late", 1, 5)]
    t.equal(call("start_now", 3, 2, [(7, 3)], exact), ["exact"], "a job that ends exactly at S")
    begun = [("a", 3, 4), ("b", 4, 2), ("long", 1, 9), ("short", 1, 4)]
    t.equal(call("start_now", 2, 4, [], begun), ["a", "short"], "one has just started")
    for _ in range(30):
        total, now = rng.randrange(4, 12), rng.randrange(5)
        running, free = [], total
        for _ in range(rng.randrange(4)):
            nodes = rng.randrange(1, 5)
            if nodes < free:
                free -= nodes
                running.append((now + rng.randrange(1, 9), nodes))
        queue = [
            (f"job {i}", rng.randrange(1, total + 1), rng.randrange(1, 12))
            for i in range(rng.randrange(7))
        ]
        left, there, right, first = free, list(running), [], None
        for name, nodes, hours in queue:
            with_it = [*there, (now + hours, nodes)]
            if first is None and nodes > left:
                first = nodes, first_start(now, left, there, nodes)
            elif nodes <= left and (
                first is None or first_start(now, left - nodes, with_it, first[0]) == first[1]
            ):
                left, there = left - nodes, with_it
                right.append(name)
        answer = call("start_now", now, free, running, queue)
        t.equal(answer, right, f"hour {now}, {free} free, running {running}, queue {queue}")


def check_4(t, call, rng):
    """Jobs in whole hours, followed hour by hour."""
    for _ in range(20):
        work, every, restart = rng.randrange(5, 40), rng.randrange(1, 12), rng.randrange(5)
        failures = sorted(rng.sample(range(1, 60), rng.randrange(6)))
        saved = done = clock = lost = restarting = wait = 0
        while True:
            if done == work:
                break
            if clock in failures:
                lost += done - saved
                done, wait = saved, restart
            if wait:
                wait, restarting = wait - 1, restarting + 1
            else:
                done += 1
                saved = done if done % every == 0 else saved
            clock += 1
        answer = call("run_through", work, every, restart, failures)
        case = f"{work} hours of work, saved every {every}, restart {restart}, failures {failures}"
        t.equal(answer, (clock, lost, restarting), case)


def check_5(t, call, rng):
    """Scripts with options in any order, and meshes with tp anywhere."""
    for _ in range(14):
        names = rng.sample(["dp", "pp", "cp", "tp"], rng.randrange(2, 5))
        names += [] if "tp" in names else ["tp"]
        mesh = {name: rng.randrange(1, 5) for name in names}
        ranks = math.prod(mesh.values())
        of_node = rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0])
        times = [rng.randrange(3), rng.randrange(24), rng.randrange(60), rng.randrange(60)]
        days, hours, minutes, seconds = times
        options = [
            f"--nodes={ranks // of_node}",
            f"--gpus-per-node={of_node}",
            f"--time={days}-{hours:02}:{minutes:02}:{seconds:02}",
            "--ntasks-per-node=1",
            "--no-requeue",
        ]
        rng.shuffle(options)
        head = "\n".join(f"#SBATCH {option}" for option in options)
        text = f"#!/bin/bash\n# a job\n{head}\n\necho begins\n#SBATCH --nodes=77\n"
        places = list(itertools.product(*(range(size) for size in mesh.values())))
        nodes = {}
        for rank, place in enumerate(places):
            others = tuple(at for name, at in zip(mesh, place, strict=True) if name != "tp")
            nodes.setdefault(others, set()).add(rank // of_node)
        right = (
            ranks,
            days * 86_400 + hours * 3_600 + minutes * 60 + seconds,
            max(map(len, nodes.values())),
        )
        t.equal(call("read_job", text, mesh), right, f"{mesh} on nodes of {of_node}: {options}")
