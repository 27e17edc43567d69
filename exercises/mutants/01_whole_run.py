"""Typical wrong answers to the exercises of chapter 01, and what the checks say to them."""

import math

import numpy as np


# %% 01.1 counts_sequences
# says: you counted sequences: each of the 64 in a batch has 512 tokens
def tokens_and_epochs(num_steps, batch_size, length, corpus_tokens):
    tokens = num_steps * batch_size
    return tokens, tokens / (corpus_tokens / length)


# %% 01.1 counts_targets_too
# says: you counted the targets too: they are the same tokens, moved by one
def tokens_and_epochs(num_steps, batch_size, length, corpus_tokens):
    tokens = 2 * num_steps * batch_size * length
    return tokens, tokens / corpus_tokens


# %% 01.1 one_step
# says: a step reads batch × length tokens, and there are 5,000 steps: 163,840,000
def tokens_and_epochs(num_steps, batch_size, length, corpus_tokens):
    tokens = batch_size * length
    return tokens, tokens / corpus_tokens


# %% 01.1 upside_down
# says: you divided the wrong way round: this run reads more than its text has, so it passes over
# it more than once
def tokens_and_epochs(num_steps, batch_size, length, corpus_tokens):
    tokens = num_steps * batch_size * length
    return tokens, corpus_tokens / tokens


# %% 01.1 whole_epochs
# says: you rounded the epochs: the chapter's run reads 691,200 of 716,438 tokens, 0.965 of a pass
def tokens_and_epochs(num_steps, batch_size, length, corpus_tokens):
    tokens = num_steps * batch_size * length
    return tokens, tokens // corpus_tokens


# %% 01.2 first_batch_for_all
# says: you took the first batch for the whole run: the popular mistake, with 15.6 T tokens
def number_of_steps(num_tokens, ramp):
    return num_tokens / ramp[0][1]


# %% 01.2 mean_batch
# says: you divided by the mean of the three batches: they do not hold for equally many tokens
def number_of_steps(num_tokens, ramp):
    mean = sum(tokens_per_step for _, tokens_per_step in ramp) / len(ramp)
    return num_tokens / mean


# %% 01.2 whole_steps
# says: you rounded: 6 tokens at 4 per step are 1.5 steps
def number_of_steps(num_tokens, ramp):
    steps = 0
    for i, (first_token, tokens_per_step) in enumerate(ramp):
        end = ramp[i + 1][0] if i + 1 < len(ramp) else num_tokens
        steps += max(0, min(end, num_tokens) - first_token) // tokens_per_step
    return steps


# %% 01.2 first_token_as_length
# says: you took the first token of a stage for its length: a stage lasts until the next begins
def number_of_steps(num_tokens, ramp):
    steps, left = 0, num_tokens
    for first_token, tokens_per_step in ramp[:-1]:
        tokens = min(left, first_token)
        steps += tokens / tokens_per_step
        left -= tokens
    return steps + left / ramp[-1][1]


# %% 01.2 all_stages_are_reached
# says: a run of 100 tokens ends before the second stage begins: a stage that is not reached has no
# steps
def number_of_steps(num_tokens, ramp):
    ends = [first_token for first_token, _ in ramp[1:]] + [num_tokens]
    return sum((end - first) / size for (first, size), end in zip(ramp, ends, strict=True))


# %% 01.3 highest_end_is_too_large
# says: you took the curve that ends highest for the too large rate: that run hardly moved. A large
# rate throws the loss up, and may still end lower
def match_curves(curves):
    places = sorted(range(4), key=lambda i: curves[i][1][-1])
    gap = {i: curves[i][1][-1] - curves[i][0][-1] for i in range(4)}
    letters = {places[-1]: "B"}
    letters[max(places[:-1], key=gap.get)] = "C"
    rest = [i for i in places if i not in letters]
    letters[rest[1]], letters[rest[0]] = "A", "D"
    return [letters[i] for i in range(4)]


