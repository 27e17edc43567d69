"""Typical wrong answers to the exercises of chapter 31, and what the checks say to them."""

# %% 31.1 mean_of_the_mtbfs
# says: the same 419 interruptions in two records mean the same MTBF. Times can be neither added
# nor averaged, nor is it the shortest that counts: what adds up is how often each kind fails
import math


def outlook(records, days, hours):
    times = [24 * days * then / (count * now) for count, then, now in records if count * now]
    mtbf_h = sum(times) / len(times) if times else math.inf
    return mtbf_h, math.exp(-hours / mtbf_h)


# %% 31.1 weakest_kind
# says: the same 419 interruptions in two records mean the same MTBF. Times can be neither added
# nor averaged, nor is it the shortest that counts: what adds up is how often each kind fails
import math


def outlook(records, days, hours):
    times = [24 * days * then / (count * now) for count, then, now in records if count * now]
    mtbf_h = min(times, default=math.inf)
    return mtbf_h, math.exp(-hours / mtbf_h)


# %% 31.1 more_parts_last_longer
# says: with twice as many GPUs the MTBF is half as long, 1.55 hours: each of the parts fails as
# often as before, and there are more of them
import math


def outlook(records, days, hours):
    per_hour = sum(count * then / now for count, then, now in records) / (24 * days)
    mtbf_h = 1 / per_hour if per_hour else math.inf
    return mtbf_h, math.exp(-hours * per_hour)


# %% 31.1 one_factor_for_all
# says: each kind grows by its own factor: 268 × 2 + 53 × 4 + 56 × 1 = 804 failures in 54 days.
# Twice the GPUs do not make more bugs
import math


def outlook(records, days, hours):
    count, then, now = (sum(column) for column in zip(*records, strict=True))
    per_hour = count * now / then / (24 * days)
    mtbf_h = 1 / per_hour if per_hour else math.inf
    return mtbf_h, math.exp(-hours * per_hour)


# %% 31.1 straight_line
# says: 1 - hours / MTBF is no chance: for 24 hours it is -6.8. It holds for times that are short
# beside the MTBF only
import math


def outlook(records, days, hours):
    per_hour = sum(count * now / then for count, then, now in records) / (24 * days)
    mtbf_h = 1 / per_hour if per_hour else math.inf
    return mtbf_h, 1 - hours * per_hour


# %% 31.1 hour_by_hour
# says: a day without an interruption has the chance exp(-24 / 3.09) = 0.00043. A chance of 1 - 1
# / MTBF for each hour is less: it counts hours with two failures twice
import math


def outlook(records, days, hours):
    per_hour = sum(count * now / then for count, then, now in records) / (24 * days)
    mtbf_h = 1 / per_hour if per_hour else math.inf
    return mtbf_h, (1 - per_hour) ** hours


# %% 31.2 without_the_two
# says: with a save of 10 s and gaps of 500 s Young's interval is √(2 × 10 × 500) = 100 s
import math


