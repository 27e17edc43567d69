"""Typical wrong answers to the exercises of chapter 15, and what the checks say to them."""

# %% 15.1 rows_first
# says: you cut the first matrix by rows: then x G is a sum over the ranks, and silu of a summand
# is not a summand of silu. It would need an all-reduce in the middle
import torch


def network_on_rank(x, gate_up, down, bias, rank, num_ranks):
    own = gate_up.chunk(num_ranks, dim=0)[rank]
    gate, up = own.chunk(2, dim=1)
    own_x = x.chunk(num_ranks, dim=1)[rank]
    own_down = down.chunk(num_ranks, dim=1)[rank]
    summand = (torch.nn.functional.silu(own_x @ gate) * (own_x @ up)) @ own_down
    return own, own_down, summand


# %% 15.1 columns_twice
# says: you cut both matrices by columns: then each rank needs all hidden units, which have to be
# gathered in the middle. With its rows of down it needs its own only
import torch


def network_on_rank(x, gate_up, down, bias, rank, num_ranks):
    gate, up = gate_up.chunk(2, dim=1)
    hidden = torch.nn.functional.silu(x @ gate) * (x @ up)
    own = torch.cat([w.chunk(num_ranks, dim=1)[rank] for w in (gate, up)], dim=1)
    own_down = down.chunk(num_ranks, dim=1)[rank]
    return own, own_down, hidden @ own_down


# %% 15.1 fused_as_it_stands
# says: you cut gate_up as it stands: of two ranks, one has all of G and the other all of U. The
# product needs both columns of a hidden unit on one rank
import torch


def network_on_rank(x, gate_up, down, bias, rank, num_ranks):
    own = gate_up.chunk(num_ranks, dim=1)[rank]
    gate, up = own.chunk(2, dim=1)
    own_down = down.chunk(num_ranks, dim=0)[rank]
    summand = (torch.nn.functional.silu(x @ gate) * (x @ up)) @ own_down
    if rank == 0:
        summand = summand + bias
    return own, own_down, summand


# %% 15.1 bias_on_every_rank
# says: the bias is in the sum twice: each of the two ranks adds it, and then all are summed
import torch


def network_on_rank(x, gate_up, down, bias, rank, num_ranks):
    gate, up = (w.chunk(num_ranks, dim=1)[rank] for w in gate_up.chunk(2, dim=1))
    own_down = down.chunk(num_ranks, dim=0)[rank]
    summand = (torch.nn.functional.silu(x @ gate) * (x @ up)) @ own_down + bias
    return torch.cat([gate, up], dim=1), own_down, summand


# %% 15.1 mean_over_ranks
# says: you divide by the number of ranks: the all-reduce adds up summands, it takes no mean
import torch


def network_on_rank(x, gate_up, down, bias, rank, num_ranks):
    gate, up = (w.chunk(num_ranks, dim=1)[rank] for w in gate_up.chunk(2, dim=1))
    own_down = down.chunk(num_ranks, dim=0)[rank]
    summand = (torch.nn.functional.silu(x @ gate) * (x @ up)) @ own_down + bias
    return torch.cat([gate, up], dim=1), own_down, summand / num_ranks


# %% 15.1 silu_of_the_second_half
# says: you took silu of x U: the gate is the first half of the columns
import torch


def network_on_rank(x, gate_up, down, bias, rank, num_ranks):
    gate, up = (w.chunk(num_ranks, dim=1)[rank] for w in gate_up.chunk(2, dim=1))
    own_down = down.chunk(num_ranks, dim=0)[rank]
    summand = ((x @ gate) * torch.nn.functional.silu(x @ up)) @ own_down
    if rank == 0:
        summand = summand + bias
    return torch.cat([gate, up], dim=1), own_down, summand


# %% 15.2 first_not_subtracted
# says: id 2 got row 4: you do not subtract first. On this rank, row 2 of the table is rows[0]
import torch


def embed_on_rank(ids, rows, first, dy):
    mine = ids < len(rows)
    summand, drows = torch.zeros_like(dy), torch.zeros_like(rows)
    summand[mine] = rows[ids[mine]]
    drows.index_add_(0, ids[mine], dy[mine])
    return summand, drows


