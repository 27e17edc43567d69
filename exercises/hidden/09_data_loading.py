"""Hidden tests of the exercises of chapter 09."""

import numpy as np
import torch

from llmcourse.data import pack, permuted


def check_1(t, call, rng):
    """Properties that every endless order has to have, for several sizes."""

    def read(seed, steps, world_size, batch_size, num_windows):
        sizes = world_size, batch_size, num_windows
        parts = {
            (step, rank): call("windows_at", seed, step, rank, *sizes)
            for step in reversed(steps)
            for rank in range(world_size)
        }
        return [int(window) for place in sorted(parts) for window in parts[place]]

    for world_size, batch_size, num_windows in ((3, 4, 16), (2, 5, 10), (5, 2, 29), (1, 3, 4)):
        seed, sizes = rng.randrange(10**6), (world_size, batch_size, num_windows)
        steps = range(4 * num_windows // (world_size * batch_size))
        windows = read(seed, steps, *sizes)
        t.equal(len(windows), len(steps) * world_size * batch_size, f"as many windows, {sizes}")
        firsts = range(0, len(windows) - num_windows + 1, num_windows)
        epochs = [windows[first : first + num_windows] for first in firsts]
        for epoch in epochs:
            t.equal(sorted(epoch), list(range(num_windows)), f"an epoch of sizes {sizes}")
        t(epochs[0] != epochs[1] or num_windows < 10, f"the same order twice, for sizes {sizes}")
        t(epochs[0] != sorted(epochs[0]) or num_windows < 10, f"no shuffle, for sizes {sizes}")
        turned = batch_size, world_size, num_windows
        t.equal(read(seed, steps, *turned), windows, f"other windows for {batch_size} ranks")
        later = read(seed, steps[-2:], *sizes)
        t.equal(later, windows[-len(later) :], f"a start at step {steps[-2]} of sizes {sizes}")
        other = read(seed + 1, steps, *sizes)[:num_windows]
        t(other not in epochs or num_windows < 10, f"seed {seed + 1} has an order of seed {seed}")


def batches_of(state, steps):
    """Return the global batches of some steps."""
    size, count = state["global_batch"], state["num_windows"]
    for step in steps:
        epoch, place = divmod(step, count // size)
        places = np.arange(place * size, place * size + size)
        yield permuted(places, count, seed=state["seed"], epoch=epoch).tolist()


def check_2(t, call, rng):
    """Every world size that fits, and those that do not, from states in several epochs."""
    for global_batch, steps in ((6, 5), (12, 3), (4, 7)):
        state = {
            "seed": rng.randrange(10**6),
            "num_windows": global_batch * steps + rng.randrange(1, global_batch),
            "global_batch": global_batch,
            "step": steps * rng.randrange(3) + rng.randrange(1, steps),
        }
        wanted = list(batches_of(state, range(state["step"], state["step"] + steps + 2)))
        for world_size in (1, 2, 3, 4, 5, 6, 12):
            rank = rng.randrange(world_size)
            found = call("read_on", dict(state), rank, world_size, steps + 2)
            case = f"rank {rank} of {world_size} from {state}"
            if global_batch % world_size:
                t(found is None, f"{case}: no equal parts")
                continue
            rows = global_batch // world_size
            mine = [batch[rank * rows : rank * rows + rows] for batch in wanted]
            after = {**state, "step": state["step"] + steps + 2}
            t.equal(found, (mine, after), case)
            again = call("read_on", found[1], rank, world_size, 1) if found else None
            last = next(batches_of(state, [after["step"]]))[rank * rows : rank * rows + rows]
            t.equal(again, ([last], {**after, "step": after["step"] + 1}), f"{case}, resumed")
    t.equal(call("read_on", state, 0, 1, 0), ([], state), "no step at all")


def check_3(t, call, rng):
    """Stops at several places, runs in between, starts from old states."""
    for num_tokens, length, rows in ((5_000, 16, 3), (20_000, 128, 8)):
        seed = rng.randrange(1, 10**6)
        sizes = num_tokens, length, rows
        whole = call("draw", seed, 12, *sizes)[0]
        if not t(all(isinstance(batch, list | tuple) for batch in whole), "a batch is a list"):
            return
        t.equal([len(whole), {len(batch) for batch in whole} == {rows}], [12, True], f"{sizes}")
        read, state, states = [], None, [None]
        for steps in (1, 0, 5, 2, 4):
            batches, state = call("draw", seed, steps, *sizes, state)
            read += batches
            states.append(state)
            call("draw", seed + 1, 2, *sizes)
        t.equal(read, whole, f"a run of 1 + 0 + 5 + 2 + 4 steps, sizes {sizes}")
        for done, state in ((6, states[3]), (1, states[1]), (1, states[2])):
            found = call("draw", seed, 12 - done, *sizes, state)[0]
            t.equal(found, whole[done:], f"a start from the state after {done} steps")
        for other in (seed - 1, seed + 1):
            near = call("draw", other, 12, *sizes)[0]
            t(not any(batch in whole for batch in near), f"seeds {seed} and {other} share a batch")
    starts = [start for batch in call("draw", seed, 100, 20, 16, 8)[0] for start in batch]
    t.equal(sorted(set(starts)), [0, 1, 2, 3], "the starts of 16 + 1 tokens in 20")


def check_4(t, call, rng):
    """Against the package, on short and long documents, many of them equal."""
    for count, shortest, longest, row in ((1, 5, 5, 5), (40, 1, 6, 6), (120, 1, 40, 100)):
        for _ in range(3):
            lengths = [rng.randrange(shortest, longest + 1) for _ in range(count)]
            rows = [[piece.document for piece in r] for r in pack(lengths, row).rows]
            found = call("first_fit_decreasing", lengths, row)
            t.equal(found, rows, f"{lengths[:30]} in rows of {row}")
    # 30 is too long for the rest of row 0, and leaves row 1 fuller than row 0.
    small = rng.randrange(1, 5)
    lengths = [70, 60, 35, small]
    t.equal(call("first_fit_decreasing", lengths, 100), [[0, 3], [1, 2]], f"{lengths}")
    lengths = [rng.randrange(1, 120) for _ in range(800)]
    rows = call("first_fit_decreasing", lengths, 256)
    t(sum(lengths) / (256 * len(rows)) >= 0.95, "800 documents fill less than 95 %")
    t.equal(call("first_fit_decreasing", [], 8), [], "no documents")


def mask_of(row, separator):
    """Return the mask of one row, pair by pair."""
    return [
        [j <= i and separator not in row[j:i] for j in range(len(row))] for i in range(len(row))
    ]


def check_5(t, call, rng):
    """Rows with empty documents, without separators and of one token."""
    for num_rows, length, separator, vocab_size in (
        (1, 1, 0, 2), (3, 9, 2, 3), (4, 16, 5, 8), (2, 31, 90, 91), (3, 12, 4, 4),
    ):  # fmt: skip
        rows = [[rng.randrange(vocab_size) for _ in range(length)] for _ in range(num_rows)]
        right = torch.tensor([mask_of(row, separator) for row in rows])
        found = call("document_mask", torch.tensor(rows), separator)
        t.equal(found, right, f"rows {rows[:2]} with separator {separator}")
    for row in ([7, 7, 7], [7, 1, 7], [1, 7, 7, 1, 1], [1, 1, 1, 7], [0, 7, 0, 0, 0, 7, 7, 0]):
        found = call("document_mask", torch.tensor([row, row[::-1]]), 7)
        t.equal(found, torch.tensor([mask_of(r, 7) for r in (row, row[::-1])]), f"the row {row}")
