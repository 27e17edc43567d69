"""Typical wrong answers to the exercises of chapter 26, and what the checks say to them."""

# %% 26.1 first_step_stands_still
# says: your first step has the rate 0: it reads a batch, runs forward and backward, and moves
# nothing. It is to have the first of 8,000 equal parts of the peak
import math


def learning_rate_of(step, peak, warmup_steps, num_steps, final, anneal_steps):
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step < num_steps:
        done = (step - warmup_steps) / (num_steps - warmup_steps)
        return final + (peak - final) * (1 + math.cos(math.pi * done)) / 2
    steps_left = num_steps + anneal_steps - step
    return final * steps_left / anneal_steps if steps_left > 0 else 0.0


# %% 26.1 counted_from_step_0
# says: your cosine counts its steps from step 0: then it is below the peak when it takes over
# from warm-up. It has 1,192,000 steps of its own, and begins with the first of them
import math


def learning_rate_of(step, peak, warmup_steps, num_steps, final, anneal_steps):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if step < num_steps:
        done = step / num_steps
        return final + (peak - final) * (1 + math.cos(math.pi * done)) / 2
    steps_left = num_steps + anneal_steps - step
    return final * steps_left / anneal_steps if steps_left > 0 else 0.0


# %% 26.1 aims_at_0
# says: your cosine goes down to 0, and half-way it has half of the peak. The wave itself ends at
# `final`: a lower limit at the very end leaves all rates before it too small
import math


def learning_rate_of(step, peak, warmup_steps, num_steps, final, anneal_steps):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if step < num_steps:
        done = (step - warmup_steps) / (num_steps - warmup_steps)
        return max(final, peak * (1 + math.cos(math.pi * done)) / 2)
    steps_left = num_steps + anneal_steps - step
    return final * steps_left / anneal_steps if steps_left > 0 else 0.0


# %% 26.1 straight_line
# says: you go down in a straight line: half-way one cannot tell it from the cosine, which after a
# quarter of its steps is still at 6.84e-5
def learning_rate_of(step, peak, warmup_steps, num_steps, final, anneal_steps):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if step < num_steps:
        done = (step - warmup_steps) / (num_steps - warmup_steps)
        return final + (peak - final) * (1 - done)
    steps_left = num_steps + anneal_steps - step
    return final * steps_left / anneal_steps if steps_left > 0 else 0.0


# %% 26.1 no_anneal
# says: with you the rate stays at `final` for ever: the anneal is missing, which takes it from
# there to 0
import math


def learning_rate_of(step, peak, warmup_steps, num_steps, final, anneal_steps):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if step < num_steps:
        done = (step - warmup_steps) / (num_steps - warmup_steps)
        return final + (peak - final) * (1 + math.cos(math.pi * done)) / 2
    return final


# %% 26.1 anneal_a_step_early
# says: your anneal is a step early: at step 1,200,000 the rate is still 8e-7, and three steps
# later it is 0. It is warm-up that starts with one part done
import math


def learning_rate_of(step, peak, warmup_steps, num_steps, final, anneal_steps):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if step < num_steps:
        done = (step - warmup_steps) / (num_steps - warmup_steps)
        return final + (peak - final) * (1 + math.cos(math.pi * done)) / 2
    steps_left = num_steps + anneal_steps - step - 1
    return final * steps_left / anneal_steps if steps_left > 0 else 0.0


# %% 26.2 waits_for_nan
# says: you wait for NaN: the losses of the last run are finite, and far above ln 400 = 5.99,
# worse than knowing nothing. A Llama may diverge without ever becoming infinite
import math


def diagnose(runs, vocab_size, last, margin):

    def diverges(run):
        tail = run["train"][-last:]
        mean = sum(tail) / len(tail)
        return not math.isfinite(mean)

    def at_end(run):
        return [value for value in run["validation"] if value is not None][-1]

    best = min((run for run in runs if not diverges(run)), key=at_end, default=None)

    def verdict(run):
        if diverges(run):
            return "diverging"
        if at_end(run) <= at_end(best) + margin:
            return "good"
        return "too low" if run["rate"] < best["rate"] else "too high"

    return [verdict(run) for run in runs]


