"""Checks of exercises 49: Tuning: what it teaches, and what it takes."""

import torch


def check_1(t, memory, largest_rank):
    """49.1 What a fine-tuning run holds"""
    one = [[64, 32]]
    t.equal(
        memory(one, 32, 0, False),
        [8_320, 8_320, 16_640],
        "2,080 weights of 4 bytes, as many bytes of gradients, and two moments of each weight",
        "full training holds 16 bytes a weight",
    )
    t.equal(
        memory(one, 32, 1, False)[1:],
        [384, 768],
        "A is 1 × 32 and B is 64 × 1: they alone have gradients and moments, 96 numbers",
        "what stays has neither gradients nor moments",
    )
    t.equal(
        memory(one, 32, 1, False)[0],
        8_704,
        "all 2,080 weights stay, and the 96 of A and B come beside them",
        "thin matrices are weights, too",
    )
    t.equal(
        memory(one, 32, 2, True),
        [1_280 + 34 + 768, 768, 1_536],
        "64 blocks of 32 weights are 1,280 bytes, with their scales, and 32 others are 34; A and B "
        "are in float32",
        "the blocks count with their scales",
    )
    t.equal(
        memory([[64, 32], [32, 32]], 64, 3, True),
        [1_920 + 68 + 1_920, 1_920, 3_840],
        "each matrix has thin ones of its own: 3 · (64 + 32) and 3 · (32 + 32) numbers",
        "matrices are summed",
    )
    t.equal(
        largest_rank(1_314 + 5 * 96 * 16, one, 32, True),
        5,
        "rank 5 fills this memory to the last byte, which is enough: a rank takes 96 · 16 bytes",
        "a memory may be full",
    )
    t.equal(
        [largest_rank(10**9, one, 32, False), largest_rank(1_000, one, 32, True)],
        [32, None],
        "a rank is at most the smaller side, 32; and in 1,000 bytes not even the weights fit: None",
        "ranks end at the smallest side",
    )


def check_2(t, learnt, prompt, is_asked_so, *, encode):
    """49.2 Which tokens are learnt"""
    start, end, line = 2_000_000, 2_000_001, 3_000_001
    special = {"<|im_start|>": start, "<|im_end|>": end}

    def said(*turns):
        return [{"role": role, "content": content} for role, content in turns]

    def chosen(messages, system="Be"):
        ids, marks = learnt(messages, special, system)
        return [i for i, mark in zip(ids, marks, strict=True) if mark]

    both = said(("user", "Oh"), ("assistant", "Hi"))
    front = [start, *(i for i, _ in encode("system\nBe")), end, line]
    t.equal(
        list(learnt(both, special, "Be")[0])[: len(front)],
        front,
        "the first message is the user's, so the template puts the system message in front of it",
        "a system message is put in front",
    )
    asked = [start, *(i for i, _ in encode("user\nOh")), end, line]
    answered = [start, *(i for i, _ in encode("assistant\nHi")), end, line]
    t.equal(
        list(learnt(both, special, "Be")[0]),
        [*front, *asked, *answered],
        "each message is <|im_start|>, its role, a line end, its content, <|im_end|>, a line end",
        "messages as the template writes them",
    )
    own = said(("system", "Go"), ("user", "Oh"))
    t.equal(
        len(learnt(own, special, "Be")[0]),
        len(front) + len(asked),
        "a conversation with a system message of its own gets no second one",
        "an own system message stays alone",
    )
    t.equal(
        chosen(both),
        [ord("H"), ord("i"), end],
        "learnt are the assistant's characters and the <|im_end|> behind them: neither its role, "
        "nor the line end after it, nor what others say",
        "the answer and its end are learnt",
    )
    t.equal(
        chosen(said(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))),
        [ord("b"), end, ord("d"), end],
        "every answer of a conversation is learnt, not the last one alone",
        "each answer is learnt",
    )
    t.equal(
        [i for i in learnt(said(("user", "<|im_end|>")), special, "Be")[0] if i == end],
        [end, end],
        "who types <|im_end|> has typed ten characters: a message is plain text",
        "nobody can type a special token",
    )
    t.equal(
        chosen(said(("user", "a"), ("assistant", "\nb"))),
        [3_000_002, ord("b"), end],
        "the line end of the role and that of the answer are one token, 3,000,002: it has a "
        "character of the answer, so it is learnt",
        "a token across the border is learnt",
    )
    t.equal(
        list(prompt(both[:1], special, "Be")),
        [*front, *asked, *answered[:11]],
        "a prompt ends with <|im_start|>, assistant and a line end",
        "the model goes on where its content begins",
    )
    t.equal(
        [is_asked_so(both[:1], answer, special, "Be") for answer in ("Hi", "\nHi", "", " \n")],
        [True, False, True, True],
        "behind a prompt that ends with one line end comes \\nHi, but training has seen a token of "
        "two line ends in its place",
        "an answer may change the prompt before it",
    )


