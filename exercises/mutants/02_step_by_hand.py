"""Typical wrong answers to the exercises of chapter 02, and what the checks say to them."""

import torch
import torch.nn.functional as F


# %% 02.1 target_minus_probability
# says: you took target minus probability: the slope is p − y, and it is negative for the word that
# came, since the loss falls when that logit rises
def sgd_step(logits, h, target, rate):
    probabilities = logits.softmax(-1)
    slopes = F.one_hot(torch.tensor(target), len(logits)) - probabilities
    moved = logits + rate * (h @ h) * slopes
    return -probabilities[target].log(), slopes, moved.softmax(-1)


# %% 02.1 only_the_target
# says: you gave a slope to the target alone: each wrong word has one too, its probability
def sgd_step(logits, h, target, rate):
    probabilities = logits.softmax(-1)
    slopes = torch.zeros_like(logits)
    slopes[target] = probabilities[target] - 1
    moved = logits - rate * (h @ h) * slopes
    return -probabilities[target].log(), slopes, moved.softmax(-1)


# %% 02.1 keeps_on
# says: 1 is subtracted for the word that came, which is sat here, and for no other
def sgd_step(logits, h, target, rate):
    probabilities = logits.softmax(-1)
    slopes = probabilities - torch.tensor([0, 0, 0, 1, 0])
    moved = logits - rate * (h @ h) * slopes
    return -probabilities[target].log(), slopes, moved.softmax(-1)


# %% 02.1 loss_after_the_step
# says: the loss is that of the word that came, before the step: −ln 0.05 = 2.9957
def sgd_step(logits, h, target, rate):
    slopes = logits.softmax(-1)
    slopes[target] -= 1
    after = (logits - rate * (h @ h) * slopes).softmax(-1)
    return -after[target].log(), slopes, after


# %% 02.1 uphill
# says: you stepped uphill: weights move against their slopes, so sat becomes more probable
def sgd_step(logits, h, target, rate):
    probabilities = logits.softmax(-1)
    slopes = probabilities.clone()
    slopes[target] -= 1
    moved = logits + rate * (h @ h) * slopes
    return -probabilities[target].log(), slopes, moved.softmax(-1)


# %% 02.1 moves_the_logits
# says: each logit moves by η × h · h × slope, and h · h is 5 here: a weight moves by η × slope ×
# its input, and acts on the logit through that input once more
def sgd_step(logits, h, target, rate):
    probabilities = logits.softmax(-1)
    slopes = probabilities.clone()
    slopes[target] -= 1
    moved = logits - rate * slopes
    return -probabilities[target].log(), slopes, moved.softmax(-1)


# %% 02.2 transposed
# says: you multiplied the other way round: the gradient of W has a row for each word and a column
# for each entry of h, as W has
def head_gradients(probabilities, targets, h, weights):
    num_tokens, num_words = probabilities.shape
    slopes = (probabilities - F.one_hot(targets, num_words)) / num_tokens
    return h.T @ slopes, slopes @ weights


# %% 02.2 slopes_of_the_logits
# says: you gave the weights the slopes of their logits: the slope of a weight is that of its logit
# times its input
def head_gradients(probabilities, targets, h, weights):
    num_tokens, num_words = probabilities.shape
    slopes = (probabilities - F.one_hot(targets, num_words)) / num_tokens
    return slopes.sum(0).unsqueeze(1).repeat(1, h.shape[1]), slopes @ weights


# %% 02.2 sums
# says: you added the four gradients: the loss is a mean, so each token has a share of 1/4
def head_gradients(probabilities, targets, h, weights):
    slopes = probabilities - F.one_hot(targets, probabilities.shape[1])
    return slopes.T @ h, slopes @ weights


# %% 02.2 product_of_the_means
# says: you averaged slopes and h and then multiplied: the gradient is the mean of the outer
# products, and a mean of products is not the product of the means
def head_gradients(probabilities, targets, h, weights):
    num_tokens, num_words = probabilities.shape
    slopes = probabilities - F.one_hot(targets, num_words)
    return torch.outer(slopes.mean(0), h.mean(0)), slopes @ weights / num_tokens


# %% 02.2 one_message_for_all
# says: you added over the tokens: each has its own h, and its own row in the message
def head_gradients(probabilities, targets, h, weights):
    num_tokens, num_words = probabilities.shape
    slopes = (probabilities - F.one_hot(targets, num_words)) / num_tokens
    return slopes.T @ h, weights.T @ slopes.sum(0)


# %% 02.2 message_without_share
# says: in the mean loss the h of one token has a share of 1/4 of its own slope too
def head_gradients(probabilities, targets, h, weights):
    num_tokens, num_words = probabilities.shape
    slopes = probabilities - F.one_hot(targets, num_words)
    return slopes.T @ h / num_tokens, slopes @ weights