# %% 26.2 nan_slips_through
# says: a run whose losses end in NaN is not diverging with you: every comparison with NaN is
# False, so that it slips through `mean > limit`
import math


def diagnose(runs, vocab_size, last, margin):
    no_knowledge = math.log(vocab_size)

    def diverges(run):
        tail = run["train"][-last:]
        mean = sum(tail) / len(tail)
        return mean > no_knowledge

    def at_end(run):
        return [value for value in run["validation"] if value is not None][-1]

    best = min((run for run in runs if not diverges(run)), key=at_end, default=None)

    def verdict(run):
        if diverges(run):
            return "diverging"
        if at_end(run) <= at_end(best) + margin:
            return "good"
        return "too low" if run["rate"] < best["rate"] else "too high"

    return [verdict(run) for run in runs]


# %% 26.2 leads_at_the_start
# says: you took the run with the rate 0.1 for good: it leads after ten steps, and not at the end.
# Compare the validation losses that were measured last
import math


def diagnose(runs, vocab_size, last, margin):
    no_knowledge = math.log(vocab_size)

    def diverges(run):
        tail = run["train"][-last:]
        mean = sum(tail) / len(tail)
        return not math.isfinite(mean) or mean > no_knowledge

    def at_end(run):
        return run["train"][0]

    best = min((run for run in runs if not diverges(run)), key=at_end, default=None)

    def verdict(run):
        if diverges(run):
            return "diverging"
        if at_end(run) <= at_end(best) + margin:
            return "good"
        return "too low" if run["rate"] < best["rate"] else "too high"

    return [verdict(run) for run in runs]


# %% 26.2 order_of_the_list
# says: the same four in another order: whether a rate is too low is told by the rates, and not by
# the places in the list
import math


def diagnose(runs, vocab_size, last, margin):
    no_knowledge = math.log(vocab_size)

    def diverges(run):
        tail = run["train"][-last:]
        mean = sum(tail) / len(tail)
        return not math.isfinite(mean) or mean > no_knowledge

    def at_end(run):
        return [value for value in run["validation"] if value is not None][-1]

    best = min((run for run in runs if not diverges(run)), key=at_end, default=None)

    def verdict(run):
        if diverges(run):
            return "diverging"
        if at_end(run) <= at_end(best) + margin:
            return "good"
        return "too low" if runs.index(run) < runs.index(best) else "too high"

    return [verdict(run) for run in runs]


# %% 26.2 last_loss_alone
# says: one run swings: the mean of its last four losses, 3, 8.5, 9.5 and 4, is 6.25. It is above
# 5.99, although the last loss alone is below, and so is the mean of all seven
import math


def diagnose(runs, vocab_size, last, margin):
    no_knowledge = math.log(vocab_size)

    def diverges(run):
        tail = run["train"][-last:]
        mean = tail[-1]
        return not math.isfinite(mean) or mean > no_knowledge

    def at_end(run):
        return [value for value in run["validation"] if value is not None][-1]

    best = min((run for run in runs if not diverges(run)), key=at_end, default=None)

    def verdict(run):
        if diverges(run):
            return "diverging"
        if at_end(run) <= at_end(best) + margin:
            return "good"
        return "too low" if run["rate"] < best["rate"] else "too high"

    return [verdict(run) for run in runs]


# %% 26.2 by_training_loss
# says: you compared training losses: the first run ends at 0.25 on the text that it has learnt by
# heart, and at 2.75 on any other. The second ends at 1.75 on validation
import math


