"""Checks of 11_attention, written by tools.exercises from its solutions."""

import math
import torch


def check_1(t, may_look):
    """11.1 Who may look at whom"""
    mask = may_look(3, 5)  # queries at positions 2, 3 and 4
    t(
        isinstance(mask, torch.Tensor) and mask.dtype == torch.bool,
        "a tensor of True and False is asked for: scores of -inf come later, where the mask is "
        "used",
        "the mask is a tensor of truth values",
    )
    t.equal(
        tuple(mask.shape),
        (3, 5),
        "3 queries and 5 keys make 3 rows and 5 columns: queries are rows",
        "queries are rows, keys are columns",
    )
    rows = [[int(allowed) for allowed in row] for row in mask.tolist()]
    t(
        not (rows[0][0] == 0 and rows[0][4] == 1),
        "True means that a query may look: yours marks what is forbidden",
        "True means that a query may look",
    )
    t(
        rows[0][4] == 0 and rows[1][4] == 0,
        "you let a query look at a key that comes after it: in training that key is the answer",
        "no query looks ahead",
    )
    t(
        sum(rows[0]) >= 2,
        "you gave the first query position 0: the queries are the last of the positions, so the "
        "first of 3 over 5 keys stands at position 2 and has two keys before it",
        "3 queries over 5 keys stand at positions 2, 3 and 4",
    )
    t(
        rows[0][2] == rows[1][3] == rows[2][4] == 1,
        "you left out the query's own position: the first token of a text would have nothing to "
        "look at",
        "a query looks at its own position, too",
    )
    t.equal(
        may_look(3, 5, 2).sum(1).tolist(),
        [2, 2, 2],
        "a window of 2 holds two keys: the query's own, and the one before it",
        "a window counts the query's own key",
    )
    t.equal(
        [mask.int(), may_look(3, 5, 2).int(), may_look(1, 4).int(), may_look(2, 3, 9).int()],
        [
            torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.int32),
            torch.tensor([[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=torch.int32),
            torch.tensor([[1, 1, 1, 1]], dtype=torch.int32),
            torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.int32),
        ],
        "one of four masks is not right: 3 queries over 5 keys, the same with a window of 2, "
        "1 query over 4, and 2 over 3 with a window larger than the text",
        "four masks are right, entry by entry",
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


def check_3(t, readers_that_fit):
    """11.3 How many readers fit"""
    small = {"num_layers": 3, "num_heads": 6, "num_kv_heads": 2, "head_size": 8}
    small |= {"bytes_per_number": 4, "num_tokens": 10, "memory_bytes": 50_000}
    small |= {"weight_bytes": 20_000}
    answer = readers_that_fit(**small)
    t(
        isinstance(answer, list | tuple) and len(answer) == 2,
        "two numbers are asked for: the bytes of one token, and the users",
        "there are two numbers",
    )
    per_token, users = answer
    t(
        (per_token, users) != (7, 384),
        "the two numbers are swapped: the bytes of one token come first, then the users",
        "the bytes of one token come first",
    )
    t(
        per_token != 1_152,
        "you gave every query head a key and a value of its own: 6 query heads share 2 of them",
        "the cache has the heads of keys and values, not those of queries",
    )
    t(
        per_token != 960,
        "you kept the queries, too: a query is used once, by its own token, and not kept",
        "queries are not kept",
    )
    t(
        per_token != 576,
        "you took the size of a group, 6 / 2 = 3, for the number of key/value heads, which is 2",
        "the heads are counted, not the members of a group",
    )
    t(
        per_token != 192,
        "you counted keys or values: both are kept, so 2 for each head",
        "keys and values are counted",
    )
    t(
        per_token != 128,
        "you counted one layer: each of the 3 layers has keys and values of its own",
        "every layer has its own keys and values",
    )
    t(
        per_token != 96,
        "you counted numbers: each of them takes 4 bytes here",
        "bytes are counted, not numbers",
    )
    t(
        per_token != 3_840,
        "these are the bytes of a user with 10 tokens: the first number is that of one token",
        "the first number is that of one token",
    )
    t.equal(
        per_token,
        384,
        "keys and values, 3 layers, 2 heads of 8 numbers of 4 bytes: that makes 384 bytes",
        "a token of the small model leaves 384 bytes",
    )
    t(
        users != 13,
        "you gave all memory to the caches: the weights have to be there as well",
        "the weights are in the memory, too",
    )
    t(
        users not in (2, 2.0),
        "you gave each user weights of their own: they are held once, and all users share them",
        "the weights are held once",
    )
    t(
        users not in (78, 7.8125, 8),
        "the quotient is 7.8: a user with part of a cache cannot be served, and each user has 10 "
        "tokens",
        "users are counted whole",
    )
    t.equal(
        [users, readers_that_fit(**small | {"memory_bytes": 10_000})[1]],
        [7, 0],
        "30,000 free bytes hold 7 caches of 3,840; and where the weights alone do not fit, no "
        "user does, and not a number below 0",
        "7 users fit, and none where the weights do not",
    )
    llama = {"num_layers": 80, "num_heads": 64, "num_kv_heads": 8, "head_size": 128}
    llama |= {"bytes_per_number": 2, "num_tokens": 8_192, "memory_bytes": 640_000_000_000}
    llama |= {"weight_bytes": 141_107_412_992}
    t.equal(
        [readers_that_fit(**llama), readers_that_fit(**llama | {"num_kv_heads": 64})],
        [(327_680, 185), (2_621_440, 23)],
        "for Llama 3 70B on 8 GPUs of 80 GB, with 8,192 tokens each, these are not the readers",
        "the 70B leaves 320 KiB per token and serves 185 readers; with 64 key/value heads, and "
        "weights as large as now, it would be 2.5 MiB and 23",
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
