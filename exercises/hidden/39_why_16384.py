"""Hidden tests of the exercises of chapter 39."""

import functools
from dataclasses import replace

from llmcourse_labs.scale.simulator import LLAMA, REACHED, Cluster

NAMES = ("fitted", "products", "attention", "memory", "link", "network", "launch_s", "message_s")


def check_1(t, call, rng):
    """Work of many sizes."""

    def one(work, pp, cp, tp):
        compute = work["alone_s"] / pp / tp / cp
        return compute + 4 * (cp - 1) * work["kv_bytes"] / pp / tp / cp / work["rate"]

    def check_best(gpus, pp, tp, work):
        legal = {}
        for power in range(12):
            cp = 2**power
            replicas, left = divmod(gpus, pp * cp * tp)
            share, odd = divmod(work["sequences"], replicas or 1)
            if replicas and not left and not odd and share >= pp:
                legal[cp] = (share + pp - 1) * one(work, pp, cp, tp)
        if legal:
            least = min(legal.values())
            answer = call("best_cp", gpus, pp, tp, work)
            close = [cp for cp, s in legal.items() if s < least * (1 + 1e-9)]
            case = f"best_cp of {gpus} GPUs, pp {pp}, tp {tp}, {work}"
            t(answer in close, f"{case}: {answer}, not one of {close}")

    for _ in range(8):
        work = {"alone_s": rng.uniform(1, 50), "kv_bytes": 10 ** rng.uniform(-1, 3)}
        work["rate"] = rng.uniform(1, 50)
        pp, tp, cp, dp = (2 ** rng.randrange(4) for _ in range(4))
        work["sequences"] = dp * pp * rng.choice([1, 2, 3, 8])
        case = f"tp {tp}, cp {cp}, pp {pp}, dp {dp}, {work}"
        alone_s, kv_bytes, rate = (work[name] for name in ("alone_s", "kv_bytes", "rate"))
        found = call("micro_batch", alone_s, kv_bytes, tp, cp, rate)
        compute, sent = alone_s / tp / cp, 4 * (cp - 1) * kv_bytes / tp / cp / rate
        t.close(list(found), [compute, sent], case, relative=1e-9, absolute=1e-12)
        seconds = (work["sequences"] // dp + pp - 1) * one(work, pp, cp, tp)
        t.close(call("step", dp, pp, cp, tp, work), seconds, case, relative=1e-9)
        check_best(dp * pp * tp * 2 ** rng.randrange(3), pp, tp, work)
    # More bytes than seconds: the least cp is the best, if each stage gets a sequence.
    work = {"alone_s": 1, "kv_bytes": 1e4, "rate": 1, "sequences": rng.choice([16, 48])}
    check_best(64, 8, 1, work)


def check_2(t, call, rng):
    """Clusters and models of many sizes."""

    def seconds(dp, pp, tp, m):
        stage = (32.12 + 2.80) / (pp * tp) + 0.917 / pp * (tp - 1) / tp
        return (m + pp - 1) * stage + max(0, 52.9 / (pp * tp) * (dp - 1) / dp - stage)

    def memory(layout, m, billions, kept):
        dp, pp, tp = layout
        return (6 * billions + 12 * billions / dp + min(m, pp) * kept) / (pp * tp)

    cases = [(8, 130, 12, 12), (24, 8, 6, 8), (1_024, 126, 128, 2_048)]
    cases += [
        (
            rng.choice([8, 24, 64, 96]),
            rng.randrange(1, 130),
            rng.choice([6, 32]),
            2 ** rng.randrange(9),
        )
        for _ in range(4)
    ]
    for gpus, layers, heads, sequences in cases:
        legal = [
            (gpus // pp // tp, pp, tp)
            for tp in (1, 2, 4, 8)
            for pp in range(1, layers + 1)
            if gpus % (pp * tp) == 0
            and heads % tp == 0
            and sequences % (gpus // pp // tp) == 0
            and sequences // (gpus // pp // tp) >= pp
        ]
        case = f"{gpus} GPUs, {layers} layers, {heads} heads, {sequences} sequences"
        found = [tuple(each) for each in call("layouts", gpus, layers, heads, sequences)]
        t.equal(found, legal, case)
        model = {"layers": layers, "heads": heads, "sequences": sequences}
        model |= {"billions": rng.uniform(1, 500), "kept_gb": rng.uniform(1, 600)}
        sizes = model["billions"], model["kept_gb"]
        needs = {each: memory(each, sequences // each[0], *sizes) for each in legal}
        for each, right in list(needs.items())[:4]:
            answer = call("gigabytes", each, sequences // each[0], *sizes)
            t.close(answer, right, f"{each} of {case}", relative=1e-9)
        for share in (0, 0.1, 0.5):
            limit = sorted(needs.values())[int(share * len(needs))] * 1.000001 if needs else 80
            fits = {e: seconds(*e, sequences // e[0]) for e in legal if needs[e] <= limit}
            answer = call("best", gpus, model, limit)
            right = min(fits, key=fits.get) if fits else None
            case = f"best of {gpus} GPUs in {limit:.6g} GB, {model}"
            t.equal(tuple(answer) if answer else None, right, case)
    small = {"layers": 4, "heads": 4, "sequences": 8, "billions": 100, "kept_gb": 100}
    t.equal(call("best", 8, small, 1), None, "nothing fits")
    fewer = memory((4, 4, 1), 2, 8, 100)
    t.close(call("gigabytes", (4, 4, 1), 2, 8, 100), fewer, "fewer sequences than stages")


def check_3(t, call, rng):
    """Batches and pipelines."""

    def seconds(r, sequences, t_one, p, sync):
        return (sequences // r + p - 1) * t_one + (max(0, sync - t_one) if r > 1 else 0)

    for _ in range(10):
        p, t_one = rng.choice([1, 2, 4, 16]), rng.uniform(0.1, 2)
        sync = t_one * rng.choice([0, 0.5, 1.5, 4])
        sequences = p * 2 ** rng.randrange(1, 9) * rng.choice([1, 3])
        case = f"{sequences} sequences, t {t_one:.4g}, p {p}, sync {sync:.4g}"
        replicas = 1
        gains = []
        while sequences % (2 * replicas) == 0 and sequences // (2 * replicas) >= p:
            now = seconds(replicas, sequences, t_one, p, sync)
            ratio = now / seconds(2 * replicas, sequences, t_one, p, sync)
            found = call("step_seconds", replicas, sequences, t_one, p, sync)
            t.close(found, now, f"{replicas} replicas, {case}", relative=1e-9)
            found = call("gain", replicas, sequences, t_one, p, sync)
            t.close(found, ratio, f"{replicas} replicas doubled, {case}", relative=1e-9)
            gains.append(ratio)
            replicas *= 2
        for least in (0.5, 1.2, 1.55, 1.83):
            if any(abs(each - least) < 1e-6 for each in gains):
                continue
            count = next((i for i, g in enumerate(gains) if g < least), len(gains))
            found = call("worth", sequences, t_one, p, sync, least)
            t.equal(found, 2**count, f"{case}, least gain {least}")


def check_4(t, call, rng):
    """Runs of many sizes."""
    for _ in range(10):
        D, C = 10 ** rng.uniform(9, 14), 10 ** rng.uniform(4, 8)
        B, rate = C * 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(4, 8)
        fixed = rng.uniform(0.01, 5)
        case = f"B {B:.4g}, D_min {D:.4g}, B_crit {C:.4g}, rate {rate:.4g}, fixed {fixed:.4g}"
        t.close(call("text", B, D, C), D + D * B / C, case, relative=1e-9)
        right = D * (1 / B + 1 / C) * (B / rate + fixed)
        t.close(call("run_seconds", B, D, C, rate, fixed), right, case, relative=1e-9)
        found = call("best_batch", C, rate, fixed)
        t.close(found, (C * rate * fixed) ** 0.5, case, relative=1e-9)
        t.close(call("shortest", D, C, fixed), D * fixed / C, case, relative=1e-9)


@functools.cache
def seconds_of_row(place, name, factor):
    """Simulate a row with one number changed."""
    row, plain = LLAMA[place], REACHED["H100"]
    reached = replace(plain, **{name: min(1, factor * getattr(plain, name))})
    return row.simulated(Cluster(num_gpus=row.num_gpus, reached=reached)).seconds


def check_5(t, call, rng):
    """All rows and numbers."""
    seconds = seconds_of_row

    def slower(place, name):
        return seconds(place, name, 1.1 if "_s" in name else 0.9) / seconds(place, name, 1)

    for place in range(3):
        for name in NAMES:
            factor = rng.choice([0.3, 0.7, 1, 1.2, 4])
            case = f"row {place}, {name} times {factor}"
            found = call("seconds_with", place, name, factor)
            t.close(found, seconds(place, name, factor), case, relative=1e-9)
            found = call("slower", place, name)
            t.close(found, slower(place, name), f"row {place}, {name} worse", relative=1e-9)
        names = rng.sample(NAMES[1:], 5)
        right = sorted(names, key=lambda name: -slower(place, name))
        t.equal(call("ranking", place, names), right, f"row {place}, {names}")
        four = ["network", "attention", "memory", "link"]
        right = max(four, key=lambda name: slower(place, name))
        t.equal(call("ranking", place, four)[0], right, f"row {place}, {four}")
    t.equal(call("first_at_131072"), "attention", "the conclusion")
