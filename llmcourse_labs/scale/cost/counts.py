"""How many parameters a mixture has, and how many of them one token uses: pure arithmetic.

Shape letters: D width, F hidden width of one expert, E experts, k experts of one token, L layers,
V vocabulary, H heads, Rq and Rkv the low ranks of queries and of keys and values, K head size.
"""

from dataclasses import dataclass
from typing import NamedTuple

from llmcourse.model.config import check_chosen


class Counts(NamedTuple):
    """Parameters of a part."""

    total: int
    """All of them."""
    active: int
    """Those that take part in the result of one token; of an embedding, the whole table."""

    def times(self, number: int) -> "Counts":
        """Return the counts of so many equal parts."""
        return Counts(number * self.total, number * self.active)


def dense(number: int) -> Counts:
    """Return the counts of a part that every token uses."""
    return Counts(number, number)


def total_of(parts: dict[str, Counts]) -> Counts:
    """Add up the counts of all parts."""
    return Counts(sum(p.total for p in parts.values()), sum(p.active for p in parts.values()))


def mixture_parameters(
    *,
    width: int,
    hidden: int,
    num_experts: int,
    experts_per_token: int,
    num_shared: int = 0,
    bias: bool = False,
) -> dict[str, Counts]:
    """Count the parameters of one mixture by part.

    With the shape letters of the module::

        router    E D, and E with a bias that only chooses
        experts   E 3 D F, of which k 3 D F active
        shared    num_shared 3 D F

    Raises:
        ValueError: if k is not from 1 to E.
    """
    check_chosen(experts_per_token, num_experts)
    expert = 3 * width * hidden
    return {
        "router": dense(num_experts * width + num_experts * bias),
        "experts": Counts(num_experts * expert, experts_per_token * expert),
        "shared": dense(num_shared * expert),
    }


@dataclass(frozen=True, kw_only=True)
class DeepSeekShape:
    """The numbers that fix a DeepSeek-V3 without its multi-token prediction; the published ones.

    Source:
        DeepSeek-AI 2024, section 4.2, https://arxiv.org/abs/2412.19437
    """

    num_layers: int = 61
    """Blocks (L)."""
    num_dense_layers: int = 3
    """The first of them, with one feed-forward network each."""
    width: int = 7_168
    """Channels of a token between blocks (D)."""
    vocab_size: int = 129_280
    """Rows of the embedding, and of the head, which is not tied to it (V)."""
    dense_hidden: int = 18_432
    """Channels inside the feed-forward network of a dense layer."""
    expert_hidden: int = 2_048
    """Channels inside one expert (F)."""
    num_experts: int = 256
    """Routed experts of a layer (E)."""
    experts_per_token: int = 8
    """Routed experts that a token uses (k)."""
    num_shared: int = 1
    """Experts that every token uses."""
    num_heads: int = 128
    """Heads (H)."""
    query_rank: int = 1_536
    """Channels that queries are squeezed into (Rq)."""
    kv_rank: int = 512
    """Channels that keys and values are squeezed into (Rkv)."""
    plain_size: int = 128
    """Channels of a head's queries and keys that are not rotated."""
    rotary_size: int = 64
    """Channels of a head's queries that are rotated; one rotated key serves all heads."""
    value_size: int = 128
    """Channels of a head's values."""


def latent_attention_parameters(shape: DeepSeekShape) -> int:
    """Count the parameters of one multi-head latent attention, with its two norms.

    With the shape letters of the module::

        queries   D Rq + Rq + Rq H (plain + rotary)                down, norm, up
        keys and values   D (Rkv + rotary) + Rkv + Rkv H (plain + value)
        output    H value D
    """
    queries = shape.query_rank * (
        shape.width + 1 + shape.num_heads * (shape.plain_size + shape.rotary_size)
    )
    keys_values = shape.width * (shape.kv_rank + shape.rotary_size) + shape.kv_rank * (
        1 + shape.num_heads * (shape.plain_size + shape.value_size)
    )
    return queries + keys_values + shape.num_heads * shape.value_size * shape.width


def deepseek_parameters(shape: DeepSeekShape | None = None) -> dict[str, Counts]:
    """Count the parameters of a DeepSeek-V3 by part; None is the published shape.

    That has 671,026,419,200 in all, of which a token uses 37,552,297,472.
    """
    shape = shape or DeepSeekShape()
    num_mixtures = shape.num_layers - shape.num_dense_layers
    mixture = mixture_parameters(
        width=shape.width,
        hidden=shape.expert_hidden,
        num_experts=shape.num_experts,
        experts_per_token=shape.experts_per_token,
        num_shared=shape.num_shared,
        bias=True,
    )
    return {
        "embedding": dense(shape.vocab_size * shape.width),
        "attention": dense(shape.num_layers * latent_attention_parameters(shape)),
        "dense feed_forward": dense(shape.num_dense_layers * 3 * shape.width * shape.dense_hidden),
        **{part: counts.times(num_mixtures) for part, counts in mixture.items()},
        "norms": dense((2 * shape.num_layers + 1) * shape.width),
        "head": dense(shape.vocab_size * shape.width),
    }
