"""What a model costs: parameters, FLOPs and kept bytes, as pure functions of its shape.

Shape letters: V vocabulary, D width, L layers, H heads, G key/value heads, K head size, F hidden,
T context length, E experts, k experts of one token.

Nothing here allocates a tensor.  Counts are exact integers.
"""

from typing import Literal, get_args

from llmcourse.base.arguments import require
from llmcourse.model import ModelConfig
from llmcourse_labs.scale.cost.counts import Counts, mixture_parameters

Forgotten = Literal["nothing", "attention", "block"]
"""What a layer computes again in backward."""

Recomputed = Forgotten | Literal["cheap"]
"""The same, or what is cheap to compute."""

FORGOTTEN: tuple[Forgotten, ...] = get_args(Forgotten)
MENU: tuple[Recomputed, ...] = (*FORGOTTEN, "cheap")
"""Of `kept_bytes`; the last one without a matrix product."""


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """Count the parameters of a Llama, or of a Llama with experts, by part.

    With the shape letters of the module::

        embedding     V D
        attention     L (2 D H K + 2 D G K)      queries and output; keys and values
        feed_forward  L 3 D F                    gate, up, down; of a mixture L E 3 D F
        router        L E D                      of a mixture only
        norms         (2 L + 1) D, and L 2 K with qk_norm
        head          V D, or 0 when tied to the embedding
    """
    width, layers = config.width, config.num_layers
    heads = 2 * config.num_heads + 2 * config.num_kv_heads
    feed_forward = {"feed_forward": 3 * width * config.hidden}
    if config.num_experts:
        mixture = _mixture(config)
        feed_forward = {part: mixture[part].total for part in ("feed_forward", "router")}
    return {
        "embedding": config.vocab_size * width,
        "attention": layers * width * heads * config.head_size,
        **{part: layers * count for part, count in feed_forward.items()},
        "norms": (2 * layers + 1) * width + layers * 2 * config.head_size * config.qk_norm,
        "head": 0 if config.tied_head else config.vocab_size * width,
    }


def _mixture(config: ModelConfig) -> dict[str, Counts]:
    """Return the counts of one mixture under the names of `parameters_by_part`."""
    counts = mixture_parameters(
        width=config.width,
        hidden=config.hidden,
        num_experts=config.num_experts,
        experts_per_token=config.experts_per_token,
    )
    return {"feed_forward": counts["experts"], "router": counts["router"]}


