"""Checks of 31_failures, written by tools.exercises from its solutions."""

import math
import random
from llmcourse.scale.cluster import LLAMA3_INTERRUPTIONS


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


def check_3(t, spares_needed):
    """31.3 Spares, counted twice"""
    # 419 in 54 days, repairs of a day: on average 24 / 3.09 = 7.76 nodes are in repair.
    mtbf_h = 54 * 24 / 419
    answer = spares_needed(mtbf_h, 1.0, 24.0, 0.01)
    t(
        answer is None or answer[0] != 8,
        "on average 7.76 nodes are in repair, and you rounded that up. The number fluctuates: with "
        "8 spares the run waits for 16 % of the time",
        "the mean number in repair is not enough",
    )
    t(
        answer is None or answer[0] != 15 or answer[1] < 15,
        "Erlang's c is one more than the spares: the run waits when *more* nodes than there are "
        "spares are in repair. 14 spares are c = 15 lines",
        "spares and lines differ by one",
    )
    t(
        answer is None or answer[1] != 16,
        "Poisson: with 15 spares no node is missing as long as 15 are in repair. You asked for "
        "N ≥ k; a node is missing from N > k on",
        "a node is missing when more are in repair than stand by",
    )
    t(
        answer is None or answer[1] != 0,
        "Poisson: you took the chance that *exactly* k nodes are in repair. For k = 0 it is small "
        "because so many are; a node is missing for every N > k, and these chances add up",
        "the chances of all larger numbers count",
    )
    t.equal(
        answer,
        (14, 15),
        "with 7.76 nodes in repair on average the run waits for less than 1 % of the time from 14 "
        "spares on. Poisson says 15, since it lets nodes break while the run stands still",
        "14 spares by waiting time, 15 by Poisson",
    )
    # GPUs and hosts broke in 268 + 53 of the 419 cases.
    t.equal(
        spares_needed(mtbf_h, 321 / 419, 24.0, 0.01),
        (12, 12),
        "321 of the 419 interruptions broke a node, and only they need a spare: 5.94 nodes are in "
        "repair on average",
        "a bug needs no spare",
    )
    t.equal(
        [spares_needed(10.0, 1.0, 10.0, limit) for limit in (0.7, 0.6, 0.3)],
        [(0, 0), (0, 1), (1, 1)],
        "with one node in repair on average and no spare, the run waits for half of the time and "
        "P(N > 0) is 63 %; with one spare it is 20 % and 26 %. No spare at all may be enough",
        "the search begins at 0 spares",
    )
    t.equal(
        spares_needed(10.0, 1.0, 10.0, 0.5),
        (1, 1),
        "without a spare the run waits for exactly half of the time, and that is not *below* 0.5",
        "a limit that is just reached is not kept",
    )
    t.equal(
        [spares_needed(mtbf_h, *setting) for setting in ((1.0, 6.0, 0.01), (0.0, 24.0, 0.01))],
        [(6, 6), (0, 0)],
        "repairs of 6 hours instead of 24 make 6 spares out of 14; and if nothing breaks, none is "
        "needed",
        "shorter repairs need fewer spares",
    )
    t.equal(
        spares_needed(1.0, 1.0, 400.0, 0.01),
        (425, 447),
        "with 400 nodes in repair on average, 425 spares are enough by waiting time and 447 by "
        "Poisson. A rule such as mean + 3 roots is for one limit only",
        "400 in repair, 25 on top",
    )


def check_4(t, verdicts):
    """31.4 The table that does not add up"""
    counts = [cause.count for cause in LLAMA3_INTERRUPTIONS]
    printed = [str(cause.printed_percent) for cause in LLAMA3_INTERRUPTIONS]
    everything = list(range(18))
    of_gpus, of_hosts, of_software = (
        [i for i, cause in enumerate(LLAMA3_INTERRUPTIONS) if cause.part == part]
        for part in ("GPU", "host", "software")
    )
    t.equal(
        verdicts(counts, printed, []),
        (["misprint"] + ["fits"] * 17, []),
        "148 of 419 is 35.3 %, and 30.1 is printed; the 17 others fit their counts. Divide by the "
        "sum of the counts, and leave the printed column as it is: that its sum is 94.9 is a "
        "result of the misprint",
        "one misprint among 18 rows",
    )
    t.equal(
        verdicts([5, 11], ["31.2", "68.8"], [([0], "31.3"), ([1], "68.7")]),
        (["fits", "fits"], ["fits", "fits"]),
        "5 of 16 are 31.25 %, exactly in the middle: 31.2 and 31.3 both fit, as do 68.7 and 68.8. "
        "Python's `round` knows one of them only, and with floats 31.3 - 31.25 is more than 0.05",
        "halves may be rounded either way",
    )
    t.equal(
        verdicts([3, 4], ["43", "57.1"], [([0], "42.86"), ([0], "42.90"), ([0], "42.9")]),
        (["fits", "fits"], ["fits", "misprint", "fits"]),
        "3 of 7 are 42.857 %: 43, 42.9 and 42.86 are three ways to round it, and 42.90 promises a "
        "digit that is wrong. The unit is that of the last digit in the text",
        "the text says to how many digits it is rounded",
    )
    t.equal(
        verdicts([3, 4], ["42.8", "57.2"], []),
        (["misprint", "misprint"], []),
        "42.8 and 57.2 are less than a unit away from 42.857 and 57.143, and more than half a "
        "unit: no rounding makes them",
        "half a unit, and not a whole one",
    )
    t.equal(
        verdicts(counts, printed, [(of_gpus, "64.0"), (everything, "100"), (of_software, "13.4")]),
        (["misprint"] + ["fits"] * 17, ["fits"] * 3),
        "268 of 419 are 64.0 %, all rows are 100 %, and 56 are 13.4 %: a claim is judged by the "
        "counts first, whatever is printed in its rows",
        "claims are judged by the counts",
    )
    t.equal(
        verdicts(counts, printed, [(of_gpus, "58.7"), (of_gpus, "59"), ([0], "30.1")]),
        (["misprint"] + ["fits"] * 17, ["inherited"] * 3),
        "30.1 + 17.2 + 4.5 + 4.1 + 1.4 + 1.4 = 58.7: whoever says so, or 59, has added the column, "
        "and inherits the misprint of its first row",
        "58.7 % of GPUs is inherited from the first row",
    )
    t.equal(
        verdicts(counts, printed, [(of_gpus, "68.7"), (of_software, "14.3"), ([0], "31.0")])[1],
        ["misprint"] * 3,
        "these claims agree with neither the counts nor the printed column: a misprint in a row "
        "does not excuse a claim that was not added from it",
        "a claim with a mistake of its own",
    )
    t.equal(
        verdicts(counts, printed, [(of_hosts, "12.7"), (of_hosts, "12.6")])[1],
        ["rounded twice", "fits"],
        "the eight rows of hosts fit, and add up to 12.7; 53 of 419 are 12.6 %. No row is wrong: "
        "the error is a sum of roundings",
        "12.7 % of hosts has been rounded twice",
    )
    # Two misprints that cancel: the sum of the column is right, and two rows are not.
    t.equal(
        verdicts([25, 25, 50], ["20.0", "30.0", "50.0"], [([0, 1], "50.0"), ([0, 2], "70.0")]),
        (["misprint", "misprint", "fits"], ["fits", "inherited"]),
        "20.0 and 30.0 are wrong for 25 and 25 of 100, and together right: the claim of 50.0 fits "
        "the counts, and that comes first",
        "two misprints that cancel",
    )
