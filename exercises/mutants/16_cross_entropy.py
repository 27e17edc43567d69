"""Typical wrong answers to the exercises of chapter 16, and what the checks say to them."""

# %% 16.1 not_shifted
# says: you added exp(logit) itself, which overflows: each term is taken relative to the largest
import math


def absorb(largest, total, logit):
    return max(largest, logit), total + math.exp(min(logit, 709.0))


# %% 16.1 newest_is_reference
# says: you took the newest logit as the reference: it is the largest so far that keeps every
# exponent at 0 or below
import math


def absorb(largest, total, logit):
    if logit == -math.inf:
        return largest, total
    return logit, total * math.exp(min(largest - logit, 709.0)) + 1.0


# %% 16.1 old_sum_stays
# says: a new largest changes what the old terms are relative to: multiply the old sum by exp(old
# largest - new largest), and add the new term once
import math


def absorb(largest, total, logit):
    if logit == -math.inf:
        return largest, total
    new = max(largest, logit)
    return new, total + math.exp(logit - new)


# %% 16.1 starts_anew
# says: a new largest changes what the old terms are relative to: multiply the old sum by exp(old
# largest - new largest), and add the new term once
import math


def absorb(largest, total, logit):
    if logit > largest:
        return logit, 1.0
    if logit == -math.inf:
        return largest, total
    return largest, total + math.exp(logit - largest)


# %% 16.1 infinity_minus_infinity
# says: a forbidden token is to change nothing: where the largest is -inf as well, -inf - (-inf)
# is NaN, and NaN spreads
import math


def absorb(largest, total, logit):
    new = max(largest, logit)
    return new, total * math.exp(largest - new) + math.exp(logit - new)


# %% 16.2 mean_of_the_tokens
# says: you took the mean over the tokens: how many they are depends on the tokenizer, so add the
# losses up
import math


def bits_per_byte(losses, text):
    return sum(losses) / len(losses) / math.log(2) / len(text.encode())


# %% 16.2 bits_per_token
# says: you took the mean over the tokens: how many they are depends on the tokenizer, so add the
# losses up
import math


def bits_per_byte(losses, text):
    return sum(losses) / len(losses) / math.log(2)


# %% 16.2 characters
# says: you divided by characters: naïve has five of them, and six bytes
import math


def bits_per_byte(losses, text):
    return sum(losses) / math.log(2) / len(text)


# %% 16.2 nats_stay_nats
# says: you did not turn nats into bits: one bit is ln 2 = 0.693 nats, so divide by that
def bits_per_byte(losses, text):
    return sum(losses) / len(text.encode())


# %% 16.2 the_other_way
# says: you did not turn nats into bits: one bit is ln 2 = 0.693 nats, so divide by that
import math


def bits_per_byte(losses, text):
    return sum(losses) * math.log(2) / len(text.encode())


# %% 16.3 mean_of_choices
# says: you averaged 1/p: perplexity is e to the mean of the losses, and 1/p itself is averaged
# nowhere
import math

import numpy as np


def unigram_scores(training_ids, test_ids, vocab_size, num_bytes):
    counts = np.bincount(training_ids, minlength=vocab_size) + 1
    p = (counts / counts.sum())[test_ids]
    return (1 / p).mean(), -np.log2(p).sum() / num_bytes


# %% 16.3 old_denominator
# says: your probabilities do not sum to 1: every count is raised by 1, so divide by the sum of the
# raised counts
import math

import numpy as np


def unigram_scores(training_ids, test_ids, vocab_size, num_bytes):
    counts = np.bincount(training_ids, minlength=vocab_size) + 1
    nats = -np.log((counts / len(training_ids))[test_ids])
    return math.exp(nats.mean()), nats.sum() / math.log(2) / num_bytes


# %% 16.3 bits_per_token
# says: you took bits per token for bits per byte: the bits of the whole text are divided by its
# bytes
import math

import numpy as np


def unigram_scores(training_ids, test_ids, vocab_size, num_bytes):
    counts = np.bincount(training_ids, minlength=vocab_size) + 1
    nats = -np.log((counts / counts.sum())[test_ids])
    return math.exp(nats.mean()), nats.mean() / math.log(2)


