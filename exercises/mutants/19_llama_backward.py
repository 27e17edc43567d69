"""Typical wrong answers to the exercises of chapter 19, and what the checks say to them."""


# %% 19.1 transposed_as_in_forward
# says: dx is multiplied by W^T, which is what the forward pass did: the way back takes the other
# one, dy W. A square matrix hides that
def linear_backward(dy, x, w):
    dy_NF = dy.reshape(-1, dy.shape[-1])
    x_ND = x.reshape(-1, x.shape[-1])
    return dy @ w.T, dy_NF.T @ x_ND


# %% 19.1 dw_transposed
# says: dw is transposed: its row f belongs to output f, as in W itself
def linear_backward(dy, x, w):
    dy_NF = dy.reshape(-1, dy.shape[-1])
    x_ND = x.reshape(-1, x.shape[-1])
    return dy @ w, x_ND.T @ dy_NF


# %% 19.1 mean_over_tokens
# says: you took a mean over the tokens: each token adds its own share, and any division is in dy
# already
def linear_backward(dy, x, w):
    dy_NF = dy.reshape(-1, dy.shape[-1])
    x_ND = x.reshape(-1, x.shape[-1])
    return dy @ w, dy_NF.T @ x_ND / len(x_ND)


# %% 19.1 one_for_each_sequence
# says: dw has an axis too many: every sequence of the batch uses the same matrix, so their
# gradients are added up to one
def linear_backward(dy, x, w):
    return dy @ w, dy.transpose(-1, -2) @ x


# %% 19.1 tokens_added_first
# says: you added up the tokens before you multiplied: dy of one token then meets x of another.
# Multiply within each token first
import torch


def linear_backward(dy, x, w):
    dy_NF = dy.reshape(-1, dy.shape[-1])
    x_ND = x.reshape(-1, x.shape[-1])
    return dy @ w, torch.outer(dy_NF.sum(0), x_ND.sum(0))


# %% 19.2 rms_held_still
# says: you held the root mean square still: each x_d moves it, too, and through it every channel
# of the token. The second term is missing
def rmsnorm_backward(dy, x, gain, eps):
    inv_rms = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    n = x * inv_rms
    dn = dy * gain
    dx = dn * inv_rms
    dgain = (dy * n).flatten(0, -2).sum(0)
    return dx, dgain


# %% 19.2 sign_turned
# says: the sign of the second term is turned: a larger x_d makes r larger, and every n smaller
def rmsnorm_backward(dy, x, gain, eps):
    inv_rms = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    n = x * inv_rms
    dn = dy * gain
    dx = (dn + n * (dn * n).mean(-1, keepdim=True)) * inv_rms
    dgain = (dy * n).flatten(0, -2).sum(0)
    return dx, dgain


# %% 19.2 gain_forgotten
# says: you left out the gain: what reaches n is dn = gain x dy
def rmsnorm_backward(dy, x, gain, eps):
    inv_rms = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    n = x * inv_rms
    dn = dy
    dx = (dn - n * (dn * n).mean(-1, keepdim=True)) * inv_rms
    dgain = (dy * n).flatten(0, -2).sum(0)
    return dx, dgain


# %% 19.2 gain_at_the_end
# says: you multiplied by the gain at the end: it belongs to dn, before the mean is taken, since
# each channel has its own gain
def rmsnorm_backward(dy, x, gain, eps):
    inv_rms = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    n = x * inv_rms
    dn = dy
    dx = gain * (dn - n * (dn * n).mean(-1, keepdim=True)) * inv_rms
    dgain = (dy * n).flatten(0, -2).sum(0)
    return dx, dgain


# %% 19.2 sum_for_mean
# says: you subtracted D times too much: r is the root of a mean, so its slope is n_d / D, and the
# sum becomes a mean
def rmsnorm_backward(dy, x, gain, eps):
    inv_rms = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    n = x * inv_rms
    dn = dy * gain
    dx = (dn - n * (dn * n).sum(-1, keepdim=True)) * inv_rms
    dgain = (dy * n).flatten(0, -2).sum(0)
    return dx, dgain


# %% 19.2 eps_forgotten
# says: with eps = 2 you are off: eps stands under the root wherever 1/r does
def rmsnorm_backward(dy, x, gain, eps):
    inv_rms = (x.square().mean(-1, keepdim=True)).rsqrt()
    n = x * inv_rms
    dn = dy * gain
    dx = (dn - n * (dn * n).mean(-1, keepdim=True)) * inv_rms
    dgain = (dy * n).flatten(0, -2).sum(0)
    return dx, dgain


