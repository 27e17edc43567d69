"""Hidden tests of the exercises of chapter 37."""


def check_1(t, call, rng):
    """Shapes, bytes and ridge points."""
    for _ in range(8):
        m, k, n = (rng.randrange(1, 900) for _ in range(3))
        b = rng.choice([1, 2, 4, 8])
        right = 2 * m * k * n / b / (m * k + m * n + k * n)
        case = f"m = {m}, k = {k}, n = {n}, b = {b}"
        t.close(call("product_intensity", m, k, n, b), right, case, relative=1e-9)
        t.close(call("norm_intensity", b), 2 / b, f"b = {b}", relative=1e-9)
        weight, gradient, moments = rng.choice([2, 4]), rng.choice([2, 4]), rng.choice([2, 4, 8])
        for master in (0, 4):
            case = f"weight {weight}, gradient {gradient}, master {master}, moments {moments}"
            moved = gradient + 2 * moments + (2 * master + weight if master else 2 * weight)
            found = call("adamw_intensity", weight, gradient, master, moments)
            t.close(found, 16 / moved, case, relative=1e-9)
        limit = 2 * k * n / b / (k + n)
        ridge = limit * rng.uniform(0.05, 0.9)
        least = 1
        while 2 * least * k * n / b / (least * (k + n) + k * n) < ridge:
            least += 1
        case = f"k = {k}, n = {n}, b = {b}, ridge {ridge:.6g}"
        t.equal(call("users_for", k, n, b, ridge), least, case)
        t.equal(call("users_for", k, n, b, 1.01 * limit), None, f"{case}: out of reach")


def check_2(t, call, rng):
    """Machines of many ratios."""
    for _ in range(8):
        machine = {"peak": 10 ** rng.uniform(9, 15), "bandwidth": 10 ** rng.uniform(9, 13)}
        machine["network"] = 10 ** rng.uniform(8, 12)
        machine["call_s"] = 10 ** rng.uniform(-7, -5)
        ridge = machine["peak"] / machine["bandwidth"]
        for factor in (0.01, 0.9, 1.1, 50):
            right = machine["peak"] * min(1, factor)
            found = call("attainable", factor * ridge, machine["peak"], machine["bandwidth"])
            t.close(found, right, f"{factor} times the ridge point of {machine}", relative=1e-9)
        operations = []
        for _ in range(rng.randrange(1, 6)):
            one = (10 ** rng.uniform(4, 11), 10 ** rng.uniform(3, 9), 10 ** rng.uniform(2, 8))
            one += (rng.randrange(30),)
            operations.append(one)
            times = [one[0] / machine["peak"], one[1] / machine["bandwidth"]]
            times += [one[2] / machine["network"], one[3] * machine["call_s"]]
            right = ("compute", "memory", "network", "calls")[times.index(max(times))]
            t.equal(call("bound_by", *one, machine), right, f"{one} on {machine}")
        for longest, name in enumerate(("compute", "memory", "network", "calls")):
            calls = rng.randrange(20, 30)
            times = [calls * machine["call_s"] * rng.uniform(0.2, 0.9) for _ in range(3)]
            if longest < 3:
                times[longest] = calls * machine["call_s"] * rng.uniform(1.1, 3)
            rates = machine["peak"], machine["bandwidth"], machine["network"]
            one = (*(t_s * rate for t_s, rate in zip(times, rates, strict=True)), calls)
            operations.append(one)
            t.equal(call("bound_by", *one, machine), name, f"{one} on {machine}")
        total = 0
        for flop, moved, sent, calls in operations:
            times = flop / machine["peak"], moved / machine["bandwidth"], sent / machine["network"]
            total += sorted(times)[-1] + calls * machine["call_s"]
        found = call("step_seconds", operations, machine)
        t.close(found, total, f"{operations} on {machine}", relative=1e-9)


