"""Checks of exercises 27: Mixed precision."""

import math

import torch


def check_1(t, round_to_bf16, *, bf16_number, float32_bits):
    """27.1 From 32 bits to 16"""
    code = round_to_bf16(float32_bits(6.5))
    t(
        code != 0x40D00000,
        "you set the lower 16 bits to 0 and kept 32 of them: shift them out",
        "16 bits are left",
    )
    t(
        isinstance(code, int),
        "your answer is not a whole number of Python: bits are given and returned as an int",
        "a whole number",
    )
    t(
        code == 0x40D0 and round_to_bf16(float32_bits(-6.5)) == 0xC0D0,
        "6.5 and -6.5 are numbers of bf16: their 16 bits are the upper half of the 32, 0x40D0 and "
        "0xC0D0",
        "what bf16 can hold stays as it is",
    )
    t(
        [round_to_bf16(float32_bits(1 + n / 512)) for n in (3, 7)] != [0x3F80, 0x3F81],
        "you cut the lower bits off: 1 + 3/512 is nearer to 1 + 4/512, the next number of bf16, "
        "than to 1",
        "rounded, and not cut off",
    )
    t(
        round_to_bf16(float32_bits(257)) != 0x4381,
        "257 lies in the middle between 256 and 258, and you went up: the last bit of 256 is 0",
        "in the middle, to the even neighbour: here down",
    )
    t(
        round_to_bf16(float32_bits(259)) != 0x4381,
        "259 lies in the middle between 258 and 260, and you went down: the last bit of 258 is 1",
        "in the middle, to the even neighbour: here up",
    )
    t(
        round_to_bf16(float32_bits(257) + 1) == 0x4381,
        "a little more than 257 is nearer to 258: all the dropped bits count, not the first alone",
        "just above the middle: up",
    )
    t(
        round_to_bf16(float32_bits(511.5)) != 0x4380,
        "511.5 became 256: a mantissa of ones that goes up becomes 0, and the carry has to raise "
        "the exponent",
        "the carry raises the exponent",
    )
    t.equal(
        [bf16_number(round_to_bf16(float32_bits(x))) for x in (511, 513, 515, -257, -259, 257.5)],
        [512.0, 512.0, 516.0, -256.0, -260.0, 258.0],
        "511, 513, 515, -257, -259 and 257.5 become 512, 512, 516, -256, -260 and 258",
        "511, 513 and others",
    )
    t(
        [round_to_bf16(sign | 0x7F800000) for sign in (0, 1 << 31)] == [0x7F80, 0xFF80],
        "infinity is the highest exponent with a mantissa of 0: it stays, with its sign. Only with "
        "another mantissa is it NaN",
        "infinity stays infinity",
    )
    t(
        round_to_bf16(0x7F7FFFFF) == 0x7F80,
        "the largest float32 number lies nearer to 2**128 than to the largest of bf16: it becomes "
        "infinity, 0x7F80",
        "overflow becomes infinity",
    )
    codes = [round_to_bf16(bits) for bits in (0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF)]
    t(
        all(0 <= code <= 0xFFFF and code & 0x7FFF > 0x7F80 for code in codes),
        "a NaN became a number or infinity: cut off, 0x7F800001 is infinity, and 0x7FFFFFFF with a "
        "carry is -0",
        "NaN stays NaN",
    )
    t.equal(
        [round_to_bf16(bits) for bits in (0, 1 << 31, 0x8000, 0x8001, 0x18000, 0x80000001)],
        [0, 0x8000, 0, 1, 2, 0x8000],
        "zeros keep their sign, and subnormal numbers round like all others",
        "zeros and subnormal numbers",
    )


