"""Typical wrong answers to the exercises of chapter 20, and what the checks say to them."""


# %% 20.1 numbers_not_bytes
# says: you counted numbers, not bytes: most of them take two bytes each
def layer_bytes(s, b, h, a, ranks, recompute):
    numbers = s * b * h
    if recompute == "block":
        return numbers
    split = 12 * numbers
    if recompute == "nothing":
        split += 3 * b * a * s * s
    return 6 * numbers + split // ranks


# %% 20.1 masks_of_two_bytes
# says: you gave every number two bytes: a dropout mask is true or false and takes one byte
def layer_bytes(s, b, h, a, ranks, recompute):
    numbers = s * b * h
    if recompute == "block":
        return 2 * numbers
    whole = 12 * numbers
    split = 24 * numbers
    if recompute == "nothing":
        split += 6 * b * a * s * s
    return whole + split // ranks


# %% 20.1 one_head
# says: you counted the attention weights of one head: each of the a heads has s x s of its own
def layer_bytes(s, b, h, a, ranks, recompute):
    numbers = s * b * h
    if recompute == "block":
        return 2 * numbers
    whole = 10 * numbers
    split = 24 * numbers
    if recompute == "nothing":
        split += 5 * b * s * s
    return whole + split // ranks


# %% 20.1 queries_and_keys_dropped
# says: for 'attention' you dropped queries, keys and values, too: the weights are computed again
# from them, so they have to stay. Only the tensors of shape (b, a, s, s) go
def layer_bytes(s, b, h, a, ranks, recompute):
    numbers = s * b * h
    if recompute == "block":
        return 2 * numbers
    whole = 10 * numbers
    split = 24 * numbers
    if recompute == "nothing":
        split += 5 * b * a * s * s
    else:
        split -= 6 * numbers
    return whole + split // ranks


# %% 20.1 block_keeps_nothing
# says: for 'block' you keep nothing: then there is nothing from which to compute again. The input
# of the layer stays
def layer_bytes(s, b, h, a, ranks, recompute):
    numbers = s * b * h
    if recompute == "block":
        return 0
    whole = 10 * numbers
    split = 24 * numbers
    if recompute == "nothing":
        split += 5 * b * a * s * s
    return whole + split // ranks


# %% 20.1 everything_split
# says: you divided everything by the ranks: inputs and outputs of the norms, and two of the
# masks, are on every rank as a whole
def layer_bytes(s, b, h, a, ranks, recompute):
    numbers = s * b * h
    if recompute == "block":
        return 2 * numbers
    whole = 10 * numbers
    split = 24 * numbers
    if recompute == "nothing":
        split += 5 * b * a * s * s
    return (whole + split) // ranks


# %% 20.2 nothing_is_freed
# says: nothing is freed with you: once a block's backward pass is done, nobody needs its tensors
def live_bytes(inputs, insides, recomputed):
    live, history = 0, []
    for given, inside, again in zip(inputs, insides, recomputed, strict=True):
        live += given if again else given + inside
        history.append(live)
    for i in reversed(range(len(inputs))):
        if recomputed[i]:
            live += insides[i]
        history.append(live)
    return history


# %% 20.2 after_freeing
# says: you noted the memory after the block was freed: during its backward pass its tensors are
# still there, and that is what the peak is made of
def live_bytes(inputs, insides, recomputed):
    live, history = 0, []
    for given, inside, again in zip(inputs, insides, recomputed, strict=True):
        live += given if again else given + inside
        history.append(live)
    for i in reversed(range(len(inputs))):
        if recomputed[i]:
            live += insides[i]
        live -= inputs[i] + insides[i]
        history.append(live)
    return history


# %% 20.2 from_the_first_block
# says: your backward pass begins with the first block: it starts at the loss, behind the last
def live_bytes(inputs, insides, recomputed):
    live, history = 0, []
    for given, inside, again in zip(inputs, insides, recomputed, strict=True):
        live += given if again else given + inside
        history.append(live)
    for i in range(len(inputs)):
        if recomputed[i]:
            live += insides[i]
        history.append(live)
        live -= inputs[i] + insides[i]
    return history


