"""Typical wrong answers to the exercises of chapter 10, and what the checks say to them."""


# %% 10.1 forgets_the_head
# says: you left out the head of Llama 3 8B: it is not tied, and a table of its own, 525 million
def num_parameters(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    attention = 2 * width * head_size * (num_heads + num_kv_heads)
    return vocab_size * width + num_layers * (attention + 3 * width * hidden + 2 * width) + width


# %% 10.1 counts_the_table_twice
# says: you counted the table of the small model twice: its head is tied, so one table does both
def num_parameters(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    attention = 2 * width * head_size * (num_heads + num_kv_heads)
    layers = num_layers * (attention + 3 * width * hidden + 2 * width)
    return 2 * vocab_size * width + layers + width


# %% 10.1 no_shared_heads
# says: you gave keys and values as many heads as queries: Llama 3 8B has 32 query heads, and 8
# for keys and values
def num_parameters(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    attention = 4 * width * num_heads * head_size
    tables = (1 if tied else 2) * vocab_size * width
    return tables + num_layers * (attention + 3 * width * hidden + 2 * width) + width


# %% 10.1 two_matrices
# says: you counted two matrices in the feed-forward network: SwiGLU has gate, up and down
def num_parameters(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    attention = 2 * width * head_size * (num_heads + num_kv_heads)
    tables = (1 if tied else 2) * vocab_size * width
    return tables + num_layers * (attention + 2 * width * hidden + 2 * width) + width


# %% 10.1 heads_fill_the_width
# says: you took width / heads for the head size: the 32 heads of Mistral NeMo have 128 numbers
# each, not 160
def num_parameters(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    attention = 2 * width * width + 2 * width * num_kv_heads * (width // num_heads)
    tables = (1 if tied else 2) * vocab_size * width
    return tables + num_layers * (attention + 3 * width * hidden + 2 * width) + width


# %% 10.1 forgets_the_last_norm
# says: a part is missing or extra: besides the matrices there are two norms in each layer and one
# after the last, and no biases
def num_parameters(
    *, vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied
):
    attention = 2 * width * head_size * (num_heads + num_kv_heads)
    tables = (1 if tied else 2) * vocab_size * width
    return tables + num_layers * (attention + 3 * width * hidden + 2 * width)


# %% 10.2 rule_of_six
# says: you left out the pairs: the rule of six counts parameters, and comparing tokens has none
def training_flop(parts, num_layers, num_heads, head_size, context_length):
    return 6 * sum(parts.values())


# %% 10.2 sees_the_future
# says: you let every token read all 64: it cannot see those that come after it
def training_flop(parts, num_layers, num_heads, head_size, context_length):
    matrices = parts["attention"] + parts["feed_forward"] + (parts["head"] or parts["embedding"])
    return 6 * matrices + 12 * num_layers * num_heads * head_size * context_length


# %% 10.2 forward_only
# says: you left out a backward pass: the pairs are multiplied backward too, as the matrices are
def training_flop(parts, num_layers, num_heads, head_size, context_length):
    matrices = parts["attention"] + parts["feed_forward"] + (parts["head"] or parts["embedding"])
    return 2 * matrices + 2 * num_layers * num_heads * head_size * (context_length + 1)


# %% 10.2 pairs_go_forward_only
# says: you left out a backward pass: the pairs are multiplied backward too, as the matrices are
def training_flop(parts, num_layers, num_heads, head_size, context_length):
    matrices = parts["attention"] + parts["feed_forward"] + (parts["head"] or parts["embedding"])
    return 6 * matrices + 2 * num_layers * num_heads * head_size * (context_length + 1)


# %% 10.2 tied_head_is_free
# says: you let the tied head work for nothing: it saves parameters, but its product is taken
def training_flop(parts, num_layers, num_heads, head_size, context_length):
    matrices = parts["attention"] + parts["feed_forward"] + parts["head"]
    return 6 * matrices + 6 * num_layers * num_heads * head_size * (context_length + 1)


# %% 10.2 pays_for_the_look_up
# says: for Llama 3 8B at 8,192 tokens this is not the count: the embedding is only looked up
def training_flop(parts, num_layers, num_heads, head_size, context_length):
    pairs = 6 * num_layers * num_heads * head_size * (context_length + 1)
    return 6 * (sum(parts.values()) - parts["norms"]) + pairs


# %% 10.3 square_root
# says: you took a square root: the width grows along with the layers, so N grows with their cube
import math


def shape(block_parameters, ratio, multiple):
    layers = max(1, round(math.sqrt(block_parameters / (12 * ratio**2))))
    width = math.sqrt(block_parameters / (12 * layers))
    return layers, max(1, round(width / multiple)) * multiple


# %% 10.3 upside_down
# says: you took layers / width for the ratio: it is width / layers, as in the chapter's table
import math


def shape(block_parameters, ratio, multiple):
    layers = max(1, round((block_parameters * ratio**2 / 12) ** (1 / 3)))
    width = math.sqrt(block_parameters / (12 * layers))
    return layers, max(1, round(width / multiple)) * multiple


# %% 10.3 one_square
# says: you gave a layer one matrix of D x D: attention has 4 such, the feed-forward network 8
import math


def shape(block_parameters, ratio, multiple):
    layers = max(1, round((block_parameters / ratio**2) ** (1 / 3)))
    width = math.sqrt(block_parameters / layers)
    return layers, max(1, round(width / multiple)) * multiple


# %% 10.3 follows_the_ratio
# says: the budget of GPT-2 small at a ratio of 128 is 8 layers of 960: not 1,024, which follows
# the ratio and spends 19 % too much, and not 896, which is rounded down
def shape(block_parameters, ratio, multiple):
    layers = max(1, round((block_parameters / (12 * ratio**2)) ** (1 / 3)))
    return layers, max(1, round(layers * ratio / multiple)) * multiple


# %% 10.3 rounds_down
# says: the budget of GPT-2 small at a ratio of 128 is 8 layers of 960: not 1,024, which follows
# the ratio and spends 19 % too much, and not 896, which is rounded down
import math


def shape(block_parameters, ratio, multiple):
    layers = max(1, round((block_parameters / (12 * ratio**2)) ** (1 / 3)))
    width = math.sqrt(block_parameters / (12 * layers))
    return layers, max(1, int(width // multiple)) * multiple


# %% 10.4 exactly
# says: you looked for exactly 69,500,000,000: a figure with one decimal stands for every count
# that rounds to it
from itertools import combinations


def left_out(parts, billions, decimals):
    total = sum(parts.values())
    for n in range(len(parts) + 1):
        sets = combinations(sorted(parts), n)
        found = [list(s) for s in sets if total - sum(parts[x] for x in s) == billions * 1e9]
        if found:
            return found
    return []


# %% 10.4 stops_at_one
# says: you named one part, but two have the same size: the figure cannot tell embedding and head
# apart
from itertools import combinations


def left_out(parts, billions, decimals):
    total = sum(parts.values())
    for n in range(len(parts) + 1):
        for s in combinations(sorted(parts), n):
            if round((total - sum(parts[x] for x in s)) / 1e9, decimals) == billions:
                return [list(s)]
    return []


# %% 10.4 takes_the_nearest
# says: you took the count nearest to 69.5: the figure is not that precise, and the simplest
# account comes first
from itertools import combinations


def left_out(parts, billions, decimals):
    total = sum(parts.values())
    sets = [s for n in range(len(parts) + 1) for s in combinations(sorted(parts), n)]

    def distance(s):
        return abs(total - sum(parts[x] for x in s) - billions * 1e9)

    least = min(map(distance, sets))
    return [list(s) for s in sets if distance(s) == least]


# %% 10.4 every_set
# says: 69.5 billion is the 70B without one of its two tables: no larger set is wanted
from itertools import combinations


def left_out(parts, billions, decimals):
    total = sum(parts.values())
    sets = [s for n in range(len(parts) + 1) for s in combinations(sorted(parts), n)]
    return [
        list(s)
        for s in sets
        if round((total - sum(parts[x] for x in s)) / 1e9, decimals) == billions
    ]


# %% 10.4 something_must_be_missing
# says: 70.6 is the whole model, from which nothing was left out, and 70.0 is no count of it
from itertools import combinations


def left_out(parts, billions, decimals):
    total = sum(parts.values())
    for n in range(1, len(parts) + 1):
        sets = combinations(sorted(parts), n)
        found = [
            list(s)
            for s in sets
            if round((total - sum(parts[x] for x in s)) / 1e9, decimals) == billions
        ]
        if found:
            return found
    return []


# %% 10.4 cuts_the_digits_off
# says: you did not round as the figure does: 68.452 without both tables is printed as 68.5, and
# more decimals show whether the norms are in it
from itertools import combinations


def left_out(parts, billions, decimals):
    total = sum(parts.values())
    unit = 10 ** (9 - decimals)
    for n in range(len(parts) + 1):
        sets = combinations(sorted(parts), n)
        figure = round(billions * 10**decimals)
        found = [list(s) for s in sets if (total - sum(parts[x] for x in s)) // unit == figure]
        if found:
            return found
    return []
