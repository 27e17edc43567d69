"""Checks of exercises 17: targets and masks."""

import math

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
        "the answer is not shaped as the targets are: a list with a list of numbers for each "
        "process",
        "each process has a list, with a factor for each of its micro-batches",
    )
    alone = [[float(factor) for factor in own] for own in first]
    t(
        not near(alone, [[0.5, 0.5]]),
        "you averaged the means: the one target of the short micro-batch then weighs as much as "
        "the three of the other together",
        "micro-batches do not all weigh the same",
    )
    t(
        not near(alone, [[0.625, 0.375]]),
        "you counted positions: of the 5 and 3 there are, only 3 and 1 have a target that counts",
        "only targets that count are counted",
    )
    t(
        not near(alone, [[0.25, 0.25]]),
        "your factors are right for a program that adds up losses: this one has already divided "
        "each micro-batch by its own count",
        "the mean of each micro-batch is undone",
    )
    t.close(
        alone,
        [[0.75, 0.25]],
        "with 3 and 1 counted targets on one process the factors are 3/4 and 1/4",
        "with 3 and 1 counted targets on one process the factors are 3/4 and 1/4",
    )
    both = [[float(factor) for factor in own] for own in loss_factors([[five], [three]])]
    t(
        not near(both, [[0.75], [0.25]]),
        "you forgot that the processes' gradients are averaged: that divides by their number once "
        "more, and your gradient is half of the right one",
        "the average over processes is undone",
    )
    t(
        not near(both, [[1.0], [1.0]]),
        "each process divides by its own targets only: averaging then gives the one target of the "
        "second process the weight of the three of the first",
        "one count is shared by all processes",
    )
    t.close(
        loss_factors([[five, none, five], [three]]),
        [[6 / 7, 0.0, 6 / 7], [2 / 7]],
        "with counts of 3, 0 and 3 on one process and 1 on another, the factors are 6/7, 0, 6/7 "
        "and 2/7: count x processes / all counts",
        "micro-batches without a target, and processes with fewer micro-batches, are no exception",
    )
    # Now a real gradient: one matrix, three processes, micro-batches of several lengths.
    generator = torch.Generator().manual_seed(17)
    head = torch.randn(7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    x_by_process, y_by_process = [], []
    for sizes in ((9, 2), (5,), (1, 30)):
        x_by_process.append([torch.randn(n, 4, generator=generator).double() for n in sizes])
        y_by_process.append([torch.randint(0, 7, (n,), generator=generator) for n in sizes])
        y_by_process[-1][0][::2] = -100

    def loss_of(x_ND, targets_N):
        total = torch.nn.functional.cross_entropy(x_ND @ head.T, targets_N, reduction="sum")
        return total / (targets_N != -100).sum().clamp(min=1)

    def gradient_with(factors):
        """Return what backward() adds up on each process, averaged over the processes."""
        total = sum(
            float(factor) * loss_of(x_ND, targets_N)
            for own, xs, ys in zip(factors, x_by_process, y_by_process, strict=True)
            for factor, x_ND, targets_N in zip(own, xs, ys, strict=True)
        )
        return torch.autograd.grad(total / 3, head)[0]

    at_once = loss_of(
        *(torch.cat(sum(by_process, [])) for by_process in (x_by_process, y_by_process))
    )
    (right_gradient,) = torch.autograd.grad(at_once, head)
    naive = gradient_with([[1 / 2, 1 / 2], [1.0], [1 / 2, 1 / 2]])
    off = (naive - right_gradient).norm() / right_gradient.norm()
    t.close(
        gradient_with(loss_factors(y_by_process)),
        right_gradient,
        "the gradient of three processes and five micro-batches is not that of the whole batch at "
        "once",
        "the gradient of three processes and five micro-batches is that of the whole batch at "
        f"once; the mean of means would be off by {off.item():.0%}",
        relative=1e-5,
    )


def check_4(t, all_runs, conclusions, targets_of):
    """17.4 Six runs, one good"""
    row = [[3, 7, 12, 4, 13], [5, 9, 12, 0, 13]]

    def asked_for(shift, masked):
        """Return your targets for two short rows."""
        found = targets_of(torch.tensor(row), shift, masked)
        return torch.as_tensor(found).tolist()

    t(
        asked_for(0, False) != [[7, 12, 4, 13, -100], [9, 12, 0, 13, -100]],
        "you always shift by one: the shift is the second argument, and 0 asks for the token that "
        "is read",
        "the shift is the one that was given",
    )
    t.equal(
        [asked_for(shift, False) for shift in (0, 1, 2)],
        [
            [[3, 7, 12, 4, 13], [5, 9, 12, 0, 13]],
            [[7, 12, 4, 13, -100], [9, 12, 0, 13, -100]],
            [[12, 4, 13, -100, -100], [12, 0, 13, -100, -100]],
        ],
        "without a mask, place t is asked for token t + shift of its own row, and for -100 where "
        "the row has ended",
        "without a mask every token is asked for that has a place before it",
    )
    t(
        asked_for(1, True)[0] != [-100, -100, -100, 13, -100],
        "you masked places instead of tokens: the answer is asked for at the place that reads 12, "
        "so the mask has to be shifted with the tokens",
        "the mask is of tokens, and is shifted with them",
    )
    t(
        asked_for(1, True)[0] != [-100, 12, 4, 13, -100],
        "you ask for the token 12 as well: the program writes it, and only what comes after it is "
        "to be learnt",
        "the token 12 is not learnt",
    )
    t.equal(
        [asked_for(shift, True) for shift in (0, 1, 2)],
        [
            [[-100, -100, -100, 4, 13], [-100, -100, -100, 0, 13]],
            [[-100, -100, 4, 13, -100], [-100, -100, 0, 13, -100]],
            [[-100, 4, 13, -100, -100], [-100, 0, 13, -100, -100]],
        ],
        "with the mask the answer and the end are asked for, and nothing else",
        "with the mask the answer and the end are asked for, at every shift",
    )
    runs, yours = all_runs(), conclusions()
    good = [run for run, (_, right) in runs.items() if right > 0.9]
    fooled = [run for run, (loss, right) in runs.items() if loss < 0.1 and right == 0]
    t.equal(
        sorted(yours["answers nearly all questions"]),
        sorted(good),
        "these are not the runs whose models answer: read the last column of the table",
        "one run of six gives a model that answers: its targets are the next tokens, and its few "
        "steps went into the answer",
    )
    t.equal(
        sorted(yours["loss below 0.1, and no answer right"]),
        sorted(fooled),
        "these are not the runs with a loss below 0.1 and without a right answer: a loss near 0 "
        "says only that the targets were easy to know",
        "three runs have a loss near 0 and answer nothing",
    )
    t.equal(
        yours["a lower training loss means a better model"],
        False,
        "look again: which of the six losses are the lowest, and what do these models answer?",
        "losses of different targets cannot be compared",
    )
    t.close(
        yours["lowest possible loss of the run (1, False)"],
        7 * math.log(6) / 10,
        "seven of its ten targets are chatter, drawn from six tokens: ln 6 each. The other three "
        "can be known",
        "the unmasked run cannot fall below 7 ln 6 / 10 = 1.254, however good the model is",
        relative=1e-3,
    )