# %% 20.2 inputs_stay
# says: you freed the insides alone: the input of a block is of no use either, once its backward
# pass is done
def live_bytes(inputs, insides, recomputed):
    live, history = 0, []
    for given, inside, again in zip(inputs, insides, recomputed, strict=True):
        live += given if again else given + inside
        history.append(live)
    for i in reversed(range(len(inputs))):
        if recomputed[i]:
            live += insides[i]
        history.append(live)
        live -= insides[i]
    return history


# %% 20.2 input_not_kept
# says: a checkpointed block keeps nothing with you: it keeps its input, to run forward from it
# once more
def live_bytes(inputs, insides, recomputed):
    live, history = 0, []
    for given, inside, again in zip(inputs, insides, recomputed, strict=True):
        live += 0 if again else given + inside
        history.append(live)
    for i in reversed(range(len(inputs))):
        if recomputed[i]:
            live += inputs[i] + insides[i]
        history.append(live)
        live -= inputs[i] + insides[i]
    return history


# %% 20.2 inside_stays_away
# says: the inside of a checkpointed block stays away with you: its backward pass needs it, so the
# second forward run brings it back for that time
def live_bytes(inputs, insides, recomputed):
    live, history = 0, []
    for given, inside, again in zip(inputs, insides, recomputed, strict=True):
        live += given if again else given + inside
        history.append(live)
    for i in reversed(range(len(inputs))):
        if recomputed[i]:
            insides = insides[:i] + [0]
        history.append(live)
        live -= inputs[i] + insides[i]
    return history


# %% 20.3 new_masks
# says: you drew from where the generator stands now: these are new masks, and the gradient is
# that of a forward pass that never was. Go back to the state before the block
import torch


def backward_with_recompute(x, dy, rate, before, now):
    generator = torch.Generator()
    generator.set_state(now)
    first = dropout_mask(x, rate, generator)
    second = dropout_mask(x, rate, generator)
    u = x + first * x.square()
    return dy * (1 + 3 * second * u.square()) * (1 + 2 * first * x), now


# %% 20.3 backward_order
# says: you drew the second mask first: the backward pass needs it first, but the generator gives
# them in the order of the forward pass
import torch


def backward_with_recompute(x, dy, rate, before, now):
    generator = torch.Generator()
    generator.set_state(before)
    second = dropout_mask(x, rate, generator)
    first = dropout_mask(x, rate, generator)
    u = x + first * x.square()
    return dy * (1 + 3 * second * u.square()) * (1 + 2 * first * x), now


# %% 20.3 one_mask_twice
# says: both of your masks are the same: the state is set once, and the generator then goes on by
# itself
import torch


def backward_with_recompute(x, dy, rate, before, now):
    generator = torch.Generator()
    generator.set_state(before)
    first = dropout_mask(x, rate, generator)
    generator.set_state(before)
    second = dropout_mask(x, rate, generator)
    u = x + first * x.square()
    return dy * (1 + 3 * second * u.square()) * (1 + 2 * first * x), now


# %% 20.3 slope_at_the_input
# says: the second branch takes the cube of u, and not of x: its slope is 3 u^2, and the
# recomputation is there to bring u back
import torch


def backward_with_recompute(x, dy, rate, before, now):
    generator = torch.Generator()
    generator.set_state(before)
    first = dropout_mask(x, rate, generator)
    second = dropout_mask(x, rate, generator)
    return dy * (1 + 3 * second * x.square()) * (1 + 2 * first * x), now


# %% 20.3 rewound
# says: you rewound the program's generator to before the block: the next draws repeat old ones,
# and all later dropout masks differ from those without checkpointing
import torch


def backward_with_recompute(x, dy, rate, before, now):
    generator = torch.Generator()
    generator.set_state(before)
    first = dropout_mask(x, rate, generator)
    second = dropout_mask(x, rate, generator)
    u = x + first * x.square()
    return dy * (1 + 3 * second * u.square()) * (1 + 2 * first * x), before


# %% 20.3 left_where_it_ended
# says: you left the generator where the recomputation ended: whatever is drawn next differs from
# a run without checkpointing. Leave it as it was when the backward pass came
import torch


