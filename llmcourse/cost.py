"""What a model costs: parameters, FLOPs, bytes and GPU hours, as pure functions of its shape.

Shape letters: V vocabulary, D width, L layers, H heads, G key/value heads, K head size, F hidden,
T context length.

Nothing here allocates a tensor.  Counts are exact integers; times assume a stated share of the peak
of a stated part.

Taught in: chapters/10_blueprint.ipynb, chapters/20_activation_memory.ipynb
"""

from dataclasses import dataclass
from typing import Literal, get_args

from llmcourse.model import ModelConfig

Forgotten = Literal["nothing", "attention", "block"]
"""What a layer computes again in backward."""

FORGOTTEN: tuple[Forgotten, ...] = get_args(Forgotten)


def parameters_by_part(config: ModelConfig) -> dict[str, int]:
    """Count the parameters of a Llama by part.

    With the shape letters of the module::

        embedding     V D
        attention     L (2 D H K + 2 D G K)      queries and output; keys and values
        feed_forward  L 3 D F                    gate, up, down
        norms         (2 L + 1) D, and L 2 K with qk_norm
        head          V D, or 0 when tied to the embedding
    """
    width, layers = config.width, config.num_layers
    heads = 2 * config.num_heads + 2 * config.num_kv_heads
    return {
        "embedding": config.vocab_size * width,
        "attention": layers * width * heads * config.head_size,
        "feed_forward": layers * 3 * width * config.hidden,
        "norms": (2 * layers + 1) * width + layers * 2 * config.head_size * config.qk_norm,
        "head": 0 if config.tied_head else config.vocab_size * width,
    }


def num_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of a Llama."""
    return sum(parameters_by_part(config).values())


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
    The embedding is a look-up and costs none; norms and activations are left out (below 1 %).

    Args:
        config: the shape.
        context_length: T in tokens; None takes the configuration's.

    Source:
        Hoffmann et al. 2022, appendix F, https://arxiv.org/abs/2203.15556, with the causal half
        counted only once.
    """
    length = config.context_length if context_length is None else context_length
    if length < 1:
        raise ValueError(f"context_length must be 1 or greater, got {length}")
    parts = parameters_by_part(config)
    pair_flop = 4 * config.num_heads * config.head_size
    return {
        "projections": 2 * parts["attention"],
        "attention pairs": config.num_layers * pair_flop * (length + 1) / 2,
        "feed_forward": 2 * parts["feed_forward"],
        "head": 2 * config.vocab_size * config.width,
    }


def training_flop_per_token(config: ModelConfig, *, context_length: int | None = None) -> float:
    """Return forward + backward FLOPs per token: three times forward, as backward is two."""
    return 3 * sum(forward_flop_by_part(config, context_length=context_length).values())


def kv_cache_bytes_per_token(config: ModelConfig, *, bytes_per_number: int = 2) -> int:
    """Return the bytes that one token leaves in the cache: 2 L G K numbers, keys and values."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_size * bytes_per_number


def kept_bytes(
    config: ModelConfig, forgotten: Forgotten = "nothing", *, number_bytes: int = 2
) -> int:
    """Return what a Llama's block keeps of one token from forward to backward, in bytes.

    In numbers: each norm its input D; attention its input D, queries and output 2 H K, keys and
    values 2 G K; the feed-forward network its input D and 3 F.  Beside these a float32 for each
    norm and for each head, the log-sum-exp.  `qk_norm` keeps its inputs, H K + G K, and a float32
    for each of these heads.

    Args:
        config: the shape.
        forgotten: what is computed again: nothing; attention, which then keeps its input alone; or
            the whole block.
        number_bytes: bytes of an activation, 2 for bf16.

    Raises:
        ValueError: if there is no such choice.
    """
    if forgotten not in FORGOTTEN:
        raise ValueError(f"forgotten must be one of {', '.join(FORGOTTEN)}, got {forgotten!r}")
    if forgotten == "block":
        return number_bytes * config.width
    numbers, floats = 4 * config.width + 3 * config.hidden, 2
    if forgotten == "nothing":
        heads = config.num_heads + config.num_kv_heads
        per_head = 3 if config.qk_norm else 2
        numbers, floats = numbers + per_head * heads * config.head_size, floats + config.num_heads
        floats += heads * config.qk_norm
    return number_bytes * numbers + 4 * floats


@dataclass(frozen=True, kw_only=True)
class TrainingBytes:
    """Bytes per parameter that training keeps, by what they hold."""

    weights: int
    """Weights that the forward pass reads."""
    gradients: int
    """One gradient per weight."""
    master: int
    """A second, precise copy of the weights, where the first is bf16."""
    moments: int
    """AdamW's mean and mean square."""

    @property
    def optimizer(self) -> int:
        """Bytes per parameter of the optimizer's state: moments and master copy."""
        return self.master + self.moments

    @property
    def total(self) -> int:
        """Bytes per parameter in all."""
        return self.weights + self.gradients + self.optimizer


