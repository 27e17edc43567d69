"""Typical wrong answers to the exercises of chapter 00, and what the checks say to them."""

import math


# %% 00.1 no_minus
# says: your loss is not above 0: ln 0.2 is negative, and the minus sign makes it a surprise
def mean_surprise(probabilities):
    return sum(math.log(p) for p in probabilities) / len(probabilities)


# %% 00.1 what_others_got
# says: a token with probability one in a million costs you 1 at most: a surprise grows without
# limit as p falls, and yours stays below 1
def mean_surprise(probabilities):
    return sum(1 - p for p in probabilities) / len(probabilities)


# %% 00.1 sum_of_surprises
# says: you added the surprises and did not divide: a longer text then seems harder
def mean_surprise(probabilities):
    return -sum(math.log(p) for p in probabilities)


# %% 00.1 bits
# says: you took another logarithm: a loss in nats takes the natural one, math.log
def mean_surprise(probabilities):
    return -sum(math.log2(p) for p in probabilities) / len(probabilities)


# %% 00.1 mean_of_probabilities
# says: take -ln p of each place first and their mean then, not -ln of the mean probability: one bad
# guess must not be hidden by good ones
def mean_surprise(probabilities):
    return -math.log(sum(probabilities) / len(probabilities))


# %% 00.1 median
# says: take -ln p of each place first and their mean then, not -ln of the mean probability: one bad
# guess must not be hidden by good ones
def mean_surprise(probabilities):
    surprises = sorted(-math.log(p) for p in probabilities)
    return surprises[len(surprises) // 2]


# %% 00.2 no_logarithm
# says: you returned V: one in 65 is right, but the loss is the logarithm of that
def guessing_losses(vocab_sizes):
    return [float(vocab_size) for vocab_size in vocab_sizes]


# %% 00.2 no_minus
# says: you returned ln(1/V), a negative number: the loss is -ln p, with p = 1/V
def guessing_losses(vocab_sizes):
    return [math.log(1 / vocab_size) for vocab_size in vocab_sizes]


# %% 00.2 the_probability
# says: your loss is smaller for more tokens: 1/V is the probability of the token that comes, and
# the smaller that is, the larger the loss
def guessing_losses(vocab_sizes):
    return [1 / vocab_size for vocab_size in vocab_sizes]


# %% 00.2 bits
# says: your loss for 65 characters is not ln 65 = 4.1744: do not round it, and mind that math.log2
# counts bits, math.log10 digits
def guessing_losses(vocab_sizes):
    return [math.log2(vocab_size) for vocab_size in vocab_sizes]


# %% 00.2 in_proportion
# says: you let the loss grow in proportion to V: twice the tokens add 0.69, whatever V is
def guessing_losses(vocab_sizes):
    return [math.log(65) * vocab_size / 65 for vocab_size in vocab_sizes]


# %% 00.2 sorted_first
# says: the result is to be a list of ln 32,000, ln 65 and ln 1,000,000, in the order of the
# vocabularies that were given
def guessing_losses(vocab_sizes):
    return [math.log(vocab_size) for vocab_size in sorted(vocab_sizes)]


# %% 00.3 number_of_entries
# says: a shape has one size for each letter, in the order of the name: not their product, and not
# in the order of the table of sizes
def shape_of(name, sizes):
    return math.prod(sizes[sign] for sign in name if sign in sizes)


# %% 00.3 order_of_the_table
# says: a shape has one size for each letter, in the order of the name: not their product, and not
# in the order of the table of sizes
def shape_of(name, sizes):
    ending = name.split("_")[-1]
    shape = [size for letter, size in sizes.items() if letter in ending]
    return tuple(shape + [1] * ending.count("1"))


# %% 00.3 drops_the_ones
# says: you left out the 1: it is a dimension too, of length one
def shape_of(name, sizes):
    ending = name.split("_")[-1]
    return tuple(sizes[sign] for sign in ending if sign in sizes)


# %% 00.3 each_letter_once
# says: a letter that stands twice is two dimensions: you kept one
def shape_of(name, sizes):
    ending = name.split("_")[-1]
    if ending != ending.upper():
        return ()
    named = {sign: 1 if sign == "1" else sizes[sign] for sign in ending}
    return tuple(named.values())


# %% 00.3 a_number_has_length_one
# says: a plain number has no dimension: its shape is empty, which is not a dimension of length one
def shape_of(name, sizes):
    ending = name.split("_")[-1]
    if ending != ending.upper():
        return (1,)
    return tuple(1 if sign == "1" else sizes[sign] for sign in ending)


# %% 00.3 capitals_alone
# says: the ending of scale_1 is a 1 alone, and its shape is (1,): mind that '1'.isupper() is False,
# as a 1 is no capital letter
def shape_of(name, sizes):
    ending = name.split("_")[-1]
    if not ending.isupper():
        return ()
    return tuple(1 if sign == "1" else sizes[sign] for sign in ending)


# %% 00.4 mirrored
# says: you have the two orders the other way round: the sum from the left is to be 0
def three_numbers(large):
    return large, -large, large / 1e20


# %% 00.4 not_small_enough
# says: from the left your sum is 1000000.0, and not exactly 0
def three_numbers(large):
    return large / 1e10, large, -large


# %% 00.4 nothing_to_swallow
# says: from the right your sum is 0: a number must be left over when the large ones cancel
def three_numbers(large):
    return 0.0, large, -large


# %% 00.4 always_the_same
# says: your numbers do not depend on `large`: for 1000.0 the largest of them is to be 1000.0
def three_numbers(large):
    return 1.0, 1e16, -1e16


# %% 00.4 always_swallows_one
# says: it does not work at 1000.0: what 1e16 swallows, 1000 does not. What counts is the size of
# the small number beside the large one
def three_numbers(large):
    return 1.0, large, -large


# %% 00.4 always_tiny
# says: it does not work at 1e-100: whatever small number you fix, for some `large` it is not the
# small one. Let it follow from `large`
def three_numbers(large):
    return 1e-20, large, -large
