"""Typical wrong answers to the exercises of chapter 03, and what the checks say to them."""

import math

import torch


# %% 03.1 reads_the_diagonal
# says: you read the diagonal: its entries are curvatures only if the valley lies along the axes.
# The curvatures are the eigenvalues
def learning_rates(hessian):
    curvatures = hessian.diagonal()
    if curvatures.min() < 0:
        return None
    curvatures = curvatures[curvatures > 0]
    return 2 / curvatures.max(), 2 / (curvatures.min() + curvatures.max())


# %% 03.1 one_over_the_largest
# says: you took 1/λmax, which brings the steepest direction to the minimum in one step; up to twice
# that rate it still comes to rest, on a zig-zag
def learning_rates(hessian):
    eigenvalues = torch.linalg.eigvalsh(hessian)
    largest = eigenvalues[-1]
    if eigenvalues[0] < -1e-9 * largest:
        return None
    smallest = eigenvalues[eigenvalues > 1e-9 * largest].min()
    return 1 / largest, 2 / (smallest + largest)


# %% 03.1 sum_of_a_row
# says: the critical rate is 2/λmax with λmax = 4 + 2√2 = 6.83: sums of rows or of the diagonal are
# larger, and only bound it
def learning_rates(hessian):
    eigenvalues = torch.linalg.eigvalsh(hessian)
    largest = eigenvalues[-1]
    if eigenvalues[0] < -1e-9 * largest:
        return None
    smallest = eigenvalues[eigenvalues > 1e-9 * largest].min()
    return 2 / hessian.abs().sum(1).max(), 2 / (smallest + largest)


# %% 03.1 best_for_the_steepest
# says: the best rate makes the slowest of all directions as fast as it can be. There the gentlest
# and the steepest are equally slow: 2/(λmin + λmax) = 0.25
def learning_rates(hessian):
    eigenvalues = torch.linalg.eigvalsh(hessian)
    if eigenvalues[0] < -1e-9 * eigenvalues[-1]:
        return None
    return 2 / eigenvalues[-1], 1 / eigenvalues[-1]


# %% 03.1 counts_the_flat
# says: you counted a flat direction as the gentlest: nothing moves along it. The curvatures of this
# one are 0, 1 and 3, so the best rate is 2/(1 + 3)
def learning_rates(hessian):
    eigenvalues = torch.linalg.eigvalsh(hessian)
    if eigenvalues[0] < -1e-9 * eigenvalues[-1]:
        return None
    return 2 / eigenvalues[-1], 2 / (eigenvalues[0] + eigenvalues[-1])


# %% 03.1 misses_the_saddle
# says: this Hessian has the eigenvalue −1: along that direction the landscape curves downwards and
# every learning rate leads away
def learning_rates(hessian):
    sizes = torch.linalg.eigvalsh(hessian).abs()
    sizes = sizes[sizes > 1e-9 * sizes.max()]
    return 2 / sizes.max(), 2 / (sizes.min() + sizes.max())


# %% 03.2 the_steepest_alone
# says: you counted for the steepest direction alone, which needs 10 steps: the gentle one is
# multiplied by 0.95 and needs 135
def steps_to_thousandth(curvatures, rate):
    factor = abs(1 - rate * max(curvatures))
    if factor >= 1:
        return math.inf
    return math.ceil(math.log(1e-3) / math.log(factor)) if factor else 1


# %% 03.2 the_gentlest_alone
# says: you counted for the gentlest direction alone: close to the critical rate the steep one is
# the slowest, with a factor of −0.99
def steps_to_thousandth(curvatures, rate):
    if rate * max(curvatures) >= 2:
        return math.inf
    factor = abs(1 - rate * min(curvatures))
    return math.ceil(math.log(1e-3) / math.log(factor)) if factor else 1


# %% 03.2 zigzag_runs_away
# says: you took a zig-zag for running away: a factor of −0.5 shrinks as fast as 0.5
def steps_to_thousandth(curvatures, rate):
    factors = [1 - rate * curvature for curvature in curvatures]
    if min(factors) < 0:
        return math.inf
    slowest = max(factors)
    return math.ceil(math.log(1e-3) / math.log(slowest)) if slowest else 1


# %% 03.2 rounds_down
# says: you rounded down: after 345 steps the coordinates are still above a thousandth. Round up
def steps_to_thousandth(curvatures, rate):
    slowest = max(abs(1 - rate * curvature) for curvature in curvatures)
    if slowest >= 1:
        return math.inf
    return int(math.log(1e-3) / math.log(slowest)) if slowest else 1


# %% 03.2 no_step_for_zero
# says: a factor of 0 arrives in one step: not in none, and it needs no logarithm
def steps_to_thousandth(curvatures, rate):
    slowest = max(abs(1 - rate * curvature) for curvature in curvatures)
    if slowest >= 1:
        return math.inf
    return math.ceil(math.log(1e-3) / math.log(slowest)) if slowest else 0


