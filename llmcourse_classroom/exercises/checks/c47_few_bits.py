"""Checks of exercises 47: Few bits: quantisation."""

import torch


def check_1(t, packed, unpacked):
    """47.1 Two codes in a byte"""
    data = list(packed([15, 0, 7, 3, 11, 6, 5, 10], 8))
    t.equal(len(data), 4, "eight codes of 4 bits are four bytes", "two codes share a byte")
    t(
        data[:2] != [15, 55],
        "your two codes of a byte are neighbours: the first half of the block are the lower "
        "halves, the second half the upper ones",
        "the codes of a byte are half a block apart",
    )
    t(
        data[0] != 15 * 16 + 11,
        "your first codes are the upper halves of the bytes: they must be the lower ones",
        "the first half of a block lies low",
    )
    t.equal(data, [191, 96, 87, 163], "15 and 11 make 15 + 16 · 11 = 191", "bytes as by hand")
    t.equal(
        list(packed([1, 2, 3, 4, 5, 6, 7, 8], 4)),
        [1 + 48, 2 + 64, 5 + 112, 6 + 128],
        "there are two blocks of 4 here: each is packed by itself, 1 with 3 and 2 with 4",
        "each block has bytes of its own",
    )
    t.equal(
        list(unpacked(bytes([191, 96, 87, 163]), 8)),
        [15, 0, 7, 3, 11, 6, 5, 10],
        "the codes come back in their order: first all lower halves of a block, then all upper",
        "unpacked, the codes are what they were",
    )
    t.equal(
        list(unpacked(bytes([49, 66, 117, 134]), 4)),
        [1, 2, 3, 4, 5, 6, 7, 8],
        "blocks of 4 codes are 2 bytes each: unpack block by block",
        "several blocks come back",
    )


def check_2(t, quantised):
    """47.2 The step and the minimum of a block"""
    w = torch.tensor([0.9, -0.6, 0.13, -0.28, 0.47, 0.02, -0.11, 0.36])
    d, m, codes = quantised(w, 4, False)
    t(
        abs(d - 1.5 / 16) > 1e-4,
        "16 levels have 15 steps between them: the step is (max - min) / (2^b - 1)",
        "there is one step less than there are levels",
    )
    t.close([d, m], [0.1, -0.6], "from -0.6 to 0.9 in 15 steps: d = 0.1, m = -0.6", "d and m")
    t(
        list(codes) != [15, 0, 7, 3, 10, 6, 4, 9],
        "your codes are cut off: 10.7 lies nearer to 11, so round",
        "codes are rounded to the nearest",
    )
    t.equal(
        list(codes), [15, 0, 7, 3, 11, 6, 5, 10], "the codes are those of the page", "the codes"
    )
    w = torch.tensor([0.3, -1.4, 0.7, 0.0])
    d, m, codes = quantised(w, 4, True)
    t(
        abs(d - 0.1) > 1e-4,
        "a symmetric step is set by the largest absolute weight, here 1.4",
        "the largest weight may be negative",
    )
    t.close([d, m], [0.2, 0.0], "7 steps reach 1.4: d = 0.2, and m is 0", "a symmetric step")
    t.equal(list(codes), [2, -7, 4, 0], "-1.4 is code -7, and 0 is code 0", "symmetric codes")
    t.equal(
        [
            list(quantised(torch.full((3,), 0.5), 3, False)[2]),
            list(quantised(torch.zeros(3), 3, True)[2]),
        ],
        [[0, 0, 0], [0, 0, 0]],
        "a block of equal weights has the step 0: do not divide by it, all codes are 0",
        "equal weights are code 0",
    )


def check_3(t, made_good, without_first):
    """47.3 One column of GPTQ"""
    H = torch.tensor([[1.0, 0.9], [0.9, 1.0]])
    w = torch.tensor([[0.4, 0.4], [0.4, -0.2]])
    found = made_good(w, torch.zeros(2), torch.linalg.inv(H))
    t.equal(tuple(found.shape), (2, 1), "the first column is done: return the others", "the shape")
    t(
        not torch.allclose(found[:, 0], torch.tensor([0.04, -0.56]), atol=1e-4),
        "your update has the wrong sign: the second weight must take over what the first has lost",
        "the others take over what is lost",
    )
    t.close(
        found[:, 0],
        torch.tensor([0.76, 0.16]),
        "with the correlation 0.9 the second weight takes over 0.9 of the loss of 0.4: 0.76 and "
        "0.16. Divide the error by the corner of the inverse",
        "as in Figure 47.6",
    )
    H3 = torch.tensor([[2.0, 0.5, 0.3], [0.5, 1.0, -0.4], [0.3, -0.4, 1.5]])
    V = torch.linalg.inv(H3)
    two = without_first(V.clone())
    t.equal(tuple(two.shape), (2, 2), "one row and one column less", "one less of each")
    t(
        not torch.allclose(two, V[1:, 1:], atol=1e-5),
        "cutting the inverse is not the inverse of what is cut: take the product away first",
        "what was cut off is taken into account",
    )
    t.close(
        two,
        torch.linalg.inv(H3[1:, 1:]),
        "this is not the inverse of H without its first row and column",
        "the smaller inverse without inverting",
        relative=1e-4,
    )


def check_4(t, bits_per_weight, choose):
    """47.4 Choose bits for a memory"""
    t.close(
        [bits_per_weight(4, 32, False), bits_per_weight(8, 32, True)],
        [5.0, 8.5],
        "32 weights share 32 bits with a minimum, and 16 without: 4 + 1 and 8 + 0.5",
        "steps and minima count",
    )
    grids = [(2, 32, False), (4, 32, False), (3, 16, False), (8, 32, True)]
    t.equal(
        choose(1_300, 800, 100, 300, grids),
        (4, 32, False),
        "1,300 bytes less 300 of cache and 400 of others leave 600: 800 weights may take 6 bits, "
        "so of these the grid of 4 bits, with 5 a weight, fits",
        "the finest that fits, with cache and others",
    )
    t.equal(
        choose(1_200, 800, 100, 300, grids),
        (4, 32, False),
        "500 bytes for 800 weights are exactly 5 bits: to the last byte, it fits",
        "it may fill the memory",
    )
    t.equal(choose(900, 800, 100, 300, grids), None, "nothing fits into 200 bytes", "None fits")
    t.equal(
        choose(10_000, 800, 100, 300, [(3, 16, False), (4, 32, False), (2, 8, True)]),
        (3, 16, False),
        "3 bits in blocks of 16 and 4 bits in blocks of 32 both take 5: the earlier one wins",
        "of equal ones the first",
    )
