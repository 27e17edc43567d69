"""Typical wrong answers to the exercises of chapter 28, and what the checks say to them."""

# %% 28.1 spikes_enter
# says: your spikes enter the memory: after two of them a value of 9 passes for usual
import math


def verdicts(values, window, factor, least_rise, patience):
    said, usual, in_a_row = [], [], 0
    for value in values:
        limit = math.inf
        if len(usual) == window:
            median = statistics.median(usual)
            spread = 1.4826 * statistics.median(abs(u - median) for u in usual)
            limit = median + max(factor * spread, least_rise)
        if not math.isfinite(value):
            said.append("not finite")
        elif value <= limit:
            usual = [*usual, value][-window:]
            in_a_row = 0
            said.append("fine")
        else:
            in_a_row += 1
            usual = [*usual, value][-window:]
            said.append("spike")
            if in_a_row == patience:
                usual, in_a_row = [value], 0
                said[-1] = "new level"
    return said


# %% 28.1 mean_and_deviation
# says: 20 is no spike to you, after 1, 2, 4, 3, 100. A mean and a standard deviation run after
# the 100; the median stays at 3, and the limit at 5.97
import math


def verdicts(values, window, factor, least_rise, patience):
    said, usual, in_a_row = [], [], 0
    for value in values:
        limit = math.inf
        if len(usual) == window:
            median = statistics.mean(usual)
            spread = statistics.pstdev(usual)
            limit = median + max(factor * spread, least_rise)
        if not math.isfinite(value):
            said.append("not finite")
        elif value <= limit:
            usual = [*usual, value][-window:]
            in_a_row = 0
            said.append("fine")
        else:
            in_a_row += 1
            said.append("spike")
            if in_a_row == patience:
                usual, in_a_row = [value], 0
                said[-1] = "new level"
    return said


# %% 28.1 without_the_constant
# says: 5.5 is a spike to you: the distance of 1 is multiplied by 1.4826, which makes it the
# standard deviation of a normal distribution, and then by the factor. The limit is 5.97
import math


def verdicts(values, window, factor, least_rise, patience):
    said, usual, in_a_row = [], [], 0
    for value in values:
        limit = math.inf
        if len(usual) == window:
            median = statistics.median(usual)
            spread = statistics.median(abs(u - median) for u in usual)
            limit = median + max(factor * spread, least_rise)
        if not math.isfinite(value):
            said.append("not finite")
        elif value <= limit:
            usual = [*usual, value][-window:]
            in_a_row = 0
            said.append("fine")
        else:
            in_a_row += 1
            said.append("spike")
            if in_a_row == patience:
                usual, in_a_row = [value], 0
                said[-1] = "new level"
    return said


# %% 28.1 least_rise_added
# says: least_rise is not added to the spreads: the larger of the two counts. After 1, 2, 3 the
# limit is 2 + max(2.97, 1) = 4.97, and after 2, 2, 2 it is 2 + max(0, 1) = 3
import math


def verdicts(values, window, factor, least_rise, patience):
    said, usual, in_a_row = [], [], 0
    for value in values:
        limit = math.inf
        if len(usual) == window:
            median = statistics.median(usual)
            spread = 1.4826 * statistics.median(abs(u - median) for u in usual)
            limit = median + factor * spread + least_rise
        if not math.isfinite(value):
            said.append("not finite")
        elif value <= limit:
            usual = [*usual, value][-window:]
            in_a_row = 0
            said.append("fine")
        else:
            in_a_row += 1
            said.append("spike")
            if in_a_row == patience:
                usual, in_a_row = [value], 0
                said[-1] = "new level"
    return said


# %% 28.1 nan_compared
# says: NaN is in no order to any number, so that NaN > limit is False: ask first whether a value
# is finite, and do not remember it if it is not
import math


def verdicts(values, window, factor, least_rise, patience):
    said, usual, in_a_row = [], [], 0
    for value in values:
        limit = math.inf
        if len(usual) == window:
            median = statistics.median(usual)
            spread = 1.4826 * statistics.median(abs(u - median) for u in usual)
            limit = median + max(factor * spread, least_rise)
        if math.isinf(value):
            said.append("not finite")
        elif not value > limit:
            usual = [*usual, value][-window:]
            in_a_row = 0
            said.append("fine")
        else:
            in_a_row += 1
            said.append("spike")
            if in_a_row == patience:
                usual, in_a_row = [value], 0
                said[-1] = "new level"
    return said


