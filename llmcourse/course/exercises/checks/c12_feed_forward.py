"""Checks of 12_feed_forward, written by tools.exercises from its solutions."""

import torch


def check_1(t, feed_forward_shares):
    """12.1 79.9, 81.1 or 82.4 %"""
    small = {"vocab_size": 100, "width": 16, "num_layers": 2, "num_heads": 2}
    small |= {"num_kv_heads": 1, "head_size": 4, "hidden": 40, "tied": False}
    llama = {"vocab_size": 128_256, "width": 8_192, "num_layers": 80, "num_heads": 64}
    llama |= {"num_kv_heads": 8, "head_size": 128, "hidden": 28_672, "tied": False}
    stories = {"vocab_size": 768, "width": 80, "num_layers": 4, "num_heads": 4}
    stories |= {"num_kv_heads": 2, "head_size": 20, "hidden": 224, "tied": True}

    shares = feed_forward_shares(**llama)
    t(
        isinstance(shares, list | tuple) and len(shares) == 3,
        "three shares are asked for, in a tuple",
        "there are three shares",
    )
    percent = [round(100 * float(share), 1) for share in shares]
    t(
        max(percent) < 1_000,
        "you returned per cent: a share is a number between 0 and 1",
        "shares are numbers between 0 and 1",
    )
    t(
        percent[:2] != [81.1, 79.9],
        "you exchanged the first two: the share of all parameters comes first",
        "the share of all parameters comes first",
    )
    t(
        percent[0] != 81.1 or percent[1] == 79.9,
        "you left the head out of all parameters: in Llama 3 it is a table of its own, 1.05 "
        "billion numbers, and without it the 70B has the popular 69.5 billion",
        "all parameters include the head",
    )
    t(
        percent[2] != 75.7,
        "you counted two matrices in the feed-forward network: SwiGLU has gate, up and down",
        "the feed-forward network has three matrices",
    )
    t(
        percent[2] != 72.4,
        "you gave keys and values as many heads as queries: the 70B has 64 query heads and 8 for "
        "keys and values",
        "keys and values have fewer heads than queries",
    )
    t(
        percent[2] not in (81.1, 79.9),
        "you counted a table among the blocks: embedding and head stand before and after them",
        "the blocks do without the tables",
    )
    t.close(
        feed_forward_shares(**small),
        (0.486815415821501, 0.6106870229007634, 0.821917808219178),
        "for a small model with 2 heads of 4 numbers at width 16 the shares are 3,840 of 7,888, of "
        "6,288 and of 4,672: the two norms of a block count in it and the last one does not, and "
        "the head size is a setting of its own",
        "a small model is right to the last parameter",
        relative=1e-9,
    )
    t.close(
        feed_forward_shares(**stories),
        (0.6074576271186441, 0.6074576271186441, 0.735229759299781),
        "the chapter's stories model has a tied head: its one table counts once, and as the "
        "embedding, so the first two shares are both 60.7 %",
        "a tied head has no parameters of its own",
        relative=1e-9,
    )
    t.close(
        shares,
        (0.7989863121251602, 0.8110645398884074, 0.8235136428913356),
        "for Llama 3 70B the three are 79.9 % of all, 81.1 % without the head, and 82.4 % of the "
        "blocks, in this order",
        "Llama 3 70B: 79.9 % of all, 81.1 % without the head, 82.4 % of the blocks",
        relative=1e-9,
    )
    t.close(
        feed_forward_shares(**llama | {"num_kv_heads": 64})[0],
        0.7050930319129478,
        "with 64 key/value heads the share of all would be 70.5 %",
        "with 64 key/value heads it would be 70.5 %: grouped queries made attention smaller",
        relative=1e-9,
    )


