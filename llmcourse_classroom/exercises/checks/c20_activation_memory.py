"""Checks of exercises 20: Activation memory and checkpointing."""

import torch


def check_1(t, layer_bytes):
    """20.1 What one layer of GPT keeps"""
    # 240 numbers of shape (s, b, h), and 150 of shape (b, a, s, s).
    kept = layer_bytes(5, 3, 16, 2, 1, "nothing")
    t(
        kept != 18 * 240 + 3 * 150,
        "you counted numbers, not bytes: most of them take two bytes each",
        "bytes are counted, not numbers",
    )
    t(
        kept != 36 * 240 + 6 * 150,
        "you gave every number two bytes: a dropout mask is true or false and takes one byte",
        "a mask takes one byte for each number",
    )
    t(
        kept != 34 * 240 + 5 * 75,
        "you counted the attention weights of one head: each of the a heads has s x s of its own",
        "every head has its own s x s weights",
    )
    t.close(
        kept,
        8910,
        "240 numbers of shape (s, b, h) and 150 of shape (b, a, s, s) make 34 x 240 + 5 x 150 = "
        "8,910 bytes",
        "34 sbh + 5 a s^2 b: 8,910 bytes for a tiny layer",
        relative=1e-9,
    )
    selective = layer_bytes(5, 3, 16, 2, 1, "attention")
    t(
        selective not in (26 * 240, 28 * 240, 23 * 240),
        "for 'attention' you dropped queries, keys and values, too: the weights are computed "
        "again from them, so they have to stay. Only the tensors of shape (b, a, s, s) go",
        "queries, keys and values stay",
    )
    t.close(
        selective,
        8160,
        "with 'attention' the three tensors of shape (b, a, s, s) go, and 34 x 240 bytes stay",
        "without the s x s weights 34 sbh bytes stay",
        relative=1e-9,
    )
    block = layer_bytes(5, 3, 16, 2, 1, "block")
    t(
        block != 0,
        "for 'block' you keep nothing: then there is nothing from which to compute again. The "
        "input of the layer stays",
        "the input of the block is kept",
    )
    t.close(
        block,
        480,
        "with 'block' one tensor stays, (s, b, h) at two bytes",
        "block: 2 sbh",
        relative=1e-9,
    )
    split = layer_bytes(5, 3, 16, 2, 2, "nothing")
    t(
        split != 8910 // 2,
        "you divided everything by the ranks: inputs and outputs of the norms, and two of the "
        "masks, are on every rank as a whole",
        "ten of the 34 bytes are not split",
    )
    t(
        split != 2400 + 24 * 120 + 750,
        "you left the attention weights whole: each rank has a share of the heads, and the weights "
        "of those only",
        "the attention weights are split with the heads",
    )
    t.close(
        split,
        2400 + (24 * 240 + 750) // 2,
        "on two ranks 10 x 240 bytes stay whole, and 24 x 240 + 5 x 150 are halved",
        "on two ranks: sbh (10 + 24/2 + 5as/2h)",
        relative=1e-9,
    )
    t.close(
        layer_bytes(5, 3, 16, 2, 2, "block"),
        480,
        "the input of the layer is not split over the ranks",
        "two ranks do not shorten the input of the layer",
        relative=1e-9,
    )
    # GPT-3 on eight ranks, one sequence of 2,048 tokens.
    t.close(
        [layer_bytes(2048, 1, 12288, 96, 8, how) for how in ("nothing", "attention", "block")],
        [578_813_952, 327_155_712, 50_331_648],
        "one layer of GPT-3 on eight ranks keeps 579 MB, 327 MB without the weights, and 50 MB as "
        "a block",
        "one layer of GPT-3 on eight ranks: 579, 327 or 50 MB",
        relative=1e-9,
    )