def check_3(t, call, rng):
    """Data sheets that nobody has printed."""
    for _ in range(8):
        printed, sent = 10 ** rng.uniform(13, 16), 10 ** rng.uniform(6, 12)
        t.close(call("dense_peak", printed, True), printed / 2, "sparse", relative=1e-9)
        t.close(call("dense_peak", printed, False), printed, "dense", relative=1e-9)
        link, bits = rng.uniform(1e10, 2e12), rng.choice([100, 200, 400, 800])
        case = f"{sent:.6g} bytes over {link:.6g}"
        t.close(call("send_seconds", sent, link, True), 2 * sent / link, case, relative=1e-9)
        t.close(call("send_seconds", sent, link, False), sent / link, case, relative=1e-9)
        case = f"{sent:.6g} bytes over {bits} Gb/s"
        t.close(call("network_seconds", sent, bits), sent / bits / 1.25e8, case, relative=1e-9)
        gpu = {"sparse_flop_per_s": printed, "memory_bytes": rng.uniform(1e10, 3e11)}
        gpu |= {"memory_bytes_per_s": rng.uniform(1e12, 1e13), "link_bytes_per_s": link}
        num = rng.randrange(2, 600)
        found, case = call("rack_totals", gpu, num), f"{num} of {gpu}"
        t.close(found["pflop_per_s"], num * printed / 2e15, case, relative=1e-9)
        t.close(found["memory_tb"], num * gpu["memory_bytes"] / 1e12, case, relative=1e-9)
        right = num * gpu["memory_bytes_per_s"] / 1e12
        t.close(found["memory_tb_per_s"], right, case, relative=1e-9)
        t.close(found["link_tb_per_s"], num * link / 5e11, case, relative=1e-9)


def check_4(t, call, rng):
    """Chains of calls in which any array may be read again."""
    for _ in range(8):
        names, calls = [f"x{i}" for i in range(rng.randrange(1, 4))], []
        inputs, made = set(names), []
        for i in range(rng.randrange(2, 7)):
            read = [rng.choice(names) for _ in range(rng.randrange(1, 4))]
            calls.append([read, f"y{i}"])
            names.append(f"y{i}")
            made.append(f"y{i}")
        wanted = sorted({made[-1], rng.choice(made)})
        line_by_line = sum(1 + len(set(read)) for read, _ in calls)
        t.equal(call("moved_line_by_line", calls), line_by_line, f"{calls}")
        outside = inputs & {name for read, _ in calls for name in read}
        fused = len(outside) + len(wanted)
        t.equal(call("moved_fused", calls, wanted), fused, f"{calls}, wanted {wanted}")
        products, moving = rng.uniform(0, 9), rng.uniform(0.1, 9)
        right = (products + moving) / (products + moving / line_by_line * fused)
        found = call("step_gain", products, moving, line_by_line, fused)
        case = f"{products:.3f} s, {moving:.3f} s, {line_by_line} to {fused}"
        t.close(found, right, case, relative=1e-9)


def check_5(t, call, rng):
    """Decoders and GPUs."""

    def seconds(model, gpu, users, length):
        work = users * model["flop"] / gpu["peak"]
        read = model["weight_bytes"] / gpu["bandwidth"]
        kept = users * length * model["cache_bytes"] / gpu["bandwidth"]
        return (work if work > read else read) + kept

    for _ in range(6):
        model = {"weight_bytes": rng.randrange(10, 900), "flop": rng.randrange(1, 900)}
        model["cache_bytes"] = rng.randrange(1, 9)
        gpu = {"peak": rng.uniform(10, 9_000), "bandwidth": rng.uniform(5, 500)}
        length, fit = rng.randrange(1, 30), rng.randrange(1, 40)
        each = length * model["cache_bytes"]
        gpu["memory"] = model["weight_bytes"] + fit * each + rng.randrange(each)
        case = f"{model}, {gpu}, {length} tokens"
        for users in (1, fit, 3 * fit):
            found = call("token_seconds", model, gpu, users, length)
            right = seconds(model, gpu, users, length)
            t.close(found, right, f"{case}, {users} users", relative=1e-9)
        t.equal(call("most_users", model, gpu, length), fit, case)
        small = {**gpu, "memory": model["weight_bytes"] - 1}
        t.equal(call("most_users", model, small, length), 0, f"{case}: too small")
        slowest = seconds(model, gpu, fit, length) * rng.uniform(0.7, 1.1)
        able = [u for u in range(1, fit + 1) if seconds(model, gpu, u, length) <= slowest]
        rates = {u: u / seconds(model, gpu, u, length) for u in able}
        right = max(rates, key=rates.get) if rates else None
        near = [u for u in able if u != right and rates[u] > 0.999999 * rates[right]]
        if not near:
            found = call("best_users", model, gpu, length, slowest)
            t.equal(found, right, f"{case}, at most {slowest:.6g} s")
        never = 0.5 * seconds(model, gpu, 1, length)
        t.equal(call("best_users", model, gpu, length, never), None, f"{case}: nobody in time")
    t.equal(sorted(call("what_helps")), ["bandwidth", "memory"], "the conclusion")
