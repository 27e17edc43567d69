"""Checks of 17_targets_and_masks, written by tools.exercises from its solutions."""

import torch


def check_1(t, shifted_targets):
    """17.1 Shift"""

    def targets_of(rows, documents):
        """Return your targets for rows of numbers, as lists."""
        return torch.as_tensor(
            shifted_targets(torch.tensor(rows), torch.tensor(documents))
        ).tolist()

    (alone,) = targets_of([[11, 12, 13]], [[0, 0, 0]])
    t(
        len(alone) == 3,
        f"three positions have {len(alone)} targets with you: the last position has one as well, "
        "-100, so that ids and targets have one shape",
        "there are as many targets as positions",
    )
    t(
        alone[:2] != [11, 12],
        "you asked each position for the token that it reads: the loss goes to 0, and the model "
        "learns to copy",
        "no position is asked for the token that it reads",
    )
    t(
        alone[1] != 11,
        "you shifted the other way: position t is asked for token t + 1, and it has already read "
        "token t - 1",
        "the token asked for comes later",
    )
    t(
        alone[2:] != [11],
        "the last position is asked for the first token: torch.roll brings around what falls off "
        "the end",
        "nothing comes around the end of the row",
    )
    t.equal(
        alone,
        [12, 13, -100],
        "a row of 11, 12 and 13 is asked for 12, then for 13, and then for nothing, which is -100",
        "a row of 11, 12 and 13 is asked for 12 and 13",
    )
    t.equal(
        targets_of([[11, 12], [21, 22], [31, 32]], [[0, 0], [0, 0], [0, 0]]),
        [[12, -100], [22, -100], [32, -100]],
        "the rows run into each other: the last position of a row is asked for nothing, also when "
        "the next row carries the same document number",
        "each row ends for itself",
    )
    t.equal(
        targets_of([[11, 12, 13, 14, 15, 16]], [[7, 7, 7, 2, 2, 5]]),
        [[12, 13, -100, 15, -100, -100]],
        "at a border it is the last token of the old document that is asked for nothing: the first "
        "of the new one has a next token like any other",
        "a document's last token is asked for nothing, its first one is",
    )
    t.equal(
        targets_of(
            [[11, 12, 0, 0, 0], [21, 22, 23, 24, 0]], [[0, 0, -1, -1, -1], [3, 3, 3, 3, -1]]
        ),
        [[12, -100, -100, -100, -100], [22, 23, 24, -100, -100]],
        "padding is asked for padding, or a token is: they have one document number, -1, and yet "
        "they are no document",
        "padding is asked for nothing, and nothing asks for it",
    )
    t.equal(
        shifted_targets(torch.tensor([[5], [6]]), torch.tensor([[0], [0]])),
        torch.tensor([[-100], [-100]]),
        "a row of one token has one position, and it is asked for nothing",
        "rows of one token are asked for nothing",
    )


def check_2(t, learned_tokens):
    """17.2 Which tokens of a chat are learned?"""
    asked = ["<|user|>", "2", "+", "2", "?", "<|end|>"]
    chat = [*asked, "<|assistant|>", "It", "is", "4", "<|end|>"]
    thanks = ["<|user|>", "Thanks", "<|end|>", "<|assistant|>", "Welcome", "<|end|>"]
    found = list(learned_tokens(chat, ("assistant",)))
    t(
        len(found) == len(chat),
        f"{len(chat)} tokens have {len(found)} marks with you: each token has one",
        "each token has its mark",
    )
    t(
        all(isinstance(mark, bool) for mark in found),
        "a mark is True or False, and some of yours are of another kind, such as 0 and 1",
        "each mark is True or False",
    )
    t(
        found[7:10] == [True] * 3,
        "the words of the answer are not all learned: True marks what the model should learn to "
        "write",
        "the words of the answer are learned",
    )
    t(
        found[6:] != [True, True, True, True, False],
        "you marked the positions at which the answer is asked for: mark the tokens themselves, as "
        "the shift is done afterwards",
        "tokens are marked, not the positions before them",
    )
    t(
        not found[6],
        "you count <|assistant|>: the program writes it to hand over the floor, and the model is "
        "never asked for it",
        "the token that names the speaker is not learned",
    )
    t(
        bool(found[-1]),
        "you left out the <|end|> of the answer: a model that never learned to stop goes on, and "
        "soon it writes the user's part as well",
        "the <|end|> of an answer is learned",
    )
    t(
        not found[5],
        "you count the user's <|end|>: it belongs to the turn that it ends, and the user wrote it",
        "the <|end|> of a question is not learned",
    )
    t.equal(
        learned_tokens([*chat, *thanks], ("assistant",)),
        [False] * 7 + [True] * 4 + [False] * 4 + [True] * 2,
        "in a chat of four turns the floor changes three times: the second question does not "
        "count, and both answers do",
        "every answer of a longer chat is learned, and no question",
    )
    t.equal(
        learned_tokens(["the", "end", ".", "<|end|>", *chat, "pad", "pad"], ("assistant",)),
        [False] * 11 + [True] * 4 + [False] * 2,
        "what stands outside of all turns counts for you: after <|end|> nobody has the floor, and "
        "padding is no answer",
        "text outside of turns is not learned",
    )
    t.equal(
        [
            learned_tokens(["<|system|>", "Be", "brief", "<|end|>", *asked], ("system", "user")),
            learned_tokens(["<|assistant|>", "<|end|>", "<|assistant|>", "So"], ("assistant",)),
            learned_tokens(chat, ()),
            learned_tokens([], ("user",)),
        ],
        [[False, *[True] * 3, False, *[True] * 5], [False, True, False, True], [False] * 11, []],
        "other roles, an empty answer, one that is cut off, no role at all, or no token: one of "
        "these comes out otherwise, each as a list of True and False",
        "other roles, empty answers and cut-off ones follow the same rules",
    )