def check_2(t, live_bytes):
    """20.2 Live memory, step by step"""
    # Each tensor has a decimal place of its own, so that the digits tell what is live.
    digits = [1, 10, 100], [1_000, 10_000, 100_000]
    plain = live_bytes(*digits, [False, False, False])
    t(
        isinstance(plain, list | tuple) and len(plain) == 6,
        "three blocks have six steps, three forward and three backward: return a list of them all",
        "a list with two entries for each block",
    )
    t(
        list(plain[:3]) != [1, 11, 111],
        "you read `recomputed` the other way round: where it is False, the inside is kept",
        "False means kept",
    )
    t.equal(
        plain[:3],
        [1_001, 11_011, 111_111],
        "without checkpointing each forward step adds an input and an inside: 1,001, then 11,011, "
        "then 111,111",
        "forward, memory only grows",
    )
    t(
        list(plain[3:]) != [111_111] * 3,
        "nothing is freed with you: once a block's backward pass is done, nobody needs its tensors",
        "a block is freed after its backward pass",
    )
    t(
        list(plain[3:]) != [11_011, 1_001, 0],
        "you noted the memory after the block was freed: during its backward pass its tensors are "
        "still there, and that is what the peak is made of",
        "the tensors of a block are live during its backward pass",
    )
    t(
        list(plain[3:]) != [111_111, 110_110, 100_100],
        "your backward pass begins with the first block: it starts at the loss, behind the last",
        "backward begins at the last block",
    )
    t(
        list(plain[3:]) != [111_111, 11_111, 1_111],
        "you freed the insides alone: the input of a block is of no use either, once its backward "
        "pass is done",
        "the input is freed, too",
    )
    t.equal(
        plain[3:],
        [111_111, 11_011, 1_001],
        "backward, the last block is freed first: 111,111, then 11,011, then 1,001",
        "backward, memory shrinks from the last block on",
    )
    middle = live_bytes(*digits, [False, True, False])
    t(
        middle[1] != 1_001,
        "a checkpointed block keeps nothing with you: it keeps its input, to run forward from it "
        "once more",
        "a checkpointed block keeps its input",
    )
    t.equal(
        middle[:3],
        [1_001, 1_011, 101_111],
        "with the middle block checkpointed, its inside, the digit of 10,000, is missing in the "
        "forward pass",
        "the inside of a checkpointed block is not kept",
    )
    t(
        middle[4] != 1_011,
        "the inside of a checkpointed block stays away with you: its backward pass needs it, so "
        "the second forward run brings it back for that time",
        "for its own backward pass, the inside is back",
    )
    t(
        middle[4] != 11_021,
        "you added the input a second time: it was kept all along, and the second run starts from "
        "it. Only the inside comes back",
        "the input of a checkpointed block is there once",
    )
    t.equal(
        middle,
        [1_001, 1_011, 101_111, 101_111, 11_011, 1_001],
        "with the middle block checkpointed the digit of 10,000 is there in one step only, the "
        "fifth",
        "what was recomputed is live during one step",
    )
    t.equal(
        live_bytes(*digits, [True] * 3),
        [1, 11, 111, 100_111, 10_011, 1_001],
        "with all blocks checkpointed only inputs pile up, and one inside at a time is live",
        "all blocks checkpointed: all inputs and one inside",
    )
    t.equal(
        [live_bytes([], [], []), live_bytes([7], [50], [True])],
        [[], [7, 57]],
        "no block has no step, and one checkpointed block has two: its input, then all of it",
        "no block, and a single one",
    )


def check_3(t, backward_with_recompute, *, dropout_mask):
    """20.3 The same random numbers again"""
    program = torch.Generator().manual_seed(20)
    x = torch.tensor([1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0] * 4, dtype=torch.float64)
    dy = torch.arange(1, 33, dtype=torch.float64)
    state_before = program.get_state()
    m1, m2 = dropout_mask(x, 0.25, program), dropout_mask(x, 0.25, program)
    torch.rand(100, generator=program)  # what the blocks behind it draw
    state_now = program.get_state()
    other1, other2 = dropout_mask(x, 0.25, program), dropout_mask(x, 0.25, program)
    saved = state_before.clone(), state_now.clone()

    def gradient(first, second):
        """Return the gradient that belongs to two masks."""
        u = x + first * x.square()
        return dy * (1 + 3 * second * u.square()) * (1 + 2 * first * x)

    answer = backward_with_recompute(x, dy, 0.25, state_before, state_now)
    t(
        isinstance(answer, tuple | list) and len(answer) == 2,
        "return two things: (dx, state)",
        "gradient and state are returned",
    )
    dx, state = answer
    t(isinstance(dx, torch.Tensor), "the first of the two is a tensor, dx", "dx is a tensor")
    t(
        not torch.allclose(dx, gradient(other1, other2)),
        "you drew from where the generator stands now: these are new masks, and the gradient is "
        "that of a forward pass that never was. Go back to the state before the block",
        "the masks are those of the forward pass",
    )
    t(
        not torch.allclose(dx, gradient(m2, m1)),
        "you drew the second mask first: the backward pass needs it first, but the generator gives "
        "them in the order of the forward pass",
        "masks are drawn in the order of the forward pass",
    )
    t(
        not torch.allclose(dx, gradient(m1, m1)),
        "both of your masks are the same: the state is set once, and the generator then goes on by "
        "itself",
        "the second mask follows the first",
    )
    t(
        not torch.allclose(dx, dy * (1 + 3 * m2 * x**2) * (1 + 2 * m1 * x)),
        "the second branch takes the cube of u, and not of x: its slope is 3 u^2, and the "
        "recomputation is there to bring u back",
        "the slope of the second branch is 3 u^2",
    )
    t.close(
        dx,
        gradient(m1, m2),
        "dx is dy (1 + 3 m2 u^2) (1 + 2 m1 x) with u = x + m1 x^2; take both masks from "
        "dropout_mask, which scales them by 1 / (1 - rate)",
        "the gradient is that of the forward pass that was",
        relative=1e-9,
    )
    behind = torch.Generator()
    behind.set_state(state_before)
    t(
        isinstance(state, torch.Tensor),
        "the second of the two is a state: a tensor, such as generator.get_state() returns",
        "the state is a tensor",
    )
    t(
        not torch.equal(state, behind.get_state()),
        "you rewound the program's generator to before the block: the next draws repeat old ones, "
        "and all later dropout masks differ from those without checkpointing",
        "the generator is not rewound",
    )
    t.equal(
        state,
        state_now,
        "you left the generator where the recomputation ended: whatever is drawn next differs from "
        "a run without checkpointing. Leave it as it was when the backward pass came",
        "the generator is left as if nothing had been recomputed",
    )
    t(
        torch.equal(state_before, saved[0]) and torch.equal(state_now, saved[1]),
        "you changed one of the two states you were given",
        "the given states are unchanged",
    )
    torch.manual_seed(1)
    t.close(
        backward_with_recompute(x[:3], dy[:3], 0.0, state_before, state_now)[0],
        dy[:3] * torch.tensor([39.0, 545.0, 3031.0], dtype=torch.float64),
        "with a rate of 0 no entry is dropped: at x = 1 u is 2, and dx is 3 x 13 = 39 times dy",
        "without dropout, at x = 1, dx is 39 times dy",
        relative=1e-9,
    )


