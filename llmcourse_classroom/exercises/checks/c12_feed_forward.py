"""Checks of exercises 12: the feed-forward network."""

import torch


def check_1(t, compare, conclusions, network, shapes, *, TASKS, trained_error):
    """12.1 Is the gate worth its weights?"""
    sizes = {
        kind: sum(rows * columns for rows, columns in shapes(kind, 6, 10))
        for kind in ("gate", "relu", "no curve")
    }
    t(
        sizes["relu"] != 120 and sizes["no curve"] != 120,
        "you gave all networks F hidden units: the one with a gate then has half as many weights "
        "more, and wins for its size",
        "hidden units are not what is kept equal",
    )
    t.equal(
        sizes,
        {"gate": 180, "relu": 180, "no curve": 180},
        "with D = 6 and F = 10 the network with a gate has 3 x 6 x 10 = 180 weights, and so are "
        "the others to have: two matrices of 6 x 15",
        "all three have the same number of weights",
    )
    one, double = torch.eye(2), 2 * torch.eye(2)
    x = torch.tensor([[1.0, -3.0]])
    t.close(
        network("relu", x, [double, one]),
        torch.tensor([[2.0, 0.0]]),
        "(1, -3), doubled, is (2, -6), and relu makes (2, 0) of that",
        "relu stops what is negative",
    )
    t.close(
        network("no curve", x, [double, torch.tensor([[1.0, 0.0], [1.0, 0.0]])]),
        torch.tensor([[2.0, 2.0]]),
        "without a curve (1, -3), doubled, is (2, -6), and rows of (1, 0) make (2, 2) of that: "
        "each matrix has a row for each of its outputs",
        "without a curve two matrices are left",
    )
    t.close(
        network("gate", x, [double, 3 * one, one]),
        torch.tensor([[5.284782, 0.133508]]),
        "(1, -3) with gates of 2 and -6 and plain numbers of 3 and -9 gives 5.285 and 0.134: silu "
        "is on the first matrix's numbers alone",
        "the gate is silu(2) = 1.762, and the plain number 3",
        relative=1e-4,
    )
    found = compare([0])
    right = {
        (kind, task): trained_error(kind, task, 0, network=network, shapes=shapes(kind, 4, 8))
        for kind in ("gate", "relu", "no curve")
        for task in TASKS
    }
    t(
        isinstance(found, dict) and set(found) == set(right),
        "the table of compare has one entry for each kind and task, six in all, with keys such as "
        "('gate', 'kinks')",
        "six errors are compared",
    )
    t.close(
        [found[pair] for pair in right],
        list(right.values()),
        "trained again with seed 0, the networks have other errors than your table: train with "
        "D = 4, F = 8, your network, your shapes and the seeds that are given",
        "trained again, the networks have the errors of your table",
        relative=0.2,
        absolute=0.02,
    )
    best = {
        task: min(("gate", "relu", "no curve"), key=lambda kind: right[kind, task])
        for task in TASKS
    }
    t.equal(
        {task: conclusions().get(task) for task in TASKS},
        best,
        "your conclusions are not what the table says: look for the smallest error of each task",
        f"best at products: {best['products']}; best at kinks: {best['kinks']}. A curve is good at "
        "what looks like it",
    )
    t.equal(
        conclusions().get("neither"),
        "no curve",
        "look for the kind whose error is 1 or more for both tasks: it is no better than always "
        "answering with the mean",
        "without a curve two matrices are one, and learn neither",
    )


def check_2(t, multipliers, shares):
    """12.2 28,672: where it comes from, and what share it makes"""
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
    # One block of 4 channels: 48 numbers of attention, 96 of the network, 8 of norms; 40 in each
    # table, and 4 of the last norm.
    small = shares(1, 4, 2, 1, 8, 10)
    t(
        isinstance(small, list | tuple) and len(small) == 3,
        "three numbers are asked for: the share of all parameters, of all but the head, of the "
        "blocks",
        "there are three shares",
    )
    found = [round(float(share), 4) for share in small]
    t(
        all(0 < share < 1 for share in found),
        "a share is a number between 0 and 1, such as 0.8 for 80 %",
        "shares lie between 0 and 1",
    )
    t(
        found[2] != 0.5714,
        "you gave keys and values as many heads as queries: one key head for two query heads makes "
        "its matrix half as large",
        "keys and values are shared among heads",
    )
    t(
        found[2] != 0.5333,
        "you counted two matrices in a feed-forward network: a Llama has three, gate, up and down",
        "each network has three matrices",
    )
    t(
        found[2] != 0.6667,
        "you left out the norms: each block has two, of D gains each",
        "the norms of a block are counted",
    )
    t(
        round(float(small[0]), 4) != round(96 / 196, 4),
        "you counted one table of the vocabulary: embedding and head are two, and both are in the "
        "whole",
        "embedding and head are two tables",
    )
    t.close(
        small,
        (96 / 236, 96 / 196, 96 / 152),
        "one block of 4 channels with 2 query heads, 1 key head, 8 hidden units and 10 tokens has "
        "152 parameters, of which 96 are the network's; embedding and head have 40 each, and the "
        "last norm 4",
        "a Llama of 236 parameters has 96 in its feed-forward network",
        relative=1e-9,
    )
    t.close(
        shares(80, 8_192, 64, 8, 28_672, 128_256),
        (0.7989863, 0.8110645, 0.8235137),
        "the three shares of the 70B are 79.9 %, 81.1 % and 82.4 %: does every block count, and "
        "its network with it?",
        "80 % of the 70B is the feed-forward networks, and 82.4 % of its blocks: both are right",
        relative=1e-5,
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