def check_3(t, loss_factors):
    """17.3 The right loss under accumulation"""
    # Five positions of which three count, then three positions of which one counts.
    five, three = torch.tensor([[4, -100, 1, 2, -100]]), torch.tensor([[-100, 3, -100]])
    none = torch.tensor([[-100, -100]])

    def near(mine, right):
        return torch.allclose(torch.tensor(mine), torch.tensor(right))

    first = loss_factors([[five, three]])
    t(
        [type(own) for own in first] in ([list], [tuple]) and len(first[0]) == 2,
        "the answer is not shaped as the targets are: a list with a list of numbers for each rank",
        "each rank has a list, with a factor for each of its micro-batches",
    )
    one_rank = [[float(factor) for factor in own] for own in first]
    t(
        not near(one_rank, [[0.5, 0.5]]),
        "you averaged the means: the one target of the short micro-batch then weighs as much as "
        "the three of the other together",
        "micro-batches do not all weigh the same",
    )
    t(
        not near(one_rank, [[0.625, 0.375]]),
        "you counted positions: of the 5 and 3 there are, only 3 and 1 have a target that counts",
        "only targets that count are counted",
    )
    t(
        not near(one_rank, [[0.25, 0.25]]),
        "your factors are right for a program that adds up losses: this one has already divided "
        "each micro-batch by its own count",
        "the mean of each micro-batch is undone",
    )
    t.close(
        one_rank,
        [[0.75, 0.25]],
        "with 3 and 1 counted targets on one rank the factors are 3/4 and 1/4",
        "with 3 and 1 counted targets on one rank the factors are 3/4 and 1/4",
    )
    two_ranks = [[float(factor) for factor in own] for own in loss_factors([[five], [three]])]
    t(
        not near(two_ranks, [[0.75], [0.25]]),
        "you forgot that the ranks' gradients are averaged: that divides by their number once "
        "more, and your gradient is half of the right one",
        "the average over ranks is undone",
    )
    t(
        not near(two_ranks, [[1.0], [1.0]]),
        "each rank divides by its own targets only: averaging then gives the one target of the "
        "second rank the weight of the three of the first",
        "one count is shared by all ranks",
    )
    t.close(
        loss_factors([[five, none, five], [three]]),
        [[6 / 7, 0.0, 6 / 7], [2 / 7]],
        "with counts of 3, 0 and 3 on one rank and 1 on another, the factors are 6/7, 0, 6/7 and "
        "2/7: count x ranks / all counts",
        "micro-batches without a target, and ranks with fewer micro-batches, are no exception",
    )
    # Now a real gradient: one matrix, three ranks, micro-batches of several lengths.
    generator = torch.Generator().manual_seed(17)
    head = torch.randn(7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    x_by_rank, y_by_rank = [], []
    for sizes in ((9, 2), (5,), (1, 30)):
        x_by_rank.append([torch.randn(n, 4, generator=generator).double() for n in sizes])
        y_by_rank.append([torch.randint(0, 7, (n,), generator=generator) for n in sizes])
        y_by_rank[-1][0][::2] = -100

    def loss_of(x_ND, targets_N):
        total = torch.nn.functional.cross_entropy(x_ND @ head.T, targets_N, reduction="sum")
        return total / (targets_N != -100).sum().clamp(min=1)

    def gradient_with(factors):
        """Return what backward() adds up on each rank, averaged over the ranks."""
        total = sum(
            float(factor) * loss_of(x_ND, targets_N)
            for own, xs, ys in zip(factors, x_by_rank, y_by_rank, strict=True)
            for factor, x_ND, targets_N in zip(own, xs, ys, strict=True)
        )
        return torch.autograd.grad(total / 3, head)[0]

    at_once = loss_of(
        *(torch.cat([part for own in ranks for part in own]) for ranks in (x_by_rank, y_by_rank))
    )
    (right_gradient,) = torch.autograd.grad(at_once, head)
    naive = gradient_with([[1 / 2, 1 / 2], [1.0], [1 / 2, 1 / 2]])
    off = (naive - right_gradient).norm() / right_gradient.norm()
    t.close(
        gradient_with(loss_factors(y_by_rank)),
        right_gradient,
        "the gradient of three ranks and five micro-batches is not that of the whole batch at once",
        "the gradient of three ranks and five micro-batches is that of the whole batch at once; "
        f"the mean of means would be off by {off.item():.0%}",
        relative=1e-5,
    )


def check_4(t, find_leaks):
    """17.4 Find the leak"""

    def causal(documents):
        """Return the mask that knows nothing of documents."""
        return torch.ones(len(documents), len(documents), dtype=torch.bool).tril()

    def within(documents):
        """Return the causal mask within each document."""
        numbers = torch.tensor(documents)
        return causal(documents) & (numbers[:, None] == numbers)

    pair = find_leaks(causal([0, 1]), [0, 1], 1)
    t(
        isinstance(pair, list | tuple),
        "your answer is no list: is there a return, and a sorted() around a set of pairs?",
        "a list comes back",
    )
    t(
        not (len(pair) == 1 and tuple(pair[0]) == (0, 1)),
        "you named the pair the other way round: the reader is the document of the row t, and the "
        "later one can read here",
        "reader first, source second",
    )
    six = [0, 0, 4, 4, 7, 7]
    t.equal(
        [find_leaks(within(six), six, 5), find_leaks(causal(six), six, 1)],
        [[], [(4, 0), (7, 0), (7, 4)]],
        "a document mask leaks nothing, and without one each document reads all before it: a "
        "document that reads itself is no leak, and each pair is named once, as a tuple",
        "the document mask is clean, and a mask that is only causal has three leaks",
    )
    curious = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 1]]).bool()
    t.equal(
        find_leaks(curious, [0, 1, -1], 1),
        [],
        "padding reads two documents here, but it is none itself: nobody counts its loss",
        "what padding reads harms nobody",
    )
    backwards = within(six)
    backwards[1, 2] = True
    t.equal(
        find_leaks(backwards, six, 1),
        [(0, 4)],
        "you looked only below the diagonal: this mask lets document 0 read a token of document 4, "
        "which comes later",
        "a leak from the future is a leak",
    )
    chain = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 1]]).bool()
    t.equal(
        find_leaks(chain, [0, 1, 2], 2),
        [(1, 0), (2, 0), (2, 1)],
        "you looked at one layer: in the first document 1 reads document 0, and in the second "
        "document 2 reads what document 1 has learned",
        "with two layers, document 1 hands on what it has read",
    )
    t.equal(
        find_leaks(chain, [0, 1, 2], 1),
        [(1, 0), (2, 1)],
        "you followed every path to its end: with one layer, document 2 gets document 1 as it was "
        "before it had read anything",
        "with one layer, nothing is handed on",
    )
    # Padding at position 2 reads document 0, and document 1 reads the padding.
    between = [0, 0, -1, 1, 1]
    relay = within(between)
    relay[2, 1] = relay[3, 2] = True
    t.equal(
        find_leaks(relay, between, 2),
        [(1, 0)],
        "you left padding out too early: it is no reader, but here it hands on to document 1 what "
        "it has read in document 0",
        "padding may be a go-between",
    )
    strict = torch.tensor([[0, 0], [1, 0]]).bool()
    t.equal(
        find_leaks(strict, [0, 1], 2),
        [(1, 0)],
        "you forgot what a position keeps: here no position may look at itself, but the residual "
        "path carries into the second layer what was read in the first",
        "the residual path keeps what was read",
    )
    # A border that is off by one: each document's first token reads the last one before it.
    eight = [0, 0, 1, 1, 2, 2, 3, 3]
    border = within(eight)
    for first in (2, 4, 6):
        border[first, first - 1] = True
    found = [len(find_leaks(border, eight, layers)) for layers in (1, 2, 3, 5)]
    t.equal(
        found,
        [3, 3, 5, 6],
        "with a border that is off by one, 1, 2, 3 and 5 layers leak 3, 3, 5 and 6 pairs: a "
        "document further back takes two layers more",
        "a border that is off by one leaks 3 pairs with one layer, and all 6 pairs with five",
    )
