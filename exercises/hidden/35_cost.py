"""Hidden tests of the exercises of chapter 35."""

import math

UNITS = ("PF-days", "GPU-hours", "GPU-days", "GPU-years")


def check_1(t, call, rng):
    """Shapes of many sizes."""
    for _ in range(8):
        N, L, A = rng.randrange(1, 10**6), rng.randrange(1, 130), rng.randrange(1, 500)
        T, again = rng.randrange(1, 10**5), rng.choice([0, 0.25, 0.75, 1, rng.random()])
        case = f"N = {N}, L = {L}, A = {A}, T = {T}"
        causal, every = 6 * N + 6 * L * A * (T + 1), 6 * N + 12 * L * A * T
        t.close(call("needed_flop", N, L, A, T, True), causal, f"{case}, causal", relative=1e-9)
        t.close(call("needed_flop", N, L, A, T, False), every, f"{case}, all pairs", relative=1e-9)
        found = call("computed_flop", N, L, A, T, again)
        t.close(found, causal * (1 + again / 3), f"{case}, again = {again}", relative=1e-9)
        least = 1
        while L * A * (least + 1) < N:
            least += 1
        t.equal(call("doubling_context", N, L, A), least, f"N = {N}, L = {L}, A = {A}")
    L, A, T = rng.randrange(1, 9), rng.randrange(1, 9), rng.randrange(1, 99)
    t.equal(call("doubling_context", L * A * (T + 1), L, A), T, "a context that is met exactly")
    t.equal(call("doubling_context", L * A, L, A), 1, "a context has at least one token")
    big = call("doubling_context", 405_853_388_800, 126, 16_384)
    t.equal(big, 196_597, "Llama 3.1 405B")


def check_2(t, call, rng):
    """Runs of many sizes."""
    for _ in range(8):
        share, best = rng.uniform(0.02, 0.5), rng.uniform(0.5, 0.7)
        peak, gpus = rng.choice([125e12, 312e12, 989.4e12]), rng.randrange(1, 20_000)
        per_token, hours = rng.uniform(1e6, 1e13), rng.uniform(1, 4e7)
        rate = share * gpus * peak / per_token
        case = f"{rate:.6g} tokens/s of {per_token:.6g} FLOPs on {gpus} GPUs of {peak:.6g}"
        t.close(call("mfu_from_rate", rate, per_token, gpus, peak), share, case, relative=1e-9)
        flop = share * peak * hours * 3600
        case = f"{flop:.6g} FLOPs in {hours:.6g} GPU-hours at a peak of {peak:.6g}"
        t.close(call("mfu_from_hours", flop, hours, peak), share, case, relative=1e-9)
        lost = call("lost_hours", flop, hours, peak, best)
        t.close(lost, hours * (1 - share / best), f"{case}, best {best:.3f}", relative=1e-6)


def check_3(t, call, rng):
    """Values in all units."""
    seconds = {"GPU-hours": 3600, "GPU-days": 86_400, "GPU-years": 86_400 * 365.25}

    def work(value, unit, rate):
        return value * (86_400e15 if unit == "PF-days" else seconds[unit] * rate)

    for _ in range(8):
        value, rate = 10 ** rng.uniform(0, 7), rng.uniform(1e13, 9e14)
        for unit in UNITS:
            case = f"{value:.6g} {unit} at {rate:.6g} FLOP/s"
            t.close(call("work", value, unit, rate), work(value, unit, rate), case, relative=1e-9)
        flop = work(value, rng.choice(UNITS), rate) * 10 ** rng.uniform(-0.7, 0.7)
        far = {unit: abs(math.log(work(value, unit, rate) / flop)) for unit in UNITS}
        first, second = sorted(far, key=far.get)[:2]
        if far[second] - far[first] > 1e-6:
            case = f"{value:.6g} for {flop:.6g} FLOPs at {rate:.6g} FLOP/s"
            t.equal(call("fitting_unit", value, flop, rate), first, case)
        for unit in seconds:
            share = rng.choice([0.01, 0.019, 0.021, 0.3, 0.99, 1.01, 7])
            hours = flop / share / work(1, unit, rate)
            case = f"{hours:.6g} {unit} for {flop:.6g} FLOPs with a peak of {rate:.6g}"
            right = 0.02 <= share <= 1
            t.equal(bool(call("is_plausible", hours, unit, flop, rate)), right, case)
        near = rng.choice([0.9, 0.96, 1.0, 1.04, 1.1])
        case = f"{near} times the PF-days of {flop:.6g} FLOPs"
        found = call("is_plausible", near * flop / 86_400e15, "PF-days", flop, rate)
        t.equal(bool(found), abs(near - 1) < 0.05, case)


