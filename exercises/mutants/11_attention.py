"""Typical wrong answers to the exercises of chapter 11, and what the checks say to them."""

# %% 11.1 marks_the_forbidden
# says: True means that a query may look: yours marks what is forbidden
import torch


def may_look(num_queries, num_keys, window=None):
    query = torch.arange(num_keys - num_queries, num_keys)[:, None]
    key = torch.arange(num_keys)
    forbidden = key > query
    return forbidden if window is None else forbidden | (query - key >= window)


# %% 11.1 keys_are_rows
# says: 3 queries and 5 keys make 3 rows and 5 columns: queries are rows
import torch


def may_look(num_queries, num_keys, window=None):
    query = torch.arange(num_keys - num_queries, num_keys)
    key = torch.arange(num_keys)[:, None]
    allowed = key <= query
    return allowed if window is None else allowed & (query - key < window)


# %% 11.1 looks_both_ways
# says: you let a query look at a key that comes after it: in training that key is the answer
import torch


def may_look(num_queries, num_keys, window=None):
    query = torch.arange(num_keys - num_queries, num_keys)[:, None]
    key = torch.arange(num_keys)
    return (query - key).abs() < (num_keys if window is None else window)


# %% 11.1 queries_come_first
# says: you gave the first query position 0: the queries are the last of the positions, so the first
# of 3 over 5 keys stands at position 2 and has two keys before it
import torch


def may_look(num_queries, num_keys, window=None):
    allowed = torch.ones(num_queries, num_keys, dtype=torch.bool).tril()
    return allowed if window is None else allowed.triu(1 - window)


# %% 11.1 not_itself
# says: you left out the query's own position: the first token of a text would have nothing to look
# at
import torch


def may_look(num_queries, num_keys, window=None):
    behind = torch.arange(num_keys - num_queries, num_keys)[:, None] - torch.arange(num_keys)
    return (behind > 0) & (behind <= (num_keys if window is None else window))


# %% 11.1 window_besides_itself
# says: a window of 2 holds two keys: the query's own, and the one before it
import torch


def may_look(num_queries, num_keys, window=None):
    behind = torch.arange(num_keys - num_queries, num_keys)[:, None] - torch.arange(num_keys)
    return (behind >= 0) & (behind <= (num_keys if window is None else window))


