"""Checks of exercises 31: Failing every three hours."""

import math
import random


def check_1(t, outlook):
    """31.1 The next cluster"""
    # Llama 3: 419 in 54 days on 16,384 GPUs, one in 54 * 24 / 419 = 3.093 hours.
    answer = outlook([(419, 16_384, 16_384)], 54, 0.0)
    t(
        answer is None or answer[1] != 0.0,
        "the second number is the chance that *nothing* fails; for a time of 0 hours it is 1",
        "the chance is that of no interruption",
    )
    t.close(
        answer,
        (3.0930787589, 1.0),
        "the MTBF is time divided by failures: 54 × 24 hours / 419 = 3.09 hours; and the chance "
        "that nothing fails within 0 hours is 1",
        "one failure in 3.09 hours",
    )
    t.close(
        outlook([(419, 16_384, 32_768)], 54, 0.0),
        (1.5465393795, 1.0),
        "with twice as many GPUs the MTBF is half as long, 1.55 hours: each of the parts fails as "
        "often as before, and there are more of them",
        "twice the parts, half the MTBF",
    )
    # The same 419 interruptions, of which 268 came from the GPUs, on the same cluster.
    t.close(
        outlook([(268, 16_384, 16_384), (151, 2_048, 2_048)], 54, 0.0),
        (3.0930787589, 1.0),
        "the same 419 interruptions in two records mean the same MTBF. Times can be neither added "
        "nor averaged, nor is it the shortest that counts: what adds up is how often each kind "
        "fails",
        "the rates of the kinds add up",
    )
    # Twice the GPUs, four times the hosts, and the same software.
    t.close(
        outlook([(268, 16_384, 32_768), (53, 2_048, 8_192), (56, 1, 1)], 54, 0.0),
        (1.6119402985, 1.0),
        "each kind grows by its own factor: 268 × 2 + 53 × 4 + 56 × 1 = 804 failures in 54 days. "
        "Twice the GPUs do not make more bugs",
        "each kind grows by its own factor",
    )
    t.close(
        outlook([(40, 8, 8), (0, 100, 900), (12, 5, 0)], 10, 0.0),
        (6.0, 1.0),
        "40 failures in 240 hours remain: a kind that never failed adds none, nor does one that "
        "the new cluster has none of",
        "kinds without failures add none",
    )
    day = outlook([(419, 16_384, 16_384)], 54, 24.0)
    t(
        0 <= day[1] <= 1,
        "1 - hours / MTBF is no chance: for 24 hours it is -6.8. It holds for times that are short "
        "beside the MTBF only",
        "the chance lies between 0 and 1",
    )
    t.close(
        day[1],
        0.00042678,
        "a day without an interruption has the chance exp(-24 / 3.09) = 0.00043. A chance of "
        "1 - 1 / MTBF for each hour is less: it counts hours with two failures twice",
        "a whole day without an interruption: one in some 2,300",
        relative=1e-4,
    )
    t.close(
        outlook([(0, 8, 1_000)], 54, 100.0),
        (math.inf, 1.0),
        "no failure was counted, so the rate is 0, the MTBF is infinite and the chance is 1",
        "a rate of 0",
    )


