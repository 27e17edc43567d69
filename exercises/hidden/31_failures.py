"""Hidden tests of the exercises of chapter 31."""

import math

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


def second_by_second(failures, duration, interval, save, restart):
    """Follow a run from each second to the next."""
    spent = {"kept": 0, "lost": 0, "saving": 0, "restarting": 0}
    fails, unsaved, phase, left = set(failures), 0, "training", interval
    for second in range(duration):
        for _ in range(2):  # what is complete comes first, and a restart may take no time
            while not left:
                if phase == "training":
                    phase, left = "saving", save
                else:
                    spent["kept"] += unsaved  # after a restart there is none
                    unsaved, phase, left = 0, "training", interval
            if second in fails:
                fails.remove(second)
                spent["lost"] += unsaved
                unsaved, phase, left = 0, "restarting", restart
        unsaved += phase == "training"
        if phase != "training":
            spent[phase] += 1
        left -= 1
    spent["kept"] += unsaved
    return tuple(spent.values())


def check_3(t, call, rng):
    """Runs with rare and frequent failures, in saves and in restarts."""
    for mean_gap in (3, 12, 40, 150):
        for save, restart in ((2, 5), (0, 7), (4, 0), (9, 30)):
            interval, duration = rng.randrange(1, 30), rng.randrange(200, 900)
            number = min(duration // mean_gap, duration - 1)
            failures = sorted(rng.sample(range(1, duration), number))
            right = second_by_second(failures, duration, interval, save, restart)
            answer = call("follow", failures, duration, interval, save, restart)
            case = f"{number} failures, {interval} + {save} s, restarts of {restart} s"
            t.equal(answer, right, case)
    right = second_by_second([24, 36, 41], 60, 10, 2, 5)
    answer = call("follow", [24, 36, 41], 60, 10, 2, 5)
    t.equal(answer, right, "failures as a save ends, as a restart ends")


def check_4(t, call, rng):
    """Real processes: one that dies, one that hangs, and slow ones."""
    rank = rng.randrange(4)
    steady = ([0.02] * 80, "finish")
    plans = [steady] * 4
    plans[rank] = ([0.02] * rng.randrange(1, 4), "crash")
    found = call("run_watched", plans, 1.0)
    t.equal(found["said"], (rank, "dead"), f"rank {rank} of 4 dies")
    t.equal(found["running"], [], "the others are ended")
    plans[rank] = ([0.02], "hang")
    done = (rank + 1) % 4
    plans[done] = ([], "finish")
    found = call("run_watched", plans, 1.0)
    t.equal(found["said"], (rank, "hung"), f"rank {rank} of 4 hangs, rank {done} has finished")
    t(1.0 <= found["took_s"] < 2.4, "the hang is noticed in time")
    t.equal(found["running"], [], "the others are ended")
    found = call("run_watched", [([0.3] * 5, "finish"), ([], "finish")], 1.2)
    t.equal(found["said"], None, "slow, but alive")
