"""Checks of exercises 04: from counting pairs to a Transformer."""

import torch

from llmcourse.base import runtime


def check_1(t, pair_probabilities):
    """04.1 The table of pairs"""
    found = pair_probabilities([0, 1, 2, 0, 1, 0], 3, 1.0)
    right = torch.tensor([[1, 3, 1], [2, 1, 2], [2, 1, 1]], dtype=torch.float64)
    t(
        torch.is_tensor(found) and abs(found.sum().item() - 1) > 1e-9,
        "you divided by the sum of the whole table: each row is a distribution of its own",
        "the table as a whole is no distribution",
    )
    t(
        torch.is_tensor(found) and (found.sum(1) - 1).abs().max().item() < 1e-9,
        "the rows do not sum to 1: divide each row by its own sum, after something was added",
        "each row sums to 1",
    )
    t(
        found[0, 1].item() > found[0, 2].item(),
        "your rows are what came after: the row is the token read, the column the one that came",
        "the row is the token that was read",
    )
    t.close(
        found,
        right / right.sum(1, keepdim=True),
        "after token 0 came 1 twice; with 1 added its row is 1, 3, 1 before the division",
        "counts of every pair, and what was added",
    )


def check_2(t, smallest, squeezed_loss):
    """04.2 The smallest squeeze"""
    runtime.set_up(num_threads=1, seed=0)
    thin = torch.randn(10, 2, generator=torch.Generator().manual_seed(3))
    wide = torch.randn(10, 2, generator=torch.Generator().manual_seed(4))
    counts = (1000 * (2 * thin @ wide.T).softmax(1)).round()
    shares = counts / counts.sum(1, keepdim=True)
    of_table = -(counts * shares.clamp(min=1e-30).log()).sum().item() / counts.sum().item()
    found = squeezed_loss(counts, 3)
    t(
        found < of_table + 0.3,
        "your loss stays high: are both tables among what the optimizer moves?",
        "both tables are learnt",
    )
    t(
        found > of_table - 1e-3,
        "your loss is below that of the table itself, which no model can reach on these counts: "
        "weight each pair by its count and divide by all counts",
        "no squeezed table is better than the table",
    )
    t(
        squeezed_loss(counts, 1) > squeezed_loss(counts, 2) + 0.1,
        "one number per token is as good as two with you: does D reach the tables?",
        "one number for each token is too few",
    )
    t.equal(
        smallest(counts, 0.02),
        2,
        "these counts were made from two numbers per token, so two suffice and one does not",
        "the smallest D is found",
    )


def check_3(t, network_logits):
    """04.3 A network over the last tokens"""
    embedding = torch.tensor([[1.0], [10.0], [100.0]])
    one = torch.ones(3, 1)
    t.close(
        network_logits([1, 0], embedding, -torch.ones(1, 2), one, 2),
        torch.zeros(2, 3),
        "negative numbers came through: the curve replaces them by 0 before the second matrix",
        "the curve stops what is negative",
    )
    newest = torch.tensor([[0.0, 1.0]])
    t.close(
        network_logits([1, 2, 0], embedding, newest, one, 2)[:, 0],
        torch.tensor([10.0, 100.0, 1.0]),
        "the last D columns of w_in belong to the token of the place itself, the newest",
        "the newest token stands at the end",
    )
    t.close(
        network_logits([1, 2, 0], embedding, newest.flip(1), one, 2)[:, 0],
        torch.tensor([0.0, 10.0, 100.0]),
        "where the text has not begun there are zeros, not another token",
        "zeros stand before the text",
    )
    drawn = torch.Generator().manual_seed(1)
    e, a, b = (torch.randn(*s, generator=drawn) for s in ((7, 3), (5, 9), (7, 5)))
    ids = [6, 0, 3, 3, 1]
    padded = torch.cat([torch.zeros(2, 3), e[ids]]).unfold(0, 3, 1).transpose(1, 2).flatten(1)
    t.close(
        network_logits(ids, e, a, b, 3),
        (padded @ a.T).relu() @ b.T,
        "with three tokens of three numbers each your logits are others",
        "any number of tokens and of numbers",
        relative=1e-4,
        absolute=1e-5,
    )


def check_4(t, enough):
    """04.4 Which idea is enough?"""
    found = enough()
    t.equal(
        found["dice"],
        "counts",
        "in dice nothing that came before says anything: the shares of the tokens are all there is",
        "dice: counts",
    )
    t.equal(
        found["stairs"],
        "pairs",
        "in stairs the last token says all that can be known, and plain counts do not see it",
        "stairs: pairs",
    )
    t(
        found["twins"] != "sum of votes",
        "votes for (0, 0) and (1, 1) sum to the same as those for (0, 1) and (1, 0)",
        "twins: a sum of votes is not enough",
    )
    t.equal(
        found["twins"],
        "network",
        "in twins the last two tokens together decide, and a curve can notice that they are equal",
        "twins: a network",
    )
    t.equal(
        found["echo"],
        "attention",
        "in echo the token to be repeated stands eleven to thirty-one places back, out of sight "
        "of two tokens",
        "echo: attention",
    )
