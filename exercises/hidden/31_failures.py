"""Hidden tests of the exercises of chapter 31."""

import math
from decimal import Decimal

import numpy as np


def check_1(t, call, rng):
    """Clusters with many kinds of parts, some of which grow, shrink, vanish or never fail."""
    for num_kinds in (1, 1, 2, 3, 8, 18):
        days = rng.choice((1, 7, 30.5, 54, 365))
        records, expected = [], []
        for _ in range(num_kinds):
            count, then = rng.randrange(1, 200), rng.randrange(1, 3_000)
            now = rng.choice((then, 2 * then, rng.randrange(1, 30_000)))
            records.append((count, then, now))
            expected.append(now / (days * 24 * then / count))
        if num_kinds > 2:
            records += [(0, 17, 40_000), (rng.randrange(1, 90), 12, 0)]
            rng.shuffle(records)
        mtbf_h = 1 / math.fsum(expected)
        for hours in (0.0, 0.1 * mtbf_h, mtbf_h, 3 * mtbf_h):
            right = (mtbf_h, math.e ** (-hours / mtbf_h))
            case = f"{num_kinds} kinds in {days} days, {hours / mtbf_h:.1f} MTBFs without failure"
            t.close(call("outlook", records, days, hours), right, case, relative=1e-9)
    never = [(0, 4, 1_000), (9, 4, 0)]
    t.close(call("outlook", never, 30, 1e6), (math.inf, 1.0), "nothing ever fails")


def goodput(gaps, interval, save, restart):
    """Follow the run second by second of each segment."""
    kept = 0
    for gap in gaps:
        now = interval + save
        while now <= gap:
            kept += interval
            now += interval + save
    return kept / sum(gap + restart for gap in gaps)


