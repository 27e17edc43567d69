"""Checks of exercises 11: attention."""

import math

import torch

from llmcourse import nutshell


def check_1(t, attend):
    """11.1 Attention, whole"""
    nothing = torch.zeros(4, 1)  # all scores are 0
    values = torch.tensor([[12.0], [0.0], [0.0], [4.0]])
    shared = attend(nothing, nothing, values)
    t.equal(
        tuple(shared.shape),
        (4, 1),
        "4 tokens with one number each come in, and 4 tokens with one number each are to come out",
        "the result has the shape of v",
    )
    means = [round(mean, 3) for mean in shared.flatten().tolist()]
    t(
        means != [4, 4, 4, 4],
        "your first token sees the later ones: set their scores to -inf before the softmax; a "
        "score of 0 still has the weight e^0 = 1",
        "later tokens have no weight",
    )
    t(
        means != [6, 4, 4, 4],
        "your mask leaks by one place: token t sees token t + 1, which it has to predict; the "
        "triangle begins right above the diagonal, triu(1)",
        "no token sees the next one",
    )
    t(
        means[1:] != [12, 6, 4],
        "your tokens do not see themselves: token t sees 0 to t",
        "every token sees itself",
    )
    t(
        means not in ([3, 3, 3, 7], [4, 1.333, 2, 4]),
        "your weights sum to 1 down the columns: a query divides its attention among the keys, so "
        "the softmax runs over the last axis of the scores",
        "the weights of a query sum to 1",
    )
    t(
        means != [3, 3, 3, 4],
        "you removed the later weights after the softmax: then the others no longer sum to 1; "
        "mask the scores before it",
        "the mask comes before the softmax",
    )
    t.close(
        shared.flatten(),
        torch.tensor([12.0, 6.0, 4.0, 4.0]),
        "with scores of 0, each token gets the plain mean of the values of itself and those before",
        "scores of 0 give the mean of what may be seen",
    )
    # Four numbers in a head; the score of token 1 with token 0 is 2 ln 3, and with itself 0.
    query = torch.tensor([[0.0, 0, 0, 0], [2, 0, 0, 0]])
    key = torch.tensor([[math.log(3), 0, 0, 0], [0, 0, 0, 0]])
    value = torch.tensor([[4.0, 0, 0, 0], [0, 0, 0, 0]])
    got = round(attend(query, key, value)[1, 0].item(), 3)
    t(
        got != 3.6,
        "you did not divide the scores by the root of K: without it, a large head begins with its "
        "mind made up",
        "scores are divided",
    )
    t(
        got != 2.536,
        "you divided by K: scores of random numbers grow like the root of K, so divide by that",
        "scores are divided by the root of K",
    )
    t(
        got != 3.302,
        "you divided by the root of T, the number of tokens: K is the last axis of q",
        "K is the last axis",
    )
    t.close(
        got,
        3.0,
        "with K = 4 a dot product of 2 ln 3 makes a score of ln 3: weights of 3/4 and 1/4",
        "2 ln 3 divided by the root of 4 is ln 3",
    )
    large = attend(1_000 * query[[1, 1]], 1_000 * key, value)
    t(
        bool(large.isfinite().all()),
        "large scores overflow: e^1000 is infinite, so subtract the largest score of each row "
        "first, or use torch.softmax",
        "scores of a million are no problem",
    )
    apart = torch.tensor([[1.0], [-1.0]])  # one query has scores near 1,000, the other near -1,000
    small = attend(1_000 * apart, torch.ones(2, 1), torch.ones(2, 1))
    t(
        bool(small.isfinite().all()),
        "you subtracted one largest score from all rows: in a row far below it every exponential "
        "is 0; each row has its own largest score",
        "every row has its own largest score",
    )
    drawn = torch.Generator().manual_seed(11)
    q, k, v = torch.randn(3, 2, 3, 5, 4, generator=drawn, dtype=torch.float64)
    one_by_one = [attend(q[1, head], k[1, head], v[1, head]) for head in range(3)]
    t.close(
        attend(q[1], k[1], v[1]),
        torch.stack(one_by_one),
        "three heads at once give another result than each head alone: count axes from the end, "
        "-1 for the numbers of a head and -2 for the tokens",
        "with three axes: heads are attended to one by one",
        relative=1e-9,
    )
    t.close(
        attend(q, k, v),
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        "for 2 texts with 3 heads of 5 tokens your result is not that of torch",
        "with four axes: the result is that of torch",
        relative=1e-9,
    )