# %% 28.1 patience_in_all
# says: patience is for spikes in a row: the 2.0 between the first two ends the row, and NaN
# neither ends it nor counts
import math


def verdicts(values, window, factor, least_rise, patience):
    said, usual, in_a_row = [], [], 0
    for value in values:
        limit = math.inf
        if len(usual) == window:
            median = statistics.median(usual)
            spread = 1.4826 * statistics.median(abs(u - median) for u in usual)
            limit = median + max(factor * spread, least_rise)
        if not math.isfinite(value):
            said.append("not finite")
        elif value <= limit:
            usual = [*usual, value][-window:]
            said.append("fine")
        else:
            in_a_row += 1
            said.append("spike")
            if in_a_row == patience:
                usual, in_a_row = [value], 0
                said[-1] = "new level"
    return said


# %% 28.2 newer_snapshot
# says: you returned to the snapshot before batch 20: of two, the older one is brought back, here
# that before batch 10
def replay(num_batches, every, noticed, skip):
    trained, snapshots, rewinds, goes_on = [], [], [], 0
    for batch in range(num_batches):
        if batch < goes_on:
            continue
        if batch % every == 0:
            snapshots = [*snapshots, (batch, list(trained))][-2:]
        trained.append(batch)
        if batch in noticed:
            snapshots = snapshots[-1:]
            kept_at, state = snapshots[0]
            trained = list(state)
            rewinds.append((batch, kept_at))
            goes_on = batch + 1 + skip
    return trained, rewinds


# %% 28.2 data_turned_back
# says: you turned the data back as well: the run would meet the batches before the spike again,
# and the spike with them. They are lost
def replay(num_batches, every, noticed, skip):
    trained, snapshots, rewinds, batch, met = [], [], [], 0, set()
    while batch < num_batches:
        if batch % every == 0:
            snapshots = [*snapshots, (batch, list(trained))][-2:]
        trained.append(batch)
        if batch in noticed and batch not in met:
            met.add(batch)
            snapshots = snapshots[:1]
            kept_at, state = snapshots[0]
            trained = list(state)
            rewinds.append((batch, kept_at))
            batch = kept_at + skip
        else:
            batch += 1
    return trained, rewinds


# %% 28.2 newer_kept
# says: after the first return, the snapshot before batch 20 is thrown away: it may already hold
# the seed of the trouble. So at 33 the older one is that before batch 10 again
def replay(num_batches, every, noticed, skip):
    trained, snapshots, rewinds, goes_on = [], [], [], 0
    for batch in range(num_batches):
        if batch < goes_on:
            continue
        if batch % every == 0:
            snapshots = [*snapshots, (batch, list(trained))][-2:]
        trained.append(batch)
        if batch in noticed:
            kept_at, state = snapshots[0]
            trained = list(state)
            rewinds.append((batch, kept_at))
            goes_on = batch + 1 + skip
    return trained, rewinds


# %% 28.2 no_copy
# says: batch 23 is still in the weights after the run went back: a snapshot must be a copy, and
# yours changed along with the weights
def replay(num_batches, every, noticed, skip):
    trained, snapshots, rewinds, goes_on = [], [], [], 0
    for batch in range(num_batches):
        if batch < goes_on:
            continue
        if batch % every == 0:
            snapshots = [*snapshots, (batch, trained)][-2:]
        trained.append(batch)
        if batch in noticed:
            snapshots = snapshots[:1]
            kept_at, state = snapshots[0]
            trained = state
            rewinds.append((batch, kept_at))
            goes_on = batch + 1 + skip
    return trained, rewinds


# %% 28.2 copied_once
# says: batch 25 is in the weights, though the run went back to batch 10 after it: you went on
# training in the snapshot itself, which was needed a second time
def replay(num_batches, every, noticed, skip):
    trained, snapshots, rewinds, goes_on = [], [], [], 0
    for batch in range(num_batches):
        if batch < goes_on:
            continue
        if batch % every == 0:
            snapshots = [*snapshots, (batch, list(trained))][-2:]
        trained.append(batch)
        if batch in noticed:
            snapshots = snapshots[:1]
            kept_at, state = snapshots[0]
            trained = state
            rewinds.append((batch, kept_at))
            goes_on = batch + 1 + skip
    return trained, rewinds


