"""Checks of exercises 46: Opening a real model."""

import struct

import torch


def check_1(t, dequantise):
    """46.1 Twenty bytes, thirty-two weights"""
    group = struct.pack("<2e", 0.5, -2.0) + bytes(range(16))  # lower halves 0 to 15, upper ones 0
    found = list(dequantise(group))
    t.equal(len(found), 32, "20 bytes hold 32 weights", "32 weights in 20 bytes")
    t(
        found[1:3] != [-2.0, -1.5],
        "your two halves of a byte stand side by side: first come the lower halves of all 16 "
        "bytes, then the upper ones",
        "the halves of a byte are 16 places apart",
    )
    t(
        found[:2] != [-2.0, -2.0],
        "you begin with the upper halves: the lower ones are the first 16 numbers",
        "the lower halves come first",
    )
    t.close(
        found,
        [0.5 * q - 2 for q in range(16)] + [-2.0] * 16,
        "with d = 0.5 and m = -2, the numbers 0 to 15 stand for -2, -1.5, ... 5.5, and 0 for -2: "
        "w = d q + m, where d comes first in the group",
        "w = d q + m",
    )
    two = group + struct.pack("<2e", 1.0, 0.0) + bytes([0x21] * 16)
    t.close(
        list(dequantise(two))[32:],
        [1.0] * 16 + [2.0] * 16,
        "the second group has its own d and m, at its own beginning",
        "each group has its own step and minimum",
    )


def check_2(t, PARTS, our_name, missing):
    """46.2 Their names and ours"""
    t.equal(
        [our_name(name) for name in ("token_embd.weight", "output_norm.weight")],
        ["embedding", "norm.gain"],
        "two tensors stand outside the blocks: the embedding and the last norm",
        "two names belong to no block",
    )
    t.equal(
        our_name("blk.3.ffn_gate.weight"),
        "blocks.3.feed_forward.w_gate",
        "blk.3.ffn_gate.weight is the gate of block 3",
        "a name in a block",
    )
    t.equal(
        [our_name("blk.27.attn_output.weight")],
        ["blocks.27.attention.w_o"],
        "a number of a block can have two digits",
        "block 27 is read, too",
    )
    odd = ("blk.3.attn_q.bias", "rope_freqs.weight", "blk.3.attn_q_norm.weight", "blk.3.attn_q")
    t.equal(
        [our_name(name) for name in odd],
        [None] * 4,
        "a bias, a norm of queries, a table of frequencies: our Llama has none of them, so a file "
        "that has one is of another model, and the name is None",
        "what our model lacks is not given a name",
    )
    t.equal(
        our_name("blk.x.attn_q.weight"),
        None,
        "between the first two dots stands a number, or it is no block",
        "a block has a number",
    )
    names = ["token_embd.weight", "output_norm.weight"]
    names += [f"blk.{layer}.{part}.weight" for layer in range(2) for part in PARTS]
    t.equal(missing(names, 2), [], "this file has all of two blocks", "a whole file lacks nothing")
    t.equal(
        len(missing(names, 3)),
        9,
        "a model of three blocks lacks nine weights here, all of the last block",
        "a block that the file does not have is missing as a whole",
    )
    t.equal(
        missing([name for name in names if "ffn_up" not in name][1:], 2),
        ["blocks.0.feed_forward.w_up", "blocks.1.feed_forward.w_up", "embedding"],
        "this file has no ffn_up and no token_embd: say so in our names, sorted",
        "what is missing has our names",
    )


