"""Typical wrong answers to the exercises of chapter 14, and what the checks say to them."""

# %% 14.1 least_probable
# says: you chose the least probable experts: a sort puts the smallest first unless it is told
# otherwise
import torch


def choose_experts(scores_NE, k):
    p_NE = torch.softmax(scores_NE, -1)
    order_NE = scores_NE.sort(dim=-1, stable=True).indices
    experts_NK = order_NE[:, :k]
    chosen_NK = p_NE.gather(-1, experts_NK)
    return chosen_NK / chosen_NK.sum(-1, keepdim=True), experts_NK


# %% 14.1 numbers_in_order
# says: your experts stand in the order of their numbers: the most probable comes first, and each
# weight must stand at the place of its own expert
import torch


def choose_experts(scores_NE, k):
    p_NE = torch.softmax(scores_NE, -1)
    order_NE = scores_NE.sort(dim=-1, descending=True, stable=True).indices
    experts_NK = order_NE[:, :k]
    chosen_NK = p_NE.gather(-1, experts_NK)
    return chosen_NK / chosen_NK.sum(-1, keepdim=True), experts_NK.sort(-1).values


# %% 14.1 not_divided
# says: your weights are the probabilities as they are: those of the experts that were not chosen
# are missing in the sum, so the weights of a token do not add up to 1
import torch


def choose_experts(scores_NE, k):
    p_NE = torch.softmax(scores_NE, -1)
    order_NE = scores_NE.sort(dim=-1, descending=True, stable=True).indices
    experts_NK = order_NE[:, :k]
    chosen_NK = p_NE.gather(-1, experts_NK)
    return chosen_NK, experts_NK


# %% 14.1 second_softmax
# says: you took a softmax of probabilities, a second one: that makes the weights nearly equal.
# Divide by the sum
import torch


def choose_experts(scores_NE, k):
    p_NE = torch.softmax(scores_NE, -1)
    order_NE = scores_NE.sort(dim=-1, descending=True, stable=True).indices
    experts_NK = order_NE[:, :k]
    chosen_NK = p_NE.gather(-1, experts_NK)
    return torch.softmax(chosen_NK, -1), experts_NK


# %% 14.1 sigmoid
# says: you scored each expert by a sigmoid of its own, as DeepSeek-V3 does: a softmax compares all
# experts of the token
import torch


def choose_experts(scores_NE, k):
    p_NE = torch.sigmoid(scores_NE)
    order_NE = scores_NE.sort(dim=-1, descending=True, stable=True).indices
    experts_NK = order_NE[:, :k]
    chosen_NK = p_NE.gather(-1, experts_NK)
    return chosen_NK / chosen_NK.sum(-1, keepdim=True), experts_NK


# %% 14.1 flipped_sort
# says: of equally probable experts the lower number comes first: flipping an ascending sort turns
# ties round as well, and topk promises nothing
import torch


def choose_experts(scores_NE, k):
    p_NE = torch.softmax(scores_NE, -1)
    order_NE = scores_NE.argsort(dim=-1, stable=True).flip(-1)
    experts_NK = order_NE[:, :k]
    chosen_NK = p_NE.gather(-1, experts_NK)
    return chosen_NK / chosen_NK.sum(-1, keepdim=True), experts_NK


# %% 14.2 without_e
# says: the factor E is missing: with it an even use gives 1, however many experts there are
import torch


def balance(p_NE, experts_NK):
    num_experts = p_NE.shape[-1]
    counts_E = torch.bincount(experts_NK.flatten(), minlength=num_experts)
    share_E = counts_E.to(p_NE.dtype) / experts_NK.numel()
    return (share_E * p_NE.mean(0)).sum()


# %% 14.2 not_divided_by_k
# says: you divided by the number of tokens, and each made two choices: a share is of all choices, N
# times k
import torch


def balance(p_NE, experts_NK):
    num_experts = p_NE.shape[-1]
    counts_E = torch.bincount(experts_NK.flatten(), minlength=num_experts)
    share_E = counts_E.to(p_NE.dtype) / len(experts_NK)
    return num_experts * (share_E * p_NE.mean(0)).sum()


# %% 14.2 variance_of_shares
# says: yours is 0 when the choices are even, as a variance of the counts would be: this loss is
# then 1. Counts alone have no gradient from which a router could learn
import torch


def balance(p_NE, experts_NK):
    num_experts = p_NE.shape[-1]
    counts_E = torch.bincount(experts_NK.flatten(), minlength=num_experts)
    share_E = counts_E.to(p_NE.dtype) / experts_NK.numel()
    return share_E.var(unbiased=False)


