"""Bytes that one rank sends in one training step, for each way to split a model.

Every function counts what the package of that name in `llmcourse.parallel` sends, to the byte, and
says where published systems differ.  Counts are whole numbers for one rank (`index`) and means over
the ranks without one.  Notes about calls (`Axis.check_calls`) are no part of it.

Shape letters: B sequences, T tokens of each, D width, L layers, G key/value heads, K head size,
n ranks.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from llmcourse.cost.messages import all_gather_bytes, all_reduce_bytes, reduce_scatter_bytes
from llmcourse.model import ModelConfig

FLOAT64_BYTES = 8

ZERO_STAGES = (0, 1, 2, 3)
"""What data parallelism shards: nothing, optimizer state, gradients too, parameters too."""

Bytes = dict[str, int | float]
"""By what is sent."""


def data_parallel_bytes(
    num_parameters: int,
    num_ranks: int,
    *,
    zero_stage: int = 0,
    gradient_bytes: int = 4,
    parameter_bytes: int = 4,
    index: int | None = None,
) -> Bytes:
    """Count data parallelism, plain or with ZeRO, whose tensors travel end to end::

        stage 0      2 (n-1)/n g P                  all-reduce of gradients
        stage 1, 2   (n-1)/n (g P + w P)            reduce-scatter, all-gather of parameters
        stage 3      (n-1)/n (g P + 2 w P)          parameters for forward and for backward

    Cut into buckets the mean stays the same.  `BucketedDDP` sends one more number for each
    parameter tensor, a mark: count it in P.

    Args:
        num_parameters: P, on this rank.
        num_ranks: n, 1 or more.
        zero_stage: 0 to 3.
        gradient_bytes: g, of a gradient as it is sent.
        parameter_bytes: w, of a parameter as it is sent.
        index: of the rank; None for the mean.

    Returns:
        Bytes under gradients and parameters.

    Raises:
        ValueError: if there is no such stage, or a number is out of range.

    Source:
        Rajbhandari et al. 2020, section 7, https://arxiv.org/abs/1910.02054
    """
    if zero_stage not in ZERO_STAGES:
        raise ValueError(f"zero_stage must be 0 to 3, got {zero_stage}")
    gradients = {"row_bytes": gradient_bytes, "index": index}
    if zero_stage == 0:
        return {"gradients": all_reduce_bytes(num_parameters, num_ranks, **gradients)}
    gathers = 2 if zero_stage == 3 else 1
    whole = all_gather_bytes(num_parameters, num_ranks, row_bytes=parameter_bytes, index=index)
    return {
        "gradients": reduce_scatter_bytes(num_parameters, num_ranks, **gradients),
        "parameters": gathers * whole,
    }


def tensor_parallel_bytes(
    config: ModelConfig,
    num_ranks: int,
    *,
    batch_size: int,
    length: int,
    sequence_parallel: bool = False,
    gather_again: bool = False,
    number_bytes: int = 4,
    gradient_bytes: int = 4,
    index: int | None = None,
) -> Bytes:
    """Count tensor parallelism of a dense model; A stands for an all-reduce of B T D numbers::

        embedding   A          sum of rows, forward
        blocks      4 L A      attention and feed-forward, forward and backward each
        head        A          gradient of what entered it
        loss        3 B T numbers in float32 at least: largest logit, sum of exp, target's logit
        gradients   of norms' gains and of copied key/value heads, once per step

    Sequence parallelism sends a reduce-scatter and an all-gather in place of each A: the same
    bytes, and then the gains of all norms.  With `qk_norm` theirs are sent in any case.

    Args:
        config: of the whole model.
        num_ranks: n.
        batch_size: B, sequences on this rank; of all micro-batches together, or of one.
        length: T, tokens of each; of this rank's part, with context parallelism.
        sequence_parallel: whether the residual stream is cut along time.
        gather_again: whether, with sequence parallelism, only a rank's stretch of a layer's input
            is kept and gathered once more in backward, as Megatron does and our package does not:
            2 L half A more.
        number_bytes: of an activation.
        gradient_bytes: of a gradient.
        index: of the rank; None for the mean.

    Returns:
        Bytes under embedding, blocks, head, loss and gradients.

    Raises:
        ValueError: if a number is out of range, or gather_again is without sequence_parallel.

    Source:
        Shoeybi et al. 2019, section 3, https://arxiv.org/abs/1909.08053; Korthikanti et al. 2022,
        section 4.2.2, https://arxiv.org/abs/2205.05198
    """
    if gather_again and not sequence_parallel:
        raise ValueError("gather_again has no effect without sequence_parallel: leave it out")
    tokens, layers = batch_size * length, config.num_layers
    whole = {"row_bytes": number_bytes, "index": index}
    summed = all_reduce_bytes(tokens * config.width, num_ranks, **whole)
    once_more = 0
    if sequence_parallel:
        rows = {"row_bytes": batch_size * config.width * number_bytes, "index": index}
        summed = all_reduce_bytes(length, num_ranks, **rows)
        once_more = 2 * layers * gather_again * all_gather_bytes(length, num_ranks, **rows)
    wide = {"row_bytes": max(4, number_bytes), "index": index}
    gains = partial_gains(config, sequence_parallel=sequence_parallel)
    numbers = {"row_bytes": gradient_bytes, "index": index}
    return {
        "embedding": summed,
        "blocks": 4 * layers * summed + once_more,
        "head": summed,
        "loss": all_reduce_bytes(tokens, num_ranks, **wide)
        + all_reduce_bytes(2 * tokens, num_ranks, **wide),
        "gradients": all_reduce_bytes(gains, num_ranks, **numbers)
        + copied_heads_bytes(config, num_ranks, **numbers),
    }


def copied_heads_bytes(
    config: ModelConfig, num_ranks: int, *, row_bytes: int = 4, index: int | None = None
) -> int | float:
    """Return what a rank sends to sum the gradients of key/value heads that several ranks hold.

    With more ranks than heads, n/G ranks hold each head: all-reduces of 2 L K D numbers among them.

    Arguments as in `tensor_parallel_bytes`; `row_bytes` is that of a gradient.
    """
    holders = max(1, num_ranks // config.num_kv_heads)
    numbers = 2 * config.num_layers * config.head_size * config.width
    place = None if index is None else index % holders
    return all_reduce_bytes(numbers, holders, row_bytes=row_bytes, index=place)


def partial_gains(config: ModelConfig, *, sequence_parallel: bool, final_norm: bool = True) -> int:
    """Return the gains of norms whose gradients tensor parallelism has to sum over its ranks.

    (2 L + 1) D where time is cut, and L 2 K with `qk_norm`, since a rank has its own heads only.

    Args:
        config: of the whole model, or with the layers of one stage.
        sequence_parallel: whether the residual stream is cut along time.
        final_norm: whether the norm before the head is here.
    """
    residual = (2 * config.num_layers + final_norm) * config.width
    of_heads = config.num_layers * 2 * config.head_size
    return residual * sequence_parallel + of_heads * config.qk_norm


def pipeline_bytes(
    num_ranks: int,
    *,
    index: int,
    message_bytes: int,
    num_micro_batches: int,
    num_chunks: int = 1,
    tied_bytes: int = 0,
) -> Bytes:
    """Count one rank of a pipeline::

        forward     m M for each of its stages but the last one of all
        backward    m M for each of its stages but the first one of all
        tied        the embedding's gradient, on the first and on the last rank
        losses      a table of (p v + 1) m float64, summed over all ranks

    The order of work does not matter: every schedule sends the same.  The interleaved one has v
    stages on each rank and sends v times as much.

    Args:
        num_ranks: p.
        index: of the rank.
        message_bytes: M, of the activations of one micro-batch: B T D numbers, or this rank's part
            of them.
        num_micro_batches: m.
        num_chunks: v, stages on each rank.
        tied_bytes: of the gradient of this rank's part of the embedding, where the head is tied.

    Returns:
        Bytes under forward, backward, tied and losses.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Narayanan et al. 2021, section 2.2.2, for the v times, https://arxiv.org/abs/2104.04473
    """
    if min(num_ranks, num_micro_batches, num_chunks) < 1 or min(message_bytes, tied_bytes) < 0:
        raise ValueError(
            "num_ranks, num_micro_batches and num_chunks must be 1 or more, and bytes 0 or more, "
            f"got {num_ranks}, {num_micro_batches}, {num_chunks}, {message_bytes}, {tied_bytes}"
        )
    table = (num_ranks * num_chunks + 1) * num_micro_batches
    losses = all_reduce_bytes(table, num_ranks, row_bytes=FLOAT64_BYTES, index=index)
    if num_ranks == 1:
        return {"forward": 0, "backward": 0, "tied": 0, "losses": losses}
    is_first, is_last = index == 0, index == num_ranks - 1
    once = num_micro_batches * message_bytes
    return {
        "forward": once * (num_chunks - is_last),
        "backward": once * (num_chunks - is_first),
        "tied": tied_bytes * (is_first or is_last),
        "losses": losses,
    }


def num_tensors(config: ModelConfig) -> int:
    """Return how many parameter tensors a model has, experts of one layer counting as three."""
    in_block = 9 + 2 * config.qk_norm + (config.num_experts > 0)
    return config.num_layers * in_block + 2 + (not config.tied_head)