# %% 03.2 negative_steps
# says: from 2/λmax on the steepest direction never arrives, and the number of steps is infinite
def steps_to_thousandth(curvatures, rate):
    slowest = max(abs(1 - rate * curvature) for curvature in curvatures)
    if slowest == 1:
        return math.inf
    return math.ceil(math.log(1e-3) / math.log(slowest)) if slowest else 1


# %% 03.3 pools_the_windows
# says: you pooled the windows of all batches: the optimizer gets one mean for each batch, so the
# window in the last, shorter batch has twice the weight of the others
def bias_and_error(gradients, batches):
    full = gradients.mean(0)
    drawn = [place for batch in batches for place in batch]
    errors = [(gradients[batch].mean(0) - full).square().sum() for batch in batches]
    return gradients[drawn].mean(0) - full, sum(errors) / len(errors)


# %% 03.3 adds_within_a_batch
# says: you added within a batch: its gradient is the mean over its windows
def bias_and_error(gradients, batches):
    estimates = torch.stack([gradients[batch].sum(0) for batch in batches])
    errors = estimates - gradients.mean(0)
    return errors.mean(0), errors.square().sum(1).mean()


# %% 03.3 knows_only_what_it_draws
# says: you compared with the windows that the loader draws: it never draws the last one, and the
# bias is the distance to the mean over all
def bias_and_error(gradients, batches):
    drawn = sorted({place for batch in batches for place in batch})
    estimates = torch.stack([gradients[batch].mean(0) for batch in batches])
    errors = estimates - gradients[drawn].mean(0)
    return errors.mean(0), errors.square().sum(1).mean()


# %% 03.3 averages_then_squares
# says: you averaged before you squared: errors in opposite directions then cancel, and what is left
# is the square of the bias
def bias_and_error(gradients, batches):
    estimates = torch.stack([gradients[batch].mean(0) for batch in batches])
    bias = estimates.mean(0) - gradients.mean(0)
    return bias, bias.square().sum()


# %% 03.3 around_its_own_mean
# says: the squared error is the distance to g, not to the mean of the loader's own gradients: the
# bias is part of it. Add the squares of all entries
def bias_and_error(gradients, batches):
    estimates = torch.stack([gradients[batch].mean(0) for batch in batches])
    own = estimates.mean(0)
    return own - gradients.mean(0), (estimates - own).square().sum(1).mean()


# %% 03.3 drops_repeats
# says: you dropped repeated windows: in the batch (0, 0, 1) window 0 counts twice
def bias_and_error(gradients, batches):
    estimates = torch.stack([gradients[sorted(set(batch))].mean(0) for batch in batches])
    errors = estimates - gradients.mean(0)
    return errors.mean(0), errors.square().sum(1).mean()


# %% 03.4 the_other_way
# says: you went the other way: 0.05 comes to rest in the first and runs away in the second, so the
# second is steeper and has to be multiplied by less than 1
def possible_factors(first, second):
    low = [max(rate for rate, rested in seen if rested) for seen in (first, second)]
    high = [min(rate for rate, rested in seen if not rested) for seen in (first, second)]
    return low[0] / high[1], high[0] / low[1]


# %% 03.4 one_rate_each
# says: you compared one rate with one rate: of each critical rate only two limits are known, so of
# the factor too
def possible_factors(first, second):
    sweet = [max(rate for rate, rested in seen if rested) for seen in (first, second)]
    return sweet[1] / sweet[0], sweet[1] / sweet[0]


# %% 03.4 like_with_like
# says: you compared rest with rest and ruin with ruin: the factor is smallest if the second
# critical rate is as low and the first as high as can be
def possible_factors(first, second):
    low = [max(rate for rate, rested in seen if rested) for seen in (first, second)]
    high = [min(rate for rate, rested in seen if not rested) for seen in (first, second)]
    return tuple(sorted((low[1] / low[0], high[1] / high[0])))


# %% 03.4 takes_the_widest
# says: use the highest rate that came to rest and the lowest that ran away: the others say less
# about the critical rate
def possible_factors(first, second):
    low = [min(rate for rate, rested in seen if rested) for seen in (first, second)]
    high = [max(rate for rate, rested in seen if not rested) for seen in (first, second)]
    return low[1] / high[0], high[1] / low[0]


# %% 03.4 by_their_place
# says: you took the rates by their place in the list: they come in any order
def possible_factors(first, second):
    low = [[rate for rate, rested in seen if rested][-1] for seen in (first, second)]
    high = [next(rate for rate, rested in seen if not rested) for seen in (first, second)]
    return low[1] / high[0], high[1] / low[0]
