"""Checks of exercises 10: the blueprint."""

import torch


def check_1(t, num_parameters):
    """10.1 Every parameter"""
    small = {"vocab_size": 768, "width": 80, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}
    small |= {"head_size": 20, "hidden": 224, "tied": True}
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
        counts[0] != 269_200,
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
        [207_760, 8_030_261_248, 12_247_782_400],
        "a part is missing or extra: besides the matrices there are two norms in each layer and "
        "one after the last, and no biases",
        "the chapter's small model, Llama 3 8B and Mistral NeMo are right to the last parameter",
    )


def check_2(t, training_flop):
    """10.2 Six for each parameter, and the pairs"""
    tiny = {"embedding": 61_440, "attention": 38_400, "feed_forward": 107_520, "norms": 400}
    tiny |= {"head": 0}
    llama = {"embedding": 525_336_576, "attention": 1_342_177_280, "norms": 266_240}
    llama |= {"feed_forward": 5_637_144_576, "head": 525_336_576}

    answer = training_flop(tiny, 2, 4, 20, 96)
    t(
        answer not in (1_246_560, 1_244_160),
        "you left out the pairs: the rule of six counts parameters, and comparing tokens has none",
        "the pairs are counted",
    )
    t(
        answer != 1_428_480,
        "you let every token read all 96: it cannot see those that come after it",
        "a token reads only itself and those before it",
    )
    t(
        answer not in (445_760, 1_275_200),
        "you left out a backward pass: the pairs are multiplied backward too, as the matrices are",
        "forward and backward are counted, for matrices and pairs",
    )
    t(
        answer != 968_640,
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
        1_337_280,
        "for the small model this is not the chapter's count: compare the parts with its table",
        "the small model at 96 tokens takes the chapter's 1,337,280",
        relative=1e-12,
    )


def check_3(t, computed):
    """10.3 A block"""
    # The chapter's token: its norm is (0.2, 1.4), attention says (3, -2), so it becomes (4, 5).
    x, one, none = torch.tensor([[1.0, 7.0]]), torch.ones(2), torch.zeros(2, 2)
    says = torch.tensor([[15.0, 0.0], [-10.0, 0.0]])
    after, kept = computed(x, one, says, one, none)
    t(
        tuple(after.shape) == (1, 2) and abs(after - torch.tensor([[3.0, -2.0]])).max() > 1e-3,
        "your part replaces the list: its result is to be added to x",
        "attention adds to the stream",
    )
    t(
        abs(after - torch.tensor([[3.2, -0.6]])).max() > 1e-3,
        "you added to the norm's output: it is read by the part and then thrown away",
        "what is added to is the stream itself, not its scaled copy",
    )
    t(
        abs(after.square().mean() - 1) > 1e-3,
        "your list comes out scaled: the norm stands in front of a part, not behind the addition",
        "the norms stand in front of the parts",
    )
    t(
        torch.equal(kept, x),
        "you changed the tensor that the caller holds: x += ... does that, x = x + ... does not",
        "the tensor that came in is as it was",
    )
    # (4, 5) has the root mean square 4.53: the second part reads (0.883, 1.104).
    both, _ = computed(x, one, says, one, 10 * torch.eye(2))
    t(
        abs(both - torch.tensor([[6.0, 19.0]])).max() > 1e-3,
        "your feed-forward network reads the old list: attention has added to it by then",
        "the feed-forward network reads what attention has left",
    )
    t.close(
        both,
        torch.tensor([[4.0, 5.0]]) * (1 + 10 / 20.5**0.5),
        "the token (1, 7) becomes another: compare with equation 10.1, norm by norm",
        "the chapter's token comes out right after both parts",
        relative=1e-5,
    )


def check_4(t, next_token_probabilities):
    """10.4 The sampler"""
    logits = torch.tensor([3.0, 1.0, 6.0], dtype=torch.float64).log()  # 0.3, 0.1, 0.6
    t.close(
        next_token_probabilities(logits, 0, None, None),
        torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64),
        "at temperature 0 nothing is divided: the token with the largest logit gets all",
        "at temperature 0 the likeliest token is certain",
    )
    t.close(
        next_token_probabilities(logits, 0.5, None, None),
        torch.tensor([9.0, 1.0, 36.0], dtype=torch.float64) / 46,
        "half the temperature squares the exponentials, 9, 1 and 36: divide the logits by it",
        "half the temperature squares the exponentials",
    )
    two = next_token_probabilities(logits, 1.0, 2, None)
    t(
        abs(two.sum() - 1) < 1e-9,
        "your probabilities do not sum to 1 after a cut: divide what is left by its sum",
        "what is left sums to 1",
    )
    t.close(
        two,
        torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64) / 3,
        "top_k = 2 keeps the first and the last of these three: put each back in its own place",
        "top-k keeps the likeliest, in their places",
    )
    t.close(
        next_token_probabilities(logits, 1.0, None, 0.8),
        torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64) / 3,
        "top_p = 0.8 keeps 0.6 and 0.3: the likeliest alone does not reach it, the two do",
        "top-p keeps the token that reaches p",
    )
    t.close(
        next_token_probabilities(logits, 1.0, 2, 0.65),
        torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64),
        "after top_k = 2 the likeliest has 2/3 of what is left, and so reaches 0.65 alone",
        "top-p looks at what top-k has left",
    )


def check_5(t, experiment, *, loss_after):
    """10.5 Shapes of equal size"""
    found = experiment()
    shapes, losses = found["shapes"], found["losses"]
    t.equal(
        [shape[0] for shape in shapes],
        [1, 2, 4],
        "three shapes are asked for, with 1, 2 and 4 layers in this order",
        "shapes with 1, 2 and 4 layers",
    )
    sizes = [300 * D + L * (3 * D * D + 3 * D * F + 2 * D) + D for L, D, F in shapes]
    t(
        all(58_800 <= size <= 61_200 for size in sizes),
        "your shapes are not equal in size: count the embedding too, 300 times the width",
        "each shape has 60,000 parameters, up to 2 %",
    )
    t(
        all(abs(one - two) > 1e-6 for one, two in losses),
        "you trained one seed twice: without a second one you cannot tell luck from shape",
        "two seeds for each shape",
    )
    again = loss_after(*shapes[1], 1, num_steps=50, peak=6e-3)
    t(
        abs(losses[1][1] - again) < 0.02,
        "the losses are not those of your shapes: trained again, two layers with seed 1 differ",
        "the losses are those of the shapes",
    )
    means = [sum(pair) / 2 for pair in losses]
    best = means.index(min(means))
    t(
        found["best"] == shapes[best][0],
        "your best shape is not the one with the lowest mean of its two losses",
        "the best shape is the one with the lowest mean",
    )
    rest = [loss for pair in losses[:best] + losses[best + 1 :] for loss in pair]
    t(
        found["clear"] == (max(losses[best]) < min(rest)),
        "a lower mean is not yet clear: compare the worst seed of the best shape with the best "
        "seed of the others",
        "what the seeds allow to say",
    )