def num_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of a Llama, all experts included."""
    return sum(parameters_by_part(config).values())


def num_active_parameters(config: ModelConfig) -> int:
    """Return the parameters that one token uses: of a mixture, k experts of each layer.

    The whole embedding counts, as in published figures.  For a dense model it is all of them.
    """
    if not config.num_experts:
        return num_parameters(config)
    experts = _mixture(config)["feed_forward"]
    return num_parameters(config) - config.num_layers * (experts.total - experts.active)


def gpt2_parameters_by_part(
    *,
    num_layers: int,
    width: int,
    vocab_size: int,
    context_length: int,
    bias: bool = True,
) -> dict[str, int]:
    """Count the parameters of a GPT-2: learned positions, LayerNorm, a 4 x wide GELU network.

    The head is tied.  `bias=False` leaves out every additive term, as nanoGPT can.

    Source:
        Radford et al. 2019; 12 layers, width 768, 50,257 tokens, 1,024 positions is 124,439,808.
    """
    norm = 2 * width if bias else width
    matrices = {"attention": 4 * width * width, "feed_forward": 8 * width * width}
    biases = {"attention": 4 * width, "feed_forward": 5 * width} if bias else {}
    return {
        "embedding": vocab_size * width,
        "positions": context_length * width,
        **{part: num_layers * (count + biases.get(part, 0)) for part, count in matrices.items()},
        "norms": (2 * num_layers + 1) * norm,
    }


def forward_flop_by_part(
    config: ModelConfig, *, context_length: int | None = None
) -> dict[str, int | float]:
    """Count the forward FLOPs per token by part, averaged over a sequence.

    A matrix of n parameters costs 2 n (a multiply and an add each).  A token at position t reads
    t + 1 keys, (T + 1) / 2 on average, for 2 H K multiply-adds each (scores and values).
    The embedding is a look-up and costs none; norms and activations are left out (below 1 %).  Of
    a mixture the k experts of the token count, and its router, under a name of its own; no choice
    is taken to be dropped.

    Args:
        config: the shape.
        context_length: T in tokens; None takes the configuration's.

    Source:
        Hoffmann et al. 2022, appendix F, https://arxiv.org/abs/2203.15556, with the causal half
        counted only once.
    """
    length = config.context_length if context_length is None else context_length
    require("context_length", length, least=1)
    parts = parameters_by_part(config)
    pair_flop = 4 * config.num_heads * config.head_size
    feed_forward = {"feed_forward": 2 * parts["feed_forward"]}
    if config.num_experts:
        mixture = _mixture(config)
        feed_forward = {part: 2 * config.num_layers * c.active for part, c in mixture.items()}
    return {
        "projections": 2 * parts["attention"],
        "attention pairs": config.num_layers * pair_flop * (length + 1) / 2,
        **feed_forward,
        "head": 2 * config.vocab_size * config.width,
    }


def training_flop_per_token(config: ModelConfig, *, context_length: int | None = None) -> float:
    """Return forward + backward FLOPs per token: three times forward, as backward is two."""
    return 3 * sum(forward_flop_by_part(config, context_length=context_length).values())


def kv_cache_bytes_per_token(config: ModelConfig, *, bytes_per_number: int = 2) -> int:
    """Return the bytes that one token leaves in the cache: 2 L G K numbers, keys and values."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_size * bytes_per_number


def kept_bytes(
    config: ModelConfig,
    forgotten: Recomputed = "nothing",
    *,
    number_bytes: int = 2,
) -> int:
    """Return what a Llama's block keeps of one token from forward to backward, in bytes.

    In numbers: each norm its input D; attention its input D, queries and output 2 H K, keys and
    values 2 G K; the feed-forward network its input D and 3 F.  Beside these a float32 for each
    norm and for each head, the log-sum-exp.  `qk_norm` keeps its inputs, H K + G K, and a float32
    for each of these heads.

    A mixture keeps its input D as well, and then k (2 D + 2 F) in place of 3 F: the rows that the
    experts read and return, gate and up.  Beside these E + k + 1 float32 (probabilities, weights
    and their divisor) and 3 k indices of 8 bytes; what does not grow with the tokens is left out.

    Args:
        config: the shape.
        forgotten: what is computed again: nothing; attention, which then keeps its input alone;
            the whole block; or what is cheap, the 2 D that norms return and the F gated units.
        number_bytes: bytes of an activation, 2 for bf16.

    Raises:
        ValueError: if there is no such choice, or it is "cheap" for a mixture.
    """
    if forgotten not in MENU:
        raise ValueError(f"forgotten must be one of {', '.join(MENU)}, got {forgotten!r}")
    if forgotten == "cheap":
        if config.num_experts:
            raise ValueError("forgotten cheap is for dense models: experts keep other tensors")
        saved = number_bytes * (2 * config.width + config.hidden)
        return kept_bytes(config, number_bytes=number_bytes) - saved
    if forgotten == "block":
        return number_bytes * config.width
    chosen, numbers, floats = config.experts_per_token, 4 * config.width, 2
    if config.num_experts:
        numbers += chosen * 2 * (config.width + config.hidden)
        floats += config.num_experts + chosen + 1
    else:
        numbers += 3 * config.hidden
    if forgotten == "nothing":
        heads = config.num_heads + config.num_kv_heads
        per_head = 3 if config.qk_norm else 2
        numbers, floats = numbers + per_head * heads * config.head_size, floats + config.num_heads
        floats += heads * config.qk_norm
    return number_bytes * numbers + 4 * floats + 8 * 3 * chosen