# %% 28.2 snapshots_while_skipping
# says: on a skipped batch nothing happens: 24 to 43 are skipped, and no snapshot is taken before
# 30 and 40; at 46 the run returns to 10 and skips the rest, also batch 50
def replay(num_batches, every, noticed, skip):
    trained, snapshots, rewinds, goes_on = [], [], [], 0
    for batch in range(num_batches):
        if batch % every == 0:
            snapshots = [*snapshots, (batch, list(trained))][-2:]
        if batch < goes_on:
            continue
        trained.append(batch)
        if batch in noticed:
            snapshots = snapshots[:1]
            kept_at, state = snapshots[0]
            trained = list(state)
            rewinds.append((batch, kept_at))
            goes_on = batch + 1 + skip
    return trained, rewinds


# %% 28.3 length_1
# says: you scaled the vectors to length 1. Root mean square 1 is length √K; with length 1 no
# score exceeds 1/√K, and the softmax could hardly choose
import math
import torch


def scores_and_limit(q_TD, k_TD, gain_q_K, gain_k_K, num_heads, eps):

    def ready(x_TD, gain_K):
        x_THK = x_TD.unflatten(-1, (num_heads, -1))
        scale_TH1 = torch.rsqrt(x_THK.square().sum(-1, keepdim=True) + eps)
        return rotate(gain_K * scale_TH1 * x_THK)

    q_THK, k_SHK = ready(q_TD, gain_q_K), ready(k_TD, gain_k_K)
    root = math.sqrt(q_THK.shape[-1])
    scores_HTS = torch.einsum("thk,shk->hts", q_THK, k_SHK) / root

    return scores_HTS, root * gain_q_K.abs().max().item() * gain_k_K.abs().max().item()


# %% 28.3 keys_left
# says: a query or a key that is ten times as long gives another score: both are to be normalised,
# since either of them can grow
import math
import torch


def scores_and_limit(q_TD, k_TD, gain_q_K, gain_k_K, num_heads, eps):

    def ready(x_TD, gain_K):
        x_THK = x_TD.unflatten(-1, (num_heads, -1))
        scale_TH1 = torch.rsqrt(x_THK.square().mean(-1, keepdim=True) + eps)
        return rotate(gain_K * scale_TH1 * x_THK)

    q_THK, k_SHK = ready(q_TD, gain_q_K), rotate(gain_k_K * k_TD.unflatten(-1, (num_heads, -1)))
    root = math.sqrt(q_THK.shape[-1])
    scores_HTS = torch.einsum("thk,shk->hts", q_THK, k_SHK) / root

    return scores_HTS, root * gain_q_K.abs().max().item() * gain_k_K.abs().max().item()


# %% 28.3 over_all_heads
# says: you took the mean square over all heads together: a head with longer vectors than the
# others then has larger scores, and √K is no limit. Each head is normalised by itself
import math
import torch


def scores_and_limit(q_TD, k_TD, gain_q_K, gain_k_K, num_heads, eps):

    def ready(x_TD, gain_K):
        x_THK = x_TD.unflatten(-1, (num_heads, -1))
        scale_TH1 = torch.rsqrt(x_THK.square().mean((-2, -1), keepdim=True) + eps)
        return rotate(gain_K * scale_TH1 * x_THK)

    q_THK, k_SHK = ready(q_TD, gain_q_K), ready(k_TD, gain_k_K)
    root = math.sqrt(q_THK.shape[-1])
    scores_HTS = torch.einsum("thk,shk->hts", q_THK, k_SHK) / root

    return scores_HTS, root * gain_q_K.abs().max().item() * gain_k_K.abs().max().item()


# %% 28.3 gain_after_rotation
# says: the gain belongs to the norm, ahead of the rotation: after it, channels have been mixed,
# and a gain for each of them would depend on the position
import math
import torch


def scores_and_limit(q_TD, k_TD, gain_q_K, gain_k_K, num_heads, eps):

    def ready(x_TD, gain_K):
        x_THK = x_TD.unflatten(-1, (num_heads, -1))
        scale_TH1 = torch.rsqrt(x_THK.square().mean(-1, keepdim=True) + eps)
        return gain_K * rotate(scale_TH1 * x_THK)

    q_THK, k_SHK = ready(q_TD, gain_q_K), ready(k_TD, gain_k_K)
    root = math.sqrt(q_THK.shape[-1])
    scores_HTS = torch.einsum("thk,shk->hts", q_THK, k_SHK) / root

    return scores_HTS, root * gain_q_K.abs().max().item() * gain_k_K.abs().max().item()


