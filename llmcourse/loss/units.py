"""The units that a loss is reported in."""

import math

from llmcourse.base.arguments import require_each


def perplexity(nats_per_token: int | float) -> float:
    """Return e^loss: the number of equally likely tokens that would be as hard to guess."""
    return math.exp(nats_per_token)


def bits_per_byte(nats_per_token: int | float, *, num_tokens: int, num_bytes: int) -> float:
    """Convert nats per token to bits per byte of text, which no tokenizer can flatter.

    bits per byte = nats per token * tokens / bytes / ln 2

    Raises:
        ValueError: if a count is not positive.
    """
    require_each({"num_tokens": num_tokens, "num_bytes": num_bytes}, above=0)
    return nats_per_token * num_tokens / num_bytes / math.log(2)
