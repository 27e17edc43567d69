"""What tokens are worth that are read again: as many as how many fresh ones.

A run that reads U tokens and then R times the same ones is worth about as much as one that reads

    D = U + U R* (1 - exp(-R / R*))

tokens once.  The first repeats are nearly as good as fresh tokens, since 1 - exp(-x) is about x for
small x.  All repeats together are worth at most R* U tokens, however many they are.

R* was fitted on models of up to 8.7 billion parameters and up to 900 billion tokens of web text.
The formula never falls: it knows of no repeats that do harm.

Source: Muennighoff et al. 2023, "Scaling Data-Constrained Language Models", equation 5 and
section 3, https://arxiv.org/abs/2305.16264.
"""

import math

from llmcourse.base.arguments import Number, require

REPEATS_WORTH = 15.39
"""R*: all repeats together are worth at most so many times the tokens that are repeated."""


def effective_tokens(
    unique_tokens: Number, epochs: Number, *, repeats_worth: Number = REPEATS_WORTH
) -> Number:
    """Return how many fresh tokens some passes over the same ones are worth.

    D = U + U R* (1 - exp(-R / R*)),  R = epochs - 1

    Args:
        unique_tokens: U, 0 or more; with 1, the result is in passes over fresh text.
        epochs: passes over the text, 0 or more; up to one, nothing is repeated, and D = U epochs.
        repeats_worth: R*, above 0.

    Raises:
        ValueError: if a number is out of its range.
    """
    require("unique_tokens", unique_tokens, least=0)
    require("epochs", epochs, least=0)
    require("repeats_worth", repeats_worth, above=0)
    if epochs <= 1:
        return unique_tokens * epochs
    repeats = epochs - 1
    return unique_tokens * (1 - repeats_worth * math.expm1(-repeats / repeats_worth))
