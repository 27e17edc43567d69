"""Hidden tests of the exercises of chapter 45."""

import json
import math
import statistics


def check_1(t, call, rng):
    """Batches of every form, micro-batches without a token among them."""
    for _ in range(10):
        width = rng.randrange(1, 5)
        counts = [
            [rng.choice([0, 1, 2, 7]) for _ in range(rng.randrange(1, 4))]
            for _ in range(rng.randrange(1, 4))
        ]
        counts[0][0] += 1
        sums = [
            [[rng.gauss(0, 1) * count for _ in range(width)] for count in replica]
            for replica in counts
        ]
        total = [math.fsum(part[i] for r in sums for part in r) for i in range(width)]
        right = [x / sum(map(sum, counts)) for x in total]
        found = call("mesh_gradient", sums, counts)
        t.close(list(found), right, f"{sums}, {counts}", relative=1e-9, absolute=1e-12)
        reference = [rng.gauss(0, 3) for _ in range(width)]
        near = [x + rng.choice([0.0, 1e-3, 0.5]) for x in reference]
        distance = max(map(abs, (a - b for a, b in zip(near, reference, strict=True))))
        error = distance / max(map(abs, reference))
        case = f"{near} against {reference}"
        found = call("largest_error", near, reference)
        t.close(found, error, case, relative=1e-9, absolute=1e-15)
        for tolerance in (error * 0.9, error * 1.1 + 1e-12):
            equal = call("is_equal", near, reference, tolerance)
            t.equal(bool(equal), error <= tolerance, f"{case}, tolerance {tolerance}")
    nan = float("nan")
    for near, reference, equal in (
        ([1.0, -2.0], [1.0, -2.0], True),
        ([0.0], [0.0], False),
        ([1.0, -2.0], [1.0], False),
        ([1.0], [1.0, -2.0], False),
        ([nan, 1.0], [1.0, 1.0], False),
        ([1.0, 2.0], [1.0, nan], False),
    ):
        found = call("is_equal", near, reference, 0)
        t.equal(bool(found), equal, f"{near} against {reference}, tolerance 0")


def check_2(t, call, rng):
    """Crashes at every moment, several in a row, and at the last step."""

    def step(state, data):
        draws = (1_103_515_245 * state["draws"] + 12_345) % 2**31
        gradient = state["weight"] - data[state["place"]] + (draws / 2**31 - 0.5)
        momentum = 0.9 * state["momentum"] + gradient
        return {
            "done": state["done"] + 1,
            "weight": state["weight"] - 0.1 * momentum,
            "momentum": momentum,
            "place": (state["place"] + 1) % len(data),
            "draws": draws,
        }

    def taken(steps, every, kills):
        done = number = last = 0
        while done < steps:
            done, number = done + 1, number + 1
            last = done if done % every == 0 else last
            done = last if number in kills else done
        return number

    for _ in range(14):
        data = [rng.gauss(0, 2) for _ in range(rng.randrange(1, 6))]
        steps, every = rng.randrange(1, 25), rng.randrange(1, 8)
        kills = sorted(rng.sample(range(1, 40), rng.randrange(0, 6)))
        state = {"done": 0, "weight": 1.0, "momentum": 0.0, "place": 0, "draws": 7}
        for _ in range(steps):
            state = step(state, data)
        case = f"{data}, {steps} steps, a checkpoint every {every}, kills {kills}"
        found, number = call("machine", data, steps, every, kills)
        t.equal(found, state, case)
        t.equal(number, taken(steps, every, kills), f"{case}: steps taken")
        again = call("load", call("save", state))
        t.equal(json.loads(json.dumps(again)), state, f"saved and loaded: {state}")


def check_3(t, call, rng):
    """Texts of few and many tokens; gains of every size."""
    for _ in range(10):
        vocab_size = rng.randrange(1, 12)
        training = [rng.randrange(vocab_size) for _ in range(rng.randrange(0, 40))]
        held_out = [
            [rng.randrange(vocab_size) for _ in range(rng.randrange(1, 9))]
            for _ in range(rng.randrange(1, 5))
        ]
        total = len(training) + vocab_size
        right = [
            statistics.fmean(math.log(total / (training.count(token) + 1)) for token in document)
            for document in held_out
        ]
        found = call("count_losses", training, held_out, vocab_size)
        t.close(list(found), right, f"{training}, {held_out}", relative=1e-9, absolute=1e-12)
        n = rng.randrange(2, 30)
        baseline = [rng.gauss(3, 1) for _ in range(n)]
        shift = rng.choice([-0.3, 0.0, 0.3])
        model = [b + shift + rng.gauss(0, rng.choice([0.02, 0.5])) for b in baseline]
        away = [m - b for m, b in zip(model, baseline, strict=True)]
        mean, half = statistics.fmean(away), 1.96 * statistics.stdev(away) / math.sqrt(n)
        case = f"{model} against {baseline}"
        right = [mean, mean - half, mean + half]
        t.close(list(call("gain", model, baseline)), right, case, relative=1e-6, absolute=1e-9)
        if abs(mean + half) > 1e-9:
            t.equal(bool(call("improves", model, baseline)), mean + half < 0, case)
    near = [x + d for x, d in zip(baseline, [-0.9, 0.8] * 15, strict=False)]
    t.equal(bool(call("improves", near, baseline)), False, f"{near} against {baseline}")


def check_4(t, call, rng):
    """Reports with and without numbers, and sentences of every kind about them."""

    def share_interval(k, n):
        z2 = 1.96**2
        root = 1.96 * math.sqrt(4 * k * (n - k) / n + z2)
        return [(2 * k + z2 + sign * root) / (2 * (n + z2)) for sign in (-1, 1)]

    def right_verdict(sentence, report):
        if sentence["kind"] == "clean":
            found, items = report["found"].get(sentence["test"], [0, 0])
            return "not measured" if not items else f"{'not ' * (found > 0)}supported"
        ends = [
            share_interval(*report["scores"][name]) if name in report["scores"] else None
            for name in (sentence["score"], sentence["than"])
            if isinstance(name, str)
        ]
        if None in ends:
            return "not measured"
        if sentence["kind"] == "same":
            return "not supported"
        limit = sentence["than"] if sentence["kind"] == "above" else ends[1][1]
        return "supported" if ends[0][0] > limit else "not supported"

    names = ["a", "b", "c", "d"]
    for _ in range(12):
        report = {"scores": {}, "found": {}}
        for name in rng.sample(names, rng.randrange(1, 5)):
            n = rng.randrange(1, 300)
            report["scores"][name] = [rng.randrange(n + 1), n]
        for name in rng.sample(names, rng.randrange(0, 5)):
            n = rng.choice([0, 5, 40])
            report["found"][name] = [rng.choice([0, 0, min(n, 3)]), n]
        sentences = [
            {"kind": kind, "score": rng.choice(names), "than": rng.choice(names)}
            for kind in ("better", "same", "better")
        ]
        sentences += [
            {"kind": "above", "score": rng.choice(names), "than": rng.choice([0.1, 0.25, 0.5])},
            *({"kind": "clean", "test": name} for name in names),
        ]
        for sentence in sentences:
            right = right_verdict(sentence, report)
            t.equal(call("verdict", sentence, report), right, f"{sentence} of {report}")
        stands = [each for each in sentences if right_verdict(each, report) == "supported"]
        t.equal(call("honest", sentences, report), stands, f"{sentences} of {report}")
        k, n = next(iter(report["scores"].values()))
        found = list(call("interval", k, n))
        t.close(found, share_interval(k, n), f"{k} of {n}", relative=1e-6, absolute=1e-9)
