"""Typical wrong answers to the exercises of chapter 09, and what the checks say to them."""

# %% 09.1 ignores_the_rank
# says: every rank reads the same windows: then three of four ranks add nothing to the gradient
def windows_at(seed, step, rank, world_size, batch_size, num_windows):
    steps_per_epoch = num_windows // (batch_size * world_size)
    epoch, step = divmod(step, steps_per_epoch)
    order = np.random.default_rng((seed, epoch)).permutation(num_windows)
    return order[step * batch_size : (step + 1) * batch_size].tolist()


# %% 09.1 a_seed_for_each_rank
# says: a window comes twice in an epoch: all ranks and all steps have to cut one and the same order
def windows_at(seed, step, rank, world_size, batch_size, num_windows):
    steps_per_epoch = num_windows // (batch_size * world_size)
    epoch, step = divmod(step, steps_per_epoch)
    order = np.random.default_rng((seed, epoch, rank)).permutation(num_windows)
    return order[step * batch_size : (step + 1) * batch_size].tolist()


# %% 09.1 a_part_of_the_epoch_for_each_rank
# says: with 2 ranks x 4 windows a step reads others than with 4 x 2: ranks have to share a step,
# not the epoch, and rank 0 takes the first batch_size of the step, not every world_size-th
def windows_at(seed, step, rank, world_size, batch_size, num_windows):
    steps_per_epoch = num_windows // (batch_size * world_size)
    epoch, step = divmod(step, steps_per_epoch)
    order = np.random.default_rng((seed, epoch)).permutation(num_windows)
    first = (rank * steps_per_epoch + step) * batch_size
    return order[first : first + batch_size].tolist()


# %% 09.1 one_order_for_all_epochs
# says: the second epoch has the order of the first: the epoch has to change the shuffle
def windows_at(seed, step, rank, world_size, batch_size, num_windows):
    step %= num_windows // (batch_size * world_size)
    first = (step * world_size + rank) * batch_size
    return np.random.default_rng(seed).permutation(num_windows)[first : first + batch_size].tolist()


# %% 09.1 mixes_epochs
# says: a step has taken the rest of one epoch and the start of the next, and reads windows twice:
# leave the rest out
def windows_at(seed, step, rank, world_size, batch_size, num_windows):
    found = []
    first = (step * world_size + rank) * batch_size
    for place in range(first, first + batch_size):
        epoch, place = divmod(place, num_windows)
        order = np.random.default_rng((seed, epoch)).permutation(num_windows)
        found.append(int(order[place]))
    return found


# %% 09.1 adds_seed_and_epoch
# says: seed 6 has an order of seed 5, in the same or in the next epoch: seed and epoch must both
# count, and their sum is not enough
def windows_at(seed, step, rank, world_size, batch_size, num_windows):
    steps_per_epoch = num_windows // (batch_size * world_size)
    epoch, step = divmod(step, steps_per_epoch)
    first = (step * world_size + rank) * batch_size
    order = np.random.default_rng(seed + epoch).permutation(num_windows)
    return order[first : first + batch_size].tolist()