def diagnose(runs, vocab_size, last, margin):
    no_knowledge = math.log(vocab_size)

    def diverges(run):
        tail = run["train"][-last:]
        mean = sum(tail) / len(tail)
        return not math.isfinite(mean) or mean > no_knowledge

    def at_end(run):
        return sum(run["train"][-last:]) / len(run["train"][-last:])

    best = min((run for run in runs if not diverges(run)), key=at_end, default=None)

    def verdict(run):
        if diverges(run):
            return "diverging"
        if at_end(run) <= at_end(best) + margin:
            return "good"
        return "too low" if run["rate"] < best["rate"] else "too high"

    return [verdict(run) for run in runs]


# %% 26.3 last_in_the_list
# says: you started from the measurement that stands last in the list, a batch of 16: the largest
# is 64
import math
import numpy as np


def try_rules(batches, rates, new_batch, measured):
    power, height = np.polyfit(np.log(batches), np.log(rates), 1)
    batch, rate = batches[-1], rates[-1]
    k = new_batch / batch
    predictions = {
        "same": rate,
        "sqrt": rate * math.sqrt(k),
        "linear": rate * k,
        "line": math.exp(height + power * math.log(new_batch)),
    }

    nearest = min(predictions, key=lambda name: abs(math.log(predictions[name] / measured)))
    return float(power), predictions, nearest


# %% 26.3 from_the_smallest
# says: you started from the smallest batch: a rule is trusted as little far as possible, and from
# 64 to 256 is nearer than from 1
import math
import numpy as np


def try_rules(batches, rates, new_batch, measured):
    power, height = np.polyfit(np.log(batches), np.log(rates), 1)
    batch, rate = min(zip(batches, rates, strict=True))
    k = new_batch / batch
    predictions = {
        "same": rate,
        "sqrt": rate * math.sqrt(k),
        "linear": rate * k,
        "line": math.exp(height + power * math.log(new_batch)),
    }

    nearest = min(predictions, key=lambda name: abs(math.log(predictions[name] / measured)))
    return float(power), predictions, nearest


# %% 26.3 no_logarithms
# says: you put the line through rates and batches as they are: a power of the batch is a straight
# line in their logarithms only
import math
import numpy as np


def try_rules(batches, rates, new_batch, measured):
    power, height = np.polyfit(batches, rates, 1)
    batch, rate = max(zip(batches, rates, strict=True))
    k = new_batch / batch
    predictions = {
        "same": rate,
        "sqrt": rate * math.sqrt(k),
        "linear": rate * k,
        "line": height + power * new_batch,
    }

    nearest = min(predictions, key=lambda name: abs(math.log(predictions[name] / measured)))
    return float(power), predictions, nearest


# %% 26.3 slope_of_the_ends
# says: you took the slope from the smallest to the largest batch: the two between have a say in a
# line of least squares, and here they make it steeper
import math


def try_rules(batches, rates, new_batch, measured):
    points = sorted(zip(batches, rates, strict=True))
    batch, rate = points[-1]
    power = math.log(rate / points[0][1]) / math.log(batch / points[0][0])
    height = math.log(rate) - power * math.log(batch)
    k = new_batch / batch
    predictions = {
        "same": rate,
        "sqrt": rate * math.sqrt(k),
        "linear": rate * k,
        "line": math.exp(height + power * math.log(new_batch)),
    }

    nearest = min(predictions, key=lambda name: abs(math.log(predictions[name] / measured)))
    return float(power), predictions, nearest


# %% 26.3 line_through_the_last_point
# says: you started from the last point and followed the slope of the line: the line itself does
# not go through that point, but lies above it
import math
import numpy as np


def try_rules(batches, rates, new_batch, measured):
    power = np.polyfit(np.log(batches), np.log(rates), 1)[0]
    batch, rate = max(zip(batches, rates, strict=True))
    k = new_batch / batch
    predictions = {
        "same": rate,
        "sqrt": rate * math.sqrt(k),
        "linear": rate * k,
        "line": rate * k**power,
    }

    nearest = min(predictions, key=lambda name: abs(math.log(predictions[name] / measured)))
    return float(power), predictions, nearest


