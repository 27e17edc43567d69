"""Typical wrong answers to the exercises of chapter 13, and what the checks say to them."""


# %% 13.1 layer_norm
# says: you subtracted the mean, as LayerNorm does: four 7s then become zeros. RMSNorm subtracts
# nothing
def rmsnorm(x, gain, eps):
    centred = x - x.mean(-1, keepdim=True)
    return gain * centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()


# %% 13.1 standard_deviation
# says: you divided by the standard deviation, which is 0 for four 7s: it measures from the mean,
# and the root mean square measures from 0
def rmsnorm(x, gain, eps):
    return gain * x / (x.var(-1, keepdim=True, unbiased=False) + eps).sqrt()


# %% 13.1 root_of_the_sum
# says: you divided by the root of the sum: with 4 channels that is twice the root of the mean
def rmsnorm(x, gain, eps):
    return gain * x / (x.square().sum(-1, keepdim=True) + eps).sqrt()


# %% 13.1 one_norm_for_all
# says: a token is not divided by its own root mean square: take the mean over the last axis alone,
# and keep that axis (keepdim), or it is lined up with the columns
def rmsnorm(x, gain, eps):
    return gain * x / (x.square().mean() + eps).sqrt()


# %% 13.1 eps_outside
# says: eps stands inside the root, beside the mean square: four entries of 0.001 have mean square
# 1e-6, and with eps = 3e-6 they are divided by 0.002
def rmsnorm(x, gain, eps):
    return gain * x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


# %% 13.1 gain_first
# says: the gain is to multiply the normalised vector, channel by channel: if it multiplies x
# beforehand, the division takes part of it back
def rmsnorm(x, gain, eps):
    x = gain * x
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


# %% 13.2 row_is_position
# says: the first row stands at position pi/2 and was not turned: row t stands at positions_T[t],
# and not at t
import torch