# %% 15.2 remainder
# says: you take the remainder, and so find a row for every id: an id of another rank adds zeros
import torch


def embed_on_rank(ids, rows, first, dy):
    places = (ids - first) % len(rows)
    return rows[places], torch.zeros_like(rows).index_add_(0, places, dy)


# %% 15.2 counted_from_the_end
# says: id 0 stands two places before this rank's rows, and rows[-2] raised no error: it is the
# last row but one. Exclude what is below 0
import torch


def embed_on_rank(ids, rows, first, dy):
    places = ids - first
    mine = (places >= -len(rows)) & (places < len(rows))
    summand, drows = torch.zeros_like(dy), torch.zeros_like(rows)
    summand[mine] = rows[places[mine]]
    drows.index_put_((places[mine],), dy[mine], accumulate=True)
    return summand, drows


# %% 15.2 no_mask
# says: ids 0 and 5 are of other ranks and have to add zeros: with some row of this rank in their
# place the sum is wrong
import torch


def embed_on_rank(ids, rows, first, dy):
    places = (ids - first).clamp(0, len(rows) - 1)
    return rows[places], torch.zeros_like(rows).index_add_(0, places, dy)


# %% 15.2 overwritten
# says: id 4 occurs twice, and one of its two gradients overwrote the other: they add up
import torch


def embed_on_rank(ids, rows, first, dy):
    places = ids - first
    mine = (places >= 0) & (places < len(rows))
    summand, drows = torch.zeros_like(dy), torch.zeros_like(rows)
    summand[mine] = rows[places[mine]]
    for place, d in zip(places[mine].tolist(), dy[mine], strict=True):
        drows[place] = d
    return summand, drows


# %% 15.2 only_forward_masked
# says: the gradients of ids 0 and 5 went into your first row: to look up row 0 in their place,
# and clear the result, clears nothing backward
import torch


def embed_on_rank(ids, rows, first, dy):
    places = ids - first
    mine = (places >= 0) & (places < len(rows))
    places = torch.where(mine, places, 0)
    summand = rows[places].masked_fill(~mine[:, None], 0.0)
    return summand, torch.zeros_like(rows).index_add_(0, places, dy)


# %% 15.3 divided_in_the_chunk
# says: you divide within the chunk: a mean of attentions over chunks is not attention over all
# keys, because the chunks do not have equal weight. Divide once, after the last chunk
import math

import torch


def ring_step(state, q, k, v, q_positions, k_positions):
    largest, total, out = state
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(k_positions > q_positions[:, None], -math.inf)
    seen = scores.amax(dim=1) > -math.inf
    attention = scores.softmax(dim=1).nan_to_num() @ v
    return torch.maximum(largest, scores.amax(dim=1)), total + seen, out + attention


# %% 15.3 largest_of_the_first_chunk
# says: the largest score is still that of the first chunk: a much larger score that comes later
# would overflow
import math


def ring_step(state, q, k, v, q_positions, k_positions):
    largest, total, out = state
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(k_positions > q_positions[:, None], -math.inf)
    new = largest.where(largest > -math.inf, scores.amax(dim=1))
    shift = new.where(new > -math.inf, 0.0)
    weights = (scores - shift[:, None]).exp()
    return new, total + weights.sum(1), out + weights @ v


# %% 15.3 not_rescaled
# says: the sum so far was taken relative to the old largest score: multiply it by exp(old - new)
# before you add to it
import math

import torch


def ring_step(state, q, k, v, q_positions, k_positions):
    largest, total, out = state
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(k_positions > q_positions[:, None], -math.inf)
    new = torch.maximum(largest, scores.amax(dim=1))
    shift = new.where(new > -math.inf, 0.0)
    weights = (scores - shift[:, None]).exp()
    return new, total + weights.sum(1), out + weights @ v


# %% 15.3 only_the_sum_rescaled
# says: the sum of values has to be rescaled like the sum of exponentials, by exp(old - new)
import math

import torch


def ring_step(state, q, k, v, q_positions, k_positions):
    largest, total, out = state
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(k_positions > q_positions[:, None], -math.inf)
    new = torch.maximum(largest, scores.amax(dim=1))
    shift = new.where(new > -math.inf, 0.0)
    weights = (scores - shift[:, None]).exp()
    return new, (largest - shift).exp() * total + weights.sum(1), out + weights @ v