# %% 28.3 undivided
# says: q · k is divided by √K also with QK-norm
import math
import torch


def scores_and_limit(q_TD, k_TD, gain_q_K, gain_k_K, num_heads, eps):

    def ready(x_TD, gain_K):
        x_THK = x_TD.unflatten(-1, (num_heads, -1))
        scale_TH1 = torch.rsqrt(x_THK.square().mean(-1, keepdim=True) + eps)
        return rotate(gain_K * scale_TH1 * x_THK)

    q_THK, k_SHK = ready(q_TD, gain_q_K), ready(k_TD, gain_k_K)
    root = math.sqrt(q_THK.shape[-1])
    scores_HTS = torch.einsum("thk,shk->hts", q_THK, k_SHK)

    return scores_HTS, root * gain_q_K.abs().max().item() * gain_k_K.abs().max().item()


# %% 28.3 signed_gains
# says: gains of (1, -3, 2, 1) and at most 0.5, K = 4: the limit is 2 × 3 × 0.5 = 3. A gain of -3
# makes a vector as long as one of 3
import math
import torch


def scores_and_limit(q_TD, k_TD, gain_q_K, gain_k_K, num_heads, eps):

    def ready(x_TD, gain_K):
        x_THK = x_TD.unflatten(-1, (num_heads, -1))
        scale_TH1 = torch.rsqrt(x_THK.square().mean(-1, keepdim=True) + eps)
        return rotate(gain_K * scale_TH1 * x_THK)

    q_THK, k_SHK = ready(q_TD, gain_q_K), ready(k_TD, gain_k_K)
    root = math.sqrt(q_THK.shape[-1])
    scores_HTS = torch.einsum("thk,shk->hts", q_THK, k_SHK) / root

    return scores_HTS, root * gain_q_K.max().item() * gain_k_K.max().item()


# %% 28.4 nan_slips_through
# says: you found nothing, though a gradient is NaN: all outputs are good here, so you have to
# look through backward, and NaN > largest is False
import torch


def first_bad(layers, x, slope, largest):

    def tensors():
        for place, (_, weight) in enumerate(layers):
            if weight is not None:
                yield place, "weight", weight
        h, passed = x, []
        for place, (kind, weight) in enumerate(layers):
            leaves = [h.detach().requires_grad_()]
            if weight is not None:
                leaves.append(weight.detach().requires_grad_())
            h = compute(kind, leaves[-1], leaves[0])
            passed.append((leaves, h))
            yield place, "output", h.detach()
        gradient = slope
        for place, (leaves, output) in reversed(list(enumerate(passed))):
            yield place, "gradient of the output", gradient
            gradient, *of_weight = torch.autograd.grad(output, leaves, gradient)
            for values in of_weight:
                yield place, "gradient of the weight", values

    for place, what, values in tensors():
        bad = values.abs() > largest
        if bad.any():
            return place, what, bad.double().mean().item()
    return None


# %% 28.4 infinity_slips_through
# says: e¹⁰⁰ is infinite in float32, and infinite is bad also where largest is infinity: inf > inf
# is False, and inf <= inf is True
import torch


def first_bad(layers, x, slope, largest):

    def tensors():
        for place, (_, weight) in enumerate(layers):
            if weight is not None:
                yield place, "weight", weight
        h, passed = x, []
        for place, (kind, weight) in enumerate(layers):
            leaves = [h.detach().requires_grad_()]
            if weight is not None:
                leaves.append(weight.detach().requires_grad_())
            h = compute(kind, leaves[-1], leaves[0])
            passed.append((leaves, h))
            yield place, "output", h.detach()
        gradient = slope
        for place, (leaves, output) in reversed(list(enumerate(passed))):
            yield place, "gradient of the output", gradient
            gradient, *of_weight = torch.autograd.grad(output, leaves, gradient)
            for values in of_weight:
                yield place, "gradient of the weight", values

    for place, what, values in tensors():
        bad = ~(values.abs() <= largest)
        if bad.any():
            return place, what, bad.double().mean().item()
    return None


# %% 28.4 forward_alone
# says: you found nothing, though a gradient is NaN: all outputs are good here, so you have to
# look through backward, and NaN > largest is False
import torch