def check_2(t, scaled_steps):
    """27.2 The scale that finds itself"""
    # A little more than half of the smallest number of fp16.  Times 1,024 it rounds to 2**-15.
    tiny = torch.tensor([(0.5 + 2**-13) * 2**-24, 0.75])
    answer = scaled_steps([tiny], 1_024.0, 10)
    t(
        isinstance(answer, list | tuple) and [len(part) for part in answer] == [1, 2],
        "return two lists: what each step used, and the scales, of which there is one more",
        "two lists, with a scale for the next step",
    )
    t(
        isinstance(answer[0][0], torch.Tensor),
        "a good step uses a tensor: nothing overflows here",
        "a good step uses a tensor",
    )
    first = answer[0][0].double()
    t(
        float(first[0]) != 2**-24,
        "you rounded to fp16 first and scaled then: it is the loss that is multiplied, so the "
        "gradient is scaled before fp16 can lose it",
        "scaled before it is rounded",
    )
    t(
        float(first[0]) != 0,
        "your gradient is 0 in the end: you divided by the scale in fp16, which has no number for "
        "the result. Widen to float32 first",
        "the scale is divided out in float32",
    )
    t(
        float(first[1]) != 768,
        "the scale is still in your gradient: divide it out before the step uses it",
        "the scale is divided out",
    )
    t.equal(
        answer[0][0],
        torch.tensor([2**-25, 0.75]),
        "2**-25 is left: times 1,024 the gradient is rounded to a number of fp16, 2**-15",
        "what fp16 rounded, over the scale",
    )
    # 100 times 1,024 is beyond the 65,504 of fp16; 100 times 512 is not.
    used, scales = scaled_steps([torch.tensor([1.0, 100.0])], 1_024.0, 10)
    t(
        not (used and isinstance(used[0], torch.Tensor) and used[0].tolist() == [1.0, 100.0]),
        "you ran the step again with half of the scale: it is left out, and training goes on with "
        "the next batch",
        "a step is not run again",
    )
    t(
        len(used) == 1 and used[0] is None,
        "you used a step with an infinite gradient: put it to 0 or clip it, and the direction is "
        "another. The whole step is left out: None",
        "a step with infinity is left out",
    )
    t.equal(
        scales,
        [1_024.0, 512.0],
        "after an overflow the scale is halved, for the step after it",
        "an overflow halves the scale",
    )
    used, scales = scaled_steps([torch.tensor([math.nan, 1.0]), torch.ones(2)], 8.0, 10)
    t(
        len(used) == 2 and used[0] is None and list(scales) == [8.0, 4.0, 4.0],
        "NaN is not infinite, and spoils a step no less: leave that step out too, and halve",
        "a step with NaN is left out",
    )
    good, bad = torch.tensor([0.5]), torch.tensor([1e6])
    scales = scaled_steps([good] * 5, 1.0, 2)[1]
    t(
        list(scales[:3]) == [1.0, 1.0, 2.0],
        "with an interval of 2, two good steps are enough: the third has twice the scale",
        "doubled after two good steps",
    )
    t.equal(
        scales,
        [1.0, 1.0, 2.0, 2.0, 4.0, 4.0],
        "once the scale was doubled, it takes two good steps again: counting begins anew",
        "doubled after every second good step",
    )
    t.equal(
        scaled_steps([good, good, bad, good, good, good], 64.0, 3)[1],
        [64.0, 64.0, 64.0, 32.0, 32.0, 32.0, 64.0],
        "good steps count in a row: an overflow takes those before it away",
        "three good steps in a row, and an overflow between",
    )
    used, scales = scaled_steps([torch.tensor([65_519.0]), torch.tensor([65_520.0])], 1.0, 9)
    t(
        len(used) == 2 and used[0] is not None and used[1] is None,
        "65,519 still rounds to 65,504, and 65,520 to infinity: round first, then look",
        "the border of overflow is that of rounding",
    )
    t.equal(scaled_steps([], 4.0, 1), ([], [4.0]), "without steps, one scale", "no step")


def check_3(t, in_blocks):
    """27.3 A scale for every block"""
    answer = in_blocks([7.0, -3.0, 1.0, 0.4], 4)
    t(
        isinstance(answer, list | tuple) and [len(part) for part in answer] == [1, 4],
        "return two lists: a scale for each block, and a number for each number",
        "a scale for each block, and a number for each number",
    )
    scales, rounded = answer
    t(
        abs(scales[0] - 7 / 6) > 1e-6,
        "your scale is 7/6, which would bring 7 to 6 exactly: but a scale is a power of two here, "
        "the next one above",
        "a scale is a power of two",
    )
    t(
        scales[0] != 1,
        "your scale is 1, rounded down: 7 over 1 is beyond 6, the largest size, and is clipped",
        "the scale is rounded up",
    )
    t(
        rounded[0] not in (4, -4),
        "your 7 became 4, which is what the four bits say: times the scale of 2 it stands for 8",
        "a number is its size times the scale",
    )
    t(rounded[1] != 3, "your -3 became 3: the sign has a bit of its own, keep it", "the sign stays")
    t.equal(
        answer,
        ([2.0], [8.0, -3.0, 1.0, 0.0]),
        "7, -3, 1 and 0.4 over 2 are 3.5, -1.5, 0.5 and 0.2: they become 4, -1.5, 0.5 and 0",
        "7, -3, 1 and 0.4",
    )
    t.equal(
        in_blocks([6.0], 1),
        ([1.0], [6.0]),
        "6 fits with a scale of 1: the smallest power of two that is not below 6/6",
        "the largest size itself",
    )
    rounded = in_blocks([6.0, 2.5, 1.75, 5.0, 0.25, -3.5], 6)[1]
    t(
        rounded[1] != 3,
        "2.5 lies in the middle between 2 and 3, and you went up: 2 has an even place in the list",
        "in the middle, to the even place: here down",
    )
    t(
        rounded[2] != 1.5,
        "1.75 lies in the middle between 1.5 and 2, and you went down: 2 has an even place",
        "in the middle, to the even place: here up",
    )
    t.equal(
        rounded,
        [6.0, 2.0, 2.0, 4.0, 0.0, -4.0],
        "2.5, 1.75, 5, 0.25 and -3.5 lie in the middle, and become 2, 2, 4, 0 and -4",
        "every middle",
    )
    scales, rounded = in_blocks([6_000.0, 1.0, 0.001, 0.002], 2)
    t(
        rounded[2] != 0,
        "0.001 became 0: it was divided by the scale of another block, that of 6,000. Each block "
        "takes its own largest entry",
        "small numbers survive beside another block",
    )
    t.equal(
        (scales, rounded),
        ([1_024.0, 2**-11], [6_144.0, 0.0, 2**-10, 2**-9]),
        "6,000 has the scale 1,024, at which 1 is lost; 0.002 has the scale 2**-11",
        "two blocks",
    )
    t.equal(
        in_blocks([0.0, 0.0, 3.0], 2),
        ([1.0, 0.5], [0.0, 0.0, 3.0]),
        "a block of zeros has the scale 1, and the last block may be shorter",
        "zeros, and a short block",
    )
    t.equal(in_blocks([], 4), ([], []), "no number, no block", "no number")