FP32_TRAINING = TrainingBytes(weights=4, gradients=4, master=0, moments=8)
"""Everything in float32, as on the CPU here: 16 bytes."""

MIXED_TRAINING = TrainingBytes(weights=2, gradients=2, master=4, moments=8)
"""bf16 weights and gradients, fp32 master and moments: 16 bytes (ZeRO, arXiv 1910.02054)."""

MIXED_WIDE_GRADIENTS = TrainingBytes(weights=2, gradients=4, master=4, moments=8)
"""The same with gradients summed in fp32, as Llama 3 was trained: 18 bytes."""

MOMENTS_IN_BF16 = TrainingBytes(weights=2, gradients=2, master=0, moments=4)
"""Nothing in fp32: 8 bytes, and updates that round away (chapter 27)."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One accelerator, from its data sheet."""

    name: str
    dense_bf16_flop_per_s: float
    """Peak without sparsity; data sheets often print twice that."""
    memory_bytes: float
    memory_bytes_per_s: float
    source: str


HARDWARE = {
    "A100": Hardware(
        name="NVIDIA A100 SXM 80 GB",
        dense_bf16_flop_per_s=312e12,
        memory_bytes=80e9,
        memory_bytes_per_s=2.039e12,
        source="NVIDIA A100 data sheet, 2021",
    ),
    "H100": Hardware(
        name="NVIDIA H100 SXM 80 GB",
        dense_bf16_flop_per_s=989.4e12,
        memory_bytes=80e9,
        memory_bytes_per_s=3.35e12,
        source="NVIDIA H100 data sheet, 2023 (1,979 TFLOP/s is with sparsity)",
    ),
    "B200": Hardware(
        name="NVIDIA B200 192 GB",
        dense_bf16_flop_per_s=2.25e15,
        memory_bytes=192e9,
        memory_bytes_per_s=8e12,
        source="NVIDIA Blackwell architecture brief, 2024",
    ),
}
"""Accelerators by short name."""


def training_seconds(
    *,
    num_parameters: int | float,
    num_tokens: int | float,
    num_gpus: int,
    hardware: Hardware,
    utilisation: int | float,
) -> float:
    """Return the time to train, by the rule of six:  6 N D / (GPUs x peak x utilisation).

    Args:
        num_parameters: N.
        num_tokens: D.
        num_gpus: how many work on it, 1 or more.
        hardware: which ones.
        utilisation: share of the dense bf16 peak that is reached (MFU), in (0, 1].

    Raises:
        ValueError: if an argument is outside its range.

    Source:
        Kaplan et al. 2020, section 2.1, https://arxiv.org/abs/2001.08361
    """
    if num_parameters <= 0 or num_tokens <= 0 or num_gpus < 1:
        raise ValueError(
            "num_parameters, num_tokens and num_gpus must be positive, got "
            f"{num_parameters}, {num_tokens} and {num_gpus}"
        )
    if not 0 < utilisation <= 1:
        raise ValueError(f"utilisation must be above 0 and at most 1, got {utilisation}")
    flop = 6 * num_parameters * num_tokens
    return flop / (num_gpus * hardware.dense_bf16_flop_per_s * utilisation)