def first_bad(layers, x, slope, largest):

    def tensors():
        for place, (_, weight) in enumerate(layers):
            if weight is not None:
                yield place, "weight", weight
        h, passed = x, []
        for place, (kind, weight) in enumerate(layers):
            leaves = [h.detach().requires_grad_()]
            if weight is not None:
                leaves.append(weight.detach().requires_grad_())
            h = compute(kind, leaves[-1], leaves[0])
            passed.append((leaves, h))
            yield place, "output", h.detach()
        gradient = slope
        for place, (leaves, output) in []:
            yield place, "gradient of the output", gradient
            gradient, *of_weight = torch.autograd.grad(output, leaves, gradient)
            for values in of_weight:
                yield place, "gradient of the weight", values

    for place, what, values in tensors():
        bad = ~values.isfinite() | (values.abs() > largest)
        if bad.any():
            return place, what, bad.double().mean().item()
    return None


# %% 28.4 gradients_from_layer_0
# says: you went through the gradients from layer 0 on. Backward begins at the last layer: what
# layer 0 receives has already passed through all others
import torch


def first_bad(layers, x, slope, largest):

    def gradients(passed):
        found, gradient = [], slope
        for place, (leaves, output) in reversed(list(enumerate(passed))):
            own, (gradient, *of_weight) = gradient, torch.autograd.grad(output, leaves, gradient)
            found.insert(0, (place, own, of_weight))
        return found

    def tensors():
        for place, (_, weight) in enumerate(layers):
            if weight is not None:
                yield place, "weight", weight
        h, passed = x, []
        for place, (kind, weight) in enumerate(layers):
            leaves = [h.detach().requires_grad_()]
            if weight is not None:
                leaves.append(weight.detach().requires_grad_())
            h = compute(kind, leaves[-1], leaves[0])
            passed.append((leaves, h))
            yield place, "output", h.detach()
        for place, gradient, of_weight in gradients(passed):
            yield place, "gradient of the output", gradient
            for values in of_weight:
                yield place, "gradient of the weight", values

    for place, what, values in tensors():
        bad = ~values.isfinite() | (values.abs() > largest)
        if bad.any():
            return place, what, bad.double().mean().item()
    return None


# %% 28.4 weights_in_their_turn
# says: all weights come first. e²⁰ is above 10⁶ as well, but it is an output, and what is stored
# in the model is looked at before anything is computed
import torch


def first_bad(layers, x, slope, largest):

    def tensors():
        h, passed = x, []
        for place, (kind, weight) in enumerate(layers):
            if weight is not None:
                yield place, "weight", weight
            leaves = [h.detach().requires_grad_()]
            if weight is not None:
                leaves.append(weight.detach().requires_grad_())
            h = compute(kind, leaves[-1], leaves[0])
            passed.append((leaves, h))
            yield place, "output", h.detach()
        gradient = slope
        for place, (leaves, output) in reversed(list(enumerate(passed))):
            yield place, "gradient of the output", gradient
            gradient, *of_weight = torch.autograd.grad(output, leaves, gradient)
            for values in of_weight:
                yield place, "gradient of the weight", values

    for place, what, values in tensors():
        bad = ~values.isfinite() | (values.abs() > largest)
        if bad.any():
            return place, what, bad.double().mean().item()
    return None


# %% 28.4 gradient_of_the_input
# says: you named layer 2, the entropy, whose output has a good gradient, `slope`. What it hands
# down is bad, and that is the gradient of the output of layer 1
import torch


def first_bad(layers, x, slope, largest):

    def tensors():
        for place, (_, weight) in enumerate(layers):
            if weight is not None:
                yield place, "weight", weight
        h, passed = x, []
        for place, (kind, weight) in enumerate(layers):
            leaves = [h.detach().requires_grad_()]
            if weight is not None:
                leaves.append(weight.detach().requires_grad_())
            h = compute(kind, leaves[-1], leaves[0])
            passed.append((leaves, h))
            yield place, "output", h.detach()
        gradient = slope
        for place, (leaves, output) in reversed(list(enumerate(passed))):
            gradient, *of_weight = torch.autograd.grad(output, leaves, gradient)
            yield place, "gradient of the output", gradient
            for values in of_weight:
                yield place, "gradient of the weight", values

    for place, what, values in tensors():
        bad = ~values.isfinite() | (values.abs() > largest)
        if bad.any():
            return place, what, bad.double().mean().item()
    return None
