"""Checks of 10_blueprint, written by tools.exercises from its solutions."""


def check_1(t, num_parameters):
    """10.1 Every parameter"""
    small = {"vocab_size": 512, "width": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}
    small |= {"head_size": 8, "hidden": 64, "tied": True}
    llama = {"vocab_size": 128_256, "width": 4_096, "num_layers": 32, "num_heads": 32}
    llama |= {"num_kv_heads": 8, "head_size": 128, "hidden": 14_336, "tied": False}
    nemo = llama | {"vocab_size": 131_072, "width": 5_120, "num_layers": 40}

    counts = [num_parameters(**settings) for settings in (small, llama, nemo)]
    t(
        counts[1] != 7_504_924_672,
        "you left out the head of Llama 3 8B: it is not tied, and a table of its own, 525 million",
        "an untied head is counted",
    )
    t(
        counts[0] != 51_360,
        "you counted the table of the small model twice: its head is tied, so one table does both",
        "a tied head costs nothing",
    )
    t(
        counts[1] != 8_835_567_616,
        "you gave keys and values as many heads as queries: Llama 3 8B has 32 query heads, and 8 "
        "for keys and values",
        "keys and values are narrower than queries",
    )
    t(
        counts[1] != 6_151_213_056,
        "you counted two matrices in the feed-forward network: SwiGLU has gate, up and down",
        "the feed-forward network has three matrices",
    )
    t(
        counts[2] != 12_772_070_400,
        "you took width / heads for the head size: the 32 heads of Mistral NeMo have 128 numbers "
        "each, not 160",
        "the head size is a setting of its own",
    )
    t.equal(
        counts,
        [34_976, 8_030_261_248, 12_247_782_400],
        "a part is missing or extra: besides the matrices there are two norms in each layer and "
        "one after the last, and no biases",
        "the chapter's small model, Llama 3 8B and Mistral NeMo are right to the last parameter",
    )


def check_2(t, training_flop):
    """10.2 Six for each parameter, and the pairs"""
    tiny = {"embedding": 16_384, "attention": 6_144, "feed_forward": 12_288, "norms": 160}
    tiny |= {"head": 0}
    llama = {"embedding": 525_336_576, "attention": 1_342_177_280, "norms": 266_240}
    llama |= {"feed_forward": 5_637_144_576, "head": 525_336_576}

    answer = training_flop(tiny, 2, 4, 8, 64)
    t(
        answer not in (209_856, 208_896),
        "you left out the pairs: the rule of six counts parameters, and comparing tokens has none",
        "the pairs are counted",
    )
    t(
        answer != 258_048,
        "you let every token read all 64: it cannot see those that come after it",
        "a token reads only itself and those before it",
    )
    t(
        answer not in (77_952, 217_216),
        "you left out a backward pass: the pairs are multiplied backward too, as the matrices are",
        "forward and backward are counted, for matrices and pairs",
    )
    t(
        answer != 135_552,
        "you let the tied head work for nothing: it saves parameters, but its product is taken",
        "a tied head takes as many FLOPs as another",
    )
    t.close(
        training_flop(llama, 32, 32, 128, 8_192),
        51_471_187_968,
        "for Llama 3 8B at 8,192 tokens this is not the count: the embedding is only looked up",
        "Llama 3 8B at 8,192 tokens takes 51.5 GFLOP for each token, 6.8 % above the rule",
        relative=1e-12,
    )
    t.close(
        answer,
        233_856,
        "for the small model this is not the chapter's count: compare the parts with its table",
        "the small model at 64 tokens takes the chapter's 233,856",
        relative=1e-12,
    )


def check_3(t, shape):
    """10.3 A shape from a budget"""
    gpt3 = shape(173_946_175_488, 128, 128)
    t(
        gpt3[0] != 941,
        "you took a square root: the width grows along with the layers, so N grows with their cube",
        "the budget grows with the cube of the depth: twice as deep is eight times as large",
    )
    t(
        gpt3[0] < 1_000,
        "you took layers / width for the ratio: it is width / layers, as in the chapter's table",
        "the ratio is width over layers",
    )
    t(
        gpt3[0] != 220,
        "you gave a layer one matrix of D x D: attention has 4 such, the feed-forward network 8",
        "a layer has 12 squares of the width",
    )
    t.equal(
        gpt3,
        (96, 12_288),
        "for the 173.9 billion of GPT-3's layers and a ratio of 128 this is not GPT-3's shape",
        "the budget and the ratio of GPT-3 give its 96 layers of 12,288",
    )
    t.equal(
        shape(84_934_656, 128, 64),
        (8, 960),
        "the budget of GPT-2 small at a ratio of 128 is 8 layers of 960: not 1,024, which follows "
        "the ratio and spends 19 % too much, and not 896, which is rounded down",
        "the width is taken from the budget, and rounded to the nearest multiple",
    )
    t.equal(
        [shape(1_323_859_968, 4_288 / 6, 64), shape(1_474_560_000, 1_600 / 48, 64)],
        [(6, 4_288), (48, 1_600)],
        "these are not the two shapes of Kaplan and others that are nearly equal in loss",
        "6 layers of 4,288 and 48 of 1,600 come out, nearly equal in size and in loss",
    )


def check_4(t, left_out):
    """10.4 Which count gives 69.5 billion?"""
    seventy = {"embedding": 1_050_673_152, "attention": 12_079_595_520, "norms": 1_318_912}
    seventy |= {"feed_forward": 56_371_445_760, "head": 1_050_673_152}

    popular = left_out(seventy, 69.5, 1)
    t(
        popular != [],
        "you looked for exactly 69,500,000,000: a figure with one decimal stands for every count "
        "that rounds to it",
        "a figure stands for all counts that round to it",
    )
    t(
        popular not in ([["embedding"]], [["head"]]),
        "you named one part, but two have the same size: the figure cannot tell embedding and "
        "head apart",
        "all sets of the fewest parts are found",
    )
    t(
        popular != [["embedding", "norms"], ["head", "norms"]],
        "you took the count nearest to 69.5: the figure is not that precise, and the simplest "
        "account comes first",
        "the simplest account comes before the nearest one",
    )
    t.equal(
        popular,
        [["embedding"], ["head"]],
        "69.5 billion is the 70B without one of its two tables: no larger set is wanted",
        "69.5 billion is the 70B without the embedding, or without the head",
    )
    t.equal(
        [left_out(seventy, 68.5, 1), left_out(seventy, 69.5017, 4)],
        [[["embedding", "head"]], [["embedding", "norms"], ["head", "norms"]]],
        "you did not round as the figure does: 68.452 without both tables is printed as 68.5, "
        "and more decimals show whether the norms are in it",
        "the figure is rounded, and its decimals decide what it can tell",
    )
    t.equal(
        [left_out(seventy, 70.6, 1), left_out(seventy, 70.0, 1)],
        [[[]], []],
        "70.6 is the whole model, from which nothing was left out, and 70.0 is no count of it",
        "nothing is missing from 70.6, and nothing explains 70.0",
    )