# %% 16.3 learns_from_the_test
# says: losses of 1, 2 and 3 bits are a perplexity of 2² = 4, and 6 bits over 6 bytes
import math

import numpy as np


def unigram_scores(training_ids, test_ids, vocab_size, num_bytes):
    counts = np.bincount(test_ids, minlength=vocab_size) + 1
    nats = -np.log((counts / counts.sum())[test_ids])
    return math.exp(nats.mean()), nats.sum() / math.log(2) / num_bytes


# %% 16.3 only_what_it_met
# says: you took the shares of the two tokens that occurred: the other two of the vocabulary of 4
# count once each, so give np.bincount a minlength
import math

import numpy as np


def unigram_scores(training_ids, test_ids, vocab_size, num_bytes):
    size = max(training_ids.max(), test_ids.max()) + 1
    counts = np.bincount(training_ids, minlength=size) + 1
    nats = -np.log((counts / counts.sum())[test_ids])
    return math.exp(nats.mean()), nats.sum() / math.log(2) / num_bytes


# %% 16.3 two_to_the_nats
# says: you mixed the units: e to the mean goes with losses in nats, 2 to the mean with bits
import math

import numpy as np


def unigram_scores(training_ids, test_ids, vocab_size, num_bytes):
    counts = np.bincount(training_ids, minlength=vocab_size) + 1
    nats = -np.log((counts / counts.sum())[test_ids])
    return 2 ** nats.mean(), nats.sum() / math.log(2) / num_bytes


# %% 16.4 softmax_of_the_slice
# says: the gradient for w is not that of autograd: a slope is the probability among all tokens,
# minus 1 only at the target, in the one slice that holds it
import torch


def chunked_cross_entropy(x_ND, w_VD, targets_N, num_chunks):
    n = len(x_ND)
    lse_N = torch.full_like(x_ND[:, 0], -torch.inf)
    dx_ND, dw, start = torch.zeros_like(x_ND), [], 0
    for w_vD in w_VD.chunk(num_chunks):
        logits = x_ND @ w_vD.T
        lse_N = torch.logaddexp(lse_N, logits.logsumexp(-1))
        slope = logits.softmax(-1)
        local = targets_N - start
        (mine,) = ((local >= 0) & (local < len(w_vD))).nonzero(as_tuple=True)
        slope[mine, local[mine]] -= 1
        slope /= n
        dx_ND += slope @ w_vD
        dw.append(slope.T @ x_ND)
        start += len(w_vD)
    loss = (lse_N - (x_ND * w_VD[targets_N]).sum(-1)).mean()
    return loss, dx_ND, torch.cat(dw)


# %% 16.4 parts_not_rescaled
# says: the loss in 3 slices is not torch's: a token's normaliser is the sum over all slices, and
# parts with different maxima have to be rescaled before they are added
import torch


def chunked_cross_entropy(x_ND, w_VD, targets_N, num_chunks):
    n = len(x_ND)
    max_N = torch.full_like(x_ND[:, 0], -torch.inf)
    sum_N = torch.zeros_like(max_N)
    for w_vD in w_VD.chunk(num_chunks):
        logits = x_ND @ w_vD.T
        max_N = torch.maximum(max_N, logits.amax(-1))
        sum_N = sum_N + (logits - max_N[:, None]).exp().sum(-1)
    lse_N = max_N + sum_N.log()
    dx_ND, dw, start = torch.zeros_like(x_ND), [], 0
    for w_vD in w_VD.chunk(num_chunks):
        slope = (x_ND @ w_vD.T - lse_N[:, None]).exp()
        local = targets_N - start
        (mine,) = ((local >= 0) & (local < len(w_vD))).nonzero(as_tuple=True)
        slope[mine, local[mine]] -= 1
        slope /= n
        dx_ND += slope @ w_vD
        dw.append(slope.T @ x_ND)
        start += len(w_vD)
    loss = (lse_N - (x_ND * w_VD[targets_N]).sum(-1)).mean()
    return loss, dx_ND, torch.cat(dw)


# %% 16.4 target_in_every_slice
# says: the gradient for w is not that of autograd: a slope is the probability among all tokens,
# minus 1 only at the target, in the one slice that holds it
import torch