def check_2(t, spread):
    """11.2 Which head reads which keys"""
    # Every number of a key/value head is the number of the head: 0, 1 or 2.
    labels = torch.tensor([0.0, 1.0, 2.0])[None, None, :, None].expand(2, 3, 3, 4).clone()
    wide = spread(labels, 6)
    t.equal(
        tuple(wide.shape),
        (2, 3, 6, 4),
        "the shape is to be (B, S, H, K): 6 heads here for 6 query heads, and all else as it was",
        "there is one head for each query head",
    )
    read = wide[0, 0, :, 0].tolist()
    t(
        read != [0, 1, 2, 0, 1, 2],
        "you laid the heads out in turn, 0 1 2 0 1 2: neighbours share, so query heads 0 and 1 "
        "read head 0",
        "neighbouring query heads share",
    )
    t(
        read != [0, 0, 0, 1, 1, 1],
        "you divided h by G: a head serves H / G = 2 query heads, so head h reads h // 2",
        "a key/value head serves H / G query heads",
    )
    t(
        read != [1, 1, 1, 1, 1, 1],
        "you averaged the heads: that is how one head is made of several before training goes "
        "on, and here each query head reads one of them",
        "no heads are averaged",
    )
    numbers = torch.arange(72.0, dtype=torch.float64).reshape(2, 3, 3, 4)
    t(
        bool((spread(numbers, 6).diff(dim=-1) == 1).all()),
        "you took a head apart: the four numbers of a key stay together, in their order, and only "
        "whole heads are repeated",
        "keys stay whole",
    )
    t.equal(
        spread(numbers, 6)[:, :, [0, 2, 4]],
        numbers,
        "query heads 0, 2 and 4 do not hold heads 0, 1 and 2 of the same text and position",
        "texts and positions stay where they are",
    )
    t.equal(
        [spread(numbers, 3), spread(numbers[:, :, :1], 2)],
        [numbers, torch.cat([numbers[:, :, :1], numbers[:, :, :1]], dim=2)],
        "with G = H nothing changes, and with G = 1 all query heads read the one head",
        "the two extremes are right: a head for each query head, and one for all",
    )
    queries = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(11)).double()
    grouped = torch.nn.functional.scaled_dot_product_attention(
        queries, numbers.sin().transpose(1, 2), numbers.cos().transpose(1, 2), enable_gqa=True
    )
    t.close(
        torch.nn.functional.scaled_dot_product_attention(
            queries,
            spread(numbers.sin(), 6).transpose(1, 2),
            spread(numbers.cos(), 6).transpose(1, 2),
        ),
        grouped,
        "attention with your keys and values is not torch's grouped attention",
        "attention with your keys and values is torch's grouped attention",
        relative=1e-12,
    )


def check_3(t, copying_head, sharp_enough):
    """11.3 A head that copies the token before"""
    ids = torch.tensor([2, 0, 3, 3, 1])
    x = torch.cat((torch.eye(4)[ids], torch.eye(5)), dim=1)  # 4 tokens, 5 places
    head = copying_head(4, 5, 60.0)
    t.equal(
        [tuple(w.shape) for w in head],
        [(5, 9), (5, 9), (4, 9)],
        "each matrix has 4 + 5 columns here; queries and keys have 5 numbers, values 4",
        "the three matrices have their shapes",
    )
    q, k, v = (x @ w.T for w in head)
    t.equal(
        v.argmax(1).tolist(),
        ids.tolist(),
        "the value of a token is a 1 at its number: w_v keeps the first columns of the list",
        "values say which token it is",
    )
    copied = nutshell.attend(q, k, v).argmax(1).tolist()
    t(
        copied != ids.tolist(),
        "your head finds each token itself: the query of place t has to match the key of place "
        "t - 1",
        "no token finds itself",
    )
    scores = (q @ k.T).round(decimals=3)
    t(
        not bool(scores.diagonal(1).eq(60).any()),
        "your queries ask for the place after: the mask hides it, and equal shares are left",
        "queries ask for the place before",
    )
    t(
        not bool(scores.eq(3_600).any()),
        "the sharpness is in the queries and in the keys, so scores have its square: one is enough",
        "the sharpness counts once",
    )
    t(
        not bool(scores.eq(1).any()),
        "the sharpness does not reach the scores: multiply the queries or the keys by it",
        "the sharpness reaches the scores",
    )
    t.equal(
        copied[1:],
        ids[:-1].tolist(),
        "places 1 to 4 do not get the tokens of places 0 to 3",
        "every place but the first gets the token before",
    )
    t.close(
        scores,
        60 * torch.eye(5).roll(-1, dims=1).tril(),
        "only the score with the token before is the sharpness: all others are 0, and the first "
        "token has none",
        "all other scores are 0",
    )
    tried = [sharp_enough(places, 0.9) for places in (8, 32)]
    t(
        tried != [5, 6],
        "these are the scores after the division by the root of num_places: the sharpness is "
        "divided first",
        "the sharpness is that before the division",
    )
    t(
        tried[0] not in (7, 10, 11),
        "you looked at some tokens or at their mean: the last one has most others to give "
        "weight to, and it, too, is to reach the share",
        "every token reaches the share",
    )
    t.equal(
        tried,
        [12, 32],
        "with a share of 0.9 it takes 12 for 8 places and 32 for 32 places",
        "8 places take 12, and 32 places 32",
    )
    t.equal(
        [sharp_enough(128, 0.9), sharp_enough(2, 0.4), sharp_enough(32, 0.99)],
        [80, 1, 46],
        "128 places at 0.9, two at 0.4 or 32 at 0.99 do not come out: begin at 1, and stop as soon "
        "as the share is reached",
        "longer texts and larger shares take more",
    )


