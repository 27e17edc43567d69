"""Hidden tests of the exercises of chapter 04."""

import numpy as np
import torch


def check_1(t, call, rng):
    """Random texts over vocabularies of several sizes, some of whose tokens never occur."""
    for vocab_size in (2, 3, 7, 20):
        ids = [rng.randrange(vocab_size) for _ in range(rng.randrange(2, 200))]
        added = rng.choice([0.01, 0.5, 1.0, 3.0])
        counts = np.full((vocab_size, vocab_size), added)
        np.add.at(counts, (ids[:-1], ids[1:]), 1)
        right = torch.tensor(counts / counts.sum(1)[:, None])
        case = f"{len(ids)} tokens of {vocab_size}, {added} added"
        t.close(call("pair_probabilities", ids, vocab_size, added), right, case, relative=1e-9)


def counts_of_rank(rng, rank):
    """Return counts whose logits need so many numbers for each token, and their own loss."""
    drawn = torch.Generator().manual_seed(rng.randrange(10**6))
    rows, columns = (torch.linalg.qr(torch.randn(10, rank, generator=drawn))[0] for _ in range(2))
    columns = columns - columns.mean(0)
    counts = (1000 * (14 * rows @ columns.T).softmax(1)).round()
    shares = counts / counts.sum(1, keepdim=True)
    loss = -(counts * shares.clamp(min=1e-30).log()).sum() / counts.sum()
    return counts, loss.item()


def check_2(t, call, rng):
    """Tables made from one, two and three numbers for each token."""
    for rank in (1, 2, 3):
        counts, loss = counts_of_rank(rng, rank)
        found = call("squeezed_loss", counts, rank + 2)
        t(loss - 1e-3 < found < loss + 0.05, f"{rank + 2} numbers for a table made from {rank}")
        if rank > 1:
            t(call("squeezed_loss", counts, 1) > found + 0.02, f"one number in place of {rank}")
        size = call("smallest", counts, 0.03)
        t(1 <= size <= rank + 1, f"the smallest squeeze of a table made from {rank}")
        t.equal(call("smallest", counts, 20.0), 1, "a wide bound: one number is enough")


def check_3(t, call, rng):
    """Networks of several shapes."""
    for last in (1, 2, 5):
        V, D, F = rng.randrange(2, 9), rng.randrange(1, 5), rng.randrange(1, 7)
        drawn = torch.Generator().manual_seed(rng.randrange(10**6))
        shapes = ((V, D), (F, last * D), (V, F))
        embedding, w_in, w_out = (
            torch.randn(*shape, generator=drawn, dtype=torch.float64) for shape in shapes
        )
        ids = [rng.randrange(V) for _ in range(rng.randrange(1, 12))]
        right = torch.zeros(len(ids), V, dtype=torch.float64)
        for place in range(len(ids)):
            hidden = torch.zeros(F, dtype=torch.float64)
            for back in range(min(last, place + 1)):
                columns = w_in[:, (last - 1 - back) * D : (last - back) * D]
                hidden += columns @ embedding[ids[place - back]]
            right[place] = w_out @ hidden.clamp(min=0)
        case = f"{len(ids)} tokens, {last} seen"
        found = call("network_logits", ids, embedding, w_in, w_out, last)
        t.close(found, right, case, relative=1e-9, absolute=1e-9)


def check_4(t, call, rng):
    """The four answers."""
    del rng
    right = {"dice": "counts", "stairs": "pairs", "twins": "network", "echo": "attention"}
    t.equal(call("enough"), right, "one of the four languages has another answer")
