"""Typical wrong answers to the exercises of chapter 25, and what the checks say to them."""


# %% 25.1 no_correction
# says: you did not correct for the start at 0: 0.3 / sqrt(0.009) is 3.16, and the first step is
# 3.16 times too long
def adamw_step(w, g, m, v, step, lr, beta1, beta2, eps, decay):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m
    v_hat = v
    w = (1 - lr * decay) * w
    return w - lr * m_hat / (v_hat.sqrt() + eps), m, v


# %% 25.1 corrected_means_kept
# says: you return the corrected means: the next step would correct them once more. m and v are
# kept as they are
def adamw_step(w, g, m, v, step, lr, beta1, beta2, eps, decay):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    w = (1 - lr * decay) * w
    return w - lr * m_hat / (v_hat.sqrt() + eps), m_hat, v_hat


# %% 25.1 eps_under_the_root
# says: you add eps under the root: it is added to the root
def adamw_step(w, g, m, v, step, lr, beta1, beta2, eps, decay):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    w = (1 - lr * decay) * w
    return w - lr * m_hat / (v_hat + eps).sqrt(), m, v


# %% 25.1 eps_before_the_correction
# says: you add eps to the root of v, and correct afterwards: then the correction changes eps as
# well, 32 times in the first step
def adamw_step(w, g, m, v, step, lr, beta1, beta2, eps, decay):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**step)
    root = (v.sqrt() + eps) / (1 - beta2**step) ** 0.5
    w = (1 - lr * decay) * w
    return w - lr * m_hat / root, m, v


# %% 25.1 decay_in_the_gradient
# says: your decay went into the gradient: there it is divided by its own size, and becomes a step
# of one learning rate
def adamw_step(w, g, m, v, step, lr, beta1, beta2, eps, decay):
    g = g + decay * w
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    return w - lr * m_hat / (v_hat.sqrt() + eps), m, v


# %% 25.1 decay_without_the_rate
# says: your decay takes away a tenth of the weight: its share is lr x decay, 0.01
def adamw_step(w, g, m, v, step, lr, beta1, beta2, eps, decay):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    w = (1 - decay) * w
    return w - lr * m_hat / (v_hat.sqrt() + eps), m, v


# %% 25.2 not_corrected
# says: you did not correct: after the first step the weight of the only number is 0.1, and the
# mean a tenth of it
def corrected_means(values, betas):
    mean, weight_of_zero, corrected = 0.0, 1.0, []
    for value, beta in zip(values, betas, strict=True):
        mean = beta * mean + (1 - beta) * value
        weight_of_zero *= beta
        corrected.append(mean)
    return corrected


# %% 25.2 divided_by_one_step
# says: you divide by 1 - beta in every step: after two steps the weights add up to 0.1 + 0.09
def corrected_means(values, betas):
    mean, weight_of_zero, corrected = 0.0, 1.0, []
    for value, beta in zip(values, betas, strict=True):
        mean = beta * mean + (1 - beta) * value
        weight_of_zero *= beta
        corrected.append(mean / (1 - beta))
    return corrected


# %% 25.2 corrected_carried_on
# says: you carry the corrected mean on to the next step: correct a copy, and go on with the mean
# itself
def corrected_means(values, betas):
    mean, weight_of_zero, corrected = 0.0, 1.0, []
    for value, beta in zip(values, betas, strict=True):
        mean = beta * mean + (1 - beta) * value
        weight_of_zero *= beta
        mean = mean / (1 - weight_of_zero)
        corrected.append(mean)
    return corrected


# %% 25.2 plain_mean
# says: you took the plain mean: the second number has the weight 0.25, and the first only three
# quarters of that
def corrected_means(values, betas):
    return [sum(values[:count]) / count for count in range(1, len(values) + 1)]


# %% 25.2 latest_beta_to_the_t
# says: you take the latest beta to the power of t: the 0 was multiplied by 0.5 and then by 0.75,
# not twice by 0.75
def corrected_means(values, betas):
    mean, corrected = 0.0, []
    for step, (value, beta) in enumerate(zip(values, betas, strict=True), start=1):
        mean = beta * mean + (1 - beta) * value
        corrected.append(mean / (1 - beta**step))
    return corrected


# %% 25.2 first_beta_to_the_t
# says: you take the first beta to the power of t: the 0 was multiplied by 0.5 and then by 0.75,
# not twice by 0.5
def corrected_means(values, betas):
    mean, corrected = 0.0, []
    for step, (value, beta) in enumerate(zip(values, betas, strict=True), start=1):
        mean = beta * mean + (1 - beta) * value
        corrected.append(mean / (1 - betas[0] ** step))
    return corrected


# %% 25.3 without_curvature
# says: you left the curvature out: in a flat loss the gradient is weak, and decay wins sooner. At
# rest c (w - a) + decay w = 0
def resting_place(goal, curvature, decay, optimizer, beside):
    if optimizer == "Adam" and beside and decay > 0:
        wall = 1 / decay
        return max(-wall, min(goal, wall))
    return goal / (1 + decay)