# %% 14.2 first_choices
# says: you counted the first choices alone: with k = 2 the second one sends a row to an expert, too
import torch


def balance(p_NE, experts_NK):
    num_experts = p_NE.shape[-1]
    counts_E = torch.bincount(experts_NK[:, 0], minlength=num_experts)
    share_E = counts_E.to(p_NE.dtype) / len(experts_NK)
    return num_experts * (share_E * p_NE.mean(0)).sum()


# %% 14.2 squared_probabilities
# says: you squared the mean probabilities: one of the two factors is the share of the choices,
# which is what has to become even
def balance(p_NE, experts_NK):
    return p_NE.shape[-1] * p_NE.mean(0).square().sum()


# %% 14.2 squared_shares
# says: you squared the shares: choices are counted and have no gradient. One factor has to be the
# mean probability, which the router can change
import torch


def balance(p_NE, experts_NK):
    num_experts = p_NE.shape[-1]
    counts_E = torch.bincount(experts_NK.flatten(), minlength=num_experts)
    share_E = counts_E.to(p_NE.dtype) / experts_NK.numel()
    return num_experts * share_E.square().sum()


# %% 14.3 without_k
# says: your capacity is that of one choice for a token: four tokens with two choices are eight
# rows, and k belongs into the capacity
import math

import torch


def after_drops(weights_NK, experts_NK, num_experts, factor):
    num_tokens = len(experts_NK)
    room = [math.ceil(factor * num_tokens / num_experts)] * num_experts
    kept_NK = torch.zeros_like(weights_NK)
    for n, experts in enumerate(experts_NK.tolist()):
        for place, e in enumerate(experts):
            if room[e] > 0:
                room[e] -= 1
                kept_NK[n, place] = weights_NK[n, place]
    return kept_NK


# %% 14.3 greatest_weights
# says: you kept the greatest weights of each expert: here who comes first is kept, in the order of
# the tokens. Weights play no part
import math

import torch


def after_drops(weights_NK, experts_NK, num_experts, factor):
    num_tokens, k = experts_NK.shape
    capacity = math.ceil(factor * num_tokens * k / num_experts)
    kept_NK = torch.zeros_like(weights_NK)
    for e in range(num_experts):
        rows = (experts_NK == e).nonzero().tolist()
        rows.sort(key=lambda row: -weights_NK[tuple(row)])
        for n, place in rows[:capacity]:
            kept_NK[n, place] = weights_NK[n, place]
    return kept_NK


# %% 14.3 first_choices_first
# says: you let all first choices in before the second ones: some systems do, but here a token's
# second choice comes before the first choice of a later token
import math

import torch


def after_drops(weights_NK, experts_NK, num_experts, factor):
    num_tokens, k = experts_NK.shape
    room = [math.ceil(factor * num_tokens * k / num_experts)] * num_experts
    kept_NK = torch.zeros_like(weights_NK)
    for place in range(k):
        for n, e in enumerate(experts_NK[:, place].tolist()):
            if room[e] > 0:
                room[e] -= 1
                kept_NK[n, place] = weights_NK[n, place]
    return kept_NK


# %% 14.3 brought_to_sum_1
# says: you brought the weights that are left to sum 1: what is dropped adds nothing, and the other
# weights stay as they are
import math

import torch


def after_drops(weights_NK, experts_NK, num_experts, factor):
    num_tokens, k = experts_NK.shape
    room = [math.ceil(factor * num_tokens * k / num_experts)] * num_experts
    kept_NK = torch.zeros_like(weights_NK)
    for n, experts in enumerate(experts_NK.tolist()):
        for place, e in enumerate(experts):
            if room[e] > 0:
                room[e] -= 1
                kept_NK[n, place] = weights_NK[n, place]
    total_N1 = kept_NK.sum(-1, keepdim=True)
    return kept_NK / total_N1.where(total_N1 > 0, 1)


# %% 14.3 whole_token_dropped
# says: you dropped the last token with both its choices: expert 0 was full, but expert 3 has room
# for it
import math

import torch


def after_drops(weights_NK, experts_NK, num_experts, factor):
    num_tokens, k = experts_NK.shape
    room = [math.ceil(factor * num_tokens * k / num_experts)] * num_experts
    kept_NK = torch.zeros_like(weights_NK)
    for n, experts in enumerate(experts_NK.tolist()):
        for place, e in enumerate(experts):
            if room[e] > 0:
                room[e] -= 1
                kept_NK[n, place] = weights_NK[n, place]
    return kept_NK * (kept_NK != 0).all(-1, keepdim=True)


