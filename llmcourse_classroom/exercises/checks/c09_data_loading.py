"""Checks of exercises 09: feeding the machine."""

import numpy as np
import torch

from llmcourse.data import corpus, permuted


def check_1(t, windows_at):
    """09.1 A sampler that leaves nothing out"""

    def read(seed, world_size, batch_size):
        """Return what all ranks read of 26 windows in 13 steps of 8, which are 4 epochs."""
        sizes = world_size, batch_size, 26
        return [
            [int(w) for rank in range(world_size) for w in windows_at(seed, step, rank, *sizes)]
            for step in range(13)
        ]

    def epochs(steps):
        """Return the windows of each epoch in their order."""
        windows = [window for step in steps for window in step]
        return [windows[first : first + 26] for first in range(0, len(windows), 26)]

    steps = read(5, 4, 2)
    t(
        steps[0][:2] != steps[0][2:4],
        "every rank reads the same windows: then three of four ranks add nothing to the gradient",
        "rank 1 reads other windows than rank 0",
    )
    t(
        len({window for step in steps[:3] for window in step}) == 24,
        "a window comes twice within three steps: all ranks and all steps have to cut one and the "
        "same order",
        "three steps of 4 ranks x 2 windows read 24 different windows",
    )
    t.equal(
        read(5, 2, 4),
        steps,
        "with 2 ranks x 4 windows a step reads others than with 4 x 2: ranks have to share a step, "
        "not the epoch, and rank 0 takes the first batch_size of the step, not every "
        "world_size-th",
        "2 ranks x 4 windows read in each step what 4 x 2 read",
    )
    first, second, *_ = found = epochs(steps)
    t.equal(
        [sorted(epoch) for epoch in found],
        [list(range(26))] * 4,
        "13 steps of 8 are four epochs of 26, and some window is missing in one: the fourth step "
        "takes the last two windows of one epoch and the first six of the next",
        "in 13 steps each window is read four times, once in each epoch",
    )
    t(
        second != first,
        "the second epoch has the order of the first: the epoch has to change the shuffle",
        "the second epoch is another shuffle",
    )
    t(
        epochs(read(6, 4, 2))[0] not in found,
        "seed 6 has an order of seed 5, in the same or in the next epoch: seed and epoch must "
        "both count, and their sum is not enough",
        "another seed has other orders, in every epoch",
    )


def check_2(t, read_on):
    """09.2 Go on, on other machines"""
    orders = [permuted(np.arange(26), 26, seed=3, epoch=e).tolist() for e in range(3)]
    batches = [order[first : first + 8] for order in orders for first in (0, 8, 16)]
    saved = {"seed": 3, "num_windows": 26, "global_batch": 8, "step": 2}
    alone, after = read_on(dict(saved), 0, 1, 4)
    t.equal(
        alone,
        [[int(window) for window in batch] for batch in alone],
        "the windows of a step are not a list of numbers: an array has `tolist` for that",
        "the windows of a step are a list of numbers",
    )
    t(
        [int(window) for window in alone[0]] != batches[0],
        "the run has begun again at step 0: the state says how many steps were used",
        "the run goes on where it was",
    )
    t.equal(
        alone,
        batches[2:6],
        "after three steps comes another shuffle, and two windows are left out: neither go on in "
        "the old order nor begin it again",
        "the run goes on across the end of an epoch",
    )
    parts = [read_on(dict(saved), rank, 2, 4)[0] for rank in range(2)]
    t.equal(
        parts,
        [[batch[4 * rank : 4 * rank + 4] for batch in batches[2:6]] for rank in range(2)],
        "two ranks do not read each a half of the global batch: its size stays, that of a rank's "
        "part changes",
        "two ranks read the same steps in halves",
    )
    t.equal(
        [after, read_on(dict(saved), 1, 2, 4)[1]],
        [{**saved, "step": 6}] * 2,
        "the new state is not that after four more steps: a step is one step of all ranks, "
        "however many they are",
        "the new state is four steps further, on every rank",
    )
    kept = dict(saved)
    read_on(kept, 0, 2, 4)
    t.equal(
        kept,
        saved,
        "you changed the state that was given: a run that is started from it again would skip "
        "four steps",
        "the given state is as it was",
    )
    shared = read_on(dict(saved), 0, 3, 1)
    t(
        not (isinstance(shared, tuple | list) and shared[0] is None),
        "8 windows have no equal parts for 3 ranks, and you say so, but with a state besides: "
        "return None alone",
        "there is no state where a run cannot go on",
    )
    t(
        shared is None,
        "8 windows have no equal parts for 3 ranks: by rounding, two windows of every step would "
        "be read by nobody",
        "three ranks cannot share 8 windows, and that is said",
    )