def tuned(gaps_s, next_gaps_s, intervals_s, save_s, restart_s):

    def goodput(gaps, interval_s):
        kept_s = interval_s * sum(gap // (interval_s + save_s) for gap in gaps)
        return kept_s / (sum(gaps) + restart_s * len(gaps))

    young_s = math.sqrt(save_s * sum(gaps_s) / len(gaps_s))
    best_s = max(intervals_s, key=lambda interval_s: goodput(gaps_s, interval_s))
    return [(x, goodput(gaps_s, x), goodput(next_gaps_s, x)) for x in (young_s, best_s)]


# %% 31.2 mtbf_with_restarts
# says: your interval changes with the restart: the MTBF is the mean of the gaps, in which the run
# could fail, and restarts are not among them
import math


def tuned(gaps_s, next_gaps_s, intervals_s, save_s, restart_s):

    def goodput(gaps, interval_s):
        kept_s = interval_s * sum(gap // (interval_s + save_s) for gap in gaps)
        return kept_s / (sum(gaps) + restart_s * len(gaps))

    young_s = math.sqrt(2 * save_s * (sum(gaps_s) / len(gaps_s) + restart_s))
    best_s = max(intervals_s, key=lambda interval_s: goodput(gaps_s, interval_s))
    return [(x, goodput(gaps_s, x), goodput(next_gaps_s, x)) for x in (young_s, best_s)]


# %% 31.2 median_gap
# says: the MTBF is the mean of the gaps: for 100, 100 and 1,300 s it is 500 s. One long gap
# counts for all its seconds, and the median does not see it
import math


def tuned(gaps_s, next_gaps_s, intervals_s, save_s, restart_s):

    def goodput(gaps, interval_s):
        kept_s = interval_s * sum(gap // (interval_s + save_s) for gap in gaps)
        return kept_s / (sum(gaps) + restart_s * len(gaps))

    young_s = math.sqrt(2 * save_s * sorted(gaps_s)[len(gaps_s) // 2])
    best_s = max(intervals_s, key=lambda interval_s: goodput(gaps_s, interval_s))
    return [(x, goodput(gaps_s, x), goodput(next_gaps_s, x)) for x in (young_s, best_s)]


# %% 31.2 unsaved_work_kept
# says: in a gap of 130 s two segments of 40 + 10 s are whole, and 80 s remain. The 30 s after
# them were never saved, and the saves take time of the gap, too
import math


def tuned(gaps_s, next_gaps_s, intervals_s, save_s, restart_s):

    def goodput(gaps, interval_s):
        kept_s = interval_s * sum(gap / (interval_s + save_s) for gap in gaps)
        return kept_s / (sum(gaps) + restart_s * len(gaps))

    young_s = math.sqrt(2 * save_s * sum(gaps_s) / len(gaps_s))
    best_s = max(intervals_s, key=lambda interval_s: goodput(gaps_s, interval_s))
    return [(x, goodput(gaps_s, x), goodput(next_gaps_s, x)) for x in (young_s, best_s)]


# %% 31.2 saves_take_no_time
# says: in a gap of 130 s two segments of 40 + 10 s are whole, and 80 s remain. The 30 s after
# them were never saved, and the saves take time of the gap, too
import math


def tuned(gaps_s, next_gaps_s, intervals_s, save_s, restart_s):

    def goodput(gaps, interval_s):
        kept_s = interval_s * sum(gap // interval_s for gap in gaps)
        return kept_s / (sum(gaps) + restart_s * len(gaps))

    young_s = math.sqrt(2 * save_s * sum(gaps_s) / len(gaps_s))
    best_s = max(intervals_s, key=lambda interval_s: goodput(gaps_s, interval_s))
    return [(x, goodput(gaps_s, x), goodput(next_gaps_s, x)) for x in (young_s, best_s)]


# %% 31.2 tuned_on_both
# says: both intervals are chosen from the first log alone. Next month's gaps are not known before
# the month is over
import math


def tuned(gaps_s, next_gaps_s, intervals_s, save_s, restart_s):

    def goodput(gaps, interval_s):
        kept_s = interval_s * sum(gap // (interval_s + save_s) for gap in gaps)
        return kept_s / (sum(gaps) + restart_s * len(gaps))

    known_s = [*gaps_s, *next_gaps_s]
    young_s = math.sqrt(2 * save_s * sum(known_s) / len(known_s))
    best_s = max(intervals_s, key=lambda interval_s: goodput(known_s, interval_s))
    return [(x, goodput(gaps_s, x), goodput(next_gaps_s, x)) for x in (young_s, best_s)]


# %% 31.3 mean_rounded_up
# says: on average 7.76 nodes are in repair, and you rounded that up. The number fluctuates: with
# 8 spares the run waits for 16 % of the time
import math


def spares_needed(mtbf_h, broken_share, repair_h, limit):
    in_repair = broken_share * repair_h / mtbf_h
    return math.ceil(in_repair), math.ceil(in_repair)


# %% 31.3 lines_for_spares
# says: Erlang's c is one more than the spares: the run waits when *more* nodes than there are
# spares are in repair. 14 spares are c = 15 lines
import math


def spares_needed(mtbf_h, broken_share, repair_h, limit):
    in_repair = broken_share * repair_h / mtbf_h
    lines, waiting = 1, in_repair / (1 + in_repair)
    while waiting >= limit:
        lines += 1
        waiting = in_repair * waiting / (lines + in_repair * waiting)
    spares, exactly = 0, math.exp(-in_repair)
    more = 1 - exactly
    while more >= limit:
        spares += 1
        exactly *= in_repair / spares
        more -= exactly
    return lines, spares


# %% 31.3 as_many_as_spares
# says: Poisson: with 15 spares no node is missing as long as 15 are in repair. You asked for N ≥
# k; a node is missing from N > k on
import math


def spares_needed(mtbf_h, broken_share, repair_h, limit):
    in_repair = broken_share * repair_h / mtbf_h
    lines, waiting = 1, in_repair / (1 + in_repair)
    while waiting >= limit:
        lines += 1
        waiting = in_repair * waiting / (lines + in_repair * waiting)
    spares, exactly = 0, math.exp(-in_repair)
    more = 1.0
    while more >= limit:
        spares += 1
        more -= exactly
        exactly *= in_repair / spares
    return lines - 1, spares


# %% 31.3 exactly_as_many
# says: Poisson: you took the chance that *exactly* k nodes are in repair. For k = 0 it is small
# because so many are; a node is missing for every N > k, and these chances add up
import math


def spares_needed(mtbf_h, broken_share, repair_h, limit):
    in_repair = broken_share * repair_h / mtbf_h
    lines, waiting = 1, in_repair / (1 + in_repair)
    while waiting >= limit:
        lines += 1
        waiting = in_repair * waiting / (lines + in_repair * waiting)
    spares, exactly = 0, math.exp(-in_repair)
    while exactly >= limit:
        spares += 1
        exactly *= in_repair / spares
    return lines - 1, spares


# %% 31.3 every_failure_breaks
# says: 321 of the 419 interruptions broke a node, and only they need a spare: 5.94 nodes are in
# repair on average
import math


def spares_needed(mtbf_h, broken_share, repair_h, limit):
    in_repair = repair_h / mtbf_h
    lines, waiting = 1, in_repair / (1 + in_repair)
    while waiting >= limit:
        lines += 1
        waiting = in_repair * waiting / (lines + in_repair * waiting)
    spares, exactly = 0, math.exp(-in_repair)
    more = 1 - exactly
    while more >= limit:
        spares += 1
        exactly *= in_repair / spares
        more -= exactly
    return lines - 1, spares


# %% 31.3 three_roots
# says: with 7.76 nodes in repair on average the run waits for less than 1 % of the time from 14
# spares on. Poisson says 15, since it lets nodes break while the run stands still
import math


def spares_needed(mtbf_h, broken_share, repair_h, limit):
    in_repair = broken_share * repair_h / mtbf_h
    spares = math.ceil(in_repair + 3 * math.sqrt(in_repair))
    return spares, spares


# %% 31.4 round_and_compare
# says: 5 of 16 are 31.25 %, exactly in the middle: 31.2 and 31.3 both fit, as do 68.7 and 68.8.
# Python's `round` knows one of them only, and with floats 31.3 - 31.25 is more than 0.05
from fractions import Fraction


def verdicts(counts, printed, claims):

    def agrees(text, exact):
        digits = len(text.partition(".")[2])
        return round(float(exact), digits) == float(text)

    def share(places):
        return Fraction(100 * sum(counts[i] for i in places), sum(counts))

    def judged(places, text):
        if agrees(text, share(places)):
            return "fits"
        if not agrees(text, sum(Fraction(printed[i]) for i in places)):
            return "misprint"
        return "inherited" if any(rows[i] == "misprint" for i in places) else "rounded twice"

    rows = ["fits" if agrees(text, share([i])) else "misprint" for i, text in enumerate(printed)]
    return rows, [judged(places, text) for places, text in claims]


# %% 31.4 one_digit
# says: 3 of 7 are 42.857 %: 43, 42.9 and 42.86 are three ways to round it, and 42.90 promises a
# digit that is wrong. The unit is that of the last digit in the text
from fractions import Fraction


def verdicts(counts, printed, claims):

    def agrees(text, exact):
        digits = 1
        return abs(Fraction(text) - exact) <= Fraction(1, 2 * 10**digits)

    def share(places):
        return Fraction(100 * sum(counts[i] for i in places), sum(counts))

    def judged(places, text):
        if agrees(text, share(places)):
            return "fits"
        if not agrees(text, sum(Fraction(printed[i]) for i in places)):
            return "misprint"
        return "inherited" if any(rows[i] == "misprint" for i in places) else "rounded twice"

    rows = ["fits" if agrees(text, share([i])) else "misprint" for i, text in enumerate(printed)]
    return rows, [judged(places, text) for places, text in claims]


# %% 31.4 a_whole_unit
# says: 42.8 and 57.2 are less than a unit away from 42.857 and 57.143, and more than half a unit:
# no rounding makes them
from fractions import Fraction


def verdicts(counts, printed, claims):

    def agrees(text, exact):
        digits = len(text.partition(".")[2])
        return abs(Fraction(text) - exact) <= Fraction(1, 10**digits)

    def share(places):
        return Fraction(100 * sum(counts[i] for i in places), sum(counts))

    def judged(places, text):
        if agrees(text, share(places)):
            return "fits"
        if not agrees(text, sum(Fraction(printed[i]) for i in places)):
            return "misprint"
        return "inherited" if any(rows[i] == "misprint" for i in places) else "rounded twice"

    rows = ["fits" if agrees(text, share([i])) else "misprint" for i, text in enumerate(printed)]
    return rows, [judged(places, text) for places, text in claims]


# %% 31.4 percentages_scaled
# says: 148 of 419 is 35.3 %, and 30.1 is printed; the 17 others fit their counts. Divide by the
# sum of the counts, and leave the printed column as it is: that its sum is 94.9 is a result of
# the misprint
from fractions import Fraction


def verdicts(counts, printed, claims):

    def agrees(text, exact):
        digits = len(text.partition(".")[2])
        return abs(Fraction(text) - exact) <= Fraction(1, 2 * 10**digits)

    def share(places):
        return Fraction(100 * sum(counts[i] for i in places), sum(counts))

    def judged(places, text):
        if agrees(text, share(places)):
            return "fits"
        if not agrees(text, sum(Fraction(printed[i]) for i in places)):
            return "misprint"
        return "inherited" if any(rows[i] == "misprint" for i in places) else "rounded twice"

    column = sum(Fraction(text) for text in printed)
    rows = [
        "fits" if agrees(text, share([i]) * column / 100) else "misprint"
        for i, text in enumerate(printed)
    ]
    return rows, [judged(places, text) for places, text in claims]


# %% 31.4 always_inherited
# says: the eight rows of hosts fit, and add up to 12.7; 53 of 419 are 12.6 %. No row is wrong:
# the error is a sum of roundings
from fractions import Fraction


def verdicts(counts, printed, claims):

    def agrees(text, exact):
        digits = len(text.partition(".")[2])
        return abs(Fraction(text) - exact) <= Fraction(1, 2 * 10**digits)

    def share(places):
        return Fraction(100 * sum(counts[i] for i in places), sum(counts))

    def judged(places, text):
        if agrees(text, share(places)):
            return "fits"
        if not agrees(text, sum(Fraction(printed[i]) for i in places)):
            return "misprint"
        return "inherited"

    rows = ["fits" if agrees(text, share([i])) else "misprint" for i, text in enumerate(printed)]
    return rows, [judged(places, text) for places, text in claims]


# %% 31.4 column_first
# says: 20.0 and 30.0 are wrong for 25 and 25 of 100, and together right: the claim of 50.0 fits
# the counts, and that comes first
from fractions import Fraction


def verdicts(counts, printed, claims):

    def agrees(text, exact):
        digits = len(text.partition(".")[2])
        return abs(Fraction(text) - exact) <= Fraction(1, 2 * 10**digits)

    def share(places):
        return Fraction(100 * sum(counts[i] for i in places), sum(counts))

    def judged(places, text):
        if agrees(text, sum(Fraction(printed[i]) for i in places)):
            if any(rows[i] == "misprint" for i in places):
                return "inherited"
            return "fits" if agrees(text, share(places)) else "rounded twice"
        return "fits" if agrees(text, share(places)) else "misprint"

    rows = ["fits" if agrees(text, share([i])) else "misprint" for i, text in enumerate(printed)]
    return rows, [judged(places, text) for places, text in claims]
