"""Typical wrong answers to the exercises of chapter 12, and what the checks say to them."""

# %% 12.1 counts_a_tied_head
# says: the chapter's stories model has a tied head: its one table counts once, and as the
# embedding, so the first two shares are both 60.7 %
def feed_forward_shares(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    feed_forward = num_layers * 3 * width * hidden
    attention = num_layers * 2 * width * (num_heads + num_kv_heads) * head_size
    blocks = feed_forward + attention + num_layers * 2 * width
    table = vocab_size * width
    wholes = (blocks + 2 * table + width, blocks + table + width, blocks)
    return tuple(feed_forward / whole for whole in wholes)


# %% 12.1 forgets_the_head
# says: you left the head out of all parameters: in Llama 3 it is a table of its own, 1.05 billion
# numbers, and without it the 70B has the popular 69.5 billion
def feed_forward_shares(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    feed_forward = num_layers * 3 * width * hidden
    attention = num_layers * 2 * width * (num_heads + num_kv_heads) * head_size
    blocks = feed_forward + attention + num_layers * 2 * width
    everything = vocab_size * width + blocks + width
    return feed_forward / everything, feed_forward / (blocks + width), feed_forward / blocks


# %% 12.1 two_matrices
# says: you counted two matrices in the feed-forward network: SwiGLU has gate, up and down
def feed_forward_shares(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    feed_forward = num_layers * 2 * width * hidden
    attention = num_layers * 2 * width * (num_heads + num_kv_heads) * head_size
    blocks = feed_forward + attention + num_layers * 2 * width
    table = vocab_size * width
    wholes = (blocks + (2 - tied) * table + width, blocks + table + width, blocks)
    return tuple(feed_forward / whole for whole in wholes)


# %% 12.1 keys_for_every_query_head
# says: you gave keys and values as many heads as queries: the 70B has 64 query heads and 8 for keys
# and values
def feed_forward_shares(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    feed_forward = num_layers * 3 * width * hidden
    attention = num_layers * 4 * width * num_heads * head_size
    blocks = feed_forward + attention + num_layers * 2 * width
    table = vocab_size * width
    wholes = (blocks + (2 - tied) * table + width, blocks + table + width, blocks)
    return tuple(feed_forward / whole for whole in wholes)


# %% 12.1 table_among_the_blocks
# says: you counted a table among the blocks: embedding and head stand before and after them
def feed_forward_shares(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    feed_forward = num_layers * 3 * width * hidden
    attention = num_layers * 2 * width * (num_heads + num_kv_heads) * head_size
    blocks = feed_forward + attention + num_layers * 2 * width
    table = vocab_size * width
    wholes = (blocks + (2 - tied) * table + width, blocks + table + width, blocks + table)
    return tuple(feed_forward / whole for whole in wholes)


# %% 12.1 squares_of_the_width
# says: for a small model with 2 heads of 4 numbers at width 16 the shares are 3,840 of 7,888, of
# 6,288 and of 4,672: the two norms of a block count in it and the last one does not, and the head
# size is a setting of its own
def feed_forward_shares(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    feed_forward = num_layers * 3 * width * hidden
    attention = num_layers * 2 * width * width * (1 + num_kv_heads / num_heads)
    blocks = feed_forward + attention + num_layers * 2 * width
    table = vocab_size * width
    wholes = (blocks + (2 - tied) * table + width, blocks + table + width, blocks)
    return tuple(feed_forward / whole for whole in wholes)


# %% 12.2 compares_with_four_times
# says: you divided by 4 D: a multiplier of 1 is to mean as many parameters as two matrices of 4 D,
# and three such matrices are narrower
def multipliers(width, hidden, multiple):
    if hidden % multiple:
        return None
    return (hidden - multiple) / (4 * width), hidden / (4 * width)


# %% 12.2 one_matrix_among_three
# says: you shared the numbers of one matrix among three: two matrices of 4 D are 8 D², so F is
# 8 D / 3
def multipliers(width, hidden, multiple):
    if hidden % multiple:
        return None
    equal = 4 * width / 3
    return (hidden - multiple) / equal, hidden / equal


# %% 12.2 to_the_nearest
# says: you rounded to the nearest: widths are rounded up, so the wanted width is never above the
# finished one
def multipliers(width, hidden, multiple):
    if hidden % multiple:
        return None
    equal = 8 * width / 3
    return (hidden - multiple / 2) / equal, (hidden + multiple / 2) / equal


# %% 12.2 rounds_down
# says: you rounded down: 28,672 is the wanted width rounded up, so it is the largest that was
# wanted and not the smallest
def multipliers(width, hidden, multiple):
    if hidden % multiple:
        return None
    equal = 8 * width / 3
    return hidden / equal, (hidden + multiple) / equal


# %% 12.2 tries_decimals
# says: for the 70B the ends are exactly 1.125 and 1.3125: a wanted width need not be a whole
# number, nor a multiplier one of the first decimals
import math


def multipliers(width, hidden, multiple):
    def finished(multiplier):
        return math.ceil(multiplier * 8 * width / 3 / multiple) * multiple

    fitting = [k / 100 for k in range(1, 1_000) if finished(k / 100) == hidden]
    return (fitting[0], fitting[-1]) if fitting else None


# %% 12.2 any_width_will_do
# says: 22,016 is no multiple of 4,096, and 11,008 none of 512: whatever the multiplier, they are
# not what rounding up leads to
def multipliers(width, hidden, multiple):
    equal = 8 * width / 3
    return (hidden - multiple) / equal, hidden / equal


# %% 12.3 gates_the_other_branch
# says: you put the other branch through silu: the gate's 2 goes through, and the 3 stays as it is
import torch


def gated(x, w_gate_FD, w_up_FD, w_down_DF):
    up = torch.nn.functional.silu(x @ w_up_FD.T)
    return (up * (x @ w_gate_FD.T)) @ w_down_DF.T


# %% 12.3 sigmoid_gate
# says: you took the sigmoid for the gate: silu(a) is a times sigmoid(a)
def gated(x, w_gate_FD, w_up_FD, w_down_DF):
    return ((x @ w_gate_FD.T).sigmoid() * (x @ w_up_FD.T)) @ w_down_DF.T


# %% 12.3 silu_of_the_product
# says: you put more than the gate through silu: the other branch is multiplied as it is
import torch


def gated(x, w_gate_FD, w_up_FD, w_down_DF):
    return torch.nn.functional.silu((x @ w_gate_FD.T) * (x @ w_up_FD.T)) @ w_down_DF.T


# %% 12.3 adds_the_branches
# says: the branches are multiplied: a gate decides how much of the other number passes
import torch


def gated(x, w_gate_FD, w_up_FD, w_down_DF):
    return (torch.nn.functional.silu(x @ w_gate_FD.T) + x @ w_up_FD.T) @ w_down_DF.T


# %% 12.3 not_transposed
# says: you multiplied by a matrix the other way round: a row of it belongs to an output, so x is
# multiplied by the transposed matrix, in all three products
import torch


def gated(x, w_gate_FD, w_up_FD, w_down_DF):
    # Runs as long as all matrices are square.
    return (torch.nn.functional.silu(x @ w_gate_FD) * (x @ w_up_FD)) @ w_down_DF


# %% 12.3 overflows
# says: exp(200) is more than a 32-bit number can hold: a sigmoid(a) is silu without that
def gated(x, w_gate_FD, w_up_FD, w_down_DF):
    a = x @ w_gate_FD.T
    return (a * a.exp() / (1 + a.exp()) * (x @ w_up_FD.T)) @ w_down_DF.T


# %% 12.4 not_above_the_mean
# says: you put unit 2 first: its number is 5 and its column large, but it raises all three logits
# alike, by 20, which changes no probability: take the rise above their mean
def writers(hidden_F, w_down_DF, head_VD, token, count):
    rises_F = hidden_F * (head_VD[token] @ w_down_DF)
    found = rises_F.topk(count)
    return list(zip(found.indices.tolist(), found.values.tolist(), strict=True))


# %% 12.4 strongest_units
# says: you put unit 2 first for its large number: what counts is what it writes towards the token
def writers(hidden_F, w_down_DF, head_VD, token, count):
    rises_F = hidden_F * ((head_VD[token] - head_VD.mean(0)) @ w_down_DF)
    return [(unit, float(rises_F[unit])) for unit in hidden_F.topk(count).indices.tolist()]


# %% 12.4 columns_alone
# says: you put unit 3 first for its column, which would raise the logit by 4: here its number is
# 0.25, so the column is added a quarter of once
def writers(hidden_F, w_down_DF, head_VD, token, count):
    rises_F = (head_VD[token] - head_VD.mean(0)) @ w_down_DF
    found = rises_F.topk(count)
    return list(zip(found.indices.tolist(), found.values.tolist(), strict=True))


# %% 12.4 moves_it_most
# says: you put unit 4 first: it lowers the logit, by 3.5, and what is asked for are the largest
# rises
def writers(hidden_F, w_down_DF, head_VD, token, count):
    rises_F = hidden_F * ((head_VD[token] - head_VD.mean(0)) @ w_down_DF)
    return [(unit, float(rises_F[unit])) for unit in rises_F.abs().topk(count).indices.tolist()]


# %% 12.4 units_that_fire
# says: unit 1 has the number -1, and its column lowers the logit by 2: added minus once, it raises
# the logit by 2
def writers(hidden_F, w_down_DF, head_VD, token, count):
    rises_F = hidden_F.clamp(min=0) * ((head_VD[token] - head_VD.mean(0)) @ w_down_DF)
    found = rises_F.topk(count)
    return list(zip(found.indices.tolist(), found.values.tolist(), strict=True))


# %% 12.4 rows_for_columns
# says: units 0 to 4 raise the logit of token 0 by 3, 2, 0, 1 and -3.5: a unit writes its column of
# the down matrix, and no row of it
def writers(hidden_F, w_down_DF, head_VD, token, count):
    values_FD = w_down_DF.reshape(len(hidden_F), -1)
    rises_F = hidden_F * (values_FD @ (head_VD[token] - head_VD.mean(0)))
    found = rises_F.topk(count)
    return list(zip(found.indices.tolist(), found.values.tolist(), strict=True))
