"""Bytes that one rank sends in one training step, where what travels belongs to tokens.

Keys and values of tokens (context parallelism), and rows of tokens (expert parallelism).  As in
`traffic`, counts are what `llmcourse.parallel` sends, whole numbers for one rank (`index`) and
means over the ranks without one.

Shape letters: B sequences, T tokens of each, D width, L layers, G key/value heads, K head size,
N tokens, E experts, k experts of one token, n ranks.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from llmcourse.cost.messages import all_reduce_bytes
from llmcourse.cost.traffic import Bytes
from llmcourse.model import ModelConfig

COUNT_BYTES = 8
"""Of an int64."""


def context_parallel_bytes(
    config: ModelConfig,
    num_ranks: int,
    *,
    batch_size: int,
    length: int,
    num_parameters: int,
    number_bytes: int = 4,
    gradient_bytes: int = 4,
    index: int | None = None,
) -> Bytes:
    """Count ring attention; a rank's keys and values are M = L 2 B (T/n) G K numbers::

        forward     (n-1) M
        backward    (n-1) M, and (n-1) M gradients of keys and values in float32 at least
        gradients   all-reduce of the gradients of all parameters, once per step

    Llama 3 gathers keys and values in place of the ring, for the same (n-1) M in forward.

    Args:
        config: of the model; with the layers and the key/value heads that this rank has.
        num_ranks: n.
        batch_size: B, sequences.
        length: T, tokens of a whole sequence, a multiple of n.
        num_parameters: that are summed, on this rank, and a mark for each tensor of them; see
            `num_tensors`.
        number_bytes: of an activation.
        gradient_bytes: of a gradient.
        index: of the rank; None for the mean.

    Returns:
        Bytes under forward, backward and gradients.

    Raises:
        ValueError: if the length does not divide, or a number is out of range.

    Source:
        Liu, Zaharia and Abbeel 2023, section 3, https://arxiv.org/abs/2310.01889; Dubey et al.
        2024, section 3.3.2, https://arxiv.org/abs/2407.21783
    """
    if num_ranks < 1 or length % num_ranks:
        raise ValueError(f"length must be a multiple of the {num_ranks} ranks, got {length}")
    heads = config.num_kv_heads * config.head_size
    hops = (num_ranks - 1) * config.num_layers * 2 * batch_size * (length // num_ranks) * heads
    return {
        "forward": hops * number_bytes,
        "backward": hops * (number_bytes + max(4, number_bytes)),
        "gradients": all_reduce_bytes(
            num_parameters, num_ranks, row_bytes=gradient_bytes, index=index
        ),
    }


def expert_parallel_bytes(
    config: ModelConfig,
    num_ranks: int,
    *,
    num_tokens: int,
    num_parameters: int,
    sent_rows: int | None = None,
    received_rows: int | None = None,
    number_bytes: int = 4,
    gradient_bytes: int = 4,
    index: int | None = None,
) -> Bytes:
    """Count expert parallelism::

        rows        (S + R) D there and back in forward, and as much in backward
        counts      (n-1) E/n in int64 for each layer
        gradients   all-reduce of the gradients of all parameters but experts, once per step

    S are the rows of this rank's tokens for experts elsewhere, R those of other ranks for experts
    here, of all layers.  A router that uses all experts equally makes both L N k (n-1)/n.

    Args:
        config: of the model.
        num_ranks: n, a divisor of the experts.
        num_tokens: N, of this rank.
        num_parameters: that are not experts', and a mark for each tensor of them.
        sent_rows: S; None takes the uniform router.
        received_rows: R; None takes the uniform router.
        number_bytes: of an activation.
        gradient_bytes: of a gradient.
        index: of the rank; None for the mean.

    Returns:
        Bytes under rows, counts and gradients.

    Raises:
        ValueError: if the experts do not divide, or a number is out of range.

    Source:
        Lepikhin et al. 2020 (GShard), section 3.2, https://arxiv.org/abs/2006.16668; its all-to-all
        sends a fixed capacity of rows, full or not.
    """
    experts, layers = config.num_experts, config.num_layers
    if num_ranks < 1 or experts < 1 or experts % num_ranks:
        raise ValueError(f"{experts} experts cannot be cut evenly over {num_ranks} ranks")
    away = layers * num_tokens * config.experts_per_token * (num_ranks - 1) / num_ranks
    rows = sum(away if given is None else given for given in (sent_rows, received_rows))
    return {
        "rows": 2 * rows * config.width * number_bytes,
        "counts": layers * (num_ranks - 1) * (experts // num_ranks) * COUNT_BYTES,
        "gradients": all_reduce_bytes(
            num_parameters, num_ranks, row_bytes=gradient_bytes, index=index
        ),
    }