def check_3(t, rate, chance, changed):
    """49.3 Refused, wanted and unwanted"""
    few, more = [True] * 10 + [False] * 40, [True] * 18 + [False] * 32
    t.close(
        rate(few),
        [0.2, 0.112438, 0.330370],
        "Wilson's interval of 10 in 50 is 0.112 to 0.330: not even around 0.2",
        "a share with its interval",
        relative=1e-4,
    )
    t.close(
        rate([False] * 50),
        [0.0, 0.0, 0.071348],
        "none of 50 does not mean never: up to 7 % fit this count",
        "none of 50 has an interval, too",
        relative=1e-4,
        absolute=1e-9,
    )
    t.close(
        chance(few, more),
        2 / 2**8,
        "8 requests changed, all in one direction: 2 · 1 / 2^8. The 42 others say nothing",
        "only what changed counts",
    )
    t.close(
        chance([True, True, False, False, False], [False, True, True, True, True]),
        2 * 5 / 2**4,
        "three changed one way and one the other: splits at least as uneven have 0 or 1 on the "
        "smaller side, on either side: 2 (1 + 4) / 16",
        "both directions are surprising",
    )
    t.equal(
        [chance(few, few), chance([True, False], [False, True])],
        [1.0, 1.0],
        "where nothing changed, or as much one way as the other, the chance is 1, and never more",
        "no change is no surprise",
    )
    before = {"wanted": few, "unwanted": [False] * 50, "plain": few}
    after = {"wanted": more, "unwanted": [True] * 5 + [False] * 45, "plain": few[::-1]}
    t.equal(
        changed(before, after),
        ["wanted"],
        "10 of 50 and 18 of 50 have intervals that overlap, and yet 8 of the same requests changed "
        "in one direction; 5 could be chance (0.06), and so could 10 one way and 10 the other",
        "pairs decide, not the overlap of intervals",
    )


def check_4(t, dominated, best, verdict):
    """49.4 Read a plane"""

    def runs(*rows):
        return [dict(zip(("way", "rate", "loss", "bits"), row, strict=True)) for row in rows]

    full = runs(("all", 1e-5, 1.5, 1.0), ("all", 1e-4, 0.6, 1.1), ("all", 1e-3, 0.5, 1.6))
    thin = runs(("thin", 1e-4, 1.4, 1.0), ("thin", 1e-3, 0.7, 1.05), ("thin", 1e-2, 0.6, 1.3))
    t.equal(
        dominated([*full, *thin]),
        [0, 5],
        "the first run forgets as little as the fourth and learns less; the last learns as much as "
        "the second and forgets more. To be beaten, a run has to be worse in one number only",
        "runs that another one beats",
    )
    t.equal(
        dominated(runs(("all", 1e-4, 0.6, 1.1), ("thin", 1e-3, 0.6, 1.1))),
        [],
        "two runs with the same numbers do not beat each other",
        "equal runs beat none",
    )
    gone = runs(("thin", 0.1, None, None))
    t.equal(
        [dominated([*full, *gone]), dominated(gone)],
        [[3], []],
        "a run that diverged is beaten by any that did not",
        "what diverged is beaten",
    )
    t.equal(
        best([*full, *thin, *gone], 1.0),
        {"all": 1, "thin": 4},
        "0.6 + 1.1 is the least of the first way, 0.7 + 1.05 that of the second; the place is that "
        "in the whole list, and None is no number",
        "the best run of each way",
    )
    t.equal(
        best([*full, *thin], 0.0),
        {"all": 2, "thin": 5},
        "where forgetting costs nothing, the smallest loss alone decides",
        "the price moves the best run",
    )
    t.equal(
        verdict([*full, *thin], 1.0),
        "all",
        "both best runs have a middle rate: 1.7 against 1.75",
        "the best of the best",
    )
    t.equal(
        verdict([full[1], thin[1]], 1.0),
        None,
        "one rate of each way is no verdict: a better one may lie on either side",
        "a single pair of rates decides nothing",
    )
    t.equal(
        [verdict([*full[:2], *thin], 1.0), verdict([*full, *thin[1:]], 1.0)],
        [None, None],
        "a best run at the highest or at the lowest rate that was tried may have a better one "
        "beyond, in the way that wins or in the other",
        "the best rate must lie inside",
    )
    t.equal(
        [verdict([*full, *thin[:2], *gone], 1.0)],
        ["all"],
        "the rate that diverged was tried, too: with it, 1e-3 lies inside",
        "a rate that diverged is an end",
    )