def check_3(t, report):
    """46.3 At which place is the right token?"""
    logits = torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, 5.0, 1.0, 2.0], [1.0, 1.0, 9.0, 0.0]])
    first, middle, p = report(logits, torch.tensor([0, 2, 3]))
    t(
        middle not in (1, 2),
        "places are counted from 1: the largest logit is at place 1, and the third largest at 3",
        "places are counted from 1",
    )
    t.equal(
        middle,
        3,
        "the right tokens are at places 1, 3 and 4, so the median is 3: count how many logits of "
        "the row are larger than that of the right token",
        "the median of 1, 3 and 4 is 3",
    )
    t.close(first, 1 / 3, "one of three is at place 1", "a third is at place 1")
    t.close(
        p,
        sum(row.softmax(-1)[i].item() for row, i in zip(logits, (0, 2, 3), strict=True)) / 3,
        "a probability is the exponential of a logit over the sum of its row",
        "the mean probability of the right tokens",
        relative=1e-4,
    )
    t.equal(
        report(logits[2:], torch.tensor([1]))[1],
        2,
        "one logit is larger and one is equal: equal ones do not count, the place is 2",
        "equal logits do not count",
    )
    t.equal(
        report(logits[[0, 0, 0]], torch.tensor([0, 0, 3]))[1],
        1,
        "places 1, 1 and 4 have the median 1; their mean is 2",
        "a median is not pulled up by one bad place",
    )


def check_4(t, sink):
    """46.4 Find the sink"""
    maps = torch.zeros(2, 2, 4, 4)
    maps[..., 0, 0] = 1.0  # the first query can see nothing else
    maps[..., 1, 1] = 1.0
    maps[..., 2, :3] = torch.tensor([0.2, 0.7, 0.1])
    maps[..., 3, :] = torch.tensor([0.1, 0.5, 0.1, 0.3])
    maps[1, 1, 2:] = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    place, shares = sink(maps, 2)
    t.equal(
        place,
        1,
        "queries 2 and 3 give most to place 1, over all heads: go through the keys, the last "
        "dimension",
        "place 1 gets most",
    )
    t.close(
        shares,
        torch.tensor([[0.6, 0.6], [0.6, 0.0]]),
        "a head's share is its mean over the queries from skip on: (0.7 + 0.5) / 2 for three of "
        "these heads, and 0 for the last",
        "three heads give 0.6 to it, and one nothing",
    )
    lone = torch.zeros(1, 2, 3, 3)
    lone[0, 0, :, 0] = 1.0
    lone[0, 1] = torch.eye(3)
    t.equal(
        sink(lone, 0)[0],
        0,
        "all heads count alike: one gives everything to place 0, the other to each token itself",
        "all heads count",
    )


def check_5(t, written, answered):
    """46.5 Write a conversation"""
    hello = [{"role": "user", "content": " Hello "}]
    user = "<|im_start|>user\n Hello <|im_end|>\n"
    t.equal(
        written(hello, None, False),
        user,
        "one message is its mark, its role, a line break, its content as it is, the end mark and "
        "a line break",
        "a message is written as it is",
    )
    t.equal(
        written(hello, "Be brief.", False),
        "<|im_start|>system\nBe brief.<|im_end|>\n" + user,
        "no system message comes first here, so the default is put before it",
        "the default system message is added",
    )
    own = [{"role": "system", "content": "Rhyme."}, *hello]
    t.equal(
        written(own, "Be brief.", False),
        "<|im_start|>system\nRhyme.<|im_end|>\n" + user,
        "this conversation has its own system message: the default is not added",
        "one's own system message takes the place of the default",
    )
    late = [*hello, {"role": "system", "content": "Rhyme."}]
    t(
        written(late, "Be brief.", False).startswith("<|im_start|>system\nBe brief."),
        "the template looks at the first message alone: a system message that comes later does "
        "not count",
        "only the first message decides",
    )
    t.equal(
        written(hello, None, True),
        user + "<|im_start|>assistant\n",
        "to ask is to open the assistant's message and to leave it open: no end mark",
        "the assistant's message is left open",
    )
    talk = user + "<|im_start|>assistant\nHi!<|im_end|>\n" + user + "<|im_start|>assistant\n"
    t.equal(
        answered(talk + "Again?<|im_end|>\n<|im_start|>user\nYes<|im_end|>\n"),
        "Again?",
        "the last answer is Again?: behind the last mark of the assistant, up to the first end "
        "mark after it",
        "the last answer is found",
    )
    t.equal(
        answered(talk + "Again, and ag"),
        "Again, and ag",
        "an answer that was cut off has no end mark: all that is there belongs to it",
        "an answer without an end is taken whole",
    )
    t.equal(len(hello), 1, "the messages that were given are still the same", "nothing was changed")