def check_2(t, multipliers):
    """12.2 The multiplier behind 28,672"""
    answer = multipliers(8_192, 28_672, 4_096)
    t(
        isinstance(answer, list | tuple) and len(answer) == 2,
        "two numbers are asked for: the ends of the range",
        "the range has two ends",
    )
    low, high = (round(float(end), 5) for end in answer)
    t(
        low < high,
        "the lower end comes first, and it is below the upper one: several multipliers are rounded "
        "up to the same width",
        "several multipliers lead to one width",
    )
    t(
        high not in (0.875, 0.75, 1.0),
        "you divided by 4 D: a multiplier of 1 is to mean as many parameters as two matrices of "
        "4 D, and three such matrices are narrower",
        "a multiplier of 1 means equal parameters",
    )
    t(
        high not in (2.625, 3.0),
        "you shared the numbers of one matrix among three: two matrices of 4 D are 8 D², so F is "
        "8 D / 3",
        "three matrices of 8 D / 3 are as large as two of 4 D",
    )
    t(
        (low, high) != (1.21875, 1.40625),
        "you rounded to the nearest: widths are rounded up, so the wanted width is never above the "
        "finished one",
        "the wanted width is at most the finished one",
    )
    t(
        (low, high) != (1.3125, 1.5),
        "you rounded down: 28,672 is the wanted width rounded up, so it is the largest that was "
        "wanted and not the smallest",
        "widths are rounded up",
    )
    t.close(
        answer,
        (1.125, 1.3125),
        "for the 70B the ends are exactly 1.125 and 1.3125: a wanted width need not be a whole "
        "number, nor a multiplier one of the first decimals",
        "the 70B could have had any multiplier above 1.125, up to 1.3125: 1.2 gives the same model",
        relative=1e-9,
    )
    t.equal(
        [multipliers(8_192, 22_016, 4_096), multipliers(4_096, 11_008, 512)],
        [None, None],
        "22,016 is no multiple of 4,096, and 11,008 none of 512: whatever the multiplier, they are "
        "not what rounding up leads to",
        "a width that is no multiple has no multiplier",
    )
    t.close(
        [
            multipliers(*sizes)
            for sizes in ((4_096, 14_336, 1_024), (16_384, 53_248, 4_096), (768, 2_048, 256))
        ],
        [(1.21875, 1.3125), (1.125, 1.21875), (0.875, 1.0)],
        "the 8B of Llama 3 needs more than 1.21875 and at most 1.3125, the 405B more than 1.125 "
        "and at most 1.21875, and 2,048 for 768 channels more than 0.875 and at most 1",
        "no multiplier fits both the 8B and the 405B of Llama 3: Meta's are 1.3 and 1.2",
        relative=1e-9,
    )
    t.close(
        multipliers(768, 256, 256),
        (0.0, 0.125),
        "the smallest width there is, one multiple, is what every multiplier above 0 leads to, up "
        "to 0.125 here",
        "the smallest width begins at 0",
        relative=1e-9,
        absolute=1e-12,
    )


def check_3(t, gated):
    """12.3 SwiGLU"""
    # One token, and diagonal matrices: 2 in the gate, 3 in the other branch.
    token = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    gate, up = (torch.diag(torch.tensor(d, dtype=torch.float64)) for d in ([2.0, 9.0], [3.0, 9.0]))
    found = round(float(gated(token, gate, up, torch.eye(2).double())[0, 0]), 3)
    t(
        found != 5.715,
        "you put the other branch through silu: the gate's 2 goes through, and the 3 stays as it "
        "is",
        "silu is on the gate's branch",
    )
    t(
        found != 2.642,
        "you took the sigmoid for the gate: silu(a) is a times sigmoid(a)",
        "silu is not the sigmoid",
    )
    t(
        found not in (5.985, 5.034),
        "you put more than the gate through silu: the other branch is multiplied as it is",
        "only the gate goes through silu",
    )
    t(
        found not in (4.762, 1.762),
        "the branches are multiplied: a gate decides how much of the other number passes",
        "the branches are multiplied",
    )
    t(
        found == 5.285,
        "silu(2) times 3 is 5.285: 6 would be relu, 5.864 gelu, 0.715 a turned sign in the "
        "exponent, and 6.285 has x added, which the block does and not the network",
        "silu(2) times 3 is 5.285",
    )
    square = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    one = torch.eye(2, dtype=torch.float64)
    t.close(
        [
            gated(torch.tensor([[1.0, 1.0]], dtype=torch.float64), *matrices)
            for matrices in ((square, one, one), (one, square, one), (one, one, square))
        ],
        [
            torch.tensor([row], dtype=torch.float64)
            for row in (
                [2.857722380434301, 0.7310585786300049],
                [2.1931757358900146, 0.7310585786300049],
                [2.1931757358900146, 0.7310585786300049],
            )
        ],
        "you multiplied by a matrix the other way round: a row of it belongs to an output, so x is "
        "multiplied by the transposed matrix, in all three products",
        "the rows of all three matrices are outputs",
        relative=1e-9,
    )
    generator = torch.Generator().manual_seed(123)
    shapes = [(2, 3, 5), (8, 5), (8, 5), (5, 8)]
    x, w_1, w_2, w_3 = (torch.randn(*s, generator=generator).double() for s in shapes)
    branch = torch.nn.functional.linear(x, w_1)
    t.close(
        gated(x, w_1, w_2, w_3),
        torch.nn.functional.linear(
            branch / (1 + (-branch).exp()) * torch.nn.functional.linear(x, w_2), w_3
        ),
        "two texts of three tokens are not right: every token goes through by itself, whatever "
        "stands before the last dimension",
        "two texts of three tokens, 5 wide and 8 inside, are right",
        relative=1e-9,
    )
    wide = torch.tensor([[200.0, -200.0]])
    t.close(
        gated(wide, torch.eye(2), torch.eye(2), torch.eye(2)),
        torch.tensor([[40_000.0, 0.0]]),
        "exp(200) is more than a 32-bit number can hold: a sigmoid(a) is silu without that",
        "large numbers in float32 do not overflow",
        relative=1e-5,
    )