def rotate(x_TK, positions_T, theta, layout):
    half = x_TK.shape[1] // 2
    rows = torch.arange(len(x_TK), dtype=torch.float64)
    angles = torch.outer(rows, theta ** (-torch.arange(half, dtype=torch.float64) / half))
    cos, sin = angles.cos(), angles.sin()
    if layout == "adjacent":
        a, b = x_TK[:, 0::2], x_TK[:, 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x_TK.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


# %% 13.2 clockwise
# says: you turned clockwise: one radian takes (1, 0) towards (0, 1), and your signs of the sines
# are exchanged
import torch


def rotate(x_TK, positions_T, theta, layout):
    half = x_TK.shape[1] // 2
    angles = torch.outer(positions_T, theta ** (-torch.arange(half, dtype=torch.float64) / half))
    cos, sin = angles.cos(), angles.sin()
    if layout == "adjacent":
        a, b = x_TK[:, 0::2], x_TK[:, 1::2]
        return torch.stack([a * cos + b * sin, b * cos - a * sin], -1).flatten(-2)
    a, b = x_TK.chunk(2, -1)
    return torch.cat([a * cos + b * sin, b * cos - a * sin], -1)


# %% 13.2 in_place
# says: you overwrote a before b was computed: a quarter turn takes (3, 4) to (-4, 3), and both new
# numbers are made of both old ones
import torch


def rotate(x_TK, positions_T, theta, layout):
    half = x_TK.shape[1] // 2
    angles = torch.outer(positions_T, theta ** (-torch.arange(half, dtype=torch.float64) / half))
    cos, sin = angles.cos(), angles.sin()
    out = x_TK.clone()
    a, b = (out[:, 0::2], out[:, 1::2]) if layout == "adjacent" else out.chunk(2, -1)
    a.copy_(a * cos - b * sin)
    b.copy_(a * sin + b * cos)
    return out


# %% 13.2 exponent_without_two
# says: pair j turns by position x theta^(-2j/K): with K = 4 and theta = 400 the second pair is
# 20 times slower than the first
import torch


def rotate(x_TK, positions_T, theta, layout):
    half = x_TK.shape[1] // 2
    exponents = torch.arange(half, dtype=torch.float64) / x_TK.shape[1]
    angles = torch.outer(positions_T, theta ** (-exponents))
    cos, sin = angles.cos(), angles.sin()
    if layout == "adjacent":
        a, b = x_TK[:, 0::2], x_TK[:, 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x_TK.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


# %% 13.2 angles_of_the_other_layout
# says: in 'halves' channels j and j + K/2 turn by one angle: spread over the channels the angles of
# four stand as 0, 1, 0, 1, and not as 0, 0, 1, 1
import torch


def rotate(x_TK, positions_T, theta, layout):
    half = x_TK.shape[1] // 2
    angles = torch.outer(positions_T, theta ** (-torch.arange(half, dtype=torch.float64) / half))
    cos, sin = (f.repeat_interleave(2, -1) for f in (angles.cos(), angles.sin()))
    if layout == "adjacent":
        partner = torch.stack([-x_TK[:, 1::2], x_TK[:, 0::2]], -1).flatten(-2)
    else:
        partner = torch.cat([-x_TK[:, half:], x_TK[:, :half]], -1)
    return x_TK * cos + partner * sin


# %% 13.2 float32_angles
# says: at position 100,000 your angles are off: float32 holds seven digits, and an angle of 100,000
# radians uses up six of them. Compute the frequencies in float64
import torch


def rotate(x_TK, positions_T, theta, layout):
    half = x_TK.shape[1] // 2
    angles = torch.outer(positions_T.float(), theta ** (-torch.arange(half) / half))
    cos, sin = angles.cos().double(), angles.sin().double()
    if layout == "adjacent":
        a, b = x_TK[:, 0::2], x_TK[:, 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x_TK.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


# %% 13.3 distance_without_sign
# says: you refuse quarter turns, which keep the promise: have you put i - j and j - i together?
# RoPE tells a key behind the query from one ahead
import torch


def relative_codes(codes, tolerance):
    found = []
    for name, (q, k) in codes.items():
        scores = q @ k.transpose(1, 2)
        places = torch.arange(scores.shape[1])
        distance = (places[:, None] - places).abs()
        spreads = []
        for d in range(len(places)):
            same = scores[:, distance == d]
            spreads.append((same.amax(1) - same.amin(1)).max())
        if max(spreads) <= tolerance:
            found.append(name)
    return found


# %% 13.3 equal_to_the_last_bit
# says: you asked for scores that are equal to the last bit: sines and cosines are rounded, so
# compare with the tolerance
def relative_codes(codes, tolerance):
    found = []
    for name, (q, k) in codes.items():
        scores = q @ k.transpose(1, 2)
        if (scores[:, 1:, 1:] == scores[:, :-1, :-1]).all():
            found.append(name)
    return found


# %% 13.3 first_pair_only
# says: one pair that keeps the promise was enough for you: the first query and key here are all
# zeros, and a code that adds to the vectors shows itself only in the others
def relative_codes(codes, tolerance):
    found = []
    for name, (q, k) in codes.items():
        scores = q[0] @ k[0].T
        if (scores[1:, 1:] - scores[:-1, :-1]).abs().max() <= tolerance:
            found.append(name)
    return found


# %% 13.3 mean_over_the_pairs
# says: you averaged over the N pairs before you compared: here the errors of a pair and of its
# negative cancel, and yet each of them breaks the promise
def relative_codes(codes, tolerance):
    found = []
    for name, (q, k) in codes.items():
        scores = (q @ k.transpose(1, 2)).mean(0)
        if (scores[1:, 1:] - scores[:-1, :-1]).abs().max() <= tolerance:
            found.append(name)
    return found


# %% 13.3 main_diagonal
# says: you compared only the scores with i = j: there all rotations cancel, whatever the angles
def relative_codes(codes, tolerance):
    found = []
    for name, (q, k) in codes.items():
        scores = (q * k).sum(-1)
        if (scores.amax(-1) - scores.amin(-1)).max() <= tolerance:
            found.append(name)
    return found


# %% 13.3 keys_behind_only
# says: all scores are 1 here, but that of query 3 and key 9 is 2: look at every distance, also
# where the key is ahead of the query, and at every score of that distance
def relative_codes(codes, tolerance):
    found = []
    for name, (queries_NTK, keys_NTK) in codes.items():
        scores_NTT = queries_NTK @ keys_NTK.transpose(1, 2)
        lines = [scores_NTT.diagonal(-d, 1, 2) for d in range(scores_NTT.shape[1])]
        if all((line.amax(-1) - line.amin(-1)).max() <= tolerance for line in lines):
            found.append(name)
    return found


# %% 13.4 stays_wide
# says: your answer is no tensor of bfloat16: go back to the dtype of x after the division, or every
# layer behind this one computes in float32
def rmsnorm_16(x_TD, gain_D, eps):
    wide = x_TD.float()
    return gain_D * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt())


# %% 13.4 sum_in_16_bits
# says: 2,048 ones are not normalised to ones. Is their sum kept in bfloat16? It stops at 256, as
# 256 + 1 is 256 there. Add in float32
import torch


def rmsnorm_16(x_TD, gain_D, eps):
    total = torch.zeros_like(x_TD[:, 0])
    for column in x_TD.T:
        total = total + column * column
    rms = (total.float() / x_TD.shape[1] + eps).sqrt()
    return gain_D * (x_TD.float() / rms[:, None]).to(x_TD.dtype)


# %% 13.4 squares_in_16_bits
# says: eight entries of 300 in float16 do not become ones: their squares, or the mean of those, are
# in float16 with you, and 90,000 is infinite there
def rmsnorm_16(x_TD, gain_D, eps):
    mean_square = x_TD.square().float().mean(-1, keepdim=True)
    return gain_D * (x_TD.float() * (mean_square + eps).rsqrt()).to(x_TD.dtype)


# %% 13.4 all_in_16_bits
# says: eight entries of 300 in float16 do not become ones: their squares, or the mean of those, are
# in float16 with you, and 90,000 is infinite there
def rmsnorm_16(x_TD, gain_D, eps):
    return gain_D * (x_TD * (x_TD.square().mean(-1, keepdim=True) + eps).rsqrt())


# %% 13.4 divisor_rounded
# says: with a gain of 1, more than one entry in a hundred is off: something was rounded to
# bfloat16 before the division was done. Divide in float32, too
def rmsnorm_16(x_TD, gain_D, eps):
    inverse = (x_TD.float().square().mean(-1, keepdim=True) + eps).rsqrt()
    return gain_D * (x_TD * inverse.to(x_TD.dtype))


# %% 13.4 gain_before_rounding
# says: with a gain, more than one entry in a hundred is not Llama's: it rounds first and then
# multiplies. The other order rounds once less, but a checkpoint was trained with this one
def rmsnorm_16(x_TD, gain_D, eps):
    wide = x_TD.float()
    normed = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (gain_D.float() * normed).to(x_TD.dtype)