# %% 26.3 by_differences
# says: you judged by differences: 27.6 is 12.6 below 40.2, and 53.4 is 13.2 above it. But as
# factors they are 1.46 and 1.33 apart from it, and rates are compared by factors
import math
import numpy as np


def try_rules(batches, rates, new_batch, measured):
    power, height = np.polyfit(np.log(batches), np.log(rates), 1)
    batch, rate = max(zip(batches, rates, strict=True))
    k = new_batch / batch
    predictions = {
        "same": rate,
        "sqrt": rate * math.sqrt(k),
        "linear": rate * k,
        "line": math.exp(height + power * math.log(new_batch)),
    }

    nearest = min(predictions, key=lambda name: abs(predictions[name] - measured))
    return float(power), predictions, nearest


# %% 26.4 rounded_down
# says: you rounded down, or to the nearest: after two steps of 4 tokens 8 have been seen, and the
# next stage begins at 9. A third step begins in the first stage, and is whole
def steps_by_stage(tokens, stages):
    ends = [from_tokens for from_tokens, _ in stages[1:]] + [tokens]
    seen, steps = 0, []
    for (_, batch_tokens), end in zip(stages, ends, strict=True):
        missing = max(0, min(end, tokens) - seen)
        steps.append(missing // batch_tokens)
        seen += steps[-1] * batch_tokens
    return steps


# %% 26.4 each_stage_by_itself
# says: you took every stage by itself: the first runs past its end, to 12 tokens, and the second
# has only 16 left to its end at 28, which are two steps
def steps_by_stage(tokens, stages):
    ends = [from_tokens for from_tokens, _ in stages[1:]] + [tokens]
    seen, steps = 0, []
    for (_, batch_tokens), end in zip(stages, ends, strict=True):
        missing = max(0, min(end, tokens) - seen)
        steps.append(-(-missing // batch_tokens))
        seen = end
    return steps


# %% 26.4 part_of_a_step
# says: some of your numbers are no whole numbers: a step cannot be taken in part
def steps_by_stage(tokens, stages):
    ends = [from_tokens for from_tokens, _ in stages[1:]] + [tokens]
    seen, steps = 0, []
    for (_, batch_tokens), end in zip(stages, ends, strict=True):
        missing = max(0, min(end, tokens) - seen)
        steps.append(missing / batch_tokens)
        seen += steps[-1] * batch_tokens
    return steps


# %% 26.4 reached_is_not_enough
# says: after five steps exactly 28 tokens have been seen: 28 is reached, and the next step
# belongs to the third stage
def steps_by_stage(tokens, stages):
    ends = [from_tokens for from_tokens, _ in stages[1:]] + [tokens]
    seen, steps = 0, []
    for (_, batch_tokens), end in zip(stages, ends, strict=True):
        missing = max(0, min(end, tokens) - seen)
        more = -(-missing // batch_tokens)
        if end < tokens and missing and missing % batch_tokens == 0:
            more += 1
        steps.append(more)
        seen += steps[-1] * batch_tokens
    return steps


# %% 26.4 to_the_end_of_the_stage
# says: training stops at 7 tokens, in the middle of the first stage, and you go on to its end
def steps_by_stage(tokens, stages):
    ends = [from_tokens for from_tokens, _ in stages[1:]] + [tokens]
    seen, steps = 0, []
    for (_, batch_tokens), end in zip(stages, ends, strict=True):
        missing = max(0, end - seen)
        steps.append(-(-missing // batch_tokens))
        seen += steps[-1] * batch_tokens
    return steps


# %% 26.4 less_than_no_steps
# says: you count less than 0 steps: the first step, of 16 tokens, runs past the whole second
# stage, from 4 to 9, which then has none
def steps_by_stage(tokens, stages):
    ends = [from_tokens for from_tokens, _ in stages[1:]] + [tokens]
    seen, steps = 0, []
    for (_, batch_tokens), end in zip(stages, ends, strict=True):
        missing = min(end, tokens) - seen
        steps.append(-(-missing // batch_tokens))
        seen += steps[-1] * batch_tokens
    return steps