def chunked_cross_entropy(x_ND, w_VD, targets_N, num_chunks):
    n = len(x_ND)
    rows = torch.arange(n)
    lse_N = torch.full_like(x_ND[:, 0], -torch.inf)
    for w_vD in w_VD.chunk(num_chunks):
        lse_N = torch.logaddexp(lse_N, (x_ND @ w_vD.T).logsumexp(-1))
    dx_ND, dw = torch.zeros_like(x_ND), []
    for w_vD in w_VD.chunk(num_chunks):
        slope = (x_ND @ w_vD.T - lse_N[:, None]).exp()
        slope[rows, targets_N % len(w_vD)] -= 1
        slope /= n
        dx_ND += slope @ w_vD
        dw.append(slope.T @ x_ND)
    # The loss alone takes the target once.
    loss = (lse_N - (x_ND * w_VD[targets_N]).sum(-1)).mean()
    return loss, dx_ND, torch.cat(dw)


# %% 16.4 gradient_of_the_sum
# says: you left the gradient of the sum: the loss is a mean over 6 rows, and so is its gradient
import torch


def chunked_cross_entropy(x_ND, w_VD, targets_N, num_chunks):
    lse_N = torch.full_like(x_ND[:, 0], -torch.inf)
    for w_vD in w_VD.chunk(num_chunks):
        lse_N = torch.logaddexp(lse_N, (x_ND @ w_vD.T).logsumexp(-1))
    dx_ND, dw, start = torch.zeros_like(x_ND), [], 0
    for w_vD in w_VD.chunk(num_chunks):
        slope = (x_ND @ w_vD.T - lse_N[:, None]).exp()
        local = targets_N - start
        (mine,) = ((local >= 0) & (local < len(w_vD))).nonzero(as_tuple=True)
        slope[mine, local[mine]] -= 1
        dx_ND += slope @ w_vD
        dw.append(slope.T @ x_ND)
        start += len(w_vD)
    loss = (lse_N - (x_ND * w_VD[targets_N]).sum(-1)).mean()
    return loss, dx_ND, torch.cat(dw)


# %% 16.4 last_slice_only
# says: the gradient for x is not that of autograd: every slice adds its share to it
import torch


def chunked_cross_entropy(x_ND, w_VD, targets_N, num_chunks):
    n = len(x_ND)
    lse_N = torch.full_like(x_ND[:, 0], -torch.inf)
    for w_vD in w_VD.chunk(num_chunks):
        lse_N = torch.logaddexp(lse_N, (x_ND @ w_vD.T).logsumexp(-1))
    dw, start = [], 0
    for w_vD in w_VD.chunk(num_chunks):
        slope = (x_ND @ w_vD.T - lse_N[:, None]).exp()
        local = targets_N - start
        (mine,) = ((local >= 0) & (local < len(w_vD))).nonzero(as_tuple=True)
        slope[mine, local[mine]] -= 1
        slope /= n
        dx_ND = slope @ w_vD
        dw.append(slope.T @ x_ND)
        start += len(w_vD)
    loss = (lse_N - (x_ND * w_VD[targets_N]).sum(-1)).mean()
    return loss, dx_ND, torch.cat(dw)


# %% 16.4 overflows
# says: with large logits the answer is not finite or not right: subtract the largest before you
# exponentiate
import torch


def chunked_cross_entropy(x_ND, w_VD, targets_N, num_chunks):
    n = len(x_ND)
    sum_N = torch.zeros_like(x_ND[:, 0])
    for w_vD in w_VD.chunk(num_chunks):
        sum_N = sum_N + (x_ND @ w_vD.T).exp().sum(-1)
    dx_ND, dw, start = torch.zeros_like(x_ND), [], 0
    for w_vD in w_VD.chunk(num_chunks):
        slope = (x_ND @ w_vD.T).exp() / sum_N[:, None]
        local = targets_N - start
        (mine,) = ((local >= 0) & (local < len(w_vD))).nonzero(as_tuple=True)
        slope[mine, local[mine]] -= 1
        slope /= n
        dx_ND += slope @ w_vD
        dw.append(slope.T @ x_ND)
        start += len(w_vD)
    loss = (sum_N.log() - (x_ND * w_VD[targets_N]).sum(-1)).mean()
    return loss, dx_ND, torch.cat(dw)
