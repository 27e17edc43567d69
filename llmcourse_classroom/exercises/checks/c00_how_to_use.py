"""Checks of exercises 00: how to use this book."""


def check_1(t, mean_surprise):
    """00.1 A first function"""
    t(
        mean_surprise([0.2]) > 0,
        "your loss is not above 0: ln 0.2 is negative, and the minus sign makes it a surprise",
        "a token with probability 0.2 is a surprise above 0",
    )
    t(
        abs(mean_surprise([0.000001])) > 1,
        "a token with probability one in a million costs you 1 at most: a surprise grows "
        "without limit as p falls, and yours stays below 1",
        "the surprise has no upper limit",
    )
    t(
        abs(mean_surprise([0.5, 0.5, 0.5]) - mean_surprise([0.5])) < 1e-9,
        "you added the surprises and did not divide: a longer text then seems harder",
        "a longer text is not a harder one",
    )
    t.close(
        mean_surprise([0.2]),
        1.6094379124341003,
        "you took another logarithm: a loss in nats takes the natural one, math.log",
        "-ln 0.2 is 1.6094",
    )
    t.close(
        mean_surprise([0.9, 0.8, 0.1]),
        0.8770297199886938,
        "take -ln p of each place first and their mean then, not -ln of the mean probability: one "
        "bad guess must not be hidden by good ones",
        "a bad guess is not hidden by good ones",
    )


def check_2(t, guessing_losses):
    """00.2 The loss of guessing"""
    characters, million = guessing_losses([65])[0], guessing_losses([1_000_000])[0]
    t(
        characters < 10,
        "you returned V: one in 65 is right, but the loss is the logarithm of that",
        "the loss is a logarithm",
    )
    t(
        characters > 0,
        "you returned ln(1/V), a negative number: the loss is -ln p, with p = 1/V",
        "the loss of guessing is above 0",
    )
    t(
        abs(million) > abs(characters),
        "your loss is smaller for more tokens: 1/V is the probability of the token that comes, "
        "and the smaller that is, the larger the loss",
        "with more tokens to choose from, the loss is larger",
    )
    t.close(
        characters,
        4.174387269895637,
        "your loss for 65 characters is not ln 65 = 4.1744: do not round it, and mind that "
        "math.log2 counts bits, math.log10 digits",
        "V = 65: 4.17",
    )
    t(
        million < 100,
        "you let the loss grow in proportion to V: twice the tokens add 0.69, whatever V is",
        "15,385 times the tokens, and the loss is little more than three times as large",
    )
    t.close(
        guessing_losses([32_000, 65, 1_000_000]),
        [10.373491181781864, 4.174387269895637, 13.815510557964274],
        "the result is to be a list of ln 32,000, ln 65 and ln 1,000,000, in the order of the "
        "vocabularies that were given",
        "V = 32,000: 10.37; V = 1,000,000: 13.82. Did you predict 10.4 and 13.8?",
    )


def check_3(t, shape_of):
    """00.3 A name that says its shape"""
    sizes = {"B": 2, "D": 4096, "F": 14_336, "T": 8192}  # B and T of a batch, D and F of Llama 3 8B
    t.equal(
        shape_of("x_BTD", sizes),
        (2, 8192, 4096),
        "a shape has one size for each letter, in the order of the name: not their product, and "
        "not in the order of the table of sizes",
        "x_BTD has batch, time and width, in this order",
    )
    t.equal(
        shape_of("inv_rms_BT1", sizes),
        (2, 8192, 1),
        "you left out the 1: it is a dimension too, of length one",
        "a 1 is a dimension of length one",
    )
    t.equal(
        shape_of("scale_1", sizes),
        (1,),
        "the ending of scale_1 is a 1 alone, and its shape is (1,): mind that '1'.isupper() is "
        "False, as a 1 is no capital letter",
        "a 1 alone is an ending, too",
    )
    t.equal(
        shape_of("product_DD", sizes),
        (4096, 4096),
        "a letter that stands twice is two dimensions: you kept one",
        "a letter can stand twice",
    )
    t.equal(
        [shape_of("loss", sizes), shape_of("num_heads", sizes)],
        [(), ()],
        "a plain number has no dimension: its shape is empty, which is not a dimension of "
        "length one",
        "a name without an ending is a plain number",
    )


def check_4(t, three_numbers):
    """00.4 The order of a sum"""
    a, b, c = three_numbers(1e16)
    left, right = (a + b) + c, a + (b + c)
    t(
        not (left != 0 and right == 0),
        "you have the two orders the other way round: the sum from the left is to be 0",
        "it is not the other order that gives 0",
    )
    t(
        left == 0,
        f"from the left your sum is {left!r}, and not exactly 0",
        "from the left the sum is exactly 0",
    )
    t(
        right != 0,
        "from the right your sum is 0: a number must be left over when the large ones cancel",
        "from the right something is left over",
    )
    a, b, c = three_numbers(1000.0)
    t(
        max(abs(a), abs(b), abs(c)) == 1000.0,
        "your numbers do not depend on `large`: for 1000.0 the largest of them is to be 1000.0",
        "the largest number is the one that was asked for",
    )
    t(
        (a + b) + c == 0 and a + (b + c) != 0,
        "it does not work at 1000.0: what 1e16 swallows, 1000 does not. What counts is the size "
        "of the small number beside the large one",
        "it works at 1000.0 as well",
    )
    a, b, c = three_numbers(1e-100)
    t(
        (a + b) + c == 0 and a + (b + c) != 0 and max(abs(a), abs(b), abs(c)) == 1e-100,
        "it does not work at 1e-100: whatever small number you fix, for some `large` it is not the "
        "small one. Let it follow from `large`",
        "it works at 1e-100, too",
    )