# %% 15.3 mask_by_places_in_the_chunk
# says: your mask goes by places in the chunk: the query at position 1 has looked at the key at
# position 2, since both are the first of their rank. Compare positions in the sequence
import math

import torch


def ring_step(state, q, k, v, q_positions, k_positions):
    largest, total, out = state
    scores = q @ k.T / math.sqrt(q.shape[1])
    allowed = torch.ones_like(scores, dtype=torch.bool).tril()
    scores = scores.masked_fill(~allowed, -math.inf)
    new = torch.maximum(largest, scores.amax(dim=1))
    shift = new.where(new > -math.inf, 0.0)
    weights = (scores - shift[:, None]).exp()
    kept = (largest - shift).exp()
    return new, kept * total + weights.sum(1), kept[:, None] * out + weights @ v


# %% 15.3 nothing_to_look_at
# says: NaN: a chunk came in which a query may look at nothing, and it had seen nothing before.
# Then -inf minus -inf is NaN
import math

import torch


def ring_step(state, q, k, v, q_positions, k_positions):
    largest, total, out = state
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(k_positions > q_positions[:, None], -math.inf)
    new = torch.maximum(largest, scores.amax(dim=1))
    weights = (scores - new[:, None]).exp()
    kept = (largest - new).exp()
    return new, kept * total + weights.sum(1), kept[:, None] * out + weights @ v


# %% 15.4 experts_dealt_out
# says: you dealt the experts out in turn: a rank owns neighbours, rank 0 the experts 0 and 1
def plan_of(chosen, num_experts):
    ranks = range(len(chosen))
    sent = [[sum(e % len(chosen) == d for e in experts) for d in ranks] for experts in chosen]
    received = [[sent[s][r] for s in ranks] for r in ranks]
    starts, places = [], [[None] * len(experts) for experts in chosen]
    for owner in ranks:
        of_owner, place = [], 0
        for expert in range(owner, num_experts, len(chosen)):
            of_owner.append(place)
            for r in ranks:
                for i, e in enumerate(chosen[r]):
                    if e == expert:
                        places[r][i] = (owner, place)
                        place += 1
        starts.append(of_owner)
    return sent, received, starts, places