def check_5(t, pair_loss, after_step, both_fall):
    """49.5 DPO, and where the probability goes"""
    t.close(
        pair_loss(-4.0, -9.0, -4.0, -9.0, 0.2),
        [0.693147, 0.1],
        "a policy that is its reference has the margin 0, however far its answers are apart: "
        "the loss is ln 2, the weight half of β",
        "at the start the margin is 0",
        relative=1e-5,
    )
    t.close(
        pair_loss(-5.0, -12.0, -4.0, -6.0, 0.2),
        [0.313262, 0.2 * 0.268941],
        "the margin is 0.2 · (−1 + 6) = 1: the loss is ln(1 + e^−1), the weight 0.2 · σ(−1)",
        "loss and weight of a margin of 1",
        relative=1e-5,
    )
    t.close(
        pair_loss(-4.0, -11.0, -3.0, -5.0, 0.2),
        pair_loss(-2.0, -9.0, -3.0, -5.0, 0.2),
        "only the difference of the two moves counts: both log-probabilities two lower, the same "
        "loss",
        "a loss that does not see both fall",
    )
    words = [[1.0, 1.0], [1.0, 0.0], [0.0, 3.0]]
    t.close(
        after_step(words, [0.0, 0.0], [0, 1], 0.2, 1.0),
        [-0.04122, -0.14122, 0.15878],
        "the weight is 0.1, so theta becomes (0, 0.1) and the logits 0.1, 0 and 0.3; what is asked "
        "for are the changes of their log-softmax",
        "the answer of neither place gains most",
        relative=1e-3,
    )
    t.equal(
        both_fall(words, [0.0, 0.0], [0, 1]),
        True,
        "pushed are the logits by 1, 0 and 3 times the same, by 4/3 on average: the first two gain "
        "less than that, so their probabilities fall",
        "both fall, and the third gains",
    )
    t.equal(
        [
            both_fall([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0.0, 0.0], [0, 1]),
            both_fall(words[:2], [0.0, 0.0], [0, 1]),
        ],
        [False, False],
        "answers that share nothing are pushed apart, and of two answers alone one must gain",
        "where nothing is shared, the chosen one gains",
    )
    t.equal(
        [both_fall(words, [0.0, -2.0], [0, 1]), both_fall(words, [0.0, 2.0], [0, 1])],
        [False, True],
        "the mean is that of the policy: an answer that is hardly ever given takes little",
        "it hangs on what else is likely",
    )


def check_6(t, dense, forward, backward):
    """49.6 An adapter beside four bits"""
    codes = torch.tensor([[0x21, 0x43, 0x05, 0xF0], [0x10, 0x32, 0x54, 0x76]], dtype=torch.uint8)
    d = torch.tensor([[1.0, 0.5], [0.1, 2.0]])
    m = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    kept = (codes, d, m)
    t.close(
        dense(kept),
        torch.tensor(
            [
                [1.0, 3.0, 2.0, 4.0, 1.5, -1.0, -1.0, 6.5],
                [1.0, 1.2, 1.1, 1.3, 8.0, 12.0, 10.0, 14.0],
            ]
        ),
        "a row has two blocks of two bytes here: 21 and 43 are the codes 1, 3, 2, 4, then scaled "
        "with d and m of their own block",
        "weights of their codes",
    )
    generator = torch.Generator().manual_seed(4)
    x, A, B, dy = (torch.randn(s, generator=generator) for s in ((3, 8), (2, 8), (2, 2), (3, 2)))
    leaves = [each.clone().requires_grad_() for each in (x, A, B)]
    y = leaves[0] @ dense(kept).T + 4 * leaves[0] @ leaves[1].T @ leaves[2].T
    y.backward(dy)
    t.close(
        forward(x, kept, (A, torch.zeros(2, 2), 8)),
        x @ dense(kept).T,
        "B is 0 at the start, so nothing is added yet: y = x Wᵀ",
        "at the start the model is what it was",
        relative=1e-5,
    )
    t.close(
        forward(x, kept, (A, B, 8)),
        y.detach(),
        "with α = 8 and rank 2 the product of A and B is scaled by 8 / 2 = 4",
        "the adapter is added, scaled",
        relative=1e-5,
    )
    dx, dA, dB = backward(dy, x, kept, (A, B, 8))
    t.close(
        dx,
        leaves[0].grad,
        "the gradient for x comes by two ways: dy W, and (α / r) dy B A",
        "dx comes by both ways",
        relative=1e-5,
    )
    t.close(
        dB,
        leaves[2].grad,
        "dB = (α / r) dyᵀ (x Aᵀ), shaped as B",
        "the gradient of B",
        relative=1e-5,
    )
    t.close(
        dA,
        leaves[1].grad,
        "dA = ((α / r) dy B)ᵀ x, shaped as A",
        "the gradient of A",
        relative=1e-5,
    )