def check_2(t, tuned):
    """31.2 Tuned on last month"""
    # Young's interval is sqrt(2 * 10 * 500) = 100, so that a segment takes 110 seconds.
    answer = tuned([500, 500], [500], [40], 10, 0)
    t(
        [len(triple) for triple in answer] == [3, 3],
        "two triples are asked for: interval and two goodputs, for Young's and for brute force",
        "two triples",
    )
    t.close(
        answer[0][0],
        100.0,
        "with a save of 10 s and gaps of 500 s Young's interval is √(2 × 10 × 500) = 100 s",
        "Young's interval",
    )
    t.close(
        tuned([480], [480], [40, 98], 10, 0)[0][0],
        math.sqrt(9_600),
        "Young's interval is neither rounded nor taken from the list: for a gap of 480 s it is "
        "√9,600 = 97.98 s",
        "Young's interval is not rounded",
    )
    t.close(
        tuned([500, 500], [500], [40], 10, 300)[0][0],
        100.0,
        "your interval changes with the restart: the MTBF is the mean of the gaps, in which the "
        "run could fail, and restarts are not among them",
        "the restart is not in Young's interval",
    )
    t.close(
        tuned([100, 100, 1_300], [500], [40], 10, 0)[0][0],
        100.0,
        "the MTBF is the mean of the gaps: for 100, 100 and 1,300 s it is 500 s. One long gap "
        "counts for all its seconds, and the median does not see it",
        "the MTBF is the mean gap",
    )
    # 130 seconds with x = 40 and s = 10: two whole segments, and 30 seconds that are lost.
    t.close(
        tuned([130, 130], [130], [40], 10, 0)[1],
        (40, 80 / 130, 80 / 130),
        "in a gap of 130 s two segments of 40 + 10 s are whole, and 80 s remain. The 30 s after "
        "them were never saved, and the saves take time of the gap, too",
        "what was not saved is lost",
    )
    t.close(
        tuned([130, 130], [130, 130, 130], [40], 10, 30)[1],
        (40, 80 / 160, 80 / 160),
        "with a restart of 30 s after each gap, 80 of every 160 s remain, for any number of gaps",
        "a restart for each gap",
    )
    t.close(
        tuned([50, 100], [99, 49], [40], 10, 0)[1],
        (40, 120 / 150, 40 / 148),
        "a gap of 50 s holds one whole segment of 40 + 10 s, 100 s hold two, 99 s one and 49 s "
        "none: the save has to be complete",
        "a segment is whole with its save",
    )
    t.equal(
        tuned([240], [240], [30, 50, 70, 110, 150], 10, 5)[1][0],
        110,
        "in a gap of 240 s these intervals leave 30 × 6, 50 × 4, 70 × 3, 110 × 2 and 150 s: the "
        "best is 110 s",
        "brute force looks at every interval",
    )
    t.equal(
        tuned([120], [120], [20, 50, 100], 10, 0)[1][0],
        50,
        "20, 50 and 100 leave 80, 100 and 100 of the 120 s: of equally good intervals take the "
        "shortest",
        "the shortest of equally good ones",
    )
    t.close(
        [x for x, _, _ in tuned([240], [1_000, 9_000], [30, 50, 70, 110, 900], 10, 5)],
        [math.sqrt(4_800), 110],
        "both intervals are chosen from the first log alone. Next month's gaps are not known "
        "before the month is over",
        "the second log is for judging only",
    )
    # Two logs of 419 gaps, drawn with a mean of 3.09 hours.  In 200 such draws the mean gain of
    # brute force is 0.2 points on its own log, and nothing on the next.
    dice = random.Random(33)
    logs = [[round(dice.expovariate(1 / 11_135)) for _ in range(419)] for _ in range(2)]
    t.close(
        tuned(*logs, range(60, 3_601), 30, 300),
        [(798.7119, 0.9011, 0.9099), (780, 0.9032, 0.9087)],
        "419 gaps with a mean of 10,632 s: Young's interval is 799 s. Brute force finds 780 s, is "
        "0.2 points better on its own log, and 0.1 points worse on the next",
        "brute force over 419 gaps: 0.2 points better on its own log, 0.1 worse on the next",
        relative=1e-4,
    )