# %% 19.3 the_other_order
# says: you returned dup first: the order is (dgate, dup)
import torch


def gate_backward(dy, gate, up):
    s = torch.sigmoid(gate)
    slope = s + gate * s * (1 - s)
    return dy * gate * s, dy * up * slope


# %% 19.3 gate_without_sigmoid
# says: up is multiplied by silu(gate), not by the gate itself, and so is its gradient
import torch


def gate_backward(dy, gate, up):
    s = torch.sigmoid(gate)
    slope = s + gate * s * (1 - s)
    return dy * up * slope, dy * gate


# %% 19.3 up_forgotten
# says: you left out up: the gate's part of the product gets dy times the other factor, times the
# slope of SiLU
import torch


def gate_backward(dy, gate, up):
    s = torch.sigmoid(gate)
    slope = s + gate * s * (1 - s)
    return dy * slope, dy * gate * s


# %% 19.3 sigmoid_held_still
# says: you held sigmoid(gate) still: in gate x sigmoid(gate) both factors move, and the second
# part of the slope is gate x s (1 - s)
import torch


def gate_backward(dy, gate, up):
    s = torch.sigmoid(gate)
    slope = s
    return dy * up * slope, dy * gate * s


# %% 19.3 slope_of_the_sigmoid
# says: that is the slope of the sigmoid alone: SiLU is gate x sigmoid(gate), and its slope s +
# gate x s (1 - s)
import torch


def gate_backward(dy, gate, up):
    s = torch.sigmoid(gate)
    slope = s * (1 - s)
    return dy * up * slope, dy * gate * s


# %% 19.3 sign_turned
# says: a sign is turned: the sigmoid rises, so its part of the slope is added
import torch


def gate_backward(dy, gate, up):
    s = torch.sigmoid(gate)
    slope = s - gate * s * (1 - s)
    return dy * up * slope, dy * gate * s


# %% 19.4 sign_turned
# says: the sign is turned: softmax minus one-hot. A step against the gradient then lifts the
# logit of the target
import torch


def logits_gradient(logits_NV, targets_N, num_tokens):
    counted_N = targets_N != -100
    rows = counted_N.nonzero().flatten()
    gradient_NV = torch.softmax(logits_NV, -1)
    gradient_NV[rows, targets_N[rows]] -= 1
    return -gradient_NV * counted_N[:, None] / num_tokens


# %% 19.4 whole_columns
# says: you subtracted 1 in every row at the targets of all rows: [:, targets] takes whole
# columns. A row has one target, its own
import torch


def logits_gradient(logits_NV, targets_N, num_tokens):
    counted_N = targets_N != -100
    rows = counted_N.nonzero().flatten()
    gradient_NV = torch.softmax(logits_NV, -1)
    gradient_NV[:, targets_N[rows]] -= 1
    return gradient_NV * counted_N[:, None] / num_tokens


# %% 19.4 mask_forgotten
# says: a target of -100 was used as an index, and the hundredth entry from the end became a
# target: entry 28 of 128. No error tells you
import torch


def logits_gradient(logits_NV, targets_N, num_tokens):
    gradient_NV = torch.softmax(logits_NV, -1)
    gradient_NV[torch.arange(len(targets_N)), targets_N] -= 1
    return gradient_NV / num_tokens


# %% 19.4 softmax_left_over
# says: a row that does not count has a gradient: nothing of it may stay, neither the 1 nor
# softmax
import torch


def logits_gradient(logits_NV, targets_N, num_tokens):
    counted_N = targets_N != -100
    rows = counted_N.nonzero().flatten()
    gradient_NV = torch.softmax(logits_NV, -1)
    gradient_NV[rows, targets_N[rows]] -= 1
    return gradient_NV / num_tokens


# %% 19.4 mean_over_rows
# says: three rows of five count and num_tokens is 3: divide by num_tokens, not by the number of
# rows
import torch


def logits_gradient(logits_NV, targets_N, num_tokens):
    counted_N = targets_N != -100
    rows = counted_N.nonzero().flatten()
    gradient_NV = torch.softmax(logits_NV, -1)
    gradient_NV[rows, targets_N[rows]] -= 1
    return gradient_NV * counted_N[:, None] / len(targets_N)


# %% 19.4 own_count
# says: here 40 tokens count in the whole batch, and only three of them are in these rows: you
# divided by a count of your own, not by num_tokens
import torch