# %% 02.3 slope_of_the_logit
# says: your first weight of on has the slope of its logit, −0.80: that is so only where its input
# is exactly 1
def head_with_slope(logits, target, slope):
    return logits.unsqueeze(1), torch.ones(1, dtype=torch.float64)


# %% 02.3 sign_turned
# says: you turned the sign: the slope of the logit of on is negative, so a weight gets a positive
# slope from a negative input
def head_with_slope(logits, target, slope):
    first = slope / (1 - logits.softmax(-1)[target].item())
    h = torch.tensor([first, 1.0], dtype=torch.float64)
    return torch.stack([torch.zeros_like(logits), logits], dim=1), h


# %% 02.3 logits_not_kept
# says: your logits are others than before: when you choose h, choose W such that W h stays
def head_with_slope(logits, target, slope):
    first = slope / (logits.softmax(-1)[target].item() - 1)
    return logits.unsqueeze(1), torch.tensor([first], dtype=torch.float64)


# %% 02.3 slope_is_the_input
# says: the slope of the weight is the slope of the logit, p − 1 = −0.80, times its input: that
# times your first input is not 2.4
def head_with_slope(logits, target, slope):
    h = torch.tensor([-slope, 1.0], dtype=torch.float64)
    return torch.stack([torch.zeros_like(logits), logits], dim=1), h


# %% 02.3 a_single_input
# says: for a slope of 0 your W h is not the logits: with a single input, which is then 0, no W
# makes them. Give h another entry
def head_with_slope(logits, target, slope):
    h = slope / (logits.softmax(-1)[target] - 1).reshape(1)
    return (logits / h).unsqueeze(1), h


# %% 02.4 lower_is_before
# says: you looked only whether the loss fell: at 1.0 it is lower than at the start, but past its
# lowest point, which is at 0.61
def judge_steps(logits, h, shares, rates):
    slopes = logits.softmax(-1) - shares
    start = F.cross_entropy(logits, shares)
    losses = [F.cross_entropy(logits - rate * (h @ h) * slopes, shares) for rate in rates]
    return ["worse" if loss > start else "before" for loss in losses]


# %% 02.4 against_the_rate_before
# says: half on, half mat: the lowest point is at 0.93, and the start is reached again at 1.94.
# Judge each rate by itself, not against the rate that stands before it in the list
def judge_steps(logits, h, shares, rates):
    slopes = logits.softmax(-1) - shares
    start = last = F.cross_entropy(logits, shares)
    verdicts = []
    for rate in rates:
        loss = F.cross_entropy(logits - rate * (h @ h) * slopes, shares)
        verdicts.append("worse" if loss > start else "past" if loss > last else "before")
        last = loss
    return verdicts


# %% 02.4 the_parabola
# says: you trusted the parabola, which is lowest at 0.72 and back at 1.44: the loss itself is
# lowest at 0.61 and back at 1.37
def judge_steps(logits, h, shares, rates):
    p = logits.softmax(-1)
    slopes = p - shares
    curvature = (p * slopes**2).sum() - (p * slopes).sum() ** 2
    turn = (slopes @ slopes) / ((h @ h) * curvature)
    return ["before" if r < turn else "past" if r < 2 * turn else "worse" for r in rates]


# %% 02.4 without_h
# says: a logit moves by η × h · h × slope: this h has h · h = 10.25 instead of the chapter's 5, so
# its lowest point is at 0.30, and the start is reached again at 0.67
def judge_steps(logits, h, shares, rates):
    slopes = logits.softmax(-1) - shares
    verdicts = []
    for rate in rates:
        stepped = logits - rate * 5 * slopes  # the 5 of the chapter
        if F.cross_entropy(stepped, shares) > F.cross_entropy(logits, shares):
            verdicts.append("worse")
        else:
            back = slopes @ (stepped.softmax(-1) - shares) < 0
            verdicts.append("past" if back else "before")
    return verdicts


# %% 02.4 the_most_frequent_word
# says: at 10 the most frequent word is certain, and the 6 of 16 places with another word make the
# mean loss larger than 11: look at all words, not at that one alone
def judge_steps(logits, h, shares, rates):
    slopes = logits.softmax(-1) - shares
    word = shares.argmax()
    verdicts = []
    for rate in rates:
        p = (logits - rate * (h @ h) * slopes).softmax(-1)
        if p[word] < logits.softmax(-1)[word]:
            verdicts.append("worse")
        else:
            verdicts.append("past" if p[word] > shares[word] else "before")
    return verdicts