# %% 14.3 rounded_down
# says: three rows for two experts: 1.5 is rounded up to 2, not down. Otherwise there would be room
# for fewer rows than there are
import math

import torch


def after_drops(weights_NK, experts_NK, num_experts, factor):
    num_tokens, k = experts_NK.shape
    room = [math.floor(factor * num_tokens * k / num_experts)] * num_experts
    kept_NK = torch.zeros_like(weights_NK)
    for n, experts in enumerate(experts_NK.tolist()):
        for place, e in enumerate(experts):
            if room[e] > 0:
                room[e] -= 1
                kept_NK[n, place] = weights_NK[n, place]
    return kept_NK


# %% 14.4 everything_eight_times
# says: you multiplied attention, and perhaps all the rest, by the number of experts: 8 x 7 = 56 is
# a name, not a count. Only the feed-forward network is there eight times
def total_and_active(
    *,
    num_layers,
    num_dense,
    width,
    vocab_size,
    attention,
    dense_hidden,
    expert_hidden,
    num_experts,
    experts_per_token,
    num_shared,
):
    expert = 3 * width * expert_hidden
    num_mixtures = num_layers - num_dense
    always = (
        2 * vocab_size * width
        + (2 * num_layers + 1) * width
        + num_layers * attention
        + num_dense * 3 * width * dense_hidden
        + num_mixtures * (num_experts * width + num_shared * expert)
    )
    total = num_experts * (always + num_mixtures * expert)
    active = always + num_mixtures * experts_per_token * expert
    return total, active


# %% 14.4 without_the_router
# says: the router is missing: in each mixture it has a row of `width` numbers for every expert
def total_and_active(
    *,
    num_layers,
    num_dense,
    width,
    vocab_size,
    attention,
    dense_hidden,
    expert_hidden,
    num_experts,
    experts_per_token,
    num_shared,
):
    expert = 3 * width * expert_hidden
    num_mixtures = num_layers - num_dense
    always = (
        2 * vocab_size * width
        + (2 * num_layers + 1) * width
        + num_layers * attention
        + num_dense * 3 * width * dense_hidden
        + num_mixtures * num_shared * expert
    )
    total = always + num_mixtures * num_experts * expert
    active = always + num_mixtures * experts_per_token * expert
    return total, active


# %% 14.4 everything_active
# says: you count all experts as active: a token uses two of the eight in each layer, and the others
# do no arithmetic for it
def total_and_active(
    *,
    num_layers,
    num_dense,
    width,
    vocab_size,
    attention,
    dense_hidden,
    expert_hidden,
    num_experts,
    experts_per_token,
    num_shared,
):
    expert = 3 * width * expert_hidden
    num_mixtures = num_layers - num_dense
    always = (
        2 * vocab_size * width
        + (2 * num_layers + 1) * width
        + num_layers * attention
        + num_dense * 3 * width * dense_hidden
        + num_mixtures * (num_experts * width + num_shared * expert)
    )
    total = always + num_mixtures * num_experts * expert
    active = total
    return total, active


# %% 14.4 rows_of_the_chosen
# says: you count the router's rows of the chosen experts alone: to choose, the router computes the
# scores of all experts
def total_and_active(
    *,
    num_layers,
    num_dense,
    width,
    vocab_size,
    attention,
    dense_hidden,
    expert_hidden,
    num_experts,
    experts_per_token,
    num_shared,
):
    expert = 3 * width * expert_hidden
    num_mixtures = num_layers - num_dense
    always = (
        2 * vocab_size * width
        + (2 * num_layers + 1) * width
        + num_layers * attention
        + num_dense * 3 * width * dense_hidden
        + num_mixtures * (num_experts * width + num_shared * expert)
    )
    total = always + num_mixtures * num_experts * expert
    active = always + num_mixtures * experts_per_token * expert
    active -= num_mixtures * (num_experts - experts_per_token) * width
    return total, active


# %% 14.4 without_shared_experts
# says: the shared expert is missing: in each of the two mixtures it stands beside the routed ones,
# and every token uses it
def total_and_active(
    *,
    num_layers,
    num_dense,
    width,
    vocab_size,
    attention,
    dense_hidden,
    expert_hidden,
    num_experts,
    experts_per_token,
    num_shared,
):
    expert = 3 * width * expert_hidden
    num_mixtures = num_layers - num_dense
    always = (
        2 * vocab_size * width
        + (2 * num_layers + 1) * width
        + num_layers * attention
        + num_dense * 3 * width * dense_hidden
        + num_mixtures * num_experts * width
    )
    total = always + num_mixtures * num_experts * expert
    active = always + num_mixtures * experts_per_token * expert
    return total, active