# %% 11.2 in_turn
# says: you laid the heads out in turn, 0 1 2 0 1 2: neighbours share, so query heads 0 and 1 read
# head 0
def spread(x_BSGK, num_heads):
    return x_BSGK.repeat(1, 1, num_heads // x_BSGK.shape[2], 1)


# %% 11.2 divides_by_the_groups
# says: you divided h by G: a head serves H / G = 2 query heads, so head h reads h // 2
import torch


def spread(x_BSGK, num_heads):
    groups = x_BSGK.shape[2]
    return x_BSGK[:, :, (torch.arange(num_heads) // groups).clamp(max=groups - 1)]


# %% 11.2 each_head_all_times
# says: the shape is to be (B, S, H, K): 6 heads here for 6 query heads, and all else as it was
def spread(x_BSGK, num_heads):
    return x_BSGK.repeat_interleave(num_heads, dim=2)


# %% 11.2 averages
# says: you averaged the heads: that is how one head is made of several before training goes on, and
# here each query head reads one of them
def spread(x_BSGK, num_heads):
    return x_BSGK.mean(2, keepdim=True).expand(-1, -1, num_heads, -1).clone()


# %% 11.2 takes_keys_apart
# says: you took a head apart: the four numbers of a key stay together, in their order, and only
# whole heads are repeated
def spread(x_BSGK, num_heads):
    texts, length, groups, size = x_BSGK.shape
    wide = x_BSGK.repeat_interleave(num_heads // groups, dim=-1)
    return wide.reshape(texts, length, num_heads, size)


# %% 11.2 moves_positions
# says: query heads 0, 2 and 4 do not hold heads 0, 1 and 2 of the same text and position
def spread(x_BSGK, num_heads):
    texts, length, groups, size = x_BSGK.shape
    by_head = x_BSGK.transpose(1, 2).repeat_interleave(num_heads // groups, dim=1)
    # A head's positions lie together here, and a reshape does not bring them back.
    return by_head.reshape(texts, length, num_heads, size)


# %% 11.3 every_query_head
# says: you gave every query head a key and a value of its own: 6 query heads share 2 of them
def readers_that_fit(
    *,
    num_layers,
    num_heads,
    num_kv_heads,
    head_size,
    bytes_per_number,
    num_tokens,
    memory_bytes,
    weight_bytes,
):
    per_token = 2 * num_layers * num_heads * head_size * bytes_per_number
    return per_token, max(0, memory_bytes - weight_bytes) // (per_token * num_tokens)


# %% 11.3 keys_only
# says: you counted keys or values: both are kept, so 2 for each head
def readers_that_fit(
    *,
    num_layers,
    num_heads,
    num_kv_heads,
    head_size,
    bytes_per_number,
    num_tokens,
    memory_bytes,
    weight_bytes,
):
    per_token = num_layers * num_kv_heads * head_size * bytes_per_number
    return per_token, max(0, memory_bytes - weight_bytes) // (per_token * num_tokens)


# %% 11.3 one_layer
# says: you counted one layer: each of the 3 layers has keys and values of its own
def readers_that_fit(
    *,
    num_layers,
    num_heads,
    num_kv_heads,
    head_size,
    bytes_per_number,
    num_tokens,
    memory_bytes,
    weight_bytes,
):
    per_token = 2 * num_kv_heads * head_size * bytes_per_number
    return per_token, max(0, memory_bytes - weight_bytes) // (per_token * num_tokens)


# %% 11.3 weights_take_no_room
# says: you gave all memory to the caches: the weights have to be there as well
def readers_that_fit(
    *,
    num_layers,
    num_heads,
    num_kv_heads,
    head_size,
    bytes_per_number,
    num_tokens,
    memory_bytes,
    weight_bytes,
):
    per_token = 2 * num_layers * num_kv_heads * head_size * bytes_per_number
    return per_token, memory_bytes // (per_token * num_tokens)


# %% 11.3 part_of_a_user
# says: the quotient is 7.8: a user with part of a cache cannot be served, and each user has 10
# tokens
def readers_that_fit(
    *,
    num_layers,
    num_heads,
    num_kv_heads,
    head_size,
    bytes_per_number,
    num_tokens,
    memory_bytes,
    weight_bytes,
):
    per_token = 2 * num_layers * num_kv_heads * head_size * bytes_per_number
    return per_token, round(max(0, memory_bytes - weight_bytes) / (per_token * num_tokens))


# %% 11.3 fewer_than_none
# says: 30,000 free bytes hold 7 caches of 3,840; and where the weights alone do not fit, no user
# does, and not a number below 0
def readers_that_fit(
    *,
    num_layers,
    num_heads,
    num_kv_heads,
    head_size,
    bytes_per_number,
    num_tokens,
    memory_bytes,
    weight_bytes,
):
    per_token = 2 * num_layers * num_kv_heads * head_size * bytes_per_number
    return per_token, (memory_bytes - weight_bytes) // (per_token * num_tokens)


# %% 11.4 mean_of_block_means
# says: you averaged the means of the blocks: a block counts by the weights in it, 4 and 6 of 10
import math

import torch


def absorb(largest, total, mean_K, scores_S, values_SK):
    new = torch.maximum(largest, scores_S.max())
    if new == -math.inf:
        return largest, total, mean_K
    new_total = total * (largest - new).exp() + (scores_S - new).exp().sum()
    block_K = scores_S.softmax(0) @ values_SK
    return new, new_total, block_K if total == 0 else (mean_K + block_K) / 2


# %% 11.4 sum_and_no_mean
# says: this is the weighted sum, or divided by the block's weights alone: a mean is divided by the
# whole new total, in which the old values have their part
import math

import torch


def absorb(largest, total, mean_K, scores_S, values_SK):
    new = torch.maximum(largest, scores_S.max())
    if new == -math.inf:
        return largest, total, mean_K
    rescale = (largest - new).exp()
    weights_S = (scores_S - new).exp()
    return new, rescale * total + weights_S.sum(), rescale * mean_K + weights_S @ values_SK


# %% 11.4 divides_by_the_block
# says: this is the weighted sum, or divided by the block's weights alone: a mean is divided by the
# whole new total, in which the old values have their part
import math

import torch


def absorb(largest, total, mean_K, scores_S, values_SK):
    new = torch.maximum(largest, scores_S.max())
    if new == -math.inf:
        return largest, total, mean_K
    old_weight = total * (largest - new).exp()
    weights_S = (scores_S - new).exp()
    mean = (old_weight * mean_K + weights_S @ values_SK) / weights_S.sum()
    return new, old_weight + weights_S.sum(), mean


# %% 11.4 old_weight_stays
# says: you left the old values at their weight: it was relative to a smaller largest score, and is
# to shrink by exp(old largest - new largest), in the total and in the mean
import math

import torch


def absorb(largest, total, mean_K, scores_S, values_SK):
    new = torch.maximum(largest, scores_S.max())
    if new == -math.inf:
        return largest, total, mean_K
    weights_S = (scores_S - new).exp()
    new_total = total + weights_S.sum()
    return new, new_total, (total * mean_K + weights_S @ values_SK) / new_total


# %% 11.4 infinity_minus_infinity
# says: a block of which nothing may be seen has to leave everything as it is, also when it comes
# first: -inf - (-inf) is NaN, and 0 / 0 as well
import torch


def absorb(largest, total, mean_K, scores_S, values_SK):
    new = torch.maximum(largest, scores_S.max())
    old_weight = total * (largest - new).exp()
    weights_S = (scores_S - new).exp()
    new_total = old_weight + weights_S.sum()
    return new, new_total, (old_weight * mean_K + weights_S @ values_SK) / new_total


# %% 11.4 exponentials_as_they_are
# says: scores near 1,000 or -1,000 overflow or vanish: take each exponential relative to the
# largest score
import math

import torch


def absorb(largest, total, mean_K, scores_S, values_SK):
    new = torch.maximum(largest, scores_S.max())
    if new == -math.inf:
        return largest, total, mean_K
    weights_S = scores_S.exp()
    new_total = total + weights_S.sum()
    return new, new_total, (total * mean_K + weights_S @ values_SK) / new_total
