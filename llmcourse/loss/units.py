"""The units that a loss is reported in."""

import math


def perplexity(nats_per_token: int | float) -> float:
    """Return e^loss: the number of equally likely tokens that would be as hard to guess."""
    return math.exp(nats_per_token)


def bits_per_byte(nats_per_token: int | float, *, num_tokens: int, num_bytes: int) -> float:
    """Convert nats per token to bits per byte of text, which no tokenizer can flatter.

    bits per byte = nats per token * tokens / bytes / ln 2

    Raises:
        ValueError: if a count is not positive.
    """
    if num_tokens <= 0 or num_bytes <= 0:
        raise ValueError(
            f"num_tokens and num_bytes must be positive, got {num_tokens} and {num_bytes}"
        )
    return nats_per_token * num_tokens / num_bytes / math.log(2)
