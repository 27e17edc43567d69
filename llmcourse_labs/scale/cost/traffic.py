"""Bytes that one rank sends in one training step, for each way to split a model.

Every function counts what the package of that name in `llmcourse.parallel` sends, to the byte, and
says where published systems differ; data parallelism is `parallel.zero.traffic_bytes`.  Counts are
whole numbers for one rank (`index`) and means over the ranks without one.  Notes about calls
(`Axis.check_calls`) are no part of it.

Shape letters: B sequences, T tokens of each, D width, L layers, G key/value heads, K head size,
N tokens, E experts, k experts of one token, n ranks.
"""

from llmcourse.base.arguments import require, require_each
from llmcourse.model import ModelConfig
from llmcourse.parallel.expert_parallel import check_experts
from llmcourse.parallel.tensor_parallel.table import copies
from llmcourse_labs.scale.arithmetic import sent_bytes

COUNT_BYTES = 8
"""Of an int64."""

LOSS_BYTES = 8
"""Of a float64, in which a pipeline keeps losses."""

Bytes = dict[str, int | float]
"""By what is sent."""


def tensor_parallel_bytes(
    config: ModelConfig,
    num_ranks: int,
    *,
    batch_size: int,
    length: int,
    sequence_parallel: bool = False,
    gather_again: bool = False,
    is_first: bool = True,
    is_last: bool = True,
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
    bytes, and then the gains of all norms, (2 L + 1) D.  Megatron keeps a rank's stretch of a
    layer's input alone, and gathers it once more in backward: 2 L all-gathers, L A, more.

    With `qk_norm` the gains of queries and keys, L 2 K, are summed in any case: a rank has its own
    heads only.  With more ranks than key/value heads, n/G ranks hold each head, and sum the
    gradients of its 2 L K D numbers among them.

    Args:
        config: of the whole model, or with the layers of one stage.
        num_ranks: n.
        batch_size: B, sequences on this rank; of all micro-batches together, or of one.
        length: T, tokens of each; of this rank's part, with context parallelism.
        sequence_parallel: whether the residual stream is cut along time.
        gather_again: whether the input of a cut layer is gathered once more in backward; the
            package keeps it.
        is_first: whether the embedding is looked up here.
        is_last: whether the last norm, the head and the loss are here.
        number_bytes: of an activation.
        gradient_bytes: of a gradient.
        index: of the rank; None for the mean.

    Returns:
        Bytes under embedding, blocks, head, loss and gradients.

    Raises:
        ValueError: if a number is out of range, or gather_again comes without sequence_parallel.

    Source:
        Shoeybi et al. 2019, section 3, https://arxiv.org/abs/1909.08053; Korthikanti et al. 2022,
        section 4.2.2, https://arxiv.org/abs/2205.05198
    """
    if gather_again and not sequence_parallel:
        raise ValueError("gather_again needs sequence_parallel: else no input is gathered at all")
    tokens, layers = batch_size * length, config.num_layers
    if sequence_parallel:  # chunks of whole moments in time
        row_bytes = batch_size * config.width * number_bytes
        summed = _all_reduce_bytes(length, num_ranks, row_bytes, index)
    else:
        summed = _all_reduce_bytes(tokens * config.width, num_ranks, number_bytes, index)
    largest, sums = (
        _all_reduce_bytes(numbers, num_ranks, max(4, number_bytes), index)
        for numbers in (tokens, 2 * tokens)
    )
    gains = sequence_parallel * (2 * layers + is_last) * config.width
    gains += config.qk_norm * layers * 2 * config.head_size
    holders = copies(config, num_ranks)
    place = None if index is None else index % holders
    copied = 2 * layers * config.head_size * config.width
    return {
        "embedding": is_first * summed,
        "blocks": (4 + gather_again) * layers * summed,
        "head": is_last * summed,
        "loss": is_last * (largest + sums),
        "gradients": _all_reduce_bytes(gains, num_ranks, gradient_bytes, index)
        + _all_reduce_bytes(copied, holders, gradient_bytes, place),
    }


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
    counts = {"num_micro_batches": num_micro_batches, "num_chunks": num_chunks}
    require_each({"num_ranks": num_ranks, **counts}, least=1)
    require_each({"message_bytes": message_bytes, "tied_bytes": tied_bytes}, least=0)
    table = (num_ranks * num_chunks + 1) * num_micro_batches
    losses = _all_reduce_bytes(table, num_ranks, LOSS_BYTES, index)
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
        num_parameters: that are summed, on this rank, and a mark for each tensor of them.
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
        "gradients": _all_reduce_bytes(num_parameters, num_ranks, gradient_bytes, index),
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
    require("num_ranks", num_ranks, least=1)
    check_experts(experts, num_ranks)
    away = layers * num_tokens * config.experts_per_token * (num_ranks - 1) / num_ranks
    rows = sum(away if given is None else given for given in (sent_rows, received_rows))
    return {
        "rows": 2 * rows * config.width * number_bytes,
        "counts": layers * (num_ranks - 1) * (experts // num_ranks) * COUNT_BYTES,
        "gradients": _all_reduce_bytes(num_parameters, num_ranks, gradient_bytes, index),
    }


def _all_reduce_bytes(
    length: int, num_ranks: int, row_bytes: int, index: int | None
) -> int | float:
    """Return what a rank sends to sum so many rows, which are cut into chunks of whole rows."""
    num_bytes = length * row_bytes
    return sent_bytes("all_reduce_ring", num_bytes, num_ranks, index=index, element_bytes=row_bytes)