# %% 14.4 first_layers_too
# says: you gave every layer a mixture: the first `num_dense` have one feed-forward network in its
# place, and no router
def total_and_active(
    *,
    num_layers,
    num_dense,
    width,
    vocab_size,
    attention,
    dense_hidden,
    expert_hidden,
    num_experts,
    experts_per_token,
    num_shared,
):
    expert = 3 * width * expert_hidden
    num_mixtures = num_layers
    always = (
        2 * vocab_size * width
        + (2 * num_layers + 1) * width
        + num_layers * attention
        + num_mixtures * (num_experts * width + num_shared * expert)
    )
    total = always + num_mixtures * num_experts * expert
    active = always + num_mixtures * experts_per_token * expert
    return total, active


# %% 14.5 sign_turned
# says: the sign is turned: this is the gradient, and the step against it is the optimizer's
import torch


def router_gradient(dy_ND, results_NKD, scores_NE, experts_NK):
    w_NK = torch.softmax(scores_NE.gather(-1, experts_NK), -1)
    dw_NK = (dy_ND[:, None] * results_NKD).sum(-1)
    dscores_NK = w_NK * ((w_NK * dw_NK).sum(-1, keepdim=True) - dw_NK)
    return torch.zeros_like(scores_NE).scatter(-1, experts_NK, dscores_NK)


# %% 14.5 softmax_over_all
# says: you used the probabilities as weights, without dividing by the sum of the chosen ones: then
# experts that were not chosen would get a gradient, too
import torch


def router_gradient(dy_ND, results_NKD, scores_NE, experts_NK):
    p_NE = torch.softmax(scores_NE, -1)
    dw_NK = (dy_ND[:, None] * results_NKD).sum(-1)
    dp_NE = torch.zeros_like(scores_NE).scatter(-1, experts_NK, dw_NK)
    return p_NE * (dp_NE - (p_NE * dp_NE).sum(-1, keepdim=True))


# %% 14.5 divisor_held
# says: you held the divisor still: the sum of the chosen probabilities moves with every one of them
import torch


def router_gradient(dy_ND, results_NKD, scores_NE, experts_NK):
    p_NE = torch.softmax(scores_NE, -1)
    dw_NK = (dy_ND[:, None] * results_NKD).sum(-1)
    total_N1 = p_NE.gather(-1, experts_NK).sum(-1, keepdim=True)
    dp_NE = torch.zeros_like(scores_NE).scatter(-1, experts_NK, dw_NK / total_N1)
    return p_NE * (dp_NE - (p_NE * dp_NE).sum(-1, keepdim=True))


# %% 14.5 softmax_not_passed
# says: that is the gradient for the weights: from there a softmax is still to be passed, back to
# the scores
import torch


def router_gradient(dy_ND, results_NKD, scores_NE, experts_NK):
    dw_NK = (dy_ND[:, None] * results_NKD).sum(-1)
    return torch.zeros_like(scores_NE).scatter(-1, experts_NK, dw_NK)


# %% 14.5 own_weight_alone
# says: each score moves its own weight alone in your formula: the weights add up to 1, so what one
# gains the other chosen ones lose
import torch


def router_gradient(dy_ND, results_NKD, scores_NE, experts_NK):
    w_NK = torch.softmax(scores_NE.gather(-1, experts_NK), -1)
    dw_NK = (dy_ND[:, None] * results_NKD).sum(-1)
    dscores_NK = w_NK * (1 - w_NK) * dw_NK
    return torch.zeros_like(scores_NE).scatter(-1, experts_NK, dscores_NK)


# %% 14.5 first_columns
# says: your gradients stand in the first k columns, in the order of the choices: each belongs in
# the column of its expert
import torch


def router_gradient(dy_ND, results_NKD, scores_NE, experts_NK):
    w_NK = torch.softmax(scores_NE.gather(-1, experts_NK), -1)
    dw_NK = (dy_ND[:, None] * results_NKD).sum(-1)
    dscores_NK = w_NK * (dw_NK - (w_NK * dw_NK).sum(-1, keepdim=True))
    dscores_NE = torch.zeros_like(scores_NE)
    dscores_NE[:, : dscores_NK.shape[1]] = dscores_NK
    return dscores_NE