# %% 25.3 decay_as_a_share
# says: you took the decay as the share that is lost in all: it is lost in every step, and the
# gradient brings something back in every step
def resting_place(goal, curvature, decay, optimizer, beside):
    if optimizer == "Adam" and beside and decay > 0:
        wall = 1 / decay
        return max(-wall, min(goal, wall))
    return goal * (1 - decay)


# %% 25.3 wall_inside_too
# says: Adam with the decay inside sees one gradient, c (w - a) + decay w. While it is not 0, Adam
# moves: no limit at 1 / decay
def resting_place(goal, curvature, decay, optimizer, beside):
    if optimizer == "Adam" and decay > 0:
        wall = 1 / decay
        return max(-wall, min(goal, wall))
    return goal * curvature / (curvature + decay)


# %% 25.3 adamw_like_sgd
# says: you let AdamW rest where SGD does: but its step is as long for small gradients as for
# large ones, so it is not the size of the gradient that balances the decay
def resting_place(goal, curvature, decay, optimizer, beside):
    return goal * curvature / (curvature + decay)


# %% 25.3 adamw_shrinks_all_alike
# says: your AdamW shrinks every weight by a share: at 2.9 Adam pulls 1 learning rate towards 3,
# and the decay 0.725 away from it. Adam is the stronger, up to the goal
def resting_place(goal, curvature, decay, optimizer, beside):
    if optimizer == "Adam" and beside and decay > 0:
        wall = 1 / decay
        return goal / (1 + decay)
    return goal * curvature / (curvature + decay)


# %% 25.3 wall_on_one_side
# says: a goal below 0 has its wall at -1 / decay
def resting_place(goal, curvature, decay, optimizer, beside):
    if optimizer == "Adam" and beside and decay > 0:
        wall = 1 / decay
        return min(goal, wall)
    return goal * curvature / (curvature + decay)


# %% 25.4 each_rank_alone
# says: each rank, or each entry, was clipped alone: 3 and 4 became equal, so that the direction
# has changed. All gradients are multiplied by one number
import math


def clip(shards, copies, max_norm):
    def joint(gradients):
        return math.sqrt(sum(g.square().sum().item() for g in gradients))

    def scaled(gradients, norm):
        return [max_norm / norm * g if norm > max_norm else g for g in gradients]

    norms = [joint(own + shared) for own, shared in zip(shards, copies, strict=True)]
    return (
        joint([g for own in shards for g in own] + copies[0]),
        [scaled(own, norm) for own, norm in zip(shards, norms, strict=True)],
        [scaled(shared, norm) for shared, norm in zip(copies, norms, strict=True)],
    )


# %% 25.4 norms_added
# says: you added norms: 3 and 4 are at right angles, and their joint norm is 5. Add squares
def clip(shards, copies, max_norm):
    once = [g for of_rank in shards for g in of_rank] + copies[0]
    norm = sum(g.norm().item() for g in once)
    factor = max_norm / norm if norm > max_norm else 1.0

    def scaled(gradients):
        return [[factor * g for g in of_rank] for of_rank in gradients]

    return norm, scaled(shards), scaled(copies)


# %% 25.4 norm_afterwards
# says: that is the norm after clipping: return the one before, which tells of spikes
import math


def clip(shards, copies, max_norm):
    once = [g for of_rank in shards for g in of_rank] + copies[0]
    norm = math.sqrt(sum(g.square().sum().item() for g in once))
    factor = max_norm / norm if norm > max_norm else 1.0

    def scaled(gradients):
        return [[factor * g for g in of_rank] for of_rank in gradients]

    return norm * factor, scaled(shards), scaled(copies)


# %% 25.4 copies_on_every_rank
# says: you counted the copies once for every rank: it is one parameter, which both ranks have.
# With more ranks the norm would grow, and the model would be another
import math


def clip(shards, copies, max_norm):
    once = [g for of_rank in shards for g in of_rank] + [g for of_rank in copies for g in of_rank]
    norm = math.sqrt(sum(g.square().sum().item() for g in once))
    factor = max_norm / norm if norm > max_norm else 1.0

    def scaled(gradients):
        return [[factor * g for g in of_rank] for of_rank in gradients]

    return norm, scaled(shards), scaled(copies)


# %% 25.4 copies_left_out
# says: you left the copies out of the norm: they are parameters of the model, too
import math


def clip(shards, copies, max_norm):
    once = [g for of_rank in shards for g in of_rank]
    norm = math.sqrt(sum(g.square().sum().item() for g in once))
    factor = max_norm / norm if norm > max_norm else 1.0

    def scaled(gradients):
        return [[factor * g for g in of_rank] for of_rank in gradients]

    return norm, scaled(shards), scaled(copies)


# %% 25.4 always_scaled
# says: a norm of 0.5 is not above 1: such gradients stay, and are not made longer
import math


def clip(shards, copies, max_norm):
    once = [g for of_rank in shards for g in of_rank] + copies[0]
    norm = math.sqrt(sum(g.square().sum().item() for g in once))
    factor = max_norm / norm if norm else 1.0

    def scaled(gradients):
        return [[factor * g for g in of_rank] for of_rank in gradients]

    return norm, scaled(shards), scaled(copies)