# %% 15.4 own_rows_left_out
# says: you left out the rows that stay on their rank: no wire carries them, but the expert has to
# compute on them as well
def plan_of(chosen, num_experts):
    ranks, share = range(len(chosen)), num_experts // len(chosen)
    sent = [
        [sum(e // share == d for e in chosen[r]) if d != r else 0 for d in ranks] for r in ranks
    ]
    received = [[sent[s][r] for s in ranks] for r in ranks]
    starts, places = [], [[None] * len(experts) for experts in chosen]
    for owner in ranks:
        of_owner, place = [], 0
        for expert in range(owner * share, (owner + 1) * share):
            of_owner.append(place)
            for r in ranks:
                for i, e in enumerate(chosen[r]):
                    if e == expert:
                        places[r][i] = (owner, place)
                        place += 1
        starts.append(of_owner)
    return sent, received, starts, places


# %% 15.4 sent_and_received_exchanged
# says: sent and received are the wrong way round: sent[0] lists what rank 0 has for each other
# rank
def plan_of(chosen, num_experts):
    ranks, share = range(len(chosen)), num_experts // len(chosen)
    received = [[sum(e // share == d for e in experts) for d in ranks] for experts in chosen]
    sent = [[received[s][r] for s in ranks] for r in ranks]
    starts, places = [], [[None] * len(experts) for experts in chosen]
    for owner in ranks:
        of_owner, place = [], 0
        for expert in range(owner * share, (owner + 1) * share):
            of_owner.append(place)
            for r in ranks:
                for i, e in enumerate(chosen[r]):
                    if e == expert:
                        places[r][i] = (owner, place)
                        place += 1
        starts.append(of_owner)
    return sent, received, starts, places


# %% 15.4 empty_expert_dropped
# says: expert 2 has no rows, and you left it out: then the rows of expert 3 go to expert 2, which
# is first in the list
def plan_of(chosen, num_experts):
    ranks, share = range(len(chosen)), num_experts // len(chosen)
    sent = [[sum(e // share == d for e in experts) for d in ranks] for experts in chosen]
    received = [[sent[s][r] for s in ranks] for r in ranks]
    starts, places = [], [[None] * len(experts) for experts in chosen]
    for owner in ranks:
        of_owner, place = [], 0
        used = {e for experts in chosen for e in experts if e // share == owner}
        for expert in sorted(used):
            of_owner.append(place)
            for r in ranks:
                for i, e in enumerate(chosen[r]):
                    if e == expert:
                        places[r][i] = (owner, place)
                        place += 1
        starts.append(of_owner)
    return sent, received, starts, places


# %% 15.4 ends_in_place_of_starts
# says: you list where the rows of an expert end: they begin where those of the expert before it
# end, and the first begins at 0
def plan_of(chosen, num_experts):
    ranks, share = range(len(chosen)), num_experts // len(chosen)
    sent = [[sum(e // share == d for e in experts) for d in ranks] for experts in chosen]
    received = [[sent[s][r] for s in ranks] for r in ranks]
    starts, places = [], [[None] * len(experts) for experts in chosen]
    for owner in ranks:
        of_owner, place = [], 0
        for expert in range(owner * share, (owner + 1) * share):
            for r in ranks:
                for i, e in enumerate(chosen[r]):
                    if e == expert:
                        places[r][i] = (owner, place)
                        place += 1
            of_owner.append(place)
        starts.append(of_owner)
    return sent, received, starts, places


# %% 15.4 by_rank_before_expert
# says: your rows are sorted by the rank that they came from, as they arrive: expert 0 would find
# its rows at places 0 and 2. Sort by expert first
def plan_of(chosen, num_experts):
    ranks, share = range(len(chosen)), num_experts // len(chosen)
    sent = [[sum(e // share == d for e in experts) for d in ranks] for experts in chosen]
    received = [[sent[s][r] for s in ranks] for r in ranks]
    places = [[None] * len(experts) for experts in chosen]
    starts = []
    for owner in ranks:
        own = range(owner * share, (owner + 1) * share)
        place = 0
        for r in ranks:
            for expert in own:
                for i, e in enumerate(chosen[r]):
                    if e == expert:
                        places[r][i] = (owner, place)
                        place += 1
        every = [e for experts in chosen for e in experts]
        starts.append([sum(own[0] <= e < expert for e in every) for expert in own])
    return sent, received, starts, places


# %% 15.5 last_step
# says: you compare losses of later steps: after the first update the weights differ, whatever the
# fault is. Only the first step has the same weights in all runs
import math


def name_fault(alone, runs, num_kv_heads):
    def everywhere(ratios, expected):
        return all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ratios, expected, strict=True))

    ones = [1] * len(runs)
    losses = [run["losses"][-1] / alone["losses"][-1] for run in runs]
    norms = [run["norms"][-1] / alone["norms"][-1] for run in runs]
    if not everywhere(losses, ones):
        return "cp mean"
    if everywhere(norms, ones):
        return "none"
    if everywhere(norms, [run["dp"] for run in runs]):
        return "dp sum"
    if everywhere(norms, [math.sqrt(run["tp"]) for run in runs]):
        return "tp norm"
    few = [r for r, run in zip(norms, runs, strict=True) if run["tp"] <= num_kv_heads]
    return "kv copies" if everywhere(few, ones[: len(few)]) else "tp entrance"


# %% 15.5 first_run_alone
# says: a ratio of 2 with dp = 2 and tp = 4 may be dp or the root of tp: the first run alone does
# not tell, and some run that fits does not suffice. The ratios of all runs have to fit
import math


def name_fault(alone, runs, num_kv_heads):
    run = runs[0]
    norm = run["norms"][0] / alone["norms"][0]
    if not math.isclose(run["losses"][0], alone["losses"][0], rel_tol=1e-9):
        return "cp mean"
    if math.isclose(norm, 1, rel_tol=1e-9):
        return "none"
    if math.isclose(norm, run["dp"], rel_tol=1e-9):
        return "dp sum"
    if math.isclose(norm, math.sqrt(run["tp"]), rel_tol=1e-9):
        return "tp norm"
    return "kv copies" if run["tp"] > num_kv_heads else "tp entrance"


# %% 15.5 factor_without_root
# says: here the first norms are 2, 1 and 1.414 times that of one process, with tp 4, 1 and 2. It
# is squares that are summed once too often: a factor of tp in the sum is its root in the norm. At
# later steps the weights differ, and so does the ratio
import math


def name_fault(alone, runs, num_kv_heads):
    def everywhere(ratios, expected):
        return all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ratios, expected, strict=True))

    ones = [1] * len(runs)
    losses = [run["losses"][0] / alone["losses"][0] for run in runs]
    norms = [run["norms"][0] / alone["norms"][0] for run in runs]
    if not everywhere(losses, ones):
        return "cp mean"
    if everywhere(norms, ones):
        return "none"
    if everywhere(norms, [run["dp"] for run in runs]):
        return "dp sum"
    if everywhere(norms, [run["tp"] for run in runs]):
        return "tp norm"
    few = [r for r, run in zip(norms, runs, strict=True) if run["tp"] <= num_kv_heads]
    return "kv copies" if everywhere(few, ones[: len(few)]) else "tp entrance"


# %% 15.5 five_percent_is_noise
# says: here a norm is 3 % too small, and you take that for noise: two orders of the same sum agree
# to 12 digits or more in float64
import math


def name_fault(alone, runs, num_kv_heads):
    def everywhere(ratios, expected):
        return all(math.isclose(a, b, rel_tol=0.05) for a, b in zip(ratios, expected, strict=True))

    ones = [1] * len(runs)
    losses = [run["losses"][0] / alone["losses"][0] for run in runs]
    norms = [run["norms"][0] / alone["norms"][0] for run in runs]
    if not everywhere(losses, ones):
        return "cp mean"
    if everywhere(norms, ones):
        return "none"
    if everywhere(norms, [run["dp"] for run in runs]):
        return "dp sum"
    if everywhere(norms, [math.sqrt(run["tp"]) for run in runs]):
        return "tp norm"
    few = [r for r, run in zip(norms, runs, strict=True) if run["tp"] <= num_kv_heads]
    return "kv copies" if everywhere(few, ones[: len(few)]) else "tp entrance"


# %% 15.5 loss_not_looked_at
# says: with dp = cp in every run the norms fit both faults: look at the loss. Means over a rank's
# own tokens make it too large, while summed gradients leave it right
import math


def name_fault(alone, runs, num_kv_heads):
    def everywhere(ratios, expected):
        return all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ratios, expected, strict=True))

    ones = [1] * len(runs)
    norms = [run["norms"][0] / alone["norms"][0] for run in runs]
    if everywhere(norms, ones):
        return "none"
    if everywhere(norms, [run["dp"] for run in runs]):
        return "dp sum"
    if everywhere(norms, [run["cp"] for run in runs]):
        return "cp mean"
    if everywhere(norms, [math.sqrt(run["tp"]) for run in runs]):
        return "tp norm"
    few = [r for r, run in zip(norms, runs, strict=True) if run["tp"] <= num_kv_heads]
    return "kv copies" if everywhere(few, ones[: len(few)]) else "tp entrance"


# %% 15.5 every_odd_ratio_is_copies
# says: you do not tell tp entrance from kv copies: with tp = 2 and two heads for keys and values
# every rank has its own head, and nothing is copied. There, only one of the faults shows
import math


def name_fault(alone, runs, num_kv_heads):
    def everywhere(ratios, expected):
        return all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ratios, expected, strict=True))

    ones = [1] * len(runs)
    losses = [run["losses"][0] / alone["losses"][0] for run in runs]
    norms = [run["norms"][0] / alone["norms"][0] for run in runs]
    if not everywhere(losses, ones):
        return "cp mean"
    if everywhere(norms, ones):
        return "none"
    if everywhere(norms, [run["dp"] for run in runs]):
        return "dp sum"
    if everywhere(norms, [math.sqrt(run["tp"]) for run in runs]):
        return "tp norm"
    copied = any(run["tp"] > num_kv_heads for run in runs)
    return "kv copies" if copied else "tp entrance"