def check_3(t, follow):
    """31.3 A run, second by second"""
    t.equal(
        follow([], 40, 10, 2, 5),
        (34, 0, 6, 0),
        "without a failure, 40 s are three segments of 10 + 2 s and four seconds of training. "
        "They count as kept: the run still stands at the end",
        "without a failure",
    )
    t.equal(
        follow([24], 40, 10, 2, 5),
        (30, 0, 5, 5),
        "at second 24 the second save is just complete, and nothing is lost. The restart ends at "
        "second 29, and from there a whole new interval begins, until second 39: saves do not come "
        "at fixed times of the clock",
        "a failure as a save ends, and a whole new interval",
    )
    t.equal(
        follow([27], 40, 10, 2, 5),
        (28, 3, 4, 5),
        "after the failure at second 27 the three seconds since the save are lost, the restart "
        "takes until second 32, and eight seconds of training are kept",
        "the example of the text",
    )
    t.equal(
        follow([23], 40, 10, 2, 5),
        (20, 10, 5, 5),
        "at second 23 the second save is not complete: its ten seconds of training are lost, and "
        "the one second that it took counts as saving. After the restart one more segment fits",
        "a save that is cut off saves nothing",
    )
    t.equal(
        follow([6, 9], 40, 10, 2, 5),
        (22, 6, 4, 8),
        "the failure at second 9 comes in the restart that began at 6. Three seconds of it are "
        "spent, a new one takes until second 14, and no training is lost twice",
        "a restart that fails begins anew",
    )
    # A day with some failures: 200 seconds between two on average.
    dice = random.Random(4)
    failures = sorted(dice.sample(range(1, 86_400), 432))
    day = follow(failures, 86_400, 60, 5, 20)
    t(
        sum(day) == 86_400,
        "the four numbers add up to something other than the 86,400 seconds of the day",
        "every second is accounted for",
    )
    t.equal(
        day,
        (61_337, 11_637, 5_161, 8_265),
        "on a day with 432 failures each second belongs somewhere: go through the cases of the "
        "text, in particular failures in restarts and in saves",
        "a day with 432 failures",
    )


def check_4(t, run_watched):
    """31.4 A watchdog"""
    steady = [0.02] * 80  # some two seconds of steps of 20 ms
    # Rank 1 dies after three steps; the others would work for longer.
    died = run_watched([(steady, "finish"), ([0.02] * 3, "crash"), (steady, "finish")], 1.0)
    t(
        died["said"] != (1, "hung"),
        "rank 1 died, and you waited for the deadline to notice: its exit code says so at once",
        "a death is not a silence",
    )
    t.equal(
        died["said"],
        (1, "dead"),
        "rank 1 ended with an exit code other than 0: it is dead",
        "a worker that died",
    )
    t(
        not died["running"],
        "when rank 1 had died, other workers were left running: kill all of them",
        "no worker is left running",
    )
    # Slow, but alive: a step of 0.3 s, six times, with a deadline of 1.5 s; rank 1 is done soon.
    fine = run_watched([([0.3] * 6, "finish"), ([0.02], "finish")], 1.5)
    t(
        fine["said"] != (0, "hung"),
        "rank 0 works for longer than the deadline, but leaves a heartbeat every 0.3 s: the clock "
        "starts again with each of them",
        "the clock starts with each heartbeat",
    )
    t(
        fine["said"] is None or fine["said"][0] != 1,
        "rank 1 had finished, with exit code 0. Silence after that is neither death nor a hang",
        "who has finished may be silent",
    )
    t(
        fine["said"] is None and not fine["running"],
        "all workers finished, and `watch` returns None then, not earlier",
        "all have finished",
    )
    # Rank 0 hangs after two steps, while the others go on with theirs.
    hung = run_watched([([0.02] * 2, "hang"), (steady, "finish"), (steady, "finish")], 1.0)
    t(
        hung["said"] is not None and hung["took_s"] < 2.4,
        "rank 0 hung while the others went on, and you did not notice in time: each rank needs a "
        "clock of its own, which the heartbeats of others do not set back",
        "each rank has its own clock",
    )
    t.equal(
        hung["said"],
        (0, "hung"),
        "rank 0 runs and has left no heartbeat for longer than the deadline: it hangs",
        "a worker that hangs",
    )
    t(
        hung["took_s"] >= 1.0,
        "a hang is reported when the deadline has passed since the last heartbeat, not before",
        "the deadline is kept",
    )