def check_4(t, cheapest_plan):
    """20.4 The cheapest plan that fits"""

    def fits(inputs, insides, plan, limit):
        """Say whether a plan stays within the limit."""
        return all(
            sum(inputs[: i + 1])
            + sum(b for b, again in zip(insides[:i], plan[:i], strict=True) if not again)
            + insides[i]
            <= limit
            for i in range(len(inputs))
        )

    def paid(works, plan):
        """Return the extra work of a plan."""
        return sum(cost for cost, again in zip(works, plan, strict=True) if again)

    plan = cheapest_plan([1, 1], [4, 4], [3, 3], 100)
    t(
        isinstance(plan, list | tuple) and len(plan) == 2 and all(type(p) is bool for p in plan),
        "return a list with True or False for each block",
        "a list of True and False",
    )
    t(
        not any(plan),
        "with 100 bytes everything fits as it is: recompute nothing where there is no need",
        "nothing is recomputed without need",
    )
    plan = cheapest_plan([1, 1, 1], [4, 4, 4], [3, 3, 3], 15)
    t(
        plan is not None and list(plan) == [False] * 3,
        "a peak of 15 bytes fits into a limit of 15: at most means that equal is allowed",
        "a peak that equals the limit fits",
    )
    inputs, insides, works = [1, 1, 1], [5, 4, 9], [7, 6, 1]
    plan = cheapest_plan(inputs, insides, works, 17)
    t(
        plan is not None and fits(inputs, insides, plan, 17),
        "your plan does not fit: it recomputes the last block, which is cheap, but its inside "
        "comes back while all the others are still live. What was kept is not the peak",
        "recomputing the last block gains nothing",
    )
    t(
        cheapest_plan([1, 1, 1], [4, 4, 9], [3, 3, 3], 11) is None,
        "you return a plan where none fits: the last block's backward pass alone needs three "
        "inputs and an inside of 9 bytes, which are 12, and the limit is 11. Return None",
        "no plan fits: None",
    )
    t(
        paid(works, plan or [False] * 3) != 14,
        "you recompute everything as soon as something has to be: one block is enough here",
        "not everything is recomputed",
    )
    bulge = cheapest_plan([1, 1, 1], [4, 9, 1], [5, 3, 9], 12)
    t(
        bulge is not None and fits([1, 1, 1], [4, 9, 1], bulge, 12),
        "your plan does not fit: you looked at the backward pass of the last block alone, but when "
        "the middle one, with an inside of 9, has its turn, the first block's 4 are still there",
        "the peak may lie in the middle of the backward pass",
    )
    four, large, dear = [1, 1, 1, 1], [10, 6, 5, 2], [20, 4, 4, 1]
    plan = cheapest_plan(four, large, dear, 19)
    t(
        plan is not None and fits(four, large, plan, 19),
        "your plan does not fit into 19 bytes for insides of 10, 6, 5 and 2",
        "insides of 10, 6, 5 and 2 fit into 19 bytes",
    )
    t(
        paid(dear, plan or [True] * 4) != 20,
        "your plan costs 20: it takes the block with the largest inside, or the first that helps, "
        "or as few as possible. The next two blocks together cost 8",
        "two small blocks may be cheaper than one large one",
    )
    even, cost = [2, 8, 7, 5], [3, 7, 4, 5]
    plan = cheapest_plan(four, even, cost, 18)
    t(
        paid(cost, plan or [True] * 4) != 11,
        "you took the most bytes for the work first, and went on until it fitted: a block that was "
        "taken early may turn out to be of no use, once a larger one has to be taken after all",
        "what was taken early may be superfluous",
    )
    t.equal(
        [
            None if plan is None else paid(cost, plan) * fits(four, even, plan, limit)
            for limit in range(9, 27)
            if (plan := cheapest_plan(four, even, cost, limit)) or True
        ],
        [None, 14, 14, 11, 11, 11, 11, 10, 10, 7, 7, 4, 4, 4, 4, 3, 3, 0],
        "insides of 2, 8, 7 and 5 with works of 3, 7, 4 and 5: for a limit of 9, 10, ... 26 this "
        "is the least extra work",
        "for every limit the least extra work",
    )