def check_3(t, draw):
    """09.3 The batches that came twice"""
    sizes = 10_000, 64, 4

    def drawn(*arguments):
        """Return batches as lists of numbers, whatever they are."""
        return [[int(start) for start in batch] for batch in draw(*arguments)[0]]

    whole = drawn(7, 10, *sizes)
    t.equal(
        draw(7, 10, *sizes)[0],
        whole,
        "your batches are not lists of numbers, or the same seed draws others the second time",
        "a batch is a list of numbers, and the same seed draws the same",
    )
    saved = draw(7, 4, *sizes)[1]
    first, second = drawn(7, 4, *sizes), drawn(7, 6, *sizes, saved)
    t(
        second[:4] != first,
        "after the restart the run reads its first batches again: the generator begins anew with "
        "its seed",
        "after a restart the first batches do not come again",
    )
    t.equal(
        first + second,
        whole,
        "4 steps, a restart and 6 steps read others than 10 steps: no batch comes again, but the "
        "run is not the same",
        "4 + 6 steps read the same as 10",
    )
    drawn(8, 3, *sizes)
    t.equal(
        drawn(7, 6, *sizes, saved),
        second,
        "a second start from the same state reads something else: what the run needs is not in "
        "the state, but somewhere in the process",
        "the state can be used twice, with another run in between",
    )
    other = drawn(8, 10, *sizes)
    t(
        not any(batch in whole for batch in other),
        "seed 8 reads batches of seed 7, a step earlier: seed + step is the same number for both",
        "another seed reads other batches",
    )
    t.equal(
        sorted({start for batch in drawn(7, 30, 66, 64, 4) for start in batch}),
        [0, 1],
        "a crop needs T + 1 tokens from its start on: the last start is num_tokens - T - 1, "
        "included",
        "66 tokens hold two crops of 64 + 1, from 0 and from 1",
    )


def check_4(t, first_fit_decreasing):
    """09.4 Fill 95 % of the rows"""
    rows = first_fit_decreasing([2, 3, 4, 5, 3, 1], 6)
    t.equal(
        rows[0][0],
        3,
        "the first row does not begin with document 3, which has the length 5: take the longest "
        "first, and name it by its place in the list that was given",
        "the longest document goes first",
    )
    t.equal(
        first_fit_decreasing([2, 4], 6),
        [[1, 0]],
        "4 + 2 fill a row of 6 to the last token: a document that leaves no room still fits",
        "a row may be filled to the last token",
    )
    texts = [text for a in corpus.sotu_split()[0][::16] for text in a.text.split("\n\n")]
    words = [len(text.split()) for text in texts if 0 < len(text.split()) <= 256]
    rows = first_fit_decreasing(list(words), 256)
    filled = sum(words) / (256 * len(rows))
    t(
        filled >= 0.95,
        "less than 95 % of the rows is filled: look for room in all rows, not only in the last",
        f"{len(words):,} paragraphs fill {filled:.1%} of {len(rows)} rows of 256 words",
    )
    t.equal(
        first_fit_decreasing([12, 10, 9, 1], 20),
        [[0, 3], [1, 2]],
        "the document of length 1 has room in row 0, which comes first, fuller or emptier than "
        "row 1",
        "the first row with room is taken, not the fullest",
    )
    t.equal(
        first_fit_decreasing([4, 7, 4, 4], 8),
        [[1], [0, 2], [3]],
        "documents of equal length go in the order in which they are given",
        "equal documents keep their order",
    )
    t.equal(
        [
            sorted(document for row in rows for document in row),
            max(sum(words[document] for document in row) for row in rows) <= 256,
        ],
        [list(range(len(words))), True],
        "a paragraph is missing, stands twice or makes its row longer than 256",
        "every paragraph stands in one row, and none is too long",
    )


def check_5(t, document_mask):
    """09.5 The mask of a packed row"""
    packed = torch.tensor([[5, 6, 0, 7, 8, 9, 0, 4]])
    mask = document_mask(packed, 0)
    t.equal(
        [str(mask.dtype), list(mask.shape)],
        ["torch.bool", [1, 8, 8]],
        "your mask is not a tensor of bool of shape (B, T, T): it holds True and False, and no "
        "numbers that are added to the scores",
        "the mask is a tensor of bool of shape (B, T, T)",
    )
    mask = mask != 0
    t(
        mask[0, 0, 0] or not mask[0, 0, 7],
        "yours marks what is forbidden: True means that a token may look",
        "True means that a token may look",
    )
    t(
        not mask[0, 3, :2].any(),
        "token 3 begins the second document and looks at the first: a causal mask alone does not "
        "know where documents end",
        "no token looks at an earlier document",
    )
    t(
        mask[0, 4, 3],
        "you exchanged the two: [b, i, j] says whether i may look at j, and later tokens look at "
        "earlier ones",
        "token 4 looks at token 3",
    )
    t(
        not mask[0, 3, 4:].any(),
        "token 3 looks at later tokens of its document: it would see the answer that it has to "
        "predict",
        "no token looks ahead",
    )
    t(
        mask[0].diagonal().all(),
        "a token may not even look at itself: a row of the mask without True makes softmax NaN",
        "every token looks at itself",
    )
    t.equal(
        mask[0, 2:4].tolist(),
        [[True, True, True] + [False] * 5, [False] * 3 + [True] + [False] * 4],
        "the separator looks at the document that it ends, and no token of the next document at "
        "the separator: count the separators before a token, without itself",
        "a separator belongs to the document that it ends",
    )
    two = torch.tensor([[5, 0, 6, 7], [5, 6, 7, 0]])
    halves = torch.block_diag(*[torch.ones(2, 2).tril()] * 2).bool()
    t.equal(
        document_mask(two, 0),
        torch.stack([halves, torch.ones(4, 4).tril().bool()]),
        "the two rows of a batch do not each have the mask of their own documents",
        "every row of a batch has a mask of its own, of dtype bool",
    )