# %% 01.3 training_loss_alone
# says: you looked at the training loss alone: in the first run it falls on, while the validation
# loss rises again. That is learning by heart
def match_curves(curves):
    places = sorted(range(4), key=lambda i: curves[i][0][-1])
    large = max(range(4), key=lambda i: max(curves[i][0]))
    letters = dict(zip([i for i in places if i != large], "DCA", strict=True))
    letters[large] = "B"
    return [letters[i] for i in range(4)]


# %% 01.3 lowest_training_is_by_heart
# says: you took the lowest training loss for learning by heart: in the second set that run is as
# good on validation text, so it has learnt, not memorised
def match_curves(curves):
    places = sorted(range(4), key=lambda i: curves[i][0][-1])
    large = max(range(4), key=lambda i: max(curves[i][0]))
    letters = dict(zip([i for i in places if i != large], "CDA", strict=True))
    letters[large] = "B"
    return [letters[i] for i in range(4)]


# %% 01.3 distance_at_any_moment
# says: you took the largest distance at any moment: where the loss is thrown about, the curves are
# apart now and then. By heart means that validation stays above to the end
def match_curves(curves):
    def distance(i):
        return max(abs(v - t) for t, v in zip(*curves[i], strict=True))

    by_heart = max(range(4), key=distance)
    rest = sorted((i for i in range(4) if i != by_heart), key=lambda i: max(curves[i][0]))
    letters = {by_heart: "C", rest.pop(): "B"}
    rest.sort(key=lambda i: curves[i][1][-1])
    letters[rest[0]], letters[rest[1]] = "D", "A"
    return [letters[i] for i in range(4)]


# %% 01.3 by_eye_only
# says: what you wrote holds for the first set: by its places, or by its numbers. Compare the four
# curves of a set with each other
def match_curves(curves):
    return ["C", "A", "D", "B"]


# %% 01.4 counts_from_zero
# says: you counted from 0: the first loss of the list belongs to step 1
def first_step_below(tokens, losses):
    shares = np.unique(tokens, return_counts=True)[1] / len(tokens)
    entropy = -(shares * np.log(shares)).sum()
    return next((step for step, loss in enumerate(losses) if loss < entropy), None)


# %% 01.4 zero_times_infinity
# says: you multiplied 0 by ln 0: the ids 1 and 2 do not occur, the sum is not a number, and no loss
# is below that. Leave them out
def first_step_below(tokens, losses):
    shares = np.bincount(tokens) / len(tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -(shares * np.log(shares)).sum()
    return next((step for step, loss in enumerate(losses, start=1) if loss < entropy), None)


# %% 01.4 equal_shares
# says: you took ln 2, as if both tokens were equally frequent: one of them is 99 % of the text
def first_step_below(tokens, losses):
    entropy = math.log(len(set(tokens.tolist())))
    return next((step for step, loss in enumerate(losses, start=1) if loss < entropy), None)


# %% 01.4 bits
# says: you compared bits with nats: the entropy is 0.081 bits and 0.056 nats, and losses are in
# nats
def first_step_below(tokens, losses):
    shares = np.unique(tokens, return_counts=True)[1] / len(tokens)
    entropy = -(shares * np.log2(shares)).sum()
    return next((step for step, loss in enumerate(losses, start=1) if loss < entropy), None)


# %% 01.4 lowest_loss
# says: you looked for the step from which the loss stays below, or for the lowest: the first one
# counts
def first_step_below(tokens, losses):
    shares = np.unique(tokens, return_counts=True)[1] / len(tokens)
    entropy = -(shares * np.log(shares)).sum()
    if not losses or min(losses) >= entropy:
        return None
    return losses.index(min(losses)) + 1


# %% 01.4 always_a_step
# says: no loss is below the entropy here: the answer is None, not a step
def first_step_below(tokens, losses):
    shares = np.unique(tokens, return_counts=True)[1] / len(tokens)
    entropy = -(shares * np.log(shares)).sum()
    return next((i for i, loss in enumerate(losses, start=1) if loss < entropy), len(losses))