# %% 09.2 begins_again
# says: the run has begun again at step 0: the state says how many steps were used
def read_on(state, rank, world_size, num_steps):
    size, count = state["global_batch"], state["num_windows"]
    if size % world_size:
        return None
    rows, windows = size // world_size, []
    for step in range(num_steps):
        epoch, place = divmod(step, count // size)
        places = np.arange(rows) + place * size + rank * rows
        windows.append(permuted(places, count, seed=state["seed"], epoch=epoch).tolist())
    return windows, {**state, "step": state["step"] + num_steps}


# %% 09.2 one_epoch_for_ever
# says: after three steps comes another shuffle, and two windows are left out: neither go on in the
# old order nor begin it again
def read_on(state, rank, world_size, num_steps):
    size, count = state["global_batch"], state["num_windows"]
    if size % world_size:
        return None
    rows, windows = size // world_size, []
    for step in range(state["step"], state["step"] + num_steps):
        places = (np.arange(rows) + step * size + rank * rows) % count
        windows.append(permuted(places, count, seed=state["seed"]).tolist())
    return windows, {**state, "step": state["step"] + num_steps}


# %% 09.2 whole_batch_for_every_rank
# says: two ranks do not read each a half of the global batch: its size stays, that of a rank's
# part changes
def read_on(state, rank, world_size, num_steps):
    size, count = state["global_batch"], state["num_windows"]
    if size % world_size:
        return None
    windows = []
    for step in range(state["step"], state["step"] + num_steps):
        epoch, place = divmod(step, count // size)
        places = np.arange(size) + place * size
        windows.append(permuted(places, count, seed=state["seed"], epoch=epoch).tolist())
    return windows, {**state, "step": state["step"] + num_steps}


# %% 09.2 counts_the_steps_of_all_ranks
# says: the new state is not that after four more steps: a step is one step of all ranks, however
# many they are
def read_on(state, rank, world_size, num_steps):
    size, count = state["global_batch"], state["num_windows"]
    if size % world_size:
        return None
    rows, windows = size // world_size, []
    for step in range(state["step"], state["step"] + num_steps):
        epoch, place = divmod(step, count // size)
        places = np.arange(rows) + place * size + rank * rows
        windows.append(permuted(places, count, seed=state["seed"], epoch=epoch).tolist())
    return windows, {**state, "step": state["step"] + num_steps * world_size}


# %% 09.2 rounds_the_part
# says: 8 windows have no equal parts for 3 ranks: by rounding, two windows of every step would be
# read by nobody
def read_on(state, rank, world_size, num_steps):
    size, count = state["global_batch"], state["num_windows"]
    rows, windows = size // world_size, []
    for step in range(state["step"], state["step"] + num_steps):
        epoch, place = divmod(step, count // size)
        places = np.arange(rows) + place * size + rank * rows
        windows.append(permuted(places, count, seed=state["seed"], epoch=epoch).tolist())
    return windows, {**state, "step": state["step"] + num_steps}


# %% 09.2 none_and_a_state
# says: 8 windows have no equal parts for 3 ranks, and you say so, but with a state besides: return
# None alone
def read_on(state, rank, world_size, num_steps):
    size, count = state["global_batch"], state["num_windows"]
    if size % world_size:
        return None, state
    rows, windows = size // world_size, []
    for step in range(state["step"], state["step"] + num_steps):
        epoch, place = divmod(step, count // size)
        places = np.arange(rows) + place * size + rank * rows
        windows.append(permuted(places, count, seed=state["seed"], epoch=epoch).tolist())
    return windows, {**state, "step": state["step"] + num_steps}


# %% 09.3 as_reported
# says: after the restart the run reads its first batches again: the generator begins anew with its
# seed
def draw(seed, num_steps, num_tokens, context_length, batch_size, state=None):
    generator = torch.Generator().manual_seed(seed)
    step = 0 if state is None else state["step"]
    batches = []
    for _ in range(num_steps):
        starts = torch.randint(num_tokens - context_length, (batch_size,), generator=generator)
        batches.append(starts.tolist())
        step += 1
    return batches, {"step": step}


# %% 09.3 a_new_seed_at_each_start
# says: 4 steps, a restart and 6 steps read others than 10 steps: no batch comes again, but the run
# is not the same
def draw(seed, num_steps, num_tokens, context_length, batch_size, state=None):
    step = 0 if state is None else state["step"]
    generator = torch.Generator().manual_seed(seed + 1_000_003 * step)
    batches = []
    for _ in range(num_steps):
        starts = torch.randint(num_tokens - context_length, (batch_size,), generator=generator)
        batches.append(starts.tolist())
        step += 1
    return batches, {"step": step}


# %% 09.3 generator_of_the_process
# says: a second start from the same state reads something else: what the run needs is not in the
# state, but somewhere in the process
def draw(seed, num_steps, num_tokens, context_length, batch_size, state=None):
    if state is None:
        torch.manual_seed(seed)
        state = {"step": 0}
    batches = []
    for _ in range(num_steps):
        batches.append(torch.randint(num_tokens - context_length, (batch_size,)).tolist())
    return batches, {"step": state["step"] + num_steps}


# %% 09.3 seed_plus_step
# says: seed 8 reads batches of seed 7, a step earlier: seed + step is the same number for both
def draw(seed, num_steps, num_tokens, context_length, batch_size, state=None):
    first = 0 if state is None else state["step"]
    batches = []
    for step in range(first, first + num_steps):
        generator = torch.Generator().manual_seed(seed + step)
        starts = torch.randint(num_tokens - context_length, (batch_size,), generator=generator)
        batches.append(starts.tolist())
    return batches, {"step": first + num_steps}


# %% 09.3 any_token
# says: a crop needs T + 1 tokens from its start on: the last start is num_tokens - T - 1, included
def draw(seed, num_steps, num_tokens, context_length, batch_size, state=None):
    generator = torch.Generator().manual_seed(seed)
    if state is not None:
        generator.set_state(state["generator"])
    batches = []
    for _ in range(num_steps):
        starts = torch.randint(num_tokens, (batch_size,), generator=generator)
        batches.append(starts.tolist())
    return batches, {"generator": generator.get_state()}


# %% 09.3 one_start_too_few
# says: a crop needs T + 1 tokens from its start on: the last start is num_tokens - T - 1, included
def draw(seed, num_steps, num_tokens, context_length, batch_size, state=None):
    generator = torch.Generator().manual_seed(seed)
    if state is not None:
        generator.set_state(state["generator"])
    last = num_tokens - context_length - 1
    batches = []
    for _ in range(num_steps):
        batches.append(torch.randint(last, (batch_size,), generator=generator).tolist())
    return batches, {"generator": generator.get_state()}


# %% 09.4 in_the_order_given
# says: the first row does not begin with document 3, which has the length 5: take the longest
# first, and name it by its place in the list that was given
def first_fit_decreasing(lengths, row_length):
    rows, room = [], []
    for document, length in enumerate(lengths):
        row = next((row for row, left in enumerate(room) if length <= left), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(row_length)
        rows[row].append(document)
        room[row] -= length
    return rows


# %% 09.4 names_the_sorted_place
# says: the first row does not begin with document 3, which has the length 5: take the longest
# first, and name it by its place in the list that was given
def first_fit_decreasing(lengths, row_length):
    rows, room = [], []
    for document, length in enumerate(sorted(lengths, reverse=True)):
        row = next((row for row, left in enumerate(room) if length <= left), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(row_length)
        rows[row].append(document)
        room[row] -= length
    return rows


# %% 09.4 leaves_one_token
# says: 4 + 2 fill a row of 6 to the last token: a document that leaves no room still fits
def first_fit_decreasing(lengths, row_length):
    rows, room = [], []
    for document in sorted(range(len(lengths)), key=lambda d: -lengths[d]):
        length = lengths[document]
        row = next((row for row, left in enumerate(room) if length < left), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(row_length)
        rows[row].append(document)
        room[row] -= length
    return rows


# %% 09.4 best_fit
# says: the document of length 1 has room in row 0, which comes first, fuller or emptier than row 1
def first_fit_decreasing(lengths, row_length):
    rows, room = [], []
    for document in sorted(range(len(lengths)), key=lambda d: -lengths[d]):
        fits = [row for row, left in enumerate(room) if lengths[document] <= left]
        if not fits:
            fits = [len(rows)]
            rows.append([])
            room.append(row_length)
        row = min(fits, key=lambda r: room[r])
        rows[row].append(document)
        room[row] -= lengths[document]
    return rows


# %% 09.4 last_row_only
# says: less than 95 % of the rows is filled: look for room in all rows, not only in the last
def first_fit_decreasing(lengths, row_length):
    rows, left = [], 0
    for document in sorted(range(len(lengths)), key=lambda d: -lengths[d]):
        if lengths[document] > left:
            rows.append([])
            left = row_length
        rows[-1].append(document)
        left -= lengths[document]
    return rows


# %% 09.4 ties_turned_round
# says: documents of equal length go in the order in which they are given
def first_fit_decreasing(lengths, row_length):
    rows, room = [], []
    by_length = sorted(((length, d) for d, length in enumerate(lengths)), reverse=True)
    for length, document in by_length:
        row = next((row for row, left in enumerate(room) if length <= left), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(row_length)
        rows[row].append(document)
        room[row] -= length
    return rows


# %% 09.5 causal_alone
# says: token 3 begins the second document and looks at the first: a causal mask alone does not know
# where documents end
def document_mask(ids_BT, separator):
    B, T = ids_BT.shape
    return torch.ones(T, T, dtype=torch.bool).tril().expand(B, T, T)


# %% 09.5 looks_ahead
# says: token 3 looks at later tokens of its document: it would see the answer that it has to
# predict
def document_mask(ids_BT, separator):
    ends = (ids_BT == separator).long()
    document = ends.cumsum(dim=1) - ends
    return document[:, :, None] == document[:, None, :]


# %% 09.5 exchanged
# says: you exchanged the two: [b, i, j] says whether i may look at j, and later tokens look at
# earlier ones
def document_mask(ids_BT, separator):
    ends = (ids_BT == separator).long()
    document = ends.cumsum(dim=1) - ends
    return (document[:, :, None] == document[:, None, :]).triu()


# %% 09.5 hides_the_separator
# says: a token may not even look at itself: a row of the mask without True makes softmax NaN
def document_mask(ids_BT, separator):
    ends = (ids_BT == separator).long()
    document = ends.cumsum(dim=1)
    text = ids_BT != separator
    same = document[:, :, None] == document[:, None, :]
    return (same & text[:, :, None] & text[:, None, :]).tril()


# %% 09.5 separator_begins_the_next
# says: the separator looks at the document that it ends, and no token of the next document at the
# separator: count the separators before a token, without itself
def document_mask(ids_BT, separator):
    document = (ids_BT == separator).long().cumsum(dim=1)
    return (document[:, :, None] == document[:, None, :]).tril()


# %% 09.5 one_mask_for_the_batch
# says: the two rows of a batch do not each have the mask of their own documents
def document_mask(ids_BT, separator):
    ends = (ids_BT[0] == separator).long()
    document = ends.cumsum(dim=0) - ends
    mask = (document[:, None] == document[None, :]).tril()
    return mask.expand(len(ids_BT), *mask.shape)