def check_4(t, absorb):
    """11.4 A mean that never looks back"""

    def read(blocks):
        """Return largest, total and mean after some blocks of scores and values."""
        width = len(blocks[0][1][0])
        state = [torch.tensor(x, dtype=torch.float64) for x in (-math.inf, 0.0, [0.0] * width)]
        for block in blocks:
            state = absorb(*state, *(torch.tensor(x, dtype=torch.float64) for x in block))
        return state

    # e to these scores is 1, 3, and then 6: of 10 in all.
    first, second = ([0.0, math.log(3)], [[10.0], [20.0]]), ([math.log(6)], [[50.0]])
    state = read([first])
    t(
        isinstance(state, list | tuple) and len(state) == 3,
        "three things are asked for: the largest score, the total and the mean",
        "largest, total and mean are returned",
    )
    t(
        float(state[0]) > -math.inf,
        "after scores of 0 and ln 3 your largest score is still -inf: return the new one",
        "the new largest score is returned",
    )
    t(
        round(float(state[2]), 3) != 13.125,
        "you divided the weights of a block by their own sum, and then by the total: "
        "exp(score - largest) goes in as it is, and the total divides once, at the end",
        "weights are divided once",
    )
    two = round(float(read([first, second])[2]), 3)
    t(
        two != 50.0,
        "you took the last block alone: what came before is in the old mean, and has its weight",
        "earlier blocks are not forgotten",
    )
    t(
        two not in (33.75, 29.375),
        "you averaged the means of the blocks: a block counts by the weights in it, 4 and 6 of 10",
        "blocks count by their weights",
    )
    t(
        two != 61.667,
        "this is the weighted sum, or divided by the block's weights alone: a mean is divided by "
        "the whole new total, in which the old values have their part",
        "the sum is divided by the whole total",
    )
    t(
        two != 35.25,
        "you let the old mean count as one value: it stands for all values so far, and its weight "
        "is their total",
        "the old mean enters with the weight of all that it stands for",
    )
    t(
        two not in (31.429, 44.0, 26.364),
        "you left the old values at their weight: it was relative to a smaller largest score, and "
        "is to shrink by exp(old largest - new largest), in the total and in the mean",
        "old values lose weight when a larger score comes",
    )
    t.close(
        [float(read(blocks)[2]) for blocks in ([first], [first, second], [second, first])],
        [17.5, 37.0, 37.0],
        "10 and 20 with weights 1 and 3 have the mean 17.5; with 50 of weight 6 it is 37, in "
        "either order",
        "the mean is 17.5, and 37 after the second block, in either order",
        relative=1e-12,
    )
    unseen = ([-math.inf, -math.inf], [[7.0], [8.0]])
    t.close(
        [float(read(blocks)[2]) for blocks in ([unseen], [unseen, first], [first, unseen, second])],
        [0.0, 17.5, 37.0],
        "a block of which nothing may be seen has to leave everything as it is, also when it comes "
        "first: -inf - (-inf) is NaN, and 0 / 0 as well",
        "keys that may not be seen change nothing, wherever they come",
        relative=1e-12,
    )
    large = [([x + 1_000 for x in scores], values) for scores, values in (first, second)]
    small = [([x - 1_000 for x in scores], values) for scores, values in (first, second)]
    t.close(
        [float(read(large)[2]), float(read(small)[2])],
        [37.0, 37.0],
        "scores near 1,000 or -1,000 overflow or vanish: take each exponential relative to the "
        "largest score",
        "scores near 1,000 and -1,000 give the same mean",
        relative=1e-9,
    )
    t.close(
        [read([first, second])[:2], read([second, first])[:2]],
        [(math.log(6), 10 / 6), (math.log(6), 10 / 6)],
        "the largest score so far is ln 6, and the total relative to it 1/6 + 3/6 + 6/6, in "
        "either order: the next block needs both",
        "largest and total are right, and ready for the next block",
        relative=1e-12,
    )
    generator = torch.Generator().manual_seed(114)
    scores_S = 4 * torch.randn(50, generator=generator).double()
    values_SK = torch.randn(50, 3, generator=generator).double()
    blocks = zip(scores_S.split(7), values_SK.split(7), strict=True)
    t.close(
        read([(scores.tolist(), values.tolist()) for scores, values in blocks])[2],
        scores_S.softmax(0) @ values_SK,
        "50 keys in blocks of 7 do not give the softmax of all 50 scores at once",
        "50 keys in blocks of 7 give the same as all at once",
        relative=1e-12,
    )