def logits_gradient(logits_NV, targets_N, num_tokens):
    counted_N = targets_N != -100
    rows = counted_N.nonzero().flatten()
    gradient_NV = torch.softmax(logits_NV, -1)
    gradient_NV[rows, targets_N[rows]] -= 1
    return gradient_NV * counted_N[:, None] / counted_N.sum().clamp(min=1)


# %% 19.5 mask_forgotten
# says: you forgot the causal mask when you computed the weights anew: the backward pass has to
# run through the weights that the forward pass used
import torch


def attention_backward(dout, q, k, v):
    num_tokens, head_size = q.shape
    scale = head_size**-0.5
    may_look = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    scores = q @ k.T * scale
    p = torch.softmax(scores, -1)

    dv = p.T @ dout
    dp = dout @ v.T
    ds = p * (dp - (dp * p).sum(-1, keepdim=True))
    return ds @ k * scale, ds.T @ q * scale, dv


# %% 19.5 dv_not_transposed
# says: dv lacks a transpose: value j gets from every query i that looked at it, so P^T stands
# before dO
import torch


def attention_backward(dout, q, k, v):
    num_tokens, head_size = q.shape
    scale = head_size**-0.5
    may_look = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    scores = (q @ k.T * scale).masked_fill(~may_look, -torch.inf)
    p = torch.softmax(scores, -1)

    dv = p @ dout
    dp = dout @ v.T
    ds = p * (dp - (dp * p).sum(-1, keepdim=True))
    return ds @ k * scale, ds.T @ q * scale, dv


# %% 19.5 no_sum_over_the_row
# says: you took the softmax for a row of independent numbers, dS = P dP: if one weight of a row
# grows, the others shrink. The sum over the row is missing
import torch


def attention_backward(dout, q, k, v):
    num_tokens, head_size = q.shape
    scale = head_size**-0.5
    may_look = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    scores = (q @ k.T * scale).masked_fill(~may_look, -torch.inf)
    p = torch.softmax(scores, -1)

    dv = p.T @ dout
    dp = dout @ v.T
    ds = p * dp
    return ds @ k * scale, ds.T @ q * scale, dv


# %% 19.5 sum_over_the_column
# says: you summed over the columns: each row of the weights adds up to 1, so the sum runs over
# the keys of one query
import torch


def attention_backward(dout, q, k, v):
    num_tokens, head_size = q.shape
    scale = head_size**-0.5
    may_look = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    scores = (q @ k.T * scale).masked_fill(~may_look, -torch.inf)
    p = torch.softmax(scores, -1)

    dv = p.T @ dout
    dp = dout @ v.T
    ds = p * (dp - (dp * p).sum(0, keepdim=True))
    return ds @ k * scale, ds.T @ q * scale, dv


# %% 19.5 scale_forgotten
# says: 1/sqrt(K) is missing: the scores were scaled on the way up, and what flows back through
# them is scaled as well
import torch


def attention_backward(dout, q, k, v):
    num_tokens, head_size = q.shape
    scale = head_size**-0.5
    may_look = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    scores = (q @ k.T * scale).masked_fill(~may_look, -torch.inf)
    p = torch.softmax(scores, -1)

    dv = p.T @ dout
    dp = dout @ v.T
    ds = p * (dp - (dp * p).sum(-1, keepdim=True))
    return ds @ k, ds.T @ q, dv


# %% 19.5 dk_not_transposed
# says: dk lacks a transpose: key j gets from every query i that looked at it, so it is dS^T Q
import torch


def attention_backward(dout, q, k, v):
    num_tokens, head_size = q.shape
    scale = head_size**-0.5
    may_look = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    scores = (q @ k.T * scale).masked_fill(~may_look, -torch.inf)
    p = torch.softmax(scores, -1)

    dv = p.T @ dout
    dp = dout @ v.T
    ds = p * (dp - (dp * p).sum(-1, keepdim=True))
    return ds @ k * scale, ds @ q * scale, dv


# %% 19.6 sum_dropped
# says: you kept one query head of each group and dropped the others: every copy was used, and
# every copy's gradient counts
import torch


def keys_backward(dk_SHK, positions_S, theta, num_kv_heads):
    dk_SGK = dk_SHK.unflatten(1, (num_kv_heads, -1))[:, :, 0]

    num_pairs = dk_SHK.shape[-1] // 2
    frequencies_J = theta ** (-torch.arange(num_pairs, dtype=torch.float64) / num_pairs)
    angles_S1J = torch.outer(positions_S, frequencies_J)[:, None]
    cos, sin = angles_S1J.cos(), angles_S1J.sin()
    da, db = dk_SGK[..., 0::2], dk_SGK[..., 1::2]
    back = da * cos + db * sin, db * cos - da * sin
    return torch.stack(back, -1).flatten(-2)


