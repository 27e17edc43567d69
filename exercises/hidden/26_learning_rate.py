"""Hidden tests of the exercises of chapter 26."""

import itertools
import math

import numpy as np
import torch


def check_1(t, call, rng):
    """Schedules of many shapes, at the steps where their pieces meet and between them."""

    def right(step, shape):
        peak, warmup, total, final, anneal = shape
        if step < warmup:
            return peak * (step + 1) / warmup
        if step < total:
            angle = math.pi * (step - warmup) / (total - warmup)
            return (peak * (1 + math.cos(angle)) + final * (1 - math.cos(angle))) / 2
        return final * max(0, total + anneal - step) / anneal if anneal else 0.0

    for warmup, total, anneal in (
        (rng.randrange(3, 30), rng.randrange(90, 200), rng.randrange(4, 20)),
        (rng.randrange(2_000, 9_000), rng.randrange(50_000, 2_000_000), rng.randrange(2, 900)),
        (0, rng.randrange(9, 40), 0),
        (6, 6, rng.randrange(3, 9)),
    ):
        peak = 10 ** rng.uniform(-5, 1)
        shape = peak, warmup, total, peak * rng.uniform(0.05, 0.3), anneal
        ends = [total - 1, total, total + anneal // 2, total + anneal, total + anneal + 7]
        for step in [0, max(0, warmup - 1), (warmup + 3 * total) // 4, rng.randrange(total), *ends]:
            rate, case = call("learning_rate_of", step, *shape), f"step {step} of {shape}"
            t.close(rate, right(step, shape), case, relative=1e-9, absolute=1e-13 * peak)


def check_2(t, call, rng):
    """Runs of all kinds in any order, among them those that fool a quick look."""
    for turn in range(8):
        vocab_size, last = rng.randrange(200, 50_000), rng.randrange(3, 7)
        margin, best = rng.choice((0.125, 0.25, 0.5)), rng.randrange(8, 16) / 8
        limit, rate = math.log(vocab_size), 10 ** rng.uniform(-4, -1)
        wild = [limit + rng.uniform(0.5, 90) for _ in range(last)]
        calm_end = [limit + 2.5 * last / (last - 1)] * (last - 1) + [limit - 1]
        spike = [best] * (last - 1) + [best + 0.6 * (limit - best) * last]
        spike = spike[::-1] if turn % 2 else spike
        known = [best - 0.7] * last  # by heart
        broken = [2.0] * (last - 1)
        near = rng.choice((0.5, 2))
        planned = [  # verdict, rate, first loss, last losses, validation at first and at last
            ("good", 1, limit - 0.5, [best + 0.05] * last, limit - 0.6, best),
            ("good", near, limit - 0.5, [best + 0.05] * last, limit - 0.6, best + margin),
            ("good", 1.5, limit - 0.5, spike, limit - 0.6, best + margin / 2),
            ("too low", 0.02, limit, [limit - 1] * last, limit, limit - 0.9),
            ("too high", 9, limit - 2, [best + 1.5] * last, limit - 2, best + 1.6),
            ("too high", 4, limit - 0.5, known, limit - 0.6, best + margin + 0.2),
            ("diverging", 20, limit - 1.5, calm_end, limit - 1.5, best - 0.5),
            ("diverging", 30, limit - 1, wild, limit, limit + 9),
            ("diverging", 40, 3.0, [*broken, rng.choice((math.nan, math.inf))], 3.0, best - 0.6),
            ("diverging", 50, 3.0, [*broken, math.nan], 3.0, best - 0.7),
        ]
        runs = []
        for verdict, factor, start, tail, first, end in planned:
            losses = [start - i / 100 + rng.uniform(0, 0.01) for i in range(9)] + tail
            measured = [first] + [None] * (len(losses) - 1)
            measured[rng.randrange(2, 9)] = end
            run = {"rate": rate * factor, "train": losses, "validation": measured}
            runs.append((run, verdict))
        # Stopped after one loss or two.
        stopped = rng.choice(([limit + 1], [limit + 1, limit + 2]))
        measured = [best - 1.0, None][: len(stopped)]
        short = {"rate": rate * 60, "train": stopped, "validation": measured}
        runs.append((short, "diverging"))
        rng.shuffle(runs)
        if turn % 2:  # falling rates: places in the list say the opposite
            runs.sort(key=lambda pair: -pair[0]["rate"])
        answer = call("diagnose", [run for run, _ in runs], vocab_size, last, margin)
        if t(isinstance(answer, list | tuple) and len(answer) == len(runs), "a text for each run"):
            for mine, (run, verdict) in zip(answer, runs, strict=True):
                t.equal(mine, verdict, f"rate {run['rate'] / rate:g} times that of the best")
        gone = [run for run, verdict in runs if verdict == "diverging"]
        answer = list(call("diagnose", gone, vocab_size, last, margin))
        t.equal(answer, ["diverging"] * len(gone), "all of them diverge")
    t.equal(list(call("diagnose", [], 400, 5, 0.25)), [], "no run at all")


def check_3(t, call, rng):
    """Measurements that lie beside their line, in any order; a trial for every prediction."""
    for turn in range(16):
        batches = [2**e * rng.randrange(3, 5) for e in rng.sample(range(0, 20, 2), 2 + turn % 5)]
        if batches[-1] == max(batches):  # the largest never stands last
            batches.reverse()
        power, scale = rng.uniform(-0.3, 1.2), 10 ** rng.uniform(-4, 1)
        beside = [rng.choice((-1, 1)) * rng.uniform(0.1, 0.5) for _ in batches]
        rates = [scale * b**power * math.exp(off) for b, off in zip(batches, beside, strict=True)]
        new_batch = max(batches) * rng.choice((2, 4, 10, 64))
        x, y = np.log(batches), np.log(rates)
        slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
        line = math.exp(y.mean() + slope * (math.log(new_batch) - x.mean()))
        rate, k = rates[batches.index(max(batches))], new_batch / max(batches)
        predictions = {"same": rate, "sqrt": rate * k**0.5, "linear": rate * k, "line": line}
        # Between two neighbours, a little nearer to one of them by factors.
        ordered = sorted(predictions, key=predictions.get)
        gaps = [(predictions[b] / predictions[a], a, b) for a, b in itertools.pairwise(ordered)]
        gap, below, above = rng.choice([g for g in gaps if g[0] > 1.05])
        nearest = rng.choice((below, above))
        measured = predictions[below] * gap ** (0.45 if nearest == below else 0.55)
        answer = call("try_rules", batches, rates, new_batch, measured)
        case = f"batches {batches}, new {new_batch}"
        if t(isinstance(answer, list | tuple) and len(answer) == 3, f"{case}: three results"):
            t.close(answer[0], slope, f"{case}: power", relative=1e-9, absolute=1e-9)
            t.close(answer[1], predictions, f"{case}: predictions", relative=1e-9)
            t.equal(answer[2], nearest, f"{case}: nearest")
    for measured, nearest in ((84.0, "linear"), (70.0, "line"), (39.0, "sqrt"), (9.0, "same")):
        answer = call("try_rules", [4, 64, 1, 16], [2, 8, 1, 8], 1_024, measured)
        t.equal(answer[2], nearest, f"{measured} against 8, 32, 128 and 48.5")


def check_4(t, call, rng):
    """Runs of several weights, batches and lengths, beside the gradient written out."""
    for done, num_steps in ((0, 1), (0, 5), (2, 6), (4, 5), (3, 3)):
        size, rows = rng.randrange(1, 4), rng.randrange(1, 4)
        start = [rng.uniform(-1, 1) for _ in range(size)]
        batches = [
            [
                [[rng.uniform(-1, 1) for _ in range(size)] for _ in range(rows)],
                [rng.uniform(-1, 1) for _ in range(rows)],
            ]
            for _ in range(7)
        ]
        rates = [rng.uniform(0.05, 0.3) for _ in range(7)]
        seen = call("observed_train", start, batches, rates, num_steps, done)
        w, losses, gradients = np.array(start), [], []
        for step in range(done, num_steps):
            x, y = map(np.array, batches[step])
            losses.append(float(np.mean((x @ w - y) ** 2)))
            gradients.append((2 * x.T @ (x @ w - y) / rows).tolist())
            w = w - rates[step] * np.array(gradients[-1])
        steps = list(range(done, num_steps))
        case = f"steps {done} to {num_steps}"
        t.equal([seen["batches"], seen["rates"]], [steps, steps], f"{case}: batches and rates")
        updates = [[rates[step], step + 1] for step in steps]
        t.close(seen["updates"], updates, f"{case}: updates", relative=1e-12)
        t.close(seen["losses"], losses, f"{case}: losses", relative=1e-9, absolute=1e-12)
        t.close(seen["gradients"], gradients, f"{case}: gradients", relative=1e-9, absolute=1e-12)
        t.close(seen["weights"], w.tolist(), f"{case}: weights", relative=1e-9, absolute=1e-12)
        t(seen["floats"], f"{case}: floats")


def check_5(t, call, rng):
    """States of several shapes: what is in the file, and what a failure leaves."""
    for shapes, state, step, seed in _states(rng):
        seen = call("observed_save", *state, step, seed)
        t.equal(seen["files"], ["run.pt"], f"{shapes}: one file")
        t(seen["raised"], f"{shapes}: the error is raised")
        t(seen["kept"], f"{shapes}: a failure leaves the old file")
        if t(isinstance(seen["content"], dict), f"{shapes}: a dictionary"):
            right = dict(zip(("weights", "m", "v"), state, strict=True))
            found = {name: list(seen["content"].get(name, ())) for name in right}
            t.close(found, right, f"{shapes}: weights and means")
            t.equal(seen["content"].get("step"), step, f"{shapes}: steps")
            t.close(seen["drawn"], _chance(seed), f"{shapes}: chance goes on")


def check_6(t, call, rng):
    """States of several shapes: what comes back, and what a file may do."""
    for shapes, state, step, seed in _states(rng):
        seen = call("observed_load", *state, step, seed)
        t(not seen["ran"], f"{shapes}: a file cannot run code")
        if t(isinstance(seen["loaded"], list), f"{shapes}: four things"):
            found = [list(each) for each in seen["loaded"][:3]]
            t.close(found, list(state), f"{shapes}: weights and means")
            t.equal(seen["loaded"][3], step, f"{shapes}: steps")
        t.close(seen["drawn"], _chance(seed), f"{shapes}: chance goes on")


def _states(rng):
    """Yield states of several shapes, each with a number of steps and a seed."""
    draw = torch.Generator().manual_seed(rng.randrange(2**31))
    for shapes in ([(3,)], [(2, 2), (1,)], [(4,), (2, 3), ()]):
        state = tuple([torch.randn(s, generator=draw) for s in shapes] for _ in range(3))
        yield f"shapes {shapes}", state, rng.randrange(1, 9_000), rng.randrange(2**31)


def _chance(seed):
    """Return the numbers that come first after a seed."""
    return torch.rand(3, generator=torch.Generator().manual_seed(seed))