def check_4(t, writers):
    """12.4 Which unit wrote the word?"""
    # Three tokens, two channels, five units: the columns of the down matrix and their numbers.
    head = torch.tensor([[1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
    columns = torch.tensor(
        [[1.0, -2.0, 0.0, 4.0, -7.0], [0.0, 0.0, 4.0, 0.0, 0.0]], dtype=torch.float64
    )
    numbers = torch.tensor([3.0, -1.0, 5.0, 0.25, 0.5], dtype=torch.float64)

    pairs = writers(numbers, columns, head, 0, 5)
    t(
        all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
        and sorted(int(pair[0]) for pair in pairs) == [0, 1, 2, 3, 4],
        "a list of pairs is asked for, (unit, rise), in which each of the five units comes once",
        "there is a pair (unit, rise) for each unit",
    )
    answer = [(int(unit), float(rise)) for unit, rise in pairs]
    first, rises = answer[0], dict(answer)
    t(
        first[0] != 2 or first[1] <= 5,
        "you put unit 2 first: its number is 5 and its column large, but it raises all three "
        "logits alike, by 20, which changes no probability: take the rise above their mean",
        "what raises all logits alike is not counted",
    )
    t(
        first[0] != 2,
        "you put unit 2 first for its large number: what counts is what it writes towards the "
        "token",
        "a large number alone writes no word",
    )
    t(
        first[0] != 3,
        "you put unit 3 first for its column, which would raise the logit by 4: here its number is "
        "0.25, so the column is added a quarter of once",
        "a column is added as often as the unit's number says",
    )
    t(
        first[0] != 4,
        "you put unit 4 first: it lowers the logit, by 3.5, and what is asked for are the largest "
        "rises",
        "units that lower the logit come last",
    )
    t(
        round(first[1], 6) != 4.5,
        "you took the mean of the other tokens: it is the mean of all logits, with that of the "
        "token itself",
        "the mean is that of all logits",
    )
    t(
        rises.get(1, 0.0) > 0 or round(rises.get(3, 0.0), 6) != 1.0,
        "unit 1 has the number -1, and its column lowers the logit by 2: added minus once, it "
        "raises the logit by 2",
        "a negative number and a column that lowers raise the logit together",
    )
    t.close(
        answer,
        [(0, 3.0), (1, 2.0), (3, 1.0), (2, 0.0), (4, -3.5)],
        "units 0 to 4 raise the logit of token 0 by 3, 2, 0, 1 and -3.5: a unit writes its column "
        "of the down matrix, and no row of it",
        "units 0, 1 and 3 raise the logit of token 0, by 3, 2 and 1",
        relative=1e-9,
        absolute=1e-9,
    )
    generator = torch.Generator().manual_seed(124)
    w_down_DF = torch.randn(4, 9, generator=generator).double()
    head_VD = torch.randn(7, 4, generator=generator).double()
    hidden_F = torch.randn(9, generator=generator).double()
    linear = torch.nn.functional.linear
    logits_V = linear(linear(hidden_F, w_down_DF), head_VD)
    t.close(
        sum(float(rise) for _, rise in writers(hidden_F, w_down_DF, head_VD, 5, 9)),
        float(logits_V[5] - logits_V.mean()),
        "the rises of all nine units together have to be the whole rise of the logit above the "
        "mean: nothing is left over",
        "the rises of all units add up to that of the network",
        relative=1e-9,
    )
    t.equal(
        [unit for unit, _ in writers(hidden_F, w_down_DF, head_VD, 5, 2)],
        [unit for unit, _ in writers(hidden_F, w_down_DF, head_VD, 5, 9)][:2],
        "asked for 2 units, you gave others than the first 2 of all 9",
        "the first two are the first two of all",
    )