# %% 19.6 mean_over_the_copies
# says: you took the mean over the copies: a value that is used several times gets the sum of the
# gradients of its uses
import torch


def keys_backward(dk_SHK, positions_S, theta, num_kv_heads):
    dk_SGK = dk_SHK.unflatten(1, (num_kv_heads, -1)).mean(2)

    num_pairs = dk_SHK.shape[-1] // 2
    frequencies_J = theta ** (-torch.arange(num_pairs, dtype=torch.float64) / num_pairs)
    angles_S1J = torch.outer(positions_S, frequencies_J)[:, None]
    cos, sin = angles_S1J.cos(), angles_S1J.sin()
    da, db = dk_SGK[..., 0::2], dk_SGK[..., 1::2]
    back = da * cos + db * sin, db * cos - da * sin
    return torch.stack(back, -1).flatten(-2)


# %% 19.6 copies_far_apart
# says: you added heads 0 and 2, and 1 and 3: query head h reads key head h // 2, so the copies
# stand side by side, 0 and 1, 2 and 3
import torch


def keys_backward(dk_SHK, positions_S, theta, num_kv_heads):
    dk_SGK = dk_SHK.unflatten(1, (-1, num_kv_heads)).sum(1)

    num_pairs = dk_SHK.shape[-1] // 2
    frequencies_J = theta ** (-torch.arange(num_pairs, dtype=torch.float64) / num_pairs)
    angles_S1J = torch.outer(positions_S, frequencies_J)[:, None]
    cos, sin = angles_S1J.cos(), angles_S1J.sin()
    da, db = dk_SGK[..., 0::2], dk_SGK[..., 1::2]
    back = da * cos + db * sin, db * cos - da * sin
    return torch.stack(back, -1).flatten(-2)


# %% 19.6 turned_forward
# says: you turned forward once more: the gradient of a rotation is the rotation back, by the
# negative angle (the transposed matrix)
import torch


def keys_backward(dk_SHK, positions_S, theta, num_kv_heads):
    dk_SGK = dk_SHK.unflatten(1, (num_kv_heads, -1)).sum(2)

    num_pairs = dk_SHK.shape[-1] // 2
    frequencies_J = theta ** (-torch.arange(num_pairs, dtype=torch.float64) / num_pairs)
    angles_S1J = torch.outer(positions_S, frequencies_J)[:, None]
    cos, sin = angles_S1J.cos(), angles_S1J.sin()
    da, db = dk_SGK[..., 0::2], dk_SGK[..., 1::2]
    back = da * cos - db * sin, da * sin + db * cos
    return torch.stack(back, -1).flatten(-2)


# %% 19.6 row_is_position
# says: you did not turn the gradient back, or took the row's number for its position: row 0
# stands at position pi/2 here
import torch


def keys_backward(dk_SHK, positions_S, theta, num_kv_heads):
    dk_SGK = dk_SHK.unflatten(1, (num_kv_heads, -1)).sum(2)

    num_pairs = dk_SHK.shape[-1] // 2
    frequencies_J = theta ** (-torch.arange(num_pairs, dtype=torch.float64) / num_pairs)
    angles_S1J = torch.outer(torch.arange(len(positions_S)).double(), frequencies_J)[:, None]
    cos, sin = angles_S1J.cos(), angles_S1J.sin()
    da, db = dk_SGK[..., 0::2], dk_SGK[..., 1::2]
    back = da * cos + db * sin, db * cos - da * sin
    return torch.stack(back, -1).flatten(-2)


# %% 19.6 pairs_of_halves
# says: 6 query heads, 2 key heads and 8 channels do not come out right: pair j is channels 2j and
# 2j + 1, and turns by position x theta^(-2j/K)
import torch


def keys_backward(dk_SHK, positions_S, theta, num_kv_heads):
    dk_SGK = dk_SHK.unflatten(1, (num_kv_heads, -1)).sum(2)

    num_pairs = dk_SHK.shape[-1] // 2
    frequencies_J = theta ** (-torch.arange(num_pairs, dtype=torch.float64) / num_pairs)
    angles_S1J = torch.outer(positions_S, frequencies_J)[:, None]
    cos, sin = angles_S1J.cos(), angles_S1J.sin()
    da, db = dk_SGK.chunk(2, -1)
    back = da * cos + db * sin, db * cos - da * sin
    return torch.cat(back, -1)
