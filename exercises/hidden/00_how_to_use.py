"""Hidden tests of the exercises of chapter 00."""

import math

import numpy as np

LETTERS = "BTSDFHGKJVLNER"
FIRST_WORDS = ("x", "dx", "w", "gain", "inv_rms", "attention_scores", "mean_of_rows", "q")
PLAIN_NAMES = ("loss", "num_layers", "learning_rate", "step", "hidden_bytes", "x")


def check_1(t, call, rng):
    """Lists of every length, with certain and very unlikely tokens among them."""
    for length in (1, 2, 3, 7, 100):
        probabilities = [math.exp(-rng.uniform(0.01, 30)) for _ in range(length)]
        right = float(-np.log(np.array(probabilities)).mean())
        case = f"{length} probabilities, the first {probabilities[0]:.3g}"
        t.close(call("mean_surprise", probabilities), right, case, relative=1e-5)
    t.close(call("mean_surprise", [1.0]), 0.0, "one certain token", absolute=1e-12)
    mixed = call("mean_surprise", [1.0, 1.0, 1e-30, 1.0])
    case = "three certain tokens and one nearly impossible"
    t.close(mixed, 7.5 * math.log(10), case, relative=1e-5)


def check_2(t, call, rng):
    """Small, large and unsorted vocabularies."""
    for length in (1, 2, 5, 20):
        sizes = [rng.randrange(2, 10 ** rng.randrange(1, 7) + 2) for _ in range(length)]
        right = np.log(np.array(sizes, dtype=np.float64)).tolist()
        t.close(call("guessing_losses", sizes), right, f"the vocabularies {sizes[:5]}")
    t.close(call("guessing_losses", [1]), [0.0], "a vocabulary of one token", absolute=1e-12)
    sizes = [201_088, 256, 201_088, 50_304]
    right = [12.211497, 5.545177, 12.211497, 10.825836]
    t.close(call("guessing_losses", sizes), right, "a vocabulary that comes twice")


def check_3(t, call, rng):
    """Random names of every number of dimensions, and names without an ending."""
    for num_dims in (1, 2, 3, 4, 5):
        letters = rng.sample(LETTERS, len(LETTERS))
        sizes = {letter: rng.randrange(2, 200) for letter in letters}
        for first in rng.sample(FIRST_WORDS, 3):
            ending = "".join(rng.choice([*LETTERS, "1", "1"]) for _ in range(num_dims))
            right = tuple({**sizes, "1": 1}[sign] for sign in ending)
            name = f"{first}_{ending}"
            t.equal(call("shape_of", name, sizes), right, f"the shape of {name}")
    sizes = {"T": 5, "S": 7, "H": 3, "B": 2}
    for name, right in (
        ("scores_BHTS", (2, 3, 5, 7)),
        ("mask_11TS", (1, 1, 5, 7)),
        ("cosines_TT", (5, 5)),
        ("scale_1", (1,)),
    ):
        t.equal(call("shape_of", name, sizes), right, f"the shape of {name}")
    for name in PLAIN_NAMES:
        t.equal(call("shape_of", name, sizes), (), f"the shape of {name}")


def is_number(value):
    """Say whether a value is a number; one of numpy's or torch's has no dimensions."""
    return isinstance(value, float | int) or getattr(value, "ndim", None) == 0


def check_4(t, call, rng):
    """Sizes over the whole range; what is returned is only added up."""
    sizes = [1e-100, 1.0, 3.0, 1e17, 1e100]
    sizes += [rng.uniform(1, 10) * 10.0 ** rng.randrange(-99, 99) for _ in range(12)]
    for large in sizes:
        answer = call("three_numbers", large)
        case = f"for {large!r}"
        three = isinstance(answer, list | tuple) and len(answer) == 3
        if not t(three and all(map(is_number, answer)), f"{case}: three numbers are expected"):
            return
        a, b, c = (float(number) for number in answer)
        t((a + b) + c == 0, f"{case}: from the left the sum is to be 0, not {(a + b) + c!r}")
        t(a + (b + c) != 0, f"{case}: from the right the sum is not to be 0")
        t(max(abs(a), abs(b), abs(c)) == large, f"{case}: the largest number is another")