def backward_with_recompute(x, dy, rate, before, now):
    generator = torch.Generator()
    generator.set_state(before)
    first = dropout_mask(x, rate, generator)
    second = dropout_mask(x, rate, generator)
    u = x + first * x.square()
    return dy * (1 + 3 * second * u.square()) * (1 + 2 * first * x), generator.get_state()


# %% 20.4 less_than_the_limit
# says: a peak of 15 bytes fits into a limit of 15: at most means that equal is allowed
def cheapest_plan(inputs, insides, works, limit):

    def peak(plan):
        kept, highest = 0, 0
        for given, inside, again in zip(inputs, insides, plan, strict=True):
            kept += given
            highest = max(highest, kept + inside)
            kept += 0 if again else inside
        return highest

    def work(plan):
        return sum(cost for cost, again in zip(works, plan, strict=True) if again)

    plans = itertools.product([False, True], repeat=len(inputs))
    best = min((plan for plan in plans if peak(plan) < limit), key=work, default=None)
    return None if best is None else list(best)


# %% 20.4 all_or_nothing
# says: you recompute everything as soon as something has to be: one block is enough here
def cheapest_plan(inputs, insides, works, limit):
    def peak(plan):
        kept, highest = 0, 0
        for given, inside, again in zip(inputs, insides, plan, strict=True):
            kept += given
            highest = max(highest, kept + inside)
            kept += 0 if again else inside
        return highest

    for plan in ([False] * len(inputs), [True] * len(inputs)):
        if peak(plan) <= limit:
            return plan
    return None


# %% 20.4 what_is_kept
# says: your plan does not fit: it recomputes the last block, which is cheap, but its inside comes
# back while all the others are still live. What was kept is not the peak
def cheapest_plan(inputs, insides, works, limit):

    def peak(plan):
        kept = 0
        for given, inside, again in zip(inputs, insides, plan, strict=True):
            kept += given
            kept += 0 if again else inside
        return kept

    def work(plan):
        return sum(cost for cost, again in zip(works, plan, strict=True) if again)

    plans = itertools.product([False, True], repeat=len(inputs))
    best = min((plan for plan in plans if peak(plan) <= limit), key=work, default=None)
    return None if best is None else list(best)


# %% 20.4 peak_at_the_end
# says: your plan does not fit: you looked at the backward pass of the last block alone, but when
# the middle one, with an inside of 9, has its turn, the first block's 4 are still there
def cheapest_plan(inputs, insides, works, limit):

    def peak(plan):
        kept, highest = 0, 0
        for given, inside, again in zip(inputs, insides, plan, strict=True):
            kept += given
            highest = kept + inside
            kept += 0 if again else inside
        return highest

    def work(plan):
        return sum(cost for cost, again in zip(works, plan, strict=True) if again)

    plans = itertools.product([False, True], repeat=len(inputs))
    best = min((plan for plan in plans if peak(plan) <= limit), key=work, default=None)
    return None if best is None else list(best)


# %% 20.4 largest_first
# says: your plan costs 20: it takes the block with the largest inside, or the first that helps,
# or as few as possible. The next two blocks together cost 8
def cheapest_plan(inputs, insides, works, limit):
    def peak(plan):
        kept, highest = 0, 0
        for given, inside, again in zip(inputs, insides, plan, strict=True):
            kept += given
            highest = max(highest, kept + inside)
            kept += 0 if again else inside
        return highest

    plan = [False] * len(inputs)
    for i in sorted(range(len(inputs) - 1), key=lambda i: -insides[i]):
        if peak(plan) > limit:
            plan[i] = True
    return plan if peak(plan) <= limit else None


# %% 20.4 most_bytes_for_the_work
# says: you took the most bytes for the work first, and went on until it fitted: a block that was
# taken early may turn out to be of no use, once a larger one has to be taken after all
def cheapest_plan(inputs, insides, works, limit):
    def peak(plan):
        kept, highest = 0, 0
        for given, inside, again in zip(inputs, insides, plan, strict=True):
            kept += given
            highest = max(highest, kept + inside)
            kept += 0 if again else inside
        return highest

    plan = [False] * len(inputs)
    for i in sorted(range(len(inputs) - 1), key=lambda i: works[i] / max(insides[i], 1)):
        if peak(plan) > limit:
            plan[i] = True
    return plan if peak(plan) <= limit else None