def check_4(t, under_autocast):
    """27.4 Who answers in float32?"""
    weights = dict.fromkeys(["x", "gain", "w_1", "w_2", "w_3"], "fp32")
    block = [
        ("normed", "RMSNorm", ["x", "gain"]),
        ("gate", "linear", ["normed", "w_1"]),
        ("up", "linear", ["normed", "w_3"]),
        ("gated", "silu gate", ["gate", "up"]),
        ("down", "linear", ["gated", "w_2"]),
        ("sum", "residual sum", ["x", "down"]),
    ]
    answer = under_autocast(block, dict(weights))
    t(
        isinstance(answer, list | tuple) and len(answer) == 2 and isinstance(answer[0], dict),
        "return two: a dictionary of types, and the number of casts",
        "types, and casts",
    )
    types, casts = answer
    t(
        sorted(types) == sorted(result for result, _, _ in block),
        "the dictionary is to have the results of the program, all of them and nothing else",
        "a type for every result",
    )
    t(
        types["normed"] == "fp32",
        "your RMSNorm answers in bf16: it divides a whole row by one sum, which stays in float32",
        "RMSNorm in float32",
    )
    t(
        types["gate"] == types["up"] == "bf16",
        "a product of matrices goes to bf16, though both of its inputs are float32",
        "products in bf16",
    )
    t(
        types["gated"] == "bf16",
        "your silu gate answers in float32: there is an exponential in it, but of one number at a "
        "time, and torch takes both inputs as they come",
        "the silu gate as its inputs are",
    )
    t(
        types["sum"] == "fp32",
        "your residual sum is bf16: the stream x is float32, and the wider of the two types "
        "decides. In bf16 the stream would lose small terms, as weights lose small updates",
        "the residual stream stays in float32",
    )
    t(
        under_autocast([block[-1]], {"x": "fp32", "down": "bf16"})[1] != 0,
        "you counted casts to bf16 alone: `down` is widened for the residual sum, and that is a "
        "cast as well",
        "widening counts",
    )
    t(
        casts != 5,
        "you cast `normed` once, for `gate`: a cast is made for one use, so `normed` is still "
        "float32 when `up` needs it",
        "a cast is made for one use",
    )
    t.equal(
        casts,
        6,
        "two inputs are cast for `gate`, two for `up` (`normed` once more), one for `down` and one "
        "for the sum",
        "six casts in the feed-forward part",
    )
    head = [("logits", "linear", ["x", "w"]), ("loss", "cross-entropy", ["logits"])]
    t.equal(
        under_autocast(head, {"x": "fp32", "w": "fp32"}),
        ({"logits": "bf16", "loss": "fp32"}, 3),
        "logits are bf16, and the loss, a sum of exponentials, is computed in float32: two casts "
        "for the product and one for the loss",
        "the loss in float32, from bf16 logits",
    )
    tied = [
        ("first", "linear", ["h", "table"]),
        ("rows", "embedding", ["table"]),
        ("again", "linear", ["first", "table"]),
    ]
    t.equal(
        under_autocast(tied, {"h": "bf16", "table": "fp32"}),
        ({"first": "bf16", "rows": "fp32", "again": "bf16"}, 2),
        "the table is float32 after the first product, too: its rows are looked up as they are, "
        "and the second product casts it again",
        "a weight that was cast is still float32",
    )
    heads = [
        ("turned", "rotation", ["q"]),
        ("turned k", "rotation", ["k"]),
        ("mixed", "attention", ["turned", "turned k", "v"]),
        ("normed", "RMSNorm", ["mixed", "gain"]),
        ("twice", "residual sum", ["mixed", "mixed"]),
    ]
    t.equal(
        under_autocast(heads, {"q": "bf16", "k": "fp32", "v": "bf16", "gain": "fp32"}),
        (
            {
                "turned": "bf16",
                "turned k": "fp32",
                "mixed": "bf16",
                "normed": "fp32",
                "twice": "bf16",
            },
            2,
        ),
        "a rotation takes its input as it comes, attention is made of products, and RMSNorm widens "
        "a bf16 input",
        "attention, rotation, and a norm of bf16",
    )
    t.equal(under_autocast([], {"x": "fp32"}), ({}, 0), "no line, no result, no cast", "no program")