def check_2(t, call, rng):
    """Short and long logs with saves and restarts of all lengths; intervals that tie."""
    for num_gaps in (1, 2, 5, 20, 60):
        save, restart = rng.randrange(1, 40), rng.randrange(1, 500) * (num_gaps > 1)
        logs = []
        for mean in (rng.randrange(1_000, 4_000), rng.randrange(1_000, 4_000)):
            logs.append([1 + round(rng.expovariate(1 / mean)) for _ in range(num_gaps)])
        logs[0][0] += 1_000  # so that some interval leaves something
        logs[1] += [rng.randrange(1, 9_000) for _ in range(num_gaps)]
        intervals = sorted(rng.sample(range(30, 900), 80))
        gaps = np.array(logs[0])
        kept = [int((gaps // (x + save)).sum()) * x for x in intervals]
        best = intervals[int(np.argmax(kept))]
        young = (2 * save * float(np.mean(gaps))) ** 0.5
        right = [(x, *(goodput(log, x, save, restart) for log in logs)) for x in (young, best)]
        answer = call("tuned", *logs, intervals, save, restart)
        case = f"{num_gaps} gaps, saves of {save} s, restarts of {restart} s"
        t.close(answer, right, case, relative=1e-9)
    # Whole numbers of segments of 60 s, where every interval that is asked for ties.
    gaps = [660 * rng.randrange(1, 9) for _ in range(7)]
    answer = call("tuned", gaps, [60, 59, 119], [20, 50, 51], 10, 0)
    right = (50, 50 * sum(g // 60 for g in gaps) / sum(gaps), 100 / 238)
    t.close(answer[1], right, "segments that end together with their gaps", relative=1e-9)
    tie = call("tuned", [120] * 3, [120], [10, 50, 100], 10, 7)
    t.close(tie[1], (50, 100 / 127, 100 / 127), "two equally good intervals", relative=1e-9)


def shares(load):
    """Return for 0, 1, 2, ... spares the share of time spent waiting, and Poisson's tail."""
    n = np.arange(60 + 12 * math.ceil(math.sqrt(load) + load))
    logs = n * math.log(load) - np.cumsum(np.log(np.maximum(n, 1)))
    terms = np.exp(logs - logs.max())
    waiting = terms / np.cumsum(terms)  # Erlang's formula as a quotient of sums, by lines
    more = np.cumsum(terms[::-1])[::-1] / terms.sum()  # n or more in repair
    return waiting[1:], more[1:]


def check_3(t, call, rng):
    """From a load near 0 to one of hundreds, for limits from one in a million to more than half."""
    for scale in (0.01, 0.3, 1, 2.5, 7, 20, 60, 150):
        load = scale * rng.uniform(0.8, 1.25)
        for limit in (1e-6 * rng.uniform(1.1, 3), rng.uniform(0.005, 0.02), rng.uniform(0.2, 0.7)):
            mtbf_h, broken = rng.uniform(0.5, 40), rng.uniform(0.3, 1)
            repair_h = load * mtbf_h / broken
            right = tuple(int(np.argmax(share < limit)) for share in shares(load))
            answer = call("spares_needed", mtbf_h, broken, repair_h, limit)
            case = f"{load:.3f} in repair on average, limit {limit:.2g}"
            t.equal(answer, right, case)
    t.equal(call("spares_needed", 3.0, 0.0, 24.0, 0.001), (0, 0), "nothing breaks")
    t.equal(call("spares_needed", 3.0, 0.5, 0.0, 0.001), (0, 0), "repairs that take no time")
    t.equal(call("spares_needed", 8.0, 0.25, 96.0, 0.75)[0], 1, "a limit that is just reached")


def digits_of(text):
    """Return the number of digits behind the point."""
    return len(text.split(".")[1]) if "." in text else 0


def agrees(text, numerator, denominator):
    """Say whether a text may be printed for numerator / denominator, in whole numbers."""
    shift = 10 ** digits_of(text)
    printed = int(text.replace(".", ""))
    return abs(printed * denominator - numerator * shift) * 2 <= denominator


def printed_as(numerator, denominator, digits, rng):
    """Return numerator / denominator rounded, a half by chance up or down."""
    doubled = 2 * numerator * 10**digits
    unit, rest = divmod(doubled, 2 * denominator)
    if rest > denominator or (rest == denominator and rng.random() < 0.5):
        unit += 1
    return f"{Decimal(unit).scaleb(-digits):f}"


def moved(text, units):
    """Return a text with some units of its last digit more."""
    return f"{Decimal(text) + Decimal(units).scaleb(-digits_of(text)):f}"


def expected(counts, printed, claims):
    """Return the verdicts."""
    total = sum(counts)
    good = [agrees(text, 100 * n, total) for text, n in zip(printed, counts, strict=True)]
    said = []
    for places, text in claims:
        column = sum(Decimal(printed[i]) for i in places)
        added = agrees(text, int(column * 1_000), 1_000)
        if agrees(text, 100 * sum(counts[i] for i in places), total):
            said.append("fits")
        elif added:
            said.append("rounded twice" if all(good[i] for i in places) else "inherited")
        else:
            said.append("misprint")
    return ["fits" if g else "misprint" for g in good], said


def check_4(t, call, rng):
    """Tables with and without misprints; claims of all four sorts."""
    for total, num_rows in ((16, 3), (32, 5), (400, 6), (419, 18), (1_000, 30), (7_777, 12)):
        cuts = sorted(rng.sample(range(1, total), num_rows - 1))
        counts = [high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)]
        for digits in (0, 1, 2):
            printed = [printed_as(100 * n, total, digits, rng) for n in counts]
            for _ in range(rng.randrange(3)):
                place = rng.randrange(num_rows)
                printed[place] = moved(printed[place], rng.choice((1, 2, 10, 30)))
            claims = [(list(range(num_rows)), "100")]
            for size in (1, 2, 2, 3, num_rows // 2, num_rows // 2, num_rows - 1, num_rows):
                places = sorted(rng.sample(range(num_rows), max(1, size)))
                share = 100 * sum(counts[i] for i in places)
                claims.append((places, printed_as(share, total, rng.randrange(3), rng)))
                column = int(1_000 * sum(Decimal(printed[i]) for i in places))
                claims.append((places, printed_as(column, 1_000, rng.randrange(3), rng)))
                claims.append((places, moved(claims[-1][1], rng.choice((1, 2, 20)))))
            right = expected(counts, printed, claims)
            case = f"{num_rows} rows, {total} in all, {digits} digits"
            t.equal(call("verdicts", counts, printed, claims), right, case)
    # One row in sixteen: each half, rounded down and up, and a unit beyond.
    for n in (1, 3, 5, 7, 9, 11, 13, 15):
        texts = [f"{(Decimal(n) * 100 / 16 + Decimal(d) / 100):.1f}" for d in (-15, -5, 5, 15)]
        answer = call("verdicts", [n, 16 - n], ["99", "99"], [([0], text) for text in texts])
        t.equal(answer[1], ["misprint", "fits", "fits", "misprint"], f"{n} of 16")
    # A misprint in the table, and one that cancels it.
    wrong = rng.randrange(1, 9)
    printed = [f"{20 - wrong}.0", f"{20 + wrong}.0", "60.0"]
    claims = [([0, 1], "40.0"), ([0, 2], f"{80 - wrong}.0"), ([1, 2], "80"), ([2], "60")]
    right = (["misprint", "misprint", "fits"], ["fits", "inherited", "fits", "fits"])
    t.equal(call("verdicts", [3, 3, 9], printed, claims), right, "two misprints that cancel")
    claims = [([0, 1], "66.6"), ([0, 1, 2], "99.9"), ([0, 2], "66.7"), ([0, 1, 2], "100.0")]
    answer = call("verdicts", [7, 7, 7], ["33.3"] * 3, claims)
    right = (["fits"] * 3, ["rounded twice", "rounded twice", "fits", "fits"])
    t.equal(answer, right, "three thirds")