def check_4(t, call, rng):
    """Laws, sizes and numbers of served tokens."""

    def tokens(law, N, loss):
        left = loss - law["E"] - law["A"] / N ** law["alpha"]
        return (law["B"] / left) ** (1 / law["beta"]) if left > 0 else None

    for _ in range(8):
        law = {"E": rng.uniform(1, 2), "A": rng.uniform(200, 500), "B": rng.uniform(400, 2_000)}
        law |= {"alpha": rng.uniform(0.32, 0.36), "beta": rng.uniform(0.28, 0.37)}
        N = 10 ** rng.uniform(9, 11)
        loss = law["E"] + law["A"] / N ** law["alpha"] * rng.uniform(1.3, 2)
        case = f"{law}, N = {N:.6g}, loss {loss:.6g}"
        D = tokens(law, N, loss)
        t.close(call("tokens_needed", law, N, loss), D, case, relative=1e-6)
        floor = law["E"] + 0.9 * law["A"] / N ** law["alpha"]
        t.equal(call("tokens_needed", law, N, floor), None, f"{case}: out of reach")
        small, more = N * rng.uniform(0.1, 0.9), D * rng.uniform(0.5, 20)
        right = max(0, 3 * (small * more - N * D) / (N - small))
        case = f"{N:.6g} with {D:.6g}, {small:.6g} with {more:.6g}"
        t.close(call("break_even", N, D, small, more), right, case, relative=1e-6, absolute=1e-6)
        t.close(call("break_even", N, D, small, D), 0.0, f"{case}: cheaper at once", absolute=1e-6)
        sizes = [N * 2**k for k in range(-6, 3)]
        rng.shuffle(sizes)
        for served in (0, D, 30 * D):
            able = [n for n in sizes if tokens(law, n, loss)]
            lives = {n: 6 * n * tokens(law, n, loss) + 2 * n * served for n in able}
            case = f"{law}, sizes {sizes}, loss {loss:.6g}, served {served:.6g}"
            t.equal(call("cheapest", law, sizes, loss, served), min(lives, key=lives.get), case)
        t.equal(call("cheapest", law, [N / 100, N / 50], floor, D), None, f"{law}: out of reach")


def check_5(t, call, rng):
    """Runs and ranges."""

    def account(run):
        hours = run["flop"] / run["peak"] / run["mfu"] / 3600
        watts = run["watts"] * (1 + run["host_share"]) * run["pue"]
        return {
            "gpu_hours": hours,
            "days": hours / 24 / run["gpus"],
            "dollars": hours * run["dollars_per_gpu_hour"],
            "kwh": hours * watts / 1000,
        }

    for _ in range(6):
        run = {"flop": 10 ** rng.uniform(12, 26), "peak": rng.uniform(1e11, 2e15)}
        run |= {"mfu": rng.uniform(0.1, 0.6), "gpus": rng.randrange(1, 20_000)}
        run |= {"dollars_per_gpu_hour": rng.uniform(0.1, 9), "watts": rng.uniform(15, 1_200)}
        run |= {"host_share": rng.random(), "pue": rng.uniform(1, 1.8)}
        found, right = call("account", run), account(run)
        t.equal(sorted(found), sorted(right), "the names of the account")
        for name, value in right.items():
            t.close(found[name], value, f"{name} of {run}", relative=1e-9)
        ranges = {
            "mfu": [rng.uniform(0.1, 0.6) for _ in range(3)],
            "dollars_per_gpu_hour": [rng.uniform(0.5, 6) for _ in range(3)],
            "host_share": [rng.random() for _ in range(3)],
            "pue": [rng.uniform(1, 1.8) for _ in range(2)],
            "gpus": [rng.randrange(1, 9) for _ in range(2)],
        }
        for quantity in ("dollars", "kwh", "days"):
            spreads = {}
            for factor, values in ranges.items():
                ends = [account({**run, factor: value})[quantity] for value in values]
                spreads[factor] = max(ends) / min(ends)
                case = f"{factor} in {values}, {quantity} of {run}"
                answer = call("spread", run, factor, values, quantity)
                t.close(answer, spreads[factor], case, relative=1e-9)
            widest = max(spreads, key=spreads.get)
            case = f"{ranges}, {quantity} of {run}"
            t.equal(call("weakest_link", run, ranges, quantity), widest, case)
    t.equal(sorted(call("what_more_gpus_change")), ["days"], "the conclusion")
